//! What a context is made from, and no more of a long session than that.
//!
//! A window holds what `Scene::whole` would find in the whole log, but for messages that could not fit. Everything that
//! can be asked for without knowing the rest is asked for at once, so that most windows take two messages there and back.

use std::collections::BTreeMap;

use epitome_core::message::{Message, Seq, Span};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;
use tokio_postgres::Row;

use super::super::asked::{Look, View, Window};
use super::super::changes::{Load, Standing};
use super::super::columns::scope_text;
use super::super::decode::{self, AFTER_OUTLINE, OUTLINE, ReadRow, SUMMARY_TEXT, outline, with_words};
use super::super::given::Given;
use super::super::rows::{SessionId, SessionKey, SessionRow};
use super::super::tail::{Tail, at_end, covered, cut, floor, shown};
use super::Postgres;
use super::change::standing_of;
use super::error::{Outcome, nonsense};
use super::known::Numbered;
use super::lens::{Lens, batches};
use super::pipe::Pipe;
use super::recent::{Held, LARGEST, MOST_NEW};
use super::rows::{AFTER_SESSION, SESSION, get};
use super::tx::{NOW, Tx};

/// So many of the first messages are read for those that lead.
const LEADING: usize = 8;

/// So many of the newest at first, and twice as many each time that is not enough.
const NEWEST: usize = 64;

/// So many more than the last window held.
const MORE: usize = 16;

/// Never more than this at once.
const MOST_AT_ONCE: usize = 4_096;

impl Postgres {
    /// Reads a window, where the session of that name has that number.
    pub(super) async fn window_once(
        &self,
        key: &SessionKey,
        Numbered { id, held }: Numbered,
        view: &View,
        look: &Look,
    ) -> Outcome<Found> {
        let lens = Lens::new(id, &view.scope);
        let as_of = view.as_of.unwrap_or(Seq::MAX);
        let sql = format!(
            "SELECT {SESSION}, revision FROM epitome.sessions WHERE workspace = $1 AND name = $2 AND state = 'open'"
        );
        let mut pipe = Pipe::new()
            .then(sql, [(&*key.workspace).into(), (&*key.session).into()])
            .then("SELECT settings FROM epitome.workspaces WHERE name = $1", [(&*key.workspace).into()]);
        summaries(&mut pipe, id, view);
        lens.shapes(&mut pipe, (1, as_of), false, LEADING);
        lens.flagged(&mut pipe, "pinned", as_of);
        // As many as it was the last time, and some more: it has grown, and one more shows where it ends.
        let newest_size = if held == 0 { NEWEST } else { held.saturating_add(MORE).min(MOST_AT_ONCE) };
        lens.shapes(&mut pipe, (1, as_of), true, newest_size);
        let (mut tx, found) = Tx::read(self, pipe).await?;
        let [session, workspace, summaries, first, pinned, newest] = found.as_slice() else {
            return Err(nonsense("the database answers less than it was asked"));
        };
        let ground = [session.clone(), workspace.clone(), Vec::new()];
        let standing = standing_of(&ground, &Load::default(), tx.now)?;
        let Some(row) = standing.session.as_ref() else {
            tx.finish(Pipe::new()).await?;
            return Ok(Found::Nothing);
        };
        if row.id != id {
            let id = row.id;
            tx.finish(Pipe::new()).await?;
            return Ok(Found::Another(id));
        }
        let Some(reach) = look(&standing) else {
            tx.finish(Pipe::new()).await?;
            return Ok(Found::Nothing);
        };
        let head = row.tracker.head();
        let last = as_of.min(head);
        let summaries = summaries.iter().map(|row| decode::summary(row)).collect::<Outcome<Vec<_>>>()?;
        let leading = leading(&mut tx, &lens, first, last).await?;
        let pinned = runs(&mut tx, &lens, &batches(pinned, last)?).await?;
        let pinned: Vec<Outline> = pinned.into_iter().filter(|o| !o.leading && !o.stray).collect();
        let floor = floor(reach, &summaries);

        let mut tail = Tail::new(lens.is_own(), reach.tokens, floor, &pinned);
        let openers = fill(&mut tx, &lens, &mut tail, (newest, newest_size)).await?;
        let (tail, from) = tail.done();
        let opener = opener(&mut tx, &lens, &tail, from, &openers).await?;
        let (end, open_calls) = end(&mut tx, &lens, row, &view.scope, last, tail.last()).await?;
        let skipped = if last == head && !lens.is_own() {
            row.skipped
        } else {
            let mut pipe = Pipe::new();
            lens.flagged(&mut pipe, "skip", last);
            let found = tx.ask(pipe).await?;
            let runs = batches(found.first().map_or(&[], Vec::as_slice), last)?;
            lens.count(&mut tx, &runs).await?
        };

        let covered = covered(reach, &summaries);
        let ahead = leading.iter().chain(&pinned).chain(&opener);
        let shown = shown(lens.is_own(), ahead, &tail, covered);
        let words = words(tx, id, &shown).await?;
        let revision = session.first().map_or(Ok(0), |row| get(row, AFTER_SESSION))?;
        let window = Window {
            leading: leading.clone(),
            pinned: pinned.clone(),
            opener,
            tail: tail.clone(),
            from,
            end,
            open_calls,
            skipped,
            summaries,
            words,
            standing,
        };
        if is_whole(view) {
            self.recent.put(key, Held::of(&window, revision, reach, openers));
        }
        Ok(Found::Window(Box::new(window)))
    }

