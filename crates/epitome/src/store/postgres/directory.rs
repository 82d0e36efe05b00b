//! Workspaces, authors and members as rows.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio_postgres::Row;

use super::super::decode::{self, AUTHOR, ReadRow, WORKSPACE};
use super::super::directory::{
    AuthorRow, DecideRow, Deleted, Directory, Listed, Listing, MemberRow, Membership, WorkspaceRow,
};
use super::super::error::StoreError;
use super::super::given::Given;
use super::super::lists::{self, List};
use super::super::rows::{SessionId, SessionKey, SessionRow};
use super::change::decided;
use super::error::{Outcome, Trouble, nonsense};
use super::pipe::Pipe;
use super::put::make_workspace;
use super::rows::{Found, SESSION, first};
use super::tx::Tx;
use super::{Postgres, again};

/// A workspace's row, held for whoever changes it.
fn workspace_pipe<'a>(name: &'a str, lock: &str) -> Pipe<'a> {
    let sql = format!("SELECT {WORKSPACE} FROM epitome.workspaces WHERE name = $1 AND NOT deleted{lock}");
    Pipe::new().then(sql, [name.into()])
}

/// The number of an author, who comes to be where there is none.
async fn make_author(tx: &mut Tx<'_>, workspace: &str, name: &str) -> Outcome<i64> {
    // Written over with what it is, where somebody else was faster: so that it is there to be read.
    let sql = "INSERT INTO epitome.authors (workspace, name, created) VALUES ($1, $2, $3) \
         ON CONFLICT (workspace, name) DO UPDATE SET name = excluded.name RETURNING id";
    let find = "SELECT id FROM epitome.authors WHERE workspace = $1 AND name = $2";
    let found = tx.ask(Pipe::new().then(find, [workspace.into(), name.into()])).await?;
    if let Some(id) = first(&found, |row| row.int(0))? {
        return Ok(id);
    }
    let found = tx.ask(Pipe::new().then(sql, [workspace.into(), name.into(), tx.now.into()])).await?;
    first(&found, |row| row.int(0))?.ok_or_else(|| nonsense("a row is missing"))
}

/// Changes who belongs to a session. The session's row is held.
pub(super) async fn set_members<'a>(
    tx: &mut Tx<'_>,
    pipe: &mut Pipe<'a>,
    key: &'a SessionKey,
    session: SessionId,
    changes: &'a [Membership],
) -> Outcome<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut there = members(tx, session, changes).await?;
    for change in changes {
        match change {
            Membership::Join(name, configuration) => {
                let before = there.iter_mut().find(|member| member.name == *name);
                match (before, configuration) {
                    (Some(_), None) => {}
                    (Some(member), Some(named)) => {
                        member
                            .configuration
                            .extend(named.iter().map(|(key, value)| (key.clone(), value.clone())));
                        pipe.add(lists::put_member(session, member.author, &member.configuration, tx.now));
                    }
                    (None, named) => {
                        let author = make_author(tx, &key.workspace, name).await?;
                        let configuration = named.clone().unwrap_or_default();
                        let member = Member { name: Arc::clone(name), author, configuration };
                        pipe.add(lists::put_member(session, author, &member.configuration, tx.now));
                        there.push(member);
                    }
                }
            }
            Membership::Leave(name) => {
                pipe.add(lists::leave(session, &key.workspace, name));
                there.retain(|member| member.name != *name);
            }
            Membership::LeaveAll => {
                pipe.add(lists::leave_all(session));
                there.clear();
            }
        }
    }
    Ok(())
}

/// Somebody who belongs to a session.
struct Member {
    name: Arc<str>,
    author: i64,
    configuration: Map<String, Value>,
}

/// Those of the session whom these changes name, with their numbers.
async fn members(tx: &mut Tx<'_>, session: SessionId, changes: &[Membership]) -> Outcome<Vec<Member>> {
    let names = changes.iter().filter_map(|change| match change {
        Membership::Join(name, _) | Membership::Leave(name) => Some(Cow::Borrowed(&**name)),
        Membership::LeaveAll => None,
    });
    let sql = "SELECT a.name, a.id, m.configuration FROM epitome.members m JOIN epitome.authors a ON a.id = m.author \
         WHERE m.session = $1 AND a.name = ANY($2)";
    let found = tx.ask(Pipe::new().then(sql, [session.into(), Given::Texts(names.collect())])).await?;
    let member = |row: &Row| {
        Ok(Member { name: row.name(0)?, author: row.int(1)?, configuration: decode::notes(row, 2)? })
    };
    found.iter().flatten().map(member).collect()
}

/// So many rows are looked at in one go where somebody says which are wanted.
const LOOKED_AT: u64 = 1_000;

