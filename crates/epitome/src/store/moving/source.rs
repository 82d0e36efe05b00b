//! A file that is moved elsewhere: read in pieces, in one state, and not written to.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, params_from_iter};

use super::super::columns::plain;
use super::super::error::StoreError;
use super::super::sqlite::{SqliteOptions, open_source};
use super::super::trouble::{Outcome, Trouble, nonsense};
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

    /// The number that names are made of.
    pub(super) async fn secret(&self) -> Result<Vec<u8>, MoveError> {
        let read = |db: &Connection| Ok(db.query_row("SELECT secret FROM secrets", [], |row| row.get(0))?);
        self.read(read).await
    }

    /// About how many rows there are to be moved, table by table.
    pub(super) async fn counts(&self) -> Result<Vec<u64>, MoveError> {
        let read = |db: &Connection| {
            let counts = SPECS.iter().map(|table| {
                let sql = match table.name {
                    // Quicker than reading past everything that was ever said.
                    "messages" => {
                        "SELECT coalesce(sum(head), 0) FROM sessions WHERE state = 'open'".to_owned()
                    }
                    name => format!("SELECT count(*) FROM \"{name}\" AS moved WHERE {}", table.only),
                };
                let rows: i64 = db.query_row(&sql, [], |row| row.get(0))?;
                Ok(u64::try_from(rows).unwrap_or(0))
            });
            counts.collect()
        };
        self.read(read).await
    }

    /// How many rows cannot be kept elsewhere, and are left out.
    pub(super) async fn left_out(&self) -> Result<u64, MoveError> {
        let read = |db: &Connection| {
            let sql = "SELECT (SELECT count(*) FROM idempotency WHERE instr(key, char(0)) > 0) \
                 + (SELECT count(*) FROM passed WHERE instr(model, char(0)) > 0)";
            let rows: i64 = db.query_row(sql, [], |row| row.get(0))?;
            Ok(u64::try_from(rows).unwrap_or(0))
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
        let (source, table) = (self.clone(), Arc::clone(table));
        let read = tokio::task::spawn_blocking(move || source.piece_here(&table, after.as_deref(), piece));
        read.await.unwrap_or_else(|_| Err(MoveError::Source(panicked())))
    }

    fn piece_here(
        &self,
        table: &Table,
        after: Option<&[Cell]>,
        piece: Piece,
    ) -> Result<Vec<Cells>, MoveError> {
        let failed = |error: rusqlite::Error| MoveError::Source(Trouble::from(error).at(&self.path));
        let db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = i64::try_from(piece.rows).unwrap_or(i64::MAX);
        let mut statement = db.prepare_cached(&select(table, after.is_some(), limit)).map_err(failed)?;
        let given = table.columns.iter().zip(after.unwrap_or_default());
        let given = given.map(|(column, cell)| stored(column, cell.as_deref()));
        let mut found = statement.query(params_from_iter(given)).map_err(failed)?;
        let (mut rows, mut size) = (Vec::new(), 0);
        while size < piece.bytes
            && let Some(row) = found.next().map_err(failed)?
        {
            let mut cells = Vec::with_capacity(table.columns.len());
            for (at, column) in table.columns.iter().enumerate() {
                let value = row.get_ref(at).map_err(failed)?;
                let cell = cell(value, column).ok_or_else(|| MoveError::Unfit {
                    table: table.spec.name,
                    key: table.shown(&table.key_of(&cells)),
                    column: column.name.clone(),
                })?;
                size += cell.as_ref().map_or(0, String::len) + 24;
                cells.push(cell);
            }
            rows.push(cells);
        }
        Ok(rows)
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