    /// The same with what was said since a window was read; nothing where that does not tell it.
    pub(super) async fn window_since(
        &self,
        key: &SessionKey,
        held: &Held,
        look: &Look,
    ) -> Outcome<Option<Found>> {
        // One statement is as of one moment without a transaction around it. Newest first: of more words than a window that is
        // kept may have, the older ones are not shown, or it is not told from here.
        let sql = format!(
            "SELECT {}, n.words, n.opener, {}, s.revision, w.settings, ({NOW}) FROM epitome.sessions s \
             JOIN epitome.workspaces w ON w.name = s.workspace LEFT JOIN LATERAL (SELECT m.*, CASE WHEN \
             coalesce(sum(octet_length(body)) OVER (ORDER BY seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) < $6 \
             THEN body END AS words FROM (SELECT * FROM epitome.messages WHERE session = $3 AND seq > $4 \
             ORDER BY seq DESC LIMIT $5) m) n ON true \
             WHERE s.workspace = $1 AND s.name = $2 AND s.state = 'open' ORDER BY n.seq DESC",
            of("n", OUTLINE),
            of("s", SESSION)
        );
        let (workspace, name) = ((&*key.workspace).into(), (&*key.session).into());
        let (session, head) = (held.id.into(), held.head.into());
        let given = [workspace, name, session, head, (MOST_NEW + 1).into(), LARGEST.into()];
        let found = self.once(Pipe::new().then(sql, given)).await?;
        let found = found.first().map_or(&[][..], Vec::as_slice);
        let Some(row) = found.first().filter(|_| found.len() <= MOST_NEW) else { return Ok(None) };
        let beside = AFTER_OUTLINE + 2 + AFTER_SESSION;
        let revision = get(row, beside)?;
        let standing = Standing::bare(
            self.moment(get(row, beside + 2)?),
            get(row, beside + 1)?,
            Some(decode::session_at(row, AFTER_OUTLINE + 2)?),
        );
        let Some(reach) = look(&standing) else { return Ok(Some(Found::Nothing)) };
        let said = |row: &&Row| get::<Option<i64>>(row, 0).is_ok_and(|seq| seq.is_some());
        let new = found.iter().filter(said).rev().map(|row| {
            let outline = outline(row)?;
            let words = match get::<Option<&str>>(row, AFTER_OUTLINE)? {
                Some(_) => Some(with_words(&outline, row, AFTER_OUTLINE)?.0),
                None => None,
            };
            Ok((outline, row.uint(AFTER_OUTLINE + 1)?, words))
        });
        let new = new.collect::<Outcome<Vec<_>>>()?;
        let Some((window, held)) = held.grown(standing, revision, reach, new) else { return Ok(None) };
        self.recent.put(key, held);
        Ok(Some(Found::Window(Box::new(window))))
    }
}

/// Columns of the table that is called so.
pub(super) fn of(table: &str, columns: &str) -> String {
    columns.split(", ").map(|column| format!("{table}.{}", column.trim())).collect::<Vec<_>>().join(", ")
}

/// Whether it is a session's own window, up to now: others are seldom asked for twice.
pub(super) fn is_whole(view: &View) -> bool {
    view.scope == Scope::Session && view.as_of.is_none()
}

/// What a look at a session gave.
pub(super) enum Found {
    Nothing,
    /// The session of that name has this number.
    Another(SessionId),
    Window(Box<Window>),
}

/// The ones that stand, or of each slot the one that reaches furthest up to a place.
fn summaries<'a>(pipe: &mut Pipe<'a>, id: SessionId, view: &'a View) {
    let scope = scope_text(&view.scope);
    match view.as_of {
        None => {
            let sql = format!(
                "SELECT {SUMMARY_TEXT} FROM epitome.summaries WHERE session = $1 AND scope = $2 AND state = 'standing' \
                 ORDER BY slot"
            );
            pipe.push(sql, [id.into(), scope.into()]);
        }
        Some(as_of) => {
            let sql = format!(
                "SELECT best.* FROM epitome.slots s CROSS JOIN LATERAL (SELECT {SUMMARY_TEXT} FROM epitome.summaries \
                 WHERE session = $1 AND scope = $2 AND slot = s.name AND through <= $3 AND state <> 'undone' \
                 ORDER BY through DESC, id DESC LIMIT 1) best WHERE s.session = $1 AND s.scope = $2 ORDER BY s.name"
            );
            pipe.push(sql, [id.into(), scope.into(), as_of.into()]);
        }
    }
}

