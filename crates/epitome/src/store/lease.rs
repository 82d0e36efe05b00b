//! Taking a slot: whose turn it is, and which of theirs waits longest.
//!
//! Mostly few are ready, and all of them are seen. Where there are many, the workspaces are gone through by name, each of them
//! one step however much of it is ready: so a poll costs the same when one has a hundred thousand waiting, and those
//! of the others are found all the same. Where a poll's steps do not lead round, the next one goes on from there.
//!
//! Slots that somebody else is taking or writing to right now are passed over, so that nobody waits for anybody. Only where
//! nothing else is ready are they waited for, and not for long: a session that is written to all the time would never have
//! its turn otherwise, and whoever works until nothing is due would stop too early.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use epitome_core::message::Timestamp;

use super::ask::{self, Ask, Batch};
use super::columns::{scope_of, scope_text};
use super::decode::{self, Found, SLOT};
use super::given::Given;
use super::rows::{SessionId, SessionKey};
use super::slots::{Lease, Want};
use super::sql::Sql;
use super::statements;
use super::trouble::{Outcome, Trouble};

/// So many of those that wait longest are looked at. Seldom are more ready, and then it is known whose turn it is.
const NEAR: usize = 200;

/// Where more are ready, so many workspaces are gone through. Those whose slots wait for a later time are among them.
const STEPS: usize = 1_000;

/// So many of them are tried in vain before that is given up: others are taking what they have, or it is not wanted.
const MOST_TRIED: usize = 8;

/// The one that waits longest.
const FIRST: &str = "ORDER BY s.ready_at, s.session, s.scope, s.name LIMIT 1";

/// The one of the workspace `$5` that waits longest. Said so that only the index by workspace gives that order, and ends where
/// nothing more is ready: the other one would lead through what everybody else has waiting.
const FIRST_OF_WORKSPACE: &str = "s.workspace >= $5 AND (s.workspace, s.ready_at) <= ($5, $1) \
     ORDER BY s.workspace, s.ready_at, s.session, s.scope, s.name LIMIT 1";

/// How long somebody who writes to a session is waited for. Nobody is in SQLite, where one writes at a time.
const WAIT_A_LITTLE: &str = "SET LOCAL lock_timeout = '200ms'";

/// [`Store::lease`](super::Store::lease), where something is ready.
pub(super) async fn lease(
    ask: &mut dyn Ask,
    want: &Want,
    now: Timestamp,
    walked: &Place,
) -> Outcome<Option<Lease>> {
    if want.session.as_ref().is_some_and(|key| want.full.contains(&key.workspace)) {
        return Ok(None);
    }
    if want.session.is_some() || want.after.is_none() && want.full.is_empty() {
        let of = want.session.as_ref().map_or(Of::Anybody, Of::Session);
        return match take_one(ask, want, now, of).await? {
            Some(lease) => Ok(Some(lease)),
            None => Ok(take_the_passed_over(ask, want, now, of).await?.lease()),
        };
    }
    let turns = whose_turn(ask, want, now, walked).await?;
    for workspace in &turns {
        if let Some(lease) = take_one(ask, want, now, Of::Workspace(workspace)).await? {
            walked.took(workspace);
            return Ok(Some(lease));
        }
    }
    for workspace in &turns {
        match take_the_passed_over(ask, want, now, Of::Workspace(workspace)).await? {
            PassedOver::Nothing => {}
            other => return Ok(other.lease()),
        }
    }
    Ok(None)
}

/// The moment, where anything is ready by then. Workers ask often, and most often in vain: that must not cost a transaction.
pub(super) async fn anything_ready(ask: &mut dyn Ask) -> Outcome<Option<Timestamp>> {
    let sql = Sql::new("SELECT min(ready_at) FROM epitome.slots WHERE ready_at IS NOT NULL", []);
    let mut first = None;
    ask.finish(Batch::new().first(sql, &mut first, |row| row.maybe_int(0)).timed()).await?;
    let now = ask.now().await?;
    Ok(first.flatten().filter(|ready| *ready <= now.0).map(|_| now))
}

/// The workspaces whose turn it is, in order.
async fn whose_turn(
    ask: &mut dyn Ask,
    want: &Want,
    now: Timestamp,
    walked: &Place,
) -> Outcome<Vec<Arc<str>>> {
    let (mut near, more) = near(ask, want, now).await?;
    if !more {
        if let Some(after) = &want.after {
            near.sort_by(|one, two| (one <= after, one).cmp(&(two <= after, two)));
        }
        return Ok(near);
    }
    near.truncate(MOST_TRIED);
    if want.after.is_none() && !near.is_empty() {
        return Ok(near);
    }
    let mut turns = in_turn(ask, want, now, walked).await?;
    near.retain(|workspace| !turns.contains(workspace));
    turns.append(&mut near);
    Ok(turns)
}

