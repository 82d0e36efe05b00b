//! Reads the window of a session: the data from which a context is built. The whole log of a long session is not read.
//!
//! A window contains what `SessionShape::whole` would find in the whole log, except for messages that cannot fit the
//! budget. All queries that do not depend on other results are sent in one batch. So most windows need only two round
//! trips.

use std::collections::BTreeMap;

use epitome_core::message::{Message, Seq, Span};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;

use super::change::{session_id_query, session_query, settings_query};
use super::changes::SessionState;
use super::decode::{
    self, AFTER_OUTLINE, AFTER_SESSION, RowRef, SUMMARY_TEXT, message_at, outline, scope_text,
};
use super::executor::{self, Executor, SqlBatch};
use super::log_query::{Flag, Flagged, LogQuery, call_batches, flagged};
use super::op_error::{OpResult, damaged};
use super::query_types::{DecideReach, Reach, Window, WindowQuery};
use super::rows::{SessionId, SessionKey, SessionRow, SummaryRow};
use super::sql::Sql;
use super::sql_params::{SqlParam, int};
use super::window_tail::{
    TailBuilder, cut_at_end, cut_before, first_uncovered, last_covered, messages_to_read,
};

/// Number of messages read from the start of the session to find the leading system and developer messages.
const FIRST_LEADING: usize = 8;

/// Number of newest messages read first if the session has no cached window. If these messages are not enough, the
/// number doubles with each further read.
const FIRST_NEWEST: usize = 64;

/// Number of messages read in addition to the size of the last window, because the session has probably grown.
const EXTRA: usize = 16;

/// Maximum number of messages read at once.
const MAX_AT_ONCE: usize = 4_096;

/// A session's cached id, and the number of messages in the session's last window (0 if no window was read yet). Both
/// values may be outdated.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionHint {
    pub(super) id: SessionId,
    pub(super) window_len: usize,
}

/// A window, with the values that are needed to extend it later.
pub(super) struct ReadWindow {
    pub(super) window: Window,
    pub(super) revision: i64,
    pub(super) reach: Reach,
    /// The numbers of the newest messages, newest first, each with the number of the message that opened its turn.
    pub(super) openers: Vec<(Seq, Seq)>,
}

/// Reads a window. If the session id in `hint` is outdated, the window is read again.
pub(super) async fn window(
    db: &mut dyn Executor,
    key: &SessionKey,
    query: &WindowQuery,
    decide: &DecideReach,
    hint: Option<SessionHint>,
) -> OpResult<Option<ReadWindow>> {
    let mut hint = hint;
    for _ in 0..2 {
        let guess = match hint {
            Some(hint) => hint,
            None => match executor::first(db, session_id_query(key), |row| row.int(0)).await? {
                Some(id) => SessionHint { id, window_len: 0 },
                None => return Ok(None),
            },
        };
        let mut first_batch = read_first_batch(db, key, query, guess).await?;
        let Some((row, revision)) = first_batch.session.take() else { return Ok(None) };
        if row.id == guess.id {
            let settings = first_batch.settings.take().unwrap_or_default();
            let state = SessionState::bare(db.now().await?, settings, Some(row));
            let Some(reach) = decide(&state) else { return Ok(None) };
            return first_batch.window(db, query, state, (revision, reach)).await.map(Some);
        }
        hint = Some(SessionHint { id: row.id, window_len: 0 });
    }
    Err(damaged("a session has two ids"))
}

/// The results of the first batch, which are enough for most windows.
#[derive(Default)]
struct FirstBatch {
    session: Option<(SessionRow, i64)>,
    settings: Option<String>,
    /// The leading messages among the first [`FIRST_LEADING`] messages.
    leading: Vec<Outline>,
    pinned: Vec<Flagged>,
    summaries: Vec<SummaryRow>,
    /// The newest messages, each with the number of the message that opened its turn. Empty for SQLite, whose rows are
    /// read one by one later.
    newest: Vec<(Outline, Seq)>,
    /// Number of newest messages that were requested.
    requested: usize,
}

