//! A file that is moved elsewhere: read in pieces, in one state, and not written to.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, params_from_iter};

use super::super::decode::plain;
use super::super::error::StoreError;
use super::super::sqlite::{SqliteOptions, open_source};
use super::super::trouble::{Outcome, nonsense};
use super::MoveError;
use super::tables::{Cell, Cells, Column, NUMBERED, SPECS, Table, list, quoted};

/// How much is read at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    /// So many rows at most.
    pub(super) rows: usize,
    /// And none after so many bytes.
    pub(super) bytes: usize,
}

/// A file being moved. Everything that is read of it is one state: what is written meanwhile is not seen, but noticed.
#[derive(Debug, Clone)]
pub(super) struct Source {
    path: PathBuf,
    db: Arc<Mutex<Connection>>,
    /// By which it is told whether anybody else wrote since.
    version: i64,
}

/// What is known of a file before it is moved.
pub(super) struct Contents {
    pub(super) secret: Vec<u8>,
    /// About how many rows each table has.
    pub(super) counts: Vec<u64>,
    /// How many rows PostgreSQL cannot keep.
    pub(super) left_out: u64,
}

impl Source {
    /// Opens it. Nothing is made, and nothing is changed: it must be of this release already.
    pub(super) async fn open(path: &Path) -> Result<Self, MoveError> {
        let path = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || {
            let db = open_source(&path, &SqliteOptions::default())?;
            let begun = begin(&db).map_err(|trouble| trouble.at(&path));
            begun.map(|version| Self { path, db: Arc::new(Mutex::new(db)), version })
        });
        opened.await.unwrap_or_else(|_| Err(panicked())).map_err(MoveError::Source)
    }

    /// What is in it.
    pub(super) async fn contents(&self) -> Result<Contents, MoveError> {
        let read = |db: &Connection| {
            let number = |sql: &str| {
                let rows: i64 = db.query_row(sql, [], |row| row.get(0))?;
                Outcome::Ok(u64::try_from(rows).unwrap_or(0))
            };
            let secret = db.query_row("SELECT secret FROM secrets", [], |row| row.get(0))?;
            let counts = SPECS.iter().map(|table| match table.name {
                // There are as many as their sessions say, and counting them would take long.
                "messages" => number("SELECT coalesce(sum(head), 0) FROM sessions WHERE state = 'open'"),
                name => number(&format!("SELECT count(*) FROM \"{name}\" AS moved WHERE {}", table.only)),
            });
            let left_out = number(
                "SELECT (SELECT count(*) FROM idempotency WHERE instr(key, char(0)) > 0) \
                 + (SELECT count(*) FROM passed WHERE instr(model, char(0)) > 0)",
            );
            Ok(Contents { secret, counts: counts.collect::<Outcome<_>>()?, left_out: left_out? })
        };
        self.read(read).await
    }

    /// The largest number that was ever given, for each of the tables whose rows are numbered.
    pub(super) async fn numbers(&self) -> Result<Vec<i64>, MoveError> {
        let read = |db: &Connection| {
            let largest = |(table, column): &(&str, &str)| {
                let sql = format!("SELECT coalesce(max({column}), 0) FROM \"{table}\"");
                let there: i64 = db.query_row(&sql, [], |row| row.get(0))?;
                // Of some it is known even where the row is gone.
                let sql = "SELECT seq FROM sqlite_sequence WHERE name = ?1";
                let given: Option<i64> = db.query_row(sql, [table], |row| row.get(0)).optional()?;
                Ok(given.unwrap_or(0).max(there))
            };
            NUMBERED.iter().map(largest).collect()
        };
        self.read(read).await
    }

    /// Rows after the one of this key, or the first.
    pub(super) async fn piece(
        &self,
        table: &Arc<Table>,
        after: Option<Cells>,
        piece: Piece,
    ) -> Result<Vec<Cells>, MoveError> {
        let table = Arc::clone(table);
        self.read(move |db| piece_of(db, &table, after.as_deref(), piece)).await?
    }

    /// Whether anybody wrote to it since it was opened. What is read after this is a later state.
    pub(super) async fn was_written(&self) -> Result<bool, MoveError> {
        let before = self.version;
        let read = move |db: &Connection| {
            db.execute_batch("COMMIT")?;
            Ok(begin(db)? != before)
        };
        self.read(read).await
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Outcome<T> + Send + 'static,
    ) -> Result<T, MoveError> {
        let source = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            let db = source.db.lock().unwrap_or_else(PoisonError::into_inner);
            work(&db).map_err(|trouble| trouble.at(&source.path))
        });
        read.await.unwrap_or_else(|_| Err(panicked())).map_err(MoveError::Source)
    }
}

