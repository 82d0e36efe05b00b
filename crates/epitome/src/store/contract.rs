//! Defines the operations of a store.
//!
//! [`Store`] contains what each database implements itself: connecting, retrying, backing up. Everything else is written
//! once, as methods of `dyn Store` that pass an operation to [`Store::run`].

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use epitome_core::message::{Message, Seq, Timestamp};
use epitome_core::slot::Scope;

use super::ask::{self, Op, Task, Way};
use super::asked::{Ahead, Hit, Look, Pick, PickSummaries, Portion, Search, UsageQuery, View, Window};
use super::changes::{Decide, Load, Standing};
use super::check::Fault;
use super::copy::{self, CopiedSession};
use super::decode;
use super::directory::{AuthorRow, DecideRow, Deleted, Listed, Listing, MemberRow, WorkspaceRow};
use super::error::{Result, StoreError};
use super::inlines::{self, InlineRow, ListHash};
use super::keyring::{self, KeyRow, PickKeys};
use super::lease::{self, Lease, Poll, Taken, Want};
use super::people::{self, List, page};
use super::recent::{Recent, Since};
use super::rows::{
    QueueCounts, QueueRow, SessionId, SessionKey, SessionRow, Stamp, SummaryRow, UsageRow, UsageSum,
};
use super::sql::Sql;
use super::trouble::nonsense;
use super::usage::{self, Passed};
use super::{change, events, find, queue, read, verify, window};
use crate::event::Events;
use crate::key::Key;

/// Runs an operation on a store's database and returns its result.
pub(super) async fn run<A: Send + Sync + 'static, T: Send + 'static>(
    store: &(impl Store + ?Sized),
    way: Way,
    args: A,
    op: Op<A, T>,
) -> Result<T> {
    let (args, done) = (Arc::new(args), Arc::new(Mutex::new(None)));
    let kept = Arc::clone(&done);
    let task = Task(Box::new(move |ask| {
        let (args, kept) = (Arc::clone(&args), Arc::clone(&kept));
        Box::pin(async move {
            let value = op(&args, ask).await?;
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            Ok(())
        })
    }));
    store.run(way, task).await?;
    done.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(StoreError::Closed)
}

/// Runs an operation on a store: `run!(store, Way(arguments), |ask| future)`. The arguments move into the operation, which
/// may run on another thread, and the future borrows them. `key = key.clone()` moves a copy.
macro_rules! run {
    ($store:expr, $way:ident($($arg:ident $(= $own:expr)?),*), |$ask:ident| $what:expr) => {{
        $($(let $arg = $own;)?)*
        run($store, Way::$way, ($($arg,)*), |($($arg,)*), $ask| Box::pin($what)).await
    }};
}

/// Stores everything an engine needs. The methods that all databases share are methods of `dyn Store`; `Sqlite` and
/// `Postgres` dereference to it.
///
/// To add a store, implement this trait in this crate with its own `Ask`, and make it pass `tests/store_contract.rs`.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Runs an operation in this access mode. It may run several times; the last run counts.
    #[doc(hidden)]
    async fn run(&self, way: Way, task: Task) -> Result<()>;

    /// Changes a session: reads its state, calls `decide` and writes the changes that it returns. This is the only way to
    /// write to a session. The whole change is isolated from other writers, and durable when this returns.
    ///
    /// Returns the id of the session that was written; 0 if there is no session and only model usage was recorded; `None` if
    /// `decide` returned no changes.
    async fn change(&self, key: &SessionKey, load: Load, decide: Decide) -> Result<Option<SessionId>> {
        run!(self, Notes(key = key.clone(), load, decide), |ask| change::change(ask, key, load, decide))
    }

    /// Waits for a hint from another node that a slot may be ready. A hint may be late, wrong or missing, so workers also
    /// poll the store. A hint that arrives while no task waits is delivered to the next task that waits. A store that is not
    /// shared with other nodes never returns.
    async fn nudged(&self) {
        std::future::pending::<()>().await;
    }

    /// Copies the whole store into a new file, while it stays in use.
    async fn backup(&self, to: &Path) -> Result<()>;

    /// Finishes the operations in progress and closes the database.
    async fn close(&self);

    /// Assigns numbers to the events of a workspace that have none yet.
    #[doc(hidden)]
    async fn number_all(&self, _workspace: &str) -> Result<()> {
        Ok(())
    }

    /// Returns the position at which the round-robin over workspaces continues.
    #[doc(hidden)]
    fn walked(&self) -> Arc<lease::Place>;

    /// Returns the cache of recently read windows.
    #[doc(hidden)]
    fn recent(&self) -> &Recent;

    /// Notifies the store that a session was deleted.
    #[doc(hidden)]
    fn deleted(&self) {}

    /// Notifies the store that a copied session became visible.
    #[doc(hidden)]
    fn revealed(&self, _copy: SessionId) {}
}

