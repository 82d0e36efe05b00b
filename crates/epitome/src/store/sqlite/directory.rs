//! Workspaces, authors and members as rows.

use std::sync::Arc;

use async_trait::async_trait;
use epitome_core::message::Timestamp;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use serde_json::{Map, Value};

use super::super::{
    AuthorRow, DecideRow, Deleted, Directory, Listed, Listing, MemberRow, Membership, SessionId, SessionKey,
    SessionRow, StoreError, WorkspaceRow,
};
use super::Sqlite;
use super::change::make_workspace;
use super::error::Outcome;
use super::inlines;
use super::known::Known;
use super::rows::{self, SESSION, notes, notes_text, uint};

/// What [`workspace`] reads.
const WORKSPACE: &str = "name, settings, metadata, configuration, created";

fn workspace(row: &Row<'_>) -> rusqlite::Result<WorkspaceRow> {
    Ok(WorkspaceRow {
        name: row.get(0)?,
        settings: row.get(1)?,
        metadata: notes(row, 2)?,
        configuration: notes(row, 3)?,
        created: Timestamp(row.get(4)?),
    })
}

fn workspace_row(db: &Connection, name: &str) -> Outcome<Option<WorkspaceRow>> {
    let sql = format!("SELECT {WORKSPACE} FROM workspaces WHERE name = ?1 AND deleted = 0");
    Ok(db.prepare_cached(&sql)?.query_row([name], workspace).optional()?)
}

/// What [`author`] reads, where the table is called `a`.
const AUTHOR: &str = "a.name, a.metadata, a.configuration, a.created";

/// How many columns that is: the next one's place.
const AFTER_AUTHOR: usize = 4;

fn author(row: &Row<'_>) -> rusqlite::Result<AuthorRow> {
    Ok(AuthorRow {
        name: row.get(0)?,
        metadata: notes(row, 1)?,
        configuration: notes(row, 2)?,
        created: Timestamp(row.get(3)?),
    })
}

fn author_row(db: &Connection, workspace: &str, name: &str) -> Outcome<Option<AuthorRow>> {
    let sql = format!("SELECT {AUTHOR} FROM authors a WHERE a.workspace = ?1 AND a.name = ?2");
    Ok(db.prepare_cached(&sql)?.query_row([workspace, name], author).optional()?)
}

