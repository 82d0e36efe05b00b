//! Statements that are the same for both databases: see [`Sql`] for how they are written.

use epitome_core::message::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::asked::PickSummaries;
use super::changes::Repeat;
use super::columns::{scope_text, state_text};
use super::given::int;
use super::rows::{SessionId, SessionKey, SessionRow, SlotRow, SummaryId, SummaryRow};
use super::sql::Sql;

/// A value as it is written into a column. What is written here can always be written.
pub(super) fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Somebody's notes as they are written into a column: `''` for none.
pub(super) fn notes_text(notes: &Map<String, Value>) -> String {
    if notes.is_empty() { String::new() } else { json(notes) }
}

/// The number of the session of that name.
pub(super) fn number(key: &SessionKey) -> Sql<'_> {
    let sql = "SELECT id FROM epitome.sessions WHERE workspace = $1 AND name = $2 AND state = 'open'";
    Sql::new(sql, [(&*key.workspace).into(), (&*key.session).into()])
}

/// How far a session came, and what else contexts depend on.
pub(super) fn stamp(key: &SessionKey) -> Sql<'_> {
    let sql = "SELECT s.id, s.head, s.revision, w.revision FROM epitome.sessions s \
         JOIN epitome.workspaces w ON w.name = s.workspace WHERE s.workspace = $1 AND s.name = $2 AND s.state = 'open'";
    Sql::new(sql, [(&*key.workspace).into(), (&*key.session).into()])
}

/// Whether there is anything of a session to be seen: one that was deleted may still be partly there.
pub(super) fn is_there(id: SessionId) -> Sql<'static> {
    Sql::new("SELECT 1 FROM epitome.sessions WHERE id = $1 AND state <> 'gone'", [id.into()])
}

/// What every message does not change of a session's row.
pub(super) fn update_session(id: SessionId, row: &SessionRow) -> Sql<'_> {
    let sql = "UPDATE epitome.sessions SET encoding = $2, settings = $3, metadata = $4, attributes = $5, created = $6 \
         WHERE id = $1";
    let given = [
        id.into(),
        row.encoding.as_str().into(),
        row.settings.as_str().into(),
        notes_text(&row.metadata).into(),
        notes_text(&row.attributes).into(),
        row.created.into(),
    ];
    Sql::new(sql, given)
}

/// Writes a slot's row over the one it has, or makes it.
pub(super) fn put_slot<'a>(
    (session, workspace): (SessionId, &'a str),
    slot: &'a SlotRow,
    active: Option<SummaryId>,
) -> Sql<'a> {
    let sql = "INSERT INTO epitome.slots (session, scope, name, workspace, state, covered, due, active, ready_at, work, fence) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (session, scope, name) DO UPDATE SET \
         state = excluded.state, covered = excluded.covered, due = excluded.due, active = excluded.active, \
         ready_at = excluded.ready_at, work = excluded.work, fence = excluded.fence";
    let given = [
        session.into(),
        scope_text(&slot.scope).into(),
        slot.name.as_str().into(),
        workspace.into(),
        json(&slot.state).into(),
        slot.state.covered.into(),
        slot.state.due.map(|due| int(due.seq)).into(),
        active.into(),
        slot.ready_at().into(),
        json(&slot.work).into(),
        slot.fence.into(),
    ];
    Sql::new(sql, given)
}

/// The same for a slot whose row may be there: no more is written than what changed. Most appends only count, and touch no
/// index.
pub(super) fn move_slot<'a>(
    of: (SessionId, &'a str),
    before: Option<&SlotRow>,
    slot: &'a SlotRow,
    active: Option<SummaryId>,
) -> Option<Sql<'a>> {
    let Some(before) = before.filter(|before| before.active == active) else {
        return Some(put_slot(of, slot, active));
    };
    if before == slot {
        return None;
    }
    let due = |slot: &SlotRow| (slot.state.covered, slot.state.due.map(|due| due.seq), slot.ready_at());
    if due(before) != due(slot) || before.fence != slot.fence || before.work != slot.work {
        return Some(put_slot(of, slot, active));
    }
    let sql = "UPDATE epitome.slots SET state = $4 WHERE session = $1 AND scope = $2 AND name = $3";
    let (scope, name) = (scope_text(&slot.scope).into(), slot.name.as_str().into());
    Some(Sql::new(sql, [of.0.into(), scope, name, json(&slot.state).into()]).merges())
}

