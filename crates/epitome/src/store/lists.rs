//! Statements about workspaces, authors and members that are the same for both databases.

use super::decode::{AUTHOR, SESSION, WORKSPACE};
use super::directory::Listing;
use super::given::Given;
use super::rows::SessionId;
use super::sql::Sql;

/// Rows that are listed.
#[derive(Debug, Clone)]
pub(super) struct List<'a> {
    columns: String,
    table: &'static str,
    /// The index by which SQLite lists them by age.
    index: &'static str,
    /// What is asked of them, and the values for it.
    wanted: &'static str,
    given: Vec<Given<'a>>,
    /// By which columns they are in order of age.
    age: &'static [&'static str],
    /// What names one of them.
    name: &'static str,
}

impl<'a> List<'a> {
    pub(super) fn workspaces() -> Self {
        Self {
            columns: WORKSPACE.to_owned(),
            table: "epitome.workspaces",
            index: " INDEXED BY workspaces_by_age",
            wanted: "NOT deleted",
            given: Vec::new(),
            age: &["created", "name"],
            name: "name",
        }
    }

    /// A workspace's sessions, or those an author belongs to.
    pub(super) fn sessions(workspace: &'a str, member: Option<&'a str>) -> Self {
        let list = Self {
            columns: SESSION.to_owned(),
            table: "epitome.sessions",
            index: " INDEXED BY sessions_by_age",
            wanted: "workspace = $1 AND state = 'open'",
            given: vec![workspace.into()],
            age: &["id"],
            name: "name",
        };
        let Some(member) = member else { return list };
        let wanted = "state = 'open' AND id IN (SELECT m.session FROM epitome.members m INDEXED BY members_by_author \
             WHERE m.author = (SELECT a.id FROM epitome.authors a WHERE a.workspace = $1 AND a.name = $2))";
        Self { index: "", wanted, given: vec![workspace.into(), member.into()], ..list }
    }

    pub(super) fn authors(workspace: &'a str) -> Self {
        Self {
            columns: AUTHOR.to_owned(),
            table: "epitome.authors a",
            index: " INDEXED BY authors_by_age",
            wanted: "a.workspace = $1",
            given: vec![workspace.into()],
            age: &["a.id"],
            name: "a.name",
        }
    }

    /// A session's members.
    pub(super) fn members(session: SessionId) -> Self {
        Self {
            columns: format!("{AUTHOR}, m.attributes"),
            table: "epitome.sessions s JOIN epitome.members m ON m.session = s.id \
                 JOIN epitome.authors a ON a.id = m.author",
            index: "",
            wanted: "s.id = $1 AND s.state = 'open'",
            given: vec![session.into()],
            age: &["a.id"],
            name: "a.workspace = s.workspace AND a.name",
        }
    }

    /// How many there are in all; nothing where a listing does not ask for that.
    pub(super) fn count<T>(&self, listing: &Listing<T>) -> Option<Sql<'a>> {
        let (from, given) = self.rows(listing);
        let all = listing.name.is_none() && listing.after.is_none() && listing.keep.is_none();
        all.then(|| Sql::new(format!("SELECT count(*) FROM {from}"), given))
    }

    /// So many of them, past so many.
    pub(super) fn page<T>(&self, listing: &Listing<T>, limit: u64, skip: u64) -> Sql<'a> {
        let (from, mut given) = self.rows(listing);
        let way = if listing.reverse { " DESC" } else { "" };
        let order = match listing.after {
            Some(_) => self.name.to_owned(),
            None => self.age.iter().map(|column| format!("{column}{way}")).collect::<Vec<_>>().join(", "),
        };
        let (columns, at) = (&self.columns, given.len());
        given.extend([limit.into(), skip.into()]);
        let sql =
            format!("SELECT {columns} FROM {from} ORDER BY {order} LIMIT ${} OFFSET ${}", at + 1, at + 2);
        Sql::new(sql, given)
    }

    fn rows<T>(&self, listing: &Listing<T>) -> (String, Vec<Given<'a>>) {
        let mut given = self.given.clone();
        let Self { table, index, wanted, name, .. } = self;
        let mut by_name = |compare: &str, value: &str| {
            given.push(value.to_owned().into());
            format!("{table} WHERE {wanted} AND {name} {compare} ${}", given.len())
        };
        let from = match (&listing.name, &listing.after) {
            (Some(one), _) => by_name("=", one),
            (None, Some(after)) => by_name(">", after),
            (None, None) => format!("{table}{index} WHERE {wanted}"),
        };
        (from, given)
    }
}
