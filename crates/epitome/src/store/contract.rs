//! Defines the operations of a store.
//!
//! [`Store`] contains what each database implements itself: connecting, retrying, backing up. Everything else is
//! written once, as methods of `dyn Store` that pass an operation to [`Store::run`].

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use epitome_core::message::{Message, Seq, Timestamp};
use epitome_core::slot::Scope;

use super::changes::{Decide, Load, SessionState};
use super::check::StoreFault;
use super::copy::{self, CopiedSession};
use super::decode;
use super::directory::{AuthorRow, DecideRow, ListPage, Listing, MemberRow, WorkspaceDeletion, WorkspaceRow};
use super::directory_queries::{self, List, page};
use super::error::{Result, StoreError};
use super::executor::{self, AccessMode, ErasedOp, Op};
use super::keyring::{self, KeyRow, PickKeys};
use super::lease::{self, Lease, LeaseAttempt, LeasePoll, LeaseRequest, WalkPosition};
use super::op_error::damaged;
use super::proxy_state::{self, ListHash, ProxyStateRow};
use super::query_types::{
    DecideReach, Hit, OutlinesAfter, PickMessages, PickSummaries, Portion, Search, UsageQuery, Window,
    WindowQuery,
};
use super::rows::{
    QueueCounts, QueueRow, SessionId, SessionKey, SessionRow, Stamp, SummaryRow, UsageRow, UsageSum,
};
use super::sql::Sql;
use super::usage::{self, ProxyUsage};
use super::window_cache::{Extended, WindowCache};
use super::{change, events, message_search, queue, read, verify, window};
use crate::event::Events;
use crate::key::Key;

/// Runs an operation on a store's database and returns its result.
pub(super) async fn run<A: Send + Sync + 'static, T: Send + 'static>(
    store: &(impl Store + ?Sized),
    mode: AccessMode,
    args: A,
    op: Op<A, T>,
) -> Result<T> {
    let (args, result) = (Arc::new(args), Arc::new(Mutex::new(None)));
    let slot = Arc::clone(&result);
    let erased = ErasedOp(Box::new(move |db| {
        let (args, slot) = (Arc::clone(&args), Arc::clone(&slot));
        Box::pin(async move {
            let value = op(&args, db).await?;
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            Ok(())
        })
    }));
    store.run(mode, erased).await?;
    result.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(StoreError::Closed)
}

/// Runs an operation on a store: `run!(store, Mode(arguments), |db| future)`, where `Mode` is a variant of
/// [`AccessMode`]. The arguments move into the operation, which may run on another thread, and the future borrows them.
/// `key = key.clone()` moves a copy.
macro_rules! run {
    ($store:expr, $mode:ident($($arg:ident $(= $own:expr)?),*), |$db:ident| $what:expr) => {{
        $($(let $arg = $own;)?)*
        run($store, AccessMode::$mode, ($($arg,)*), |($($arg,)*), $db| Box::pin($what)).await
    }};
}

/// Stores everything an engine needs. The methods that all databases share are methods of `dyn Store`; `Sqlite` and
/// `Postgres` dereference to it.
///
/// To add a store, implement this trait in this crate with its own `Executor`, and make it pass
/// `tests/store_contract.rs`.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Runs an operation in this access mode. It may run several times; the last run counts.
    #[doc(hidden)]
    async fn run(&self, mode: AccessMode, op: ErasedOp) -> Result<()>;

    /// Changes a session: reads its state, calls `decide` and writes the changes that it returns. This is the only way
    /// to write to a session. The whole change is isolated from other writers, and durable when this returns.
    ///
    /// Returns the id of the session that was written; 0 if there is no session and only model usage was recorded;
    /// `None` if `decide` returned no changes.
    async fn change(&self, key: &SessionKey, load: Load, decide: Decide) -> Result<Option<SessionId>> {
        run!(self, WriteKeepCache(key = key.clone(), load, decide), |db| change::change(
            db, key, load, decide
        ))
    }

    /// Waits for a hint from another node that a slot may be ready. A hint may be late, wrong or missing, so workers
    /// also poll the store. A hint that arrives while no task waits is delivered to the next task that waits. A store
    /// that is not shared with other nodes never returns.
    async fn wait_for_hint(&self) {
        std::future::pending::<()>().await;
    }

    /// Copies the whole store into a new file, while it stays in use.
    async fn backup(&self, to: &Path) -> Result<()>;

    /// Finishes the operations in progress and closes the database.
    async fn close(&self);

    /// Assigns numbers to the events of a workspace that have none yet.
    #[doc(hidden)]
    async fn number_events(&self, _workspace: &str) -> Result<()> {
        Ok(())
    }

    /// Returns the position at which the round-robin over workspaces continues.
    #[doc(hidden)]
    fn walk_position(&self) -> Arc<WalkPosition>;

    /// Returns the cache of recently read windows.
    #[doc(hidden)]
    fn window_cache(&self) -> &WindowCache;

    /// Notifies the store that a session was deleted.
    #[doc(hidden)]
    fn on_deleted(&self) {}

    /// Notifies the store that a copied session became visible.
    #[doc(hidden)]
    fn on_copy_visible(&self, _copy: SessionId) {}
}

