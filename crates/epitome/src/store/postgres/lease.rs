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
use tokio_postgres::Row;

use super::super::columns::{scope_of, scope_text};
use super::super::decode::{self, SLOT};
use super::super::given::Given;
use super::super::rows::{SessionId, SessionKey};
use super::super::slots::{Lease, Want};
use super::super::statements;
use super::Postgres;
use super::error::{Outcome, Trouble};
use super::pipe::Pipe;
use super::rows::get;
use super::tx::{NOW, Tx};

/// So many of those that wait longest are looked at. Seldom are more ready, and then it is known whose turn it is.
const NEAR: usize = 200;

/// Where more are ready, so many workspaces are gone through. Those whose slots wait for a later time are among them.
const STEPS: usize = 1_000;

/// So many of them are tried in vain before that is given up: others are taking what they have, or it is not wanted.
const MOST_TRIED: usize = 8;

/// What is ready at `$1` and none of the slots `$2`, `$3`, `$4`.
const READY: &str = "FROM epitome.slots s JOIN epitome.sessions o ON o.id = s.session \
     WHERE s.ready_at IS NOT NULL AND s.ready_at <= $1 AND o.state = 'open' \
     AND NOT EXISTS (SELECT 1 FROM unnest($2::bigint[], $3::text[], $4::text[]) AS x (session, scope, name) \
     WHERE x.session = s.session AND x.scope = s.scope AND x.name = s.name)";

/// The one that waits longest.
const FIRST: &str = "ORDER BY s.ready_at, s.session, s.scope, s.name LIMIT 1";

/// The one of the workspace `$5` that waits longest. Said so that only the index by workspace gives that order, and ends where
/// nothing more is ready: the other one would lead through what everybody else has waiting.
const FIRST_OF_WORKSPACE: &str = "AND s.workspace >= $5 AND (s.workspace, s.ready_at) <= ($5, $1) \
     ORDER BY s.workspace, s.ready_at, s.session, s.scope, s.name LIMIT 1";

/// How long somebody who writes to a session is waited for.
const WAIT_A_LITTLE: &str = "SET LOCAL lock_timeout = '200ms'";

impl Postgres {
    pub(super) async fn lease_once(&self, want: &Want) -> Outcome<Option<Lease>> {
        // Workers ask often, and most often in vain: that must not cost a transaction.
        let Some(now) = self.anything_ready().await? else { return Ok(None) };
        if want.session.as_ref().is_some_and(|key| want.full.contains(&key.workspace)) {
            return Ok(None);
        }
        if want.session.is_some() || want.after.is_none() && want.full.is_empty() {
            let of = want.session.as_ref().map_or(Of::Anybody, Of::Session);
            return match self.take_one(want, now, of).await? {
                Some(lease) => Ok(Some(lease)),
                None => Ok(self.take_the_passed_over(want, now, of).await?.lease()),
            };
        }
        let turns = self.whose_turn(want, now).await?;
        for workspace in &turns {
            if let Some(lease) = self.take_one(want, now, Of::Workspace(workspace)).await? {
                self.walked.took(workspace);
                return Ok(Some(lease));
            }
        }
        for workspace in &turns {
            match self.take_the_passed_over(want, now, Of::Workspace(workspace)).await? {
                PassedOver::Nothing => {}
                other => return Ok(other.lease()),
            }
        }
        Ok(None)
    }

    /// Workspaces with something ready that are not full, those whose turn it is first.
    async fn whose_turn(&self, want: &Want, now: Timestamp) -> Outcome<Vec<Arc<str>>> {
        let (mut near, more) = self.near(want, now).await?;
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
        let mut turns = self.in_turn(want, now).await?;
        // Or whoever waits longest, so that nobody is idle while it is gone through the others.
        near.retain(|workspace| !turns.contains(workspace));
        turns.append(&mut near);
        Ok(turns)
    }

    /// The workspaces of those that wait longest, and whether there are more than were looked at.
    async fn near(&self, want: &Want, now: Timestamp) -> Outcome<(Vec<Arc<str>>, bool)> {
        let sql = "SELECT workspace, session, scope, name FROM epitome.slots WHERE ready_at IS NOT NULL \
             AND ready_at <= $1 ORDER BY ready_at LIMIT $2";
        let found = self.once(Pipe::new().then(sql, [now.into(), NEAR.into()])).await?;
        let found = found.first().map_or(&[][..], Vec::as_slice);
        let mut near: Vec<Arc<str>> = Vec::new();
        for row in found {
            let workspace: &str = get(row, 0)?;
            let slot = (get(row, 1)?, scope_of(get(row, 2)?), get(row, 3)?);
            let wanted = !want.full.contains(workspace) && !want.except.contains(&slot);
            if wanted && !near.iter().any(|known| **known == *workspace) {
                near.push(workspace.into());
            }
        }
        Ok((near, found.len() >= NEAR))
    }

