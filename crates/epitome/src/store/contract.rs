//! Defines the operations of a store.
//!
//! The trait [`Store`] contains the methods that each database implements in its own way, such as `run`, `backup` and
//! `close`. All other methods are written once for all databases, as methods of `dyn Store`. These methods pass an
//! operation to [`Store::run`].

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
/// [`AccessMode`]. The operation owns the arguments, because it may run on another thread. The future borrows the
/// arguments from the operation. An argument of the form `key = key.clone()` passes a copy of `key`.
macro_rules! run {
    ($store:expr, $mode:ident($($arg:ident $(= $own:expr)?),*), |$db:ident| $what:expr) => {{
        $($(let $arg = $own;)?)*
        run($store, AccessMode::$mode, ($($arg,)*), |($($arg,)*), $db| Box::pin($what)).await
    }};
}

/// Stores everything that an engine needs. `Sqlite` and `Postgres` implement this trait. Both types dereference to `dyn
/// Store`, which has the methods that are the same for all databases.
///
/// To support another database, implement this trait and `Executor` in this crate. The new store must pass
/// `tests/store_contract.rs`.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Runs an operation in this access mode. The store may run the operation several times; the result of the last run
    /// counts.
    #[doc(hidden)]
    async fn run(&self, mode: AccessMode, op: ErasedOp) -> Result<()>;

    /// Changes a session: reads its state, calls `decide`, and writes the changes that `decide` returns. Apart from
    /// leases, copies and deletions, this is the only way to write to a session. The whole change is isolated from
    /// other writers. The change is durable when this method returns.
    ///
    /// Returns the id of the session that was written. Returns 0 if the session does not exist and only model usage was
    /// recorded. Returns `None` if `decide` returned no changes.
    async fn change(&self, key: &SessionKey, load: Load, decide: Decide) -> Result<Option<SessionId>> {
        run!(self, WriteKeepCache(key = key.clone(), load, decide), |db| change::change(
            db, key, load, decide
        ))
    }

    /// Waits for a hint from another node that a slot may be ready. A hint may be late, wrong or missing, so workers
    /// also poll the store. A hint that arrives while no task waits is delivered to the next task that waits. If the
    /// store is not shared with other nodes, this method never returns.
    async fn wait_for_hint(&self) {
        std::future::pending::<()>().await;
    }

    /// Copies the whole store into a new file. The store can be used during the copy.
    async fn backup(&self, to: &Path) -> Result<()>;

    /// Finishes the operations in progress and closes the database.
    async fn close(&self);

    /// Assigns numbers to those events of a workspace that have no number yet.
    #[doc(hidden)]
    async fn number_events(&self, _workspace: &str) -> Result<()> {
        Ok(())
    }

    /// Returns the position from which the next search for ready slots continues, round-robin over the workspaces.
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

    /// Reads a session's stamp, which shows whether the session's contexts have changed. The query returns a single
    /// row. Returns `None` if the session does not exist.
    pub async fn stamp(&self, key: &SessionKey) -> Result<Option<Stamp>> {
        run!(self, ReadCommittedInline(key = key.clone()), |db| change::stamp(db, key))
    }

    /// Reads the data from which a context is built, as one consistent state. Returns `None` if the session does not
    /// exist or `decide` returns `None`.
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
        // Only windows of the whole session without `as_of` are cached: other windows are rarely read twice.
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
                // A cached window that cannot be extended now can never be extended later.
                None => cache.evict_window(key),
            }
        }
        let args = (key.clone(), query, decide, cache.hint(key));
        let read = run(self, snapshot, args, |(key, query, decide, hint), db| {
            Box::pin(window::window(db, key, query, decide, *hint))
        });
        Ok(read.await?.map(|read| cache.add(key, read, cacheable)))
    }

    /// Reads at most `limit` outlines of the scope's messages, starting after message `after`. For a session that is
    /// still being copied, returns the outlines copied so far, and `None` in [`OutlinesAfter::end`].
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

    /// Reads the summaries that `pick` selects.
    pub async fn summaries(&self, session: SessionId, pick: PickSummaries) -> Result<Vec<SummaryRow>> {
        run!(self, Snapshot(session, pick), |db| read::summaries(db, *session, pick))
    }

    /// Returns the text of the newest summary in the workspace, of any session, that was written for the same model
    /// request. Requests are compared by their hash ([`super::Facts::request_hash`]). Returns `None` if there is no
    /// such summary. Also returns `None` if `session` undid such a summary, because after an undo the caller expects a
    /// different text.
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

    /// Searches messages by their text. Hits of the newest session come first. Within a session, the newest message
    /// comes first.
    pub async fn search(&self, search: Search) -> Result<Portion<Hit>> {
        run!(self, ReadCommitted(search), |db| message_search::search(db, search))
    }

    /// Reads at most `limit` events of a workspace, oldest first: only events with numbers above `after`. If `session`
    /// is set, reads only events of that session. Within a workspace, the store assigns event numbers without gaps. The
    /// numbers of deleted events are never reused. A workspace retains only its newest events, about 10,000.
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

    /// Counts the `condensed` events of each session. Only events that the workspace still retains (about 10,000) are
    /// counted.
    pub async fn count_condensed(&self, workspace: &str) -> Result<Vec<(Arc<str>, u64)>> {
        run!(self, ReadCommitted(workspace = workspace.to_owned()), |db| events::count_condensed(
            db, workspace
        ))
    }

    /// Copies messages `1..=through` into a new hidden session, and returns the new session's id. The copy runs in
    /// several short transactions, so that no other writer waits long. Maintenance removes a copy that was not
    /// finished.
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
                    // If this fails too, maintenance removes the copy later, when the copy has had no write for an
                    // hour.
                    let _ = run!(self, Write(copied), |db| copy::abandon(db, *copied));
                    return Err(failed.err().unwrap_or_else(deleted));
                }
            }
        }
        Ok(copied)
    }

    /// Makes a copied session visible under this name. Returns false if the name is taken or the copy does not exist.
    pub async fn reveal(&self, key: &SessionKey, mut copied: CopiedSession) -> Result<bool> {
        copied.renumber();
        let id = copied.id;
        let revealed = run!(self, Write(key = key.clone(), copied), |db| copy::reveal(db, key, copied));
        self.on_copy_visible(id);
        revealed
    }

    /// Deletes a session with its messages, summaries and events. The session's usage records stay. When this method
    /// returns, the session is no longer visible. Returns false if the session does not exist.
    pub async fn delete(&self, key: &SessionKey) -> Result<bool> {
        // Assign numbers to the session's events first, so that deleted events use up numbers in PostgreSQL as in
        // SQLite.
        self.number_events(&key.workspace).await?;
        let deleted = run!(self, Write(key = key.clone()), |db| copy::delete(db, key))?;
        self.window_cache().evict(key);
        self.on_deleted();
        Ok(deleted)
    }
}

