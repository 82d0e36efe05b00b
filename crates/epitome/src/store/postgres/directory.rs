//! Workspaces, authors and members as rows.

use std::sync::Arc;

use async_trait::async_trait;
use epitome_core::message::Timestamp;
use serde_json::{Map, Value};
use tokio_postgres::Row;

use super::super::{
    AuthorRow, DecideRow, Deleted, Directory, Listed, Listing, MemberRow, Membership, SessionId, SessionKey,
    SessionRow, StoreError, WorkspaceRow,
};
use super::change::decided;
use super::error::{Outcome, Trouble, nonsense};
use super::given::Given;
use super::pipe::Pipe;
use super::put::make_workspace;
use super::read::named_session;
use super::rows::{SESSION, get, notes, notes_text, plain, uint};
use super::tx::Tx;
use super::{Postgres, again, inlines};

/// What [`workspace`] reads.
const WORKSPACE: &str = "name, settings, metadata, configuration, created";

fn workspace(row: &Row) -> Outcome<WorkspaceRow> {
    Ok(WorkspaceRow {
        name: get::<&str>(row, 0)?.into(),
        settings: get(row, 1)?,
        metadata: notes(row, 2)?,
        configuration: notes(row, 3)?,
        created: Timestamp(get(row, 4)?),
    })
}

fn workspace_pipe<'a>(name: &'a str, lock: &str) -> Pipe<'a> {
    let sql = format!("SELECT {WORKSPACE} FROM epitome.workspaces WHERE name = $1 AND NOT deleted{lock}");
    Pipe::new().then(sql, [name.into()])
}

/// What [`author`] reads, where the table is called `a`.
const AUTHOR: &str = "a.name, a.metadata, a.configuration, a.created";

/// How many columns that is: the next one's place.
const AFTER_AUTHOR: usize = 4;

fn author(row: &Row) -> Outcome<AuthorRow> {
    Ok(AuthorRow {
        name: get::<&str>(row, 0)?.into(),
        metadata: notes(row, 1)?,
        configuration: notes(row, 2)?,
        created: Timestamp(get(row, 3)?),
    })
}

fn author_pipe<'a>(workspace: &'a str, name: &'a str, lock: &str) -> Pipe<'a> {
    let sql = format!("SELECT {AUTHOR} FROM epitome.authors a WHERE a.workspace = $1 AND a.name = $2{lock}");
    Pipe::new().then(sql, [workspace.into(), text(name)])
}

fn text(name: &str) -> Given<'_> {
    Given::Text(Some(plain(name)))
}

fn member(row: &Row) -> Outcome<MemberRow> {
    Ok(MemberRow { author: author(row)?, configuration: notes(row, AFTER_AUTHOR)? })
}

fn first<T>(found: &[Vec<Row>], read: impl Fn(&Row) -> Outcome<T>) -> Outcome<Option<T>> {
    found.first().and_then(|rows| rows.first()).map(read).transpose()
}

/// The number of an author, who comes to be where there is none.
async fn make_author(tx: &mut Tx<'_>, workspace: &str, name: &str) -> Outcome<i64> {
    // Written over with what it is, where somebody else was faster: so that it is there to be read.
    let sql = "INSERT INTO epitome.authors (workspace, name, created) VALUES ($1, $2, $3) \
         ON CONFLICT (workspace, name) DO UPDATE SET name = excluded.name RETURNING id";
    let find = "SELECT id FROM epitome.authors WHERE workspace = $1 AND name = $2";
    let found = tx.ask(Pipe::new().then(find, [workspace.into(), text(name)])).await?;
    if let Some(id) = first(&found, |row| get(row, 0))? {
        return Ok(id);
    }
    let found = tx.ask(Pipe::new().then(sql, [workspace.into(), text(name), tx.now.into()])).await?;
    first(&found, |row| get(row, 0))?.ok_or_else(|| nonsense("a row is missing"))
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
                        put_member(pipe, session, member, tx.now)?;
                    }
                    (None, named) => {
                        let author = make_author(tx, &key.workspace, name).await?;
                        let configuration = named.clone().unwrap_or_default();
                        let member = Member { name: Arc::clone(name), author, configuration };
                        put_member(pipe, session, &member, tx.now)?;
                        there.push(member);
                    }
                }
            }
            Membership::Leave(name) => {
                let sql = "DELETE FROM epitome.members WHERE session = $1 AND author = \
                     (SELECT id FROM epitome.authors WHERE workspace = $2 AND name = $3)";
                pipe.push(sql, [session.into(), (&*key.workspace).into(), text(name)]);
                there.retain(|member| member.name != *name);
            }
            Membership::LeaveAll => {
                pipe.push("DELETE FROM epitome.members WHERE session = $1", [session.into()]);
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
        Membership::Join(name, _) | Membership::Leave(name) => Some(plain(name)),
        Membership::LeaveAll => None,
    });
    let sql = "SELECT a.name, a.id, m.configuration FROM epitome.members m JOIN epitome.authors a ON a.id = m.author \
         WHERE m.session = $1 AND a.name = ANY($2)";
    let found = tx.ask(Pipe::new().then(sql, [session.into(), Given::Texts(names.collect())])).await?;
    let member = |row: &Row| {
        Ok(Member { name: get::<&str>(row, 0)?.into(), author: get(row, 1)?, configuration: notes(row, 2)? })
    };
    found.iter().flatten().map(member).collect()
}

