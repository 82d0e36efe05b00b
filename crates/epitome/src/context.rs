//! A conversation in so many tokens: one read, then arithmetic.
//!
//! Engine and worker both make contexts: the one for whoever asks, the other ahead of time when a new summary stands.

use std::collections::HashMap;
use std::sync::Arc;

use epitome_core::context::{
    ChosenSummary, Costs, Entry, Fit, Layout, Report, Request, Scene, Words, lay_out,
};
use epitome_core::cut::Cuts;
use epitome_core::local::Extracts;
use epitome_core::message::{Message, Seq, Span, Timestamp, Tokens};
use epitome_core::shelf::{Shelf, render};
use epitome_core::tokens::{Counter, Encoding};
use serde::Serialize;

use crate::error::{Error, Next};
use crate::request::ContextRequest;
use crate::shared::{Shared, TextKey, Told};
use crate::store::{
    Pick, PickSummaries, Reach, SessionId, SessionKey, Standing, SummaryId, SummaryRow, View, Window,
};
use crate::time::millis_between;

/// What the agent is given.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Context {
    /// The list, valid for every provider. A summary is a message of its own, between tags.
    pub messages: Vec<Message>,
    /// The summary in it.
    pub summary: Option<ShownSummary>,
    /// What was done: tokens by part, coverage, whether it is exhaustive, the gap where it is not.
    pub report: Report,
    /// The last message of the log it was made from.
    pub through: Seq,
    /// How tokens were counted.
    pub encoding: String,
}

/// The summary a context holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownSummary {
    /// Its number; nothing when it is only a digest made on the spot.
    pub id: Option<SummaryId>,
    /// The second one, where two were joined: the one that tells most of the older messages.
    pub joined: Option<SummaryId>,
    /// Its slot.
    pub slot: Option<String>,
    /// Who wrote it.
    pub model: Option<String>,
    /// Whether it only stands in for one that a failing model should have written.
    pub stand_in: bool,
    /// Up to which message it stands.
    pub through: Seq,
    /// Up to which message its text tells: less than that where it was made anew without those that are shown.
    pub told: Seq,
    /// When it was kept.
    pub created: Option<Timestamp>,
    /// Its text as shown.
    pub text: String,
    /// The tokens of that, about.
    pub tokens: Tokens,
    /// How long ago it was kept, in milliseconds. Last, so that it can be told from what lasts.
    #[serde(rename = "age")]
    pub age_millis: Option<u64>,
}

/// A gap is digested as long as it is not more than so many times the budget; a larger one is named only.
const DIGESTED: Tokens = 4;

/// So many times for a small budget, as long as no more than this is read for it.
const DIGESTED_SMALL: (Tokens, Tokens) = (16, 65_536);

/// Where more than this was read, a context is laid out on another thread.
const LAID_OUT_HERE: Tokens = 32_768;

/// Where no more than this was read for the same context before, it is in memory now, and read by whoever asks.
const READ_HERE: Tokens = 16_384;

pub(crate) async fn context(
    shared: &Arc<Shared>,
    key: &SessionKey,
    asked: ContextRequest,
) -> Result<Context, Error> {
    let looked = make(shared, key, &asked).await?;
    if asked.as_of.is_none() {
        shared.caches.asked.insert(key.clone(), (asked, looked.read));
    }
    Ok(looked.context)
}

/// Makes the context ready that was last asked for, where one was: called when a new summary stands, so that
/// whoever asks next need not wait until its text is made to fit.
pub(crate) async fn prepare(shared: &Arc<Shared>, key: &SessionKey) {
    if let Some((asked, _)) = shared.caches.asked.get(key) {
        // Whoever asks will be told what is wrong.
        let _ = make(shared, key, &asked).await;
    }
}

/// Makes a context. What summaries cover is read only when it may be shown: when that was asked for, or when it
/// turned out that no summary can be shown, or none makes it exhaustive, and more messages might serve better.
async fn make(shared: &Arc<Shared>, key: &SessionKey, asked: &ContextRequest) -> Result<Looked, Error> {
    let deep = asked.fill || !asked.summary;
    let looked = look(shared, key, asked, deep).await?;
    let whole = looked.context.summary.is_some() && looked.context.report.exhaustive;
    if looked.covered && !deep && !whole && looked.context.report.empty.is_none() {
        return look(shared, key, asked, true).await;
    }
    Ok(looked)
}

