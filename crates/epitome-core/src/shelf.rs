//! Stores the texts of a context: messages, summaries and excerpts.
//!
//! The planner of a context sees sizes and never text; a [`Shelf`] stores the text. While a context is
//! planned, the shelf renders summaries in the requested sizes and stores the results. [`render`] then takes
//! the texts from it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::context::{Candidate, ChosenSummary, Entry, Fit, Layout, Words};
use crate::excerpt;
use crate::local::Extracts;
use crate::message::{Message, Seq, Span, Tokens};
use crate::tokens::Counter;
use crate::view::{self, Mender};

/// The texts of a context: [`crate::context::lay_out`] requests sizes from it, and [`crate::shelf::render`]
/// takes the texts.
///
/// ```
/// use epitome_core::context::{lay_out, Costs, Request, Scene};
/// use epitome_core::cut::Cuts;
/// use epitome_testkit::drawing::{messages, outlines, word_counter};
/// use epitome_core::shelf::Shelf;
/// use epitome_core::outline::Cut;
/// use epitome_core::shelf::render;
///
/// let (log, shapes) = (messages("u:9 a:9 u:9 a:9").unwrap(), outlines("u:9 a:9 u:9 a:9").unwrap());
/// let counter = word_counter();
/// let mut shelf = Shelf::new(&counter, &log).with_summary(2, "They spoke.");
/// let candidates = shelf.candidates();
/// let scene = Scene::whole(Cuts::new(&shapes, Cut::Legal), &candidates);
/// let request = Request { tokens: Some(100), ..Request::default() };
/// let layout = lay_out(&request, &scene, &Costs::of(&counter), &mut shelf).unwrap();
/// let context = render(&layout, &shelf).unwrap();
/// assert_eq!(context.len(), 3); // the summary of 1 and 2, then 3 and 4
/// ```
#[derive(Clone)]
pub struct Shelf<'a> {
    counter: &'a Counter,
    messages: &'a [Message],
    /// Messages from elsewhere in the log that are shown unchanged, in order.
    more: &'a [Message],
    summaries: Vec<Held<'a>>,
    /// Texts made for this context. The key is the summary, its last message, the first message shown
    /// verbatim and the size, because one shelf may serve several layouts.
    fitted: HashMap<(Option<usize>, Seq, Option<Seq>, Tokens), String>,
    /// Excerpts, by span and size.
    excerpts: HashMap<(Span, Tokens), Vec<Message>>,
}

/// A summary and its source, if it can be rendered in other sizes.
#[derive(Clone)]
struct Held<'a> {
    through: Seq,
    text: Cow<'a, str>,
    /// Its size including the frame, if it was counted before.
    tokens: Option<Tokens>,
    made: Made<'a>,
}

/// The source from which a summary is rendered in another size.
#[derive(Clone)]
enum Made<'a> {
    /// The summary's own sentences.
    Text,
    /// The extracts that `local` selected.
    Extracts(&'a Extracts),
    /// The same, fetched only when needed.
    Later(&'a dyn Fn() -> Option<Arc<Extracts>>),
    /// Two other summaries of this shelf: the longest one, and the one that covers most messages.
    Joined(usize, usize),
}

impl Held<'_> {
    fn elastic(&self) -> bool {
        !matches!(self.made, Made::Text)
    }
}

impl<'a> Shelf<'a> {
    /// Creates a shelf with these messages, in the order of their `seq`. Messages with `seq` 0 are numbered
    /// from 1.
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

    /// Adds messages from elsewhere in the log, in order. They are shown where the layout contains them and
    /// are never summarized.
    pub fn with_more(self, more: &'a [Message]) -> Self {
        Self { more, ..self }
    }

    /// Adds a summary of the messages `1..=through`. If it must be shortened, its sentences are ranked as
    /// `local` ranks them.
    pub fn with_summary(self, through: Seq, text: impl Into<Cow<'a, str>>) -> Self {
        self.with(through, text.into(), Made::Text)
    }

    /// Adds a summary that `local` wrote, with its extracts. It can be rendered from these in any size.
    pub fn with_extracts(self, through: Seq, text: impl Into<Cow<'a, str>>, extracts: &'a Extracts) -> Self {
        self.with(through, text.into(), Made::Extracts(extracts))
    }

