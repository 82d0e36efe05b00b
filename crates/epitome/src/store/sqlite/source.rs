//! A file that is moved elsewhere: read in pieces, in one state, and not written to.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, ToSql, params_from_iter};

use super::super::error::StoreError;
use super::super::moving::{Cell, Cells, Kind, MoveError, NUMBERED, TABLES, Table, key_of, list, shown};
use super::error::{Outcome, nonsense};
use super::open;
use super::options::SqliteOptions;

/// How much is read at once.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Piece {
    /// So many rows at most.
    pub(in crate::store) rows: usize,
    /// And none after so many bytes.
    pub(in crate::store) bytes: usize,
}

/// A file being moved. Everything that is read of it is one state: what is written meanwhile is not seen, but noticed.
#[derive(Debug, Clone)]
pub(in crate::store) struct Source {
    path: PathBuf,
    db: Arc<Mutex<Connection>>,
    /// By which it is told whether anybody else wrote since.
    version: i64,
}

impl Source {
    /// Opens it. Nothing is made, and nothing is changed: it must be of this release already.
    pub(in crate::store) async fn open(path: &Path) -> Result<Self, MoveError> {
        let path = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || {
            let db = open::source(&path, &SqliteOptions::default())?;
            let begun = begin(&db).map_err(|trouble| trouble.at(&path));
            begun.map(|version| Self { path, db: Arc::new(Mutex::new(db)), version })
        });
        opened.await.unwrap_or_else(|_| Err(panicked())).map_err(MoveError::Source)
    }

    /// The number that names are made of.
    pub(in crate::store) async fn secret(&self) -> Result<Vec<u8>, MoveError> {
        let read = |db: &Connection| Ok(db.query_row("SELECT secret FROM secrets", [], |row| row.get(0))?);
        self.read(read).await
    }

    /// About how many rows there are to be moved, table by table.
    pub(in crate::store) async fn counts(&self) -> Result<Vec<u64>, MoveError> {
        let read = |db: &Connection| {
            let count = |table: &Table| {
                let sql = match (table.name, table.only) {
                    // Quicker than reading past everything that was ever said.
                    ("messages", _) => {
                        "SELECT coalesce(sum(head), 0) FROM sessions WHERE state = 'open'".to_owned()
                    }
                    (name, Some(only)) => format!("SELECT count(*) FROM \"{name}\" AS moved WHERE {only}"),
                    (name, None) => format!("SELECT count(*) FROM \"{name}\""),
                };
                let rows: i64 = db.query_row(&sql, [], |row| row.get(0))?;
                Ok(u64::try_from(rows).unwrap_or(0))
            };
            TABLES.iter().map(count).collect()
        };
        self.read(read).await
    }

    /// How many rows cannot be kept elsewhere, and are left out.
    pub(in crate::store) async fn left_out(&self) -> Result<u64, MoveError> {
        let read = |db: &Connection| {
            let sql = "SELECT (SELECT count(*) FROM idempotency WHERE instr(key, char(0)) > 0) \
                 + (SELECT count(*) FROM passed WHERE instr(model, char(0)) > 0)";
            let rows: i64 = db.query_row(sql, [], |row| row.get(0))?;
            Ok(u64::try_from(rows).unwrap_or(0))
        };
        self.read(read).await
    }

    /// The largest number that was ever given, for each of the tables whose rows are numbered.
    pub(in crate::store) async fn numbers(&self) -> Result<Vec<i64>, MoveError> {
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
    pub(in crate::store) async fn piece(
        &self,
        table: &'static Table,
        after: Option<Cells>,
        piece: Piece,
    ) -> Result<Vec<Cells>, MoveError> {
        let source = self.clone();
        let read = tokio::task::spawn_blocking(move || source.piece_here(table, after.as_deref(), piece));
        read.await.unwrap_or_else(|_| Err(MoveError::Source(panicked())))
    }

    fn piece_here(
        &self,
        table: &'static Table,
        after: Option<&[Cell]>,
        piece: Piece,
    ) -> Result<Vec<Cells>, MoveError> {
        let failed =
            |error: rusqlite::Error| MoveError::Source(super::error::Trouble::from(error).at(&self.path));
        let db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = i64::try_from(piece.rows).unwrap_or(i64::MAX);
        let mut statement = db.prepare_cached(&select(table, after.is_some(), limit)).map_err(failed)?;
        let mut found = statement.query(params_from_iter(after.unwrap_or_default())).map_err(failed)?;
        let (mut rows, mut size) = (Vec::new(), 0);
        while size < piece.bytes
            && let Some(row) = found.next().map_err(failed)?
        {
            let mut cells = Vec::with_capacity(table.columns.len());
            for (at, column) in table.columns.iter().enumerate() {
                let value = row.get_ref(at).map_err(failed)?;
                let cell = cell(value, column.kind).ok_or_else(|| MoveError::Unfit {
                    table: table.name,
                    key: shown(table, &key_of(table, &cells)),
                    column: column.name,
                })?;
                size += cell.size();
                cells.push(cell);
            }
            rows.push(cells);
        }
        Ok(rows)
    }

    /// Whether anybody wrote to it since it was opened. What is read after this is a later state.
    pub(in crate::store) async fn was_written(&self) -> Result<bool, MoveError> {
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
    let columns = list(table.columns.iter().map(super::super::moving::Column::read));
    let key = table.key_list();
    let mut wanted = Vec::new();
    if after {
        let places = list((1..=table.key().len()).map(|at| format!("?{at}")));
        wanted.push(format!("({key}) > ({places})"));
    }
    wanted.extend(table.only.map(|only| format!("({only})")));
    let wanted = if wanted.is_empty() { String::new() } else { format!("WHERE {}", wanted.join(" AND ")) };
    format!("SELECT {columns} FROM \"{}\" AS moved {wanted} ORDER BY {key} LIMIT {limit}", table.name)
}

/// A value as it is moved; none where it is not what the column is for, or larger than PostgreSQL has room for.
fn cell(value: ValueRef<'_>, kind: Kind) -> Option<Cell> {
    Some(match (kind, value) {
        (Kind::MaybeInt | Kind::MaybeText, ValueRef::Null) => Cell::Null,
        (Kind::Int | Kind::MaybeInt, ValueRef::Integer(value)) => Cell::Int(value),
        (Kind::Middling, ValueRef::Integer(value)) => Cell::Int(i32::try_from(value).ok()?.into()),
        (Kind::Small, ValueRef::Integer(value)) => Cell::Int(i16::try_from(value).ok()?.into()),
        (Kind::Bool, ValueRef::Integer(value)) => Cell::Int(i64::from(value != 0)),
        (Kind::Text | Kind::MaybeText, ValueRef::Text(text)) => {
            Cell::Text(super::super::moving::plain(std::str::from_utf8(text).ok()?).into_owned())
        }
        (Kind::Bytes, ValueRef::Blob(bytes)) => Cell::Bytes(bytes.to_vec()),
        _ => return None,
    })
}

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Owned(Value::Null),
            Self::Int(value) => ToSqlOutput::Owned(Value::Integer(*value)),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}
