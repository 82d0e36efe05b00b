//! Reads a session's state, and writes the changes that a decision function returns.
//!
//! The session's row is the lock for everything that belongs to the session. A transaction that changes the session
//! locks the row. A worker that leases one of the session's slots locks the row too. In PostgreSQL a change locks the
//! row for two round trips.

use std::sync::LazyLock;

use epitome_core::message::{Span, Timestamp};

use super::changes::{
    Changes, Decide, EarlierAppend, IDEMPOTENCY_TTL_MILLIS, Load, LoadLog, MAX_PENDING, SessionState,
};
use super::decode::{
    self, CUTS, OUTLINE, ROLES, RowRef, SESSION, SLOT, json, notes_text, number_of, scope_text, shape_bits,
    state_text,
};
use super::directory::Membership;
use super::directory_queries::{ensure_workspace, run_decision, write_member_changes};
use super::events::write_events;
use super::executor::{self, Executor, SqlBatch};
use super::log_query::LogQuery;
use super::op_error::{OpResult, damaged, rejected};
use super::read::{sort_by_ids, summaries_by_id};
use super::rows::{
    NewMessage, SessionId, SessionKey, SessionRow, SlotRow, Stamp, SummaryId, SummaryRow, SummaryState,
    replace_metadata,
};
use super::sql::Sql;
use super::sql_params::{SqlParam, int, merge_column};
use super::usage::usage_insert;

/// A subquery that returns the id of the session with the workspace `$1` and the name `$2`.
macro_rules! session_id {
    () => {
        "(SELECT id FROM epitome.sessions WHERE workspace = $1 AND name = $2 AND state = 'open')"
    };
}

/// The SQL clause that locks the session's row for a change. It is weaker than `FOR UPDATE`: a transaction that only
/// needs the row to exist (`FOR KEY SHARE`) does not wait.
const LOCK: &str = " FOR NO KEY UPDATE";

/// Returns the query for a session's row. `lock` is a locking clause, empty for no lock.
pub(super) fn session_query<'a>(key: &'a SessionKey, lock: &str) -> Sql<'a> {
    let sql = format!(
        "SELECT {SESSION}, revision FROM epitome.sessions WHERE workspace = $1 AND name = $2 AND state = 'open'{lock}"
    );
    Sql::new(sql, key_params(key)).mergeable()
}

/// Returns the query for the settings of the session's workspace.
pub(super) fn settings_query(key: &SessionKey) -> Sql<'_> {
    Sql::new("SELECT settings FROM epitome.workspaces WHERE name = $1", [(&*key.workspace).into()])
        .mergeable()
}

fn key_params(key: &SessionKey) -> [SqlParam<'_>; 2] {
    [(&*key.workspace).into(), (&*key.session).into()]
}

/// Returns the query for a session's id.
pub(super) fn session_id_query(key: &SessionKey) -> Sql<'_> {
    let sql = "SELECT id FROM epitome.sessions WHERE workspace = $1 AND name = $2 AND state = 'open'";
    Sql::new(sql, key_params(key))
}

/// Reads a session's stamp: its last message and the revisions that its contexts depend on.
pub(super) async fn stamp(db: &mut dyn Executor, key: &SessionKey) -> OpResult<Option<Stamp>> {
    let sql = "SELECT s.id, s.head, s.revision, w.revision FROM epitome.sessions s \
         JOIN epitome.workspaces w ON w.name = s.workspace WHERE s.workspace = $1 AND s.name = $2 AND s.state = 'open'";
    let stamp = |row: RowRef<'_>| {
        Ok(Stamp {
            session: row.int(0)?,
            head: row.uint(1)?,
            revision: row.uint(2)?,
            workspace: row.uint(3)?,
        })
    };
    executor::first(db, Sql::new(sql, key_params(key)), stamp).await
}

