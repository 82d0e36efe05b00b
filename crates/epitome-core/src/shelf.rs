//! The words behind a scene.
//!
//! Choosing sees sizes and never text; a [`Shelf`] holds the text. It is asked what a summary comes to
//! in so many tokens while a context is laid out, keeps what it made, and hands it over when the
//! context is rendered.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::context::{Candidate, ChosenSummary, Entry, Fit, Layout, Words};
use crate::excerpt;
use crate::local::Extracts;
use crate::message::{Message, Seq, Span, Tokens};
use crate::tokens::Counter;
use crate::view::{self, Mender};

/// The words behind a scene: what [`crate::context::lay_out`] asks sizes of, and
/// [`crate::shelf::render`] takes texts from.
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
    /// Others that are shown as they are, in order.
    more: &'a [Message],
    summaries: Vec<Held<'a>>,
    /// By the summary, how far it reaches, what is shown beside it and its size: one shelf may serve
    /// several layouts.
    fitted: HashMap<(Option<usize>, Seq, Option<Seq>, Tokens), String>,
    /// By the span and its size.
    excerpts: HashMap<(Span, Tokens), Vec<Message>>,
}

/// A summary, and what `local` made it of where it did.
#[derive(Clone)]
struct Held<'a> {
    through: Seq,
    text: Cow<'a, str>,
    /// Its size as handed out, where that was counted before.
    tokens: Option<Tokens>,
    made: Made<'a>,
}

/// What a summary can be rendered from in another size.
#[derive(Clone)]
enum Made<'a> {
    /// Its own sentences.
    Text,
    /// What `local` picked.
    Extracts(&'a Extracts),
    /// The same, asked for only when it is needed.
    Later(&'a dyn Fn() -> Option<Arc<Extracts>>),
    /// Two others that are held: the one that tells most, and the one that reaches furthest.
    Joined(usize, usize),
}

impl Held<'_> {
    fn elastic(&self) -> bool {
        !matches!(self.made, Made::Text)
    }
}

impl<'a> Shelf<'a> {
    /// Holds these messages, in the order of their `seq`; where that was left at 0, they are
    /// numbered from 1 as they come.
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

    /// With messages from elsewhere in the log, in order: they are shown where the layout holds them, and summarized nowhere.
    pub fn with_more(self, more: &'a [Message]) -> Self {
        Self { more, ..self }
    }

    /// Holds one more summary, of the messages `1..=through`. When it must be shortened its sentences
    /// are ranked as `local` would.
    pub fn with_summary(self, through: Seq, text: impl Into<Cow<'a, str>>) -> Self {
        self.with(through, text.into(), Made::Text)
    }

    /// Holds one more summary that `local` wrote, with what it was made of: it is rendered from that
    /// in any size.
    pub fn with_extracts(self, through: Seq, text: impl Into<Cow<'a, str>>, extracts: &'a Extracts) -> Self {
        self.with(through, text.into(), Made::Extracts(extracts))
    }

    /// The same for extracts that are fetched only when the summary is wanted in another size. Where there
    /// are none after all, its sentences are ranked.
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

    /// The last summary's size as handed out, where it was counted before: [`view::summary_tokens`].
    pub fn sized(mut self, tokens: Tokens) -> Self {
        if let Some(last) = self.summaries.last_mut() {
            last.tokens = Some(tokens);
        }
        self
    }

    /// Holds one more summary, joined of two that `local` wrote: the one that tells most, and what the one
    /// that reaches furthest has after it. Without two such there is none.
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

    /// What a summary can be rendered from in another size.
    fn extracts(&self, at: usize) -> Extracts {
        let Some(held) = self.summaries.get(at) else {
            return Extracts::default();
        };
        let of_text = || Extracts::of_text(&held.text, held.through);
        match held.made {
            Made::Text => of_text(),
            Made::Extracts(extracts) => extracts.clone(),
            Made::Later(fetch) => fetch().map_or_else(of_text, Arc::unwrap_or_clone),
            // Two that are held themselves, so this does not go on.
            Made::Joined(long, newest) if long != at && newest != at => {
                self.extracts(long).joined(&self.extracts(newest))
            }
            Made::Joined(..) => of_text(),
        }
    }