/// Stores a summary under this number.
pub(super) fn insert_summary(session: SessionId, id: SummaryId, row: &SummaryRow) -> Sql<'_> {
    let sql = "INSERT INTO epitome.summaries (session, id, scope, slot, through, state, parent, text, sources, facts, \
         created, asked) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    let given = [
        session.into(),
        id.into(),
        scope_text(&row.scope).into(),
        row.slot.as_str().into(),
        row.through.into(),
        state_text(row.state).into(),
        row.parent.into(),
        row.text.as_str().into(),
        Some(row.sources.as_str()).filter(|sources| !sources.is_empty()).into(),
        json(&row.facts).into(),
        row.created.into(),
        row.facts.asked.as_deref().into(),
    ];
    Sql::new(sql, given)
}

/// The numbers of summaries in the order in which they are wanted. They are put in order from an index alone: rows with
/// their words would be much to sort.
pub(super) fn summary_ids(session: SessionId, pick: &PickSummaries) -> Sql<'_> {
    match pick {
        PickSummaries::Ids(_) | PickSummaries::Standing => {
            let sql = "SELECT id FROM epitome.summaries INDEXED BY summaries_standing \
                 WHERE session = $1 AND state = 'standing' ORDER BY scope, slot";
            Sql::new(sql, [session.into()])
        }
        PickSummaries::History { slot: None, before, limit } => {
            let sql = "SELECT id FROM epitome.summaries INDEXED BY summaries_by_number \
                 WHERE session = $1 AND id < $2 ORDER BY id DESC LIMIT $3";
            Sql::new(sql, [session.into(), before.unwrap_or(i64::MAX).into(), (*limit).into()])
        }
        PickSummaries::History { slot: Some((scope, name)), before, limit } => {
            let sql = "SELECT id FROM epitome.summaries INDEXED BY summaries_by_slot \
                 WHERE session = $1 AND scope = $2 AND slot = $3 AND id < $4 ORDER BY id DESC LIMIT $5";
            let (scope, name) = (scope_text(scope).into(), name.as_str().into());
            let before = before.unwrap_or(i64::MAX).into();
            Sql::new(sql, [session.into(), scope, name, before, (*limit).into()])
        }
    }
}

/// The text of a summary that was written to the same question. It goes from the question to its session: a workspace
/// may have a million of them.
pub(super) fn recall<'a>(workspace: &'a str, session: SessionId, asked: &'a str) -> Sql<'a> {
    let sql = "SELECT text FROM epitome.summaries AS found INDEXED BY summaries_asked WHERE asked = $1 \
         AND state <> 'undone' \
         AND EXISTS (SELECT 1 FROM epitome.sessions WHERE id = found.session AND workspace = $2 AND state = 'open') \
         AND NOT EXISTS (SELECT 1 FROM epitome.summaries INDEXED BY summaries_asked \
         WHERE asked = $1 AND state = 'undone' AND session = $3) ORDER BY kept DESC LIMIT 1";
    Sql::new(sql, [asked.into(), workspace.into(), session.into()])
}

/// Remembers an append by its key.
pub(super) fn put_repeat<'a>(id: SessionId, key: &'a str, repeat: &'a Repeat, now: Timestamp) -> Sql<'a> {
    let sql = "INSERT INTO epitome.idempotency (session, key, body, first, last, created) \
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (session, key) DO UPDATE SET body = excluded.body, \
         first = excluded.first, last = excluded.last, created = excluded.created";
    let (first, last) = (repeat.span.from.into(), repeat.span.through.into());
    Sql::new(sql, [id.into(), key.into(), repeat.body.as_slice().into(), first, last, now.into()])
}