/// Sessions, their messages, summaries and events.
impl dyn Store {
    /// Reads a session's current state.
    pub async fn session_state(&self, key: &SessionKey, load: Load) -> Result<SessionState> {
        run!(self, Snapshot(key = key.clone(), load), |db| change::session_state(db, key, load, ""))
    }

    /// Reads the stamp that shows whether a session's contexts changed. This reads one row. `None` if the session does
    /// not exist.
    pub async fn stamp(&self, key: &SessionKey) -> Result<Option<Stamp>> {
        run!(self, ReadCommittedInline(key = key.clone()), |db| change::stamp(db, key))
    }

    /// Reads what a context is built from, as one consistent state. `None` if the session does not exist or `decide`
    /// returns `None`.
    pub async fn window(
        &self,
        key: &SessionKey,
        query: WindowQuery,
        decide: DecideReach,
    ) -> Result<Option<Window>> {
        let cache = self.window_cache();
        let (snapshot, read_committed) = match query.recently_read {
            true => (AccessMode::SnapshotInline, AccessMode::ReadCommittedInline),
            false => (AccessMode::Snapshot, AccessMode::ReadCommitted),
        };
        // Only the newest window of the whole session is cached: others are rarely read twice.
        let cacheable = query.scope == Scope::Session && query.as_of.is_none();
        if let Some(cached) = cache.window(key).filter(|_| cacheable) {
            let args = (key.clone(), cached, Arc::clone(&decide));
            let extended = run(self, read_committed, args, |(key, cached, decide), db| {
                Box::pin(cached.extend(db, key, decide))
            });
            match extended.await? {
                Some(Extended::Declined) => return Ok(None),
                Some(Extended::Same(window)) => return Ok(Some(window)),
                Some(Extended::Grown(window, entry)) => {
                    cache.put(key, entry);
                    return Ok(Some(window));
                }
                // This window could not be extended now, so it could not be extended next time either.
                None => cache.evict_window(key),
            }
        }
        let args = (key.clone(), query, decide, cache.hint(key));
        let read = run(self, snapshot, args, |(key, query, decide, hint), db| {
            Box::pin(window::window(db, key, query, decide, *hint))
        });
        Ok(read.await?.map(|read| cache.add(key, read, cacheable)))
    }

    /// Reads the outlines of at most `limit` of the scope's messages after `after`. For a session that is still being
    /// copied, these are the messages copied so far, and the end is unknown.
    pub async fn outlines_after(
        &self,
        session: SessionId,
        scope: &Scope,
        after: Seq,
        limit: usize,
    ) -> Result<OutlinesAfter> {
        run!(self, Snapshot(session, scope = scope.clone(), after, limit), |db| {
            read::outlines_after(db, *session, scope, *after, *limit)
        })
    }

    /// Reads messages with their text. Messages that do not exist are left out.
    pub async fn messages(&self, session: SessionId, pick: PickMessages) -> Result<Portion<Message>> {
        run!(self, Snapshot(session, pick), |db| read::messages(db, *session, pick))
    }

    /// Reads summaries.
    pub async fn summaries(&self, session: SessionId, pick: PickSummaries) -> Result<Vec<SummaryRow>> {
        run!(self, Snapshot(session, pick), |db| read::summaries(db, *session, pick))
    }

