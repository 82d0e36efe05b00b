//! Builds contexts. A context is the conversation within a token budget. Most contexts need only one read of the store.
//!
//! The engine builds a context when a caller requests it. When a slot gets a new summary, the worker builds a context
//! in advance.

use std::collections::HashMap;
use std::sync::Arc;

use epitome_core::context::{
    ChosenSummary, ContextReport, Entry, FitRequest, Layout, PlaceholderCosts, Request, SessionShape,
    TextRenderer, lay_out,
};
use epitome_core::context_texts::{ContextTexts, render};
use epitome_core::cut::Cuts;
use epitome_core::local::Extracts;
use epitome_core::message::{Message, Seq, Span, Timestamp, Tokens};
use epitome_core::tokens::{Counter, Encoding};
use serde::Serialize;

use crate::error::{Error, Remedy};
use crate::request::ContextRequest;
use crate::shared::{OutCell, Shared, TextKey};
use crate::store::{
    PickMessages, PickSummaries, Reach, SessionId, SessionKey, SessionState, SummaryId, SummaryRow, Window,
    WindowQuery,
};
use crate::time::millis_between;

/// A context: the messages to send to a model, and a report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Context {
    /// The messages, valid for every provider. A summary is a message of its own, between tags.
    pub messages: Vec<Message>,
    /// The summary in the context; `None` if the context has no summary.
    pub summary: Option<ShownSummary>,
    /// A description of the context: tokens by part, the covered messages, whether the context is exhaustive, and the
    /// gap if it is not exhaustive.
    pub report: ContextReport,
    /// The last message of the log when the context was built.
    pub through: Seq,
    /// The tokenizer encoding with which the tokens are counted.
    pub encoding: String,
}

/// The summary in a context.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownSummary {
    /// The summary's id; `None` if the text is only a digest of older messages, made for this context and not stored.
    pub id: Option<SummaryId>,
    /// If the text joins two summaries, the id of the second summary: the longer one, with more text about the older
    /// messages.
    pub joined: Option<SummaryId>,
    /// The slot.
    pub slot: Option<String>,
    /// The model that wrote the summary.
    pub model: Option<String>,
    /// Whether the summary is a fallback summary, which `local` wrote because the configured models failed.
    pub stand_in: bool,
    /// The last message that the summary covers.
    pub through: Seq,
    /// The last message that the shown text covers. It is less than `through` if the text leaves out messages that the
    /// context shows verbatim.
    #[serde(rename = "told")]
    pub text_through: Seq,
    /// When the summary was stored.
    pub created: Option<Timestamp>,
    /// The text of the summary, as the context shows it.
    pub text: String,
    /// Approximate number of tokens of `text`.
    pub tokens: Tokens,
    /// Age of the summary, in milliseconds. It is the last field, because all fields before it are the same in the
    /// responses to equal requests.
    #[serde(rename = "age")]
    pub age_millis: Option<u64>,
}

/// Largest gap for which a context contains a digest, as a multiple of the budget. For a larger gap, the context shows
/// only the range of the missing messages.
const DIGEST_FACTOR: Tokens = 4;

/// The factor that replaces [`DIGEST_FACTOR`] for small budgets, and the maximum number of tokens that are read with
/// this factor.
const SMALL_BUDGET_DIGEST: (Tokens, Tokens) = (16, 65_536);

/// If the messages that were read have at most this number of tokens, the calling task lays out the context. Otherwise
/// a blocking thread lays it out.
const MAX_INLINE_LAYOUT_TOKENS: Tokens = 32_768;

/// If at most this number of tokens was read for a similar context before, the messages are probably still in memory,
/// and the store may read them on the calling thread.
const MAX_INLINE_READ_TOKENS: Tokens = 16_384;

pub(crate) async fn context(
    shared: &Arc<Shared>,
    key: &SessionKey,
    options: ContextRequest,
) -> Result<Context, Error> {
    let built = build(shared, key, &options).await?;
    if options.as_of.is_none() {
        shared.caches.last_requests.insert(key.clone(), (options, built.read));
    }
    Ok(built.context)
}

/// Builds the context that was last requested for this session, if a context was requested before. The worker calls
/// this function when a slot has a new summary, so that the next request finds the summary's text already rendered and
/// cached.
pub(crate) async fn prepare(shared: &Arc<Shared>, key: &SessionKey) {
    if let Some((options, _)) = shared.caches.last_requests.get(key) {
        // An error is ignored here: the next request for this context gets the same error and returns it.
        let _ = build(shared, key, &options).await;
    }
}