/// Reads a session's state, with everything that `load` requests. `lock` is a locking clause, empty for no lock.
pub(super) async fn session_state(
    db: &mut dyn Executor,
    key: &SessionKey,
    load: &Load,
    lock: &str,
) -> OpResult<SessionState> {
    let slots =
        concat!(" FROM epitome.slots s WHERE s.session = ", session_id!(), " ORDER BY s.scope, s.name");
    let slots = Sql::new(format!("SELECT {SLOT}{slots}"), key_params(key)).mergeable();
    let (mut row, mut settings, mut slot_rows, mut earlier) = (None, None, Vec::new(), None);
    let mut batch = SqlBatch::new()
        .first(session_query(key, lock), &mut row, decode::session)
        .first(settings_query(key), &mut settings, |row| row.string(0))
        .all(slots, &mut slot_rows, decode::slot);
    if let Some(idempotency_key) = &load.idempotency {
        batch = batch.first(earlier_append_query(key, idempotency_key), &mut earlier, read_earlier_append);
    }
    db.run(batch).await?;
    let mut state = SessionState::bare(db.now().await?, settings.unwrap_or_default(), row);
    state.slots = slot_rows;
    state.earlier_append = unless_expired(earlier, state.now);
    load_more(db, &mut state, load).await?;
    Ok(state)
}

/// Returns the query for the append that was stored under this idempotency key.
fn earlier_append_query<'a>(key: &'a SessionKey, idempotency_key: &'a str) -> Sql<'a> {
    let sql = concat!(
        "SELECT body, first, last, created FROM epitome.idempotency WHERE session = ",
        session_id!(),
        " AND key = $3"
    );
    let [workspace, name] = key_params(key);
    Sql::new(sql, [workspace, name, idempotency_key.into()])
}

fn read_earlier_append(row: RowRef<'_>) -> OpResult<(EarlierAppend, Timestamp)> {
    let span = Span::new(row.uint(1)?, row.uint(2)?);
    let span = span.ok_or_else(|| damaged("an idempotency key refers to no messages"))?;
    Ok((EarlierAppend { body: row.bytes(0)?.to_vec(), span }, row.time(3)?))
}

/// Returns the earlier append, unless its idempotency key has expired.
fn unless_expired(earlier: Option<(EarlierAppend, Timestamp)>, now: Timestamp) -> Option<EarlierAppend> {
    let (append, created) = earlier?;
    (created.0 >= now.0.saturating_sub(IDEMPOTENCY_TTL_MILLIS)).then_some(append)
}

/// Reads the outlines and summaries that `load` requests.
async fn load_more(db: &mut dyn Executor, state: &mut SessionState, load: &Load) -> OpResult<()> {
    let Some(session) = &state.session else { return Ok(()) };
    let (id, head) = (session.id, session.tracker.head());
    let mut log_query = LogQuery::whole(id);
    let within = match &load.log {
        LoadLog::Pending(scope, name) => {
            log_query = LogQuery::new(id, scope);
            state.pending(scope, name)
        }
        LoadLog::CallBatch(seq) if (1..=head).contains(seq) => {
            Some(log_query.call_batch(db, *seq, head).await?)
        }
        LoadLog::None | LoadLog::CallBatch(_) => None,
    };
    if let Some(within) = within {
        state.log = log_query.read_outlines(db, within, MAX_PENDING).await?;
    }
    if !load.summaries.is_empty() {
        let found = executor::all(db, summaries_by_id(id, &load.summaries), decode::summary).await?;
        state.summaries = sort_by_ids(found, &load.summaries);
    }
    Ok(())
}