/// The workspaces of those that wait longest, and whether there are more than were looked at.
async fn near(ask: &mut dyn Ask, want: &Want, now: Timestamp) -> Outcome<(Vec<Arc<str>>, bool)> {
    let sql = "SELECT workspace, session, scope, name FROM epitome.slots INDEXED BY slots_ready \
         WHERE ready_at IS NOT NULL AND ready_at <= $1 ORDER BY ready_at LIMIT $2";
    let (mut near, mut seen): (Vec<Arc<str>>, usize) = (Vec::new(), 0);
    let each = |row: Found<'_>| {
        seen += 1;
        let workspace = row.text(0)?;
        let slot = (row.int(1)?, scope_of(row.text(2)?), row.string(3)?);
        let wanted = !want.full.contains(workspace) && !want.except.contains(&slot);
        if wanted && !near.iter().any(|known| **known == *workspace) {
            near.push(workspace.into());
        }
        Ok(true)
    };
    ask.ask(Batch::new().each(Sql::new(sql, [now.into(), NEAR.into()]), each)).await?;
    Ok((near, seen >= NEAR))
}

/// Goes from one workspace to the next by their names, from where the last walk ended or the one served last, round to it
/// again.
async fn in_turn(ask: &mut dyn Ask, want: &Want, now: Timestamp, walked: &Place) -> Outcome<Vec<Arc<str>>> {
    let after = walked.place().or_else(|| want.after.clone()).unwrap_or_else(|| "".into());
    let mut turns = Vec::new();
    let mut last = walk(ask, want, now, (&after, None, STEPS), &mut turns).await?;
    if let Walked::Around(steps) = last {
        let left = STEPS.saturating_sub(steps);
        last = walk(ask, want, now, ("", Some(&after), left), &mut turns).await?;
    }
    walked.keep(match last {
        Walked::To(place) => Some((place, turns.clone())),
        Walked::Around(_) => None,
    });
    Ok(turns)
}

/// Goes along the workspaces between these two, so many steps at most, until enough of them have something ready.
async fn walk(
    ask: &mut dyn Ask,
    want: &Want,
    now: Timestamp,
    (after, through, steps): (&str, Option<&str>, usize),
    turns: &mut Vec<Arc<str>>,
) -> Outcome<Walked> {
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
    let full = want.full.iter().map(|name| name.as_ref().into()).collect();
    let given = [after.into(), now.into(), Given::Texts(full), steps.into(), wanted.into(), through.into()];
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
    let Some((place, taken)) = last else { return Ok(Walked::Around(0)) };
    let taken = usize::try_from(taken).unwrap_or(usize::MAX);
    let ended = taken < steps && ready < wanted || through.is_some_and(|through| *place >= *through);
    Ok(if ended { Walked::Around(taken) } else { Walked::To(place) })
}

/// Takes the one that waits longest of those in question, and that nobody writes to.
async fn take_one(ask: &mut dyn Ask, want: &Want, now: Timestamp, of: Of<'_>) -> Outcome<Option<Lease>> {
    let ready = of.ready(want, now, " FOR NO KEY UPDATE OF s, o SKIP LOCKED");
    take(ask, want, Batch::new(), ready).await
}

/// Takes the one that waits longest, though its session is being written to: it waits for that to be done.
async fn take_the_passed_over(
    ask: &mut dyn Ask,
    want: &Want,
    now: Timestamp,
    of: Of<'_>,
) -> Outcome<PassedOver> {
    let found = ask::first(ask, of.ready(want, now, ""), |row| row.int(SESSION)).await?;
    let Some(session) = found else { return Ok(PassedOver::Nothing) };
    let wait = Sql::own(WAIT_A_LITTLE, "SELECT 1", []);
    let lock = "SELECT 1 FROM epitome.sessions WHERE id = $1 FOR NO KEY UPDATE";
    let held = Batch::new().run(wait).run(Sql::new(lock, [session.into()]));
    let ready = Of::Number(session).ready(want, now, " FOR NO KEY UPDATE OF s SKIP LOCKED");
    match take(ask, want, held, ready).await {
        Err(Trouble::Slow) => Ok(PassedOver::StillHeld),
        taken => Ok(taken?.map_or(PassedOver::Nothing, |lease| PassedOver::Taken(Box::new(lease)))),
    }
}