/// Builds a context. At first, messages that a summary covers are read only if the request needs them. If the context
/// then has no summary or is not exhaustive, these messages are read too, and the context is built again, because more
/// messages may improve the context.
async fn build(
    shared: &Arc<Shared>,
    key: &SessionKey,
    options: &ContextRequest,
) -> Result<BuiltContext, Error> {
    let deep = options.fill || !options.summary;
    let built = build_once(shared, key, options, deep).await?;
    let complete = built.context.summary.is_some() && built.context.report.exhaustive;
    if built.covered && !deep && !complete && built.context.report.empty.is_none() {
        return build_once(shared, key, options, true).await;
    }
    Ok(built)
}

/// A context, and facts about the messages that were read to build it.
struct BuiltContext {
    context: Context,
    /// Whether a summary covers messages that were not read.
    covered: bool,
    /// Number of tokens of the messages that were read.
    read: Tokens,
}

/// Reads the session and lays the context out. With `deep`, also reads messages that summaries cover.
async fn build_once(
    shared: &Arc<Shared>,
    key: &SessionKey,
    options: &ContextRequest,
    deep: bool,
) -> Result<BuiltContext, Error> {
    let before = shared.caches.last_requests.get(key);
    let at_hand = before
        .is_some_and(|(before, read)| read <= MAX_INLINE_READ_TOKENS && options.reads_same_messages(&before));
    let view =
        WindowQuery { scope: options.scope.clone().into(), as_of: options.as_of, recently_read: at_hand };
    let out = OutCell::new();
    let (engine, cell, owned_options) = (Arc::clone(shared), Arc::clone(&out), options.clone());
    let reach = move |state: &SessionState| {
        cell.split(request(&engine, state, &owned_options).and_then(|request| {
            // Digested messages are not shown, so their tokens may exceed the budget.
            let budget = request.budget().map_err(Error::invalid)?;
            let (times, most) = SMALL_BUDGET_DIGEST;
            let digested = budget.saturating_mul(times).min(most).max(budget.saturating_mul(DIGEST_FACTOR));
            let reach = Reach { tokens: if request.fill { digested } else { budget }, deep };
            Ok((Some(reach), request))
        }))
    };
    let Some(window) = shared.store.window(key, view, Arc::new(reach)).await? else {
        // If the session does not exist, the store never calls `reach`: `out` is empty and returns `Error::Closed`.
        return Err(match out.take() {
            Err(error) if error.remedy() != Remedy::Reopen => error,
            _ => Error::no_session(&key.session),
        });
    };
    let request = out.take()?;
    let read = window.tail.iter().fold(0, |sum: Tokens, outline| sum.saturating_add(outline.tokens));
    let inline = !request.fill && read <= MAX_INLINE_LAYOUT_TOKENS;
    let mut sources = ContextSources::new(Arc::clone(shared), window, request, options.scope.is_some())?;
    // Most contexts need only the data in the window. Some contexts show a message that a newer summary covers, or a
    // summary in a size that is not cached. Each round reads the data that was missing in the previous layout.
    for _ in 0..4 {
        let outcome;
        (sources, outcome) = match inline {
            true => sources.lay_out(),
            false => tokio::task::spawn_blocking(|| sources.lay_out()).await.map_err(|_| Error::Closed)?,
        };
        match outcome? {
            LayoutOutcome::Complete(context) => {
                let covered = !sources.window.summaries.is_empty() && sources.window.from > 1;
                return Ok(BuiltContext { context: *context, covered, read });
            }
            LayoutOutcome::NeedsMessages(seqs) => {
                sources.messages =
                    shared.store.messages(sources.session, PickMessages::Seqs(seqs)).await?.items;
            }
            LayoutOutcome::NeedsExtracts(ids) => {
                let rows = shared.store.summaries(sources.session, PickSummaries::Ids(ids.clone())).await?;
                for id in ids {
                    let row = rows.iter().find(|row| row.id == id);
                    let extracts = row.and_then(|row| row.sources().extracts).map(Arc::new);
                    if let Some(extracts) = &extracts {
                        shared.caches.extracts.insert((sources.session, id), Arc::clone(extracts));
                    }
                    sources.extracts.insert(id, extracts);
                }
            }
        }
    }
    // The messages of the layout no longer exist: the session was deleted in the meantime.
    Err(Error::no_session(&key.session))
}

/// Builds the core's request from the caller's request and the settings.
fn request(shared: &Shared, state: &SessionState, options: &ContextRequest) -> Result<Request, Error> {
    let settings = shared.settings_at(state)?;
    let request = Request {
        tokens: options.tokens,
        summary: options.summary,
        fit: options.fit,
        fill: options.fill,
        steady: options.steady,
        oversize: options.oversize,
        assistant: options.assistant.clone(),
        share: options.share.unwrap_or(settings.context.summary_share),
        filled: options.share.unwrap_or(settings.context.summary_share.and_a_half()),
        max_tokens: settings.context.max_tokens,
    };
    if options.as_of == Some(0) {
        return Err(Error::invalid("as_of: 0; messages are counted from 1"));
    }
    Ok(request)
}