/// Sessions, their messages, summaries and events.
impl dyn Store {
    /// Reads a session's current state.
    pub async fn standing(&self, key: &SessionKey, load: Load) -> Result<Standing> {
        run!(self, Reads(key = key.clone(), load), |ask| change::standing(ask, key, load, ""))
    }

    /// Reads the stamp that shows whether a session's contexts changed. This reads one row. `None` if the session does not
    /// exist.
    pub async fn stamp(&self, key: &SessionKey) -> Result<Option<Stamp>> {
        run!(self, LooksHere(key = key.clone()), |ask| change::stamp(ask, key))
    }

    /// Reads what a context is built from, as one consistent state. `None` if the session does not exist or `look` returns
    /// `None`.
    pub async fn window(&self, key: &SessionKey, view: View, look: Look) -> Result<Option<Window>> {
        let recent = self.recent();
        let (reads, looks) = match view.at_hand {
            true => (Way::ReadsHere, Way::LooksHere),
            false => (Way::Reads, Way::Looks),
        };
        // Only the usual view is cached: windows of other views are rarely read twice.
        let usual = view.scope == Scope::Session && view.as_of.is_none();
        if let Some(held) = recent.window(key).filter(|_| usual) {
            let args = (key.clone(), held, Arc::clone(&look));
            let since = run(self, looks, args, |(key, held, look), ask| Box::pin(held.since(ask, key, look)));
            match since.await? {
                Some(Since::Nothing) => return Ok(None),
                Some(Since::Same(window)) => return Ok(Some(window)),
                Some(Since::Grown(window, next)) => {
                    recent.put(key, next);
                    return Ok(Some(window));
                }
                // This window could not be extended now, so it could not be extended next time either.
                None => recent.forget_window(key),
            }
        }
        let args = (key.clone(), view, look, recent.number(key));
        let seen = run(self, reads, args, |(key, view, look, likely), ask| {
            Box::pin(window::window(ask, key, view, look, *likely))
        });
        Ok(seen.await?.map(|seen| recent.saw(key, seen, usual)))
    }

    /// Reads the outlines of at most `limit` of the scope's messages after `after`. For a session that is still being
    /// copied, these are the messages copied so far, and the end is unknown.
    pub async fn ahead(&self, session: SessionId, scope: &Scope, after: Seq, limit: usize) -> Result<Ahead> {
        run!(self, Reads(session, scope = scope.clone(), after, limit), |ask| {
            read::ahead(ask, *session, scope, *after, *limit)
        })
    }

    /// Reads messages with their text. Messages that do not exist are left out.
    pub async fn messages(&self, session: SessionId, pick: Pick) -> Result<Portion<Message>> {
        run!(self, Reads(session, pick), |ask| read::messages(ask, *session, pick))
    }

    /// Reads summaries.
    pub async fn summaries(&self, session: SessionId, pick: PickSummaries) -> Result<Vec<SummaryRow>> {
        run!(self, Reads(session, pick), |ask| read::summaries(ask, *session, pick))
    }

    /// Returns the text of the newest summary in the workspace, of any session, that was written for the same model request.
    /// Requests are compared by their hash ([`super::Facts::asked`]). `None` if this session undid such a summary: after an
    /// undo, the caller expects a different text.
    pub async fn recall(&self, workspace: &str, session: SessionId, asked: &str) -> Result<Option<String>> {
        run!(self, Looks(workspace = workspace.to_owned(), session, asked = asked.to_owned()), |ask| {
            read::recall(ask, workspace, *session, asked)
        })
    }

