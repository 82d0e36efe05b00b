//! Writes workspaces, authors and members. Reads lists of workspaces, sessions, authors and members.

use std::borrow::Cow;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use epitome_core::message::Timestamp;
use serde_json::{Map, Value};

use super::decode::{self, AUTHOR, RowRef, SESSION, WORKSPACE, notes_text};
use super::directory::{
    AuthorRow, DecideRow, ListPage, Listing, Membership, WorkspaceDeletion, WorkspaceRow, merge_attributes,
};
use super::executor::{self, Executor, SqlBatch};
use super::op_error::{OpError, OpResult, rejected};
use super::rows::{SessionId, SessionKey};
use super::sql::Sql;
use super::sql_params::SqlParam;

/// A kind of list: its columns, table, filter and order.
#[derive(Debug, Clone)]
pub(super) struct List<'a> {
    columns: String,
    table: &'static str,
    /// The index that SQLite uses to list by age.
    index: &'static str,
    /// The SQL condition for the rows of the list. `params` contains its values.
    condition: &'static str,
    params: Vec<SqlParam<'a>>,
    /// The columns that order the rows by age.
    age: &'static [&'static str],
    /// The column of the name. For members, this text also contains a condition that precedes the column.
    name: &'static str,
}

impl<'a> List<'a> {
    pub(super) fn workspaces() -> Self {
        Self {
            columns: WORKSPACE.to_owned(),
            table: "epitome.workspaces",
            index: " INDEXED BY workspaces_by_age",
            condition: "NOT deleted",
            params: Vec::new(),
            age: &["created", "name"],
            name: "name",
        }
    }

    /// Lists a workspace's sessions. If `member` is set, lists only the sessions of which this author is a member.
    pub(super) fn sessions(workspace: &'a str, member: Option<&'a str>) -> Self {
        let list = Self {
            columns: SESSION.to_owned(),
            table: "epitome.sessions",
            index: " INDEXED BY sessions_by_age",
            condition: "workspace = $1 AND state = 'open'",
            params: vec![workspace.into()],
            age: &["id"],
            name: "name",
        };
        let Some(member) = member else { return list };
        let condition = "state = 'open' AND id IN (SELECT m.session FROM epitome.members m INDEXED BY members_by_author \
             WHERE m.author = (SELECT a.id FROM epitome.authors a WHERE a.workspace = $1 AND a.name = $2))";
        Self { index: "", condition, params: vec![workspace.into(), member.into()], ..list }
    }

    pub(super) fn authors(workspace: &'a str) -> Self {
        Self {
            columns: AUTHOR.to_owned(),
            table: "epitome.authors a",
            index: " INDEXED BY authors_by_age",
            condition: "a.workspace = $1",
            params: vec![workspace.into()],
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
            condition: "s.id = $1 AND s.state = 'open'",
            params: vec![session.into()],
            age: &["a.id"],
            name: "a.workspace = s.workspace AND a.name",
        }
    }

    /// Returns the query for the total count; `None` if the listing has `name`, `after` or `filter`.
    pub(super) fn count<T>(&self, listing: &Listing<T>) -> Option<Sql<'a>> {
        let (from, params) = self.rows(listing);
        let all = listing.name.is_none() && listing.after.is_none() && listing.filter.is_none();
        all.then(|| Sql::new(format!("SELECT count(*) FROM {from}"), params))
    }

    /// Returns the query for `limit` rows after the first `skip` rows.
    pub(super) fn page<T>(&self, listing: &Listing<T>, limit: u64, skip: u64) -> Sql<'a> {
        let (from, mut params) = self.rows(listing);
        let direction = if listing.reverse { " DESC" } else { "" };
        let order = match listing.after {
            Some(_) => self.name.to_owned(),
            None => {
                self.age.iter().map(|column| format!("{column}{direction}")).collect::<Vec<_>>().join(", ")
            }
        };
        let (columns, at) = (&self.columns, params.len());
        params.extend([limit.into(), skip.into()]);
        let sql =
            format!("SELECT {columns} FROM {from} ORDER BY {order} LIMIT ${} OFFSET ${}", at + 1, at + 2);
        Sql::new(sql, params)
    }

    fn rows<T>(&self, listing: &Listing<T>) -> (String, Vec<SqlParam<'a>>) {
        let mut params = self.params.clone();
        let Self { table, index, condition, name, .. } = self;
        let mut by_name = |compare: &str, value: &str| {
            params.push(value.to_owned().into());
            format!("{table} WHERE {condition} AND {name} {compare} ${}", params.len())
        };
        let from = match (&listing.name, &listing.after) {
            (Some(one), _) => by_name("=", one),
            (None, Some(after)) => by_name(">", after),
            (None, None) => format!("{table}{index} WHERE {condition}"),
        };
        (from, params)
    }
}

