//! Leases slots to workers: round-robin across workspaces, and the longest-waiting slot within a workspace.
//!
//! Usually few slots are ready, and a poll reads all of them. If many are ready, the poll walks through the workspaces by
//! name. Each workspace is one step, regardless of how many of its slots are ready. So a poll costs the same if one
//! workspace has a hundred thousand ready slots, and the slots of the other workspaces are still found. If a poll reaches
//! its maximum number of steps before it visited all workspaces, the next poll continues there.
//!
//! Slots that another transaction is leasing or writing are skipped (`SKIP LOCKED`), so that workers do not wait for locks.
//! Only if no other slot is ready does the worker wait for such a lock, and only briefly. Without this, a session that is
//! written all the time would never get its turn, and a caller that works until nothing is due would stop too early.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use epitome_core::message::Timestamp;
use epitome_core::slot::Scope;

use super::ask::{Ask, Batch};
use super::change::Writing;
use super::decode::{self, Found, SLOT, scope_of, scope_text};
use super::given::Given;
use super::rows::{SessionId, SessionKey, SlotRow};
use super::sql::Sql;
use super::trouble::{Outcome, Trouble};

/// A worker's lease on a slot.
#[derive(Debug, Clone, PartialEq)]
pub struct Lease {
    /// The session.
    pub key: SessionKey,
    /// The session's id.
    pub id: SessionId,
    /// The leased slot, with this worker's name and the new fencing token.
    pub slot: SlotRow,
    /// When the lease began.
    pub now: Timestamp,
}

/// Which slots a worker accepts, and the terms of its lease.
#[derive(Debug, Clone)]
pub struct Want {
    /// The worker's name.
    pub owner: String,
    /// Duration of the lease.
    pub hold: Duration,
    /// If set, only slots of this session.
    pub session: Option<SessionKey>,
    /// Slots that the worker does not accept.
    pub except: HashSet<(SessionId, Scope, String)>,
    /// The workspace that was served last. Workspaces are served round-robin by name: the next one is the first after this
    /// name that has a ready slot. `None` leases the longest-waiting slot of any workspace.
    pub after: Option<Arc<str>>,
    /// Workspaces that already have their maximum number of workers. They are skipped.
    pub full: HashSet<Arc<str>>,
}

impl Want {
    /// Returns the slot with this worker's lease. If only elapsed time made the slot due, its trigger fires now.
    fn take(&self, mut slot: SlotRow, now: Timestamp) -> SlotRow {
        if slot.state.due.is_none() {
            slot.state.tick(now);
            slot.mark(now);
        }
        slot.fence = slot.fence.saturating_add(1);
        slot.work.owner = Some(self.owner.clone());
        let hold = i64::try_from(self.hold.as_millis()).unwrap_or(i64::MAX);
        slot.work.until = Some(Timestamp(now.0.saturating_add(hold)));
        slot
    }
}

/// Maximum number of longest-waiting slots that a poll reads. Usually fewer are ready; then they show all workspaces that
/// have work.
const NEAR: usize = 200;

/// Maximum number of workspaces visited per poll if more slots are ready. Workspaces with slots that are not yet ready count
/// too.
const STEPS: usize = 1_000;

/// Maximum number of workspaces tried per poll. An attempt fails if other workers are leasing the slots or `except` excludes
/// them.
const MOST_TRIED: usize = 8;

/// How long to wait for another writer of a session. SQLite never waits here, because it has a single writer.
const WAIT_A_LITTLE: &str = "SET LOCAL lock_timeout = '200ms'";

/// Returns the current time if any slot is ready, without a transaction: workers poll often, and usually nothing is ready.
pub(super) async fn anything_ready(ask: &mut dyn Ask) -> Outcome<Option<Timestamp>> {
    let sql = Sql::new("SELECT min(ready_at) FROM epitome.slots WHERE ready_at IS NOT NULL", []);
    let mut first = None;
    ask.finish(Batch::new().first(sql, &mut first, |row| row.maybe_int(0)).timed()).await?;
    let now = ask.now().await?;
    Ok(first.flatten().filter(|ready| *ready <= now.0).map(|_| now))
}

