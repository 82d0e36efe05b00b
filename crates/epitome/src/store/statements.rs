//! Statements that are the same for both databases: see [`Sql`] for how they are written.

use epitome_core::message::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::asked::{PickSummaries, UsageQuery};
use super::changes::Repeat;
use super::columns::{scope_text, state_text};
use super::decode::KEY;
use super::given::{Given, int};
use super::inlines::{InlineRow, Passed};
use super::keyring::{KeyHash, PickKeys};
use super::rows::{SessionId, SessionKey, SessionRow, SlotRow, SummaryId, SummaryRow, UsageRow};
use super::sql::Sql;
use crate::key::Key;

/// A value as it is written into a column. What is written here can always be written.
pub(super) fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Somebody's notes as they are written into a column: `''` for none.
pub(super) fn notes_text(notes: &Map<String, Value>) -> String {
    if notes.is_empty() { String::new() } else { json(notes) }
}

fn optional(at: Option<Timestamp>) -> Given<'static> {
    at.map(|at| at.0).into()
}

/// The number of the session of that name.
pub(super) fn number(key: &SessionKey) -> Sql<'_> {
    let sql = "SELECT id FROM epitome.sessions WHERE workspace = $1 AND name = $2 AND state = 'open'";
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
        optional(slot.ready_at()),
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

/// Stores a new key.
pub(super) fn add_key<'a>(key: &'a Key, hash: &'a KeyHash) -> Sql<'a> {
    let sql = "INSERT INTO epitome.keys (id, hash, workspace, rights, label, created, expires, revoked) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let given = [
        key.id.as_str().into(),
        hash.as_slice().into(),
        key.workspace.as_deref().into(),
        key.rights.name().into(),
        key.label.as_str().into(),
        key.created.into(),
        optional(key.expires),
        optional(key.revoked),
    ];
    Sql::new(sql, given)
}

pub(super) fn keys(pick: &PickKeys) -> Sql<'_> {
    match pick {
        PickKeys::Id(id) => {
            let sql = format!("SELECT {KEY} FROM epitome.keys WHERE id = $1");
            Sql::new(sql, [id.as_str().into()])
        }
        PickKeys::Page { workspace, after, limit } => {
            let sql = format!(
                "SELECT {KEY} FROM epitome.keys WHERE id > $1 AND ($2 IS NULL OR workspace = $2) ORDER BY id LIMIT $3"
            );
            let after = after.as_deref().unwrap_or_default();
            Sql::new(sql, [after.into(), workspace.as_deref().into(), (*limit).into()])
        }
    }
}

/// Records a call of a model, as of now where it does not say when.
pub(super) fn record(row: &UsageRow, now: Timestamp) -> Sql<'_> {
    let sql = "INSERT INTO epitome.usage (workspace, session, scope, slot, model, outcome, input, cached, output, cost, \
         millis, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    let texts = [&row.workspace, &row.session, &row.scope, &row.slot, &row.model, &row.outcome];
    let at = if row.at == Timestamp::default() { now } else { row.at };
    let mut given: Vec<Given<'_>> = texts.into_iter().map(|text| text.as_str().into()).collect();
    given.extend([row.input, row.cached, row.output].map(Given::from));
    given.extend([row.cost.into(), row.millis.into(), at.into()]);
    Sql::new(sql, given)
}

/// A sum that stays the largest number there is; nothing where there is nothing to add up.
fn sum(column: &str) -> String {
    format!(
        "CASE WHEN sum({column}) > 9223372036854775807 THEN 9223372036854775807 ELSE CAST(sum({column}) AS bigint) END"
    )
}

fn sums(columns: &str) -> String {
    columns.split(", ").map(sum).collect::<Vec<_>>().join(", ")
}

pub(super) fn usage(query: &UsageQuery) -> Sql<'_> {
    let session = if query.by_session { "session" } else { "''" };
    let sums = sums("input, cached, output, cost, millis");
    let sql = format!(
        "SELECT {session} AS apart, scope, slot, model, outcome, count(*), {sums} FROM epitome.usage \
         WHERE workspace = $1 AND at >= $2 AND ($3 IS NULL OR session = $3) \
         GROUP BY apart, scope, slot, model, outcome ORDER BY apart, scope, slot, model, outcome"
    );
    Sql::new(sql, [(&*query.workspace).into(), query.since.into(), query.session.as_deref().into()])
}