/// A context, and what was read for it.
struct Looked {
    context: Context,
    /// Whether some summary covers messages that were not read.
    covered: bool,
    /// The tokens of those that were.
    read: Tokens,
}

/// Reads as far as that and lays it out.
async fn look(
    shared: &Arc<Shared>,
    key: &SessionKey,
    asked: &ContextRequest,
    deep: bool,
) -> Result<Looked, Error> {
    let before = shared.caches.asked.get(key);
    let at_hand = before.is_some_and(|(before, read)| read <= READ_HERE && asked.reads_like(&before));
    let view = View { scope: asked.scope.clone().into(), as_of: asked.as_of, at_hand };
    let told = Told::new();
    let (engine, tell, wish) = (Arc::clone(shared), Arc::clone(&told), asked.clone());
    let reach = move |standing: &Standing| {
        tell.split(request(&engine, standing, &wish).and_then(|request| {
            // What is digested is not shown, so there may be more of it than the budget holds.
            let budget = request.budget().map_err(Error::invalid)?;
            let (times, most) = DIGESTED_SMALL;
            let digested = budget.saturating_mul(times).min(most).max(budget.saturating_mul(DIGESTED));
            let reach = Reach { tokens: if request.fill { digested } else { budget }, deep };
            Ok((Some(reach), request))
        }))
    };
    let Some(window) = shared.store.window(key, view, Arc::new(reach)).await? else {
        // Nobody was asked where there is no such session.
        return Err(match told.take() {
            Err(error) if error.next() != Next::Reopen => error,
            _ => Error::no_session(&key.session),
        });
    };
    let request = told.take()?;
    let read = window.tail.iter().fold(0, |sum: Tokens, outline| sum.saturating_add(outline.tokens));
    let here = !request.fill && read <= LAID_OUT_HERE;
    let mut desk = Desk::new(Arc::clone(shared), window, request, asked.scope.is_some())?;
    // Most need no more than was read with the window; some show a message that a newer summary covers, or a
    // summary in a size it was not shown in lately.
    for _ in 0..4 {
        let laid;
        (desk, laid) = match here {
            true => desk.lay(),
            false => tokio::task::spawn_blocking(|| desk.lay()).await.map_err(|_| Error::Closed)?,
        };
        match laid? {
            Laid::Whole(context) => {
                let covered = !desk.window.summaries.is_empty() && desk.window.from > 1;
                return Ok(Looked { context: *context, covered, read });
            }
            Laid::LacksWords(seqs) => {
                desk.messages = shared.store.messages(desk.session, Pick::Seqs(seqs)).await?.items;
            }
            Laid::LacksSources(ids) => {
                let rows = shared.store.summaries(desk.session, PickSummaries::Ids(ids.clone())).await?;
                for id in ids {
                    let row = rows.iter().find(|row| row.id == id);
                    let extracts = row.and_then(|row| row.sources().extracts).map(Arc::new);
                    if let Some(extracts) = &extracts {
                        shared.caches.extracts.insert((desk.session, id), Arc::clone(extracts));
                    }
                    desk.extracts.insert(id, extracts);
                }
            }
        }
    }
    // Messages that were named are gone: the session was deleted meanwhile.
    Err(Error::no_session(&key.session))
}

/// The request as the core knows it, with what the settings say.
fn request(shared: &Shared, standing: &Standing, asked: &ContextRequest) -> Result<Request, Error> {
    let settings = shared.settings_at(standing)?;
    let request = Request {
        tokens: asked.tokens,
        summary: asked.summary,
        fit: asked.fit,
        fill: asked.fill,
        steady: asked.steady,
        oversize: asked.oversize,
        assistant: asked.assistant.clone(),
        share: asked.share.unwrap_or(settings.context.summary_share),
        filled: asked.share.unwrap_or(settings.context.summary_share.and_a_half()),
        max_tokens: settings.context.max_tokens,
    };
    if asked.as_of == Some(0) {
        return Err(Error::invalid("as_of: 0; messages are counted from 1"));
    }
    Ok(request)
}

/// What laying out gave.
enum Laid {
    Whole(Box<Context>),
    /// It shows these messages too, whose words were not read.
    LacksWords(Vec<Seq>),
    /// It shows these summaries in another size, and what they are made of was not read.
    LacksSources(Vec<SummaryId>),
}

/// Everything a context is made from.
struct Desk {
    shared: Arc<Shared>,
    request: Request,
    /// Whether it is about one author's messages.
    own: bool,
    window: Window,
    session: SessionId,
    counter: Counter,
    /// Fetched after the window, by seq.
    messages: Vec<Message>,
    /// Fetched after the window: what summaries were made of; nothing where that was dropped.
    extracts: HashMap<SummaryId, Option<Arc<Extracts>>>,
}

