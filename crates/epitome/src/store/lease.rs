//! Leases slots to workers: round-robin across workspaces, and the longest-waiting slot within a workspace.
//!
//! A worker polls the store for a ready slot. Usually few slots are ready, and a poll reads all of them. If many slots
//! are ready, the poll visits the workspaces in order of their names. Visiting a workspace costs the same for any
//! number of ready slots. So a workspace with a hundred thousand ready slots does not slow the poll down, and the poll
//! still finds the slots of other workspaces. A poll visits a limited number of workspaces. If it has not visited all
//! workspaces, the next poll continues after the last one visited.
//!
//! Slots that another transaction is leasing or writing are skipped (`SKIP LOCKED`), so that workers do not wait for
//! locks. If no other slot is ready, the worker waits briefly for the lock of a skipped slot. Without this wait, the
//! slots of a session that is written all the time would never be leased, and a caller that works until no slot is due
//! would stop too early.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use epitome_core::message::Timestamp;
use epitome_core::slot::Scope;

use super::change::SessionWrites;
use super::decode::{self, RowRef, SLOT, scope_of, scope_text};
use super::executor::{Executor, SqlBatch};
use super::op_error::{OpError, OpResult};
use super::rows::{SessionId, SessionKey, SlotRow};
use super::sql::Sql;
use super::sql_params::SqlParam;

/// A worker's lease on a slot.
#[derive(Debug, Clone, PartialEq)]
pub struct Lease {
    /// The session's name and workspace.
    pub key: SessionKey,
    /// The session's id.
    pub id: SessionId,
    /// The leased slot, with this worker's name and the new fencing token.
    pub slot: SlotRow,
    /// When the lease began.
    pub now: Timestamp,
}

/// A worker's request: its name, which slots it accepts, and the duration of the lease.
#[derive(Debug, Clone)]
pub struct LeaseRequest {
    /// The worker's name.
    pub owner: String,
    /// Duration of the lease.
    pub duration: Duration,
    /// If set, only slots of this session are leased.
    pub session: Option<SessionKey>,
    /// Slots that the worker does not accept.
    pub excluded: HashSet<(SessionId, Scope, String)>,
    /// The workspace that was served last. Workspaces are served round-robin in order of their names: the next
    /// workspace is the first workspace after this name that has a ready slot. With `None`, the longest-waiting slot of
    /// any workspace is leased.
    pub after: Option<Arc<str>>,
    /// Workspaces that already have their maximum number of workers. They are skipped.
    pub full_workspaces: HashSet<Arc<str>>,
}

impl LeaseRequest {
    /// Returns the slot's row with this worker's lease added. If the slot became ready only because time passed, also
    /// records the slot's trigger event.
    fn leased(&self, mut slot: SlotRow, now: Timestamp) -> SlotRow {
        if slot.state.due.is_none() {
            slot.state.tick(now);
            slot.update_waiting_since(now);
        }
        slot.fence = slot.fence.saturating_add(1);
        slot.work.owner = Some(self.owner.clone());
        let duration = i64::try_from(self.duration.as_millis()).unwrap_or(i64::MAX);
        slot.work.until = Some(Timestamp(now.0.saturating_add(duration)));
        slot
    }
}

/// Maximum number of slots that a poll reads, longest-waiting first. Usually fewer slots are ready, and the poll sees
/// all workspaces that have work.
const MAX_OLDEST: usize = 200;

/// Maximum number of workspaces that a poll visits if more than [`MAX_OLDEST`] slots are ready. Workspaces whose slots
/// are not ready yet count too.
const MAX_STEPS: usize = 1_000;

/// Maximum number of workspaces in which a poll tries to lease a slot. An attempt fails if other workers are leasing
/// the workspace's slots, or if `excluded` contains these slots.
const MAX_TRIED: usize = 8;

/// SQL that limits how long a statement waits for another writer of a session. SQLite never waits here, because it has
/// a single writer.
const SHORT_LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '200ms'";

/// Returns the current time if any slot is ready, otherwise `None`. Uses no transaction: workers poll often, and
/// usually no slot is ready.
pub(super) async fn anything_ready(db: &mut dyn Executor) -> OpResult<Option<Timestamp>> {
    let sql = Sql::new("SELECT min(ready_at) FROM epitome.slots WHERE ready_at IS NOT NULL", []);
    let mut first = None;
    db.finish(SqlBatch::new().first(sql, &mut first, |row| row.maybe_int(0)).with_time()).await?;
    let now = db.now().await?;
    Ok(first.flatten().filter(|ready| *ready <= now.0).map(|_| now))
}