/// Reads the state, calls `decide` and writes the changes. Returns the session's id; `None` if `decide` returned no
/// changes.
pub(super) async fn change(
    db: &mut dyn Executor,
    key: &SessionKey,
    load: &Load,
    decide: &Decide,
) -> OpResult<Option<SessionId>> {
    let state = match db.take_cached(key) {
        Some(mut cached) => {
            if let Some(idempotency_key) = &load.idempotency {
                let query = earlier_append_query(key, idempotency_key);
                let earlier = executor::first(db, query, read_earlier_append).await?;
                cached.earlier_append = unless_expired(earlier, cached.now);
            }
            load_more(db, &mut cached, load).await?;
            debug_assert!(is_same(&cached, &session_state(db, key, load, LOCK).await?), "the cache is stale");
            cached
        }
        None => session_state(db, key, load, LOCK).await?,
    };
    let changes = run_decision(|| decide(&state))?;
    let written = match &changes {
        Some(changes) => Some(write(db, key, &state, changes).await?),
        None => None,
    };
    db.on_decided(key, state, changes, written);
    Ok(written)
}

/// Whether two states of a session are equal. Logs and summaries are not compared.
fn is_same(one: &SessionState, two: &SessionState) -> bool {
    one.workspace_settings == two.workspace_settings && one.session == two.session && one.slots == two.slots
}

/// Returns the membership changes that must be written. A join without attributes is left out if the cache shows that
/// the author is a member already. This is the case for most messages.
fn member_changes<'a>(
    db: &dyn Executor,
    before: Option<&SessionRow>,
    changes: &'a Changes,
) -> Vec<&'a Membership> {
    let joins = changes.members.iter().all(|change| matches!(change, Membership::Join(..)));
    let already_member = |change: &Membership| match (change, before) {
        (Membership::Join(name, None), Some(session)) => joins && db.has_cached_member(session.id, name),
        _ => false,
    };
    changes.members.iter().filter(|change| !already_member(change)).collect()
}

/// Writes the changes and commits. Returns the session's id.
async fn write(
    db: &mut dyn Executor,
    key: &SessionKey,
    state: &SessionState,
    changes: &Changes,
) -> OpResult<SessionId> {
    let now = state.now;
    let before = state.session.as_ref();
    let member_changes = member_changes(db, before, changes);
    let mut batch = SqlBatch::new();
    changes.usage.iter().for_each(|row| batch.push(usage_insert(row, now)));
    let id = match (before, &changes.session) {
        (Some(before), _) => before.id,
        (None, Some(_)) => insert_session(db, key, "open").await?,
        (None, None) if changes.needs_no_session() => {
            db.finish(batch).await?;
            return Ok(0);
        }
        (None, None) => {
            return Err(rejected("the session does not exist, and the change does not create it"));
        }
    };
    let mut writes = SessionWrites { batch, id, key };
    if let Some(row) = &changes.session {
        writes.update_session(before, row);
    }
    if changes.alters_contexts(before) {
        writes.push("UPDATE epitome.sessions SET revision = revision + 1 WHERE id = $1", [id.into()]);
    }
    let mark = db.commit_mark();
    writes.insert_messages(&changes.messages, now, mark);
    for (seq, pinned, skip) in &changes.flags {
        let sql = "UPDATE epitome.messages SET pinned = $3, skip = $4 WHERE session = $1 AND seq = $2";
        writes.push(sql, [id.into(), (*seq).into(), (*pinned).into(), (*skip).into()]);
    }
    for (seq, metadata) in &changes.metadata {
        let sql = "SELECT body FROM epitome.messages WHERE session = $1 AND seq = $2";
        let body =
            executor::first(db, Sql::new(sql, [id.into(), (*seq).into()]), |row| row.string(0)).await?;
        let body = body.ok_or_else(|| damaged("a message is missing"))?;
        let body =
            replace_metadata(&body, metadata).map_err(|_| damaged("a message's content cannot be read"))?;
        let sql = "UPDATE epitome.messages SET body = $3 WHERE session = $1 AND seq = $2";
        writes.push(sql, [id.into(), (*seq).into(), body.into()]);
    }
    write_member_changes(db, &mut writes.batch, (key, id), &member_changes).await?;
    changes.states.iter().for_each(|(summary, state)| writes.set_summary_state(*summary, *state));
    let mut new_summary = None;
    if let Some(row) = &changes.summary {
        let sql = "SELECT coalesce(max(id), 0) + 1 FROM epitome.summaries INDEXED BY summaries_by_number \
             WHERE session = $1";
        new_summary = Some((row, executor::number(db, Sql::new(sql, [id.into()])).await?));
    }
    writes.write_slots(state, &changes.slots, new_summary)?;
    if let Some((idempotency_key, append)) = &changes.idempotency {
        let sql = "INSERT INTO epitome.idempotency (session, key, body, first, last, created) \
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (session, key) DO UPDATE SET body = excluded.body, \
             first = excluded.first, last = excluded.last, created = excluded.created";
        let (body, first, last) = (&*append.body, append.span.from.into(), append.span.through.into());
        writes.push(sql, [id.into(), idempotency_key.as_str().into(), body.into(), first, last, now.into()]);
    }
    write_events(db, &mut writes.batch, key, &changes.events, new_summary.map(|(_, id)| id)).await?;
    // If the connection breaks during the commit, this query shows whether the changes were committed. The query looks
    // for a row that is never overwritten.
    let commit_check = if let Some(first) = changes.messages.first() {
        let sql = "SELECT 1 FROM epitome.messages WHERE session = $1 AND seq = $2 AND change = $3";
        Sql::new(sql, [id.into(), first.outline.seq.into(), mark.into()])
    } else if let Some((row, summary_id)) = new_summary {
        let sql =
            "SELECT 1 FROM epitome.summaries WHERE session = $1 AND id = $2 AND created = $3 AND facts = $4";
        Sql::new(sql, [id.into(), summary_id.into(), row.created.into(), json(&row.facts).into()])
    } else {
        db.finish(writes.batch).await?;
        return Ok(id);
    };
    db.finish_checked(writes.batch, Some(commit_check)).await?;
    Ok(id)
}

