//! Reads a session's state and writes the changes that were decided.
//!
//! The session's row is the lock for everything that belongs to the session. A transaction that changes the session locks
//! the row, and so does a worker that leases one of its slots. In PostgreSQL the lock lasts for two round trips.

use std::sync::LazyLock;

use epitome_core::message::{Span, Timestamp};

use super::ask::{self, Ask, Batch};
use super::changes::{Changes, Decide, Load, Log, MOST_PENDING, REMEMBERED_MILLIS, Repeat, Standing};
use super::decode::{
    self, CUTS, Found, OUTLINE, ROLES, SESSION, SLOT, json, notes_text, number_of, scope_text, shape_bits,
    state_text,
};
use super::directory::Membership;
use super::events::tell;
use super::given::{Given, column, int};
use super::lens::Lens;
use super::people::{decided, make_workspace, set_members};
use super::read::{by_number, in_order};
use super::rows::{
    NewMessage, SessionId, SessionKey, SessionRow, SlotRow, Stamp, SummaryId, SummaryRow, SummaryState,
    with_metadata,
};
use super::sql::Sql;
use super::trouble::{Outcome, nonsense, refused};
use super::usage::record_one;

/// A subquery for the id of the session with this name.
macro_rules! session_id {
    () => {
        "(SELECT id FROM epitome.sessions WHERE workspace = $1 AND name = $2 AND state = 'open')"
    };
}

/// Locks the session's row for a change. Weaker than `FOR UPDATE`: a transaction that only needs the row to exist does not
/// wait.
const LOCK: &str = " FOR NO KEY UPDATE";

/// Reads the session with this name.
pub(super) fn session<'a>(key: &'a SessionKey, lock: &str) -> Sql<'a> {
    let sql = format!(
        "SELECT {SESSION}, revision FROM epitome.sessions WHERE workspace = $1 AND name = $2 AND state = 'open'{lock}"
    );
    Sql::new(sql, named(key)).merges()
}

/// Reads the settings of the session's workspace.
pub(super) fn settings(key: &SessionKey) -> Sql<'_> {
    Sql::new("SELECT settings FROM epitome.workspaces WHERE name = $1", [(&*key.workspace).into()]).merges()
}

fn named(key: &SessionKey) -> [Given<'_>; 2] {
    [(&*key.workspace).into(), (&*key.session).into()]
}

/// Reads the id of the session with this name.
pub(super) fn number(key: &SessionKey) -> Sql<'_> {
    let sql = "SELECT id FROM epitome.sessions WHERE workspace = $1 AND name = $2 AND state = 'open'";
    Sql::new(sql, named(key))
}

/// Reads a session's stamp: its last message and the revisions that its contexts depend on.
pub(super) async fn stamp(ask: &mut dyn Ask, key: &SessionKey) -> Outcome<Option<Stamp>> {
    let sql = "SELECT s.id, s.head, s.revision, w.revision FROM epitome.sessions s \
         JOIN epitome.workspaces w ON w.name = s.workspace WHERE s.workspace = $1 AND s.name = $2 AND s.state = 'open'";
    let stamp = |row: Found<'_>| {
        Ok(Stamp {
            session: row.int(0)?,
            head: row.uint(1)?,
            revision: row.uint(2)?,
            workspace: row.uint(3)?,
        })
    };
    ask::first(ask, Sql::new(sql, named(key)), stamp).await
}

/// Reads a session's state, with everything that `load` requests.
pub(super) async fn standing(
    ask: &mut dyn Ask,
    key: &SessionKey,
    load: &Load,
    lock: &str,
) -> Outcome<Standing> {
    let slots =
        concat!(" FROM epitome.slots s WHERE s.session = ", session_id!(), " ORDER BY s.scope, s.name");
    let slots = Sql::new(format!("SELECT {SLOT}{slots}"), named(key)).merges();
    let (mut row, mut settings, mut all, mut repeat) = (None, None, Vec::new(), None);
    let mut batch = Batch::new()
        .first(session(key, lock), &mut row, decode::session)
        .first(self::settings(key), &mut settings, |row| row.string(0))
        .all(slots, &mut all, decode::slot);
    if let Some(asked) = &load.idempotency {
        batch = batch.first(self::repeat(key, asked), &mut repeat, remembered);
    }
    ask.ask(batch).await?;
    let mut standing = Standing::bare(ask.now().await?, settings.unwrap_or_default(), row);
    standing.slots = all;
    standing.repeat = since(repeat, standing.now);
    more(ask, &mut standing, load).await?;
    Ok(standing)
}

