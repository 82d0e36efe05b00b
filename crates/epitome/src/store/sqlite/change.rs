//! Reading where a session stands, and writing what was decided.

use epitome_core::message::{Seq, Span, Timestamp};
use epitome_core::outline::Outline;
use rusqlite::{Connection, OptionalExtension, params};

use super::super::{
    Changes, Decide, Load, Log, Repeat, SessionId, SessionKey, SessionRow, SlotRow, Standing, StoreError,
    SummaryId, SummaryRow, SummaryState, UsageRow,
};
use super::directory::set_members;
use super::error::{Outcome, Trouble, nonsense};
use super::events;
use super::known::Known;
use super::lens::Lens;
use super::rows::{self, SESSION, SLOT, SUMMARY, int, scope_text, uint};

/// How long an append is remembered by its key.
pub(super) const REMEMBERED_MILLIS: i64 = 7 * 24 * 60 * 60 * 1_000;

/// More shapes than this are never read for a decision.
const MOST_PENDING: usize = 100_000;

/// The session of that name, where it exists.
pub(super) fn session(db: &Connection, key: &SessionKey) -> Outcome<Option<SessionRow>> {
    let sql = format!("SELECT {SESSION} FROM sessions WHERE workspace = ?1 AND name = ?2 AND state = 'open'");
    let mut statement = db.prepare_cached(&sql)?;
    Ok(statement.query_row(params![key.workspace, key.session], rows::session).optional()?)
}

/// A workspace's settings.
pub(super) fn workspace(db: &Connection, name: &str) -> Outcome<String> {
    let mut statement = db.prepare_cached("SELECT settings FROM workspaces WHERE name = ?1")?;
    Ok(statement.query_row([name], |row| row.get(0)).optional()?.unwrap_or_default())
}

/// The session and its workspace's settings, and nothing else.
pub(super) fn bare(db: &Connection, key: &SessionKey, now: Timestamp) -> Outcome<Standing> {
    Ok(Standing {
        now,
        workspace_settings: workspace(db, &key.workspace)?,
        session: session(db, key)?,
        slots: Vec::new(),
        repeat: None,
        log: Vec::new(),
        summaries: Vec::new(),
    })
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
    standing.log = log(db, session, &standing.slots, &load.log)?;
    for wanted in &load.summaries {
        standing.summaries.extend(summary(db, id, *wanted)?);
    }
    Ok(())
}