/// The result of laying out a context.
enum LayoutOutcome {
    Complete(Box<Context>),
    /// The context also shows these messages, and their content was not read.
    NeedsMessages(Vec<Seq>),
    /// The context shows these summaries in another size, and their sources were not read.
    NeedsExtracts(Vec<SummaryId>),
}

/// The data from which a context is built.
struct ContextSources {
    shared: Arc<Shared>,
    request: Request,
    /// Whether the context contains only one author's messages.
    own: bool,
    window: Window,
    session: SessionId,
    counter: Counter,
    /// Messages fetched after the window, by sequence number.
    messages: Vec<Message>,
    /// Extracts of summaries, fetched after the window; `None` if the store has dropped the extracts.
    extracts: HashMap<SummaryId, Option<Arc<Extracts>>>,
}

impl ContextSources {
    fn new(shared: Arc<Shared>, window: Window, request: Request, own: bool) -> Result<Self, Error> {
        let row = window.state.session.as_ref();
        let (session, encoding) = row.map_or((0, ""), |row| (row.id, &row.encoding));
        let encoding: Encoding = encoding.parse().map_err(Error::invalid)?;
        let (counter, messages, extracts) = (Counter::new(encoding), Vec::new(), HashMap::new());
        Ok(Self { shared, request, own, window, session, counter, messages, extracts })
    }

    fn lay_out(self) -> (Self, Result<LayoutOutcome, Error>) {
        let outcome = self.context();
        (self, outcome)
    }