    /// The summaries it holds, sized as they would be handed out.
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

    /// Takes in a text that was made before for such a wish, of so many tokens, instead of making it.
    pub fn put(&mut self, wish: &Fit<'_>, tokens: Tokens, text: String) {
        if let Some(through) = self.reaches(wish) {
            self.fitted.insert((wish.summary, through, wish.shown, tokens), text);
        }
    }

    /// The text that was made for such a wish and came to so many tokens.
    pub fn made(&self, wish: &Fit<'_>, tokens: Tokens) -> Option<&str> {
        let through = self.reaches(wish)?;
        self.fitted.get(&(wish.summary, through, wish.shown, tokens)).map(String::as_str)
    }

    /// Whether what is wished for is never made: the longer one of two that are joined, cut to size, tells no
    /// more than the joined one and reaches less far.
    pub fn is_outdone(&self, wish: &Fit<'_>) -> bool {
        let joins =
            |held: &Held<'_>| matches!(held.made, Made::Joined(long, _) if Some(long) == wish.summary);
        wish.gaps.is_empty() && wish.shown.is_none() && self.summaries.iter().any(joins)
    }

    /// How far what is wished for reaches.
    fn reaches(&self, wish: &Fit<'_>) -> Option<Seq> {
        let stored = wish.summary.and_then(|at| self.summaries.get(at));
        wish.gaps.last().map(|gap| gap.through).or(stored.map(|held| held.through))
    }

    /// How many messages come before this one.
    fn before(&self, seq: Seq) -> usize {
        if self.messages.first().is_some_and(|message| message.seq == 0) {
            return usize::try_from(seq.saturating_sub(1)).unwrap_or(usize::MAX).min(self.messages.len());
        }
        self.messages.partition_point(|message| message.seq < seq)
    }

    /// Messages with their places, where they may not have them themselves.
    fn placed(&self, run: &'a [Message], from: Seq) -> impl Iterator<Item = (Seq, &'a Message)> + use<'a> {
        (from..).zip(run).map(|(at, message)| (if message.seq == 0 { at } else { message.seq }, message))
    }

    fn run(&self, span: Span) -> &'a [Message] {
        self.messages
            .get(self.before(span.from)..self.before(span.through.saturating_add(1)))
            .unwrap_or_default()
    }

    /// The message of the log at this place.
    pub fn message(&self, seq: Seq) -> Option<&'a Message> {
        let own = self.messages.get(self.before(seq)).filter(|own| own.seq == seq || own.seq == 0);
        own.or_else(|| self.more.get(self.more.binary_search_by_key(&seq, |more| more.seq).ok()?))
    }

    /// The text of the summary that was chosen, at the size that was chosen.
    pub fn summary(&self, chosen: &ChosenSummary) -> Option<&str> {
        if chosen.fitted {
            let key = (chosen.candidate, chosen.through, chosen.shown, chosen.tokens);
            return self.fitted.get(&key).map(String::as_str);
        }
        Some(&self.summaries.get(chosen.candidate?)?.text)
    }

    /// The excerpt of this size that was made of these messages.
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
        // What always stays is beside it in any case.
        let mut leading = 0;
        for (seq, message) in self.placed(self.messages, 1) {
            // A system message later in the log is an ordinary one, also where it is the first at hand.
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

/// The list a layout stands for, in a shape that every provider accepts.
///
/// Fails when the texts lack something the layout holds: nothing is left out silently.
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

/// What a layout holds and its texts do not. It means: hand in the words the scene was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RenderError {
    /// A message of the log.
    #[error("message {0} is in the layout, and its words are not at hand")]
    Message(Seq),
    /// The summary that was chosen.
    #[error("the summary is in the layout, and its words are not at hand")]
    Summary,
    /// An excerpt that was made.
    #[error("an excerpt of {0} is in the layout, and its words are not at hand")]
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
