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
use super::change::{session, settings};
use super::changes::Standing;
use super::columns::scope_text;
use super::decode::{self, AFTER_OUTLINE, AFTER_SESSION, Found, SUMMARY_TEXT, outline, with_words};
use super::given::{Given, int};
use super::lens::{Flag, Lens, batches, flagged};
use super::rows::{SessionId, SessionKey, SessionRow, SummaryRow};
use super::sql::Sql;
use super::statements;
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
            None => match ask::first(ask, statements::number(key), |row| row.int(0)).await? {
                Some(id) => Numbered { id, held: 0 },
                None => return Ok(None),
            },
        };
        match begin(ask, key, view, this).await? {
            Begun { session: None, .. } => return Ok(None),
            Begun { session: Some((row, _)), .. } if row.id != this.id => {
                numbered = Some(Numbered { id: row.id, held: 0 });
            }
            Begun { session: Some((row, revision)), settings, rest } => {
                let standing = Standing::bare(ask.now().await?, settings.unwrap_or_default(), Some(row));
                let Some(reach) = look(&standing) else { return Ok(None) };
                return rest.read(ask, view, standing, (revision, reach)).await.map(Some);
            }
        }
    }
    Err(nonsense("a session has two numbers"))
}

/// What can be asked for at once.
struct Begun {
    session: Option<(SessionRow, i64)>,
    settings: Option<String>,
    rest: Rest,
}

/// The first messages, as far as they lead, and whether more may.
type First = (Vec<Outline>, bool);

/// The newest ones with who opened their turns, and how many were asked for; none where they are read one by one.
type Newest = (Vec<(Outline, Seq)>, usize);

async fn begin(ask: &mut dyn Ask, key: &SessionKey, view: &View, numbered: Numbered) -> Outcome<Begun> {
    let Numbered { id, held } = numbered;
    let lens = Lens::new(id, &view.scope);
    let as_of = view.as_of.unwrap_or(Seq::MAX);
    let (mut found, mut settled, mut summaries, mut pinned) = (None, None, Vec::new(), Vec::new());
    let (mut leading, mut seen, mut leads) = (Vec::new(), 0, true);
    let mut newest = Vec::new();
    let lead = |row: Found<'_>| {
        let outline = outline(row)?;
        (seen, leads) = (seen + 1, outline.leading);
        if leads {
            leading.push(outline);
        }
        Ok(leads)
    };
    let size = ask.page(LEADING);
    let mut batch = Batch::new()
        .first(session(key, ""), &mut found, |row| Ok((decode::session(row)?, row.int(AFTER_SESSION)?)))
        .first(settings(key), &mut settled, |row| row.string(0))
        .all(of_slots(id, view), &mut summaries, decode::summary)
        .each(lens.shapes((1, as_of), false, size), lead)
        .all(lens.flagged(Flag::Pinned, as_of), &mut pinned, flagged);
    // As many as it was the last time, and some more: it has grown, and one more shows where it ends.
    let likely = if held == 0 { NEWEST } else { held.saturating_add(MORE).min(MOST_AT_ONCE) };
    let many = ask.page(likely);
    if many == likely {
        let sql = lens.shapes((1, as_of), true, many);
        batch = batch.all(sql, &mut newest, |row| Ok((outline(row)?, row.uint(AFTER_OUTLINE)?)));
    }
    ask.ask(batch).await?;
    let first = (leading, leads && seen >= size);
    let rest = Rest { first, pinned, summaries, newest: (newest, many) };
    Ok(Begun { session: found, settings: settled, rest })
}

/// What was read of a session that is there, and is enough for most windows.
struct Rest {
    first: First,
    pinned: Vec<super::lens::Flagged>,
    summaries: Vec<SummaryRow>,
    newest: Newest,
}