    /// Searches messages by their text, newest session and newest message first.
    pub async fn search(&self, search: Search) -> Result<Portion<Hit>> {
        run!(self, Looks(search), |ask| find::search(ask, search))
    }

    /// Reads at most `limit` events of a workspace with numbers above `after`, oldest first, of one session or of all.
    /// Numbers have no gaps within a workspace and are never reused, even after deletions. A workspace retains its newest
    /// 10,000 events, and not many more.
    pub async fn events(
        &self,
        workspace: &str,
        after: u64,
        session: Option<&str>,
        limit: usize,
    ) -> Result<Events> {
        self.number_all(workspace).await?;
        let (workspace, session) = (workspace.to_owned(), session.map(str::to_owned));
        run!(self, Reads(workspace, after, session, limit), |ask| {
            events::read(ask, workspace, *after, session.as_deref(), *limit)
        })
    }

    /// Counts the `condensed` events per session, among the events that the workspace retains (about 10,000).
    pub async fn condensed(&self, workspace: &str) -> Result<Vec<(Arc<str>, u64)>> {
        run!(self, Looks(workspace = workspace.to_owned()), |ask| events::condensed(ask, workspace))
    }

    /// Copies messages `1..=through` into a hidden session. The copy runs in several short transactions, so that no other
    /// writer waits long. A copy that was not finished is removed later.
    pub async fn copy(&self, from: SessionId, through: Seq) -> Result<SessionId> {
        let gone = || StoreError::Failed { reason: "the session was deleted during the copy".to_owned() };
        let copied = run!(self, Writes(from), |ask| copy::begin(ask, *from))?.ok_or_else(gone)?;
        let mut first: Seq = 1;
        while first <= through {
            let piece = run!(self, Writes(from, copied, first, through), |ask| {
                copy::piece(ask, *from, *copied, (*first, *through))
            });
            match piece {
                Ok(Some(last)) if last >= through => break,
                Ok(Some(last)) => first = last.saturating_add(1),
                failed => {
                    // If this fails too, maintenance finds the copy by its age later.
                    let _ = run!(self, Writes(copied), |ask| copy::give_up(ask, *copied));
                    return Err(failed.err().unwrap_or_else(gone));
                }
            }
        }
        Ok(copied)
    }

    /// Makes a copied session visible under this name. Returns false if the name is taken.
    pub async fn reveal(&self, key: &SessionKey, mut copied: CopiedSession) -> Result<bool> {
        copied.renumber();
        let id = copied.id;
        let shown = run!(self, Writes(key = key.clone(), copied), |ask| copy::reveal(ask, key, copied));
        self.revealed(id);
        shown
    }

    /// Deletes a session with its messages, summaries and events; usage records stay. The session is invisible when this
    /// returns. Returns false if it does not exist.
    pub async fn delete(&self, key: &SessionKey) -> Result<bool> {
        // The session's unnumbered events use up numbers too, although they are about to be deleted.
        self.number_all(&key.workspace).await?;
        let deleted = run!(self, Writes(key = key.clone()), |ask| copy::delete(ask, key))?;
        self.recent().forget(key);
        self.deleted();
        Ok(deleted)
    }
}

