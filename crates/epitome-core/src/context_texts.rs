//! Stores the texts of a context: messages, summaries and excerpts.
//!
//! The planner of a context sees sizes and never text; a [`ContextTexts`] stores the text. While a context is
//! planned, it renders summaries in the requested sizes and stores the results. [`render`] then takes the texts
//! from it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::context::{Candidate, ChosenSummary, Entry, FitRequest, Layout, TextRenderer};
use crate::excerpt;
use crate::local::Extracts;
use crate::message::{Message, Seq, Span, Tokens};
use crate::tokens::Counter;
use crate::view::{self, Repairer};

/// The texts of a context. [`crate::context::lay_out`] requests sizes from it, and [`render`] takes the texts.
///
/// ```
/// use epitome_core::context::{lay_out, PlaceholderCosts, Request, SessionShape};
/// use epitome_core::cut::Cuts;
/// use epitome_testkit::drawing::{messages, outlines, word_counter};
/// use epitome_core::context_texts::{ContextTexts, render};
/// use epitome_core::outline::Cut;
///
/// let (log, shapes) = (messages("u:9 a:9 u:9 a:9").unwrap(), outlines("u:9 a:9 u:9 a:9").unwrap());
/// let counter = word_counter();
/// let mut texts = ContextTexts::new(&counter, &log).with_summary(2, "They spoke.");
/// let candidates = texts.candidates();
/// let session = SessionShape::whole(Cuts::new(&shapes, Cut::Legal), &candidates);
/// let request = Request { tokens: Some(100), ..Request::default() };
/// let layout = lay_out(&request, &session, &PlaceholderCosts::of(&counter), &mut texts).unwrap();
/// let context = render(&layout, &texts).unwrap();
/// assert_eq!(context.len(), 3); // the summary of 1 and 2, then 3 and 4
/// ```
#[derive(Clone)]
pub struct ContextTexts<'a> {
    counter: &'a Counter,
    messages: &'a [Message],
    /// Messages from elsewhere in the log that are shown unchanged, in order.
    more: &'a [Message],
    summaries: Vec<StoredSummary<'a>>,
    /// Summaries rendered for this context. The key consists of the summary's index, the last message it covers, the
    /// first message shown verbatim and the size. One `ContextTexts` may serve several layouts, so all four are needed.
    fitted: HashMap<(Option<usize>, Seq, Option<Seq>, Tokens), String>,
    /// Excerpts, by span and size.
    excerpts: HashMap<(Span, Tokens), Vec<Message>>,
}

/// A summary and its source, if it can be rendered in other sizes.
#[derive(Clone)]
struct StoredSummary<'a> {
    through: Seq,
    text: Cow<'a, str>,
    /// Its size including the frame, if it was counted before.
    tokens: Option<Tokens>,
    source: SummarySource<'a>,
}

/// The source from which a summary is rendered in another size.
#[derive(Clone)]
enum SummarySource<'a> {
    /// The summary's own sentences.
    Text,
    /// The extracts that `local` selected.
    Extracts(&'a Extracts),
    /// The extracts that `local` selected, fetched only when they are needed.
    Lazy(&'a dyn Fn() -> Option<Arc<Extracts>>),
    /// Indices of two other summaries of this context: the longest summary, and the summary that covers the most
    /// messages.
    Joined(usize, usize),
}

impl StoredSummary<'_> {
    fn elastic(&self) -> bool {
        !matches!(self.source, SummarySource::Text)
    }
}

impl<'a> ContextTexts<'a> {
    /// Creates the texts of a context with these messages, which must be in the order of their `seq`. Messages with
    /// `seq` 0 are numbered from 1.
    pub fn new(counter: &'a Counter, messages: &'a [Message]) -> Self {
        Self {
            counter,
            messages,
            more: &[],
            summaries: Vec::new(),
            fitted: HashMap::new(),
            excerpts: HashMap::new(),
        }
    }

    /// Adds `more`: messages from elsewhere in the log, in order. They are shown where the layout contains them and are
    /// never summarized.
    pub fn with_more(self, more: &'a [Message]) -> Self {
        Self { more, ..self }
    }

