//! Reads the window of a session: what a context is built from, without reading the whole log of a long session.
//!
//! A window contains what `Scene::whole` would find in the whole log, except for messages that cannot fit the budget. All
//! queries that do not depend on other results are sent in one batch, so that most windows need two round trips.

use std::collections::BTreeMap;

use epitome_core::message::{Message, Seq, Span};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;

use super::ask::{self, Ask, Batch};
use super::asked::{Look, Reach, View, Window};
use super::change::{number, session, settings};
use super::changes::Standing;
use super::decode::{
    self, AFTER_OUTLINE, AFTER_SESSION, Found, SUMMARY_TEXT, outline, scope_text, with_words,
};
use super::given::{Given, int};
use super::lens::{Flag, Flagged, Lens, batches, flagged};
use super::rows::{SessionId, SessionKey, SessionRow, SummaryRow};
use super::sql::Sql;
use super::tail::{Tail, at_end, covered, cut, floor, shown};
use super::trouble::{Outcome, nonsense};

/// Number of messages read from the start of the session to find the leading ones.
const LEADING: usize = 8;

/// Number of newest messages read first if the session has no cached window. It doubles each time that is not enough.
const NEWEST: usize = 64;

/// Number of messages read in addition to the size of the last window, because the session has grown.
const MORE: usize = 16;

/// Maximum number of messages read at once.
const MOST_AT_ONCE: usize = 4_096;

/// A session's cached id and the number of messages in its last window (0 if none was read yet). Both may be outdated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbered {
    pub(super) id: SessionId,
    pub(super) held: usize,
}

/// A window, with what is needed to extend it later.
pub(super) struct Seen {
    pub(super) window: Window,
    pub(super) revision: i64,
    pub(super) reach: Reach,
    /// For each of the newest messages, the message that opened its turn, newest first.
    pub(super) openers: Vec<(Seq, Seq)>,
}

/// Reads a window. `likely` is a cached guess; if it is wrong, the window is read again.
pub(super) async fn window(
    ask: &mut dyn Ask,
    key: &SessionKey,
    view: &View,
    look: &Look,
    likely: Option<Numbered>,
) -> Outcome<Option<Seen>> {
    let mut numbered = likely;
    for _ in 0..2 {
        let this = match numbered {
            Some(numbered) => numbered,
            None => match ask::first(ask, number(key), |row| row.int(0)).await? {
                Some(id) => Numbered { id, held: 0 },
                None => return Ok(None),
            },
        };
        let mut begun = begin(ask, key, view, this).await?;
        let Some((row, revision)) = begun.session.take() else { return Ok(None) };
        if row.id == this.id {
            let settings = begun.settings.take().unwrap_or_default();
            let standing = Standing::bare(ask.now().await?, settings, Some(row));
            let Some(reach) = look(&standing) else { return Ok(None) };
            return begun.window(ask, view, standing, (revision, reach)).await.map(Some);
        }
        numbered = Some(Numbered { id: row.id, held: 0 });
    }
    Err(nonsense("a session has two ids"))
}

/// The results of the first batch, which are enough for most windows.
#[derive(Default)]
struct Begun {
    session: Option<(SessionRow, i64)>,
    settings: Option<String>,
    /// The leading messages among the first ones.
    leading: Vec<Outline>,
    pinned: Vec<Flagged>,
    summaries: Vec<SummaryRow>,
    /// The newest messages, each with the message that opened its turn; empty if the database reads rows one by one.
    newest: Vec<(Outline, Seq)>,
    /// Number of newest messages that were requested.
    asked: usize,
}

async fn begin(ask: &mut dyn Ask, key: &SessionKey, view: &View, numbered: Numbered) -> Outcome<Begun> {
    let Numbered { id, held } = numbered;
    let lens = Lens::new(id, &view.scope);
    let as_of = view.as_of.unwrap_or(Seq::MAX);
    // As many as last time and some more: the session has grown, and one additional message shows where the window ends.
    let likely = if held == 0 { NEWEST } else { held.saturating_add(MORE).min(MOST_AT_ONCE) };
    let mut begun = Begun { asked: ask.page(likely), ..Begun::default() };
    let lead = |row: Found<'_>| {
        let outline = outline(row)?;
        let leads = outline.leading;
        begun.leading.extend(leads.then_some(outline));
        Ok(leads)
    };
    let mut batch = Batch::new()
        .first(session(key, ""), &mut begun.session, |row| {
            Ok((decode::session(row)?, row.int(AFTER_SESSION)?))
        })
        .first(settings(key), &mut begun.settings, |row| row.string(0))
        .all(of_slots(id, view), &mut begun.summaries, decode::summary)
        .each(lens.shapes((1, as_of), false, ask.page(LEADING)), lead)
        .all(lens.flagged(Flag::Pinned, as_of), &mut begun.pinned, flagged);
    if begun.asked == likely {
        let sql = lens.shapes((1, as_of), true, likely);
        batch = batch.all(sql, &mut begun.newest, |row| Ok((outline(row)?, row.uint(AFTER_OUTLINE)?)));
    }
    ask.ask(batch).await?;
    Ok(begun)
}

