//! What every store is asked for and does in the same way: handed to the database as something to read or to write.
//!
//! How a database is reached, and what is tried again, is its [`Backend`]'s matter.

use std::sync::Arc;

use async_trait::async_trait;
use epitome_core::message::{Message, Seq, Timestamp};
use epitome_core::slot::Scope;

use super::ask::{self, Ask, Backend, Batch, Way};
use super::asked::{Ahead, Hit, Look, Pick, PickSummaries, Portion, Search, UsageQuery, View, Window};
use super::changes::{Decide, Load, Standing};
use super::decode::{self, Found};
use super::directory::{AuthorRow, DecideRow, Deleted, Directory, Listed, Listing, MemberRow, WorkspaceRow};
use super::error::StoreError;
use super::inlines::{InlineRow, Inlines, ListHash, Passed};
use super::keyring::{KeyRow, Keyring, PickKeys};
use super::lists::List;
use super::log::{CopiedSession, SessionLog};
use super::people::{self, page};
use super::rows::{
    QueueCounts, QueueRow, SessionId, SessionKey, SessionRow, Stamp, SummaryRow, UsageRow, UsageSum,
};
use super::slots::{Lease, SlotQueue, Want};
use super::sql::Sql;
use super::statements;
use super::trouble::Outcome;
use super::usage::UsageLog;
use super::{change, copy, events, queue, read};
use crate::event::Events;
use crate::key::Key;

#[async_trait]
impl<B: Backend> SessionLog for B {
    async fn change(
        &self,
        key: &SessionKey,
        load: Load,
        decide: Decide,
    ) -> Result<Option<SessionId>, StoreError> {
        Backend::change(self, key, load, decide).await
    }

    async fn standing(&self, key: &SessionKey, load: Load) -> Result<Standing, StoreError> {
        let args = (key.clone(), load);
        self.run(Way::Reads, args, |(key, load), ask| Box::pin(change::standing(ask, key, load, ""))).await
    }

    async fn stamp(&self, key: &SessionKey) -> Result<Option<Stamp>, StoreError> {
        self.run(Way::ReadsHere, key.clone(), |key, ask| {
            Box::pin(ask::first_at_last(ask, statements::stamp(key), decode::stamp))
        })
        .await
    }

    async fn window(&self, key: &SessionKey, view: View, look: Look) -> Result<Option<Window>, StoreError> {
        Backend::window(self, key, view, look).await
    }

    async fn ahead(
        &self,
        session: SessionId,
        scope: &Scope,
        after: Seq,
        limit: usize,
    ) -> Result<Ahead, StoreError> {
        let args = (session, scope.clone(), after, limit);
        self.run(Way::Reads, args, |(session, scope, after, limit), ask| {
            Box::pin(read::ahead(ask, *session, scope, *after, *limit))
        })
        .await
    }

    async fn messages(&self, session: SessionId, pick: Pick) -> Result<Portion<Message>, StoreError> {
        self.run(Way::Reads, (session, pick), |(session, pick), ask| {
            Box::pin(read::messages(ask, *session, pick))
        })
        .await
    }

    async fn summaries(
        &self,
        session: SessionId,
        pick: PickSummaries,
    ) -> Result<Vec<SummaryRow>, StoreError> {
        self.run(Way::Reads, (session, pick), |(session, pick), ask| {
            Box::pin(read::summaries(ask, *session, pick))
        })
        .await
    }

    async fn recall(
        &self,
        workspace: &str,
        session: SessionId,
        asked: &str,
    ) -> Result<Option<String>, StoreError> {
        let args = (workspace.to_owned(), session, asked.to_owned());
        self.run(Way::Reads, args, |(workspace, session, asked), ask| {
            let sql = statements::recall(workspace, *session, asked);
            Box::pin(ask::first_at_last(ask, sql, |row| row.string(0)))
        })
        .await
    }

    async fn search(&self, search: Search) -> Result<Portion<Hit>, StoreError> {
        Backend::search(self, search).await
    }

    async fn events(
        &self,
        workspace: &str,
        after: u64,
        session: Option<&str>,
        limit: usize,
    ) -> Result<Events, StoreError> {
        self.number_all(workspace).await?;
        let args = (workspace.to_owned(), after, session.map(str::to_owned), limit);
        self.run(Way::Reads, args, |(workspace, after, session, limit), ask| {
            Box::pin(events::read(ask, workspace, *after, session.as_deref(), *limit))
        })
        .await
    }

    async fn condensed(&self, workspace: &str) -> Result<Vec<(Arc<str>, u64)>, StoreError> {
        self.run(Way::Reads, workspace.to_owned(), |workspace, ask| {
            Box::pin(events::condensed(ask, workspace))
        })
        .await
    }

