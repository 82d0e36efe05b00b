//! Describes the tables that are migrated, and their order.
//!
//! A column has the same name and meaning in both databases, so the columns are read from PostgreSQL's catalog. Only
//! the differences between the databases are described here. Values are converted by the type of their column. So rows
//! of both databases have the same form and can be compared.

use std::iter;
use std::sync::Arc;

use super::super::decode::RowRef;
use super::super::decode::plain;
use super::super::executor::{Executor, SqlBatch};
use super::super::op_error::OpResult;
use super::super::sql::Sql;
use super::super::sql_params::SqlParam;
use super::MigrateError;

/// A table that is migrated.
#[derive(Debug)]
pub(super) struct TableSpec {
    pub(super) name: &'static str,
    /// The columns that identify a row. Rows are read in the order of these columns.
    pub(super) key: &'static [&'static str],
    /// An SQL condition. Only rows of the file that match it are migrated.
    pub(super) condition: &'static str,
    /// Columns whose values are computed when the file is read, each with the SQL expression that computes its value.
    pub(super) computed: &'static [(&'static str, &'static str)],
    /// Columns that only PostgreSQL has, each with the value that it gets in every row.
    pub(super) postgres_only: &'static [(&'static str, &'static str)],
}

/// A table with its columns. The columns of the key come first.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) spec: &'static TableSpec,
    pub(super) columns: Vec<Column>,
}

/// A column, as PostgreSQL's catalog describes it.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: String,
    /// PostgreSQL's name of the column's type: `int8`, `int4`, `int2`, `bool`, `text` or `bytea`.
    pub(super) type_name: String,
    pub(super) nullable: bool,
}

/// A value in PostgreSQL's text form: numbers in digits, booleans as `true` and `false`, bytes as `\x` and hex digits.
/// `None` for NULL.
pub(super) type Cell = Option<String>;

/// The values of a row, in the order of its table's columns.
pub(super) type Cells = Vec<Cell>;

/// A piece of a table: the rows that are read at once.
pub(super) struct PieceRequest {
    pub(super) table: Arc<Table>,
    /// The key after which rows are read; `None` for the start of the table.
    pub(super) after: Option<Cells>,
    /// The last key that is read; `None` for the end of the table.
    pub(super) through: Option<Cells>,
    /// Maximum number of rows.
    pub(super) rows: usize,
    /// The piece ends with the row that reaches this size in bytes.
    pub(super) bytes: usize,
}

impl Column {
    /// Returns the value of this column, at position `at` of a row. Returns `None` if the value has the wrong type or
    /// is too large for PostgreSQL.
    fn cell(&self, row: RowRef<'_>, at: usize) -> Option<Cell> {
        let cell = match self.type_name.as_str() {
            "text" => row.maybe_text(at).ok()?.map(|text| plain(text).into_owned()),
            "bytea" => {
                let digits = row.bytes(at).ok()?.iter().map(|byte| format!("{byte:02x}"));
                Some(iter::once("\\x".to_owned()).chain(digits).collect())
            }
            type_name => match (type_name, row.maybe_int(at).ok()?) {
                (_, None) => None,
                ("bool", Some(value)) => Some((value != 0).to_string()),
                ("int2", Some(value)) => Some(i16::try_from(value).ok()?.to_string()),
                ("int4", Some(value)) => Some(i32::try_from(value).ok()?.to_string()),
                (_, Some(value)) => Some(value.to_string()),
            },
        };
        (self.nullable || cell.is_some()).then_some(cell)
    }

    /// Returns the value as a parameter.
    fn param<'a>(&self, cell: &'a Cell) -> SqlParam<'a> {
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        match (self.type_name.as_str(), cell.as_deref()) {
            ("text", text) => text.into(),
            ("bool", flag) => (flag == Some("true")).into(),
            ("bytea", hex) => {
                let pairs = hex.unwrap_or_default().as_bytes().chunks(2).skip(1);
                SqlParam::Bytes(pairs.filter_map(byte).collect())
            }
            (_, number) => number.and_then(|number| number.parse::<i64>().ok()).into(),
        }
    }
}

impl Table {
    /// Creates the table, and selects its columns from `all`: the columns of the whole database, each with its table's
    /// name.
    pub(super) fn new(spec: &'static TableSpec, all: &[(String, Column)]) -> Self {
        let moved = all.iter().filter(|(table, column)| {
            *table == spec.name
                && spec.postgres_only.iter().all(|(postgres_only, _)| *postgres_only != column.name)
        });
        let mut columns: Vec<Column> = moved.map(|(_, column)| column.clone()).collect();
        // The columns of the key come first. The other columns keep their order.
        columns
            .sort_by_key(|column| spec.key.iter().position(|key| *key == column.name).unwrap_or(usize::MAX));
        Self { spec, columns }
    }

    /// Returns the key of a row.
    pub(super) fn key_of(&self, row: &[Cell]) -> Cells {
        row.iter().take(self.spec.key.len()).cloned().collect()
    }

