//! Statements that both databases understand, said once.
//!
//! They are written in PostgreSQL's form: values as `$1`, tables as `epitome.name`. `INDEXED BY name` after a table has
//! SQLite use that index. Each store strips what its database does not know. What differs in more than that is written
//! by each store itself.

use std::borrow::Cow;

use super::given::Given;

/// A statement and its values.
#[derive(Debug, Clone)]
pub(super) struct Sql<'a> {
    text: Cow<'static, str>,
    /// Its values, in order.
    pub(super) given: Vec<Given<'a>>,
}

impl<'a> Sql<'a> {
    pub(super) fn new(text: impl Into<Cow<'static, str>>, given: impl Into<Vec<Given<'a>>>) -> Self {
        Self { text: text.into(), given: given.into() }
    }

    /// The text as PostgreSQL understands it.
    pub(super) fn for_postgres(&self) -> Cow<'static, str> {
        const HINT: &str = " INDEXED BY ";
        if !self.text.contains(HINT) {
            return self.text.clone();
        }
        let mut parts = self.text.split(HINT);
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            text.push_str(part.find(' ').map_or("", |end| part.split_at(end).1));
        }
        text.into()
    }

    /// The text as SQLite understands it. Its index of workspaces is of those whose `deleted` is 0, said just so.
    pub(super) fn for_sqlite(&self) -> String {
        self.text.replace("epitome.", "").replace('$', "?").replace("NOT deleted", "deleted = 0")
    }
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
        let ends = Sql::new("SELECT a FROM epitome.t INDEXED BY t_by_a", []);
        assert_eq!(ends.for_postgres(), "SELECT a FROM epitome.t");
    }
}
