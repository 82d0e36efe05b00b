//! Workspaces, authors and members as rows.

use std::sync::Arc;

use async_trait::async_trait;
use epitome_core::message::Timestamp;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};
use serde_json::{Map, Value};

use super::super::decode;
use super::super::directory::{
    AuthorRow, DecideRow, Deleted, Directory, Listed, Listing, MemberRow, Membership, WorkspaceRow,
};
use super::super::error::StoreError;
use super::super::lists::{self, List};
use super::super::rows::{SessionId, SessionKey, SessionRow};
use super::change::make_workspace;
use super::error::Outcome;
use super::handle::Sqlite;
use super::known::Known;
use super::rows::{Found, SESSION, all, first, first_of, run};

/// The number of an author, who comes to be where there is none.
fn make_author(db: &Connection, workspace: &str, name: &str, now: Timestamp) -> Outcome<i64> {
    let sql = "SELECT id FROM authors WHERE workspace = ?1 AND name = ?2";
    if let Some(id) = db.prepare_cached(sql)?.query_row([workspace, name], |row| row.get(0)).optional()? {
        return Ok(id);
    }
    let sql = "INSERT INTO authors (workspace, name, created) VALUES (?1, ?2, ?3)";
    db.prepare_cached(sql)?.execute(params![workspace, name, now.0])?;
    Ok(db.last_insert_rowid())
}

/// Changes who belongs to a session.
pub(super) fn set_members(
    db: &Connection,
    known: &Known,
    key: &SessionKey,
    session: SessionId,
    changes: &[Membership],
    now: Timestamp,
) -> Outcome<()> {
    for change in changes {
        match change {
            Membership::Join(name, configuration) => {
                if configuration.is_none() && known.is_member(session, name) {
                    continue;
                }
                let author = make_author(db, &key.workspace, name, now)?;
                join(db, session, author, configuration.as_ref(), now)?;
                known.keep_member(session, name);
            }
            Membership::Leave(name) => {
                run(db, &lists::leave(session, &key.workspace, name))?;
                known.forget_members();
            }
            Membership::LeaveAll => {
                run(db, &lists::leave_all(session))?;
                known.forget_members();
            }
        }
    }
    Ok(())
}