    /// Adds a summary of the messages `1..=through`. If the summary must be shortened, its sentences are ranked as
    /// `local` ranks sentences.
    pub fn with_summary(self, through: Seq, text: impl Into<Cow<'a, str>>) -> Self {
        self.with(through, text.into(), SummarySource::Text)
    }

    /// Adds a summary that `local` wrote, with its extracts. The summary can be rendered from the extracts in any size.
    pub fn with_extracts(self, through: Seq, text: impl Into<Cow<'a, str>>, extracts: &'a Extracts) -> Self {
        self.with(through, text.into(), SummarySource::Extracts(extracts))
    }

    /// Like [`Self::with_extracts`], but calls `extracts` only when the summary is needed in another size. If
    /// `extracts` returns `None`, the summary's sentences are ranked instead.
    pub fn with_extracts_later(
        self,
        through: Seq,
        text: impl Into<Cow<'a, str>>,
        extracts: &'a dyn Fn() -> Option<Arc<Extracts>>,
    ) -> Self {
        self.with(through, text.into(), SummarySource::Lazy(extracts))
    }

    fn with(mut self, through: Seq, text: Cow<'a, str>, source: SummarySource<'a>) -> Self {
        self.summaries.push(StoredSummary { through, text, tokens: None, source });
        self
    }

    /// Sets the size of the last added summary, including its frame, so that it is not counted again. The size is the
    /// result of [`view::summary_tokens`].
    pub fn sized(mut self, tokens: Tokens) -> Self {
        if let Some(last) = self.summaries.last_mut() {
            last.tokens = Some(tokens);
        }
        self
    }

    /// Adds a summary that joins two summaries by `local`: the longest one and the newest one. The newest summary
    /// contributes only its part about messages that the longest one does not cover. If there are no two such
    /// summaries, nothing is added.
    pub fn with_joined(self) -> Self {
        let elastic = || self.summaries.iter().enumerate().filter(|(_, stored)| stored.elastic());
        let newest = elastic().max_by_key(|(_, stored)| stored.through);
        let long = elastic().max_by_key(|(_, stored)| stored.text.len());
        if let (Some((long, longest)), Some((newest, latest))) = (long, newest)
            && longest.through < latest.through
        {
            let through = latest.through;
            return self
                .with(through, Cow::Borrowed(""), SummarySource::Joined(long, newest))
                .sized(Tokens::MAX);
        }
        self
    }

    /// Returns the extracts from which the summary with the index `at` is rendered in another size.
    fn extracts(&self, at: usize) -> Extracts {
        let Some(stored) = self.summaries.get(at) else {
            return Extracts::default();
        };
        let of_text = || Extracts::of_text(&stored.text, stored.through);
        match stored.source {
            SummarySource::Text => of_text(),
            SummarySource::Extracts(extracts) => extracts.clone(),
            SummarySource::Lazy(fetch) => fetch().map_or_else(of_text, Arc::unwrap_or_clone),
            // `long` and `newest` are other summaries of this context, so the recursion ends.
            SummarySource::Joined(long, newest) if long != at && newest != at => {
                self.extracts(long).joined(&self.extracts(newest))
            }
            SummarySource::Joined(..) => of_text(),
        }
    }

