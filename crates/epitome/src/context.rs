//! Builds contexts: the conversation within a token budget, from one read of the store.
//!
//! The engine builds a context when a caller requests it. The worker builds it in advance when a slot gets a new summary.

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

/// A context: the messages to send to a model, and a report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Context {
    /// The messages, valid for every provider. A summary is a message of its own, between tags.
    pub messages: Vec<Message>,
    /// The summary in it.
    pub summary: Option<ShownSummary>,
    /// What was done: tokens by part, coverage, whether it is exhaustive, and the gap if it is not.
    pub report: Report,
    /// The last message of the log when the context was made.
    pub through: Seq,
    /// The encoding that counted the tokens.
    pub encoding: String,
}

/// The summary in a context.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownSummary {
    /// The summary's id; `None` if the text is only a digest made for this context.
    pub id: Option<SummaryId>,
    /// If two summaries were joined, the second one: the one with the most text about the older messages.
    pub joined: Option<SummaryId>,
    /// The slot.
    pub slot: Option<String>,
    /// The model that wrote it.
    pub model: Option<String>,
    /// Whether it is a fallback summary, written because a model failed.
    pub stand_in: bool,
    /// The last message that the summary covers.
    pub through: Seq,
    /// The last message that the shown text covers: less than `through` if it was rendered without the messages shown.
    pub told: Seq,
    /// When the summary was stored.
    pub created: Option<Timestamp>,
    /// The text as shown.
    pub text: String,
    /// Tokens of that text, approximately.
    pub tokens: Tokens,
    /// Age of the summary, in milliseconds. The last field: all fields before it are the same for equal requests.
    #[serde(rename = "age")]
    pub age_millis: Option<u64>,
}

/// A gap is digested if it is at most this many times the budget. A larger gap is only named.
const DIGESTED: Tokens = 4;

/// For small budgets the factor is larger (first number), as long as at most this many tokens are read (second number).
const DIGESTED_SMALL: (Tokens, Tokens) = (16, 65_536);

/// Maximum number of tokens read for which a context is laid out in the calling task. Above it, a blocking thread does that.
const LAID_OUT_HERE: Tokens = 32_768;

/// If at most this many tokens were read for a similar context before, the messages are probably still in memory, and the
/// store may read them on the calling thread.
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

/// Builds the context that was last requested for this session, if there was one. Called when a slot has a new summary, so
/// that the next request finds the summary's text already rendered and cached.
pub(crate) async fn prepare(shared: &Arc<Shared>, key: &SessionKey) {
    if let Some((asked, _)) = shared.caches.asked.get(key) {
        // The next request for this context gets the same error and returns it.
        let _ = make(shared, key, &asked).await;
    }
}

/// Makes a context. Messages that a summary covers are read only when they may be shown: when the request needs them, or
/// when the first layout shows no summary or is not exhaustive, so that more messages may serve better.
async fn make(shared: &Arc<Shared>, key: &SessionKey, asked: &ContextRequest) -> Result<Looked, Error> {
    let deep = asked.fill || !asked.summary;
    let looked = look(shared, key, asked, deep).await?;
    let whole = looked.context.summary.is_some() && looked.context.report.exhaustive;
    if looked.covered && !deep && !whole && looked.context.report.empty.is_none() {
        return look(shared, key, asked, true).await;
    }
    Ok(looked)
}

/// A context, and what was read to make it.
struct Looked {
    context: Context,
    /// Whether a summary covers messages that were not read.
    covered: bool,
    /// Tokens of the messages that were read.
    read: Tokens,
}

/// Reads the session, with `deep` also messages that summaries cover, and lays the context out.
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
            // Digested messages are not shown, so more of them may be read than the budget holds.
            let budget = request.budget().map_err(Error::invalid)?;
            let (times, most) = DIGESTED_SMALL;
            let digested = budget.saturating_mul(times).min(most).max(budget.saturating_mul(DIGESTED));
            let reach = Reach { tokens: if request.fill { digested } else { budget }, deep };
            Ok((Some(reach), request))
        }))
    };
    let Some(window) = shared.store.window(key, view, Arc::new(reach)).await? else {
        // If the session does not exist, the store never calls `reach`: `told` is empty and returns `Error::Closed`.
        return Err(match told.take() {
            Err(error) if error.next() != Next::Reopen => error,
            _ => Error::no_session(&key.session),
        });
    };
    let request = told.take()?;
    let read = window.tail.iter().fold(0, |sum: Tokens, outline| sum.saturating_add(outline.tokens));
    let here = !request.fill && read <= LAID_OUT_HERE;
    let mut desk = Desk::new(Arc::clone(shared), window, request, asked.scope.is_some())?;
    // Most contexts need only what the window contains. Some show a message that a newer summary covers, or a summary in a
    // size that is not cached. Each round reads what the previous layout lacked.
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
    // The messages that the layout named are gone: the session was deleted in the meantime.
    Err(Error::no_session(&key.session))
}