/// Maximum number of rows read at a time if the listing has a filter.
const MAX_FILTERED: usize = 1_000;

/// Reads a page of a list.
pub(super) async fn page<T: Send>(
    db: &mut dyn Executor,
    list: List<'_>,
    listing: &Listing<T>,
    read: fn(RowRef<'_>) -> OpResult<T>,
) -> OpResult<ListPage<T>> {
    let Some(filter) = &listing.filter else {
        let (mut items, mut total) = (Vec::new(), None);
        let rows = list.page(listing, listing.limit as u64, listing.skip);
        let mut batch = SqlBatch::new().all(rows, &mut items, read);
        if let Some(count) = list.count(listing) {
            batch = batch.first(count, &mut total, |row| row.uint(0));
        }
        db.finish(batch).await?;
        let total = total.unwrap_or(items.len() as u64);
        return Ok(ListPage { items, total });
    };
    // The filter needs all rows. They are read in pieces from one snapshot.
    let size = db.page_size(MAX_FILTERED) as u64;
    let (mut listed, mut skip) = (ListPage::default(), 0u64);
    loop {
        let (mut seen, listed) = (0, &mut listed);
        let each = |row: RowRef<'_>| {
            seen += 1;
            let item = read(row)?;
            if filter(&item) {
                listed.add(item, listing.skip, listing.limit);
            }
            Ok(true)
        };
        db.run(SqlBatch::new().each(list.page(listing, size, skip), each)).await?;
        if seen < size {
            break;
        }
        skip = skip.saturating_add(size);
    }
    Ok(listed)
}

/// Calls a decision function. If it panics, returns an error, so that the transaction is rolled back and the store
/// keeps working.
pub(super) fn run_decision<T>(decide: impl FnOnce() -> T) -> OpResult<T> {
    catch_unwind(AssertUnwindSafe(decide)).map_err(|_| rejected("a decision function panicked"))
}

/// Returns the query for a workspace's row. `lock` is a locking clause.
fn workspace_query<'a>(name: &'a str, lock: &str) -> Sql<'a> {
    let sql = format!("SELECT {WORKSPACE} FROM epitome.workspaces WHERE name = $1 AND NOT deleted{lock}");
    Sql::new(sql, [name.into()])
}

/// Creates a workspace if it does not exist, and prevents its deletion until this transaction ends. Returns whether
/// this call created the workspace.
pub(super) async fn ensure_workspace(db: &mut dyn Executor, name: &str) -> OpResult<bool> {
    // Usually the workspace exists, and no write is needed. This weak lock conflicts only with a deletion, which locks
    // with `FOR UPDATE`.
    let sql = "SELECT 1 FROM epitome.workspaces WHERE name = $1 AND NOT deleted FOR KEY SHARE";
    let (mut exists, mut created) = (false, false);
    db.run(SqlBatch::new().any(Sql::new(sql, [name.into()]), &mut exists)).await?;
    if !exists {
        let sql = "INSERT INTO epitome.workspaces AS w (name, created) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE \
             SET deleted = false, created = excluded.created WHERE w.deleted RETURNING 1";
        let now = db.now().await?;
        db.run(SqlBatch::new().any(Sql::new(sql, [name.into(), now.into()]), &mut created)).await?;
    }
    Ok(created)
}