    /// Returns the query for a piece, in order of the keys.
    fn select<'a>(&self, PieceRequest { after, through, rows, .. }: &'a PieceRequest) -> Sql<'a> {
        let TableSpec { name, key, condition, computed, .. } = self.spec;
        let key = list(key.iter().map(|name| format!("moved.{}", quoted(name))));
        let (mut bounds, mut params) = (String::new(), vec![(*rows).into()]);
        for (sign, bound) in [(">", after), ("<=", through)] {
            let Some(bound) = bound else { continue };
            let places = list(bound.iter().zip(&self.columns).map(|(cell, column)| {
                params.push(column.param(cell));
                format!("${}", params.len())
            }));
            bounds = format!("{bounds} AND ({key}) {sign} ({places})");
        }
        let text = |condition: &str, computed: &[(&str, &str)]| {
            let columns = list(self.columns.iter().map(|column| {
                let computed = computed.iter().find(|(name, _)| *name == column.name);
                computed.map_or_else(|| quoted(&column.name), |(_, sql)| (*sql).to_owned())
            }));
            format!(
                "SELECT {columns} FROM epitome.\"{name}\" AS moved WHERE ({condition}){bounds} ORDER BY {key} LIMIT $1"
            )
        };
        Sql::per_database(text("true", &[]), text(condition, computed), params)
    }

    /// Reads a piece of this table, from either database.
    pub(super) async fn read(
        &self,
        db: &mut dyn Executor,
        piece: &PieceRequest,
    ) -> OpResult<Result<Vec<Cells>, MigrateError>> {
        let (mut rows, mut size) = (Vec::new(), 0);
        let each = |row: RowRef<'_>| {
            let mut cells = Cells::with_capacity(self.columns.len());
            for (at, column) in self.columns.iter().enumerate() {
                let Some(cell) = column.cell(row, at) else {
                    let (key, column) = (self.display_key(&self.key_of(&cells)), column.name.clone());
                    rows.push(Err(MigrateError::InvalidValue { table: self.spec.name, key, column }));
                    return Ok(false);
                };
                // A row's size is estimated: the lengths of its values as text, and 24 bytes for each column.
                size += cell.as_ref().map_or(0, String::len) + 24;
                cells.push(cell);
            }
            rows.push(Ok(cells));
            Ok(size < piece.bytes)
        };
        db.run(SqlBatch::new().each(self.select(piece), each)).await?;
        Ok(rows.into_iter().collect())
    }

    /// Formats a key for error messages. Only numbers and names are shown. Hashes are left out, and so are idempotency
    /// keys, because callers choose their content.
    pub(super) fn display_key(&self, key: &[Cell]) -> String {
        let report = self.columns.iter().zip(key).filter_map(|(Column { name, type_name, .. }, cell)| {
            let cell = cell.as_ref()?;
            match type_name.as_str() {
                "bytea" | "bool" => None,
                "text" if name == "key" => None,
                "text" => Some(format!("{name} {cell:?}")),
                _ => Some(format!("{name} {cell}")),
            }
        });
        report.collect::<Vec<_>>().join(", ")
    }
}

/// Quotes a name, which may be an SQL keyword.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

pub(super) fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// The condition that excludes rows of sessions that are being deleted, and rows of unfinished copies.
const OF_OPEN_SESSIONS: &str =
    "EXISTS (SELECT 1 FROM sessions AS whole WHERE whole.id = moved.session AND whole.state = 'open')";

/// Describes a table that is copied completely and unchanged.
const fn all(name: &'static str, key: &'static [&'static str]) -> TableSpec {
    TableSpec { name, key, condition: "true", computed: &[], postgres_only: &[] }
}

const fn some(name: &'static str, key: &'static [&'static str], condition: &'static str) -> TableSpec {
    TableSpec { condition, ..all(name, key) }
}

/// All tables, in the order in which they are migrated. The database's secret is not in this list: it is copied when a
/// migration begins, and it identifies the file. The search index is not migrated, but built again.
pub(super) const SPECS: &[TableSpec] = &[
    TableSpec {
        // The number of the workspace's last event. PostgreSQL continues after this number. In the file, the number may
        // be stored only in the newest event.
        computed: &[(
            "events_given",
            "max(moved.events_given, coalesce((SELECT max(id) FROM events WHERE workspace = moved.name), 0))",
        )],
        ..all("workspaces", &["name"])
    },
    TableSpec { postgres_only: &[("indexed", "0")], ..some("sessions", &["id"], "moved.state = 'open'") },
    // The column `change` identifies the PostgreSQL change that wrote a message. No such change wrote the migrated
    // messages, so its value is 0.
    TableSpec {
        postgres_only: &[("change", "0")],
        ..some("messages", &["session", "seq"], OF_OPEN_SESSIONS)
    },
    TableSpec {
        computed: &[("workspace", "(SELECT workspace FROM sessions WHERE id = moved.session)")],
        ..some("slots", &["session", "scope", "name"], OF_OPEN_SESSIONS)
    },
    some("summaries", &["kept"], OF_OPEN_SESSIONS),
    // PostgreSQL cannot store a key with U+0000. The key would expire within a week anyway.
    some(
        "idempotency",
        &["session", "key"],
        "EXISTS (SELECT 1 FROM sessions AS whole WHERE whole.id = moved.session AND whole.state = 'open') \
         AND instr(moved.key, char(0)) = 0",
    ),
    all("usage", &["id"]),
    all("events", &["workspace", "id"]),
    all("keys", &["id"]),
    all("authors", &["id"]),
    some("members", &["session", "author"], OF_OPEN_SESSIONS),
    all("inline", &["workspace", "root", "length", "hash"]),
    // Rows with U+0000 in the model name are left out. No model has such a name.
    some("passed", &["workspace", "hour", "model", "shadow"], "instr(moved.model, char(0)) = 0"),
];

/// Tables whose rows the database numbers, each with the column of the number. After the migration, the database must
/// not assign a number again that was ever assigned in the file, even if the row was deleted.
pub(super) const NUMBERED_TABLES: [(&str, &str); 4] =
    [("sessions", "id"), ("summaries", "kept"), ("usage", "id"), ("authors", "id")];