    /// The moment, where anything is ready at it.
    async fn anything_ready(&self) -> Outcome<Option<Timestamp>> {
        let sql = "SELECT min(ready_at) FROM epitome.slots WHERE ready_at IS NOT NULL";
        let found = self.once(Pipe::new().then(NOW, []).then(sql, [])).await?;
        let one =
            |at: usize| found.get(at).and_then(|rows| rows.first()).map(|row| get::<Option<i64>>(row, 0));
        let now = one(0).transpose()?.flatten().unwrap_or_default();
        let now = self.moment(now);
        let first = one(1).transpose()?.flatten();
        Ok(first.filter(|ready| *ready <= now.0).map(|_| now))
    }

    /// The next workspaces after the one that was served last, and then round again, as far as the steps lead.
    async fn in_turn(&self, want: &Want, now: Timestamp) -> Outcome<Vec<Arc<str>>> {
        let after = self.walked.place().or_else(|| want.after.clone()).unwrap_or_else(|| "".into());
        let mut turns = Vec::new();
        let mut last = self.walk(want, now, (&after, None), STEPS, &mut turns).await?;
        if let Walked::Around(steps) = last {
            let left = STEPS.saturating_sub(steps);
            last = self.walk(want, now, ("", Some(&after)), left, &mut turns).await?;
        }
        self.walked.keep(match last {
            Walked::To(place) => Some((place, turns.clone())),
            Walked::Around(_) => None,
        });
        Ok(turns)
    }

    /// Goes along the workspaces after this one, up to that one, if any, each a step along an index.
    async fn walk(
        &self,
        want: &Want,
        now: Timestamp,
        (after, through): (&str, Option<&str>),
        steps: usize,
        turns: &mut Vec<Arc<str>>,
    ) -> Outcome<Walked> {
        let wanted = MOST_TRIED.saturating_sub(turns.len());
        let sql = "WITH RECURSIVE turn AS ( \
             (SELECT workspace, ready_at <= $2 AND workspace <> ALL($3) AS ready, 1::bigint AS step, \
             (ready_at <= $2 AND workspace <> ALL($3))::integer::bigint AS found FROM epitome.slots \
             WHERE ready_at IS NOT NULL AND workspace > $1 AND $4 > 0 AND $5 > 0 ORDER BY workspace, ready_at LIMIT 1) \
             UNION ALL SELECT n.workspace, n.ready, turn.step + 1, turn.found + n.ready::integer FROM turn CROSS JOIN LATERAL \
             (SELECT s.workspace, s.ready_at <= $2 AND s.workspace <> ALL($3) AS ready FROM epitome.slots s \
             WHERE s.ready_at IS NOT NULL AND s.workspace > turn.workspace ORDER BY s.workspace, s.ready_at LIMIT 1) n \
             WHERE turn.step < $4 AND turn.found < $5 AND ($6::text IS NULL OR turn.workspace < $6)) \
             SELECT workspace, ready, step FROM turn WHERE ready OR step = (SELECT max(step) FROM turn) ORDER BY step";
        let full = want.full.iter().map(|name| name.as_ref().into()).collect();
        let given =
            [after.into(), now.into(), Given::Texts(full), steps.into(), wanted.into(), through.into()];
        let found = self.once(Pipe::new().then(sql, given)).await?;
        let found = found.first().map_or(&[][..], Vec::as_slice);
        let Some(last) = found.last() else { return Ok(Walked::Around(0)) };
        let (place, taken): (Arc<str>, _) = (get::<&str>(last, 0)?.into(), get::<i64>(last, 2)?);
        let taken = usize::try_from(taken).unwrap_or(usize::MAX);
        let mut ready = 0;
        for row in found {
            let workspace: &str = get(row, 0)?;
            if get(row, 1)? && through.is_none_or(|through| workspace <= through) {
                ready += 1;
                turns.push(workspace.into());
            }
        }
        let ended = taken < steps && ready < wanted || through.is_some_and(|through| *place >= *through);
        Ok(if ended { Walked::Around(taken) } else { Walked::To(place) })
    }