fn join(
    db: &Connection,
    session: SessionId,
    author: i64,
    named: Option<&Map<String, Value>>,
    now: Timestamp,
) -> Outcome<()> {
    let sql = "SELECT configuration FROM members WHERE session = ?1 AND author = ?2";
    let before = first_of(db, sql, [session, author], |row| decode::notes(row, 0))?;
    let (there, mut configuration) = (before.is_some(), before.unwrap_or_default());
    if there && named.is_none() {
        return Ok(());
    }
    configuration.extend(named.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
    run(db, &lists::put_member(session, author, &configuration, now))
}

/// Has everybody of one session belong to its copy too.
pub(super) fn copy_members(db: &Connection, from: SessionId, to: SessionId) -> Outcome<()> {
    let sql = "INSERT OR IGNORE INTO members (session, author, configuration, joined) \
         SELECT ?2, author, configuration, joined FROM members WHERE session = ?1";
    db.prepare_cached(sql)?.execute([from, to])?;
    Ok(())
}

/// Reads a page.
fn list<T>(
    db: &Connection,
    list: &List<'_>,
    listing: &Listing<T>,
    read: impl Fn(Found<'_>) -> Outcome<T>,
) -> Outcome<Listed<T>> {
    let Some(keep) = &listing.keep else {
        let items = all(db, &list.page(listing, listing.limit as u64, listing.skip), read)?;
        let counted = list.count(listing).map(|sql| first(db, &sql, |row| row.uint(0))).transpose()?;
        let total = counted.flatten().unwrap_or(items.len() as u64);
        return Ok(Listed { items, total });
    };
    let mut listed = Listed::default();
    let sql = list.page(listing, u64::MAX, 0);
    let mut statement = db.prepare_cached(&sql.for_sqlite())?;
    let mut found = statement.query(params_from_iter(&sql.given))?;
    while let Some(row) = found.next()? {
        let item = read(row)?;
        if keep(&item) {
            listed.take(item, listing.skip, listing.limit);
        }
    }
    Ok(listed)
}

/// The one of that name.
fn one<T>(
    db: &Connection,
    rows: &List<'_>,
    name: &str,
    read: impl Fn(Found<'_>) -> Outcome<T>,
) -> Outcome<Option<T>> {
    Ok(list(db, rows, &Listing::named(name), read)?.one())
}

#[async_trait]
impl Directory for Sqlite {
    async fn workspaces(&self, listing: Listing<WorkspaceRow>) -> Result<Listed<WorkspaceRow>, StoreError> {
        self.read(move |db| list(db, &List::workspaces(), &listing, decode::workspace)).await
    }

    async fn change_workspace(
        &self,
        workspace: &str,
        decide: DecideRow<WorkspaceRow>,
    ) -> Result<(), StoreError> {
        let (workspace, now) = (workspace.to_owned(), self.now());
        self.write(move |db| {
            let before = one(db, &List::workspaces(), &workspace, decode::workspace)?;
            let Some(row) = decide(before.as_ref()) else { return Ok(()) };
            make_workspace(db, &workspace, now)?;
            run(db, &lists::set_workspace(&workspace, &row))
        })
        .await
    }

    async fn delete_workspace(&self, workspace: &str) -> Result<Deleted, StoreError> {
        let workspace = workspace.to_owned();
        self.write(move |db| {
            if one(db, &List::workspaces(), &workspace, decode::workspace)?.is_none() {
                // What passes through it makes no workspace, and is forgotten all the same.
                lists::forget_passing(&workspace).try_for_each(|sql| run(db, &sql))?;
                return Ok(Deleted::Absent);
            }
            if first(db, &lists::any_session(&workspace), |_| Ok(()))?.is_some() {
                return Ok(Deleted::InUse);
            }
            lists::delete_workspace(&workspace).try_for_each(|sql| run(db, &sql))?;
            Ok(Deleted::Gone)
        })
        .await
    }

    async fn sessions(
        &self,
        workspace: &str,
        member: Option<&str>,
        listing: Listing<(Arc<str>, SessionRow)>,
    ) -> Result<Listed<(Arc<str>, SessionRow)>, StoreError> {
        let (workspace, member) = (workspace.to_owned(), member.map(str::to_owned));
        self.read(move |db| {
            let rows = List::sessions(SESSION, &workspace, member.as_deref());
            list(db, &rows, &listing, decode::named_session)
        })
        .await
    }

    async fn change_author(
        &self,
        workspace: &str,
        name: &str,
        decide: DecideRow<AuthorRow>,
    ) -> Result<(), StoreError> {
        let (workspace, name, now) = (workspace.to_owned(), name.to_owned(), self.now());
        self.write(move |db| {
            let before = one(db, &List::authors(&workspace), &name, decode::author)?;
            let Some(row) = decide(before.as_ref()) else { return Ok(()) };
            make_workspace(db, &workspace, now)?;
            make_author(db, &workspace, &name, now)?;
            run(db, &lists::set_author(&workspace, &name, &row))
        })
        .await
    }

    async fn authors(
        &self,
        workspace: &str,
        listing: Listing<AuthorRow>,
    ) -> Result<Listed<AuthorRow>, StoreError> {
        let workspace = workspace.to_owned();
        self.read(move |db| list(db, &List::authors(&workspace), &listing, decode::author)).await
    }

    async fn members(
        &self,
        session: SessionId,
        listing: Listing<MemberRow>,
    ) -> Result<Listed<MemberRow>, StoreError> {
        self.read(move |db| list(db, &List::members(session), &listing, decode::member)).await
    }
}
