//! Reading where a session stands, and writing what was decided.

use epitome_core::message::{Seq, Span, Timestamp};
use epitome_core::outline::Outline;
use rusqlite::{Connection, params};

use super::super::changes::{Changes, Decide, Load, Log, MOST_PENDING, REMEMBERED_MILLIS, Repeat, Standing};
use super::super::columns::{scope_text, state_text};
use super::super::decode::{self, SLOT, SUMMARY};
use super::super::error::StoreError;
use super::super::rows::{
    SessionId, SessionKey, SessionRow, SlotRow, SummaryId, SummaryRow, SummaryState, UsageRow,
};
use super::super::statements;
use super::directory::set_members;
use super::error::{Outcome, Trouble, nonsense};
use super::events;
use super::known::Known;
use super::lens::Lens;
use super::rows::{self, SESSION, all_of, first, first_of, run};

/// The session of that name, where it exists.
fn session(db: &Connection, key: &SessionKey) -> Outcome<Option<SessionRow>> {
    let sql = format!("SELECT {SESSION} FROM sessions WHERE workspace = ?1 AND name = ?2 AND state = 'open'");
    first_of(db, &sql, params![key.workspace, key.session], decode::session)
}

/// A workspace's settings.
fn workspace(db: &Connection, name: &str) -> Outcome<String> {
    let sql = "SELECT settings FROM workspaces WHERE name = ?1";
    Ok(first_of(db, sql, [name], |row| row.string(0))?.unwrap_or_default())
}

/// The session and its workspace's settings, and nothing else.
pub(super) fn bare(db: &Connection, key: &SessionKey, now: Timestamp) -> Outcome<Standing> {
    Ok(Standing::bare(now, workspace(db, &key.workspace)?, session(db, key)?))
}

/// Where a session stands, with all that was asked for.
pub(super) fn standing(db: &Connection, key: &SessionKey, load: &Load, now: Timestamp) -> Outcome<Standing> {
    let mut standing = bare(db, key, now)?;
    if let Some(session) = &standing.session {
        standing.slots = slots(db, session.id)?;
        more(db, &mut standing, load)?;
    }
    Ok(standing)
}

/// Reads what else was asked for.
fn more(db: &Connection, standing: &mut Standing, load: &Load) -> Outcome<()> {
    let Some(session) = &standing.session else { return Ok(()) };
    let (id, now) = (session.id, standing.now);
    if let Some(asked) = &load.idempotency {
        standing.repeat = repeat(db, id, asked, now)?;
    }
    standing.log = log(db, session, standing, &load.log)?;
    for wanted in &load.summaries {
        standing.summaries.extend(summary(db, id, *wanted)?);
    }
    Ok(())
}

fn slots(db: &Connection, session: SessionId) -> Outcome<Vec<SlotRow>> {
    let sql = format!("SELECT {SLOT} FROM slots s WHERE s.session = ?1 ORDER BY s.scope, s.name");
    all_of(db, &sql, [session], decode::slot)
}

fn repeat(db: &Connection, session: SessionId, key: &str, now: Timestamp) -> Outcome<Option<Repeat>> {
    let sql = "SELECT body, first, last FROM idempotency WHERE session = ?1 AND key = ?2 AND created >= ?3";
    let since = now.0.saturating_sub(REMEMBERED_MILLIS);
    let found = first_of(db, sql, params![session, key, since], |row| {
        Ok((row.bytes(0)?.to_vec(), Span::new(row.uint(1)?, row.uint(2)?)))
    });
    let Some((body, span)) = found? else { return Ok(None) };
    let span = span.ok_or_else(|| nonsense("an append is remembered that added nothing"))?;
    Ok(Some(Repeat { body, span }))
}

fn log(db: &Connection, session: &SessionRow, standing: &Standing, asked: &Log) -> Outcome<Vec<Outline>> {
    let (lens, within) = match asked {
        Log::None => return Ok(Vec::new()),
        Log::Pending(scope, name) => (Lens::new(db, session.id, scope), standing.pending(scope, name)),
        Log::Batch(seq) => {
            let head: Seq = session.tracker.head();
            let lens = Lens::whole(db, session.id);
            let there = (1..=head).contains(seq);
            let within = if there { Some(lens.batch(*seq, head)?) } else { None };
            (lens, within)
        }
    };
    within.map_or_else(|| Ok(Vec::new()), |within| lens.run(within, MOST_PENDING))
}

/// A summary, where it is this session's.
pub(super) fn summary(db: &Connection, session: SessionId, id: SummaryId) -> Outcome<Option<SummaryRow>> {
    let sql = format!("SELECT {SUMMARY} FROM summaries WHERE session = ?1 AND id = ?2");
    first_of(db, &sql, params![session, id], decode::summary)
}

/// Reads, asks, writes. Gives the session's number; none when nothing was wanted.
pub(super) fn change(
    db: &Connection,
    known: &Known,
    key: &SessionKey,
    load: &Load,
    decide: &Decide,
    now: Timestamp,
) -> Outcome<Option<SessionId>> {
    let standing = match known.take(key, now) {
        Some(mut standing) => {
            more(db, &mut standing, load)?;
            debug_assert!(same(&standing, &self::standing(db, key, load, now)?), "what is known is not so");
            standing
        }
        None => standing(db, key, load, now)?,
    };
    let changes = decide(&standing);
    let written = match &changes {
        Some(changes) => Some(write(db, known, key, &standing, changes, now)?),
        None => None,
    };
    known.keep(key, standing, changes);
    Ok(written)
}