pub(super) async fn change_workspace(
    db: &mut dyn Executor,
    name: &str,
    decide: &DecideRow<WorkspaceRow>,
) -> OpResult<()> {
    let before = executor::first(db, workspace_query(name, " FOR NO KEY UPDATE"), decode::workspace).await?;
    let Some(row) = run_decision(|| decide(before.as_ref()))? else { return Ok(()) };
    if !ensure_workspace(db, name).await? && before.is_none() {
        // `decide` saw no row, but another transaction has created the workspace since. So the operation must run
        // again.
        return Err(OpError::Conflict);
    }
    let sql = "UPDATE epitome.workspaces SET settings = $2, metadata = $3, attributes = $4, revision = revision + 1 \
         WHERE name = $1";
    let (metadata, attributes) = (notes_text(&row.metadata).into(), notes_text(&row.attributes).into());
    let params = [name.into(), row.settings.as_str().into(), metadata, attributes];
    db.finish(SqlBatch::new().add(Sql::new(sql, params))).await
}

pub(super) async fn delete_workspace(db: &mut dyn Executor, name: &str) -> OpResult<WorkspaceDeletion> {
    let exists =
        executor::first(db, workspace_query(name, " FOR UPDATE"), decode::workspace).await?.is_some();
    // Proxy data is deleted even if the workspace itself was never created.
    let mut statements = vec![
        "DELETE FROM epitome.inline WHERE workspace = $1",
        "DELETE FROM epitome.passed WHERE workspace = $1",
    ];
    if exists {
        let sql = "SELECT 1 FROM epitome.sessions INDEXED BY sessions_by_age \
             WHERE workspace = $1 AND state = 'open' LIMIT 1";
        if executor::first(db, Sql::new(sql, [name.into()]), |_| Ok(())).await?.is_some() {
            return Ok(WorkspaceDeletion::HasSessions);
        }
        // No visible session refers to the authors any more. A copy in progress is marked as deleted too: otherwise it
        // would become visible with members whose authors do not exist.
        statements.extend([
            "UPDATE epitome.sessions SET state = 'gone' WHERE workspace = $1 AND state = 'hidden'",
            "DELETE FROM epitome.authors WHERE workspace = $1",
            "UPDATE epitome.workspaces SET deleted = true, settings = '', metadata = '', attributes = '', \
             revision = revision + 1 WHERE name = $1",
        ]);
    }
    let mut batch = SqlBatch::new();
    statements.into_iter().for_each(|sql| batch.push(Sql::new(sql, [name.into()])));
    db.finish(batch).await?;
    Ok(if exists { WorkspaceDeletion::Deleted } else { WorkspaceDeletion::NotFound })
}

pub(super) async fn change_author(
    db: &mut dyn Executor,
    workspace: &str,
    name: &str,
    decide: &DecideRow<AuthorRow>,
) -> OpResult<()> {
    let sql =
        format!("SELECT {AUTHOR} FROM epitome.authors a WHERE a.workspace = $1 AND a.name = $2 FOR UPDATE");
    let before = executor::first(db, Sql::new(sql, [workspace.into(), name.into()]), decode::author).await?;
    let Some(row) = run_decision(|| decide(before.as_ref()))? else { return Ok(()) };
    ensure_workspace(db, workspace).await?;
    if before.is_none() {
        // If two transactions both find no author, one of the two inserts fails. That transaction runs again, and then
        // finds the author.
        let sql = "INSERT INTO epitome.authors (workspace, name, created) VALUES ($1, $2, $3)";
        let params = [workspace.into(), name.into(), db.now().await?.into()];
        db.run(SqlBatch::new().add(Sql::new(sql, params))).await?;
    }
    let sql = "UPDATE epitome.authors SET metadata = $3, attributes = $4 WHERE workspace = $1 AND name = $2";
    let (metadata, attributes) = (notes_text(&row.metadata).into(), notes_text(&row.attributes).into());
    db.finish(SqlBatch::new().add(Sql::new(sql, [workspace.into(), name.into(), metadata, attributes]))).await
}

