//! Every table as it is moved: which columns, in which order, which rows.
//!
//! A column stands in both databases under the same name and means the same. Where it does not, it is said here what
//! is read of the file in its place.

/// How a column's values are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Kind {
    Int,
    MaybeInt,
    /// 32 bits in PostgreSQL.
    Middling,
    /// 16 bits in PostgreSQL.
    Small,
    /// 0 or 1 in the file.
    Bool,
    Text,
    MaybeText,
    Bytes,
}

impl Kind {
    /// The type of an array of them.
    pub(in crate::store) fn array(self) -> &'static str {
        match self {
            Self::Int | Self::MaybeInt => "bigint[]",
            Self::Middling => "integer[]",
            Self::Small => "smallint[]",
            Self::Bool => "boolean[]",
            Self::Text | Self::MaybeText => "text[]",
            Self::Bytes => "bytea[]",
        }
    }
}

/// A column.
#[derive(Debug)]
pub(in crate::store) struct Column {
    pub(in crate::store) name: &'static str,
    pub(in crate::store) kind: Kind,
    /// What is read of the file where it is not the column of that name.
    from: Option<&'static str>,
}

impl Column {
    /// What is read of the file.
    pub(in crate::store) fn read(&self) -> String {
        self.from.map_or_else(|| quoted(self.name), str::to_owned)
    }
}

const fn col(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, from: None }
}

/// A table.
#[derive(Debug)]
pub(in crate::store) struct Table {
    pub(in crate::store) name: &'static str,
    /// So many columns, the first ones, are what a row is known by.
    keys: usize,
    pub(in crate::store) columns: &'static [Column],
    /// Which rows of the file are moved; all where nothing is said.
    pub(in crate::store) only: Option<&'static str>,
    /// A column that is PostgreSQL's own, and what it is in every row.
    pub(in crate::store) own: Option<(&'static str, &'static str)>,
}

impl Table {
    /// What a row is known by.
    pub(in crate::store) fn key(&self) -> &'static [Column] {
        self.columns.get(..self.keys).unwrap_or(self.columns)
    }

    /// The key's columns, for a statement.
    pub(in crate::store) fn key_list(&self) -> String {
        list(self.key().iter().map(|column| quoted(column.name)))
    }
}

/// A name, also where it is a word of SQL.
pub(in crate::store) fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

pub(in crate::store) fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// What is being deleted, or is a copy that was not finished, stays behind with all that belongs to it.
const OF_OPEN: &str =
    "EXISTS (SELECT 1 FROM sessions AS whole WHERE whole.id = moved.session AND whole.state = 'open')";

use Kind::{Bool, Bytes, Int, MaybeInt, MaybeText, Middling, Small, Text};

const fn all(name: &'static str, keys: usize, columns: &'static [Column]) -> Table {
    Table { name, keys, columns, only: None, own: None }
}

const fn some(name: &'static str, keys: usize, only: &'static str, columns: &'static [Column]) -> Table {
    Table { name, keys, columns, only: Some(only), own: None }
}

