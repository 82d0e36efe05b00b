//! Which tables are moved, and in which order.
//!
//! Columns are not listed: a column stands in both databases under the same name and means the same, so they are read from
//! PostgreSQL's own catalogue. Only what differs is stated here. By the kinds of its columns a table's rows are read from
//! either database in the same form, so that they can be compared.

use std::iter;
use std::sync::Arc;

use super::super::ask::{Ask, Batch};
use super::super::decode::Found;
use super::super::decode::plain;
use super::super::given::Given;
use super::super::sql::Sql;
use super::super::trouble::Outcome;
use super::MoveError;

/// A table that is moved.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    /// The columns that a row is known by, and sorted by.
    pub(super) key: &'static [&'static str],
    /// Which rows of the file are moved.
    pub(super) only: &'static str,
    /// Columns that the file has under no name, and what is read of the file in their place.
    pub(super) computed: &'static [(&'static str, &'static str)],
    /// Columns that are PostgreSQL's own, and what they are in every row.
    pub(super) own: &'static [(&'static str, &'static str)],
}

/// A table with its columns, the key's first.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) spec: &'static Spec,
    pub(super) columns: Vec<Column>,
}

/// A column as PostgreSQL's catalogue describes it.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: String,
    /// PostgreSQL's name of its type: `int8`, `int4`, `int2`, `bool`, `text` or `bytea`.
    pub(super) kind: String,
    pub(super) nullable: bool,
}

/// A value in PostgreSQL's text form: numbers in digits, truth as `true` and `false`, bytes as `\x` and hex digits.
pub(super) type Cell = Option<String>;

/// The values of a row, in the order of its table's columns.
pub(super) type Cells = Vec<Cell>;

/// What is read of a table at once.
pub(super) struct Piece {
    pub(super) table: Arc<Table>,
    /// The rows after the one of this key, or from the first on,
    pub(super) after: Option<Cells>,
    /// up to the one of this key, or to the last;
    pub(super) through: Option<Cells>,
    /// so many at most,
    pub(super) rows: usize,
    /// and none after so many bytes.
    pub(super) bytes: usize,
}

impl Column {
    /// Its value in a row; none where that is not of its kind, or larger than PostgreSQL has room for.
    fn cell(&self, row: Found<'_>, at: usize) -> Option<Cell> {
        let cell = match self.kind.as_str() {
            "text" => row.maybe_text(at).ok()?.map(|text| plain(text).into_owned()),
            "bytea" => {
                let digits = row.bytes(at).ok()?.iter().map(|byte| format!("{byte:02x}"));
                Some(iter::once("\\x".to_owned()).chain(digits).collect())
            }
            kind => match (kind, row.maybe_int(at).ok()?) {
                (_, None) => None,
                ("bool", Some(value)) => Some((value != 0).to_string()),
                ("int2", Some(value)) => Some(i16::try_from(value).ok()?.to_string()),
                ("int4", Some(value)) => Some(i32::try_from(value).ok()?.to_string()),
                (_, Some(value)) => Some(value.to_string()),
            },
        };
        (self.nullable || cell.is_some()).then_some(cell)
    }

    /// The same value for a statement.
    fn given<'a>(&self, cell: &'a Cell) -> Given<'a> {
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        match (self.kind.as_str(), cell.as_deref()) {
            ("text", text) => text.into(),
            ("bool", flag) => (flag == Some("true")).into(),
            ("bytea", hex) => {
                let pairs = hex.unwrap_or_default().as_bytes().chunks(2).skip(1);
                Given::Bytes(pairs.filter_map(byte).collect())
            }
            (_, number) => number.and_then(|number| number.parse::<i64>().ok()).into(),
        }
    }
}

impl Table {
    /// With its columns of all that PostgreSQL has, each with its table's name.
    pub(super) fn new(spec: &'static Spec, all: &[(String, Column)]) -> Self {
        let moved = all.iter().filter(|(table, column)| {
            *table == spec.name && spec.own.iter().all(|(own, _)| *own != column.name)
        });
        let mut columns: Vec<Column> = moved.map(|(_, column)| column.clone()).collect();
        // Those of the key first, the others as they came.
        columns
            .sort_by_key(|column| spec.key.iter().position(|key| *key == column.name).unwrap_or(usize::MAX));
        Self { spec, columns }
    }

    /// What a row is known by.
    pub(super) fn key_of(&self, row: &[Cell]) -> Cells {
        row.iter().take(self.spec.key.len()).cloned().collect()
    }