    fn context(&self) -> Result<LayoutOutcome, Error> {
        let window = &self.window;
        let fetches: Vec<_> = window.summaries.iter().map(|row| move || self.extracts(row.id)?).collect();
        let mut texts = ContextTexts::new(&self.counter, &window.messages).with_more(&self.messages);
        for (row, fetch) in window.summaries.iter().zip(&fetches) {
            texts = match row.has_extracts() {
                true => texts.with_extracts_later(row.through, &row.text, fetch),
                false => texts.with_summary(row.through, &row.text),
            }
            .sized(row.facts.shown);
        }
        let texts = texts.with_joined();
        let candidates = texts.candidates();
        let cuts = match self.own {
            true => Cuts::own(&window.tail, window.end),
            false => Cuts::new(&window.tail, window.end),
        };
        let session = SessionShape {
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
        let mut words = CachingRenderer { texts, sources: self, keys, missing: Vec::new() };
        let layout = lay_out(&self.request, &session, &PlaceholderCosts::of(&self.counter), &mut words)
            .map_err(Error::invalid)?;
        if !words.missing.is_empty() {
            return Ok(LayoutOutcome::NeedsExtracts(words.missing));
        }
        let texts = &words.texts;
        let missing: Vec<Seq> = shown(&layout).filter(|seq| texts.message(*seq).is_none()).collect();
        if !missing.is_empty() {
            return Ok(LayoutOutcome::NeedsMessages(missing));
        }
        let messages = render(&layout, texts).map_err(Error::invalid)?;
        let summary = layout.summary.map(|chosen| self.shown_summary(&chosen, texts));
        let through = window.tail.last().map_or(0, |outline| outline.seq);
        Ok(LayoutOutcome::Complete(Box::new(Context {
            messages,
            summary,
            report: layout.report,
            through,
            encoding: self.counter.name().to_owned(),
        })))
    }

    /// Returns the extracts of a summary; `None` if the extracts were not read yet, and `Some(None)` if the store has
    /// dropped them.
    fn extracts(&self, id: SummaryId) -> Option<Option<Arc<Extracts>>> {
        let cached = || self.shared.caches.extracts.get(&(self.session, id)).map(Some);
        self.extracts.get(&id).cloned().or_else(cached)
    }

    /// Returns whether a summary should have extracts, from which it can be rendered in any size.
    fn is_elastic(&self, id: SummaryId) -> bool {
        self.window.summaries.iter().any(|row| row.id == id && row.has_extracts())
    }

    /// Returns each candidate's key in the text cache: the summary's id and 0, or the ids of both summaries for the
    /// joined candidate.
    fn keys(&self, candidates: usize) -> Vec<(SummaryId, SummaryId)> {
        let mut keys: Vec<_> = self.window.summaries.iter().map(|row| (row.id, 0)).collect();
        if candidates > keys.len() {
            keys.extend(self.joined().map(|(long, newest)| (long.id, newest.id)));
        }
        keys
    }

    /// Returns the two summaries that `ContextTexts` joins: the longest, and the one that covers the newest message.
    fn joined(&self) -> Option<(&SummaryRow, &SummaryRow)> {
        let elastic = || self.window.summaries.iter().filter(|row| row.has_extracts());
        let long = elastic().max_by_key(|row| row.text.len())?;
        Some((long, elastic().max_by_key(|row| row.through)?))
    }

    fn shown_summary(&self, chosen: &ChosenSummary, texts: &ContextTexts<'_>) -> ShownSummary {
        let rows = chosen.candidate.map(|at| match self.window.summaries.get(at) {
            Some(row) => (Some(row), None),
            None => self.joined().map_or((None, None), |(long, newest)| (Some(newest), Some(long.id))),
        });
        let (row, joined) = rows.unwrap_or((None, None));
        ShownSummary {
            id: row.map(|row| row.id),
            joined,
            slot: row.map(|row| row.slot.clone()),
            model: row.map(|row| row.facts.model.clone()),
            stand_in: row.is_some_and(|row| row.facts.stand_in),
            through: chosen.through,
            text_through: match chosen.shown {
                // A model's text always covers the same messages: it cannot be rendered again without some of them.
                Some(shown) if row.is_none_or(SummaryRow::has_extracts) => {
                    chosen.through.min(shown.saturating_sub(1))
                }
                _ => chosen.through,
            },
            created: row.map(|row| row.created),
            age_millis: row.map(|row| millis_between(row.created, self.window.state.now)),
            tokens: row.map_or(chosen.tokens, |row| {
                // The tags around a text have the same number of tokens for every size of the text.
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
        Entry::Relocated(seq) | Entry::Message(seq) => Some(*seq),
        Entry::Summary | Entry::Excerpt { .. } | Entry::Note | Entry::Seam => None,
    })
}

/// Renders texts and caches them. Records the summaries whose extracts must be read before the summaries can be
/// rendered in another size.
struct CachingRenderer<'a> {
    texts: ContextTexts<'a>,
    sources: &'a ContextSources,
    keys: Vec<(SummaryId, SummaryId)>,
    /// Summaries that were requested in another size, and whose extracts are not in memory.
    missing: Vec<SummaryId>,
}

impl CachingRenderer<'_> {
    /// Returns the cache key of a text; `None` if the text is not cached. A text that depends on gaps or on shown
    /// messages is not cached, because these change with every new message.
    fn key(&self, fit: &FitRequest<'_>) -> Option<TextKey> {
        let alone = fit.gaps.is_empty() && fit.shown.is_none();
        let (one, two) = self.keys.get(fit.summary.filter(|_| alone)?)?;
        Some((self.sources.session, *one, *two, fit.room))
    }

    /// Records the summaries whose extracts must be read before this summary can be rendered. Returns true if there is
    /// such a summary.
    fn needs_extracts(&mut self, fit: &FitRequest<'_>) -> bool {
        let Some((one, two)) = fit.summary.and_then(|at| self.keys.get(at)).copied() else { return false };
        let sources = self.sources;
        let missing =
            [one, two].into_iter().filter(|id| sources.is_elastic(*id) && sources.extracts(*id).is_none());
        let before = self.missing.len();
        self.missing.extend(missing);
        self.missing.len() > before
    }
}

impl TextRenderer for CachingRenderer<'_> {
    fn fit(&mut self, fit: &FitRequest<'_>) -> Option<Tokens> {
        if self.texts.is_superseded(fit) {
            // The joined summary replaces this one. The cache may still contain the text of this one, from a time
            // without a second summary.
            return None;
        }
        let key = self.key(fit);
        if let Some((tokens, text)) = key.and_then(|key| self.sources.shared.caches.texts.get(&key)) {
            self.texts.insert_rendered(fit, tokens, text.as_ref().to_owned());
            return Some(tokens);
        }
        if self.needs_extracts(fit) {
            return None;
        }
        let tokens = self.texts.fit(fit)?;
        if let (Some(key), Some(text)) = (key, self.texts.rendered(fit, tokens)) {
            self.sources.shared.caches.texts.insert(key, (tokens, text.into()));
        }
        Some(tokens)
    }

    fn clip(&mut self, span: Span, room: Tokens) -> Option<Tokens> {
        self.texts.clip(span, room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_with_other_budgets_or_positions_do_not_read_the_same_messages() {
        let small = ContextRequest::from(500);
        assert!(
            small.reads_same_messages(&ContextRequest { assistant: Some("bot".into()), ..small.clone() })
        );
        for other in [
            ContextRequest::default(),
            ContextRequest::from(50_000),
            ContextRequest { fill: true, ..small.clone() },
            ContextRequest { summary: false, ..small.clone() },
            ContextRequest { as_of: Some(3), ..small.clone() },
            ContextRequest { scope: Some("ann".into()), ..small.clone() },
        ] {
            assert!(!small.reads_same_messages(&other) && !other.reads_same_messages(&small), "{other:?}");
        }
    }
}