impl Desk {
    fn new(shared: Arc<Shared>, window: Window, request: Request, own: bool) -> Result<Self, Error> {
        let row = window.standing.session.as_ref();
        let (session, encoding) = row.map_or((0, ""), |row| (row.id, &row.encoding));
        let encoding: Encoding = encoding.parse().map_err(Error::invalid)?;
        let (counter, messages, extracts) = (Counter::new(encoding), Vec::new(), HashMap::new());
        Ok(Self { shared, request, own, window, session, counter, messages, extracts })
    }

    fn lay(self) -> (Self, Result<Laid, Error>) {
        let laid = self.context();
        (self, laid)
    }

    fn context(&self) -> Result<Laid, Error> {
        let window = &self.window;
        let fetches: Vec<_> = window.summaries.iter().map(|row| move || self.extracts(row.id)?).collect();
        let mut shelf = Shelf::new(&self.counter, &window.words).with_more(&self.messages);
        for (row, fetch) in window.summaries.iter().zip(&fetches) {
            shelf = match row.has_extracts() {
                true => shelf.with_extracts_later(row.through, &row.text, fetch),
                false => shelf.with_summary(row.through, &row.text),
            }
            .sized(row.facts.shown);
        }
        let shelf = shelf.with_joined();
        let candidates = shelf.candidates();
        let cuts = match self.own {
            true => Cuts::own(&window.tail, window.end),
            false => Cuts::new(&window.tail, window.end),
        };
        let scene = Scene {
            leading: window.leading.iter().collect(),
            pinned: window.pinned.iter().collect(),
            recent: cuts,
            opener: window.opener.as_ref(),
            from: window.from,
            summaries: &candidates,
            skipped: window.skipped,
            open_calls: window.open_calls,
        };
        let keys = self.keys(candidates.len());
        let mut words = Remembering { shelf, desk: self, keys, lacking: Vec::new() };
        let layout =
            lay_out(&self.request, &scene, &Costs::of(&self.counter), &mut words).map_err(Error::invalid)?;
        if !words.lacking.is_empty() {
            return Ok(Laid::LacksSources(words.lacking));
        }
        let texts = &words.shelf;
        let lacking: Vec<Seq> = shown(&layout).filter(|seq| texts.message(*seq).is_none()).collect();
        if !lacking.is_empty() {
            return Ok(Laid::LacksWords(lacking));
        }
        let messages = render(&layout, texts).map_err(Error::invalid)?;
        let summary = layout.summary.map(|chosen| self.shown_summary(&chosen, texts));
        let through = window.tail.last().map_or(0, |outline| outline.seq);
        Ok(Laid::Whole(Box::new(Context {
            messages,
            summary,
            report: layout.report,
            through,
            encoding: self.counter.name().to_owned(),
        })))
    }

    /// What a summary was made of: `None` where that was not read yet, nothing in it where it was dropped.
    fn extracts(&self, id: SummaryId) -> Option<Option<Arc<Extracts>>> {
        let cached = || self.shared.caches.extracts.get(&(self.session, id)).map(Some);
        self.extracts.get(&id).cloned().or_else(cached)
    }

    /// Whether a summary can be rendered in any size, for all that is known.
    fn is_elastic(&self, id: SummaryId) -> bool {
        self.window.summaries.iter().any(|row| row.id == id && row.has_extracts())
    }

    /// By what each candidate's texts are remembered: its own number, and for the joined one both.
    fn keys(&self, candidates: usize) -> Vec<(SummaryId, SummaryId)> {
        let mut keys: Vec<_> = self.window.summaries.iter().map(|row| (row.id, 0)).collect();
        if candidates > keys.len() {
            keys.extend(self.joined().map(|(long, newest)| (long.id, newest.id)));
        }
        keys
    }

    /// The two that the shelf joins.
    fn joined(&self) -> Option<(&SummaryRow, &SummaryRow)> {
        let elastic = || self.window.summaries.iter().filter(|row| row.has_extracts());
        let long = elastic().max_by_key(|row| row.text.len())?;
        Some((long, elastic().max_by_key(|row| row.through)?))
    }