    /// Returns the stored summaries, with their sizes including the frame.
    pub fn candidates(&self) -> Vec<Candidate> {
        let sized = |stored: &StoredSummary<'_>| Candidate {
            through: stored.through,
            tokens: stored
                .tokens
                .unwrap_or_else(|| view::summary_tokens(&stored.text, stored.through, self.counter)),
            elastic: stored.elastic(),
        };
        self.summaries.iter().map(sized).collect()
    }

    /// Stores a text that was rendered earlier for the same request and has `tokens` tokens, so that it is
    /// not rendered again.
    pub fn insert_rendered(&mut self, request: &FitRequest<'_>, tokens: Tokens, text: String) {
        if let Some(through) = self.covered_through(request) {
            self.fitted.insert((request.summary, through, request.shown, tokens), text);
        }
    }

    /// Returns the text that was rendered for this request and has `tokens` tokens.
    pub fn rendered(&self, request: &FitRequest<'_>, tokens: Tokens) -> Option<&str> {
        let through = self.covered_through(request)?;
        self.fitted.get(&(request.summary, through, request.shown, tokens)).map(String::as_str)
    }

    /// Returns whether the requested summary is the longer of two joined summaries. Such a request is never rendered:
    /// in the same size, the joined summary contains at least as much and covers more messages.
    pub fn is_superseded(&self, request: &FitRequest<'_>) -> bool {
        let joins = |stored: &StoredSummary<'_>| matches!(stored.source, SummarySource::Joined(long, _) if Some(long) == request.summary);
        request.gaps.is_empty() && request.shown.is_none() && self.summaries.iter().any(joins)
    }

    /// Returns the last message that the requested text covers.
    fn covered_through(&self, request: &FitRequest<'_>) -> Option<Seq> {
        let stored = request.summary.and_then(|at| self.summaries.get(at));
        request.gaps.last().map(|gap| gap.through).or(stored.map(|stored| stored.through))
    }

    /// Returns how many of the messages come before position `seq`.
    fn before(&self, seq: Seq) -> usize {
        if self.messages.first().is_some_and(|message| message.seq == 0) {
            return usize::try_from(seq.saturating_sub(1)).unwrap_or(usize::MAX).min(self.messages.len());
        }
        self.messages.partition_point(|message| message.seq < seq)
    }

    /// Returns the messages of `run` with their positions. A message with `seq` 0 gets its position by counting from
    /// `from`.
    fn placed(&self, run: &'a [Message], from: Seq) -> impl Iterator<Item = (Seq, &'a Message)> + use<'a> {
        (from..).zip(run).map(|(at, message)| (if message.seq == 0 { at } else { message.seq }, message))
    }

    fn run(&self, span: Span) -> &'a [Message] {
        self.messages
            .get(self.before(span.from)..self.before(span.through.saturating_add(1)))
            .unwrap_or_default()
    }

    /// Returns the message of the log with this `seq`.
    pub fn message(&self, seq: Seq) -> Option<&'a Message> {
        let own = self.messages.get(self.before(seq)).filter(|own| own.seq == seq || own.seq == 0);
        own.or_else(|| self.more.get(self.more.binary_search_by_key(&seq, |more| more.seq).ok()?))
    }

    /// Returns the text of the chosen summary in the chosen size.
    pub fn summary(&self, chosen: &ChosenSummary) -> Option<&str> {
        if chosen.fitted {
            let key = (chosen.candidate, chosen.through, chosen.shown, chosen.tokens);
            return self.fitted.get(&key).map(String::as_str);
        }
        Some(&self.summaries.get(chosen.candidate?)?.text)
    }

    /// Returns the excerpt of these messages that has this size.
    pub(crate) fn excerpt(&self, span: Span, tokens: Tokens) -> Option<&[Message]> {
        self.excerpts.get(&(span, tokens)).map(Vec::as_slice)
    }
}

impl TextRenderer for ContextTexts<'_> {
    fn fit(&mut self, request: &FitRequest<'_>) -> Option<Tokens> {
        let FitRequest { summary, gaps, shown, room } = *request;
        if self.is_superseded(request) {
            return None;
        }
        let through = self.covered_through(request)?;
        let mut extracts = summary.map_or_else(Extracts::default, |at| self.extracts(at));
        for gap in gaps {
            self.placed(self.run(*gap), gap.from).for_each(|(seq, message)| extracts.read_at(seq, message));
        }
        // Leading and pinned messages are always shown next to the summary, so the summary leaves them out.
        let mut leading = 0;
        for (seq, message) in self.placed(self.messages, 1) {
            // A system message later in the log is an ordinary message, even if it is the first message in `messages`.
            let leads = message.role.is_system() && seq == leading + 1;
            leading += u64::from(leads);
            if leads || message.pinned {
                extracts.hide_at(seq, message);
            }
        }
        if let Some(from) = shown {
            let seen = self.messages.get(self.before(from)..).unwrap_or_default();
            self.placed(seen, from).for_each(|(seq, message)| extracts.hide_at(seq, message));
        }
        let frame = view::summary_tokens("", through, self.counter);
        let mut for_text = room.checked_sub(frame).filter(|room| *room > 0)?;
        loop {
            let text = extracts.render(for_text, self.counter);
            if text.is_empty() {
                return None;
            }
            let tokens = view::summary_tokens(&text, through, self.counter);
            if tokens <= room {
                self.fitted.insert((summary, through, shown, tokens), text);
                return Some(tokens);
            }
            for_text = for_text.checked_sub(tokens - room)?;
        }
    }

    fn clip(&mut self, span: Span, room: Tokens) -> Option<Tokens> {
        let short = excerpt::excerpt(self.run(span), room, self.counter)?;
        let tokens = self.counter.messages(&view::repair_closed(short.iter().cloned()));
        self.excerpts.insert((span, tokens), short);
        Some(tokens)
    }
}

