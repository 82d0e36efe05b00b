//! What is asked of a store, written once for all of them.
//!
//! How a database is reached, and what is tried again, is in the few methods that each store has of its own. All others hand
//! something to read or to write to [`Store::run`].

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use epitome_core::message::{Message, Seq, Timestamp};
use epitome_core::slot::Scope;

use super::ask::{self, Ask, Batch, Op, Task, Way};
use super::asked::{Ahead, Hit, Look, Pick, PickSummaries, Portion, Search, UsageQuery, View, Window};
use super::changes::{Decide, Load, Standing};
use super::check::Fault;
use super::copy::{self, CopiedSession};
use super::decode::{self, Found};
use super::directory::{AuthorRow, DecideRow, Deleted, Listed, Listing, MemberRow, WorkspaceRow};
use super::error::{Result, StoreError};
use super::inlines::{InlineRow, ListHash, Passed};
use super::keyring::{KeyRow, PickKeys};
use super::lease::{self, PassedOver};
use super::lists::List;
use super::people::{self, page};
use super::rows::{
    QueueCounts, QueueRow, SessionId, SessionKey, SessionRow, Stamp, SummaryRow, UsageRow, UsageSum,
};
use super::slots::{Lease, Want};
use super::sql::Sql;
use super::statements;
use super::trouble::{Outcome, nonsense};
use super::{change, events, find, queue, read, verify, window};
use crate::event::Events;
use crate::key::Key;

/// Has something done with a store's database.
pub(super) async fn run<A: Send + Sync + 'static, T: Send + 'static>(
    store: &(impl Store + ?Sized),
    way: Way,
    args: A,
    op: Op<A, T>,
) -> Result<T> {
    let (args, done) = (Arc::new(args), Arc::new(Mutex::new(None)));
    let kept = Arc::clone(&done);
    let task = Task::new(move |ask| {
        let (args, kept) = (Arc::clone(&args), Arc::clone(&kept));
        Box::pin(async move {
            let value = op(&args, ask).await?;
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            Ok(())
        })
    });
    store.run(way, task).await?;
    done.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(StoreError::Closed)
}