    /// Returns the text of the newest summary in the workspace, of any session, that was written for the same model
    /// request. Requests are compared by their hash ([`super::Facts::request_hash`]). `None` if this session undid such
    /// a summary: after an undo, the caller expects a different text.
    pub async fn summary_for_request(
        &self,
        workspace: &str,
        session: SessionId,
        request_hash: &str,
    ) -> Result<Option<String>> {
        let (workspace, hash) = (workspace.to_owned(), request_hash.to_owned());
        run!(self, ReadCommitted(workspace, session, hash), |db| {
            read::summary_for_request(db, workspace, *session, hash)
        })
    }

    /// Searches messages by their text, newest session and newest message first.
    pub async fn search(&self, search: Search) -> Result<Portion<Hit>> {
        run!(self, ReadCommitted(search), |db| message_search::search(db, search))
    }

    /// Reads at most `limit` events of a workspace with numbers above `after`, oldest first, of one session or of all.
    /// Numbers have no gaps within a workspace and are never reused, even after deletions. A workspace retains its
    /// newest 10,000 events, and not many more.
    pub async fn events(
        &self,
        workspace: &str,
        after: u64,
        session: Option<&str>,
        limit: usize,
    ) -> Result<Events> {
        self.number_events(workspace).await?;
        let (workspace, session) = (workspace.to_owned(), session.map(str::to_owned));
        run!(self, Snapshot(workspace, after, session, limit), |db| {
            events::read(db, workspace, *after, session.as_deref(), *limit)
        })
    }

    /// Counts the `condensed` events per session, among the events that the workspace retains (about 10,000).
    pub async fn count_condensed(&self, workspace: &str) -> Result<Vec<(Arc<str>, u64)>> {
        run!(self, ReadCommitted(workspace = workspace.to_owned()), |db| events::count_condensed(
            db, workspace
        ))
    }

    /// Copies messages `1..=through` into a hidden session. The copy runs in several short transactions, so that no
    /// other writer waits long. A copy that was not finished is removed later.
    pub async fn copy(&self, from: SessionId, through: Seq) -> Result<SessionId> {
        let deleted = || StoreError::Failed { reason: "the session was deleted during the copy".to_owned() };
        let copied = run!(self, Write(from), |db| copy::begin(db, *from))?.ok_or_else(deleted)?;
        let mut first: Seq = 1;
        while first <= through {
            let chunk = run!(self, Write(from, copied, first, through), |db| {
                copy::copy_chunk(db, *from, *copied, (*first, *through))
            });
            match chunk {
                Ok(Some(last)) if last >= through => break,
                Ok(Some(last)) => first = last.saturating_add(1),
                failed => {
                    // If this fails too, maintenance finds the copy by its age later.
                    let _ = run!(self, Write(copied), |db| copy::abandon(db, *copied));
                    return Err(failed.err().unwrap_or_else(deleted));
                }
            }
        }
        Ok(copied)
    }

    /// Makes a copied session visible under this name. Returns false if the name is taken.
    pub async fn reveal(&self, key: &SessionKey, mut copied: CopiedSession) -> Result<bool> {
        copied.renumber();
        let id = copied.id;
        let revealed = run!(self, Write(key = key.clone(), copied), |db| copy::reveal(db, key, copied));
        self.on_copy_visible(id);
        revealed
    }

    /// Deletes a session with its messages, summaries and events; usage records stay. The session is invisible when
    /// this returns. Returns false if it does not exist.
    pub async fn delete(&self, key: &SessionKey) -> Result<bool> {
        // The session's unnumbered events use up numbers too, although they are about to be deleted.
        self.number_events(&key.workspace).await?;
        let deleted = run!(self, Write(key = key.clone()), |db| copy::delete(db, key))?;
        self.window_cache().evict(key);
        self.on_deleted();
        Ok(deleted)
    }
}