/// Returns an author's id, and creates the author if necessary.
async fn ensure_author(db: &mut dyn Executor, workspace: &str, name: &str, now: Timestamp) -> OpResult<i64> {
    let sql = "SELECT id FROM epitome.authors WHERE workspace = $1 AND name = $2";
    let found = executor::first(db, Sql::new(sql, [workspace.into(), name.into()]), |row| row.int(0)).await?;
    if let Some(id) = found {
        return Ok(id);
    }
    // If another transaction has inserted the author first, the update writes the same name again, so that the
    // statement returns the existing id.
    let sql = "INSERT INTO epitome.authors (workspace, name, created) VALUES ($1, $2, $3) \
         ON CONFLICT (workspace, name) DO UPDATE SET name = excluded.name RETURNING id";
    executor::number(db, Sql::new(sql, [workspace.into(), name.into(), now.into()])).await
}

/// Adds to `batch` the statements that change a session's members. The session's row must be locked.
pub(super) async fn write_member_changes<'a>(
    db: &mut dyn Executor,
    batch: &mut SqlBatch<'a>,
    (key, session): (&'a SessionKey, SessionId),
    changes: &[&'a Membership],
) -> OpResult<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let now = db.now().await?;
    let names = changes.iter().filter_map(|change| match change {
        Membership::Join(name, _) | Membership::Leave(name) => Some(Cow::Borrowed(&**name)),
        Membership::LeaveAll => None,
    });
    let sql = "SELECT a.name, a.id, m.attributes FROM epitome.authors a JOIN epitome.members m \
         ON m.author = a.id AND m.session = $1 WHERE a.workspace = $3 AND a.name = ANY($2)";
    let params = [session.into(), SqlParam::Texts(names.collect()), (&*key.workspace).into()];
    // The session's members among these names, each with the author's id and the attributes in the session.
    let members = executor::all(db, Sql::new(sql, params), |row| {
        Ok((row.name(0)?, (row.int(1)?, decode::notes(row, 2)?)))
    });
    let mut members: HashMap<Arc<str>, (i64, Map<String, Value>)> = members.await?.into_iter().collect();
    for change in changes {
        match change {
            Membership::Join(name, None) if members.contains_key(name) => {}
            Membership::Join(name, new) => {
                if !members.contains_key(name) {
                    let author = ensure_author(db, &key.workspace, name, now).await?;
                    members.insert(Arc::clone(name), (author, Map::new()));
                }
                let Some((author, attributes)) = members.get_mut(name) else { continue };
                new.iter().for_each(|new| merge_attributes(attributes, new));
                let sql = "INSERT INTO epitome.members (session, author, attributes, joined) VALUES ($1, $2, $3, $4) \
                     ON CONFLICT (session, author) DO UPDATE SET attributes = excluded.attributes";
                let attributes = notes_text(attributes).into();
                batch.push(Sql::new(sql, [session.into(), (*author).into(), attributes, now.into()]));
            }
            Membership::Leave(name) => {
                let sql = "DELETE FROM epitome.members WHERE session = $1 AND author = \
                     (SELECT id FROM epitome.authors WHERE workspace = $2 AND name = $3)";
                batch.push(Sql::new(sql, [session.into(), (&*key.workspace).into(), (&**name).into()]));
                members.remove(name);
            }
            Membership::LeaveAll => {
                let sql = "DELETE FROM epitome.members WHERE session = $1";
                batch.push(Sql::new(sql, [session.into()]));
                members.clear();
            }
        }
    }
    Ok(())
}
