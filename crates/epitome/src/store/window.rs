//! What a context is made from, and no more of a long session than that.
//!
//! A window holds what `Scene::whole` would find in the whole log, but for messages that could not fit. Everything that
//! can be asked for without knowing the rest is asked for at once, so that most windows take two messages there and back.

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

/// So many of the first messages are read for those that lead.
const LEADING: usize = 8;

/// So many of the newest at first, and twice as many each time that is not enough.
const NEWEST: usize = 64;

/// So many more than the last window held.
const MORE: usize = 16;

/// Never more than this at once.
const MOST_AT_ONCE: usize = 4_096;

/// A session's number, and how many messages its last window held (0 where none was read yet): what is likely.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbered {
    pub(super) id: SessionId,
    pub(super) held: usize,
}

/// A window, and what it takes to make the next one from it.
pub(super) struct Seen {
    pub(super) window: Window,
    pub(super) revision: i64,
    pub(super) reach: Reach,
    /// Who opened the turns of the newest messages, newest first.
    pub(super) openers: Vec<(Seq, Seq)>,
}

/// Reads a window. `likely` is a guess: where it is wrong it is read again.
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
    Err(nonsense("a session has two numbers"))
}

/// What can be asked for at once, which is enough for most windows.
#[derive(Default)]
struct Begun {
    session: Option<(SessionRow, i64)>,
    settings: Option<String>,
    /// The first messages, as far as they lead.
    leading: Vec<Outline>,
    pinned: Vec<Flagged>,
    summaries: Vec<SummaryRow>,
    /// The newest messages with who opened their turns; none where they are read one by one.
    newest: Vec<(Outline, Seq)>,
    /// How many of the newest were asked for.
    asked: usize,
}

async fn begin(ask: &mut dyn Ask, key: &SessionKey, view: &View, numbered: Numbered) -> Outcome<Begun> {
    let Numbered { id, held } = numbered;
    let lens = Lens::new(id, &view.scope);
    let as_of = view.as_of.unwrap_or(Seq::MAX);
    // As many as it was the last time, and some more: it has grown, and one more shows where it ends.
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
    /// The window of a session that is there.
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

/// The summaries that stand, or of each slot the one that reaches furthest up to a place.
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

/// A session whose window is read.
struct Reading<'a> {
    ask: &'a mut dyn Ask,
    lens: Lens<'a>,
    session: &'a SessionRow,
    scope: &'a Scope,
    /// As if the log ended here.
    last: Seq,
}

impl Reading<'_> {
    /// The system and developer messages at the head: most often all of them are among the first few.
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

    /// The batches that pinned messages stand in.
    async fn pinned(&mut self, found: &[Flagged]) -> Outcome<Vec<Outline>> {
        let mut pinned = Vec::new();
        for run in batches(found, self.last)? {
            pinned.extend(self.lens.run(self.ask, run, usize::MAX).await?);
        }
        pinned.retain(|outline| !outline.leading && !outline.stray);
        Ok(pinned)
    }

    /// Takes in the newest messages, more and more of them until there are enough. Tells who opened their turns.
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
        // None was asked for yet, or not enough.
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

    /// The message that opened the turn the tail starts in, where it lies before it.
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

    /// What a cut at the end parts, and how many calls are open there.
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

    /// How many messages are skipped, by whole batches.
    async fn skipped(&mut self) -> Outcome<u64> {
        if self.last == self.session.tracker.head() && !self.lens.is_own() {
            return Ok(self.session.skipped);
        }
        let found = ask::all(self.ask, self.lens.flagged(Flag::Skipped, self.last), flagged).await?;
        self.lens.count(self.ask, &batches(&found, self.last)?).await
    }
}

/// The words of these messages, and with that it is over.
async fn words(
    ask: &mut dyn Ask,
    session: SessionId,
    shown: &BTreeMap<Seq, &Outline>,
) -> Outcome<Vec<Message>> {
    // The newest stand together; what is before them are a few.
    let seqs: Vec<Seq> = shown.keys().copied().collect();
    let down = (0..=seqs.last().copied().unwrap_or(0)).rev();
    let together = seqs.iter().rev().zip(down).take_while(|(seq, next)| *seq == next).count();
    let (rest, run) = seqs.split_at(seqs.len().saturating_sub(together));
    let (mut words, mut others) = (Vec::with_capacity(seqs.len()), Vec::new());
    let read = |row: Found<'_>| {
        let shape = shown.get(&row.uint(0)?).ok_or_else(|| nonsense("a message was not asked for"))?;
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
        return Err(nonsense("messages are missing whose shapes are there"));
    }
    Ok(words)
}