/// All of them, in the order they are moved. The number that names are made of is taken over when a move begins: by it
/// the file is known again. The index of words is made anew, from the first message on.
pub(in crate::store) const TABLES: &[Table] = &[
    all(
        "workspaces",
        1,
        &[
            col("name", Text),
            col("settings", Text),
            col("metadata", Text),
            col("configuration", Text),
            col("created", Int),
            col("revision", Int),
            // PostgreSQL counts on from here; in the file it is the newest event that tells, where there is one.
            Column {
                name: "events_given",
                kind: Int,
                from: Some(
                    "max(moved.events_given, coalesce((SELECT max(id) FROM events WHERE workspace = moved.name), 0))",
                ),
            },
            col("deleted", Bool),
        ],
    ),
    some(
        "sessions",
        1,
        "moved.state = 'open'",
        &[
            col("id", Int),
            col("workspace", Text),
            col("name", Text),
            col("state", Text),
            col("encoding", Text),
            col("tracker", Text),
            col("head", Int),
            col("turns", Int),
            col("tokens", Int),
            col("opener", Int),
            col("batch_from", Int),
            col("batch_skipped", Bool),
            col("skipped", Int),
            col("settings", Text),
            col("metadata", Text),
            col("configuration", Text),
            col("created", Int),
            col("updated", Int),
            col("revision", Int),
        ],
    ),
    Table {
        name: "messages",
        keys: 2,
        only: Some(OF_OPEN),
        // No change of a node's wrote them.
        own: Some(("change", "0::bigint")),
        columns: &[
            col("session", Int),
            col("seq", Int),
            col("turn", Int),
            col("tokens", Int),
            col("before", Int),
            col("chars", Int),
            col("longest", Int),
            col("opener", Int),
            col("at", Int),
            col("created", Int),
            col("calls", Middling),
            col("answers", Middling),
            col("own_answers", Middling),
            col("open", Middling),
            col("own_open", Middling),
            col("role", Small),
            col("shape", Small),
            col("cut", Small),
            col("own_cut", Small),
            col("pinned", Bool),
            col("skip", Bool),
            col("author", MaybeText),
            col("body", Text),
        ],
    },
    some(
        "slots",
        3,
        OF_OPEN,
        &[
            col("session", Int),
            col("scope", Text),
            col("name", Text),
            Column {
                name: "workspace",
                kind: Text,
                from: Some("(SELECT workspace FROM sessions WHERE id = moved.session)"),
            },
            col("state", Text),
            col("covered", Int),
            col("due", MaybeInt),
            col("active", MaybeInt),
            col("ready_at", MaybeInt),
            col("work", Text),
            col("fence", Int),
        ],
    ),
    some(
        "summaries",
        1,
        OF_OPEN,
        &[
            col("kept", Int),
            col("session", Int),
            col("id", Int),
            col("scope", Text),
            col("slot", Text),
            col("through", Int),
            col("state", Text),
            col("parent", MaybeInt),
            col("created", Int),
            col("asked", MaybeText),
            col("facts", Text),
            col("text", Text),
            col("sources", MaybeText),
        ],
    ),
    some(
        "idempotency",
        2,
        // PostgreSQL cannot keep such a key. It would be forgotten within a week.
        "EXISTS (SELECT 1 FROM sessions AS whole WHERE whole.id = moved.session AND whole.state = 'open') \
         AND instr(moved.key, char(0)) = 0",
        &[
            col("session", Int),
            col("key", Text),
            col("body", Bytes),
            col("first", Int),
            col("last", Int),
            col("created", Int),
        ],
    ),
    all(
        "usage",
        1,
        &[
            col("id", Int),
            col("workspace", Text),
            col("session", Text),
            col("scope", Text),
            col("slot", Text),
            col("model", Text),
            col("outcome", Text),
            col("input", Int),
            col("cached", Int),
            col("output", Int),
            col("cost", MaybeInt),
            col("millis", Int),
            col("at", Int),
        ],
    ),
    all(
        "events",
        2,
        &[
            col("workspace", Text),
            col("id", Int),
            col("session", Text),
            col("kind", Text),
            col("data", Text),
            col("at", Int),
        ],
    ),
    all(
        "keys",
        1,
        &[
            col("id", Text),
            col("hash", Bytes),
            col("workspace", MaybeText),
            col("rights", Text),
            col("label", Text),
            col("created", Int),
            col("expires", MaybeInt),
            col("revoked", MaybeInt),
        ],
    ),
    all(
        "authors",
        1,
        &[
            col("id", Int),
            col("workspace", Text),
            col("name", Text),
            col("metadata", Text),
            col("configuration", Text),
            col("created", Int),
        ],
    ),
    some(
        "members",
        2,
        OF_OPEN,
        &[col("session", Int), col("author", Int), col("configuration", Text), col("joined", Int)],
    ),
    all(
        "inline",
        4,
        &[
            col("workspace", Text),
            col("root", Bytes),
            col("length", Int),
            col("hash", Bytes),
            col("kept", Text),
            col("at", Int),
        ],
    ),
    some(
        "passed",
        4,
        // A model that a client called so is none.
        "instr(moved.model, char(0)) = 0",
        &[
            col("workspace", Text),
            col("hour", Int),
            col("model", Text),
            col("shadow", Bool),
            col("requests", Int),
            col("shorter", Int),
            col("retried", Int),
            col("cut_off", Int),
            col("uncounted", Int),
            col("input", Int),
            col("cached", Int),
            col("output", Int),
            col("saved", Int),
            col("cost", Int),
            col("saved_cost", Int),
        ],
    ),
];

/// Tables whose rows are numbered by the database, with the column; the next number is one that was never given.
pub(in crate::store) const NUMBERED: [(&str, &str); 4] =
    [("sessions", "id"), ("summaries", "kept"), ("usage", "id"), ("authors", "id")];