fn panicked() -> StoreError {
    StoreError::Failed { reason: "reading the file failed".to_owned() }
}

/// Begins to see one state, and tells which.
fn begin(db: &Connection) -> Outcome<i64> {
    db.execute_batch("BEGIN")?;
    // The state is the one that the first look finds.
    let _: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let version = db.query_row("PRAGMA data_version", [], |row| row.get(0)).optional()?;
    version.ok_or_else(|| nonsense("it does not tell its version"))
}

fn piece_of(
    db: &Connection,
    table: &Table,
    after: Option<&[Cell]>,
    piece: Piece,
) -> Outcome<Result<Vec<Cells>, MoveError>> {
    let limit = i64::try_from(piece.rows).unwrap_or(i64::MAX);
    let mut statement = db.prepare_cached(&select(table, after.is_some(), limit))?;
    let given = table.columns.iter().zip(after.unwrap_or_default());
    let given = given.map(|(column, cell)| stored(column, cell.as_deref()));
    let mut found = statement.query(params_from_iter(given))?;
    let (mut rows, mut size) = (Vec::new(), 0);
    while size < piece.bytes
        && let Some(row) = found.next()?
    {
        let mut cells = Vec::with_capacity(table.columns.len());
        for (at, column) in table.columns.iter().enumerate() {
            let Some(cell) = cell(row.get_ref(at)?, column) else {
                let (key, column) = (table.shown(&table.key_of(&cells)), column.name.clone());
                return Ok(Err(MoveError::Unfit { table: table.spec.name, key, column }));
            };
            // A row is as large as its words, and a little for each column.
            size += cell.as_ref().map_or(0, String::len) + 24;
            cells.push(cell);
        }
        rows.push(cells);
    }
    Ok(Ok(rows))
}

fn select(table: &Table, after: bool, limit: i64) -> String {
    let spec = table.spec;
    let read = |column: &Column| {
        let computed = spec.computed.iter().find(|(name, _)| *name == column.name);
        computed.map_or_else(|| quoted(&column.name), |(_, sql)| (*sql).to_owned())
    };
    let (name, columns, key) = (spec.name, list(table.columns.iter().map(read)), table.key_list());
    let places = list((1..=spec.key.len()).map(|at| format!("?{at}")));
    let after = if after { format!("({key}) > ({places})") } else { "true".to_owned() };
    format!(
        "SELECT {columns} FROM \"{name}\" AS moved WHERE {after} AND ({}) ORDER BY {key} LIMIT {limit}",
        spec.only
    )
}

/// A value as it is moved; none where it is not what the column is for, or larger than PostgreSQL has room for.
fn cell(value: ValueRef<'_>, column: &Column) -> Option<Cell> {
    Some(Some(match (column.kind.as_str(), value) {
        (_, ValueRef::Null) if column.nullable => return Some(None),
        ("int8", ValueRef::Integer(value)) => value.to_string(),
        ("int4", ValueRef::Integer(value)) => i32::try_from(value).ok()?.to_string(),
        ("int2", ValueRef::Integer(value)) => i16::try_from(value).ok()?.to_string(),
        ("bool", ValueRef::Integer(value)) => (value != 0).to_string(),
        ("text", ValueRef::Text(text)) => plain(std::str::from_utf8(text).ok()?).into_owned(),
        ("bytea", ValueRef::Blob(bytes)) => {
            let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
            std::iter::once("\\x".to_owned()).chain(digits).collect()
        }
        _ => return None,
    }))
}

/// A value of a key as the file has it: the reverse of [`cell`].
fn stored(column: &Column, cell: Option<&str>) -> Value {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    match (column.kind.as_str(), cell) {
        (_, None) => Value::Null,
        ("text", Some(text)) => Value::Text(text.to_owned()),
        ("bytea", Some(hex)) => Value::Blob(hex.as_bytes().chunks(2).skip(1).filter_map(byte).collect()),
        ("bool", Some(flag)) => Value::Integer((flag == "true").into()),
        (_, Some(number)) => number.parse().map_or(Value::Null, Value::Integer),
    }
}