/// Selects the slots that a worker tries to lease.
#[derive(Clone, PartialEq)]
pub(super) enum SlotFilter {
    Any,
    Workspace(Arc<str>),
    Session(SessionKey),
    /// A session that was skipped because it was being written.
    LockedSession(SessionId),
}

/// The position of the session's id in a row of [`LeasePoll::ready_slots`].
const SESSION: usize = 6;

/// The result of an attempt to lease a slot.
pub(super) enum LeaseAttempt {
    NoneReady,
    /// Another transaction did not release the session's lock in time.
    StillLocked,
    Leased(Box<Lease>),
}

/// A worker's search for a slot. `now` is the store's time when the search began.
pub(super) struct LeasePoll {
    pub(super) request: LeaseRequest,
    pub(super) now: Timestamp,
    pub(super) position: Arc<WalkPosition>,
}

impl LeasePoll {
    /// Returns filters for the slots to try, in order. This method only reads, so that a poll that finds no slot needs
    /// no write transaction.
    pub(super) async fn choose_slots(&self, db: &mut dyn Executor) -> OpResult<Vec<SlotFilter>> {
        let LeaseRequest { session, after, full_workspaces, .. } = &self.request;
        if let Some(key) = session {
            let is_full = full_workspaces.contains(&key.workspace);
            let filters = if is_full { Vec::new() } else { vec![SlotFilter::Session(key.clone())] };
            return self.keep_first_ready(db, filters).await;
        }
        if after.is_none() && full_workspaces.is_empty() {
            return self.keep_first_ready(db, vec![SlotFilter::Any]).await;
        }
        let (mut oldest, more) = self.oldest_ready(db).await?;
        if let (false, Some(after)) = (more, after) {
            oldest.sort_by(|one, two| (one <= after, one).cmp(&(two <= after, two)));
        }
        if more {
            oldest.truncate(MAX_TRIED);
        }
        let oldest: Vec<SlotFilter> = oldest.into_iter().map(SlotFilter::Workspace).collect();
        if !more || after.is_none() && !oldest.is_empty() {
            return self.keep_first_ready(db, oldest).await;
        }
        // With SQLite, the walk continues until a slot is found or all steps are used. With PostgreSQL, each poll runs
        // one query only, to limit the round trips.
        let mut filters = Vec::new();
        for _ in 0..if db.in_file() { MAX_STEPS / MAX_TRIED } else { 1 } {
            let next = self.next_workspaces(db).await?.into_iter().map(SlotFilter::Workspace).collect();
            filters = self.keep_first_ready(db, next).await?;
            if !filters.is_empty() || self.position.workspace().is_none() {
                break;
            }
        }
        // The workspaces of the longest-waiting slots are tried last. So workers are not idle while a walk takes
        // several polls.
        let oldest = oldest.into_iter().filter(|filter| !filters.contains(filter)).collect();
        filters.append(&mut self.keep_first_ready(db, oldest).await?);
        Ok(filters)
    }

    /// For SQLite, returns only the first filter that matches a ready slot, or no filter if none matches. For
    /// PostgreSQL, returns all filters without a check, to save round trips.
    async fn keep_first_ready(
        &self,
        db: &mut dyn Executor,
        filters: Vec<SlotFilter>,
    ) -> OpResult<Vec<SlotFilter>> {
        if !db.in_file() {
            return Ok(filters);
        }
        for filter in filters {
            if self.first_ready(db, SqlBatch::new(), &filter, "").await?.is_some() {
                return Ok(vec![filter]);
            }
        }
        Ok(Vec::new())
    }