/// Reads the earlier append with this idempotency key.
fn repeat<'a>(key: &'a SessionKey, asked: &'a str) -> Sql<'a> {
    let sql = concat!(
        "SELECT body, first, last, created FROM epitome.idempotency WHERE session = ",
        session_id!(),
        " AND key = $3"
    );
    let [workspace, name] = named(key);
    Sql::new(sql, [workspace, name, asked.into()])
}

fn remembered(row: Found<'_>) -> Outcome<(Repeat, Timestamp)> {
    let span = Span::new(row.uint(1)?, row.uint(2)?);
    let span = span.ok_or_else(|| nonsense("an idempotency key refers to no messages"))?;
    Ok((Repeat { body: row.bytes(0)?.to_vec(), span }, row.time(3)?))
}

/// Returns the earlier append, unless its idempotency key has expired.
fn since(repeat: Option<(Repeat, Timestamp)>, now: Timestamp) -> Option<Repeat> {
    let (repeat, created) = repeat?;
    (created.0 >= now.0.saturating_sub(REMEMBERED_MILLIS)).then_some(repeat)
}

/// Reads the outlines and summaries that `load` requests.
async fn more(ask: &mut dyn Ask, standing: &mut Standing, load: &Load) -> Outcome<()> {
    let Some(session) = &standing.session else { return Ok(()) };
    let (id, head) = (session.id, session.tracker.head());
    let mut lens = Lens::whole(id);
    let within = match &load.log {
        Log::Pending(scope, name) => {
            lens = Lens::new(id, scope);
            standing.pending(scope, name)
        }
        Log::Batch(seq) if (1..=head).contains(seq) => Some(lens.batch(ask, *seq, head).await?),
        Log::None | Log::Batch(_) => None,
    };
    if let Some(within) = within {
        standing.log = lens.run(ask, within, MOST_PENDING).await?;
    }
    if !load.summaries.is_empty() {
        let found = ask::all(ask, by_number(id, &load.summaries), decode::summary).await?;
        standing.summaries = in_order(found, &load.summaries);
    }
    Ok(())
}

/// Reads the state, calls `decide` and writes the changes. Returns the session's id; `None` if there were no changes.
pub(super) async fn change(
    ask: &mut dyn Ask,
    key: &SessionKey,
    load: &Load,
    decide: &Decide,
) -> Outcome<Option<SessionId>> {
    let standing = match ask.remembered(key) {
        Some(mut known) => {
            if let Some(asked) = &load.idempotency {
                known.repeat = since(ask::first(ask, repeat(key, asked), remembered).await?, known.now);
            }
            more(ask, &mut known, load).await?;
            debug_assert!(same(&known, &standing(ask, key, load, LOCK).await?), "the cache is stale");
            known
        }
        None => standing(ask, key, load, LOCK).await?,
    };
    let changes = decided(|| decide(&standing))?;
    let written = match &changes {
        Some(changes) => Some(write(ask, key, &standing, changes).await?),
        None => None,
    };
    ask.decided(key, standing, changes, written);
    Ok(written)
}

/// Whether two states of a session are equal, without their logs and summaries.
fn same(one: &Standing, two: &Standing) -> bool {
    one.workspace_settings == two.workspace_settings && one.session == two.session && one.slots == two.slots
}

/// Returns the membership changes to write. Most messages are by an author who is already a member, and need none.
fn members<'a>(ask: &dyn Ask, before: Option<&SessionRow>, changes: &'a Changes) -> Vec<&'a Membership> {
    let joins = changes.members.iter().all(|change| matches!(change, Membership::Join(..)));
    let is_known = |change: &Membership| match (change, before) {
        (Membership::Join(name, None), Some(session)) => joins && ask.is_member(session.id, name),
        _ => false,
    };
    changes.members.iter().filter(|change| !is_known(change)).collect()
}

