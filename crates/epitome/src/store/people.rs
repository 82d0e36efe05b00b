//! Workspaces, authors and members as rows.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use epitome_core::message::Timestamp;
use serde_json::{Map, Value};

use super::ask::{self, Ask, Batch};
use super::decode::{self, AUTHOR, Found, WORKSPACE};
use super::directory::{
    AuthorRow, DecideRow, Deleted, Listed, Listing, Membership, WorkspaceRow, merge_attributes,
};
use super::given::Given;
use super::lists::{self, List};
use super::rows::{SessionId, SessionKey};
use super::sql::Sql;
use super::trouble::{Outcome, Trouble, refused};

/// So many rows are looked at in one go where somebody says which are wanted.
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
    // All of them are looked at, a piece at a time, as of one moment.
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

/// Asks whoever decides. One that panics takes nothing with it: what was begun is taken back.
pub(super) fn decided<T>(decide: impl FnOnce() -> T) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(decide)).map_err(|_| refused("a decision panicked"))
}

/// A workspace's row, held for whoever changes it.
fn workspace<'a>(name: &'a str, lock: &str) -> Sql<'a> {
    let sql = format!("SELECT {WORKSPACE} FROM epitome.workspaces WHERE name = $1 AND NOT deleted{lock}");
    Sql::new(sql, [name.into()])
}

/// Sees to it that there is the workspace, and that it stays until this is done. Tells whether it had to be made.
pub(super) async fn make_workspace(ask: &mut dyn Ask, name: &str) -> Outcome<bool> {
    // Most often it is there, and need not be written. Whoever deletes it takes the whole lock.
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
        // Somebody made it since: what was decided was decided of nothing.
        return Err(Trouble::Again);
    }
    ask.finish(Batch::new().run(lists::set_workspace(name, &row))).await
}

pub(super) async fn delete_workspace(ask: &mut dyn Ask, name: &str) -> Outcome<Deleted> {
    // The whole lock: whoever makes a session there waits, and then makes the workspace anew.
    let before = ask::first(ask, workspace(name, " FOR UPDATE"), decode::workspace).await?;
    let mut batch = Batch::new();
    if before.is_none() {
        // What passes through it makes no workspace, and is forgotten all the same.
        lists::forget_passing(name).for_each(|sql| batch.push(sql));
        ask.finish(batch).await?;
        return Ok(Deleted::Absent);
    }
    let mut used = false;
    ask.ask(Batch::new().any(lists::any_session(name), &mut used)).await?;
    if used {
        return Ok(Deleted::InUse);
    }
    lists::delete_workspace(name).for_each(|sql| batch.push(sql));
    ask.finish(batch).await?;
    Ok(Deleted::Gone)
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
        // Two who find nobody there must not both decide that: one of them is told, and looks again.
        let sql = "INSERT INTO epitome.authors (workspace, name, created) VALUES ($1, $2, $3)";
        let given = [of.into(), name.into(), ask.now().await?.into()];
        ask.ask(Batch::new().run(Sql::new(sql, given))).await?;
    }
    ask.finish(Batch::new().run(lists::set_author(of, name, &row))).await
}

/// The number of an author, who comes to be where there is none.
async fn make_author(ask: &mut dyn Ask, workspace: &str, name: &str, now: Timestamp) -> Outcome<i64> {
    let sql = "SELECT id FROM epitome.authors WHERE workspace = $1 AND name = $2";
    let found = ask::first(ask, Sql::new(sql, [workspace.into(), name.into()]), |row| row.int(0)).await?;
    if let Some(id) = found {
        return Ok(id);
    }
    // Written over with what it is, where somebody else was faster: so that it is there to be read.
    let sql = "INSERT INTO epitome.authors (workspace, name, created) VALUES ($1, $2, $3) \
         ON CONFLICT (workspace, name) DO UPDATE SET name = excluded.name RETURNING id";
    ask::number(ask, Sql::new(sql, [workspace.into(), name.into(), now.into()])).await
}

/// Somebody who belongs to a session.
struct Member {
    name: Arc<str>,
    author: i64,
    attributes: Map<String, Value>,
}

/// Those of the session whom these changes name, with their numbers.
async fn members(
    ask: &mut dyn Ask,
    key: &SessionKey,
    session: SessionId,
    changes: &[&Membership],
) -> Outcome<Vec<Member>> {
    let names = changes.iter().filter_map(|change| match change {
        Membership::Join(name, _) | Membership::Leave(name) => Some(Cow::Borrowed(&**name)),
        Membership::LeaveAll => None,
    });
    let sql = "SELECT a.name, a.id, m.attributes FROM epitome.authors a JOIN epitome.members m \
         ON m.author = a.id AND m.session = $1 WHERE a.workspace = $3 AND a.name = ANY($2)";
    let given = [session.into(), Given::Texts(names.collect()), (&*key.workspace).into()];
    ask::all(ask, Sql::new(sql, given), |row| {
        Ok(Member { name: row.name(0)?, author: row.int(1)?, attributes: decode::notes(row, 2)? })
    })
    .await
}

/// Changes who belongs to a session. The session's row is held.
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
    let mut there = members(ask, key, session, changes).await?;
    for change in changes {
        match change {
            Membership::Join(name, named) => {
                let before = there.iter_mut().find(|member| member.name == *name);
                match (before, named) {
                    (Some(_), None) => {}
                    (Some(member), Some(named)) => {
                        merge_attributes(&mut member.attributes, named);
                        batch.push(lists::put_member(session, member.author, &member.attributes, now));
                    }
                    (None, named) => {
                        let author = make_author(ask, &key.workspace, name, now).await?;
                        let attributes = named.clone().unwrap_or_default();
                        batch.push(lists::put_member(session, author, &attributes, now));
                        there.push(Member { name: Arc::clone(name), author, attributes });
                    }
                }
            }
            Membership::Leave(name) => {
                batch.push(lists::leave(session, &key.workspace, name));
                there.retain(|member| member.name != *name);
            }
            Membership::LeaveAll => {
                batch.push(lists::leave_all(session));
                there.clear();
            }
        }
    }
    Ok(())
}