/// The system and developer messages at the head: most often all of them are among the first few.
async fn leading(tx: &mut Tx<'_>, lens: &Lens<'_>, first: &[Row], last: Seq) -> Outcome<Vec<Outline>> {
    let mut leading = Vec::new();
    let mut some = first.iter().map(|row| outline(row)).collect::<Outcome<Vec<_>>>()?;
    loop {
        let more = some.len() >= LEADING;
        for outline in some {
            if !outline.leading {
                return Ok(leading);
            }
            leading.push(outline);
        }
        let next = leading.last().map_or(Seq::MAX, |outline| outline.seq.saturating_add(1));
        let Some(within) = Span::new(next, last).filter(|_| more) else { return Ok(leading) };
        some = lens.run(tx, within, MOST_AT_ONCE).await?;
    }
}

/// The shapes of these runs.
async fn runs(tx: &mut Tx<'_>, lens: &Lens<'_>, runs: &[Span]) -> Outcome<Vec<Outline>> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipe = Pipe::new();
    for run in runs {
        lens.shapes(&mut pipe, (run.from, run.through), false, usize::MAX);
    }
    let found = tx.ask(pipe).await?;
    found.iter().flatten().map(|row| outline(row)).collect()
}

/// Takes in the newest messages, more and more of them until there are enough. Tells who opened their turns.
async fn fill(
    tx: &mut Tx<'_>,
    lens: &Lens<'_>,
    tail: &mut Tail<'_>,
    (newest, mut size): (&[Row], usize),
) -> Outcome<BTreeMap<Seq, Seq>> {
    let mut openers = BTreeMap::new();
    let mut found = newest;
    let mut more;
    loop {
        let mut lowest = 1;
        for row in found {
            let outline = outline(row)?;
            lowest = outline.seq;
            openers.insert(lowest, row.uint(AFTER_OUTLINE)?);
            if !tail.take(outline) {
                return Ok(openers);
            }
        }
        if found.len() < size || lowest <= 1 {
            return Ok(openers);
        }
        size = size.saturating_mul(2).min(MOST_AT_ONCE);
        let mut pipe = Pipe::new();
        lens.shapes(&mut pipe, (1, lowest.saturating_sub(1)), true, size);
        more = tx.ask(pipe).await?;
        found = more.first().map_or(&[], Vec::as_slice);
    }
}

/// The message that opened the turn the tail starts in, where it lies before it.
async fn opener(
    tx: &mut Tx<'_>,
    lens: &Lens<'_>,
    tail: &[Outline],
    from: Seq,
    openers: &BTreeMap<Seq, Seq>,
) -> Outcome<Option<Outline>> {
    let Some(first) = tail.first().filter(|first| first.turn > 0 && !first.opens_turn && from > 1) else {
        return Ok(None);
    };
    let mut pipe = Pipe::new();
    if lens.is_own() {
        lens.opener_before(&mut pipe, first.seq);
    } else {
        let seq = openers.get(&first.seq).copied().unwrap_or(0);
        lens.shapes(&mut pipe, (seq, seq), false, 1);
    }
    let found = tx.ask(pipe).await?;
    let opener = found.iter().flatten().map(|row| outline(row)).next().transpose()?;
    Ok(opener.filter(|opener| opener.turn == first.turn && opener.seq < from))
}

/// What a cut at the end parts, and how many calls are open there.
async fn end(
    tx: &mut Tx<'_>,
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
    let mut pipe = Pipe::new();
    lens.shapes(&mut pipe, (last.saturating_add(1), Seq::MAX), false, 1);
    let found = tx.ask(pipe).await?;
    let next = found.iter().flatten().map(|row| outline(row)).next().transpose()?;
    Ok((next.map_or(at_end, |next| cut(lens.is_own(), &next)), open))
}

/// The words of these messages, and with that the end of the transaction.
async fn words(tx: Tx<'_>, session: SessionId, shown: &BTreeMap<Seq, &Outline>) -> Outcome<Vec<Message>> {
    let mut pipe = Pipe::new();
    // The newest stand together; what is before them are a few.
    let mut rest: Vec<i64> = Vec::new();
    let mut run = None;
    for seq in shown.keys().rev().copied() {
        run = match run {
            None => Span::new(seq, seq),
            Some(Span { from, through }) if seq.saturating_add(1) == from => Span::new(seq, through),
            kept => {
                rest.push(super::super::given::int(seq));
                kept
            }
        };
    }
    if let Some(run) = run {
        let sql = "SELECT seq, body FROM epitome.messages WHERE session = $1 AND seq >= $2 AND seq <= $3 ORDER BY seq";
        pipe.push(sql, [session.into(), run.from.into(), run.through.into()]);
    }
    if !rest.is_empty() {
        rest.reverse();
        let sql = "SELECT seq, body FROM epitome.messages WHERE session = $1 AND seq = ANY($2) ORDER BY seq";
        pipe.push(sql, [session.into(), Given::Ints(rest)]);
    }
    let found = tx.finish(pipe).await?;
    let mut words = Vec::with_capacity(shown.len());
    for row in found.iter().flatten() {
        if let Some(shape) = shown.get(&row.uint(0)?) {
            words.push(with_words(shape, row, 1)?.0);
        }
    }
    if words.len() < shown.len() {
        return Err(nonsense("messages are missing whose shapes are there"));
    }
    words.sort_by_key(|message| message.seq);
    Ok(words)
}
