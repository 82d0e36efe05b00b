//! Writes workspaces, authors and members, and reads lists of them and of sessions.

use std::borrow::Cow;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use epitome_core::message::Timestamp;
use serde_json::{Map, Value};

use super::ask::{self, Ask, Batch};
use super::decode::{self, AUTHOR, Found, SESSION, WORKSPACE, notes_text};
use super::directory::{
    AuthorRow, DecideRow, Deleted, Listed, Listing, Membership, WorkspaceRow, merge_attributes,
};
use super::given::Given;
use super::rows::{SessionId, SessionKey};
use super::sql::Sql;
use super::trouble::{Outcome, Trouble, refused};

/// A kind of list: its columns, table, filter and order.
#[derive(Debug, Clone)]
pub(super) struct List<'a> {
    columns: String,
    table: &'static str,
    /// The index that SQLite uses to list by age.
    index: &'static str,
    /// The condition for rows, and its values in `given`.
    wanted: &'static str,
    given: Vec<Given<'a>>,
    /// The columns that order the rows by age.
    age: &'static [&'static str],
    /// The column of the name. It may be preceded by a further condition.
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

    /// Lists a workspace's sessions, or only those that an author is a member of.
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

    /// Lists a session's members.
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

    /// Returns the query for the total; `None` if the listing has a name, a start name or a filter.
    pub(super) fn count<T>(&self, listing: &Listing<T>) -> Option<Sql<'a>> {
        let (from, given) = self.rows(listing);
        let all = listing.name.is_none() && listing.after.is_none() && listing.keep.is_none();
        all.then(|| Sql::new(format!("SELECT count(*) FROM {from}"), given))
    }

    /// Returns the query for `limit` rows after the first `skip`.
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

/// Maximum number of rows read at a time if the listing has a filter.
const LOOKED_AT: usize = 1_000;

/// Reads a page of a list.
pub(super) async fn page<T: Send>(
    ask: &mut dyn Ask,
    list: List<'_>,
    listing: &Listing<T>,
    read: fn(Found<'_>) -> Outcome<T>,
) -> Outcome<Listed<T>> {
    let Some(keep) = &listing.keep else {
        let (mut items, mut total) = (Vec::new(), None);
        let rows = list.page(listing, listing.limit as u64, listing.skip);
        let mut batch = Batch::new().all(rows, &mut items, read);
        if let Some(count) = list.count(listing) {
            batch = batch.first(count, &mut total, |row| row.uint(0));
        }
        ask.finish(batch).await?;
        let total = total.unwrap_or(items.len() as u64);
        return Ok(Listed { items, total });
    };
    // The filter needs all rows. They are read in pieces from one snapshot.
    let size = ask.page(LOOKED_AT) as u64;
    let (mut listed, mut skip) = (Listed::default(), 0u64);
    loop {
        let (mut seen, listed) = (0, &mut listed);
        let each = |row: Found<'_>| {
            seen += 1;
            let item = read(row)?;
            if keep(&item) {
                listed.take(item, listing.skip, listing.limit);
            }
            Ok(true)
        };
        ask.ask(Batch::new().each(list.page(listing, size, skip), each)).await?;
        if seen < size {
            break;
        }
        skip = skip.saturating_add(size);
    }
    Ok(listed)
}

/// Calls a decision function. If it panics, returns an error, so that the transaction is rolled back and the store keeps
/// working.
pub(super) fn decided<T>(decide: impl FnOnce() -> T) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(decide)).map_err(|_| refused("a decision function panicked"))
}

/// Selects a workspace's row and locks it.
fn workspace<'a>(name: &'a str, lock: &str) -> Sql<'a> {
    let sql = format!("SELECT {WORKSPACE} FROM epitome.workspaces WHERE name = $1 AND NOT deleted{lock}");
    Sql::new(sql, [name.into()])
}