/// Selects the slots to try.
#[derive(Clone, PartialEq)]
pub(super) enum Of {
    Anybody,
    Workspace(Arc<str>),
    Session(SessionKey),
    /// A session that was skipped because it was being written.
    PassedOver(SessionId),
}

/// The position of the session's id in a row of [`Poll::ready`].
const SESSION: usize = 6;

/// The result of an attempt to lease a slot.
pub(super) enum Taken {
    Nothing,
    /// Another transaction did not release the session's lock in time.
    StillHeld,
    Lease(Box<Lease>),
}

/// A worker's request for a slot, with the store's time when it began.
pub(super) struct Poll {
    pub(super) want: Want,
    pub(super) now: Timestamp,
    pub(super) walked: Arc<Place>,
}

impl Poll {
    /// Returns which slots to try, in order. Only reads, because a poll without result must not need a transaction.
    pub(super) async fn whose_turn(&self, ask: &mut dyn Ask) -> Outcome<Vec<Of>> {
        let Want { session, after, full, .. } = &self.want;
        if let Some(key) = session {
            let turns =
                if full.contains(&key.workspace) { Vec::new() } else { vec![Of::Session(key.clone())] };
            return self.with_something(ask, turns).await;
        }
        if after.is_none() && full.is_empty() {
            return self.with_something(ask, vec![Of::Anybody]).await;
        }
        let (mut near, more) = self.near(ask).await?;
        if let (false, Some(after)) = (more, after) {
            near.sort_by(|one, two| (one <= after, one).cmp(&(two <= after, two)));
        }
        if more {
            near.truncate(MOST_TRIED);
        }
        let near: Vec<Of> = near.into_iter().map(Of::Workspace).collect();
        if !more || after.is_none() && !near.is_empty() {
            return self.with_something(ask, near).await;
        }
        // For a file, all steps run in this poll. For a server, one part runs per poll, to limit the round trips.
        let mut turns = Vec::new();
        for _ in 0..if ask.in_file() { STEPS / MOST_TRIED } else { 1 } {
            let found = self.in_turn(ask).await?.into_iter().map(Of::Workspace).collect();
            turns = self.with_something(ask, found).await?;
            if !turns.is_empty() || self.walked.place().is_none() {
                break;
            }
        }
        // Then the longest-waiting slots, so that workers are not idle while the walk takes several polls.
        let near = near.into_iter().filter(|of| !turns.contains(of)).collect();
        turns.append(&mut self.with_something(ask, near).await?);
        Ok(turns)
    }

    /// For a file, returns the first selection that has a slot to lease. For a server, returns all, to save round trips.
    async fn with_something(&self, ask: &mut dyn Ask, turns: Vec<Of>) -> Outcome<Vec<Of>> {
        if !ask.in_file() {
            return Ok(turns);
        }
        for of in turns {
            if self.first(ask, Batch::new(), &of, "").await?.is_some() {
                return Ok(vec![of]);
            }
        }
        Ok(Vec::new())
    }