impl Rest {
    async fn read(
        self,
        ask: &mut dyn Ask,
        view: &View,
        standing: Standing,
        (revision, reach): (i64, Reach),
    ) -> Outcome<Seen> {
        let Some(row) = &standing.session else { return Err(nonsense("a session is missing")) };
        let Self { first, pinned, summaries, newest } = self;
        let lens = Lens::new(row.id, &view.scope);
        let head = row.tracker.head();
        let last = view.as_of.map_or(head, |as_of| as_of.min(head));
        let leading = leading(ask, &lens, first, last).await?;
        let mut all = Vec::new();
        for run in batches(&pinned, last)? {
            all.extend(lens.run(ask, run, usize::MAX).await?);
        }
        let pinned: Vec<Outline> = all.into_iter().filter(|o| !o.leading && !o.stray).collect();
        let mut tail = Tail::new(lens.is_own(), reach.tokens, floor(reach, &summaries), &pinned);
        let openers = fill(ask, &lens, &mut tail, newest, last).await?;
        let (tail, from) = tail.done();
        let opener = opener(ask, &lens, &tail, from, &openers).await?;
        let (end, open_calls) = end(ask, &lens, row, &view.scope, last, tail.last()).await?;
        let skipped = if last == head && !lens.is_own() {
            row.skipped
        } else {
            let found = ask::all(ask, lens.flagged(Flag::Skipped, last), flagged).await?;
            lens.count(ask, &batches(&found, last)?).await?
        };
        let ahead = leading.iter().chain(&pinned).chain(&opener);
        let shown = shown(lens.is_own(), ahead, &tail, covered(reach, &summaries));
        let words = words(ask, row.id, &shown).await?;
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

/// The system and developer messages at the head: most often all of them are among the first few.
async fn leading(
    ask: &mut dyn Ask,
    lens: &Lens<'_>,
    (mut leading, mut more): First,
    last: Seq,
) -> Outcome<Vec<Outline>> {
    while more {
        let next = leading.last().map_or(Seq::MAX, |outline| outline.seq.saturating_add(1));
        let Some(within) = Span::new(next, last) else { break };
        let some = lens.run(ask, within, MOST_AT_ONCE).await?;
        let (before, size) = (leading.len(), some.len());
        leading.extend(some.into_iter().take_while(|outline| outline.leading));
        more = size >= MOST_AT_ONCE && leading.len() == before + size;
    }
    Ok(leading)
}

/// Takes in the newest messages, more and more of them until there are enough. Tells who opened their turns.
async fn fill(
    ask: &mut dyn Ask,
    lens: &Lens<'_>,
    tail: &mut Tail<'_>,
    (newest, mut size): Newest,
    last: Seq,
) -> Outcome<Vec<(Seq, Seq)>> {
    let mut openers = Vec::with_capacity(newest.len());
    let (mut through, mut seen) = (last, newest.len());
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
            size = size.saturating_mul(2).min(ask.page(MOST_AT_ONCE));
        }
        let (lowest, mut enough) = (&mut through, false);
        let (known, tail) = (&mut openers, &mut *tail);
        let sql = lens.shapes((1, *lowest), true, size);
        seen = 0;
        let each = |row: Found<'_>| {
            let outline = outline(row)?;
            (seen, *lowest) = (seen + 1, outline.seq.saturating_sub(1));
            known.push((outline.seq, row.uint(AFTER_OUTLINE)?));
            enough = !tail.take(outline);
            Ok(!enough)
        };
        ask.ask(Batch::new().each(sql, each)).await?;
        more = !enough && seen >= size;
    }
    Ok(openers)
}

/// The message that opened the turn the tail starts in, where it lies before it.
async fn opener(
    ask: &mut dyn Ask,
    lens: &Lens<'_>,
    tail: &[Outline],
    from: Seq,
    openers: &[(Seq, Seq)],
) -> Outcome<Option<Outline>> {
    let Some(first) = tail.first().filter(|first| first.turn > 0 && !first.opens_turn && from > 1) else {
        return Ok(None);
    };
    let sql = if lens.is_own() {
        lens.opener_before(first.seq)
    } else {
        let seq = openers.iter().rfind(|(seq, _)| *seq == first.seq).map_or(0, |(_, opener)| *opener);
        lens.shapes((seq, seq), false, 1)
    };
    let opener = ask::first(ask, sql, outline).await?;
    Ok(opener.filter(|opener| opener.turn == first.turn && opener.seq < from))
}

/// What a cut at the end parts, and how many calls are open there.
async fn end(
    ask: &mut dyn Ask,
    lens: &Lens<'_>,
    session: &SessionRow,
    scope: &Scope,
    last: Seq,
    newest: Option<&Outline>,
) -> Outcome<(Cut, u32)> {
    let tracker = &session.tracker;
    let (at_end, open) = at_end(tracker, scope);
    if last == tracker.head() {
        return Ok((at_end, open));
    }
    let Some(newest) = newest else { return Ok((Cut::Legal, 0)) };
    let open = if lens.is_own() { newest.own_open } else { newest.open };
    let next = ask::first(ask, lens.shapes((last.saturating_add(1), Seq::MAX), false, 1), outline).await?;
    Ok((next.map_or(at_end, |next| cut(lens.is_own(), &next)), open))
}

/// The words of these messages, and with that it is over.
async fn words(
    ask: &mut dyn Ask,
    session: SessionId,
    shown: &BTreeMap<Seq, &Outline>,
) -> Outcome<Vec<Message>> {
    // The newest stand together; what is before them are a few.
    let mut rest: Vec<i64> = Vec::new();
    let mut run = None;
    for seq in shown.keys().rev().copied() {
        run = match run {
            None => Span::new(seq, seq),
            Some(Span { from, through }) if seq.saturating_add(1) == from => Span::new(seq, through),
            kept => {
                rest.push(int(seq));
                kept
            }
        };
    }
    let (mut words, mut others) = (Vec::with_capacity(shown.len()), Vec::new());
    let read = |into: &mut Vec<Message>, row: Found<'_>| {
        if let Some(shape) = shown.get(&row.uint(0)?) {
            into.push(with_words(shape, row, 1)?.0);
        }
        Ok(true)
    };
    let mut batch = Batch::new();
    if !rest.is_empty() {
        rest.reverse();
        let sql = "SELECT seq, body FROM epitome.messages WHERE session = $1 AND seq = ANY($2) ORDER BY seq";
        let sql = Sql::new(sql, [session.into(), Given::Ints(rest)]);
        batch = batch.each(sql, |row| read(&mut words, row));
    }
    if let Some(run) = run {
        let sql = "SELECT seq, body FROM epitome.messages WHERE session = $1 AND seq >= $2 AND seq <= $3 ORDER BY seq";
        let sql = Sql::new(sql, [session.into(), run.from.into(), run.through.into()]);
        batch = batch.each(sql, |row| read(&mut others, row));
    }
    ask.finish(batch).await?;
    words.append(&mut others);
    if words.len() < shown.len() {
        return Err(nonsense("messages are missing whose shapes are there"));
    }
    words.sort_by_key(|message: &Message| message.seq);
    Ok(words)
}