impl Postgres {
    /// Reads a page.
    async fn list<T>(
        &self,
        list: List<'_>,
        listing: &Listing<T>,
        read: impl Fn(Found<'_>) -> Outcome<T>,
    ) -> Outcome<Listed<T>> {
        let Some(keep) = &listing.keep else {
            let mut pipe = Pipe::new().and(list.page(listing, listing.limit as u64, listing.skip));
            list.count(listing).into_iter().for_each(|sql| pipe.add(sql));
            let (tx, found) = Tx::read(self, pipe).await?;
            tx.finish(Pipe::new()).await?;
            let items =
                found.first().into_iter().flatten().map(|row| read(row)).collect::<Outcome<Vec<_>>>()?;
            let counted = found.get(1).and_then(|rows| rows.first()).map(|row| row.uint(0)).transpose()?;
            let total = counted.unwrap_or(items.len() as u64);
            return Ok(Listed { items, total });
        };
        // All of them are looked at, a piece at a time, as of one moment.
        let (mut listed, mut skip) = (Listed::default(), 0);
        let (mut tx, _) = Tx::read(self, Pipe::new()).await?;
        loop {
            let found = tx.ask(Pipe::new().and(list.page(listing, LOOKED_AT, skip))).await?;
            let found = found.first().map_or(&[][..], Vec::as_slice);
            for row in found {
                let item = read(row)?;
                if keep(&item) {
                    listed.take(item, listing.skip, listing.limit);
                }
            }
            skip += LOOKED_AT;
            if (found.len() as u64) < LOOKED_AT {
                break;
            }
        }
        tx.finish(Pipe::new()).await?;
        Ok(listed)
    }

    async fn change_workspace_once(&self, name: &str, decide: &DecideRow<WorkspaceRow>) -> Outcome<()> {
        let (mut tx, found) = Tx::write(self, workspace_pipe(name, " FOR NO KEY UPDATE")).await?;
        let before = first(&found, decode::workspace)?;
        let Some(row) = decided(|| decide(before.as_ref()))? else { return tx.give_up().await };
        if !make_workspace(&mut tx, name).await? && before.is_none() {
            // Somebody made it since: what was decided was decided of nothing.
            tx.give_up().await?;
            return Err(Trouble::Again);
        }
        tx.commit(Pipe::new().and(lists::set_workspace(name, &row))).await?;
        // Whoever remembers where its sessions stand remembers its settings too.
        self.known.forget_all();
        Ok(())
    }

    async fn delete_workspace_once(&self, name: &str) -> Outcome<Deleted> {
        // The whole lock: whoever makes a session there waits, and then makes the workspace anew.
        let (mut tx, found) = Tx::write(self, workspace_pipe(name, " FOR UPDATE")).await?;
        let mut pipe = Pipe::new();
        if first(&found, decode::workspace)?.is_none() {
            // What passes through it makes no workspace, and is forgotten all the same.
            lists::forget_passing(name).for_each(|sql| pipe.add(sql));
            tx.commit(pipe).await?;
            return Ok(Deleted::Absent);
        }
        let found = tx.ask(Pipe::new().and(lists::any_session(name))).await?;
        if found.first().is_some_and(|rows| !rows.is_empty()) {
            tx.give_up().await?;
            return Ok(Deleted::InUse);
        }
        lists::delete_workspace(name).for_each(|sql| pipe.add(sql));
        tx.commit(pipe).await?;
        self.known.forget_all();
        Ok(Deleted::Gone)
    }

    async fn change_author_once(&self, of: &str, name: &str, decide: &DecideRow<AuthorRow>) -> Outcome<()> {
        let sql = format!(
            "SELECT {AUTHOR} FROM epitome.authors a WHERE a.workspace = $1 AND a.name = $2 FOR UPDATE"
        );
        let (mut tx, found) = Tx::write(self, Pipe::new().then(sql, [of.into(), name.into()])).await?;
        let before = first(&found, decode::author)?;
        let Some(row) = decided(|| decide(before.as_ref()))? else { return tx.give_up().await };
        make_workspace(&mut tx, of).await?;
        if before.is_none() {
            // Two who find nobody there must not both decide that: one of them is told, and looks again.
            let sql = "INSERT INTO epitome.authors (workspace, name, created) VALUES ($1, $2, $3)";
            tx.ask(Pipe::new().then(sql, [of.into(), name.into(), tx.now.into()])).await?;
        }
        tx.commit(Pipe::new().and(lists::set_author(of, name, &row))).await.map(|_| ())
    }
}

#[async_trait]
impl Directory for Postgres {
    async fn workspaces(&self, listing: Listing<WorkspaceRow>) -> Result<Listed<WorkspaceRow>, StoreError> {
        again!(self, self.list(List::workspaces(), &listing, decode::workspace))
    }

    async fn sessions(
        &self,
        workspace: &str,
        member: Option<&str>,
        listing: Listing<(Arc<str>, SessionRow)>,
    ) -> Result<Listed<(Arc<str>, SessionRow)>, StoreError> {
        let list = || List::sessions(SESSION, workspace, member);
        again!(self, self.list(list(), &listing, decode::named_session))
    }

    async fn authors(
        &self,
        workspace: &str,
        listing: Listing<AuthorRow>,
    ) -> Result<Listed<AuthorRow>, StoreError> {
        again!(self, self.list(List::authors(workspace), &listing, decode::author))
    }

    async fn members(
        &self,
        session: SessionId,
        listing: Listing<MemberRow>,
    ) -> Result<Listed<MemberRow>, StoreError> {
        again!(self, self.list(List::members(session), &listing, decode::member))
    }

    async fn change_workspace(
        &self,
        workspace: &str,
        decide: DecideRow<WorkspaceRow>,
    ) -> Result<(), StoreError> {
        again!(self, self.change_workspace_once(workspace, &decide))
    }

    async fn change_author(
        &self,
        workspace: &str,
        name: &str,
        decide: DecideRow<AuthorRow>,
    ) -> Result<(), StoreError> {
        again!(self, self.change_author_once(workspace, name, &decide))
    }

    async fn delete_workspace(&self, workspace: &str) -> Result<Deleted, StoreError> {
        again!(self, self.delete_workspace_once(workspace))
    }
}