/// Slots: which are due, and which worker has leased them.
impl dyn Store {
    /// Leases a slot that is ready: it is due, and no worker has an unexpired lease on it. Takes the longest-waiting slot of
    /// the workspace whose turn it is ([`Want::after`]). If the slot is due only because of elapsed time, its trigger fires
    /// now. The slot's fencing token is incremented.
    ///
    /// Workers call this often, mostly without result. It therefore examines a bounded number of slots, regardless of how
    /// many are ready. A slot whose session is being written at the same time may be skipped.
    pub async fn lease(&self, want: Want) -> Result<Option<Lease>> {
        let Some(now) = run!(self, LooksHere(), |ask| lease::anything_ready(ask))? else { return Ok(None) };
        let poll = Arc::new(Poll { want, now, walked: self.walked() });
        let turns = run!(self, Looks(this = Arc::clone(&poll)), |ask| this.whose_turn(ask))?;
        // Each attempt is its own transaction, so a failed attempt leaves no locks that others would wait for.
        for of in &turns {
            let taken =
                run!(self, Notes(this = Arc::clone(&poll), of = of.clone()), |ask| this.take(ask, of));
            if let Taken::Lease(lease) = taken? {
                poll.walked.took(&lease.key.workspace);
                return Ok(Some(*lease));
            }
        }
        for of in turns {
            let held = run!(self, Looks(this = Arc::clone(&poll), of), |ask| this.passed_over(ask, of))?;
            let Some(held) = held else { continue };
            match run!(self, Notes(this = Arc::clone(&poll), held), |ask| this.take(ask, held))? {
                Taken::Nothing => {}
                Taken::StillHeld => return Ok(None),
                Taken::Lease(lease) => return Ok(Some(*lease)),
            }
        }
        Ok(None)
    }

    /// Counts the workspace's slots that have work now or later, and returns at most `limit` of them, longest-waiting first.
    /// Without a workspace it covers all of them, which is meant for operators. It is called often: its cost depends on the
    /// number of slots with work, not on the number of sessions.
    pub async fn queue(&self, workspace: Option<&str>, limit: usize) -> Result<(QueueCounts, Vec<QueueRow>)> {
        run!(self, Reads(workspace = workspace.map(str::to_owned), limit), |ask| {
            queue::queue(ask, workspace.as_deref(), *limit)
        })
    }
}

/// API keys.
impl dyn Store {
    /// Stores a new key. Sets its `created` to the current time of the store's clock, and returns the key.
    pub async fn add_key(&self, row: KeyRow) -> Result<Key> {
        run!(self, Notes(row), |ask| keyring::add(ask, row))
    }

    /// Reads keys, including revoked and expired ones, and the current time of the store's clock. Keys are not cached
    /// between calls, so a revocation applies at once.
    pub async fn keys(&self, pick: PickKeys) -> Result<(Vec<KeyRow>, Timestamp)> {
        run!(self, Reads(pick), |ask| keyring::pick(ask, pick))
    }

    /// Revokes a key; if a workspace is named, only a key of that workspace. A key that is already revoked does not change.
    /// Returns false if there is no such key.
    pub async fn revoke_key(&self, id: &str, workspace: Option<&str>) -> Result<bool> {
        run!(self, Notes(id = id.to_owned(), workspace = workspace.map(str::to_owned)), |ask| {
            keyring::revoke(ask, id, workspace.as_deref())
        })
    }
}

/// Message lists that the proxy condensed.
impl dyn Store {
    /// Returns the stored state of the longest prefix of this message list. `chain` contains the hash of each prefix: of the
    /// first message, of the first two, and so on.
    pub async fn inline(&self, workspace: &str, chain: Vec<ListHash>) -> Result<Option<InlineRow>> {
        run!(self, Reads(workspace = workspace.to_owned(), chain), |ask| inlines::find(ask, workspace, chain))
    }

    /// Stores the state of a condensed list and replaces the earlier state of the same list. A workspace retains the newest
    /// 1,000.
    pub async fn keep_inline(&self, workspace: &str, row: InlineRow) -> Result<()> {
        run!(self, Notes(workspace = workspace.to_owned(), row), |ask| inlines::keep(ask, workspace, row))
    }

    /// Adds to this hour's proxy usage. After the first 100 models in an hour, further models are counted as `other`.
    pub async fn add_passed(&self, workspace: &str, more: Vec<Passed>) -> Result<()> {
        run!(self, Notes(workspace = workspace.to_owned(), more), |ask| {
            usage::add_passed(ask, workspace, more)
        })
    }

    /// Returns proxy usage since the hour that contains `since`, summed by model.
    pub async fn passed(&self, workspace: &str, since: Timestamp) -> Result<Vec<Passed>> {
        run!(self, Looks(workspace = workspace.to_owned(), since), |ask| {
            usage::passed(ask, workspace, *since)
        })
    }
}