fn put_member(pipe: &mut Pipe<'_>, session: SessionId, member: &Member, now: Timestamp) -> Outcome<()> {
    let sql = "INSERT INTO epitome.members (session, author, configuration, joined) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (session, author) DO UPDATE SET configuration = excluded.configuration";
    let configuration = notes_text(&member.configuration)?;
    pipe.push(sql, [session.into(), member.author.into(), configuration.into(), now.into()]);
    Ok(())
}

/// So many rows are looked at in one go where somebody says which are wanted.
const LOOKED_AT: i64 = 1_000;

/// Which rows of what, from `FROM` on, by which columns they are in order.
struct Rows<'a> {
    columns: &'a str,
    from: &'a str,
    order: &'a [&'a str],
}

impl Postgres {
    /// Reads a page. `from` is counted by itself where all are wanted.
    async fn list<T>(
        &self,
        rows: Rows<'_>,
        given: &(dyn Fn() -> Vec<Given<'static>> + Sync),
        listing: &Listing<T>,
        read: impl Fn(&Row) -> Outcome<T>,
    ) -> Outcome<Listed<T>> {
        let way = if listing.reverse { " DESC" } else { "" };
        let order: Vec<String> = rows.order.iter().map(|column| format!("{column}{way}")).collect();
        let (columns, from, order) = (rows.columns, rows.from, order.join(", "));
        let page = |limit: i64, skip: i64| {
            format!("SELECT {columns} FROM {from} ORDER BY {order} LIMIT {limit} OFFSET {skip}")
        };
        let mut listed = Listed::default();
        let Some(keep) = &listing.keep else {
            let limit = i64::try_from(listing.limit).unwrap_or(i64::MAX);
            let mut pipe = Pipe::new();
            pipe.push_all(format!("SELECT count(*) FROM {from}"), given());
            pipe.push_all(page(limit, super::given::int(listing.skip)), given());
            let (tx, found) = Tx::read(self, pipe).await?;
            tx.finish(Pipe::new()).await?;
            let [count, items] = found.as_slice() else {
                return Err(nonsense("the database answers less than it was asked"));
            };
            listed.total = count.first().map_or(Ok(0), |row| uint(row, 0))?;
            listed.items = items.iter().map(read).collect::<Outcome<_>>()?;
            return Ok(listed);
        };
        // All of them are looked at, a piece at a time, as of one moment.
        let mut skip = 0;
        let (mut tx, _) = Tx::read(self, Pipe::new()).await?;
        loop {
            let mut pipe = Pipe::new();
            pipe.push_all(page(LOOKED_AT, skip), given());
            let found = tx.ask(pipe).await?;
            let found = found.first().map_or(&[][..], Vec::as_slice);
            for row in found {
                let item = read(row)?;
                if keep(&item) {
                    listed.take(item, listing.skip, listing.limit);
                }
            }
            skip += LOOKED_AT;
            if (found.len() as u64) < LOOKED_AT.unsigned_abs() {
                break;
            }
        }
        tx.finish(Pipe::new()).await?;
        Ok(listed)
    }

    async fn change_workspace_once(&self, name: &str, decide: &DecideRow<WorkspaceRow>) -> Outcome<()> {
        let (mut tx, found) = Tx::write(self, workspace_pipe(name, " FOR NO KEY UPDATE")).await?;
        let before = first(&found, workspace)?;
        let Some(row) = decided(|| decide(before.as_ref()))? else { return tx.give_up().await };
        if !make_workspace(&mut tx, name).await? && before.is_none() {
            // Somebody made it since: what was decided was decided of nothing.
            tx.give_up().await?;
            return Err(Trouble::Again);
        }
        let sql = "UPDATE epitome.workspaces SET settings = $2, metadata = $3, configuration = $4, revision = revision + 1 \
             WHERE name = $1";
        let (metadata, configuration) = (notes_text(&row.metadata)?, notes_text(&row.configuration)?);
        let given = [name.into(), row.settings.as_str().into(), metadata.into(), configuration.into()];
        tx.commit(Pipe::new().then(sql, given)).await?;
        // Whoever remembers where its sessions stand remembers its settings too.
        self.known.forget_all();
        Ok(())
    }

    async fn delete_workspace_once(&self, name: &str) -> Outcome<Deleted> {
        // The whole lock: whoever makes a session there waits, and then makes the workspace anew.
        let (mut tx, found) = Tx::write(self, workspace_pipe(name, " FOR UPDATE")).await?;
        let mut pipe = Pipe::new();
        if first(&found, workspace)?.is_none() {
            // What passes through it makes no workspace, and is forgotten all the same.
            inlines::forget(&mut pipe, name);
            tx.commit(pipe).await?;
            return Ok(Deleted::Absent);
        }
        let sql = "SELECT 1 FROM epitome.sessions WHERE workspace = $1 AND state = 'open' LIMIT 1";
        let found = tx.ask(Pipe::new().then(sql, [name.into()])).await?;
        if found.first().is_some_and(|rows| !rows.is_empty()) {
            tx.give_up().await?;
            return Ok(Deleted::InUse);
        }
        // None of its sessions is left to belong to, but for what is still to be removed. A copy under way would be
        // shown with members nobody knows any more, so it goes too.
        for sql in [
            "UPDATE epitome.sessions SET state = 'gone' WHERE workspace = $1 AND state = 'hidden'",
            "DELETE FROM epitome.authors WHERE workspace = $1",
            "UPDATE epitome.workspaces SET deleted = true, settings = '', metadata = '', configuration = '', \
             revision = revision + 1 WHERE name = $1",
        ] {
            pipe.push(sql, [name.into()]);
        }
        inlines::forget(&mut pipe, name);
        tx.commit(pipe).await?;
        self.known.forget_all();
        Ok(Deleted::Gone)
    }

    async fn change_author_once(&self, of: &str, name: &str, decide: &DecideRow<AuthorRow>) -> Outcome<()> {
        let (mut tx, found) = Tx::write(self, author_pipe(of, name, " FOR UPDATE")).await?;
        let before = first(&found, author)?;
        let Some(row) = decided(|| decide(before.as_ref()))? else { return tx.give_up().await };
        make_workspace(&mut tx, of).await?;
        if before.is_none() {
            // Two who find nobody there must not both decide that: one of them is told, and looks again.
            let sql = "INSERT INTO epitome.authors (workspace, name, created) VALUES ($1, $2, $3)";
            tx.ask(Pipe::new().then(sql, [of.into(), text(name), tx.now.into()])).await?;
        }
        let sql =
            "UPDATE epitome.authors SET metadata = $3, configuration = $4 WHERE workspace = $1 AND name = $2";
        let (metadata, configuration) = (notes_text(&row.metadata)?, notes_text(&row.configuration)?);
        let given = [of.into(), text(name), metadata.into(), configuration.into()];
        tx.commit(Pipe::new().then(sql, given)).await.map(|_| ())
    }
}

#[async_trait]
impl Directory for Postgres {
    async fn workspace_row(&self, name: &str) -> Result<Option<WorkspaceRow>, StoreError> {
        again!(self, async { first(&self.once(workspace_pipe(name, "")).await?, workspace) })
    }

