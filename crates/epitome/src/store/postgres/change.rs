//! Reading where a session stands, and writing what was decided.
//!
//! The session's row is the lock on all that is the session's: whoever changes anything of it holds it, and so does
//! whoever takes one of its slots. It is held for two messages there and back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use epitome_core::message::{Span, Timestamp};
use epitome_core::outline::Outline;
use tokio_postgres::Row;

use super::super::changes::{Changes, Decide, Load, Log, MOST_PENDING, REMEMBERED_MILLIS, Repeat, Standing};
use super::super::decode::{self, ReadRow, SLOT, SUMMARY};
use super::super::given::Given;
use super::super::rows::{SessionId, SessionKey, SessionRow, SlotRow, SummaryId, SummaryRow};
use super::super::statements;
use super::Postgres;
use super::counts::{Counts, is_its};
use super::directory::set_members;
use super::error::{Outcome, nonsense, refused};
use super::events;
use super::known::Stamp;
use super::lens::Lens;
use super::pipe::Pipe;
use super::put::{insert_messages, insert_session, next_summary, set_metadata, set_state};
use super::rows::{self, Columns, SESSION, get};
use super::swift::Unheard;
use super::tx::Tx;

/// The number of the session of this name, inside of other statements.
macro_rules! session_id {
    () => {
        "(SELECT id FROM epitome.sessions WHERE workspace = $1 AND name = $2 AND state = 'open')"
    };
}

/// What is read of every session, and in which order it answers.
fn ground<'a>(key: &'a SessionKey, load: &'a Load, lock: &str) -> Pipe<'a> {
    let named = || [(&*key.workspace).into(), (&*key.session).into()];
    let sql = format!(
        "SELECT {SESSION} FROM epitome.sessions WHERE workspace = $1 AND name = $2 AND state = 'open'{lock}"
    );
    let slots = format!(
        concat!(
            "SELECT {} FROM epitome.slots s WHERE s.session = ",
            session_id!(),
            " ORDER BY s.scope, s.name"
        ),
        SLOT
    );
    let mut pipe = Pipe::new()
        .then(sql, named())
        .then("SELECT settings, revision FROM epitome.workspaces WHERE name = $1", [(&*key.workspace).into()])
        .then(slots, named());
    if let Some(asked) = &load.idempotency {
        let sql = concat!(
            "SELECT body, first, last, created FROM epitome.idempotency WHERE session = ",
            session_id!(),
            " AND key = $3"
        );
        let [workspace, name] = named();
        pipe.push(sql, [workspace, name, asked.as_str().into()]);
    }
    pipe
}

/// What was read, put together.
pub(super) fn standing_of(found: &[Vec<Row>], load: &Load, now: Timestamp) -> Outcome<Standing> {
    let [sessions, workspaces, slots, more @ ..] = found else {
        return Err(nonsense("the database answers less than it was asked"));
    };
    let session = sessions.first().map(|row| decode::session(row)).transpose()?;
    let counts = counts_of(found)?;
    let settings = workspaces.first().map(|row| get(row, 0)).transpose()?.unwrap_or_default();
    let mut standing = Standing::bare(now, settings, session);
    standing.slots =
        slots.iter().map(|row| Ok(counts.complete(decode::slot(row)?))).collect::<Outcome<_>>()?;
    if load.idempotency.is_some()
        && let Some(row) = more.first().and_then(|rows| rows.first())
        && get::<i64>(row, 3)? >= now.0.saturating_sub(REMEMBERED_MILLIS)
    {
        let span = Span::new(row.uint(1)?, row.uint(2)?)
            .ok_or_else(|| nonsense("an append is remembered that added nothing"))?;
        standing.repeat = Some(Repeat { body: get(row, 0)?, span });
    }
    Ok(standing)
}

/// As of when it was read. Of what is not there yet nothing was ever changed.
fn stamp_of(found: &[Vec<Row>]) -> Outcome<Stamp> {
    let of =
        |rows: Option<&Vec<Row>>, at| rows.and_then(|rows| rows.first()).map_or(Ok(0), |row| get(row, at));
    Ok(Stamp { version: of(found.first(), rows::SESSION_VERSION)?, revision: of(found.get(1), 1)? })
}

/// What its slots counted since their rows were written.
fn counts_of(found: &[Vec<Row>]) -> Outcome<Counts> {
    match found.first().and_then(|rows| rows.first()) {
        Some(row) => Counts::read(get(row, rows::SESSION_COUNTS)?),
        None => Ok(Counts::default()),
    }
}