/// How far a walk along the workspaces came.
enum Walked {
    /// To its end, with so many steps.
    Around(usize),
    /// To this one.
    To(Arc<str>),
}

/// What became of waiting for somebody who writes to a session.
enum PassedOver {
    Nothing,
    /// They held it for longer than they were waited for.
    StillHeld,
    Taken(Box<Lease>),
}

impl PassedOver {
    fn lease(self) -> Option<Lease> {
        match self {
            Self::Taken(lease) => Some(*lease),
            Self::Nothing | Self::StillHeld => None,
        }
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
    fn took(&self, workspace: &Arc<str>) {
        let mut walked = self.lock();
        if walked.as_ref().is_some_and(|(_, found)| found.contains(workspace)) {
            *walked = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Reached>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whose slots are in question.
#[derive(Clone, Copy)]
enum Of<'a> {
    Anybody,
    Workspace(&'a str),
    Session(&'a SessionKey),
    Number(SessionId),
}

/// Where the session's number stands in a row of [`Of::ready`].
const SESSION: usize = 6;

impl<'a> Of<'a> {
    /// The slot that waits longest of those that are ready at `$1` and none of `$2`, `$3`, `$4`.
    fn ready(self, want: &'a Want, now: Timestamp, lock: &str) -> Sql<'a> {
        let mut except = (Vec::new(), Vec::new(), Vec::new());
        for (id, scope, name) in &want.except {
            except.0.push(*id);
            except.1.push(scope_text(scope).into());
            except.2.push(name.as_str().into());
        }
        let mut given =
            vec![now.into(), Given::Ints(except.0), Given::Texts(except.1), Given::Texts(except.2)];
        let (index, first) = match self {
            Self::Anybody => (" INDEXED BY slots_ready", format!("true {FIRST}")),
            Self::Workspace(workspace) => {
                given.push(workspace.into());
                (" INDEXED BY slots_in_turn", FIRST_OF_WORKSPACE.to_owned())
            }
            Self::Session(key) => {
                given.extend([(&*key.workspace).into(), (&*key.session).into()]);
                let number =
                    "SELECT id FROM epitome.sessions WHERE workspace = $5 AND name = $6 AND state = 'open'";
                ("", format!("s.session = ({number}) {FIRST}"))
            }
            Self::Number(session) => {
                given.push(session.into());
                ("", format!("s.session = $5 {FIRST}"))
            }
        };
        let sql = |except: &str| {
            format!(
                "SELECT {SLOT}, s.session, o.workspace, o.name FROM epitome.slots s{index} CROSS JOIN epitome.sessions o \
                 WHERE o.id = s.session AND o.state = 'open' AND s.ready_at IS NOT NULL AND s.ready_at <= $1 \
                 AND (s.session, s.scope, s.name) NOT IN (SELECT {except}) AND {first}{lock}"
            )
        };
        Sql::own(
            sql("* FROM unnest($2::bigint[], $3::text[], $4::text[])"),
            sql("a.value, b.value, c.value FROM json_each($2) a JOIN json_each($3) b ON b.key = a.key \
                 JOIN json_each($4) c ON c.key = a.key"),
            given,
        )
    }
}

/// Takes the slot in the row that `ready` asks for, after these statements.
async fn take<'a>(
    ask: &mut dyn Ask,
    want: &Want,
    ahead: Batch<'a>,
    ready: Sql<'a>,
) -> Outcome<Option<Lease>> {
    let mut found = None;
    let read = |row: Found<'_>| {
        let key = SessionKey::new(row.text(SESSION + 1)?, row.text(SESSION + 2)?);
        Ok((decode::slot(row)?, row.int(SESSION)?, key))
    };
    ask.ask(ahead.first(ready, &mut found, read)).await?;
    let Some((slot, id, key)) = found else { return Ok(None) };
    let now = ask.now().await?;
    let slot = want.take(slot, now);
    ask.forget(&key);
    let put = statements::put_slot((id, &key.workspace), &slot, slot.active);
    // Two that believe to hold it under one fence would both write.
    let sql = "SELECT 1 FROM epitome.slots WHERE session = $1 AND scope = $2 AND name = $3 AND fence = $4 \
         AND work::json ->> 'owner' = $5 AND (work::json ->> 'until')::bigint = $6";
    let (owner, until) = (want.owner.as_str(), slot.work.until.map(|until| until.0));
    let of = scope_text(&slot.scope).into();
    let given = [id.into(), of, slot.name.as_str().into(), slot.fence.into(), owner.into(), until.into()];
    ask.finish_by(Batch::new().run(put), Some(Sql::new(sql, given))).await?;
    Ok(Some(Lease { key, id, slot, now }))
}