/// Renders a layout as a list of messages that every provider accepts.
///
/// Fails if `texts` lacks a text that the layout contains. Nothing is left out silently.
pub fn render(layout: &Layout, texts: &ContextTexts<'_>) -> Result<Vec<Message>, RenderError> {
    let mut repairer = Repairer::default();
    repairer.assistant.clone_from(&layout.assistant);
    repairer.strip_reasoning = layout.strip_reasoning;
    let message_text = |seq| texts.message(seq).map(Cow::Borrowed).ok_or(RenderError::Message(seq));
    for entry in &layout.entries {
        match entry {
            Entry::Relocated(seq) => repairer.push_moved(message_text(*seq)?),
            Entry::Message(seq) => repairer.push_in_place(message_text(*seq)?),
            Entry::Summary => {
                let chosen = layout.summary.ok_or(RenderError::Summary)?;
                let text = texts.summary(&chosen).ok_or(RenderError::Summary)?;
                repairer.push(view::summary(text, chosen.through));
            }
            Entry::Excerpt { span, tokens } => {
                repairer.seam();
                let excerpt = texts.excerpt(*span, *tokens).ok_or(RenderError::Excerpt(*span))?;
                excerpt.iter().for_each(|message| repairer.push(message.clone()));
            }
            Entry::Note => repairer.push(view::note()),
            Entry::Seam => repairer.seam(),
        }
    }
    Ok(repairer.finish())
}

/// A text that the layout contains and [`ContextTexts`] lacks. The caller must pass the texts that the
/// [`SessionShape`](crate::context::SessionShape) was built from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RenderError {
    /// A message of the log.
    #[error("message {0} is in the layout, but its text was not provided")]
    Message(Seq),
    /// The chosen summary.
    #[error("the summary is in the layout, but its text was not provided")]
    Summary,
    /// An excerpt.
    #[error("an excerpt of {0} is in the layout, but its text was not provided")]
    Excerpt(Span),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::Encoding;

    #[test]
    fn messages_without_a_seq_are_digested_and_hidden_by_their_index() {
        let counter = Counter::new(Encoding::O200k);
        let log: Vec<Message> =
            (1..=9).map(|n| Message::user(format!("Order {n}70 goes to the harbour of Oslo."))).collect();
        let mut texts = ContextTexts::new(&counter, &log).with_summary(2, "Two orders went out.");
        let gaps = [Span { from: 3, through: 4 }, Span { from: 6, through: 7 }];
        let request = FitRequest { summary: Some(0), gaps: &gaps, shown: Some(7), room: 400 };
        let tokens = texts.fit(&request).unwrap();
        let text = &texts.fitted[&(Some(0), 7, Some(7), tokens)];
        assert!(
            text.contains("Order 370") && text.contains("#3-6] ") && !text.contains("Order 770"),
            "{text}"
        );
    }

    #[test]
    fn leading_system_messages_are_not_digested_and_later_ones_are() {
        let counter = Counter::new(Encoding::O200k);
        let at = |seq, message| Message { seq, ..message };
        let is_digested = |seq| {
            let orders = Message::system("Berth 4711 is kept free for the pilot boat.");
            let log = [at(seq, orders), at(seq + 1, Message::user("The ferry leaves at ten, as ever."))];
            let mut texts = ContextTexts::new(&counter, &log);
            let gaps = [Span { from: seq, through: seq + 1 }];
            let request = FitRequest { summary: None, gaps: &gaps, shown: None, room: 200 };
            let tokens = texts.fit(&request).unwrap();
            texts.rendered(&request, tokens).unwrap().contains("Berth 4711")
        };
        assert!(!is_digested(1) && is_digested(500));
    }
}