    async fn change_workspace(
        &self,
        workspace: &str,
        decide: DecideRow<WorkspaceRow>,
    ) -> Result<(), StoreError> {
        again!(self, self.change_workspace_once(workspace, &decide))
    }

    async fn delete_workspace(&self, workspace: &str) -> Result<Deleted, StoreError> {
        again!(self, self.delete_workspace_once(workspace))
    }

    async fn list_workspaces(
        &self,
        listing: Listing<WorkspaceRow>,
    ) -> Result<Listed<WorkspaceRow>, StoreError> {
        let rows = || Rows {
            columns: WORKSPACE,
            from: "epitome.workspaces WHERE NOT deleted",
            order: &["created", "name"],
        };
        again!(self, self.list(rows(), &Vec::new, &listing, workspace))
    }

    async fn list_sessions(
        &self,
        workspace: &str,
        member: Option<&str>,
        listing: Listing<(Arc<str>, SessionRow)>,
    ) -> Result<Listed<(Arc<str>, SessionRow)>, StoreError> {
        let from = match member {
            None => "epitome.sessions WHERE workspace = $1 AND state = 'open'",
            Some(_) => {
                "epitome.sessions WHERE state = 'open' AND id IN (SELECT m.session FROM epitome.members m WHERE m.author = \
                 (SELECT a.id FROM epitome.authors a WHERE a.workspace = $1 AND a.name = $2))"
            }
        };
        let rows = || Rows { columns: SESSION, from, order: &["id"] };
        let (workspace, member) = (workspace.to_owned(), member.map(str::to_owned));
        let given = move || {
            let whose = member.clone().map(|member| plain(&member).into_owned().into());
            std::iter::once(workspace.clone().into()).chain(whose).collect()
        };
        again!(self, self.list(rows(), &given, &listing, named_session))
    }