    async fn copy(&self, from: SessionId, through: Seq) -> Result<SessionId, StoreError> {
        let gone = || StoreError::Failed { reason: "the session was deleted while it was copied".to_owned() };
        let copied = self
            .run(Way::Writes, from, |from, ask| Box::pin(copy::begin(ask, *from)))
            .await?
            .ok_or_else(gone)?;
        let mut first: Seq = 1;
        while first <= through {
            let piece =
                self.run(Way::Writes, (from, copied, (first, through)), |(from, copied, within), ask| {
                    Box::pin(copy::piece(ask, *from, *copied, *within))
                });
            let last = match piece.await {
                Ok(Some(last)) => last,
                failed => {
                    // Where this fails too, it is found by its age later.
                    let _ = self
                        .run(Way::Writes, copied, |copied, ask| Box::pin(copy::give_up(ask, *copied)))
                        .await;
                    return Err(failed.err().unwrap_or_else(gone));
                }
            };
            if last >= through {
                break;
            }
            first = last.saturating_add(1);
        }
        Ok(copied)
    }

    async fn reveal(&self, key: &SessionKey, mut copied: CopiedSession) -> Result<bool, StoreError> {
        copied.renumber();
        let id = copied.id;
        let args = (key.clone(), copied);
        let shown =
            self.run(Way::Writes, args, |(key, copied), ask| Box::pin(copy::reveal(ask, key, copied))).await;
        self.revealed(id);
        shown
    }

    async fn delete(&self, key: &SessionKey) -> Result<bool, StoreError> {
        // What is told of it counts, though nobody will hear of it.
        self.number_all(&key.workspace).await?;
        let deleted = self.run(Way::Writes, key.clone(), |key, ask| Box::pin(copy::delete(ask, key))).await?;
        self.deleted(key);
        Ok(deleted)
    }
}

#[async_trait]
impl<B: Backend> SlotQueue for B {
    async fn lease(&self, want: Want) -> Result<Option<Lease>, StoreError> {
        Backend::lease(self, want).await
    }

    async fn nudged(&self) {
        Backend::nudged(self).await;
    }

    async fn queue(
        &self,
        workspace: Option<&str>,
        limit: usize,
    ) -> Result<(QueueCounts, Vec<QueueRow>), StoreError> {
        let args = (workspace.map(str::to_owned), limit);
        self.run(Way::Reads, args, |(workspace, limit), ask| {
            Box::pin(queue::queue(ask, workspace.as_deref(), *limit))
        })
        .await
    }
}

#[async_trait]
impl<B: Backend> Keyring for B {
    async fn add_key(&self, row: KeyRow) -> Result<Key, StoreError> {
        self.run(Way::Notes, row, |row, ask| {
            Box::pin(async move {
                let key = Key { created: ask.now().await?, ..row.key.clone() };
                ask.finish(Batch::new().run(statements::add_key(&key, &row.hash))).await?;
                Ok(key)
            })
        })
        .await
    }

    async fn keys(&self, pick: PickKeys) -> Result<(Vec<KeyRow>, Timestamp), StoreError> {
        self.run(Way::Reads, pick, |pick, ask| {
            Box::pin(async move {
                let mut found = Vec::new();
                ask.finish(Batch::new().all(statements::keys(pick), &mut found, decode::key).timed()).await?;
                Ok((found, ask.now().await?))
            })
        })
        .await
    }

    async fn revoke_key(&self, id: &str, workspace: Option<&str>) -> Result<bool, StoreError> {
        let args = (id.to_owned(), workspace.map(str::to_owned));
        self.run(Way::Notes, args, |(id, workspace), ask| {
            Box::pin(async move {
                let now = ask.now().await?;
                let mut there = false;
                let revoke = statements::revoke_key(id, workspace.as_deref(), now);
                ask.ask(Batch::new().any(revoke, &mut there)).await?;
                ask.finish(Batch::new()).await?;
                Ok(there)
            })
        })
        .await
    }
}

#[async_trait]
impl<B: Backend> Inlines for B {
    async fn inline(&self, workspace: &str, chain: Vec<ListHash>) -> Result<Option<InlineRow>, StoreError> {
        let args = (workspace.to_owned(), chain);
        self.run(Way::Reads, args, |(workspace, chain), ask| Box::pin(inline(workspace, chain, ask))).await
    }

    async fn keep_inline(&self, workspace: &str, row: InlineRow) -> Result<(), StoreError> {
        self.run(Way::Notes, (workspace.to_owned(), row), |(workspace, row), ask| {
            Box::pin(async move {
                let [keep, trim] = statements::keep_inline(workspace, row, ask.now().await?);
                ask.finish_by(Batch::new().run(keep).run(trim), None).await
            })
        })
        .await
    }

    async fn add_passed(&self, workspace: &str, more: Vec<Passed>) -> Result<(), StoreError> {
        self.run(Way::Notes, (workspace.to_owned(), more), |(workspace, more), ask| {
            Box::pin(async move {
                let (now, mut batch) = (ask.now().await?, Batch::new());
                more.iter().for_each(|more| batch.push(statements::add_passed(workspace, more, now)));
                ask.finish(batch).await
            })
        })
        .await
    }