/// Creates a workspace if it does not exist, and prevents its deletion until this transaction ends. Returns whether it was
/// created.
pub(super) async fn make_workspace(ask: &mut dyn Ask, name: &str) -> Outcome<bool> {
    // Usually it exists and needs no write. This weak lock conflicts only with a deletion, which locks with `FOR UPDATE`.
    let sql = "SELECT 1 FROM epitome.workspaces WHERE name = $1 AND NOT deleted FOR KEY SHARE";
    let (mut there, mut made) = (false, false);
    ask.ask(Batch::new().any(Sql::new(sql, [name.into()]), &mut there)).await?;
    if !there {
        let sql = "INSERT INTO epitome.workspaces AS w (name, created) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE \
             SET deleted = false, created = excluded.created WHERE w.deleted RETURNING 1";
        let now = ask.now().await?;
        ask.ask(Batch::new().any(Sql::new(sql, [name.into(), now.into()]), &mut made)).await?;
    }
    Ok(made)
}

pub(super) async fn change_workspace(
    ask: &mut dyn Ask,
    name: &str,
    decide: &DecideRow<WorkspaceRow>,
) -> Outcome<()> {
    let before = ask::first(ask, workspace(name, " FOR NO KEY UPDATE"), decode::workspace).await?;
    let Some(row) = decided(|| decide(before.as_ref()))? else { return Ok(()) };
    if !make_workspace(ask, name).await? && before.is_none() {
        // Another transaction created it after the decision, which was based on a missing row.
        return Err(Trouble::Again);
    }
    let sql = "UPDATE epitome.workspaces SET settings = $2, metadata = $3, attributes = $4, revision = revision + 1 \
         WHERE name = $1";
    let (metadata, attributes) = (notes_text(&row.metadata).into(), notes_text(&row.attributes).into());
    let given = [name.into(), row.settings.as_str().into(), metadata, attributes];
    ask.finish(Batch::new().run(Sql::new(sql, given))).await
}

pub(super) async fn delete_workspace(ask: &mut dyn Ask, name: &str) -> Outcome<Deleted> {
    let there = ask::first(ask, workspace(name, " FOR UPDATE"), decode::workspace).await?.is_some();
    // Proxy data is deleted even if the workspace itself was never created.
    let mut statements = vec![
        "DELETE FROM epitome.inline WHERE workspace = $1",
        "DELETE FROM epitome.passed WHERE workspace = $1",
    ];
    if there {
        let sql = "SELECT 1 FROM epitome.sessions INDEXED BY sessions_by_age \
             WHERE workspace = $1 AND state = 'open' LIMIT 1";
        if ask::first(ask, Sql::new(sql, [name.into()]), |_| Ok(())).await?.is_some() {
            return Ok(Deleted::InUse);
        }
        // No visible session is left that could refer to the authors. A copy in progress would become visible with members
        // whose authors are deleted, so it is marked as deleted too.
        statements.extend([
            "UPDATE epitome.sessions SET state = 'gone' WHERE workspace = $1 AND state = 'hidden'",
            "DELETE FROM epitome.authors WHERE workspace = $1",
            "UPDATE epitome.workspaces SET deleted = true, settings = '', metadata = '', attributes = '', \
             revision = revision + 1 WHERE name = $1",
        ]);
    }
    let mut batch = Batch::new();
    statements.into_iter().for_each(|sql| batch.push(Sql::new(sql, [name.into()])));
    ask.finish(batch).await?;
    Ok(if there { Deleted::Gone } else { Deleted::Absent })
}

pub(super) async fn change_author(
    ask: &mut dyn Ask,
    of: &str,
    name: &str,
    decide: &DecideRow<AuthorRow>,
) -> Outcome<()> {
    let sql =
        format!("SELECT {AUTHOR} FROM epitome.authors a WHERE a.workspace = $1 AND a.name = $2 FOR UPDATE");
    let before = ask::first(ask, Sql::new(sql, [of.into(), name.into()]), decode::author).await?;
    let Some(row) = decided(|| decide(before.as_ref()))? else { return Ok(()) };
    make_workspace(ask, of).await?;
    if before.is_none() {
        // Two transactions that both find no author must not both decide on that: one insert fails, and its change runs
        // again.
        let sql = "INSERT INTO epitome.authors (workspace, name, created) VALUES ($1, $2, $3)";
        let given = [of.into(), name.into(), ask.now().await?.into()];
        ask.ask(Batch::new().run(Sql::new(sql, given))).await?;
    }
    let sql = "UPDATE epitome.authors SET metadata = $3, attributes = $4 WHERE workspace = $1 AND name = $2";
    let (metadata, attributes) = (notes_text(&row.metadata).into(), notes_text(&row.attributes).into());
    ask.finish(Batch::new().run(Sql::new(sql, [of.into(), name.into(), metadata, attributes]))).await
}