/// Builds the core's request from the caller's request and the settings.
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

/// The result of laying out a context.
enum Laid {
    Whole(Box<Context>),
    /// The context also shows these messages, and their content was not read.
    LacksWords(Vec<Seq>),
    /// The context shows these summaries in another size, and their sources were not read.
    LacksSources(Vec<SummaryId>),
}

/// Everything a context is made from.
struct Desk {
    shared: Arc<Shared>,
    request: Request,
    /// Whether the context contains only one author's messages.
    own: bool,
    window: Window,
    session: SessionId,
    counter: Counter,
    /// Messages fetched after the window, by sequence number.
    messages: Vec<Message>,
    /// Sources of summaries fetched after the window; `None` if the store has dropped them.
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

    /// Returns the extracts of a summary: `None` if they were not read yet, `Some(None)` if the store has dropped them.
    fn extracts(&self, id: SummaryId) -> Option<Option<Arc<Extracts>>> {
        let cached = || self.shared.caches.extracts.get(&(self.session, id)).map(Some);
        self.extracts.get(&id).cloned().or_else(cached)
    }

    /// Returns whether a summary should have extracts, from which it can be rendered in any size.
    fn is_elastic(&self, id: SummaryId) -> bool {
        self.window.summaries.iter().any(|row| row.id == id && row.has_extracts())
    }

    /// Returns each candidate's key in the text cache: its own id, and for the joined candidate the ids of both parts.
    fn keys(&self, candidates: usize) -> Vec<(SummaryId, SummaryId)> {
        let mut keys: Vec<_> = self.window.summaries.iter().map(|row| (row.id, 0)).collect();
        if candidates > keys.len() {
            keys.extend(self.joined().map(|(long, newest)| (long.id, newest.id)));
        }
        keys
    }

    /// Returns the two summaries that the shelf joins: the longest, and the one that covers the newest message.
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
                // A model's text always covers the same messages: it cannot be rendered again without some of them.
                Some(shown) if row.is_none_or(SummaryRow::has_extracts) => {
                    chosen.through.min(shown.saturating_sub(1))
                }
                _ => chosen.through,
            },
            created: row.map(|row| row.created),
            age_millis: row.map(|row| millis_between(row.created, self.window.standing.now)),
            tokens: row.map_or(chosen.tokens, |row| {
                // The frame around a text has the same cost in every size.
                let around = row.facts.shown.saturating_sub(row.facts.tokens);
                chosen.tokens.saturating_sub(around)
            }),
            text: texts.summary(chosen).unwrap_or_default().to_owned(),
        }
    }
}

/// Returns the messages that a layout shows verbatim.
fn shown(layout: &Layout) -> impl Iterator<Item = Seq> {
    layout.entries.iter().filter_map(|entry| match entry {
        Entry::Kept(seq) | Entry::Message(seq) => Some(*seq),
        Entry::Summary | Entry::Excerpt { .. } | Entry::Note | Entry::Seam => None,
    })
}

/// A shelf that caches the texts it renders, and records which summaries lack their sources.
struct Remembering<'a> {
    shelf: Shelf<'a>,
    desk: &'a Desk,
    keys: Vec<(SummaryId, SummaryId)>,
    /// Summaries that were requested in another size, and whose sources are not in memory.
    lacking: Vec<SummaryId>,
}

impl Remembering<'_> {
    /// Returns the cache key. Only the text of a summary alone is cached: gaps and shown messages change with every message.
    fn key(&self, wish: &Fit<'_>) -> Option<TextKey> {
        let alone = wish.gaps.is_empty() && wish.shown.is_none();
        let (one, two) = self.keys.get(wish.summary.filter(|_| alone)?)?;
        Some((self.desk.session, *one, *two, wish.room))
    }

    /// Records which sources of this summary must be read first. Returns true if there are any.
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
            // The cache may have its text from before there was another summary to join it with.
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