    fn shown_summary(&self, chosen: &ChosenSummary, texts: &Shelf<'_>) -> ShownSummary {
        let held = chosen.candidate.map(|at| match self.window.summaries.get(at) {
            Some(row) => (Some(row), None),
            None => self.joined().map_or((None, None), |(long, newest)| (Some(newest), Some(long.id))),
        });
        let (row, joined) = held.unwrap_or((None, None));
        ShownSummary {
            id: row.map(|row| row.id),
            joined,
            slot: row.map(|row| row.slot.clone()),
            model: row.map(|row| row.facts.model.clone()),
            stand_in: row.is_some_and(|row| row.facts.stand_in),
            through: chosen.through,
            told: match chosen.shown {
                // One that a model wrote tells what it tells.
                Some(shown) if row.is_none_or(SummaryRow::has_extracts) => {
                    chosen.through.min(shown.saturating_sub(1))
                }
                _ => chosen.through,
            },
            created: row.map(|row| row.created),
            age_millis: row.map(|row| millis_between(row.created, self.window.standing.now)),
            tokens: row.map_or(chosen.tokens, |row| {
                // What is around a text costs the same in every size.
                let around = row.facts.shown.saturating_sub(row.facts.tokens);
                chosen.tokens.saturating_sub(around)
            }),
            text: texts.summary(chosen).unwrap_or_default().to_owned(),
        }
    }
}

/// The messages a layout shows word for word.
fn shown(layout: &Layout) -> impl Iterator<Item = Seq> {
    layout.entries.iter().filter_map(|entry| match entry {
        Entry::Kept(seq) | Entry::Message(seq) => Some(*seq),
        Entry::Summary | Entry::Excerpt { .. } | Entry::Note | Entry::Seam => None,
    })
}

/// A shelf that remembers what it made, and says what it lacks.
struct Remembering<'a> {
    shelf: Shelf<'a>,
    desk: &'a Desk,
    keys: Vec<(SummaryId, SummaryId)>,
    /// Summaries that were wanted in another size, and what they are made of is not at hand.
    lacking: Vec<SummaryId>,
}

impl Remembering<'_> {
    /// Only a summary by itself is remembered: gaps and what is shown beside it change with every message.
    fn key(&self, wish: &Fit<'_>) -> Option<TextKey> {
        let alone = wish.gaps.is_empty() && wish.shown.is_none();
        let (one, two) = self.keys.get(wish.summary.filter(|_| alone)?)?;
        Some((self.desk.session, *one, *two, wish.room))
    }

    /// Notes what of this summary would have to be read first. True when there is something.
    fn lacks(&mut self, wish: &Fit<'_>) -> bool {
        let Some((one, two)) = wish.summary.and_then(|at| self.keys.get(at)).copied() else { return false };
        let desk = self.desk;
        let lacking =
            [one, two].into_iter().filter(|id| desk.is_elastic(*id) && desk.extracts(*id).is_none());
        let before = self.lacking.len();
        self.lacking.extend(lacking);
        self.lacking.len() > before
    }
}

impl Words for Remembering<'_> {
    fn fit(&mut self, wish: &Fit<'_>) -> Option<Tokens> {
        if self.shelf.is_outdone(wish) {
            // It may be remembered from before there was another to join it with.
            return None;
        }
        let key = self.key(wish);
        if let Some((tokens, text)) = key.and_then(|key| self.desk.shared.caches.texts.get(&key)) {
            self.shelf.put(wish, tokens, text.as_ref().to_owned());
            return Some(tokens);
        }
        if self.lacks(wish) {
            return None;
        }
        let tokens = self.shelf.fit(wish)?;
        if let (Some(key), Some(text)) = (key, self.shelf.made(wish, tokens)) {
            self.desk.shared.caches.texts.insert(key, (tokens, text.into()));
        }
        Some(tokens)
    }

    fn clip(&mut self, span: Span, room: Tokens) -> Option<Tokens> {
        self.shelf.clip(span, room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_for_one_context_says_nothing_of_a_larger_or_an_older_one() {
        let small = ContextRequest::from(500);
        assert!(small.reads_like(&ContextRequest { assistant: Some("bot".into()), ..small.clone() }));
        for other in [
            ContextRequest::default(),
            ContextRequest::from(50_000),
            ContextRequest { fill: true, ..small.clone() },
            ContextRequest { summary: false, ..small.clone() },
            ContextRequest { as_of: Some(3), ..small.clone() },
            ContextRequest { scope: Some("ann".into()), ..small.clone() },
        ] {
            assert!(!small.reads_like(&other) && !other.reads_like(&small), "{other:?}");
        }
    }
}