    /// The same for extracts that are fetched only when the summary is needed in another size. If there are
    /// none, the summary's sentences are ranked.
    pub fn with_extracts_later(
        self,
        through: Seq,
        text: impl Into<Cow<'a, str>>,
        extracts: &'a dyn Fn() -> Option<Arc<Extracts>>,
    ) -> Self {
        self.with(through, text.into(), Made::Later(extracts))
    }

    fn with(mut self, through: Seq, text: Cow<'a, str>, made: Made<'a>) -> Self {
        self.summaries.push(Held { through, text, tokens: None, made });
        self
    }

    /// Sets the size of the last added summary including its frame, if it was counted before:
    /// [`view::summary_tokens`].
    pub fn sized(mut self, tokens: Tokens) -> Self {
        if let Some(last) = self.summaries.last_mut() {
            last.tokens = Some(tokens);
        }
        self
    }

    /// Adds a summary that joins two summaries by `local`: the longest one, and the part after it of the one
    /// that covers most messages. Without two such summaries, nothing is added.
    pub fn with_joined(self) -> Self {
        let elastic = || self.summaries.iter().enumerate().filter(|(_, held)| held.elastic());
        let newest = elastic().max_by_key(|(_, held)| held.through);
        let long = elastic().max_by_key(|(_, held)| held.text.len());
        if let (Some((long, tells)), Some((newest, reaches))) = (long, newest)
            && tells.through < reaches.through
        {
            let through = reaches.through;
            return self.with(through, Cow::Borrowed(""), Made::Joined(long, newest)).sized(Tokens::MAX);
        }
        self
    }

    /// Returns the source from which a summary is rendered in another size.
    fn extracts(&self, at: usize) -> Extracts {
        let Some(held) = self.summaries.get(at) else {
            return Extracts::default();
        };
        let of_text = || Extracts::of_text(&held.text, held.through);
        match held.made {
            Made::Text => of_text(),
            Made::Extracts(extracts) => extracts.clone(),
            Made::Later(fetch) => fetch().map_or_else(of_text, Arc::unwrap_or_clone),
            // Both are other entries of this shelf, so the recursion ends.
            Made::Joined(long, newest) if long != at && newest != at => {
                self.extracts(long).joined(&self.extracts(newest))
            }
            Made::Joined(..) => of_text(),
        }
    }

    /// Returns the stored summaries, with their sizes including the frame.
    pub fn candidates(&self) -> Vec<Candidate> {
        let sized = |held: &Held<'_>| Candidate {
            through: held.through,
            tokens: held
                .tokens
                .unwrap_or_else(|| view::summary_tokens(&held.text, held.through, self.counter)),
            elastic: held.elastic(),
        };
        self.summaries.iter().map(sized).collect()
    }

    /// Stores a text that was rendered earlier for the same request and has `tokens` tokens, so that it is
    /// not rendered again.
    pub fn put(&mut self, wish: &Fit<'_>, tokens: Tokens, text: String) {
        if let Some(through) = self.reaches(wish) {
            self.fitted.insert((wish.summary, through, wish.shown, tokens), text);
        }
    }

    /// Returns the text that was rendered for this request and has `tokens` tokens.
    pub fn made(&self, wish: &Fit<'_>, tokens: Tokens) -> Option<&str> {
        let through = self.reaches(wish)?;
        self.fitted.get(&(wish.summary, through, wish.shown, tokens)).map(String::as_str)
    }

    /// Returns whether this request is never rendered. The longer of two joined summaries, cut to size,
    /// contains no more than the joined one and covers fewer messages.
    pub fn is_outdone(&self, wish: &Fit<'_>) -> bool {
        let joins =
            |held: &Held<'_>| matches!(held.made, Made::Joined(long, _) if Some(long) == wish.summary);
        wish.gaps.is_empty() && wish.shown.is_none() && self.summaries.iter().any(joins)
    }

    /// Returns the last message that the requested text covers.
    fn reaches(&self, wish: &Fit<'_>) -> Option<Seq> {
        let stored = wish.summary.and_then(|at| self.summaries.get(at));
        wish.gaps.last().map(|gap| gap.through).or(stored.map(|held| held.through))
    }

    /// Returns how many messages come before this one.
    fn before(&self, seq: Seq) -> usize {
        if self.messages.first().is_some_and(|message| message.seq == 0) {
            return usize::try_from(seq.saturating_sub(1)).unwrap_or(usize::MAX).min(self.messages.len());
        }
        self.messages.partition_point(|message| message.seq < seq)
    }

    /// Returns messages with their positions, also if their `seq` is not set.
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