/// So many lists are remembered in a workspace.
const MOST_LISTS: i64 = 1_000;

/// The columns of [`Passed`] that are added up.
const PASSED: &str =
    "requests, shorter, retried, cut_off, uncounted, input, cached, output, saved, cost, saved_cost";

/// So many models are told apart in an hour.
const MOST_MODELS: i64 = 100;

/// What the others are called.
const OTHER: &str = "other";

const HOUR_MILLIS: i64 = 3_600_000;

fn hour(at: Timestamp) -> i64 {
    at.0.div_euclid(HOUR_MILLIS).saturating_mul(HOUR_MILLIS)
}

/// Stores what was done to a list, and drops the oldest where there are too many.
pub(super) fn keep_inline<'a>(workspace: &'a str, row: &'a InlineRow, now: Timestamp) -> [Sql<'a>; 2] {
    // Later than all others, whatever the clock says, so that the oldest can be told.
    let keep = "INSERT INTO epitome.inline (workspace, root, length, hash, kept, at) VALUES ($1, $2, $3, $4, $5, \
         (SELECT CASE WHEN max(at) >= $6 THEN max(at) + 1 ELSE $6 END FROM epitome.inline WHERE workspace = $1)) \
         ON CONFLICT (workspace, root, length, hash) DO UPDATE SET kept = excluded.kept, at = excluded.at";
    let given = [
        workspace.into(),
        row.root.as_slice().into(),
        row.length.into(),
        row.hash.as_slice().into(),
        row.kept.as_str().into(),
        now.into(),
    ];
    let trim = "DELETE FROM epitome.inline WHERE workspace = $1 AND at < \
         (SELECT at FROM epitome.inline WHERE workspace = $1 ORDER BY at DESC LIMIT 1 OFFSET $2)";
    [Sql::new(keep, given), Sql::new(trim, [workspace.into(), (MOST_LISTS - 1).into()])]
}

/// Adds to what passed through in this hour, under its model's name or, where there are too many, under [`OTHER`].
pub(super) fn add_passed<'a>(workspace: &'a str, more: &'a Passed, now: Timestamp) -> Sql<'a> {
    let added: Vec<String> =
        PASSED.split(", ").map(|column| format!("{column} = p.{column} + excluded.{column}")).collect();
    let sql = format!(
        "INSERT INTO epitome.passed AS p (workspace, hour, model, shadow, {PASSED}) SELECT $1, $2, CASE WHEN \
         EXISTS (SELECT 1 FROM epitome.passed WHERE workspace = $1 AND hour = $2 AND model = $3) OR \
         (SELECT count(DISTINCT model) FROM epitome.passed WHERE workspace = $1 AND hour = $2) < $16 THEN $3 ELSE $17 END, \
         $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15 WHERE true \
         ON CONFLICT (workspace, hour, model, shadow) DO UPDATE SET {}",
        added.join(", ")
    );
    let counts = [
        more.requests,
        more.shorter,
        more.retried,
        more.cut_off,
        more.uncounted,
        more.input,
        more.cached,
        more.output,
        more.saved,
    ];
    let mut given = vec![workspace.into(), hour(now).into(), more.model.as_str().into(), more.shadow.into()];
    given.extend(counts.map(Given::from));
    given.extend([more.cost.into(), more.saved_cost.into(), MOST_MODELS.into(), OTHER.into()]);
    Sql::new(sql, given)
}

pub(super) fn passed(workspace: &str, since: Timestamp) -> Sql<'_> {
    let sums = sums(PASSED);
    let sql = format!(
        "SELECT model, shadow, {sums} FROM epitome.passed WHERE workspace = $1 AND hour >= $2 \
         GROUP BY model, shadow ORDER BY model, shadow"
    );
    Sql::new(sql, [workspace.into(), hour(since).into()])
}
