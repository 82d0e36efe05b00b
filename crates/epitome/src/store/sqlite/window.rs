//! What a context is made from, and no more of a long session than that.
//!
//! A window holds what `Scene::whole` would find in the whole log, but for messages that could not fit.

use std::collections::BTreeMap;

use epitome_core::message::{Message, Seq, Span, Tokens};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;
use rusqlite::{Connection, params};

use super::super::asked::{Reach, View, Window};
use super::super::changes::Standing;
use super::super::columns::scope_text;
use super::super::decode::{SUMMARY_TEXT, summary};
use super::super::given::int;
use super::super::rows::{SessionRow, SummaryRow};
use super::super::tail::{Tail, at_end, covered, floor, shown};
use super::error::{Outcome, nonsense};
use super::lens::{Flag, Lens};
use super::rows::{all_of, first_of};

/// Reads a window of a session that exists.
pub(super) fn window(
    db: &Connection,
    standing: Standing,
    view: &View,
    reach: Reach,
) -> Outcome<Option<Window>> {
    let Some(session) = &standing.session else { return Ok(None) };
    let head = session.tracker.head();
    let last = view.as_of.map_or(head, |as_of| as_of.min(head));
    let lens = Lens::new(db, session.id, &view.scope);

    let summaries = match view.as_of {
        None => standing_summaries(db, session.id, &view.scope)?,
        Some(_) => summaries_as_of(db, session.id, &view.scope, last)?,
    };
    let leading = leading(&lens, last)?;
    let pinned = pinned(&lens, last)?;
    let floor = floor(reach, &summaries);
    let (tail, from) = tail(&lens, last, reach.tokens, floor, &pinned)?;
    let opener = opener(&lens, &tail, from)?;
    let (end, open_calls) = end(&lens, session, &view.scope, last, tail.last())?;
    let skipped = if last == head && !lens.is_own() { session.skipped } else { skipped(&lens, last)? };

    let covered = covered(reach, &summaries);
    let ahead = leading.iter().chain(&pinned).chain(&opener);
    let shown = shown(lens.is_own(), ahead, &tail, covered);
    let words = words(&lens, &shown)?;

    Ok(Some(Window {
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
    }))
}

/// Those that stand, of this scope.
fn standing_summaries(db: &Connection, session: i64, scope: &Scope) -> Outcome<Vec<SummaryRow>> {
    let sql = format!(
        "SELECT {SUMMARY_TEXT} FROM summaries INDEXED BY summaries_standing \
         WHERE session = ?1 AND scope = ?2 AND state = 'standing' ORDER BY slot"
    );
    all_of(db, &sql, params![session, scope_text(scope)], summary)
}

/// For each slot the one that reaches furthest up to there.
fn summaries_as_of(db: &Connection, session: i64, scope: &Scope, last: Seq) -> Outcome<Vec<SummaryRow>> {
    let scope = scope_text(scope);
    let names = "SELECT name FROM slots WHERE session = ?1 AND scope = ?2 ORDER BY name";
    let names = all_of(db, names, params![session, scope], |row| row.string(0))?;
    let sql = format!(
        "SELECT {SUMMARY_TEXT} FROM summaries WHERE session = ?1 AND scope = ?2 AND slot = ?3 AND through <= ?4 \
         AND state <> 'undone' ORDER BY through DESC, id DESC LIMIT 1"
    );
    let best = |name: &String| first_of(db, &sql, params![session, scope, name, int(last)], summary);
    Ok(names.iter().map(best).collect::<Outcome<Vec<_>>>()?.into_iter().flatten().collect())
}

fn leading(lens: &Lens<'_>, last: Seq) -> Outcome<Vec<Outline>> {
    let mut leading = Vec::new();
    if let Some(all) = Span::new(1, last) {
        lens.walk(all, false, |outline| {
            let leads = outline.leading;
            if leads {
                leading.push(outline);
            }
            leads
        })?;
    }
    Ok(leading)
}

/// The call batches that messages with a flag stand in, oldest first.
fn batches(lens: &Lens<'_>, flag: Flag, last: Seq) -> Outcome<Vec<Span>> {
    let mut batches: Vec<Span> = Vec::new();
    for seq in lens.flagged(flag, last)? {
        if batches.last().is_none_or(|batch| batch.through < seq) {
            batches.push(lens.batch(seq, last)?);
        }
    }
    Ok(batches)
}

fn pinned(lens: &Lens<'_>, last: Seq) -> Outcome<Vec<Outline>> {
    let mut pinned = Vec::new();
    for batch in batches(lens, Flag::Pinned, last)? {
        let whole = lens.run(batch, usize::MAX)?;
        pinned.extend(whole.into_iter().filter(|outline| !outline.leading && !outline.stray));
    }
    Ok(pinned)
}

fn skipped(lens: &Lens<'_>, last: Seq) -> Outcome<u64> {
    let mut skipped: u64 = 0;
    for batch in batches(lens, Flag::Skipped, last)? {
        skipped = skipped.saturating_add(lens.count(batch)?);
    }
    Ok(skipped)
}

/// The newest messages.
fn tail(
    lens: &Lens<'_>,
    last: Seq,
    tokens: Tokens,
    floor: Option<Seq>,
    pinned: &[Outline],
) -> Outcome<(Vec<Outline>, Seq)> {
    let mut tail = Tail::new(lens.is_own(), tokens, floor, pinned);
    if let Some(all) = Span::new(1, last) {
        lens.walk(all, true, |outline| tail.take(outline))?;
    }
    Ok(tail.done())
}

/// The message that opened the turn the tail starts in, where it lies before it.
fn opener(lens: &Lens<'_>, tail: &[Outline], from: Seq) -> Outcome<Option<Outline>> {
    let Some(first) = tail.first().filter(|first| first.turn > 0 && !first.opens_turn && from > 1) else {
        return Ok(None);
    };
    let opener = if lens.is_own() {
        lens.opener_before(first.seq)?
    } else {
        let sql = "SELECT opener FROM messages WHERE session = ?1 AND seq = ?2";
        let given = params![lens.session, int(first.seq)];
        let seq = first_of(lens.db, sql, given, |row| row.uint(0))?;
        match seq.and_then(|seq| Span::new(seq, seq)) {
            Some(one) => lens.run(one, 1)?.pop(),
            None => None,
        }
    };
    Ok(opener.filter(|opener| opener.turn == first.turn && opener.seq < from))
}

/// What a cut at the end parts, and how many calls are open there.
fn end(
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
    let end = lens.next(last)?.map_or(at_end, |next| lens.cut(&next));
    Ok((end, open))
}

/// The words of these messages, run by run.
fn words(lens: &Lens<'_>, shown: &BTreeMap<Seq, &Outline>) -> Outcome<Vec<Message>> {
    let mut words = Vec::with_capacity(shown.len());
    let mut next = shown.keys().copied().peekable();
    while let Some(from) = next.next() {
        let mut through = from;
        while let Some(seq) = next.next_if(|seq| *seq == through.saturating_add(1)) {
            through = seq;
        }
        if let Some(run) = Span::new(from, through) {
            words.extend(lens.words_of(run, shown)?);
        }
    }
    if words.len() < shown.len() {
        return Err(nonsense("messages are missing whose shapes are there"));
    }
    Ok(words)
}