/// Inserts a session's row. Also creates the workspace if it does not exist. Most columns get placeholders, which a
/// later update replaces.
pub(super) async fn insert_session(
    db: &mut dyn Executor,
    key: &SessionKey,
    state: &'static str,
) -> OpResult<SessionId> {
    ensure_workspace(db, &key.workspace).await?;
    let sql = "INSERT INTO epitome.sessions (workspace, name, state, encoding, tracker, head, turns, tokens, opener, \
         batch_from, batch_skipped, skipped, created, updated) \
         VALUES ($1, $2, $3, '', '', 0, 0, 0, 0, 0, false, 0, $4, $4) RETURNING id";
    let [workspace, name] = key_params(key);
    let params = [workspace, name, state.into(), db.now().await?.into()];
    executor::number(db, Sql::new(sql, params)).await
}

/// Collects the writes to a session whose row exists.
pub(super) struct SessionWrites<'a> {
    pub(super) batch: SqlBatch<'a>,
    pub(super) id: SessionId,
    pub(super) key: &'a SessionKey,
}

impl<'a> SessionWrites<'a> {
    fn push(&mut self, sql: &'static str, params: impl Into<Vec<SqlParam<'a>>>) {
        self.batch.push(Sql::new(sql, params));
    }

    /// Updates the session's row. Does not write the column `indexed`, which only the search index maintains.
    pub(super) fn update_session(&mut self, before: Option<&SessionRow>, row: &'a SessionRow) {
        let sql = "UPDATE epitome.sessions SET tracker = $2, head = $3, turns = $4, tokens = $5, opener = $6, \
             batch_from = $7, batch_skipped = $8, skipped = $9, updated = $10 WHERE id = $1";
        let tracker = &row.tracker;
        let params = [
            self.id.into(),
            json(tracker).into(),
            tracker.head().into(),
            tracker.turns().into(),
            tracker.tokens().into(),
            row.opener.into(),
            row.batch_from.into(),
            row.batch_skipped.into(),
            row.skipped.into(),
            row.updated.into(),
        ];
        self.batch.push(Sql::new(sql, params).mergeable());
        if !before.is_some_and(|before| row.only_grew_from(before)) {
            // These columns change rarely, not with every message.
            let sql = "UPDATE epitome.sessions SET encoding = $2, settings = $3, metadata = $4, attributes = $5, \
                 created = $6 WHERE id = $1";
            let (encoding, settings) = (row.encoding.as_str().into(), row.settings.as_str().into());
            let (metadata, attributes) =
                (notes_text(&row.metadata).into(), notes_text(&row.attributes).into());
            self.push(sql, [self.id.into(), encoding, settings, metadata, attributes, row.created.into()]);
        }
    }