    async fn passed(&self, workspace: &str, since: Timestamp) -> Result<Vec<Passed>, StoreError> {
        self.run(Way::Reads, (workspace.to_owned(), since), |(workspace, since), ask| {
            Box::pin(ask::all_at_last(ask, statements::passed(workspace, *since), decode::passed))
        })
        .await
    }
}

/// The longest list that is a beginning of this one.
async fn inline(workspace: &str, chain: &[ListHash], ask: &mut dyn Ask) -> Outcome<Option<InlineRow>> {
    let Some(root) = chain.first() else { return Ok(None) };
    let sql = "SELECT length, hash FROM epitome.inline WHERE workspace = $1 AND root = $2 AND length <= $3 \
         ORDER BY length DESC";
    let sql = Sql::new(sql, [workspace.into(), root.as_slice().into(), chain.len().into()]);
    let mut found = None;
    let each = |row: Found<'_>| {
        let length = row.uint(0)?;
        let at = usize::try_from(length).ok().and_then(|length| length.checked_sub(1));
        let hash =
            at.and_then(|at| chain.get(at)).filter(|hash| row.bytes(1).is_ok_and(|known| known == *hash));
        found = hash.map(|hash| (length, hash));
        Ok(found.is_none())
    };
    ask.ask(Batch::new().each(sql, each)).await?;
    let Some((length, hash)) = found else { return Ok(None) };
    let sql =
        "SELECT kept FROM epitome.inline WHERE workspace = $1 AND root = $2 AND length = $3 AND hash = $4";
    let given = [workspace.into(), root.as_slice().into(), length.into(), hash.as_slice().into()];
    let mut kept = None;
    ask.finish(Batch::new().first(Sql::new(sql, given), &mut kept, |row| row.string(0))).await?;
    Ok(kept.map(|kept| InlineRow { root: *root, length, hash: *hash, kept }))
}

#[async_trait]
impl<B: Backend> UsageLog for B {
    async fn record(&self, usage: Vec<UsageRow>) -> Result<(), StoreError> {
        self.run(Way::Notes, usage, |usage, ask| {
            Box::pin(async move {
                let (now, mut batch) = (ask.now().await?, Batch::new());
                usage.iter().for_each(|row| batch.push(statements::record(row, now)));
                ask.finish(batch).await
            })
        })
        .await
    }

    async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageSum>, StoreError> {
        self.run(Way::Reads, query, |query, ask| {
            Box::pin(ask::all_at_last(ask, statements::usage(query), decode::usage_sum))
        })
        .await
    }
}

#[async_trait]
impl<B: Backend> Directory for B {
    async fn workspaces(&self, listing: Listing<WorkspaceRow>) -> Result<Listed<WorkspaceRow>, StoreError> {
        self.run(Way::Reads, listing, |listing, ask| {
            Box::pin(page(ask, List::workspaces(), listing, decode::workspace))
        })
        .await
    }

    async fn sessions(
        &self,
        workspace: &str,
        member: Option<&str>,
        listing: Listing<(Arc<str>, SessionRow)>,
    ) -> Result<Listed<(Arc<str>, SessionRow)>, StoreError> {
        let args = (workspace.to_owned(), member.map(str::to_owned), listing);
        self.run(Way::Reads, args, |(workspace, member, listing), ask| {
            let list = List::sessions(workspace, member.as_deref());
            Box::pin(page(ask, list, listing, decode::named_session))
        })
        .await
    }

    async fn authors(
        &self,
        workspace: &str,
        listing: Listing<AuthorRow>,
    ) -> Result<Listed<AuthorRow>, StoreError> {
        self.run(Way::Reads, (workspace.to_owned(), listing), |(workspace, listing), ask| {
            Box::pin(page(ask, List::authors(workspace), listing, decode::author))
        })
        .await
    }

    async fn members(
        &self,
        session: SessionId,
        listing: Listing<MemberRow>,
    ) -> Result<Listed<MemberRow>, StoreError> {
        self.run(Way::Reads, (session, listing), |(session, listing), ask| {
            Box::pin(page(ask, List::members(*session), listing, decode::member))
        })
        .await
    }

    async fn change_workspace(
        &self,
        workspace: &str,
        decide: DecideRow<WorkspaceRow>,
    ) -> Result<(), StoreError> {
        self.run(Way::Writes, (workspace.to_owned(), decide), |(workspace, decide), ask| {
            Box::pin(people::change_workspace(ask, workspace, decide))
        })
        .await
    }

    async fn change_author(
        &self,
        workspace: &str,
        name: &str,
        decide: DecideRow<AuthorRow>,
    ) -> Result<(), StoreError> {
        let args = (workspace.to_owned(), name.to_owned(), decide);
        self.run(Way::Writes, args, |(workspace, name, decide), ask| {
            Box::pin(people::change_author(ask, workspace, name, decide))
        })
        .await
    }

    async fn delete_workspace(&self, workspace: &str) -> Result<Deleted, StoreError> {
        self.run(Way::Writes, workspace.to_owned(), |workspace, ask| {
            Box::pin(people::delete_workspace(ask, workspace))
        })
        .await
    }
}