impl Words for Shelf<'_> {
    fn fit(&mut self, wish: &Fit<'_>) -> Option<Tokens> {
        let Fit { summary, gaps, shown, room } = *wish;
        if self.is_outdone(wish) {
            return None;
        }
        let through = self.reaches(wish)?;
        let mut extracts = summary.map_or_else(Extracts::default, |at| self.extracts(at));
        for gap in gaps {
            self.placed(self.run(*gap), gap.from).for_each(|(seq, message)| extracts.read_at(seq, message));
        }
        // Leading and pinned messages are always shown next to the summary.
        let mut leading = 0;
        for (seq, message) in self.placed(self.messages, 1) {
            // A system message later in the log is an ordinary message, even if it is the first one
            // available.
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
        let tokens = self.counter.messages(&view::mend_closed(short.iter().cloned()));
        self.excerpts.insert((span, tokens), short);
        Some(tokens)
    }
}

/// Renders a layout as a list of messages that every provider accepts.
///
/// Fails if the shelf lacks a text that the layout contains. Nothing is left out silently.
pub fn render(layout: &Layout, texts: &Shelf<'_>) -> Result<Vec<Message>, RenderError> {
    let mut mender = Mender::default();
    mender.assistant.clone_from(&layout.assistant);
    mender.stripping = layout.strip_reasoning;
    let words = |seq| texts.message(seq).map(Cow::Borrowed).ok_or(RenderError::Message(seq));
    for entry in &layout.entries {
        match entry {
            Entry::Kept(seq) => mender.keep(words(*seq)?),
            Entry::Message(seq) => mender.take(words(*seq)?),
            Entry::Summary => {
                let chosen = layout.summary.ok_or(RenderError::Summary)?;
                let text = texts.summary(&chosen).ok_or(RenderError::Summary)?;
                mender.push(view::summary(text, chosen.through));
            }
            Entry::Excerpt { span, tokens } => {
                mender.seam();
                let excerpt = texts.excerpt(*span, *tokens).ok_or(RenderError::Excerpt(*span))?;
                excerpt.iter().for_each(|message| mender.push(message.clone()));
            }
            Entry::Note => mender.push(view::note()),
            Entry::Seam => mender.seam(),
        }
    }
    Ok(mender.finish())
}

/// A text that the layout contains and the shelf lacks. The caller must pass the texts that the scene was
/// built from.
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
    fn messages_without_a_place_are_read_and_hidden_by_where_they_stand() {
        let counter = Counter::new(Encoding::O200k);
        let log: Vec<Message> =
            (1..=9).map(|n| Message::user(format!("Order {n}70 goes to the harbour of Oslo."))).collect();
        let mut shelf = Shelf::new(&counter, &log).with_summary(2, "Two orders went out.");
        let gaps = [Span { from: 3, through: 4 }, Span { from: 6, through: 7 }];
        let wish = Fit { summary: Some(0), gaps: &gaps, shown: Some(7), room: 400 };
        let tokens = shelf.fit(&wish).unwrap();
        let text = &shelf.fitted[&(Some(0), 7, Some(7), tokens)];
        assert!(
            text.contains("Order 370") && text.contains("#3-6] ") && !text.contains("Order 770"),
            "{text}"
        );
    }

    #[test]
    fn what_stands_at_the_head_is_not_told_and_a_later_system_message_is() {
        let counter = Counter::new(Encoding::O200k);
        let at = |seq, message| Message { seq, ..message };
        let told = |seq| {
            let orders = Message::system("Berth 4711 is kept free for the pilot boat.");
            let log = [at(seq, orders), at(seq + 1, Message::user("The ferry leaves at ten, as ever."))];
            let mut shelf = Shelf::new(&counter, &log);
            let gaps = [Span { from: seq, through: seq + 1 }];
            let wish = Fit { summary: None, gaps: &gaps, shown: None, room: 200 };
            let tokens = shelf.fit(&wish).unwrap();
            shelf.made(&wish, tokens).unwrap().contains("Berth 4711")
        };
        assert!(!told(1) && told(500));
    }
}