/// Slots: which are due, and which worker has leased them.
impl dyn Store {
    /// Leases a slot that is ready: it is due, and no worker has an unexpired lease on it. Takes the longest-waiting
    /// slot of the workspace whose turn it is ([`LeaseRequest::after`]). If the slot is due only because of elapsed
    /// time, its trigger fires now. The slot's fencing token is incremented.
    ///
    /// Workers call this often, mostly without result. It therefore examines a bounded number of slots, regardless of
    /// how many are ready. A slot whose session is being written at the same time may be skipped.
    pub async fn lease(&self, request: LeaseRequest) -> Result<Option<Lease>> {
        let Some(now) = run!(self, ReadCommittedInline(), |db| lease::anything_ready(db))? else {
            return Ok(None);
        };
        let poll = Arc::new(LeasePoll { request, now, position: self.walk_position() });
        let filters = run!(self, ReadCommitted(poll = Arc::clone(&poll)), |db| poll.choose_slots(db))?;
        // Each attempt is its own transaction, so a failed attempt leaves no locks that others would wait for.
        for filter in &filters {
            let attempt =
                run!(self, WriteKeepCache(poll = Arc::clone(&poll), filter = filter.clone()), |db| {
                    poll.lease(db, filter)
                });
            if let LeaseAttempt::Leased(lease) = attempt? {
                poll.position.on_leased(&lease.key.workspace);
                return Ok(Some(*lease));
            }
        }
        for filter in filters {
            let locked = run!(self, ReadCommitted(poll = Arc::clone(&poll), filter), |db| {
                poll.longest_waiting(db, filter)
            })?;
            let Some(locked) = locked else { continue };
            match run!(self, WriteKeepCache(poll = Arc::clone(&poll), locked), |db| poll.lease(db, locked))? {
                LeaseAttempt::NoneReady => {}
                LeaseAttempt::StillLocked => return Ok(None),
                LeaseAttempt::Leased(lease) => return Ok(Some(*lease)),
            }
        }
        Ok(None)
    }

    /// Counts the workspace's slots that have work now or later, and returns at most `limit` of them, longest-waiting
    /// first. Without a workspace it covers all of them, which is meant for operators. It is called often: its cost
    /// depends on the number of slots with work, not on the number of sessions.
    pub async fn queue(&self, workspace: Option<&str>, limit: usize) -> Result<(QueueCounts, Vec<QueueRow>)> {
        run!(self, Snapshot(workspace = workspace.map(str::to_owned), limit), |db| {
            queue::queue(db, workspace.as_deref(), *limit)
        })
    }
}

/// API keys.
impl dyn Store {
    /// Stores a new key. Sets its `created` to the current time of the store's clock, and returns the key.
    pub async fn add_key(&self, row: KeyRow) -> Result<Key> {
        run!(self, WriteKeepCache(row), |db| keyring::add(db, row))
    }

    /// Reads keys, including revoked and expired ones, and the current time of the store's clock. Keys are not cached
    /// between calls, so a revocation applies at once.
    pub async fn keys(&self, pick: PickKeys) -> Result<(Vec<KeyRow>, Timestamp)> {
        run!(self, Snapshot(pick), |db| keyring::pick(db, pick))
    }

    /// Revokes a key; if a workspace is named, only a key of that workspace. A key that is already revoked does not
    /// change. Returns false if there is no such key.
    pub async fn revoke_key(&self, id: &str, workspace: Option<&str>) -> Result<bool> {
        run!(self, WriteKeepCache(id = id.to_owned(), workspace = workspace.map(str::to_owned)), |db| {
            keyring::revoke(db, id, workspace.as_deref())
        })
    }
}

/// Message lists that the proxy condensed.
impl dyn Store {
    /// Returns the stored state of the longest prefix of this message list. `chain` contains the hash of each prefix:
    /// of the first message, of the first two, and so on.
    pub async fn find_proxy_state(
        &self,
        workspace: &str,
        chain: Vec<ListHash>,
    ) -> Result<Option<ProxyStateRow>> {
        run!(self, Snapshot(workspace = workspace.to_owned(), chain), |db| proxy_state::find(
            db, workspace, chain
        ))
    }

    /// Stores the state of a condensed list and replaces the earlier state of the same list. A workspace retains the
    /// newest 1,000.
    pub async fn store_proxy_state(&self, workspace: &str, row: ProxyStateRow) -> Result<()> {
        run!(self, WriteKeepCache(workspace = workspace.to_owned(), row), |db| proxy_state::store(
            db, workspace, row
        ))
    }

    /// Adds to this hour's proxy usage. After the first 100 models in an hour, further models are counted as `other`.
    pub async fn add_proxy_usage(&self, workspace: &str, more: Vec<ProxyUsage>) -> Result<()> {
        run!(self, WriteKeepCache(workspace = workspace.to_owned(), more), |db| {
            usage::add_proxy_usage(db, workspace, more)
        })
    }