/// Returns an author's id, and creates the author if necessary.
async fn make_author(ask: &mut dyn Ask, workspace: &str, name: &str, now: Timestamp) -> Outcome<i64> {
    let sql = "SELECT id FROM epitome.authors WHERE workspace = $1 AND name = $2";
    let found = ask::first(ask, Sql::new(sql, [workspace.into(), name.into()]), |row| row.int(0)).await?;
    if let Some(id) = found {
        return Ok(id);
    }
    // If another transaction was faster, the update writes the same name, so that the row and its id are returned.
    let sql = "INSERT INTO epitome.authors (workspace, name, created) VALUES ($1, $2, $3) \
         ON CONFLICT (workspace, name) DO UPDATE SET name = excluded.name RETURNING id";
    ask::number(ask, Sql::new(sql, [workspace.into(), name.into(), now.into()])).await
}

/// Changes the members of a session, whose row must be locked.
pub(super) async fn set_members<'a>(
    ask: &mut dyn Ask,
    batch: &mut Batch<'a>,
    (key, session): (&'a SessionKey, SessionId),
    changes: &[&'a Membership],
) -> Outcome<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let now = ask.now().await?;
    let names = changes.iter().filter_map(|change| match change {
        Membership::Join(name, _) | Membership::Leave(name) => Some(Cow::Borrowed(&**name)),
        Membership::LeaveAll => None,
    });
    let sql = "SELECT a.name, a.id, m.attributes FROM epitome.authors a JOIN epitome.members m \
         ON m.author = a.id AND m.session = $1 WHERE a.workspace = $3 AND a.name = ANY($2)";
    let given = [session.into(), Given::Texts(names.collect()), (&*key.workspace).into()];
    // The current members among these names: their ids and their attributes in the session.
    let there =
        ask::all(ask, Sql::new(sql, given), |row| Ok((row.name(0)?, (row.int(1)?, decode::notes(row, 2)?))));
    let mut there: HashMap<Arc<str>, (i64, Map<String, Value>)> = there.await?.into_iter().collect();
    for change in changes {
        match change {
            Membership::Join(name, None) if there.contains_key(name) => {}
            Membership::Join(name, given) => {
                if !there.contains_key(name) {
                    let author = make_author(ask, &key.workspace, name, now).await?;
                    there.insert(Arc::clone(name), (author, Map::new()));
                }
                let Some((author, attributes)) = there.get_mut(name) else { continue };
                given.iter().for_each(|given| merge_attributes(attributes, given));
                let sql = "INSERT INTO epitome.members (session, author, attributes, joined) VALUES ($1, $2, $3, $4) \
                     ON CONFLICT (session, author) DO UPDATE SET attributes = excluded.attributes";
                let attributes = notes_text(attributes).into();
                batch.push(Sql::new(sql, [session.into(), (*author).into(), attributes, now.into()]));
            }
            Membership::Leave(name) => {
                let sql = "DELETE FROM epitome.members WHERE session = $1 AND author = \
                     (SELECT id FROM epitome.authors WHERE workspace = $2 AND name = $3)";
                batch.push(Sql::new(sql, [session.into(), (&*key.workspace).into(), (&**name).into()]));
                there.remove(name);
            }
            Membership::LeaveAll => {
                let sql = "DELETE FROM epitome.members WHERE session = $1";
                batch.push(Sql::new(sql, [session.into()]));
                there.clear();
            }
        }
    }
    Ok(())
}