fn slots(db: &Connection, session: SessionId) -> Outcome<Vec<SlotRow>> {
    let sql = format!("SELECT {SLOT} FROM slots s WHERE s.session = ?1 ORDER BY s.scope, s.name");
    let mut statement = db.prepare_cached(&sql)?;
    let found = statement.query_map([session], rows::slot)?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn repeat(db: &Connection, session: SessionId, key: &str, now: Timestamp) -> Outcome<Option<Repeat>> {
    let sql = "SELECT body, first, last FROM idempotency WHERE session = ?1 AND key = ?2 AND created >= ?3";
    let since = now.0.saturating_sub(REMEMBERED_MILLIS);
    let found = db.prepare_cached(sql)?.query_row(params![session, key, since], |row| {
        Ok((row.get::<_, Vec<u8>>(0)?, uint(row, 1)?, uint(row, 2)?))
    });
    let Some((body, first, last)) = found.optional()? else { return Ok(None) };
    let span =
        Span::new(first, last).ok_or_else(|| nonsense("an append is remembered that added nothing"))?;
    Ok(Some(Repeat { body, span }))
}

fn log(db: &Connection, session: &SessionRow, slots: &[SlotRow], asked: &Log) -> Outcome<Vec<Outline>> {
    let (lens, within) = match asked {
        Log::None => return Ok(Vec::new()),
        Log::Pending(scope, name) => {
            let slot = slots.iter().find(|slot| slot.scope == *scope && slot.name == *name);
            let ends = slot.and_then(|slot| Some((slot.state.due?.seq, slot.state.newest?.seq)));
            let within = ends.and_then(|(due, newest)| Span::new(due.saturating_add(1), newest));
            (Lens::new(db, session.id, scope), within)
        }
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
    Ok(db.prepare_cached(&sql)?.query_row(params![session, id], rows::summary).optional()?)
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
    usage(db, &changes.usage, now)?;
    let Some(id) = put_session(db, key, standing.session.as_ref(), changes.session.as_ref(), now)? else {
        let nothing_else = changes.messages.is_empty()
            && changes.slots.is_empty()
            && changes.summary.is_none()
            && changes.states.is_empty()
            && changes.flags.is_empty()
            && changes.idempotency.is_none()
            && changes.members.is_empty()
            && changes.metadata.is_empty()
            && changes.events.is_empty();
        return if nothing_else { Ok(0) } else { Err(refused("there is no such session to write to")) };
    };
    if alters(standing.session.as_ref(), changes) {
        db.prepare_cached("UPDATE sessions SET revision = revision + 1 WHERE id = ?1")?.execute([id])?;
    }
    for message in &changes.messages {
        rows::insert_message(db, id, message, now)?;
    }
    for (seq, pinned, skip) in &changes.flags {
        let sql = "UPDATE messages SET pinned = ?3, skip = ?4 WHERE session = ?1 AND seq = ?2";
        db.prepare_cached(sql)?.execute(params![id, int(*seq), pinned, skip])?;
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
            Some(before) if active == before.active => rows::move_slot(db, id, before, slot)?,
            _ => rows::put_slot(db, id, slot, active)?,
        }
    }
    if kept.is_some() && !pointed {
        return Err(refused("a summary was to be kept without its slot"));
    }
    if let Some((key, repeat)) = &changes.idempotency {
        let sql = "INSERT OR REPLACE INTO idempotency (session, key, body, first, last, created) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let (first, last) = (int(repeat.span.from), int(repeat.span.through));
        db.prepare_cached(sql)?.execute(params![id, key, repeat.body, first, last, now.0])?;
    }
    events::write(db, known, key, &changes.events, kept.map(|(_, id)| id), now)?;
    Ok(id)
}

/// Whether contexts of a session that is there may say something else afterwards, beside new messages.
fn alters(before: Option<&SessionRow>, changes: &Changes) -> bool {
    let row = before.zip(changes.session.as_ref()).is_some_and(|(before, row)| !rows::only_grew(before, row));
    let messages = !changes.flags.is_empty() || !changes.metadata.is_empty();
    row || messages || changes.summary.is_some() || !changes.states.is_empty()
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
        Some(before) if rows::only_grew(before, row) => {
            rows::grow_session(db, before.id, row)?;
            return Ok(Some(before.id));
        }
        Some(before) => before.id,
        None => insert_session(db, key, "open", now)?,
    };
    rows::update_session(db, id, row)?;
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
    db.prepare_cached(sql)?.execute(params![session, id, rows::state_text(state)])?;
    if state == SummaryState::Superseded
        && let Some(row) = summary(db, session, id)?
    {
        let sql = "UPDATE summaries INDEXED BY summaries_sources SET sources = NULL WHERE session = ?1 AND scope = ?2 AND slot = ?3 AND id < ?4 \
             AND state <> 'standing' AND sources IS NOT NULL";
        db.prepare_cached(sql)?.execute(params![session, scope_text(&row.scope), row.slot, id])?;
    }
    Ok(())
}

/// Records calls of models, as of now where they do not say when.
pub(super) fn usage(db: &Connection, rows: &[UsageRow], now: Timestamp) -> Outcome<()> {
    for row in rows {
        let sql = "INSERT INTO usage (workspace, session, scope, slot, model, outcome, input, cached, output, cost, \
             millis, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
        db.prepare_cached(sql)?.execute(params![
            row.workspace,
            row.session,
            row.scope,
            row.slot,
            row.model,
            row.outcome,
            int(row.input),
            int(row.cached),
            int(row.output),
            row.cost,
            int(row.millis),
            if row.at == Timestamp::default() { now.0 } else { row.at.0 },
        ])?;
    }
    Ok(())
}

/// The number of the session of that name.
pub(super) fn number(db: &Connection, key: &SessionKey) -> Outcome<Option<SessionId>> {
    let sql = "SELECT id FROM sessions WHERE workspace = ?1 AND name = ?2 AND state = 'open'";
    let mut statement = db.prepare_cached(sql)?;
    Ok(statement.query_row(params![key.workspace, key.session], |row| row.get(0)).optional()?)
}