    /// Returns the workspaces of the longest-waiting slots, and whether there may be more than [`NEAR`] ready slots.
    async fn near(&self, ask: &mut dyn Ask) -> Outcome<(Vec<Arc<str>>, bool)> {
        let sql = "SELECT workspace, session, scope, name FROM epitome.slots INDEXED BY slots_ready \
             WHERE ready_at IS NOT NULL AND ready_at <= $1 ORDER BY ready_at LIMIT $2";
        let (mut near, mut seen): (Vec<Arc<str>>, usize) = (Vec::new(), 0);
        let each = |row: Found<'_>| {
            seen += 1;
            let workspace = row.text(0)?;
            let slot = (row.int(1)?, scope_of(row.text(2)?), row.string(3)?);
            let wanted = !self.want.full.contains(workspace) && !self.want.except.contains(&slot);
            if wanted && !near.iter().any(|known| **known == *workspace) {
                near.push(workspace.into());
            }
            Ok(true)
        };
        ask.ask(Batch::new().each(Sql::new(sql, [self.now.into(), NEAR.into()]), each)).await?;
        Ok((near, seen >= NEAR))
    }

    /// Walks through the workspaces by name and returns those with a ready slot. Starts where the last walk stopped, or
    /// after the workspace served last, and wraps around to the start.
    async fn in_turn(&self, ask: &mut dyn Ask) -> Outcome<Vec<Arc<str>>> {
        let after = self.walked.place().or_else(|| self.want.after.clone()).unwrap_or_else(|| "".into());
        let mut turns = Vec::new();
        let (mut place, steps) = self.walk(ask, (&after, None, STEPS), &mut turns).await?;
        if place.is_none() {
            let left = STEPS.saturating_sub(steps);
            (place, _) = self.walk(ask, ("", Some(&after), left), &mut turns).await?;
        }
        self.walked.keep(place.map(|place| (place, turns.clone())));
        Ok(turns)
    }

    /// Walks through the workspaces after `after` up to `through`, at most `steps` of them, until enough have a ready slot.
    /// Returns where it stopped (`None` if it reached the end), and the number of steps.
    async fn walk(
        &self,
        ask: &mut dyn Ask,
        (after, through, steps): (&str, Option<&str>, usize),
        turns: &mut Vec<Arc<str>>,
    ) -> Outcome<(Option<Arc<str>>, usize)> {
        let wanted = MOST_TRIED.saturating_sub(turns.len());
        let postgres = "WITH RECURSIVE turn AS ( \
             (SELECT workspace, ready_at <= $2 AND workspace <> ALL($3) AS ready, 1::bigint AS step, \
             (ready_at <= $2 AND workspace <> ALL($3))::integer::bigint AS found FROM epitome.slots \
             WHERE ready_at IS NOT NULL AND workspace > $1 AND $4 > 0 AND $5 > 0 ORDER BY workspace, ready_at LIMIT 1) \
             UNION ALL SELECT n.workspace, n.ready, turn.step + 1, turn.found + n.ready::integer FROM turn CROSS JOIN LATERAL \
             (SELECT s.workspace, s.ready_at <= $2 AND s.workspace <> ALL($3) AS ready FROM epitome.slots s \
             WHERE s.ready_at IS NOT NULL AND s.workspace > turn.workspace ORDER BY s.workspace, s.ready_at LIMIT 1) n \
             WHERE turn.step < $4 AND turn.found < $5 AND ($6::text IS NULL OR turn.workspace < $6)) \
             SELECT workspace, ready, step FROM turn WHERE ready OR step = (SELECT max(step) FROM turn) ORDER BY step";
        // SQLite computes the rows one by one, so the reader stops when it has enough.
        let sqlite = "WITH RECURSIVE turn (workspace, step) AS ( \
             SELECT min(workspace), 1 FROM slots INDEXED BY slots_in_turn \
             WHERE ready_at IS NOT NULL AND workspace > ?1 AND ?4 > 0 AND ?5 > 0 \
             UNION ALL SELECT (SELECT min(s.workspace) FROM slots s INDEXED BY slots_in_turn \
             WHERE s.ready_at IS NOT NULL AND s.workspace > turn.workspace), step + 1 FROM turn \
             WHERE workspace IS NOT NULL AND step < ?4 AND (?6 IS NULL OR workspace < ?6)) \
             SELECT workspace, workspace NOT IN (SELECT value FROM json_each(?3)) AND (SELECT min(s.ready_at) \
             FROM slots s INDEXED BY slots_in_turn WHERE s.ready_at IS NOT NULL AND s.workspace = turn.workspace) <= ?2, step \
             FROM turn WHERE workspace IS NOT NULL";
        let full = self.want.full.iter().map(|name| name.as_ref().into()).collect();
        let given =
            [after.into(), self.now.into(), Given::Texts(full), steps.into(), wanted.into(), through.into()];
        let (mut last, mut ready) = (None, 0);
        let each = |row: Found<'_>| {
            let workspace = row.name(0)?;
            if row.flag(1)? && through.is_none_or(|through| *workspace <= *through) {
                ready += 1;
                turns.push(Arc::clone(&workspace));
            }
            last = Some((workspace, row.uint(2)?));
            Ok(ready < wanted)
        };
        ask.ask(Batch::new().each(Sql::own(postgres, sqlite, given), each)).await?;
        let Some((place, taken)) = last else { return Ok((None, 0)) };
        let taken = usize::try_from(taken).unwrap_or(usize::MAX);
        let ended = taken < steps && ready < wanted || through.is_some_and(|through| *place >= *through);
        Ok(((!ended).then_some(place), taken))
    }

    /// Returns the session of the longest-waiting slot, including sessions that are being written.
    pub(super) async fn passed_over(&self, ask: &mut dyn Ask, of: &Of) -> Outcome<Option<Of>> {
        Ok(self.first(ask, Batch::new(), of, "").await?.map(|(_, id, _)| Of::PassedOver(id)))
    }

    /// Leases the longest-waiting of the selected slots that no other transaction has locked. For a session that was skipped
    /// before, waits briefly for its lock.
    pub(super) async fn take(&self, ask: &mut dyn Ask, of: &Of) -> Outcome<Taken> {
        // Locks the session's row too: a transaction that has locked it is about to overwrite its slots.
        let (mut ahead, mut lock) = (Batch::new(), " FOR NO KEY UPDATE OF s, o SKIP LOCKED");
        if let Of::PassedOver(session) = of {
            // Locks the session first, like every writer of a session, so that two transactions cannot deadlock.
            let held = "SELECT 1 FROM epitome.sessions WHERE id = $1 FOR NO KEY UPDATE";
            ahead.push(Sql::own(WAIT_A_LITTLE, "SELECT 1", []));
            ahead.push(Sql::new(held, [(*session).into()]));
            lock = " FOR NO KEY UPDATE OF s SKIP LOCKED";
        }
        let taken = async {
            let Some((slot, id, key)) = self.first(ask, ahead, of, lock).await? else {
                return Ok(Taken::Nothing);
            };
            let now = ask.now().await?;
            let slot = self.want.take(slot, now);
            ask.forget(&key);
            let batch = {
                let mut of = Writing { batch: Batch::new(), id, key: &key };
                of.put_slot(&slot, slot.active);
                of.batch
            };
            // After a lost connection this query shows whether the lease was written. It compares owner and expiry too: if
            // two workers had a lease with the same fencing token, both would write.
            let sql = "SELECT 1 FROM epitome.slots WHERE session = $1 AND scope = $2 AND name = $3 AND fence = $4 \
                 AND work::json ->> 'owner' = $5 AND (work::json ->> 'until')::bigint = $6";
            let (scope, name) = (scope_text(&slot.scope).into(), slot.name.as_str().into());
            let (owner, until) = (self.want.owner.as_str().into(), slot.work.until.into());
            let known = Sql::new(sql, [id.into(), scope, name, slot.fence.into(), owner, until]);
            ask.finish_by(batch, Some(known)).await?;
            Ok(Taken::Lease(Box::new(Lease { key, id, slot, now })))
        };
        match taken.await {
            Err(Trouble::Slow) if matches!(of, Of::PassedOver(_)) => Ok(Taken::StillHeld),
            taken => taken,
        }
    }

    /// Runs the statements in `ahead`, then returns the first ready slot that the worker accepts.
    async fn first<'a>(
        &'a self,
        ask: &mut dyn Ask,
        ahead: Batch<'a>,
        of: &'a Of,
        lock: &str,
    ) -> Outcome<Option<(SlotRow, SessionId, SessionKey)>> {
        let mut found = None;
        let each = |row: Found<'_>| {
            let (slot, id) = (decode::slot(row)?, row.int(SESSION)?);
            if self.want.except.contains(&(id, slot.scope.clone(), slot.name.clone())) {
                return Ok(true);
            }
            found = Some((slot, id, SessionKey::new(row.text(SESSION + 1)?, row.text(SESSION + 2)?)));
            Ok(false)
        };
        let ready = self.ready(of, lock, ask.in_file());
        ask.ask(ahead.each(ready, each)).await?;
        Ok(found)
    }

    /// Returns the query for ready slots, longest-waiting first. On a server the query itself excludes slots that the worker
    /// does not accept, and returns one row. SQLite returns rows one by one, so the reader skips them.
    fn ready<'a>(&'a self, of: &'a Of, lock: &str, in_file: bool) -> Sql<'a> {
        let mut given: Vec<Given<'a>> = vec![self.now.into()];
        let mut first = "ORDER BY s.ready_at, s.session, s.scope, s.name";
        let (index, own) = match of {
            Of::Anybody => (" INDEXED BY slots_ready", "true"),
            Of::Workspace(workspace) => {
                given.push((&**workspace).into());
                // Written so that only the index by workspace provides this order and range. The other index would walk
                // through the waiting slots of all workspaces.
                first = "ORDER BY s.workspace, s.ready_at, s.session, s.scope, s.name";
                (" INDEXED BY slots_in_turn", "s.workspace >= $2 AND (s.workspace, s.ready_at) <= ($2, $1)")
            }
            Of::Session(key) => {
                given.extend([(&*key.workspace).into(), (&*key.session).into()]);
                let number = "s.session = (SELECT id FROM epitome.sessions WHERE workspace = $2 AND name = $3 \
                     AND state = 'open')";
                ("", number)
            }
            Of::PassedOver(session) => {
                given.push((*session).into());
                ("", "s.session = $2")
            }
        };
        let (mut wanted, mut limit) = (String::new(), "");
        if !in_file {
            let at = given.len();
            let slots = || self.want.except.iter();
            given.extend([
                Given::Ints(slots().map(|(id, ..)| *id).collect()),
                Given::Texts(slots().map(|(_, scope, _)| scope_text(scope).into()).collect()),
                Given::Texts(slots().map(|(.., name)| name.as_str().into()).collect()),
            ]);
            let [ids, scopes, names] = [at + 1, at + 2, at + 3];
            wanted = format!(
                " AND (s.session, s.scope, s.name) NOT IN \
                 (SELECT * FROM unnest(${ids}::bigint[], ${scopes}::text[], ${names}::text[]))"
            );
            limit = " LIMIT 1";
        }
        let sql = format!(
            "SELECT {SLOT}, s.session, o.workspace, o.name FROM epitome.slots s{index} CROSS JOIN epitome.sessions o \
             WHERE o.id = s.session AND o.state = 'open' AND s.ready_at IS NOT NULL AND s.ready_at <= $1 \
             AND {own}{wanted} {first}{limit}{lock}"
        );
        Sql::new(sql, given)
    }
}

/// The position where the next walk through the workspaces continues. It is set while walks lead to no lease: a walk found
/// no ready slot, or every attempt to lease one failed.
#[derive(Debug, Default)]
pub struct Place(Mutex<Option<Reached>>);

/// The last workspace visited, and the workspaces found with a ready slot.
type Reached = (Arc<str>, Vec<Arc<str>>);

impl Place {
    fn place(&self) -> Option<Arc<str>> {
        self.lock().as_ref().map(|(place, _)| Arc::clone(place))
    }

    fn keep(&self, walked: Option<Reached>) {
        *self.lock() = walked;
    }

    /// Notes that a slot of this workspace was leased. If the walk found it, the position is cleared: the next walk starts
    /// after this workspace, which is then the one served last.
    pub(super) fn took(&self, workspace: &Arc<str>) {
        let mut walked = self.lock();
        if walked.as_ref().is_some_and(|(_, found)| found.contains(workspace)) {
            *walked = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Reached>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
