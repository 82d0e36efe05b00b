//! Taking a slot: whose turn it is, and which of theirs waits longest.
//!
//! Mostly few are ready, and all of them are seen. Where there are many, the workspaces are gone through by name, each of them
//! one step however much of it is ready: so a poll costs the same when one has a hundred thousand waiting, and those
//! of the others are found all the same. Where a poll's steps do not lead round, the next one goes on from there.
//!
//! Slots that somebody else is taking or writing to right now are passed over, so that nobody waits for anybody. Only where
//! nothing else is ready are they waited for, and not for long: a session that is written to all the time would never have
//! its turn otherwise, and whoever works until nothing is due would stop too early.

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

/// A worker's hold on a slot.
#[derive(Debug, Clone, PartialEq)]
pub struct Lease {
    /// Which session.
    pub key: SessionKey,
    /// The session's number.
    pub id: SessionId,
    /// The slot as it was taken, with this worker's name and fence in it.
    pub slot: SlotRow,
    /// The moment it was taken.
    pub now: Timestamp,
}

/// What a worker is willing to take.
#[derive(Debug, Clone)]
pub struct Want {
    /// The worker's name.
    pub owner: String,
    /// For how long.
    pub hold: Duration,
    /// Only slots of this session.
    pub session: Option<SessionKey>,
    /// None of these.
    pub except: HashSet<(SessionId, Scope, String)>,
    /// The workspace that was served last. Turns go round by name: the next one after it that has something ready comes
    /// first, and after the last the first again. `None`: whoever waits longest, whosesoever it is.
    pub after: Option<Arc<str>>,
    /// Workspaces that hold enough workers already: they are passed over.
    pub full: HashSet<Arc<str>>,
}

impl Want {
    /// The slot in this worker's hold. Where time alone made it due, it fires now.
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

/// So many of those that wait longest are looked at. Seldom are more ready, and then it is known whose turn it is.
const NEAR: usize = 200;

/// Where more are ready, so many workspaces are gone through. Those whose slots wait for a later time are among them.
const STEPS: usize = 1_000;

/// So many of them are tried in vain before that is given up: others are taking what they have, or it is not wanted.
const MOST_TRIED: usize = 8;

/// How long somebody who writes to a session is waited for. Nobody is in SQLite, where one writes at a time.
const WAIT_A_LITTLE: &str = "SET LOCAL lock_timeout = '200ms'";

/// The moment, where anything is ready by then. Workers ask often, and most often in vain: that must not cost a transaction.
pub(super) async fn anything_ready(ask: &mut dyn Ask) -> Outcome<Option<Timestamp>> {
    let sql = Sql::new("SELECT min(ready_at) FROM epitome.slots WHERE ready_at IS NOT NULL", []);
    let mut first = None;
    ask.finish(Batch::new().first(sql, &mut first, |row| row.maybe_int(0)).timed()).await?;
    let now = ask.now().await?;
    Ok(first.flatten().filter(|ready| *ready <= now.0).map(|_| now))
}

/// Whose slots are in question.
#[derive(Clone, PartialEq)]
pub(super) enum Of {
    Anybody,
    Workspace(Arc<str>),
    Session(SessionKey),
    /// A session that was being written to.
    PassedOver(SessionId),
}

/// Where the session's number stands in a row of [`Poll::ready`].
const SESSION: usize = 6;

/// What became of an attempt to take a slot.
pub(super) enum Taken {
    Nothing,
    /// Another transaction held the session's lock for longer than the wait.
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
    /// Whose slots are to be tried, in this order. It only looks: what is in vain must not cost a transaction.
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
        // A file is walked along at once as far as it may be, a server from one poll to the next.
        let mut turns = Vec::new();
        for _ in 0..if ask.in_file() { STEPS / MOST_TRIED } else { 1 } {
            let found = self.in_turn(ask).await?.into_iter().map(Of::Workspace).collect();
            turns = self.with_something(ask, found).await?;
            if !turns.is_empty() || self.walked.place().is_none() {
                break;
            }
        }
        // Or whoever waits longest, so that nobody is idle while it is gone through the others.
        let near = near.into_iter().filter(|of| !turns.contains(of)).collect();
        turns.append(&mut self.with_something(ask, near).await?);
        Ok(turns)
    }

    /// The first of these that has a slot to be taken, where that is seen without waiting; else all of them.
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

    /// The workspaces of those that wait longest, and whether there are more than were looked at.
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

    /// Goes from one workspace to the next by their names, from where the last walk ended or the one served last, round to
    /// it again.
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

    /// Goes along the workspaces between these two, so many steps at most, until enough of them have something ready. Returns
    /// where it stopped, or `None` at the end, and how many steps it took.
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
        // Its rows come one by one, and whoever reads them stops.
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

    /// The session of the one that waits longest, though it is being written to.
    pub(super) async fn passed_over(&self, ask: &mut dyn Ask, of: &Of) -> Outcome<Option<Of>> {
        Ok(self.first(ask, Batch::new(), of, "").await?.map(|(_, id, _)| Of::PassedOver(id)))
    }

    /// Takes the one that waits longest of those in question, and that nobody writes to. A session that was passed over is
    /// waited for a little.
    pub(super) async fn take(&self, ask: &mut dyn Ask, of: &Of) -> Outcome<Taken> {
        // The session's row too: whoever holds it is about to write its slots over.
        let (mut ahead, mut lock) = (Batch::new(), " FOR NO KEY UPDATE OF s, o SKIP LOCKED");
        if let Of::PassedOver(session) = of {
            // The session first, as whoever writes to it does: so two who wait never wait for each other.
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
            // Two that believe to hold it under one fence would both write.
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

    /// The first slot that is wanted of those that are ready, after these statements.
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

    /// Slots that are ready, the one that waits longest first. A server is asked for the first that is wanted; the rows of a
    /// file come one by one, and those that are not wanted are passed over as they come.
    fn ready<'a>(&'a self, of: &'a Of, lock: &str, in_file: bool) -> Sql<'a> {
        let mut given: Vec<Given<'a>> = vec![self.now.into()];
        let mut first = "ORDER BY s.ready_at, s.session, s.scope, s.name";
        let (index, own) = match of {
            Of::Anybody => (" INDEXED BY slots_ready", "true"),
            Of::Workspace(workspace) => {
                given.push((&**workspace).into());
                // Said so that only the index by workspace gives that order, and ends where nothing more is ready: the
                // other one would lead through what everybody else has waiting.
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

/// Where the walk along the workspaces goes on while it leads to nothing: no step of it found anything, or all that was found
/// was tried in vain.
#[derive(Debug, Default)]
pub struct Place(Mutex<Option<Reached>>);

/// How far it came, and what it found.
type Reached = (Arc<str>, Vec<Arc<str>>);

impl Place {
    fn place(&self) -> Option<Arc<str>> {
        self.lock().as_ref().map(|(place, _)| Arc::clone(place))
    }

    fn keep(&self, walked: Option<Reached>) {
        *self.lock() = walked;
    }

    /// Something of this workspace was taken. Where the walk led to it, the next one begins there.
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