/// Whether two readings of a session say the same.
fn same(one: &Standing, two: &Standing) -> bool {
    one.workspace_settings == two.workspace_settings && one.session == two.session && one.slots == two.slots
}

fn write(
    db: &Connection,
    known: &Known,
    key: &SessionKey,
    standing: &Standing,
    changes: &Changes,
    now: Timestamp,
) -> Outcome<SessionId> {
    record(db, &changes.usage, now)?;
    let before = standing.session.as_ref();
    let Some(id) = put_session(db, key, before, changes.session.as_ref(), now)? else {
        let fine = changes.need_no_session();
        return if fine { Ok(0) } else { Err(refused("there is no such session to write to")) };
    };
    if changes.alter(before) {
        run(db, &statements::revise(id))?;
    }
    for message in &changes.messages {
        rows::insert_message(db, id, message, now)?;
    }
    for flags in &changes.flags {
        run(db, &statements::set_flags(id, *flags))?;
    }
    for (seq, metadata) in &changes.metadata {
        rows::set_metadata(db, id, *seq, metadata)?;
    }
    set_members(db, known, key, id, &changes.members, now)?;
    for (summary, state) in &changes.states {
        set_state(db, id, *summary, *state)?;
    }
    let kept =
        changes.summary.as_ref().map(|row| Ok::<_, Trouble>((row, rows::insert_summary(db, id, row)?)));
    let kept = kept.transpose()?;
    let mut pointed = false;
    for slot in &changes.slots {
        let new = kept.filter(|(row, _)| row.scope == slot.scope && row.slot == slot.name);
        pointed |= new.is_some();
        let active = new.map(|(_, id)| id).or(slot.active);
        match standing.slot(&slot.scope, &slot.name) {
            Some(before) if active == before.active => {
                rows::move_slot(db, (id, &key.workspace), before, slot)?;
            }
            _ => run(db, &statements::put_slot((id, &key.workspace), slot, active))?,
        }
    }
    if kept.is_some() && !pointed {
        return Err(refused("a summary was to be kept without its slot"));
    }
    if let Some((key, repeat)) = &changes.idempotency {
        run(db, &statements::put_repeat(id, key, repeat, now))?;
    }
    events::write(db, known, key, &changes.events, kept.map(|(_, id)| id), now)?;
    Ok(id)
}

fn refused(reason: &str) -> Trouble {
    Trouble::Said(StoreError::Failed { reason: reason.to_owned() })
}

/// Writes the session's row, making one where there is none. Gives its number, where there is one at all.
fn put_session(
    db: &Connection,
    key: &SessionKey,
    before: Option<&SessionRow>,
    row: Option<&SessionRow>,
    now: Timestamp,
) -> Outcome<Option<SessionId>> {
    let Some(row) = row else { return Ok(before.map(|before| before.id)) };
    let id = match before {
        Some(before) => before.id,
        None => insert_session(db, key, "open", now)?,
    };
    rows::update_session(db, id, before, row)?;
    Ok(Some(id))
}

/// Makes a session's row, and its workspace's where it is the first there. Most of it is still to be written.
pub(super) fn insert_session(
    db: &Connection,
    key: &SessionKey,
    state: &str,
    now: Timestamp,
) -> Outcome<SessionId> {
    make_workspace(db, &key.workspace, now)?;
    let sql = "INSERT INTO sessions (workspace, name, state, encoding, tracker, head, turns, tokens, opener, \
         batch_from, batch_skipped, skipped, created, updated) VALUES (?1, ?2, ?3, '', '', 0, 0, 0, 0, 0, 0, 0, ?4, ?4)";
    db.prepare_cached(sql)?.execute(params![key.workspace, key.session, state, now.0])?;
    Ok(db.last_insert_rowid())
}

pub(super) fn make_workspace(db: &Connection, name: &str, now: Timestamp) -> Outcome<()> {
    let sql = "INSERT INTO workspaces (name, created) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET deleted = 0, \
         created = excluded.created WHERE deleted <> 0";
    db.prepare_cached(sql)?.execute(params![name, now.0])?;
    Ok(())
}

/// Changes a summary's state. When one is superseded, what the ones before it were made of is dropped: only
/// the one that stands and the one it can be taken back to are ever built upon.
fn set_state(db: &Connection, session: SessionId, id: SummaryId, state: SummaryState) -> Outcome<()> {
    let sql = "UPDATE summaries SET state = ?3 WHERE session = ?1 AND id = ?2";
    db.prepare_cached(sql)?.execute(params![session, id, state_text(state)])?;
    if state == SummaryState::Superseded
        && let Some(row) = summary(db, session, id)?
    {
        let sql = "UPDATE summaries INDEXED BY summaries_sources SET sources = NULL WHERE session = ?1 AND scope = ?2 AND slot = ?3 AND id < ?4 \
             AND state <> 'standing' AND sources IS NOT NULL";
        db.prepare_cached(sql)?.execute(params![session, scope_text(&row.scope), row.slot, id])?;
    }
    Ok(())
}

/// Records calls of models.
pub(super) fn record(db: &Connection, rows: &[UsageRow], now: Timestamp) -> Outcome<()> {
    rows.iter().try_for_each(|row| run(db, &statements::record(row, now)))
}

/// The number of the session of that name.
pub(super) fn number(db: &Connection, key: &SessionKey) -> Outcome<Option<SessionId>> {
    first(db, &statements::number(key), |row| row.int(0))
}
