//! Statements about workspaces, authors and members that are the same for both databases.

use serde_json::{Map, Value};

use super::decode::{AUTHOR, SESSION, WORKSPACE};
use super::directory::{AuthorRow, Listing, WorkspaceRow};
use super::given::Given;
use super::rows::SessionId;
use super::sql::Sql;
use super::statements::notes_text;

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

pub(super) fn set_workspace<'a>(name: &'a str, row: &'a WorkspaceRow) -> Sql<'a> {
    let sql = "UPDATE epitome.workspaces SET settings = $2, metadata = $3, attributes = $4, revision = revision + 1 \
         WHERE name = $1";
    let (metadata, attributes) = (notes_text(&row.metadata), notes_text(&row.attributes));
    Sql::new(sql, [name.into(), row.settings.as_str().into(), metadata.into(), attributes.into()])
}

/// Deletes a workspace without sessions. None of its sessions is left to belong to, but for what is still to be removed.
/// A copy in progress would be shown with members nobody knows any more, so it goes too.
pub(super) fn delete_workspace(name: &str) -> impl Iterator<Item = Sql<'_>> {
    let statements = [
        "UPDATE epitome.sessions SET state = 'gone' WHERE workspace = $1 AND state = 'hidden'",
        "DELETE FROM epitome.authors WHERE workspace = $1",
        "UPDATE epitome.workspaces SET deleted = true, settings = '', metadata = '', attributes = '', \
         revision = revision + 1 WHERE name = $1",
    ];
    statements.into_iter().map(|sql| Sql::new(sql, [name.into()])).chain(forget_passing(name))
}

/// Forgets what passed through a workspace.
pub(super) fn forget_passing(workspace: &str) -> impl Iterator<Item = Sql<'_>> {
    let statements = [
        "DELETE FROM epitome.inline WHERE workspace = $1",
        "DELETE FROM epitome.passed WHERE workspace = $1",
    ];
    statements.into_iter().map(|sql| Sql::new(sql, [workspace.into()]))
}

/// A session of the workspace, where it has any.
pub(super) fn any_session(workspace: &str) -> Sql<'_> {
    let sql = "SELECT 1 FROM epitome.sessions INDEXED BY sessions_by_age \
         WHERE workspace = $1 AND state = 'open' LIMIT 1";
    Sql::new(sql, [workspace.into()])
}

pub(super) fn set_author<'a>(workspace: &'a str, name: &'a str, row: &AuthorRow) -> Sql<'a> {
    let sql = "UPDATE epitome.authors SET metadata = $3, attributes = $4 WHERE workspace = $1 AND name = $2";
    let (metadata, attributes) = (notes_text(&row.metadata), notes_text(&row.attributes));
    Sql::new(sql, [workspace.into(), name.into(), metadata.into(), attributes.into()])
}

/// Has an author belong to a session, with what is kept of them there.
pub(super) fn put_member(
    session: SessionId,
    author: i64,
    attributes: &Map<String, Value>,
    now: epitome_core::message::Timestamp,
) -> Sql<'static> {
    let sql = "INSERT INTO epitome.members (session, author, attributes, joined) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (session, author) DO UPDATE SET attributes = excluded.attributes";
    Sql::new(sql, [session.into(), author.into(), notes_text(attributes).into(), now.into()])
}

/// Has an author leave a session.
pub(super) fn leave<'a>(session: SessionId, workspace: &'a str, name: &'a str) -> Sql<'a> {
    let sql = "DELETE FROM epitome.members WHERE session = $1 AND author = \
         (SELECT id FROM epitome.authors WHERE workspace = $2 AND name = $3)";
    Sql::new(sql, [session.into(), workspace.into(), name.into()])
}

/// Has everybody leave a session.
pub(super) fn leave_all(session: SessionId) -> Sql<'static> {
    Sql::new("DELETE FROM epitome.members WHERE session = $1", [session.into()])
}