    /// Takes the one that waits longest of those in question, and that nobody writes to.
    async fn take_one(&self, want: &Want, now: Timestamp, of: Of<'_>) -> Outcome<Option<Lease>> {
        // The session's row too: whoever holds it is about to write its slots over.
        let (first, given) = of.ready(want, now);
        let sql = format!(
            "SELECT {SLOT}, s.session, o.workspace, o.name {READY} {first} FOR NO KEY UPDATE OF s, o SKIP LOCKED"
        );
        let (tx, found) = Tx::write(self, Pipe::new().then_all(sql, given)).await?;
        match found.first().and_then(|rows| rows.first()) {
            Some(row) => Ok(Some(take(tx, want, row).await?)),
            None => {
                tx.give_up().await?;
                Ok(None)
            }
        }
    }

    /// Takes the one that waits longest, though its session is being written to: it waits for that to be done.
    async fn take_the_passed_over(&self, want: &Want, now: Timestamp, of: Of<'_>) -> Outcome<PassedOver> {
        let (first, given) = of.ready(want, now);
        let found =
            self.once(Pipe::new().then_all(format!("SELECT s.session {READY} {first}"), given)).await?;
        let Some(row) = found.first().and_then(|rows| rows.first()) else { return Ok(PassedOver::Nothing) };
        let session: SessionId = get(row, 0)?;
        let (first, given) = Of::Number(session).ready(want, now);
        let sql = format!(
            "SELECT {SLOT}, s.session, o.workspace, o.name {READY} {first} FOR NO KEY UPDATE OF s SKIP LOCKED"
        );
        // The session first, as whoever writes to it does: so two who wait never wait for each other.
        let lock = "SELECT 1 FROM epitome.sessions WHERE id = $1 FOR NO KEY UPDATE";
        let pipe = Pipe::new().then(WAIT_A_LITTLE, []).then(lock, [session.into()]).then_all(sql, given);
        let (tx, found) = match Tx::write(self, pipe).await {
            Err(Trouble::Slow) => return Ok(PassedOver::StillHeld),
            begun => begun?,
        };
        match found.get(2).and_then(|rows| rows.first()) {
            Some(row) => Ok(PassedOver::Taken(Box::new(take(tx, want, row).await?))),
            None => {
                tx.give_up().await?;
                Ok(PassedOver::Nothing)
            }
        }
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
pub(super) struct Place(Mutex<Option<Reached>>);

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

impl<'a> Of<'a> {
    /// What is asked of a slot beyond [`READY`] and which comes first, and all that is given for both.
    fn ready(self, want: &'a Want, now: Timestamp) -> (String, Vec<Given<'a>>) {
        let mut except = (Vec::new(), Vec::new(), Vec::new());
        for (id, scope, name) in &want.except {
            except.0.push(*id);
            except.1.push(scope_text(scope).into());
            except.2.push(name.as_str().into());
        }
        let mut given =
            vec![now.into(), Given::Ints(except.0), Given::Texts(except.1), Given::Texts(except.2)];
        let first = match self {
            Self::Anybody => FIRST.to_owned(),
            Self::Workspace(workspace) => {
                given.push(workspace.into());
                FIRST_OF_WORKSPACE.to_owned()
            }
            Self::Session(key) => {
                given.extend([(&*key.workspace).into(), (&*key.session).into()]);
                format!("AND o.workspace = $5 AND o.name = $6 {FIRST}")
            }
            Self::Number(session) => {
                given.push(session.into());
                format!("AND s.session = $5 {FIRST}")
            }
        };
        (first, given)
    }
}

async fn take(tx: Tx<'_>, want: &Want, row: &Row) -> Outcome<Lease> {
    let (slot, id, now) = (decode::slot(row)?, get(row, 6)?, tx.now);
    let key = SessionKey::new(get::<&str>(row, 7)?, get::<&str>(row, 8)?);
    let slot = want.take(slot, now);
    let mut pipe = Pipe::new();
    pipe.add(statements::put_slot((id, &key.workspace), &slot, slot.active));
    // Two that believe to hold it under one fence would both write.
    let sql = "SELECT 1 FROM epitome.slots WHERE session = $1 AND scope = $2 AND name = $3 AND fence = $4 \
         AND work::json ->> 'owner' = $5 AND (work::json ->> 'until')::bigint = $6";
    let (owner, until) = (want.owner.as_str(), slot.work.until.map(|until| until.0));
    let of = scope_text(&slot.scope).into();
    let given = [id.into(), of, slot.name.as_str().into(), slot.fence.into(), owner.into(), until.into()];
    tx.commit_marked(pipe, Pipe::new().then(sql, given)).await?;
    Ok(Lease { key, id, slot, now })
}