impl Begun {
    /// Completes the window of an existing session.
    async fn window(
        self,
        ask: &mut dyn Ask,
        view: &View,
        standing: Standing,
        (revision, reach): (i64, Reach),
    ) -> Outcome<Seen> {
        let Some(session) = &standing.session else { return Err(nonsense("a session is missing")) };
        let Self { leading, pinned, summaries, newest, asked, .. } = self;
        let (head, lens) = (session.tracker.head(), Lens::new(session.id, &view.scope));
        let last = view.as_of.map_or(head, |as_of| as_of.min(head));
        let mut reading = Reading { ask, lens, session, scope: &view.scope, last };
        let leading = reading.leading(leading).await?;
        let pinned = reading.pinned(&pinned).await?;
        let mut tail = Tail::new(lens.is_own(), reach.tokens, floor(reach, &summaries), &pinned);
        let openers = reading.fill(&mut tail, newest, asked).await?;
        let (tail, from) = tail.done();
        let opener = reading.opener(&tail, from, &openers).await?;
        let (end, open_calls) = reading.end(tail.last()).await?;
        let skipped = reading.skipped().await?;
        let ahead = leading.iter().chain(&pinned).chain(&opener);
        let shown = shown(lens.is_own(), ahead, &tail, covered(reach, &summaries));
        let words = words(reading.ask, session.id, &shown).await?;
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
            words,
            standing,
        };
        Ok(Seen { window, revision, reach, openers })
    }
}

/// Selects the current summaries, or with `as_of`, each slot's summary whose coverage reaches furthest up to that message.
fn of_slots(id: SessionId, view: &View) -> Sql<'_> {
    let scope = scope_text(&view.scope);
    let Some(as_of) = view.as_of else {
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
struct Reading<'a> {
    ask: &'a mut dyn Ask,
    lens: Lens<'a>,
    session: &'a SessionRow,
    scope: &'a Scope,
    /// The last message to read.
    last: Seq,
}