/// Reads what else was asked for.
async fn more(tx: &mut Tx<'_>, standing: &mut Standing, load: &Load) -> Outcome<()> {
    let Some(session) = &standing.session else { return Ok(()) };
    let id = session.id;
    standing.log = log(tx, session, standing, &load.log).await?;
    if !load.summaries.is_empty() {
        standing.summaries = summaries(tx, id, &load.summaries).await?;
    }
    Ok(())
}

async fn log(
    tx: &mut Tx<'_>,
    session: &SessionRow,
    standing: &Standing,
    asked: &Log,
) -> Outcome<Vec<Outline>> {
    let (lens, within) = match asked {
        Log::None => return Ok(Vec::new()),
        Log::Pending(scope, name) => (Lens::new(session.id, scope), standing.pending(scope, name)),
        Log::Batch(seq) => {
            let head = session.tracker.head();
            let lens = Lens::whole(session.id);
            let within =
                if (1..=head).contains(seq) { Some(lens.batch(tx, *seq, head).await?) } else { None };
            (lens, within)
        }
    };
    match within {
        Some(within) => lens.run(tx, within, MOST_PENDING).await,
        None => Ok(Vec::new()),
    }
}

/// These summaries, in order, as far as they are this session's.
pub(super) fn summaries_pipe<'a>(session: SessionId, ids: &[SummaryId]) -> Pipe<'a> {
    let sql = format!("SELECT {SUMMARY} FROM epitome.summaries WHERE session = $1 AND id = ANY($2)");
    Pipe::new().then(sql, [session.into(), Given::Ints(ids.to_vec())])
}

/// In the order in which they were asked for.
pub(super) fn in_order(found: &[Row], ids: &[SummaryId]) -> Outcome<Vec<SummaryRow>> {
    let mut found = found.iter().map(|row| decode::summary(row)).collect::<Outcome<Vec<_>>>()?;
    let place = |row: &SummaryRow| ids.iter().position(|id| *id == row.id);
    found.sort_by_key(place);
    Ok(found)
}

async fn summaries(tx: &mut Tx<'_>, session: SessionId, ids: &[SummaryId]) -> Outcome<Vec<SummaryRow>> {
    let found = tx.ask(summaries_pipe(session, ids)).await?;
    in_order(found.first().map_or(&[], Vec::as_slice), ids)
}

impl Postgres {
    pub(super) async fn standing_once(&self, key: &SessionKey, load: &Load) -> Outcome<Standing> {
        let (mut tx, found) = Tx::read(self, ground(key, load, "")).await?;
        let mut standing = standing_of(&found, load, tx.now)?;
        more(&mut tx, &mut standing, load).await?;
        tx.finish(Pipe::new()).await?;
        Ok(standing)
    }

    /// Reads, asks, writes, once. Gives the session's number; none when nothing was wanted.
    pub(super) async fn change_once(
        &self,
        key: &SessionKey,
        load: &Load,
        decide: &Decide,
        unheard: Option<Unheard>,
    ) -> Outcome<Option<SessionId>> {
        // Not the whole lock: whoever only needs the session to stay, as who takes words into the index, need not wait.
        let (mut tx, found) = Tx::write(self, ground(key, load, " FOR NO KEY UPDATE")).await?;
        let (mut standing, stamp) = (standing_of(&found, load, tx.now)?, stamp_of(&found)?);
        let counts = counts_of(&found)?;
        if let (Some(unheard), Some(session)) = (unheard, &standing.session)
            && was_written(&mut tx, session.id, unheard).await?
        {
            let id = session.id;
            tx.give_up().await?;
            return Ok(Some(id));
        }
        more(&mut tx, &mut standing, load).await?;
        let Some(changes) = decided(|| decide(&standing))? else {
            tx.give_up().await?;
            self.known.keep(key, &standing, None, (stamp, counts));
            return Ok(None);
        };
        let (before, mut counts) = (counts.clone(), counts);
        let moved = counts.take_all(&standing, &changes);
        let counted = (counts != before).then_some(&counts);
        let (id, heard) = self.write(tx, key, &standing, &changes, (&moved, counted)).await?;
        // Where it had to be found out, it is not remembered: what is, is built upon.
        if heard {
            self.known.keep(key, &standing, Some(&changes), (stamp.written(), counts));
        }
        self.wrote(id, &standing, &changes);
        Ok(Some(id))
    }

