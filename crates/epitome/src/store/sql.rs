//! SQL statements for both databases, written once.
//!
//! They use PostgreSQL's syntax: values as `$1`, tables as `epitome.name`, lists as `= ANY($1)`, and locking clauses at the
//! very end (` FOR UPDATE`). `INDEXED BY name` after a table makes SQLite use that index. Each store removes or replaces the
//! syntax that its database does not support. If the statements differ in more than that, [`Sql::own`] takes both texts.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

use super::given::Given;

/// A statement and its values.
#[derive(Debug, Clone)]
pub(super) struct Sql<'a> {
    text: Cow<'static, str>,
    /// The text for SQLite, if it differs.
    sqlite: Option<Cow<'static, str>>,
    /// The values, in order.
    pub(super) given: Vec<Given<'a>>,
    /// Whether several statements of this text with different values may be merged into one in PostgreSQL.
    pub(super) merges: bool,
}

impl<'a> Sql<'a> {
    pub(super) fn new(text: impl Into<Cow<'static, str>>, given: impl Into<Vec<Given<'a>>>) -> Self {
        Self { text: text.into(), sqlite: None, given: given.into(), merges: false }
    }

    /// Creates a statement with separate texts for PostgreSQL and SQLite. Both use the syntax described above.
    pub(super) fn own(
        postgres: impl Into<Cow<'static, str>>,
        sqlite: impl Into<Cow<'static, str>>,
        given: impl Into<Vec<Given<'a>>>,
    ) -> Self {
        Self { text: postgres.into(), sqlite: Some(sqlite.into()), given: given.into(), merges: false }
    }

    /// Allows the statement to be merged with statements of the same text that change other sessions in the same
    /// transaction. It must not depend on the order of those statements. Its form must be `INSERT … VALUES`,
    /// `UPDATE … WHERE` or `SELECT`, or it must take lists already. Its values must be of kinds that
    /// [`column`](super::given::column) can join.
    pub(super) fn merges(self) -> Self {
        debug_assert!(
            self.given.iter().all(Given::is_of_column),
            "{} has values that cannot be merged",
            self.text
        );
        Self { merges: true, ..self }
    }

    /// Converts borrowed values into owned ones.
    #[cfg(feature = "postgres")]
    pub(super) fn into_owned(self) -> Sql<'static> {
        let given = self.given.into_iter().map(Given::into_owned).collect();
        Sql { text: self.text, sqlite: self.sqlite, given, merges: self.merges }
    }

    /// Returns the text for PostgreSQL.
    pub(super) fn for_postgres(&self) -> Cow<'static, str> {
        const HINT: &str = " INDEXED BY ";
        if !self.text.contains(HINT) {
            return self.text.clone();
        }
        let mut parts = self.text.split(HINT);
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            text.push_str(part.find([' ', ')']).map_or("", |end| part.split_at(end).1));
        }
        text.into()
    }

    /// Returns the text for SQLite.
    pub(super) fn for_sqlite(&self) -> Cow<'static, str> {
        let text = self.sqlite.as_ref().unwrap_or(&self.text);
        if let Some(known) = KNOWN.read().unwrap_or_else(PoisonError::into_inner).get(&**text) {
            return Cow::Borrowed(known);
        }
        let made = translated(text);
        let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            return Cow::Owned(made);
        }
        Cow::Borrowed(known.entry(text.to_string()).or_insert_with(|| made.leak()))
    }
}

/// Caches the translated text of each statement for SQLite. Texts contain no values, so there are only a few hundred of
/// them.
static KNOWN: LazyLock<RwLock<HashMap<String, &'static str>>> = LazyLock::new(RwLock::default);

/// Maximum number of cached translations.
const MOST: usize = 2_000;

/// Translates a statement for SQLite. SQLite only uses the partial index of workspaces if the condition is written as
/// `deleted = 0`.
fn translated(text: &str) -> String {
    // SQLite needs no row locks, because it has a single writer.
    let end =
        [" FOR UPDATE", " FOR NO KEY UPDATE", " FOR KEY SHARE"].iter().filter_map(|lock| text.rfind(lock));
    let text = end.min().map_or(text, |end| text.split_at(end).0);
    let text = text.replace("epitome.", "").replace('$', "?").replace("NOT deleted", "deleted = 0");
    const LIST: &str = "= ANY(";
    let mut parts = text.split(LIST);
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        made.push_str("IN (SELECT value FROM json_each(");
        let (list, rest) = part.split_at(part.find(')').unwrap_or(0));
        made.extend([list, ")", rest]);
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_database_gets_its_own_form() {
        let sql =
            Sql::new("SELECT a FROM epitome.t INDEXED BY t_by_a WHERE a = $1 AND b = $2", [1i64.into()]);
        assert_eq!(sql.for_postgres(), "SELECT a FROM epitome.t WHERE a = $1 AND b = $2");
        assert_eq!(sql.for_sqlite(), "SELECT a FROM t INDEXED BY t_by_a WHERE a = ?1 AND b = ?2");
        assert_eq!(sql.for_sqlite(), sql.for_sqlite());
        let ends = Sql::new("SELECT a FROM epitome.t INDEXED BY t_by_a", []);
        assert_eq!(ends.for_postgres(), "SELECT a FROM epitome.t");
        let lists = Sql::new("SELECT a FROM epitome.t WHERE a = ANY($2) AND b = $1 FOR NO KEY UPDATE", []);
        assert_eq!(
            lists.for_sqlite(),
            "SELECT a FROM t WHERE a IN (SELECT value FROM json_each(?2)) AND b = ?1"
        );
        let own = Sql::own("SELECT 1 AS postgres", "SELECT 1 AS sqlite", []);
        assert_eq!(
            (own.for_postgres(), own.for_sqlite()),
            ("SELECT 1 AS postgres".into(), "SELECT 1 AS sqlite".into())
        );
    }
}