    /// Returns proxy usage since the hour that contains `since`, summed by model.
    pub async fn proxy_usage(&self, workspace: &str, since: Timestamp) -> Result<Vec<ProxyUsage>> {
        run!(self, ReadCommitted(workspace = workspace.to_owned(), since), |db| {
            usage::proxy_usage(db, workspace, *since)
        })
    }
}

/// Model usage.
impl dyn Store {
    /// Records model calls.
    pub async fn record(&self, usage: Vec<UsageRow>) -> Result<()> {
        run!(self, WriteKeepCache(usage), |db| usage::record(db, usage))
    }

    /// Returns sums over recorded model calls.
    pub async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageSum>> {
        run!(self, ReadCommitted(query), |db| usage::usage(db, query))
    }
}

/// The directory: workspaces, sessions, authors, members.
impl dyn Store {
    /// Lists the workspaces that were ever written to and not deleted.
    pub async fn workspaces(&self, listing: Listing<WorkspaceRow>) -> Result<ListPage<WorkspaceRow>> {
        run!(self, Snapshot(listing), |db| page(db, List::workspaces(), listing, decode::workspace))
    }

    /// Lists a workspace's sessions. If `member` is set, only the sessions that this author is a member of.
    pub async fn sessions(
        &self,
        workspace: &str,
        member: Option<&str>,
        listing: Listing<(Arc<str>, SessionRow)>,
    ) -> Result<ListPage<(Arc<str>, SessionRow)>> {
        let (workspace, member) = (workspace.to_owned(), member.map(str::to_owned));
        run!(self, Snapshot(workspace, member, listing), |db| {
            page(db, List::sessions(workspace, member.as_deref()), listing, decode::named_session)
        })
    }

    /// Lists a workspace's authors. `Listing::after` is not supported: they are not listed by name.
    pub async fn authors(&self, workspace: &str, listing: Listing<AuthorRow>) -> Result<ListPage<AuthorRow>> {
        run!(self, Snapshot(workspace = workspace.to_owned(), listing), |db| {
            page(db, List::authors(workspace), listing, decode::author)
        })
    }

    /// Lists a session's members, in the order in which their authors were created. `Listing::after` is not supported.
    pub async fn members(
        &self,
        session: SessionId,
        listing: Listing<MemberRow>,
    ) -> Result<ListPage<MemberRow>> {
        run!(self, Snapshot(session, listing), |db| {
            page(db, List::members(*session), listing, decode::member)
        })
    }

    /// Changes a workspace's row, and creates the workspace if it does not exist. The store sets `created`. The change
    /// is isolated from other writers.
    pub async fn change_workspace(&self, workspace: &str, decide: DecideRow<WorkspaceRow>) -> Result<()> {
        run!(self, Write(workspace = workspace.to_owned(), decide), |db| directory_queries::change_workspace(
            db, workspace, decide
        ))
    }

    /// Changes an author's row, and creates the author and the workspace if they do not exist. The store sets
    /// `created`. The change is isolated from other writers.
    pub async fn change_author(
        &self,
        workspace: &str,
        name: &str,
        decide: DecideRow<AuthorRow>,
    ) -> Result<()> {
        run!(self, Write(workspace = workspace.to_owned(), name = name.to_owned(), decide), |db| {
            directory_queries::change_author(db, workspace, name, decide)
        })
    }

    /// Deletes a workspace that has no sessions, with its settings, metadata and authors. The records of its model
    /// calls stay.
    pub async fn delete_workspace(&self, workspace: &str) -> Result<WorkspaceDeletion> {
        run!(self, Write(workspace = workspace.to_owned()), |db| directory_queries::delete_workspace(
            db, workspace
        ))
    }
}

/// Maintenance.
impl dyn Store {
    /// Returns the store's secret. It is created with the store, never changes, and is the same for every process.
    pub async fn secret(&self) -> Result<[u8; 32]> {
        run!(self, ReadCommitted(), |db| async move {
            let sql = Sql::new("SELECT secret FROM epitome.secrets", []);
            let secret = executor::first(db, sql, |row| row.bytes(0).map(<[u8]>::to_vec)).await?;
            secret.unwrap_or_default().try_into().map_err(|_| damaged("the store has no secret"))
        })
    }

    /// Checks everything in the store and returns the faults found.
    pub async fn verify(&self) -> Result<Vec<StoreFault>> {
        run!(self, FullScan(), |db| verify::verify(db))
    }
}