    /// The rows of a piece, in order of their keys.
    fn select<'a>(&self, Piece { after, through, rows, .. }: &'a Piece) -> Sql<'a> {
        let Spec { name, key, only, computed, .. } = self.spec;
        let key = list(key.iter().map(|name| format!("moved.{}", quoted(name))));
        let (mut bounds, mut given) = (String::new(), vec![(*rows).into()]);
        for (sign, bound) in [(">", after), ("<=", through)] {
            let Some(bound) = bound else { continue };
            let places = list(bound.iter().zip(&self.columns).map(|(cell, column)| {
                given.push(column.given(cell));
                format!("${}", given.len())
            }));
            bounds = format!("{bounds} AND ({key}) {sign} ({places})");
        }
        let text = |only: &str, computed: &[(&str, &str)]| {
            let columns = list(self.columns.iter().map(|column| {
                let computed = computed.iter().find(|(name, _)| *name == column.name);
                computed.map_or_else(|| quoted(&column.name), |(_, sql)| (*sql).to_owned())
            }));
            format!(
                "SELECT {columns} FROM epitome.\"{name}\" AS moved WHERE ({only}){bounds} ORDER BY {key} LIMIT $1"
            )
        };
        Sql::own(text("true", &[]), text(only, computed), given)
    }

    /// Reads a piece of either database.
    pub(super) async fn read(
        &self,
        ask: &mut dyn Ask,
        piece: &Piece,
    ) -> Outcome<Result<Vec<Cells>, MoveError>> {
        let (mut rows, mut size) = (Vec::new(), 0);
        let each = |row: Found<'_>| {
            let mut cells = Cells::with_capacity(self.columns.len());
            for (at, column) in self.columns.iter().enumerate() {
                let Some(cell) = column.cell(row, at) else {
                    let (key, column) = (self.shown(&self.key_of(&cells)), column.name.clone());
                    rows.push(Err(MoveError::Unfit { table: self.spec.name, key, column }));
                    return Ok(false);
                };
                // A row is as large as its words, and a little for each column.
                size += cell.as_ref().map_or(0, String::len) + 24;
                cells.push(cell);
            }
            rows.push(Ok(cells));
            Ok(size < piece.bytes)
        };
        ask.ask(Batch::new().each(self.select(piece), each)).await?;
        Ok(rows.into_iter().collect())
    }

    /// A key as people read it. Only what is a number or a name is told: no hashes, and nothing anybody made up as a key.
    pub(super) fn shown(&self, key: &[Cell]) -> String {
        let told = self.columns.iter().zip(key).filter_map(|(Column { name, kind, .. }, cell)| {
            let cell = cell.as_ref()?;
            match kind.as_str() {
                "bytea" | "bool" => None,
                "text" if name == "key" => None,
                "text" => Some(format!("{name} {cell:?}")),
                _ => Some(format!("{name} {cell}")),
            }
        });
        told.collect::<Vec<_>>().join(", ")
    }
}

/// A name, also where it is a word of SQL.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

pub(super) fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// What is being deleted, or is a copy that was not finished, stays behind with all that belongs to it.
const OF_OPEN: &str =
    "EXISTS (SELECT 1 FROM sessions AS whole WHERE whole.id = moved.session AND whole.state = 'open')";

/// The whole table, as it is.
const fn all(name: &'static str, key: &'static [&'static str]) -> Spec {
    Spec { name, key, only: "true", computed: &[], own: &[] }
}

const fn some(name: &'static str, key: &'static [&'static str], only: &'static str) -> Spec {
    Spec { only, ..all(name, key) }
}

/// All of them, in the order they are moved. The number that names are made of is taken over when a move begins: by it
/// the file is known again. The index of words is made anew, from the first message on.
pub(super) const SPECS: &[Spec] = &[
    Spec {
        // PostgreSQL counts on from here; in the file it is the newest event that tells, where there is one.
        computed: &[(
            "events_given",
            "max(moved.events_given, coalesce((SELECT max(id) FROM events WHERE workspace = moved.name), 0))",
        )],
        ..all("workspaces", &["name"])
    },
    Spec { own: &[("indexed", "0")], ..some("sessions", &["id"], "moved.state = 'open'") },
    // No change of a node's wrote them.
    Spec { own: &[("change", "0")], ..some("messages", &["session", "seq"], OF_OPEN) },
    Spec {
        computed: &[("workspace", "(SELECT workspace FROM sessions WHERE id = moved.session)")],
        ..some("slots", &["session", "scope", "name"], OF_OPEN)
    },
    some("summaries", &["kept"], OF_OPEN),
    // PostgreSQL cannot keep such a key. It would be forgotten within a week.
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
    some("members", &["session", "author"], OF_OPEN),
    all("inline", &["workspace", "root", "length", "hash"]),
    // A model that a client called so is none.
    some("passed", &["workspace", "hour", "model", "shadow"], "instr(moved.model, char(0)) = 0"),
];

/// Tables whose rows are numbered by the database, with the column; the next number is one that was never given.
pub(super) const NUMBERED: [(&str, &str); 4] =
    [("sessions", "id"), ("summaries", "kept"), ("usage", "id"), ("authors", "id")];