/// Writes the changes and commits. Returns the session's id.
async fn write(
    ask: &mut dyn Ask,
    key: &SessionKey,
    standing: &Standing,
    changes: &Changes,
) -> Outcome<SessionId> {
    let now = standing.now;
    let before = standing.session.as_ref();
    let members = members(ask, before, changes);
    let mut batch = Batch::new();
    changes.usage.iter().for_each(|row| batch.push(record_one(row, now)));
    let id = match (before, &changes.session) {
        (Some(before), _) => before.id,
        (None, Some(_)) => insert_session(ask, key, "open").await?,
        (None, None) if changes.need_no_session() => {
            ask.finish(batch).await?;
            return Ok(0);
        }
        (None, None) => return Err(refused("the session to write to does not exist")),
    };
    let mut of = Writing { batch, id, key };
    if let Some(row) = &changes.session {
        of.session(before, row);
    }
    if changes.alter(before) {
        of.push("UPDATE epitome.sessions SET revision = revision + 1 WHERE id = $1", [id.into()]);
    }
    let mark = ask.mark();
    of.messages(&changes.messages, now, mark);
    for (seq, pinned, skip) in &changes.flags {
        let sql = "UPDATE epitome.messages SET pinned = $3, skip = $4 WHERE session = $1 AND seq = $2";
        of.push(sql, [id.into(), (*seq).into(), (*pinned).into(), (*skip).into()]);
    }
    for (seq, metadata) in &changes.metadata {
        let sql = "SELECT body FROM epitome.messages WHERE session = $1 AND seq = $2";
        let body = ask::first(ask, Sql::new(sql, [id.into(), (*seq).into()]), |row| row.string(0)).await?;
        let body = body.ok_or_else(|| nonsense("a message is missing"))?;
        let body =
            with_metadata(&body, metadata).map_err(|_| nonsense("a message's content cannot be read"))?;
        let sql = "UPDATE epitome.messages SET body = $3 WHERE session = $1 AND seq = $2";
        of.push(sql, [id.into(), (*seq).into(), body.into()]);
    }
    set_members(ask, &mut of.batch, (key, id), &members).await?;
    changes.states.iter().for_each(|(summary, state)| of.state(*summary, *state));
    let mut kept = None;
    if let Some(row) = &changes.summary {
        let sql = "SELECT coalesce(max(id), 0) + 1 FROM epitome.summaries INDEXED BY summaries_by_number \
             WHERE session = $1";
        kept = Some((row, ask::number(ask, Sql::new(sql, [id.into()])).await?));
    }
    of.slots(standing, &changes.slots, kept)?;
    if let Some((asked, repeat)) = &changes.idempotency {
        let sql = "INSERT INTO epitome.idempotency (session, key, body, first, last, created) \
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (session, key) DO UPDATE SET body = excluded.body, \
             first = excluded.first, last = excluded.last, created = excluded.created";
        let (body, first, last) = (&*repeat.body, repeat.span.from.into(), repeat.span.through.into());
        of.push(sql, [id.into(), asked.as_str().into(), body.into(), first, last, now.into()]);
    }
    tell(ask, &mut of.batch, key, &changes.events, kept.map(|(_, number)| number)).await?;
    // This query shows after a lost connection whether the changes were committed. It uses rows that are never overwritten.
    let known = if let Some(first) = changes.messages.first() {
        let sql = "SELECT 1 FROM epitome.messages WHERE session = $1 AND seq = $2 AND change = $3";
        Sql::new(sql, [id.into(), first.outline.seq.into(), mark.into()])
    } else if let Some((row, number)) = kept {
        let sql =
            "SELECT 1 FROM epitome.summaries WHERE session = $1 AND id = $2 AND created = $3 AND facts = $4";
        Sql::new(sql, [id.into(), number.into(), row.created.into(), json(&row.facts).into()])
    } else {
        ask.finish(of.batch).await?;
        return Ok(id);
    };
    ask.finish_by(of.batch, Some(known)).await?;
    Ok(id)
}

/// Inserts a session's row, and its workspace's row if that does not exist. Most columns are placeholders for a later
/// update.
pub(super) async fn insert_session(
    ask: &mut dyn Ask,
    key: &SessionKey,
    state: &'static str,
) -> Outcome<SessionId> {
    make_workspace(ask, &key.workspace).await?;
    let sql = "INSERT INTO epitome.sessions (workspace, name, state, encoding, tracker, head, turns, tokens, opener, \
         batch_from, batch_skipped, skipped, created, updated) \
         VALUES ($1, $2, $3, '', '', 0, 0, 0, 0, 0, false, 0, $4, $4) RETURNING id";
    let [workspace, name] = named(key);
    let given = [workspace, name, state.into(), ask.now().await?.into()];
    ask::number(ask, Sql::new(sql, given)).await
}

/// Collects the writes to a session whose row exists.
pub(super) struct Writing<'a> {
    pub(super) batch: Batch<'a>,
    pub(super) id: SessionId,
    pub(super) key: &'a SessionKey,
}

impl<'a> Writing<'a> {
    fn push(&mut self, sql: &'static str, given: impl Into<Vec<Given<'a>>>) {
        self.batch.push(Sql::new(sql, given));
    }