    async fn author(&self, workspace: &str, name: &str) -> Result<Option<AuthorRow>, StoreError> {
        again!(self, async { first(&self.once(author_pipe(workspace, name, "")).await?, author) })
    }

    async fn change_author(
        &self,
        workspace: &str,
        name: &str,
        decide: DecideRow<AuthorRow>,
    ) -> Result<(), StoreError> {
        again!(self, self.change_author_once(workspace, name, &decide))
    }

    async fn list_authors(
        &self,
        workspace: &str,
        listing: Listing<AuthorRow>,
    ) -> Result<Listed<AuthorRow>, StoreError> {
        let rows =
            || Rows { columns: AUTHOR, from: "epitome.authors a WHERE a.workspace = $1", order: &["a.id"] };
        let workspace = workspace.to_owned();
        let given = move || vec![workspace.clone().into()];
        again!(self, self.list(rows(), &given, &listing, author))
    }

    async fn member(&self, session: SessionId, name: &str) -> Result<Option<MemberRow>, StoreError> {
        let sql = format!(
            "SELECT {AUTHOR}, m.configuration FROM epitome.sessions s \
             JOIN epitome.authors a ON a.workspace = s.workspace \
             JOIN epitome.members m ON m.session = s.id AND m.author = a.id \
             WHERE s.id = $1 AND s.state = 'open' AND a.name = $2"
        );
        again!(self, async {
            let pipe = Pipe::new().then(sql.clone(), [session.into(), text(name)]);
            first(&self.once(pipe).await?, member)
        })
    }

    async fn list_members(
        &self,
        session: SessionId,
        listing: Listing<MemberRow>,
    ) -> Result<Listed<MemberRow>, StoreError> {
        let columns = format!("{AUTHOR}, m.configuration");
        let from = "epitome.sessions s JOIN epitome.members m ON m.session = s.id \
             JOIN epitome.authors a ON a.id = m.author WHERE s.id = $1 AND s.state = 'open'";
        let rows = || Rows { columns: &columns, from, order: &["a.id"] };
        let given = move || vec![session.into()];
        again!(self, self.list(rows(), &given, &listing, member))
    }

    async fn secret(&self) -> Result<[u8; 32], StoreError> {
        again!(self, async {
            let found = self.once(Pipe::new().then("SELECT secret FROM epitome.secrets", [])).await?;
            let secret = first(&found, |row| get::<Vec<u8>>(row, 0))?.unwrap_or_default();
            secret.try_into().map_err(|_| nonsense("the store has no secret"))
        })
    }
}