    /// Gives the session's number, and whether the database itself said that it is done.
    async fn write(
        &self,
        mut tx: Tx<'_>,
        key: &SessionKey,
        standing: &Standing,
        changes: &Changes,
        (moved, counted): (&[&SlotRow], Option<&Counts>),
    ) -> Outcome<(SessionId, bool)> {
        let now = tx.now;
        let before = standing.session.as_ref();
        if before.is_none() && changes.session.is_none() {
            if !changes.need_no_session() {
                tx.give_up().await?;
                return Err(refused("there is no such session to write to"));
            }
            let mut pipe = Pipe::new();
            changes.usage.iter().for_each(|row| pipe.add(statements::record(row, now)));
            tx.commit(pipe).await?;
            return Ok((0, true));
        }
        let id = match before {
            Some(before) => before.id,
            None => insert_session(&mut tx, key, "open").await?,
        };
        let kept = match &changes.summary {
            Some(row) => Some((row, next_summary(&mut tx, id).await?)),
            None => None,
        };
        let mut pipe = Pipe::new();
        changes.usage.iter().for_each(|row| pipe.add(statements::record(row, now)));
        match &changes.session {
            Some(row) => rows::update_session(&mut pipe, id, before, row),
            // Whoever remembers how it was must see that it is not so any more.
            None => {
                pipe.push("UPDATE epitome.sessions SET version = version + 1 WHERE id = $1", [id.into()]);
            }
        }
        if changes.alter(before) {
            pipe.add(statements::revise(id));
        }
        let change = i64::from_ne_bytes(super::random().to_ne_bytes());
        let mut columns = Columns::default();
        changes.messages.iter().for_each(|message| columns.push(message));
        insert_messages(&mut pipe, id, columns, now, change);
        for flags in &changes.flags {
            pipe.add(statements::set_flags(id, *flags));
        }
        for (seq, metadata) in &changes.metadata {
            set_metadata(&mut tx, &mut pipe, id, *seq, metadata).await?;
        }
        set_members(&mut tx, &mut pipe, key, id, &changes.members).await?;
        for (summary, state) in &changes.states {
            set_state(&mut pipe, id, *summary, *state);
        }
        let mut pointed = false;
        for slot in moved {
            let new = kept.filter(|(row, _)| is_its(row, slot));
            pointed |= new.is_some();
            let active = new.map(|(_, number)| number).or(slot.active);
            pipe.add(statements::put_slot((id, &key.workspace), slot, active));
        }
        if let Some(counts) = counted {
            let sql = "UPDATE epitome.sessions SET counts = $2 WHERE id = $1";
            pipe.push(sql, [id.into(), counts.text()?.into()]);
        }
        if let Some((row, number)) = kept {
            if !pointed {
                tx.give_up().await?;
                return Err(refused("a summary was to be kept without its slot"));
            }
            pipe.add(statements::insert_summary(id, number, row));
        }
        if let Some((asked, repeat)) = &changes.idempotency {
            pipe.add(statements::put_repeat(id, asked, repeat, now));
        }
        events::tell(&mut pipe, key, &changes.events, kept.map(|(_, number)| number), now)?;
        let heard = match mark(id, changes, change, kept)? {
            Some(mark) => tx.commit_marked(pipe, mark).await?,
            None => tx.commit(pipe).await?,
        };
        Ok((id, heard))
    }
}

/// What tells afterwards that these changes were done: what is never written over. Where there is no such thing, they leave
/// a mark.
fn mark<'a>(
    id: SessionId,
    changes: &Changes,
    change: i64,
    kept: Option<(&'a SummaryRow, SummaryId)>,
) -> Outcome<Option<Pipe<'a>>> {
    if let Some(first) = changes.messages.first() {
        let sql = "SELECT 1 FROM epitome.messages WHERE session = $1 AND seq = $2 AND change = $3";
        return Ok(Some(Pipe::new().then(sql, [id.into(), first.outline.seq.into(), change.into()])));
    }
    let Some((row, number)) = kept else { return Ok(None) };
    let sql =
        "SELECT 1 FROM epitome.summaries WHERE session = $1 AND id = $2 AND created = $3 AND facts = $4";
    let given = [id.into(), number.into(), row.created.into(), statements::json(&row.facts).into()];
    Ok(Some(Pipe::new().then(sql, given)))
}

/// Whether an append whose connection broke was written. Whoever asks holds the session, so it is so or not for good.
async fn was_written(tx: &mut Tx<'_>, session: SessionId, unheard: Unheard) -> Outcome<bool> {
    let sql = "SELECT 1 FROM epitome.messages WHERE session = $1 AND seq = $2 AND change = $3";
    let found =
        tx.ask(Pipe::new().then(sql, [session.into(), unheard.first.into(), unheard.number.into()])).await?;
    Ok(found.first().is_some_and(|rows| !rows.is_empty()))
}

/// Asks whoever decides. One that panics takes nothing with it: the transaction goes with its connection.
pub(super) fn decided<T>(decide: impl FnOnce() -> T) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(decide)).map_err(|_| refused("a decision panicked"))
}