/// Stores everything an engine keeps.
///
/// A store is added in this crate: it implements the few methods that are not provided, over an `Ask` of its own, and passes
/// `tests/store_contract.rs`, which says in code what is said here in words.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    // ---- What each store has of its own, and the rest is made of ----

    /// Has something done with the database in that way. It may be done several times; what it does last counts.
    #[doc(hidden)]
    async fn run(&self, way: Way, task: Task) -> Result<()>;

    /// Numbers the events of a workspace that have no number yet.
    #[doc(hidden)]
    async fn number_all(&self, _workspace: &str) -> Result<()> {
        Ok(())
    }

    /// Where the search for whose turn it is goes on.
    #[doc(hidden)]
    fn walked(&self) -> Arc<lease::Place>;

    /// A session was deleted.
    #[doc(hidden)]
    fn deleted(&self, _key: &SessionKey) {}

    /// A copy is shown.
    #[doc(hidden)]
    fn revealed(&self, _copy: SessionId) {}

    // ---- The log: sessions, their messages, summaries and events ----

    /// The only way to write to a session: reads where it stands, asks `decide`, and writes what it says;
    /// all of that as if nobody else were there, and durable when it returns. Gives the number of the session that
    /// was written to (0 where only what models cost was written down, and there is none); `None` when `decide`
    /// wanted nothing written.
    async fn change(&self, key: &SessionKey, load: Load, decide: Decide) -> Result<Option<SessionId>> {
        let args = (key.clone(), load, decide);
        run(self, Way::Notes, args, |(key, load, decide), ask| {
            Box::pin(change::change(ask, key, load, decide))
        })
        .await
    }

    /// Where a session stands.
    async fn standing(&self, key: &SessionKey, load: Load) -> Result<Standing> {
        let args = (key.clone(), load);
        run(self, Way::Reads, args, |(key, load), ask| Box::pin(change::standing(ask, key, load, ""))).await
    }

    /// Whether anything changed that a context is made from: one row is read. `None` where there is no such session.
    async fn stamp(&self, key: &SessionKey) -> Result<Option<Stamp>> {
        run(self, Way::ReadsHere, key.clone(), |key, ask| {
            let sql = "SELECT s.id, s.head, s.revision, w.revision FROM epitome.sessions s \
                 JOIN epitome.workspaces w ON w.name = s.workspace WHERE s.workspace = $1 AND s.name = $2 AND s.state = 'open'";
            let sql = Sql::new(sql, [(&*key.workspace).into(), (&*key.session).into()]);
            Box::pin(ask::first(ask, sql, decode::stamp))
        })
        .await
    }

    /// What a context is made from: one consistent state. `None` where there is no such session, or `look`
    /// wants nothing.
    async fn window(&self, key: &SessionKey, view: View, look: Look) -> Result<Option<Window>> {
        let way = if view.at_hand { Way::ReadsHere } else { Way::Reads };
        run(self, way, (key.clone(), view, look), |(key, view, look), ask| {
            Box::pin(
                async move { Ok(window::window(ask, key, view, look, None).await?.map(|seen| seen.window)) },
            )
        })
        .await
    }

    /// The shapes of the scope's messages after this one, at most so many; of a session that is being copied,
    /// those that were, their end unknown.
    async fn ahead(&self, session: SessionId, scope: &Scope, after: Seq, limit: usize) -> Result<Ahead> {
        let args = (session, scope.clone(), after, limit);
        run(self, Way::Reads, args, |(session, scope, after, limit), ask| {
            Box::pin(read::ahead(ask, *session, scope, *after, *limit))
        })
        .await
    }

    /// Messages with their words. Those that do not exist are left out.
    async fn messages(&self, session: SessionId, pick: Pick) -> Result<Portion<Message>> {
        run(self, Way::Reads, (session, pick), |(session, pick), ask| {
            Box::pin(read::messages(ask, *session, pick))
        })
        .await
    }

    /// Summaries.
    async fn summaries(&self, session: SessionId, pick: PickSummaries) -> Result<Vec<SummaryRow>> {
        run(self, Way::Reads, (session, pick), |(session, pick), ask| {
            Box::pin(read::summaries(ask, *session, pick))
        })
        .await
    }

    /// The text of a summary that was written to the very same question, by the hash of that
    /// ([`super::Facts::asked`]), in any session of the workspace, the newest. None is given that was undone in this
    /// session: whoever took it back wants another.
    async fn recall(&self, workspace: &str, session: SessionId, asked: &str) -> Result<Option<String>> {
        let args = (workspace.to_owned(), session, asked.to_owned());
        run(self, Way::Looks, args, |(workspace, session, asked), ask| {
            let sql = statements::recall(workspace, *session, asked);
            Box::pin(ask::first(ask, sql, |row| row.string(0)))
        })
        .await
    }

    /// Messages by their words, newest session and newest message first.
    async fn search(&self, search: Search) -> Result<Portion<Hit>> {
        run(self, Way::Looks, search, |search, ask| Box::pin(find::search(ask, search))).await
    }

    /// What happened in a workspace after the event of that number, in one session or in all: at most so many, oldest
    /// first. Numbers are dense inside a workspace and never given twice, whatever is deleted. The newest 10,000 of a
    /// workspace are kept, and not many more.
    async fn events(
        &self,
        workspace: &str,
        after: u64,
        session: Option<&str>,
        limit: usize,
    ) -> Result<Events> {
        self.number_all(workspace).await?;
        let args = (workspace.to_owned(), after, session.map(str::to_owned), limit);
        run(self, Way::Reads, args, |(workspace, after, session, limit), ask| {
            Box::pin(events::read(ask, workspace, *after, session.as_deref(), *limit))
        })
        .await
    }

    /// How often messages became a summary, by session, among the events that are kept. At most 10,000 or so are looked at.
    async fn condensed(&self, workspace: &str) -> Result<Vec<(Arc<str>, u64)>> {
        run(self, Way::Looks, workspace.to_owned(), |workspace, ask| {
            Box::pin(events::condensed(ask, workspace))
        })
        .await
    }

    /// Copies messages `1..=through` into a session that nobody sees yet, in pieces, so that no other
    /// writer waits long. Leftovers of a copy that was not finished are removed in time.
    async fn copy(&self, from: SessionId, through: Seq) -> Result<SessionId> {
        let gone = || StoreError::Failed { reason: "the session was deleted while it was copied".to_owned() };
        let copied = run(self, Way::Writes, from, |from, ask| Box::pin(copy::begin(ask, *from)))
            .await?
            .ok_or_else(gone)?;
        let mut first: Seq = 1;
        while first <= through {
            let piece =
                run(self, Way::Writes, (from, copied, (first, through)), |(from, copied, within), ask| {
                    Box::pin(copy::piece(ask, *from, *copied, *within))
                });
            let last = match piece.await {
                Ok(Some(last)) => last,
                failed => {
                    // Where this fails too, it is found by its age later.
                    let _ =
                        run(self, Way::Writes, copied, |copied, ask| Box::pin(copy::give_up(ask, *copied)))
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

    /// Shows a copied session under this name. Returns false when the name is taken.
    async fn reveal(&self, key: &SessionKey, mut copied: CopiedSession) -> Result<bool> {
        copied.renumber();
        let id = copied.id;
        let args = (key.clone(), copied);
        let shown =
            run(self, Way::Writes, args, |(key, copied), ask| Box::pin(copy::reveal(ask, key, copied))).await;
        self.revealed(id);
        shown
    }

    /// Deletes a session with all that was made from it and told of it; usage stays. Nobody sees it any more when this
    /// returns. False when there is none.
    async fn delete(&self, key: &SessionKey) -> Result<bool> {
        // What is told of it counts, though nobody will hear of it.
        self.number_all(&key.workspace).await?;
        let deleted =
            run(self, Way::Writes, key.clone(), |key, ask| Box::pin(copy::delete(ask, key))).await?;
        self.deleted(key);
        Ok(deleted)
    }

    // ---- Slots: what is due, and who works on it ----

    /// Takes a slot that is ready: its time has come, and nobody holds it or their hold ran out. Of the workspace
    /// whose turn it is ([`Want::after`]) the one that waits longest. Where time alone made it due, it fires now. Its
    /// fence rises.
    ///
    /// It is asked often, mostly for nothing, and looks at no more than so many slots, however many are ready. One that is
    /// being written to at that moment may be passed over.
    async fn lease(&self, want: Want) -> Result<Option<Lease>> {
        let now = run(self, Way::ReadsHere, (), |(), ask| Box::pin(lease::anything_ready(ask))).await?;
        let Some(now) = now else { return Ok(None) };
        let (want, walked) = (Arc::new(want), self.walked());
        let args = (Arc::clone(&want), now, Arc::clone(&walked));
        let turns = run(self, Way::Looks, args, |(want, now, walked), ask| {
            Box::pin(lease::whose_turn(ask, want, *now, walked))
        })
        .await?;
        // Each of them is tried in a transaction of its own, so that nobody waits for one that was tried in vain.
        for of in &turns {
            let taken =
                run(self, Way::Notes, (Arc::clone(&want), now, of.clone()), |(want, now, of), ask| {
                    Box::pin(lease::take_one(ask, want, *now, of))
                })
                .await?;
            if let Some(taken) = taken {
                walked.took(&taken.key.workspace);
                return Ok(Some(taken));
            }
        }
        for of in turns {
            let session = run(self, Way::Looks, (Arc::clone(&want), now, of), |(want, now, of), ask| {
                Box::pin(lease::passed_over(ask, want, *now, of))
            })
            .await?;
            let Some(session) = session else { continue };
            let args = (Arc::clone(&want), now, session);
            let taken = run(self, Way::Notes, args, |(want, now, session), ask| {
                Box::pin(lease::take_the_passed_over(ask, want, *now, *session))
            })
            .await?;
            match taken {
                PassedOver::Nothing => {}
                PassedOver::StillHeld => return Ok(None),
                PassedOver::Taken(lease) => return Ok(Some(*lease)),
            }
        }
        Ok(None)
    }

    /// Returns when another node said that something may be ready. Only a hint, which may come late, for nothing, or
    /// not at all: whoever works looks for itself now and then. One that came while nobody waited is told to whoever
    /// waits next. A store that knows of no others never returns.
    async fn nudged(&self) {
        std::future::pending::<()>().await;
    }

    /// The workspace's slots that have something to do now, or once they may: how many, and at most so many of
    /// them, those waiting longest first. Without a workspace those of all, which is for whoever runs the engine. It
    /// is asked often: what it costs depends on how many have something to do, and not on how many sessions there are.
    async fn queue(&self, workspace: Option<&str>, limit: usize) -> Result<(QueueCounts, Vec<QueueRow>)> {
        let args = (workspace.map(str::to_owned), limit);
        run(self, Way::Reads, args, |(workspace, limit), ask| {
            Box::pin(queue::queue(ask, workspace.as_deref(), *limit))
        })
        .await
    }

    // ---- Keys ----

    /// Keeps a new key. `created` is set to the moment, by the store's clock, and the key given back.
    async fn add_key(&self, row: KeyRow) -> Result<Key> {
        run(self, Way::Notes, row, |row, ask| {
            Box::pin(async move {
                let key = Key { created: ask.now().await?, ..row.key.clone() };
                ask.finish(Batch::new().run(statements::add_key(&key, &row.hash))).await?;
                Ok(key)
            })
        })
        .await
    }

    /// Keys, revoked and expired ones too, and the moment by the store's clock. As they stand now: nothing of them is
    /// remembered between two calls.
    async fn keys(&self, pick: PickKeys) -> Result<(Vec<KeyRow>, Timestamp)> {
        run(self, Way::Reads, pick, |pick, ask| {
            Box::pin(async move {
                let mut found = Vec::new();
                ask.finish(Batch::new().all(statements::keys(pick), &mut found, decode::key).timed()).await?;
                Ok((found, ask.now().await?))
            })
        })
        .await
    }

    /// Revokes a key, of that workspace where one is named. One that was revoked before stays as it is. False when there
    /// is no such key.
    async fn revoke_key(&self, id: &str, workspace: Option<&str>) -> Result<bool> {
        let args = (id.to_owned(), workspace.map(str::to_owned));
        run(self, Way::Notes, args, |(id, workspace), ask| {
            Box::pin(async move {
                let now = ask.now().await?;
                let mut there = false;
                let sql = "UPDATE epitome.keys SET revoked = coalesce(revoked, $3) \
                     WHERE id = $1 AND ($2 IS NULL OR workspace = $2) RETURNING 1";
                let given = [id.as_str().into(), workspace.as_deref().into(), now.into()];
                ask.ask(Batch::new().any(Sql::new(sql, given), &mut there)).await?;
                ask.finish(Batch::new()).await?;
                Ok(there)
            })
        })
        .await
    }

    // ---- Lists that pass through the proxy ----

    /// What was last done to this list, given by the hashes of its beginnings: of the first message, of the first two, and
    /// so on.
    async fn inline(&self, workspace: &str, chain: Vec<ListHash>) -> Result<Option<InlineRow>> {
        let args = (workspace.to_owned(), chain);
        run(self, Way::Reads, args, |(workspace, chain), ask| Box::pin(inline(workspace, chain, ask))).await
    }

    /// Keeps what was done to a list, in place of what was kept for the very same. The newest 1,000 of a workspace are kept.
    async fn keep_inline(&self, workspace: &str, row: InlineRow) -> Result<()> {
        run(self, Way::Notes, (workspace.to_owned(), row), |(workspace, row), ask| {
            Box::pin(async move {
                let [keep, trim] = statements::keep_inline(workspace, row, ask.now().await?);
                ask.finish_by(Batch::new().run(keep).run(trim), None).await
            })
        })
        .await
    }

    /// Adds to what passed through in this hour. Of more than 100 models in an hour the others are told as `other`.
    async fn add_passed(&self, workspace: &str, more: Vec<Passed>) -> Result<()> {
        run(self, Way::Notes, (workspace.to_owned(), more), |(workspace, more), ask| {
            Box::pin(async move {
                let (now, mut batch) = (ask.now().await?, Batch::new());
                more.iter().for_each(|more| batch.push(statements::add_passed(workspace, more, now)));
                ask.finish(batch).await
            })
        })
        .await
    }

    /// What passed through since the hour of that moment, added up by model.
    async fn passed(&self, workspace: &str, since: Timestamp) -> Result<Vec<Passed>> {
        run(self, Way::Looks, (workspace.to_owned(), since), |(workspace, since), ask| {
            Box::pin(ask::all(ask, statements::passed(workspace, *since), decode::passed))
        })
        .await
    }

    // ---- Usage of models ----

    /// Records calls of models.
    async fn record(&self, usage: Vec<UsageRow>) -> Result<()> {
        run(self, Way::Notes, usage, |usage, ask| {
            Box::pin(async move {
                let (now, mut batch) = (ask.now().await?, Batch::new());
                usage.iter().for_each(|row| batch.push(statements::record(row, now)));
                ask.finish(batch).await
            })
        })
        .await
    }

    /// Calls of models, added up.
    async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageSum>> {
        run(self, Way::Looks, query, |query, ask| {
            Box::pin(ask::all(ask, statements::usage(query), decode::usage_sum))
        })
        .await
    }

    // ---- The directory: workspaces, sessions, authors, members ----

    /// The workspaces that anything was ever written to.
    async fn workspaces(&self, listing: Listing<WorkspaceRow>) -> Result<Listed<WorkspaceRow>> {
        run(self, Way::Reads, listing, |listing, ask| {
            Box::pin(page(ask, List::workspaces(), listing, decode::workspace))
        })
        .await
    }

    /// A workspace's sessions; only those an author belongs to, where one is named.
    async fn sessions(
        &self,
        workspace: &str,
        member: Option<&str>,
        listing: Listing<(Arc<str>, SessionRow)>,
    ) -> Result<Listed<(Arc<str>, SessionRow)>> {
        let args = (workspace.to_owned(), member.map(str::to_owned), listing);
        run(self, Way::Reads, args, |(workspace, member, listing), ask| {
            let list = List::sessions(workspace, member.as_deref());
            Box::pin(page(ask, list, listing, decode::named_session))
        })
        .await
    }

    /// A workspace's authors. They are not listed by name.
    async fn authors(&self, workspace: &str, listing: Listing<AuthorRow>) -> Result<Listed<AuthorRow>> {
        run(self, Way::Reads, (workspace.to_owned(), listing), |(workspace, listing), ask| {
            Box::pin(page(ask, List::authors(workspace), listing, decode::author))
        })
        .await
    }

    /// A session's members, in the order in which their authors came to be. They are not listed by name.
    async fn members(&self, session: SessionId, listing: Listing<MemberRow>) -> Result<Listed<MemberRow>> {
        run(self, Way::Reads, (session, listing), |(session, listing), ask| {
            Box::pin(page(ask, List::members(*session), listing, decode::member))
        })
        .await
    }

    /// Changes what is kept of a workspace, which comes to be where there is none: `created` is the store's to say. As if
    /// nobody else were there.
    async fn change_workspace(&self, workspace: &str, decide: DecideRow<WorkspaceRow>) -> Result<()> {
        run(self, Way::Writes, (workspace.to_owned(), decide), |(workspace, decide), ask| {
            Box::pin(people::change_workspace(ask, workspace, decide))
        })
        .await
    }

    /// Changes what is kept of an author, who comes to be where there is none, and the workspace with them: `created` is
    /// the store's to say. As if nobody else were there.
    async fn change_author(&self, workspace: &str, name: &str, decide: DecideRow<AuthorRow>) -> Result<()> {
        let args = (workspace.to_owned(), name.to_owned(), decide);
        run(self, Way::Writes, args, |(workspace, name, decide), ask| {
            Box::pin(people::change_author(ask, workspace, name, decide))
        })
        .await
    }

    /// Deletes a workspace that has no sessions, with its settings, notes and authors. What it spent stays known.
    async fn delete_workspace(&self, workspace: &str) -> Result<Deleted> {
        run(self, Way::Writes, workspace.to_owned(), |workspace, ask| {
            Box::pin(people::delete_workspace(ask, workspace))
        })
        .await
    }

    // ---- Maintenance ----

    /// The store's secret: made with it, never changed, the same for everybody who opens it.
    async fn secret(&self) -> Result<[u8; 32]> {
        run(self, Way::Looks, (), |(), ask| {
            Box::pin(async move {
                let sql = Sql::new("SELECT secret FROM epitome.secrets", []);
                let secret = ask::first(ask, sql, |row| row.bytes(0).map(<[u8]>::to_vec)).await?;
                let secret = secret.unwrap_or_default();
                secret.try_into().map_err(|_| nonsense("the store has no secret"))
            })
        })
        .await
    }

    /// Looks everything through.
    async fn verify(&self) -> Result<Vec<Fault>> {
        run(self, Way::ReadsAll, (), |(), ask| Box::pin(verify::verify(ask))).await
    }

    /// Copies the whole store into a new file, while it goes on being used.
    async fn backup(&self, to: &Path) -> Result<()>;

    /// Finishes what is under way and lets go of the file.
    async fn close(&self);
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