/// Leases on slots, and the queue of slots that have work.
impl dyn Store {
    /// Leases a ready slot. A slot is ready if it is due, no worker has an unexpired lease on it, and it does not wait
    /// for a retry. The round-robin position [`LeaseRequest::after`] selects the workspace. Within this workspace, the
    /// slot that has waited longest is leased. If the slot became ready only because time passed, its trigger event is
    /// recorded now. Each lease increments the slot's fencing token.
    ///
    /// Workers call this method often, and usually no slot is ready. The method examines a limited number of slots,
    /// regardless of the number of ready slots. It may skip a slot while another transaction writes to the slot's
    /// session.
    pub async fn lease(&self, request: LeaseRequest) -> Result<Option<Lease>> {
        let Some(now) = run!(self, ReadCommittedInline(), |db| lease::anything_ready(db))? else {
            return Ok(None);
        };
        let poll = Arc::new(LeasePoll { request, now, position: self.walk_position() });
        let filters = run!(self, ReadCommitted(poll = Arc::clone(&poll)), |db| poll.choose_slots(db))?;
        // Each attempt runs in its own transaction, so a failed attempt leaves no lock behind.
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

    /// Counts the slots of a workspace that have work, and returns at most `limit` of these slots, longest-waiting
    /// first. If `workspace` is `None`, reads the slots of all workspaces, for operators. Callers use this method
    /// often, so its cost depends on the number of slots with work, not on the number of sessions.
    pub async fn queue(&self, workspace: Option<&str>, limit: usize) -> Result<(QueueCounts, Vec<QueueRow>)> {
        run!(self, Snapshot(workspace = workspace.map(str::to_owned), limit), |db| {
            queue::queue(db, workspace.as_deref(), *limit)
        })
    }
}

/// API keys.
impl dyn Store {
    /// Stores a new key. Sets the key's `created` to the current time of the store's clock, and returns the key.
    pub async fn add_key(&self, row: KeyRow) -> Result<Key> {
        run!(self, WriteKeepCache(row), |db| keyring::add(db, row))
    }