/// Model usage.
impl dyn Store {
    /// Records model calls.
    pub async fn record(&self, usage: Vec<UsageRow>) -> Result<()> {
        run!(self, Notes(usage), |ask| usage::record(ask, usage))
    }

    /// Returns sums over recorded model calls.
    pub async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageSum>> {
        run!(self, Looks(query), |ask| usage::usage(ask, query))
    }
}

/// The directory: workspaces, sessions, authors, members.
impl dyn Store {
    /// Lists the workspaces that were ever written to and not deleted.
    pub async fn workspaces(&self, listing: Listing<WorkspaceRow>) -> Result<Listed<WorkspaceRow>> {
        run!(self, Reads(listing), |ask| page(ask, List::workspaces(), listing, decode::workspace))
    }

    /// Lists a workspace's sessions. If `member` is set, only the sessions that this author is a member of.
    pub async fn sessions(
        &self,
        workspace: &str,
        member: Option<&str>,
        listing: Listing<(Arc<str>, SessionRow)>,
    ) -> Result<Listed<(Arc<str>, SessionRow)>> {
        let (workspace, member) = (workspace.to_owned(), member.map(str::to_owned));
        run!(self, Reads(workspace, member, listing), |ask| {
            page(ask, List::sessions(workspace, member.as_deref()), listing, decode::named_session)
        })
    }

    /// Lists a workspace's authors. `Listing::after` is not supported: they are not listed by name.
    pub async fn authors(&self, workspace: &str, listing: Listing<AuthorRow>) -> Result<Listed<AuthorRow>> {
        run!(self, Reads(workspace = workspace.to_owned(), listing), |ask| {
            page(ask, List::authors(workspace), listing, decode::author)
        })
    }

    /// Lists a session's members, in the order in which their authors were created. `Listing::after` is not supported.
    pub async fn members(
        &self,
        session: SessionId,
        listing: Listing<MemberRow>,
    ) -> Result<Listed<MemberRow>> {
        run!(self, Reads(session, listing), |ask| {
            page(ask, List::members(*session), listing, decode::member)
        })
    }

    /// Changes a workspace's row, and creates the workspace if it does not exist. The store sets `created`. The change is
    /// isolated from other writers.
    pub async fn change_workspace(&self, workspace: &str, decide: DecideRow<WorkspaceRow>) -> Result<()> {
        run!(self, Writes(workspace = workspace.to_owned(), decide), |ask| people::change_workspace(
            ask, workspace, decide
        ))
    }

    /// Changes an author's row, and creates the author and the workspace if they do not exist. The store sets `created`. The
    /// change is isolated from other writers.
    pub async fn change_author(
        &self,
        workspace: &str,
        name: &str,
        decide: DecideRow<AuthorRow>,
    ) -> Result<()> {
        run!(self, Writes(workspace = workspace.to_owned(), name = name.to_owned(), decide), |ask| {
            people::change_author(ask, workspace, name, decide)
        })
    }

    /// Deletes a workspace that has no sessions, with its settings, metadata and authors. The records of its model calls
    /// stay.
    pub async fn delete_workspace(&self, workspace: &str) -> Result<Deleted> {
        run!(self, Writes(workspace = workspace.to_owned()), |ask| people::delete_workspace(ask, workspace))
    }
}

/// Maintenance.
impl dyn Store {
    /// Returns the store's secret. It is created with the store, never changes, and is the same for every process.
    pub async fn secret(&self) -> Result<[u8; 32]> {
        run!(self, Looks(), |ask| async move {
            let sql = Sql::new("SELECT secret FROM epitome.secrets", []);
            let secret = ask::first(ask, sql, |row| row.bytes(0).map(<[u8]>::to_vec)).await?;
            secret.unwrap_or_default().try_into().map_err(|_| nonsense("the store has no secret"))
        })
    }

    /// Checks everything in the store and returns the faults found.
    pub async fn verify(&self) -> Result<Vec<Fault>> {
        run!(self, ReadsAll(), |ask| verify::verify(ask))
    }
}