impl Reading<'_> {
    /// Completes the leading system and developer messages. Usually all of them are among the first few messages.
    async fn leading(&mut self, mut leading: Vec<Outline>) -> Outcome<Vec<Outline>> {
        let mut more = leading.len() >= self.ask.page(LEADING);
        while more {
            let next = leading.last().map_or(Seq::MAX, |outline| outline.seq.saturating_add(1));
            let Some(within) = Span::new(next, self.last) else { break };
            let some = self.lens.run(self.ask, within, MOST_AT_ONCE).await?;
            let (before, size) = (leading.len(), some.len());
            leading.extend(some.into_iter().take_while(|outline| outline.leading));
            more = size >= MOST_AT_ONCE && leading.len() == before + size;
        }
        Ok(leading)
    }

    /// Reads the call batches that contain pinned messages.
    async fn pinned(&mut self, found: &[Flagged]) -> Outcome<Vec<Outline>> {
        let mut pinned = Vec::new();
        for run in batches(found, self.last)? {
            pinned.extend(self.lens.run(self.ask, run, usize::MAX).await?);
        }
        pinned.retain(|outline| !outline.leading && !outline.stray);
        Ok(pinned)
    }

    /// Adds the newest messages to the tail, in growing portions, until it is complete. Returns which messages opened their
    /// turns.
    async fn fill(
        &mut self,
        tail: &mut Tail<'_>,
        newest: Vec<(Outline, Seq)>,
        mut size: usize,
    ) -> Outcome<Vec<(Seq, Seq)>> {
        let mut openers = Vec::with_capacity(newest.len());
        let (mut through, mut seen) = (self.last, newest.len());
        for (outline, opener) in newest {
            through = outline.seq.saturating_sub(1);
            openers.push((outline.seq, opener));
            if !tail.take(outline) {
                return Ok(openers);
            }
        }
        // No messages were requested yet, or too few.
        let mut more = openers.is_empty() || seen >= size;
        while more && through > 0 {
            if !openers.is_empty() {
                size = size.saturating_mul(2).min(self.ask.page(MOST_AT_ONCE));
            }
            let (sql, mut enough) = (self.lens.shapes((1, through), true, size), false);
            seen = 0;
            let each = |row: Found<'_>| {
                let outline = outline(row)?;
                (seen, through) = (seen + 1, outline.seq.saturating_sub(1));
                openers.push((outline.seq, row.uint(AFTER_OUTLINE)?));
                enough = !tail.take(outline);
                Ok(!enough)
            };
            self.ask.ask(Batch::new().each(sql, each)).await?;
            more = !enough && seen >= size;
        }
        Ok(openers)
    }

    /// Returns the message that opened the turn in which the tail starts, if it is not in the tail.
    async fn opener(
        &mut self,
        tail: &[Outline],
        from: Seq,
        openers: &[(Seq, Seq)],
    ) -> Outcome<Option<Outline>> {
        let Some(first) = tail.first().filter(|first| first.turn > 0 && !first.opens_turn && from > 1) else {
            return Ok(None);
        };
        let sql = if self.lens.is_own() {
            self.lens.opener_before(first.seq)
        } else {
            let seq = openers.iter().rfind(|(seq, _)| *seq == first.seq).map_or(0, |(_, opener)| *opener);
            self.lens.shapes((seq, seq), false, 1)
        };
        let opener = ask::first(self.ask, sql, outline).await?;
        Ok(opener.filter(|opener| opener.turn == first.turn && opener.seq < from))
    }

    /// Returns what a cut at the end would separate, and the number of open calls there.
    async fn end(&mut self, newest: Option<&Outline>) -> Outcome<(Cut, u32)> {
        let (at_end, open) = at_end(&self.session.tracker, self.scope);
        if self.last == self.session.tracker.head() {
            return Ok((at_end, open));
        }
        let Some(newest) = newest else { return Ok((Cut::Legal, 0)) };
        let own = self.lens.is_own();
        let open = if own { newest.own_open } else { newest.open };
        let next = self.lens.shapes((self.last.saturating_add(1), Seq::MAX), false, 1);
        let next = ask::first(self.ask, next, outline).await?;
        Ok((next.map_or(at_end, |next| cut(own, &next)), open))
    }

    /// Returns the number of messages in skipped call batches.
    async fn skipped(&mut self) -> Outcome<u64> {
        if self.last == self.session.tracker.head() && !self.lens.is_own() {
            return Ok(self.session.skipped);
        }
        let found = ask::all(self.ask, self.lens.flagged(Flag::Skipped, self.last), flagged).await?;
        self.lens.count(self.ask, &batches(&found, self.last)?).await
    }
}

/// Reads the content of these messages, with the last batch of the operation.
async fn words(
    ask: &mut dyn Ask,
    session: SessionId,
    shown: &BTreeMap<Seq, &Outline>,
) -> Outcome<Vec<Message>> {
    // The newest messages are consecutive and are read as a range; the few others are read by number.
    let seqs: Vec<Seq> = shown.keys().copied().collect();
    let down = (0..=seqs.last().copied().unwrap_or(0)).rev();
    let together = seqs.iter().rev().zip(down).take_while(|(seq, next)| *seq == next).count();
    let (rest, run) = seqs.split_at(seqs.len().saturating_sub(together));
    let (mut words, mut others) = (Vec::with_capacity(seqs.len()), Vec::new());
    let read = |row: Found<'_>| {
        let shape = shown.get(&row.uint(0)?).ok_or_else(|| nonsense("an unrequested row was returned"))?;
        Ok(with_words(shape, row, 1)?.0)
    };
    let mut batch = Batch::new();
    if !rest.is_empty() {
        let sql = "SELECT seq, body FROM epitome.messages WHERE session = $1 AND seq = ANY($2) ORDER BY seq";
        let rest = Given::Ints(rest.iter().map(|seq| int(*seq)).collect());
        batch = batch.all(Sql::new(sql, [session.into(), rest]), &mut words, read);
    }
    if let (Some(first), Some(last)) = (run.first(), run.last()) {
        let sql = "SELECT seq, body FROM epitome.messages WHERE session = $1 AND seq >= $2 AND seq <= $3 ORDER BY seq";
        let sql = Sql::new(sql, [session.into(), (*first).into(), (*last).into()]);
        batch = batch.all(sql, &mut others, read);
    }
    ask.finish(batch).await?;
    words.append(&mut others);
    if words.len() < shown.len() {
        return Err(nonsense("messages are missing although their outlines were read"));
    }
    Ok(words)
}