    /// Reads keys, including revoked and expired ones, and the current time of the store's clock. Keys are not cached
    /// between calls, so a revocation applies at once.
    pub async fn keys(&self, pick: PickKeys) -> Result<(Vec<KeyRow>, Timestamp)> {
        run!(self, Snapshot(pick), |db| keyring::pick(db, pick))
    }

    /// Revokes the key with this id. If `workspace` is set, the key must belong to that workspace. A key that is
    /// already revoked does not change. Returns false if there is no such key.
    pub async fn revoke_key(&self, id: &str, workspace: Option<&str>) -> Result<bool> {
        run!(self, WriteKeepCache(id = id.to_owned(), workspace = workspace.map(str::to_owned)), |db| {
            keyring::revoke(db, id, workspace.as_deref())
        })
    }
}

/// Message lists that the proxy condensed.
impl dyn Store {
    /// Finds the longest prefix of a message list for which a state is stored, and returns this state, or `None` if
    /// there is no such prefix. `chain` contains the hash of each prefix: of the first message, of the first two
    /// messages, and so on.
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
    /// newest 1,000 states.
    pub async fn store_proxy_state(&self, workspace: &str, row: ProxyStateRow) -> Result<()> {
        run!(self, WriteKeepCache(workspace = workspace.to_owned(), row), |db| proxy_state::store(
            db, workspace, row
        ))
    }

    /// Adds `more` to the workspace's proxy usage of the current hour. After the first 100 models in an hour, further
    /// models are counted as `other`.
    pub async fn add_proxy_usage(&self, workspace: &str, more: Vec<ProxyUsage>) -> Result<()> {
        run!(self, WriteKeepCache(workspace = workspace.to_owned(), more), |db| {
            usage::add_proxy_usage(db, workspace, more)
        })
    }

    /// Returns proxy usage since the start of the hour that contains `since`, summed by model and by
    /// [`ProxyUsage::shadow`].
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

    /// Returns sums of the recorded model calls that `query` selects.
    pub async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageSum>> {
        run!(self, ReadCommitted(query), |db| usage::usage(db, query))
    }
}

/// The directory: workspaces, sessions, authors, members.
impl dyn Store {
    /// Lists the workspaces. A workspace exists from its first write until it is deleted.
    pub async fn workspaces(&self, listing: Listing<WorkspaceRow>) -> Result<ListPage<WorkspaceRow>> {
        run!(self, Snapshot(listing), |db| page(db, List::workspaces(), listing, decode::workspace))
    }

    /// Lists a workspace's sessions. If `member` is set, lists only the sessions of which this author is a member.
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

    /// Lists a workspace's authors. `Listing::after` is not supported, because authors are not listed by name.
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
    /// Returns the store's secret: 32 bytes that are created with the store and never change. All processes that use
    /// the store read the same secret.
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