async fn read_first_batch(
    db: &mut dyn Executor,
    key: &SessionKey,
    query: &WindowQuery,
    hint: SessionHint,
) -> OpResult<FirstBatch> {
    let SessionHint { id, window_len } = hint;
    let log_query = LogQuery::new(id, &query.scope);
    let as_of = query.as_of.unwrap_or(Seq::MAX);
    // Requests as many messages as the last window had, and [`EXTRA`] more. The session has probably grown, and one
    // additional message shows where the window ends.
    let limit =
        if window_len == 0 { FIRST_NEWEST } else { window_len.saturating_add(EXTRA).min(MAX_AT_ONCE) };
    let mut first_batch = FirstBatch { requested: db.page_size(limit), ..FirstBatch::default() };
    let read_leading = |row: RowRef<'_>| {
        let outline = outline(row)?;
        let is_leading = outline.leading;
        first_batch.leading.extend(is_leading.then_some(outline));
        Ok(is_leading)
    };
    let mut batch = SqlBatch::new()
        .first(session_query(key, ""), &mut first_batch.session, |row| {
            Ok((decode::session(row)?, row.int(AFTER_SESSION)?))
        })
        .first(settings_query(key), &mut first_batch.settings, |row| row.string(0))
        .all(summaries_query(id, query), &mut first_batch.summaries, decode::summary)
        .each(log_query.outlines((1, as_of), false, db.page_size(FIRST_LEADING)), read_leading)
        .all(log_query.flagged(Flag::Pinned, as_of), &mut first_batch.pinned, flagged);
    if first_batch.requested == limit {
        let sql = log_query.outlines((1, as_of), true, limit);
        batch = batch.all(sql, &mut first_batch.newest, |row| Ok((outline(row)?, row.uint(AFTER_OUTLINE)?)));
    }
    db.run(batch).await?;
    Ok(first_batch)
}

impl FirstBatch {
    /// Completes the window of an existing session.
    async fn window(
        self,
        db: &mut dyn Executor,
        query: &WindowQuery,
        state: SessionState,
        (revision, reach): (i64, Reach),
    ) -> OpResult<ReadWindow> {
        let Some(session) = &state.session else { return Err(damaged("a session is missing")) };
        let Self { leading, pinned, summaries, newest, requested, .. } = self;
        let (head, log_query) = (session.tracker.head(), LogQuery::new(session.id, &query.scope));
        let last = query.as_of.map_or(head, |as_of| as_of.min(head));
        let mut reader = WindowReader { db, log_query, session, scope: &query.scope, last };
        let leading = reader.leading(leading).await?;
        let pinned = reader.pinned(&pinned).await?;
        let first = first_uncovered(reach, &summaries);
        let mut tail = TailBuilder::new(log_query.is_author(), reach.tokens, first, &pinned);
        let openers = reader.fill(&mut tail, newest, requested).await?;
        let (tail, from) = tail.build();
        let opener = reader.opener(&tail, from, &openers).await?;
        let (end, open_calls) = reader.end(tail.last()).await?;
        let skipped = reader.skipped().await?;
        let outside_tail = leading.iter().chain(&pinned).chain(&opener);
        let last_covered = last_covered(reach, &summaries);
        let to_read = messages_to_read(log_query.is_author(), outside_tail, &tail, last_covered);
        let messages = read_messages(reader.db, session.id, &to_read).await?;
        let window = Window {
            leading,
            pinned,
            opener,
            tail,
            from,
            end,
            open_calls,
            skipped,
            summaries,
            messages,
            state,
        };
        Ok(ReadWindow { window, revision, reach, openers })
    }
}