fn member(row: &Row<'_>) -> rusqlite::Result<MemberRow> {
    Ok(MemberRow { author: author(row)?, configuration: notes(row, AFTER_AUTHOR)? })
}

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
                let sql = "DELETE FROM members WHERE session = ?1 AND author = \
                     (SELECT id FROM authors WHERE workspace = ?2 AND name = ?3)";
                db.prepare_cached(sql)?.execute(params![session, key.workspace, name])?;
                known.forget_members();
            }
            Membership::LeaveAll => {
                db.prepare_cached("DELETE FROM members WHERE session = ?1")?.execute([session])?;
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
    let before = db.prepare_cached(sql)?.query_row([session, author], |row| notes(row, 0)).optional()?;
    let (there, mut configuration) = (before.is_some(), before.unwrap_or_default());
    if there && named.is_none() {
        return Ok(());
    }
    configuration.extend(named.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
    let sql = "INSERT INTO members (session, author, configuration, joined) VALUES (?1, ?2, ?3, ?4) \
         ON CONFLICT (session, author) DO UPDATE SET configuration = excluded.configuration";
    db.prepare_cached(sql)?.execute(params![session, author, notes_text(&configuration)?, now.0])?;
    Ok(())
}

/// Has everybody of one session belong to its copy too.
pub(super) fn copy_members(db: &Connection, from: SessionId, to: SessionId) -> Outcome<()> {
    let sql = "INSERT OR IGNORE INTO members (session, author, configuration, joined) \
         SELECT ?2, author, configuration, joined FROM members WHERE session = ?1";
    db.prepare_cached(sql)?.execute([from, to])?;
    Ok(())
}

/// Reads a page. `rows` says which, from `FROM` on, and is counted by itself where all are wanted; `order` is the columns by
/// which they are in order.
fn list<T>(
    db: &Connection,
    (columns, rows, order): (&str, &str, &[&str]),
    given: &[&dyn rusqlite::ToSql],
    listing: &Listing<T>,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Outcome<Listed<T>> {
    let way = if listing.reverse { " DESC" } else { "" };
    let order: Vec<String> = order.iter().map(|column| format!("{column}{way}")).collect();
    let order = order.join(", ");
    let mut listed = Listed::default();
    let Some(keep) = &listing.keep else {
        let sql = format!("SELECT count(*) FROM {rows}");
        listed.total = db.prepare_cached(&sql)?.query_row(given, |row| uint(row, 0))?;
        let (limit, skip) = (rows::rows(listing.limit), rows::int(listing.skip));
        let sql = format!("SELECT {columns} FROM {rows} ORDER BY {order} LIMIT {limit} OFFSET {skip}");
        // Of many sizes and places: not worth remembering.
        let mut statement = db.prepare(&sql)?;
        listed.items = statement.query_map(given, |row| read(row))?.collect::<Result<_, _>>()?;
        return Ok(listed);
    };
    let mut statement = db.prepare_cached(&format!("SELECT {columns} FROM {rows} ORDER BY {order}"))?;
    let mut found = statement.query(given)?;
    while let Some(row) = found.next()? {
        let item = read(row)?;
        if keep(&item) {
            listed.take(item, listing.skip, listing.limit);
        }
    }
    Ok(listed)
}

fn exists(db: &Connection, sql: &str, given: impl Params) -> Outcome<bool> {
    Ok(db.prepare_cached(sql)?.query_row(given, |_| Ok(())).optional()?.is_some())
}

#[async_trait]
impl Directory for Sqlite {
    async fn workspace_row(&self, workspace: &str) -> Result<Option<WorkspaceRow>, StoreError> {
        let workspace = workspace.to_owned();
        self.read(move |db| workspace_row(db, &workspace)).await
    }

    async fn change_workspace(
        &self,
        workspace: &str,
        decide: DecideRow<WorkspaceRow>,
    ) -> Result<(), StoreError> {
        let (workspace, now) = (workspace.to_owned(), self.now());
        self.write(move |db| {
            let Some(row) = decide(workspace_row(db, &workspace)?.as_ref()) else { return Ok(()) };
            make_workspace(db, &workspace, now)?;
            let sql = "UPDATE workspaces SET settings = ?2, metadata = ?3, configuration = ?4, revision = revision + 1 \
                 WHERE name = ?1";
            let (metadata, configuration) = (notes_text(&row.metadata)?, notes_text(&row.configuration)?);
            db.prepare_cached(sql)?.execute([workspace, row.settings, metadata, configuration])?;
            Ok(())
        })
        .await
    }

    async fn delete_workspace(&self, workspace: &str) -> Result<Deleted, StoreError> {
        let workspace = workspace.to_owned();
        self.write(move |db| {
            if workspace_row(db, &workspace)?.is_none() {
                // What passes through it makes no workspace, and is forgotten all the same.
                inlines::forget(db, &workspace)?;
                return Ok(Deleted::Absent);
            }
            let sql =
                "SELECT 1 FROM sessions INDEXED BY sessions_by_age WHERE workspace = ?1 AND state = 'open'";
            if exists(db, sql, [&workspace])? {
                return Ok(Deleted::InUse);
            }
            // None of its sessions is left to belong to, but for what is still to be removed. A copy under way would be
            // shown with members nobody knows any more, so it goes too.
            let sql = "UPDATE sessions SET state = 'gone' WHERE workspace = ?1 AND state = 'hidden'";
            db.prepare_cached(sql)?.execute([&workspace])?;
            db.prepare_cached("DELETE FROM authors WHERE workspace = ?1")?.execute([&workspace])?;
            inlines::forget(db, &workspace)?;
            let sql = "UPDATE workspaces SET deleted = 1, settings = '', metadata = '', configuration = '', \
                 revision = revision + 1 WHERE name = ?1";
            db.prepare_cached(sql)?.execute([&workspace])?;
            Ok(Deleted::Gone)
        })
        .await
    }

    async fn list_workspaces(
        &self,
        listing: Listing<WorkspaceRow>,
    ) -> Result<Listed<WorkspaceRow>, StoreError> {
        self.read(move |db| {
            let rows = "workspaces INDEXED BY workspaces_by_age WHERE deleted = 0";
            list(db, (WORKSPACE, rows, &["created", "name"]), &[], &listing, workspace)
        })
        .await
    }

    async fn list_sessions(
        &self,
        workspace: &str,
        member: Option<&str>,
        listing: Listing<(Arc<str>, SessionRow)>,
    ) -> Result<Listed<(Arc<str>, SessionRow)>, StoreError> {
        let (workspace, member) = (workspace.to_owned(), member.map(str::to_owned));
        self.read(move |db| {
            let read = |row: &Row<'_>| Ok((row.get(11)?, rows::session(row)?));
            let Some(member) = member else {
                let rows = "sessions INDEXED BY sessions_by_age WHERE workspace = ?1 AND state = 'open'";
                return list(db, (SESSION, rows, &["id"]), &[&workspace], &listing, read);
            };
            let rows = "sessions WHERE state = 'open' AND id IN (SELECT m.session FROM members m \
                 INDEXED BY members_by_author WHERE m.author = \
                 (SELECT a.id FROM authors a WHERE a.workspace = ?1 AND a.name = ?2))";
            list(db, (SESSION, rows, &["id"]), &[&workspace, &member], &listing, read)
        })
        .await
    }

    async fn author(&self, workspace: &str, name: &str) -> Result<Option<AuthorRow>, StoreError> {
        let (workspace, name) = (workspace.to_owned(), name.to_owned());
        self.read(move |db| author_row(db, &workspace, &name)).await
    }

    async fn change_author(
        &self,
        workspace: &str,
        name: &str,
        decide: DecideRow<AuthorRow>,
    ) -> Result<(), StoreError> {
        let (workspace, name, now) = (workspace.to_owned(), name.to_owned(), self.now());
        self.write(move |db| {
            let Some(row) = decide(author_row(db, &workspace, &name)?.as_ref()) else { return Ok(()) };
            make_workspace(db, &workspace, now)?;
            let id = make_author(db, &workspace, &name, now)?;
            let sql = "UPDATE authors SET metadata = ?2, configuration = ?3 WHERE id = ?1";
            let (metadata, configuration) = (notes_text(&row.metadata)?, notes_text(&row.configuration)?);
            db.prepare_cached(sql)?.execute(params![id, metadata, configuration])?;
            Ok(())
        })
        .await
    }

    async fn list_authors(
        &self,
        workspace: &str,
        listing: Listing<AuthorRow>,
    ) -> Result<Listed<AuthorRow>, StoreError> {
        let workspace = workspace.to_owned();
        self.read(move |db| {
            let rows = "authors a INDEXED BY authors_by_age WHERE a.workspace = ?1";
            list(db, (AUTHOR, rows, &["a.id"]), &[&workspace], &listing, author)
        })
        .await
    }

    async fn member(&self, session: SessionId, name: &str) -> Result<Option<MemberRow>, StoreError> {
        let name = name.to_owned();
        self.read(move |db| {
            let sql = format!(
                "SELECT {AUTHOR}, m.configuration FROM sessions s JOIN authors a ON a.workspace = s.workspace \
                 JOIN members m ON m.session = s.id AND m.author = a.id WHERE s.id = ?1 AND s.state = 'open' \
                 AND a.name = ?2"
            );
            Ok(db.prepare_cached(&sql)?.query_row(params![session, name], member).optional()?)
        })
        .await
    }

    async fn list_members(
        &self,
        session: SessionId,
        listing: Listing<MemberRow>,
    ) -> Result<Listed<MemberRow>, StoreError> {
        self.read(move |db| {
            let columns = format!("{AUTHOR}, m.configuration");
            let rows = "sessions s JOIN members m ON m.session = s.id JOIN authors a ON a.id = m.author \
                 WHERE s.id = ?1 AND s.state = 'open'";
            list(db, (&columns, rows, &["a.id"]), &[&session], &listing, member)
        })
        .await
    }

    async fn secret(&self) -> Result<[u8; 32], StoreError> {
        self.read(|db| Ok(db.query_row("SELECT secret FROM secrets", [], |row| row.get(0))?)).await
    }
}
