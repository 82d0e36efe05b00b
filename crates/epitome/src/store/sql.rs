//! SQL statements for both databases, written once.
//!
//! The statements use PostgreSQL's syntax: values as `$1`, tables as `epitome.name`, lists as `= ANY($1)`, and locking
//! clauses at the very end (` FOR UPDATE`). `INDEXED BY name` after a table makes SQLite use that index. Each store
//! removes or replaces the syntax that its database does not support. If the databases need different statements,
//! [`Sql::per_database`] takes one text for each database.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

use super::sql_params::SqlParam;

/// A statement and its values.
#[derive(Debug, Clone)]
pub(super) struct Sql<'a> {
    text: Cow<'static, str>,
    /// The text for SQLite, if it differs.
    sqlite: Option<Cow<'static, str>>,
    /// The values, in order.
    pub(super) params: Vec<SqlParam<'a>>,
    /// Whether several statements with this text and different values may be merged into one statement for PostgreSQL.
    pub(super) mergeable: bool,
}

impl<'a> Sql<'a> {
    pub(super) fn new(text: impl Into<Cow<'static, str>>, params: impl Into<Vec<SqlParam<'a>>>) -> Self {
        Self { text: text.into(), sqlite: None, params: params.into(), mergeable: false }
    }

    /// Creates a statement with separate texts for PostgreSQL and SQLite. Both texts use the syntax that this module
    /// describes.
    pub(super) fn per_database(
        postgres: impl Into<Cow<'static, str>>,
        sqlite: impl Into<Cow<'static, str>>,
        params: impl Into<Vec<SqlParam<'a>>>,
    ) -> Self {
        Self { text: postgres.into(), sqlite: Some(sqlite.into()), params: params.into(), mergeable: false }
    }

    /// Allows this statement to be merged with statements of the same text. The other statements belong to changes of
    /// other sessions in the same transaction. The merged statements may run in any order. The statement must have the
    /// form `INSERT … VALUES`, `UPDATE … WHERE` or `SELECT`, or its values must be lists already.
    /// [`merge_column`](super::sql_params::merge_column) must be able to join its values.
    pub(super) fn mergeable(self) -> Self {
        debug_assert!(
            self.params.iter().all(SqlParam::can_merge),
            "{} has values that cannot be merged",
            self.text
        );
        Self { mergeable: true, ..self }
    }

    /// Converts borrowed values into owned ones.
    #[cfg(feature = "postgres")]
    pub(super) fn into_owned(self) -> Sql<'static> {
        let params = self.params.into_iter().map(SqlParam::into_owned).collect();
        Sql { text: self.text, sqlite: self.sqlite, params, mergeable: self.mergeable }
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
        if let Some(translated) = TRANSLATIONS.read().unwrap_or_else(PoisonError::into_inner).get(&**text) {
            return Cow::Borrowed(translated);
        }
        let translated = translate_for_sqlite(text);
        let mut translations = TRANSLATIONS.write().unwrap_or_else(PoisonError::into_inner);
        if translations.len() >= MAX_TRANSLATIONS {
            return Cow::Owned(translated);
        }
        Cow::Borrowed(translations.entry(text.to_string()).or_insert_with(|| translated.leak()))
    }
}

/// Caches the translated text of each statement for SQLite. The texts contain no values, so there are only a few
/// hundred different texts.
static TRANSLATIONS: LazyLock<RwLock<HashMap<String, &'static str>>> = LazyLock::new(RwLock::default);

/// Maximum number of cached translations.
const MAX_TRANSLATIONS: usize = 2_000;

/// Translates a statement for SQLite. `NOT deleted` becomes `deleted = 0`, because SQLite uses the partial index of
/// workspaces only if the condition is written in this form.
fn translate_for_sqlite(text: &str) -> String {
    // SQLite needs no row locks, because it has a single writer.
    let end =
        [" FOR UPDATE", " FOR NO KEY UPDATE", " FOR KEY SHARE"].iter().filter_map(|lock| text.rfind(lock));
    let text = end.min().map_or(text, |end| text.split_at(end).0);
    let text = text.replace("epitome.", "").replace('$', "?").replace("NOT deleted", "deleted = 0");
    const LIST: &str = "= ANY(";
    let mut parts = text.split(LIST);
    let mut translated = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        translated.push_str("IN (SELECT value FROM json_each(");
        let (list, rest) = part.split_at(part.find(')').unwrap_or(0));
        translated.extend([list, ")", rest]);
    }
    translated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_database_gets_its_own_syntax() {
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
        let own = Sql::per_database("SELECT 1 AS postgres", "SELECT 1 AS sqlite", []);
        assert_eq!(
            (own.for_postgres(), own.for_sqlite()),
            ("SELECT 1 AS postgres".into(), "SELECT 1 AS sqlite".into())
        );
    }
}