/// Returns the query for the current summaries. With `as_of`, the query returns for each slot the summary that covers
/// the most messages, but no message after `as_of`.
fn summaries_query(id: SessionId, query: &WindowQuery) -> Sql<'_> {
    let scope = scope_text(&query.scope);
    let Some(as_of) = query.as_of else {
        let sql = format!(
            "SELECT {SUMMARY_TEXT} FROM epitome.summaries INDEXED BY summaries_standing WHERE session = $1 AND scope = $2 \
             AND state = 'standing' ORDER BY slot"
        );
        return Sql::new(sql, [id.into(), scope.into()]);
    };
    let sql = format!(
        "SELECT {SUMMARY_TEXT} FROM epitome.summaries WHERE kept IN (SELECT (SELECT b.kept \
         FROM epitome.summaries b WHERE b.session = $1 AND b.scope = $2 AND b.slot = s.name AND b.through <= $3 \
         AND b.state <> 'undone' ORDER BY b.through DESC, b.id DESC LIMIT 1) \
         FROM epitome.slots s WHERE s.session = $1 AND s.scope = $2) ORDER BY slot"
    );
    Sql::new(sql, [id.into(), scope.into(), as_of.into()])
}

/// A session whose window is being read.
struct WindowReader<'a> {
    db: &'a mut dyn Executor,
    log_query: LogQuery<'a>,
    session: &'a SessionRow,
    scope: &'a Scope,
    /// The last message to read.
    last: Seq,
}

impl WindowReader<'_> {
    /// Completes the leading system and developer messages. Usually the first batch has read all of them.
    async fn leading(&mut self, mut leading: Vec<Outline>) -> OpResult<Vec<Outline>> {
        let mut more = leading.len() >= self.db.page_size(FIRST_LEADING);
        while more {
            let next = leading.last().map_or(Seq::MAX, |outline| outline.seq.saturating_add(1));
            let Some(within) = Span::new(next, self.last) else { break };
            let chunk = self.log_query.read_outlines(self.db, within, MAX_AT_ONCE).await?;
            let (before, size) = (leading.len(), chunk.len());
            leading.extend(chunk.into_iter().take_while(|outline| outline.leading));
            more = size >= MAX_AT_ONCE && leading.len() == before + size;
        }
        Ok(leading)
    }

    /// Reads the call batches that contain pinned messages.
    async fn pinned(&mut self, found: &[Flagged]) -> OpResult<Vec<Outline>> {
        let mut pinned = Vec::new();
        for range in call_batches(found, self.last)? {
            pinned.extend(self.log_query.read_outlines(self.db, range, usize::MAX).await?);
        }
        pinned.retain(|outline| !outline.leading && !outline.stray);
        Ok(pinned)
    }

    /// Adds the newest messages to the tail, in growing portions, until the tail is complete. Returns the numbers of
    /// these messages, each with the number of the message that opened its turn.
    async fn fill(
        &mut self,
        tail: &mut TailBuilder<'_>,
        newest: Vec<(Outline, Seq)>,
        mut size: usize,
    ) -> OpResult<Vec<(Seq, Seq)>> {
        let mut openers = Vec::with_capacity(newest.len());
        let (mut through, mut seen) = (self.last, newest.len());
        for (outline, opener) in newest {
            through = outline.seq.saturating_sub(1);
            openers.push((outline.seq, opener));
            if !tail.add(outline) {
                return Ok(openers);
            }
        }
        // Read more messages if none were read yet, or if the last read returned as many messages as were requested.
        let mut more = openers.is_empty() || seen >= size;
        while more && through > 0 {
            if !openers.is_empty() {
                size = size.saturating_mul(2).min(self.db.page_size(MAX_AT_ONCE));
            }
            let (sql, mut enough) = (self.log_query.outlines((1, through), true, size), false);
            seen = 0;
            let each = |row: RowRef<'_>| {
                let outline = outline(row)?;
                (seen, through) = (seen + 1, outline.seq.saturating_sub(1));
                openers.push((outline.seq, row.uint(AFTER_OUTLINE)?));
                enough = !tail.add(outline);
                Ok(!enough)
            };
            self.db.run(SqlBatch::new().each(sql, each)).await?;
            more = !enough && seen >= size;
        }
        Ok(openers)
    }

    /// Returns the message that opened the turn in which the tail starts, if that message is not in the tail.
    async fn opener(
        &mut self,
        tail: &[Outline],
        from: Seq,
        openers: &[(Seq, Seq)],
    ) -> OpResult<Option<Outline>> {
        let Some(first) = tail.first().filter(|first| first.turn > 0 && !first.opens_turn && from > 1) else {
            return Ok(None);
        };
        let sql = if self.log_query.is_author() {
            self.log_query.opener_before(first.seq)
        } else {
            let seq = openers.iter().rfind(|(seq, _)| *seq == first.seq).map_or(0, |(_, opener)| *opener);
            self.log_query.outlines((seq, seq), false, 1)
        };
        let opener = executor::first(self.db, sql, outline).await?;
        Ok(opener.filter(|opener| opener.turn == first.turn && opener.seq < from))
    }

    /// Returns what a cut after the window's last message would separate, and the number of tool calls that have no
    /// result yet at this point.
    async fn end(&mut self, newest: Option<&Outline>) -> OpResult<(Cut, u32)> {
        let (cut_at_end, open) = cut_at_end(&self.session.tracker, self.scope);
        if self.last == self.session.tracker.head() {
            return Ok((cut_at_end, open));
        }
        let Some(newest) = newest else { return Ok((Cut::Legal, 0)) };
        let own = self.log_query.is_author();
        let open = if own { newest.own_open } else { newest.open };
        let next = self.log_query.outlines((self.last.saturating_add(1), Seq::MAX), false, 1);
        let next = executor::first(self.db, next, outline).await?;
        Ok((next.map_or(cut_at_end, |next| cut_before(own, &next)), open))
    }

    /// Returns the number of messages in skipped call batches.
    async fn skipped(&mut self) -> OpResult<u64> {
        if self.last == self.session.tracker.head() && !self.log_query.is_author() {
            return Ok(self.session.skipped);
        }
        let found = executor::all(self.db, self.log_query.flagged(Flag::Skipped, self.last), flagged).await?;
        self.log_query.count(self.db, &call_batches(&found, self.last)?).await
    }
}