    /// Updates the session's row, except `indexed`, which only the search index maintains.
    pub(super) fn session(&mut self, before: Option<&SessionRow>, row: &'a SessionRow) {
        let sql = "UPDATE epitome.sessions SET tracker = $2, head = $3, turns = $4, tokens = $5, opener = $6, \
             batch_from = $7, batch_skipped = $8, skipped = $9, updated = $10 WHERE id = $1";
        let tracker = &row.tracker;
        let given = [
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
        self.batch.push(Sql::new(sql, given).merges());
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

    /// Inserts messages. With a mark (PostgreSQL) all of them use one statement; in SQLite each uses its own.
    fn messages(&mut self, messages: &'a [NewMessage], now: Timestamp, mark: Option<i64>) {
        let ([one, all], id) = (&*INSERT, self.id);
        let fixed = || [id.into(), now.into()].into_iter().chain(mark.map(Given::from));
        let rows = messages.iter().map(|row| fixed().chain(message(row)));
        if mark.is_none() {
            rows.for_each(|row| self.push(one, row.collect::<Vec<_>>()));
        } else if !messages.is_empty() {
            let mut rows: Vec<_> = rows.collect();
            let given: Vec<_> = (0..24).map(|_| column(rows.iter_mut().filter_map(Iterator::next))).collect();
            self.batch.push(Sql::new(all.as_str(), given).merges());
        }
    }

    /// Writes the new rows of slots, and the new summary, which one of the slots must point to.
    fn slots(
        &mut self,
        standing: &Standing,
        slots: &'a [SlotRow],
        kept: Option<(&'a SummaryRow, SummaryId)>,
    ) -> Outcome<()> {
        let mut pointed = false;
        for slot in slots {
            let new = kept.filter(|(row, _)| row.scope == slot.scope && row.slot == slot.name);
            pointed |= new.is_some();
            let active = new.map(|(_, number)| number).or(slot.active);
            self.move_slot(standing.slot(&slot.scope, &slot.name), slot, active);
        }
        if kept.is_some() && !pointed {
            return Err(refused("a new summary has no slot in the same change"));
        }
        kept.into_iter().for_each(|(row, number)| self.summary(number, row));
        Ok(())
    }

    /// Inserts or replaces a slot's row.
    pub(super) fn put_slot(&mut self, slot: &'a SlotRow, active: Option<SummaryId>) {
        let sql = "INSERT INTO epitome.slots (session, scope, name, workspace, state, covered, due, active, ready_at, work, \
             fence) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (session, scope, name) DO UPDATE SET \
             state = excluded.state, covered = excluded.covered, due = excluded.due, active = excluded.active, \
             ready_at = excluded.ready_at, work = excluded.work, fence = excluded.fence";
        let given = [
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
        self.push(sql, given);
    }

    /// Writes only what changed in a slot's row, or the whole row if it is new. Most appends only change the counters in
    /// `state`, which is in no index.
    fn move_slot(&mut self, before: Option<&SlotRow>, slot: &'a SlotRow, active: Option<SummaryId>) {
        let due = |slot: &SlotRow| (slot.state.covered, slot.state.due.map(|due| due.seq), slot.ready_at());
        match before.filter(|before| before.active == active) {
            Some(before) if before == slot => {}
            Some(before)
                if due(before) == due(slot) && before.fence == slot.fence && before.work == slot.work =>
            {
                let sql =
                    "UPDATE epitome.slots SET state = $4 WHERE session = $1 AND scope = $2 AND name = $3";
                let (scope, name) = (scope_text(&slot.scope).into(), slot.name.as_str().into());
                let given = [self.id.into(), scope, name, json(&slot.state).into()];
                self.batch.push(Sql::new(sql, given).merges());
            }
            _ => self.put_slot(slot, active),
        }
    }

    /// Inserts a summary with this id.
    pub(super) fn summary(&mut self, number: SummaryId, row: &'a SummaryRow) {
        let sql = "INSERT INTO epitome.summaries (session, id, scope, slot, through, state, parent, text, sources, facts, \
             created, asked) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
        let given = [
            self.id.into(),
            number.into(),
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
        self.push(sql, given);
    }

    /// Changes a summary's state. If it is superseded, the sources of the slot's earlier summaries are deleted: new
    /// summaries are only ever built on the current summary and on the one before it, to which an undo returns.
    fn state(&mut self, summary: SummaryId, state: SummaryState) {
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

/// The columns of messages in the order of [`message`], without the session, the creation time, and PostgreSQL's mark.
pub(super) static MESSAGE: LazyLock<String> = LazyLock::new(|| format!("{OUTLINE}, opener, body"));

fn message(message: &NewMessage) -> [Given<'_>; 21] {
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

/// Two statements: one inserts a single message, the other inserts several messages from a list per column.
static INSERT: LazyLock<[String; 2]> = LazyLock::new(|| {
    let places = |count| (1..=count).map(|at| format!("${at}")).collect::<Vec<_>>().join(", ");
    let (columns, one, all) = (&*MESSAGE, places(23), places(24));
    [
        format!("INSERT INTO epitome.messages (session, created, {columns}) VALUES ({one})"),
        format!(
            "INSERT INTO epitome.messages (session, created, change, {columns}) SELECT * FROM unnest({all})"
        ),
    ]
});