    /// Returns the workspaces of the longest-waiting slots, and whether there may be more than [`MAX_OLDEST`] ready
    /// slots.
    async fn oldest_ready(&self, db: &mut dyn Executor) -> OpResult<(Vec<Arc<str>>, bool)> {
        let sql = "SELECT workspace, session, scope, name FROM epitome.slots INDEXED BY slots_ready \
             WHERE ready_at IS NOT NULL AND ready_at <= $1 ORDER BY ready_at LIMIT $2";
        let (mut workspaces, mut seen): (Vec<Arc<str>>, usize) = (Vec::new(), 0);
        let each = |row: RowRef<'_>| {
            seen += 1;
            let workspace = row.text(0)?;
            let slot = (row.int(1)?, scope_of(row.text(2)?), row.string(3)?);
            let LeaseRequest { excluded, full_workspaces, .. } = &self.request;
            let accepted = !full_workspaces.contains(workspace) && !excluded.contains(&slot);
            if accepted && !workspaces.iter().any(|other| **other == *workspace) {
                workspaces.push(workspace.into());
            }
            Ok(true)
        };
        db.run(SqlBatch::new().each(Sql::new(sql, [self.now.into(), MAX_OLDEST.into()]), each)).await?;
        Ok((workspaces, seen >= MAX_OLDEST))
    }

    /// Visits the workspaces in order of their names, and returns the next few workspaces that have a ready slot.
    /// Starts after the workspace where the last walk stopped, or else after the workspace that was served last. After
    /// the last workspace, continues with the first one.
    async fn next_workspaces(&self, db: &mut dyn Executor) -> OpResult<Vec<Arc<str>>> {
        let after =
            self.position.workspace().or_else(|| self.request.after.clone()).unwrap_or_else(|| "".into());
        let mut ready = Vec::new();
        let (mut stopped_at, steps) = self.walk(db, (&after, None, MAX_STEPS), &mut ready).await?;
        if stopped_at.is_none() {
            let left = MAX_STEPS.saturating_sub(steps);
            (stopped_at, _) = self.walk(db, ("", Some(&after), left), &mut ready).await?;
        }
        self.position.set(stopped_at.map(|workspace| (workspace, ready.clone())));
        Ok(ready)
    }

    /// Visits at most `steps` workspaces in order of their names: the workspaces after `after`, up to `through` if it
    /// is set. Adds each workspace that has a ready slot to `ready`, and stops when `ready` has [`MAX_TRIED`] entries.
    /// Returns the last workspace visited (`None` if the walk reached the end), and the number of workspaces visited.
    async fn walk(
        &self,
        db: &mut dyn Executor,
        (after, through, steps): (&str, Option<&str>, usize),
        ready: &mut Vec<Arc<str>>,
    ) -> OpResult<(Option<Arc<str>>, usize)> {
        let missing = MAX_TRIED.saturating_sub(ready.len());
        let postgres = "WITH RECURSIVE turn AS ( \
             (SELECT workspace, ready_at <= $2 AND workspace <> ALL($3) AS ready, 1::bigint AS step, \
             (ready_at <= $2 AND workspace <> ALL($3))::integer::bigint AS found FROM epitome.slots \
             WHERE ready_at IS NOT NULL AND workspace > $1 AND $4 > 0 AND $5 > 0 ORDER BY workspace, ready_at LIMIT 1) \
             UNION ALL SELECT n.workspace, n.ready, turn.step + 1, turn.found + n.ready::integer FROM turn CROSS JOIN LATERAL \
             (SELECT s.workspace, s.ready_at <= $2 AND s.workspace <> ALL($3) AS ready FROM epitome.slots s \
             WHERE s.ready_at IS NOT NULL AND s.workspace > turn.workspace ORDER BY s.workspace, s.ready_at LIMIT 1) n \
             WHERE turn.step < $4 AND turn.found < $5 AND ($6::text IS NULL OR turn.workspace < $6)) \
             SELECT workspace, ready, step FROM turn WHERE ready OR step = (SELECT max(step) FROM turn) ORDER BY step";
        // SQLite computes the rows one by one, so the reader stops when it has found enough workspaces.
        let sqlite = "WITH RECURSIVE turn (workspace, step) AS ( \
             SELECT min(workspace), 1 FROM slots INDEXED BY slots_in_turn \
             WHERE ready_at IS NOT NULL AND workspace > ?1 AND ?4 > 0 AND ?5 > 0 \
             UNION ALL SELECT (SELECT min(s.workspace) FROM slots s INDEXED BY slots_in_turn \
             WHERE s.ready_at IS NOT NULL AND s.workspace > turn.workspace), step + 1 FROM turn \
             WHERE workspace IS NOT NULL AND step < ?4 AND (?6 IS NULL OR workspace < ?6)) \
             SELECT workspace, workspace NOT IN (SELECT value FROM json_each(?3)) AND (SELECT min(s.ready_at) \
             FROM slots s INDEXED BY slots_in_turn WHERE s.ready_at IS NOT NULL AND s.workspace = turn.workspace) <= ?2, step \
             FROM turn WHERE workspace IS NOT NULL";
        let full = self.request.full_workspaces.iter().map(|name| name.as_ref().into()).collect();
        let params = [
            after.into(),
            self.now.into(),
            SqlParam::Texts(full),
            steps.into(),
            missing.into(),
            through.into(),
        ];
        let (mut last, mut found) = (None, 0);
        let each = |row: RowRef<'_>| {
            let workspace = row.name(0)?;
            if row.flag(1)? && through.is_none_or(|through| *workspace <= *through) {
                found += 1;
                ready.push(Arc::clone(&workspace));
            }
            last = Some((workspace, row.uint(2)?));
            Ok(found < missing)
        };
        db.run(SqlBatch::new().each(Sql::per_database(postgres, sqlite, params), each)).await?;
        let Some((workspace, walked)) = last else { return Ok((None, 0)) };
        let walked = usize::try_from(walked).unwrap_or(usize::MAX);
        let ended =
            walked < steps && found < missing || through.is_some_and(|through| *workspace >= *through);
        Ok(((!ended).then_some(workspace), walked))
    }

    /// Returns a filter for the session of the longest-waiting slot, even if that session is being written. Returns
    /// `None` if no slot is ready.
    pub(super) async fn longest_waiting(
        &self,
        db: &mut dyn Executor,
        filter: &SlotFilter,
    ) -> OpResult<Option<SlotFilter>> {
        Ok(self
            .first_ready(db, SqlBatch::new(), filter, "")
            .await?
            .map(|(_, id, _)| SlotFilter::LockedSession(id)))
    }

    /// Leases one of the slots that `filter` selects: the longest-waiting slot that no other transaction has locked.
    /// For [`SlotFilter::LockedSession`], waits briefly for the session's lock.
    pub(super) async fn lease(&self, db: &mut dyn Executor, filter: &SlotFilter) -> OpResult<LeaseAttempt> {
        // The query also locks the session's row. If another transaction has locked this row, it is about to overwrite
        // the session's slots, so these slots are skipped.
        let (mut before, mut lock) = (SqlBatch::new(), " FOR NO KEY UPDATE OF s, o SKIP LOCKED");
        if let SlotFilter::LockedSession(session) = filter {
            // Locks the session first, like every writer of a session, so that two transactions cannot deadlock.
            let lock_session = "SELECT 1 FROM epitome.sessions WHERE id = $1 FOR NO KEY UPDATE";
            before.push(Sql::per_database(SHORT_LOCK_TIMEOUT, "SELECT 1", []));
            before.push(Sql::new(lock_session, [(*session).into()]));
            lock = " FOR NO KEY UPDATE OF s SKIP LOCKED";
        }
        let attempt = async {
            let Some((slot, id, key)) = self.first_ready(db, before, filter, lock).await? else {
                return Ok(LeaseAttempt::NoneReady);
            };
            let now = db.now().await?;
            let slot = self.request.leased(slot, now);
            db.evict(&key);
            let batch = {
                let mut writes = SessionWrites { batch: SqlBatch::new(), id, key: &key };
                writes.put_slot(&slot, slot.active);
                writes.batch
            };
            // After a lost connection, this query shows whether the lease was written. The query also compares owner
            // and expiry: if this commit was lost, another worker may have a lease with the same fencing token.
            let sql = "SELECT 1 FROM epitome.slots WHERE session = $1 AND scope = $2 AND name = $3 AND fence = $4 \
                 AND work::json ->> 'owner' = $5 AND (work::json ->> 'until')::bigint = $6";
            let (scope, name) = (scope_text(&slot.scope).into(), slot.name.as_str().into());
            let (owner, until) = (self.request.owner.as_str().into(), slot.work.until.into());
            let commit_check = Sql::new(sql, [id.into(), scope, name, slot.fence.into(), owner, until]);
            db.finish_checked(batch, Some(commit_check)).await?;
            Ok(LeaseAttempt::Leased(Box::new(Lease { key, id, slot, now })))
        };
        match attempt.await {
            Err(OpError::Timeout) if matches!(filter, SlotFilter::LockedSession(_)) => {
                Ok(LeaseAttempt::StillLocked)
            }
            result => result,
        }
    }

    /// Runs the statements in `before`, then returns the first ready slot that the worker accepts.
    async fn first_ready<'a>(
        &'a self,
        db: &mut dyn Executor,
        before: SqlBatch<'a>,
        filter: &'a SlotFilter,
        lock: &str,
    ) -> OpResult<Option<(SlotRow, SessionId, SessionKey)>> {
        let mut found = None;
        let each = |row: RowRef<'_>| {
            let (slot, id) = (decode::slot(row)?, row.int(SESSION)?);
            if self.request.excluded.contains(&(id, slot.scope.clone(), slot.name.clone())) {
                return Ok(true);
            }
            found = Some((slot, id, SessionKey::new(row.text(SESSION + 1)?, row.text(SESSION + 2)?)));
            Ok(false)
        };
        let ready = self.ready_slots(filter, lock, db.in_file());
        db.run(before.each(ready, each)).await?;
        Ok(found)
    }

    /// Returns the query for ready slots, longest-waiting first. In PostgreSQL, the query excludes slots that the
    /// worker does not accept, and returns one row. SQLite returns rows one by one, so the caller skips such slots
    /// itself.
    fn ready_slots<'a>(&'a self, filter: &'a SlotFilter, lock: &str, in_file: bool) -> Sql<'a> {
        let mut params: Vec<SqlParam<'a>> = vec![self.now.into()];
        let mut order = "ORDER BY s.ready_at, s.session, s.scope, s.name";
        let (index, condition) = match filter {
            SlotFilter::Any => (" INDEXED BY slots_ready", "true"),
            SlotFilter::Workspace(workspace) => {
                params.push((&**workspace).into());
                // Only the index `slots_in_turn` matches this condition and this order. With the index `slots_ready`,
                // the database would read the waiting slots of all workspaces.
                order = "ORDER BY s.workspace, s.ready_at, s.session, s.scope, s.name";
                (" INDEXED BY slots_in_turn", "s.workspace >= $2 AND (s.workspace, s.ready_at) <= ($2, $1)")
            }
            SlotFilter::Session(key) => {
                params.extend([(&*key.workspace).into(), (&*key.session).into()]);
                let condition = "s.session = (SELECT id FROM epitome.sessions WHERE workspace = $2 AND name = $3 \
                     AND state = 'open')";
                ("", condition)
            }
            SlotFilter::LockedSession(session) => {
                params.push((*session).into());
                ("", "s.session = $2")
            }
        };
        let (mut not_excluded, mut limit) = (String::new(), "");
        if !in_file {
            let at = params.len();
            let slots = || self.request.excluded.iter();
            params.extend([
                SqlParam::Ints(slots().map(|(id, ..)| *id).collect()),
                SqlParam::Texts(slots().map(|(_, scope, _)| scope_text(scope).into()).collect()),
                SqlParam::Texts(slots().map(|(.., name)| name.as_str().into()).collect()),
            ]);
            let [ids, scopes, names] = [at + 1, at + 2, at + 3];
            not_excluded = format!(
                " AND (s.session, s.scope, s.name) NOT IN \
                 (SELECT * FROM unnest(${ids}::bigint[], ${scopes}::text[], ${names}::text[]))"
            );
            limit = " LIMIT 1";
        }
        let sql = format!(
            "SELECT {SLOT}, s.session, o.workspace, o.name FROM epitome.slots s{index} CROSS JOIN epitome.sessions o \
             WHERE o.id = s.session AND o.state = 'open' AND s.ready_at IS NOT NULL AND s.ready_at <= $1 \
             AND {condition}{not_excluded} {order}{limit}{lock}"
        );
        Sql::new(sql, params)
    }
}

/// The position from which the next walk through the workspaces continues. A lease in a workspace that the walk found
/// clears the position. The position stays set if the walk leads to no lease: it finds no ready slot, or every attempt
/// to lease a slot fails.
#[derive(Debug, Default)]
pub struct WalkPosition(Mutex<Option<Reached>>);

/// The last workspace visited, and the workspaces found with a ready slot.
type Reached = (Arc<str>, Vec<Arc<str>>);

impl WalkPosition {
    fn workspace(&self) -> Option<Arc<str>> {
        self.lock().as_ref().map(|(workspace, _)| Arc::clone(workspace))
    }

    fn set(&self, reached: Option<Reached>) {
        *self.lock() = reached;
    }

    /// Called after a slot of this workspace was leased. If the last walk found this workspace, clears the position.
    /// The next walk then starts after this workspace, which is now the workspace that was served last.
    pub(super) fn on_leased(&self, workspace: &Arc<str>) {
        let mut reached = self.lock();
        if reached.as_ref().is_some_and(|(_, found)| found.contains(workspace)) {
            *reached = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Reached>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