/// Reads the content of these messages. This is the last batch of the operation.
async fn read_messages(
    db: &mut dyn Executor,
    session: SessionId,
    outlines: &BTreeMap<Seq, &Outline>,
) -> OpResult<Vec<Message>> {
    // The newest messages have consecutive numbers and are read as a range. The few other messages are read by number.
    let seqs: Vec<Seq> = outlines.keys().copied().collect();
    let down = (0..=seqs.last().copied().unwrap_or(0)).rev();
    let consecutive = seqs.iter().rev().zip(down).take_while(|(seq, next)| *seq == next).count();
    let (rest, run) = seqs.split_at(seqs.len().saturating_sub(consecutive));
    let (mut messages, mut others) = (Vec::with_capacity(seqs.len()), Vec::new());
    let read = |row: RowRef<'_>| {
        let outline =
            outlines.get(&row.uint(0)?).ok_or_else(|| damaged("an unrequested row was returned"))?;
        Ok(message_at(outline, row, 1)?.0)
    };
    let mut batch = SqlBatch::new();
    if !rest.is_empty() {
        let sql = "SELECT seq, body FROM epitome.messages WHERE session = $1 AND seq = ANY($2) ORDER BY seq";
        let rest = SqlParam::Ints(rest.iter().map(|seq| int(*seq)).collect());
        batch = batch.all(Sql::new(sql, [session.into(), rest]), &mut messages, read);
    }
    if let (Some(first), Some(last)) = (run.first(), run.last()) {
        let sql = "SELECT seq, body FROM epitome.messages WHERE session = $1 AND seq >= $2 AND seq <= $3 ORDER BY seq";
        let sql = Sql::new(sql, [session.into(), (*first).into(), (*last).into()]);
        batch = batch.all(sql, &mut others, read);
    }
    db.finish(batch).await?;
    messages.append(&mut others);
    if messages.len() < outlines.len() {
        return Err(damaged("messages are missing although their outlines were read"));
    }
    Ok(messages)
}