    /// Inserts messages. In PostgreSQL, one statement inserts all messages, together with the commit mark `mark`. In
    /// SQLite, `mark` is `None`, and each message has its own statement.
    fn insert_messages(&mut self, messages: &'a [NewMessage], now: Timestamp, mark: Option<i64>) {
        let ([one, all], id) = (&*INSERT, self.id);
        let fixed = || [id.into(), now.into()].into_iter().chain(mark.map(SqlParam::from));
        let rows = messages.iter().map(|row| fixed().chain(message_params(row)));
        if mark.is_none() {
            rows.for_each(|row| self.push(one, row.collect::<Vec<_>>()));
        } else if !messages.is_empty() {
            let mut rows: Vec<_> = rows.collect();
            let params: Vec<_> =
                (0..24).map(|_| merge_column(rows.iter_mut().filter_map(Iterator::next))).collect();
            self.batch.push(Sql::new(all.as_str(), params).mergeable());
        }
    }

    /// Writes the new rows of slots, and the new summary if there is one. `slots` must contain the summary's slot. The
    /// new row of this slot points to the summary.
    fn write_slots(
        &mut self,
        state: &SessionState,
        slots: &'a [SlotRow],
        new_summary: Option<(&'a SummaryRow, SummaryId)>,
    ) -> OpResult<()> {
        let mut is_referenced = false;
        for slot in slots {
            let new = new_summary.filter(|(row, _)| row.scope == slot.scope && row.slot == slot.name);
            is_referenced |= new.is_some();
            let active = new.map(|(_, id)| id).or(slot.active);
            self.update_slot(state.slot(&slot.scope, &slot.name), slot, active);
        }
        if new_summary.is_some() && !is_referenced {
            return Err(rejected("the change adds a summary, but does not contain the summary's slot"));
        }
        new_summary.into_iter().for_each(|(row, id)| self.insert_summary(id, row));
        Ok(())
    }

    /// Inserts or replaces a slot's row.
    pub(super) fn put_slot(&mut self, slot: &'a SlotRow, active: Option<SummaryId>) {
        let sql = "INSERT INTO epitome.slots (session, scope, name, workspace, state, covered, due, active, ready_at, work, \
             fence) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (session, scope, name) DO UPDATE SET \
             state = excluded.state, covered = excluded.covered, due = excluded.due, active = excluded.active, \
             ready_at = excluded.ready_at, work = excluded.work, fence = excluded.fence";
        let params = [
            self.id.into(),
            scope_text(&slot.scope).into(),
            slot.name.as_str().into(),
            (&*self.key.workspace).into(),
            json(&slot.state).into(),
            slot.state.covered.into(),
            slot.state.due.map(|due| int(due.seq)).into(),
            active.into(),
            slot.ready_at().into(),
            json(&slot.work).into(),
            slot.fence.into(),
        ];
        self.push(sql, params);
    }

    /// Writes a slot's row if it has changed. If only the column `state` has changed, writes only this column. Most
    /// appends change only counters in `state`, and no index contains this column.
    fn update_slot(&mut self, before: Option<&SlotRow>, slot: &'a SlotRow, active: Option<SummaryId>) {
        let due = |slot: &SlotRow| (slot.state.covered, slot.state.due.map(|due| due.seq), slot.ready_at());
        match before.filter(|before| before.active == active) {
            Some(before) if before == slot => {}
            Some(before)
                if due(before) == due(slot) && before.fence == slot.fence && before.work == slot.work =>
            {
                let sql =
                    "UPDATE epitome.slots SET state = $4 WHERE session = $1 AND scope = $2 AND name = $3";
                let (scope, name) = (scope_text(&slot.scope).into(), slot.name.as_str().into());
                let params = [self.id.into(), scope, name, json(&slot.state).into()];
                self.batch.push(Sql::new(sql, params).mergeable());
            }
            _ => self.put_slot(slot, active),
        }
    }

    /// Inserts a summary with this id.
    pub(super) fn insert_summary(&mut self, id: SummaryId, row: &'a SummaryRow) {
        let sql = "INSERT INTO epitome.summaries (session, id, scope, slot, through, state, parent, text, sources, facts, \
             created, asked) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
        let params = [
            self.id.into(),
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
            row.facts.request_hash.as_deref().into(),
        ];
        self.push(sql, params);
    }

    /// Changes a summary's state. If the summary is now superseded, also deletes the sources of the slot's earlier
    /// summaries. These sources are not needed any more: the next summary is built on the current summary or, after an
    /// undo, on the summary before it.
    fn set_summary_state(&mut self, summary: SummaryId, state: SummaryState) {
        let sql = "UPDATE epitome.summaries SET state = $3 WHERE session = $1 AND id = $2";
        self.push(sql, [self.id.into(), summary.into(), state_text(state).into()]);
        if state == SummaryState::Superseded {
            let sql = "UPDATE epitome.summaries INDEXED BY summaries_sources SET sources = NULL WHERE session = $1 \
                 AND scope = (SELECT scope FROM epitome.summaries WHERE session = $1 AND id = $2) \
                 AND slot = (SELECT slot FROM epitome.summaries WHERE session = $1 AND id = $2) \
                 AND id < $2 AND state <> 'standing' AND sources IS NOT NULL";
            self.push(sql, [self.id.into(), summary.into()]);
        }
    }
}

/// The columns of a message, in the order of [`message_params`]. The session, the creation time and PostgreSQL's commit
/// mark are left out.
pub(super) static MESSAGE_COLUMNS: LazyLock<String> = LazyLock::new(|| format!("{OUTLINE}, opener, body"));

fn message_params(message: &NewMessage) -> [SqlParam<'_>; 21] {
    let o = &message.outline;
    let count = |value: u32| i64::from(value).into();
    [
        o.seq.into(),
        number_of(&ROLES, &o.role).into(),
        o.author.as_deref().into(),
        o.turn.into(),
        o.tokens.into(),
        o.before.into(),
        o.chars.into(),
        o.longest.into(),
        count(o.calls),
        count(o.answers),
        count(o.own_answers),
        count(o.open),
        count(o.own_open),
        shape_bits(o).into(),
        o.pinned.into(),
        o.skip.into(),
        number_of(&CUTS, &o.cut).into(),
        number_of(&CUTS, &o.own_cut).into(),
        o.at.into(),
        message.opener.into(),
        message.body.as_str().into(),
    ]
}

/// Two statements that insert messages. The first, for SQLite, inserts a single message. The second, for PostgreSQL,
/// inserts several messages: each parameter is a list with the values of one column.
static INSERT: LazyLock<[String; 2]> = LazyLock::new(|| {
    let placeholders = |count| (1..=count).map(|at| format!("${at}")).collect::<Vec<_>>().join(", ");
    let (columns, one, all) = (&*MESSAGE_COLUMNS, placeholders(23), placeholders(24));
    [
        format!("INSERT INTO epitome.messages (session, created, {columns}) VALUES ({one})"),
        format!(
            "INSERT INTO epitome.messages (session, created, change, {columns}) SELECT * FROM unnest({all})"
        ),
    ]
});
