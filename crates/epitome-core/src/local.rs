//! The built-in extractive summarizer: it needs no model, network or key, and always produces the same text.
//!
//! It does not write text; it selects pieces of the messages. From each message it takes the most informative pieces,
//! ranks them together with the pieces selected before, and retains the best pieces that fit. Each summary therefore
//! extends the previous one, and an old piece stays as long as it ranks higher than the new ones. The names most likely
//! to be needed again are appended verbatim ([`crate::ledger`]).
//!
//! Between two summaries, [`Extracts`] are stored instead of the text: the pieces and the ledger. A summary of any
//! size can be rendered from them at any time, so that each context gets a summary for its own budget. Secrets are
//! redacted before anything is read.
//!
//! ```
//! use epitome_core::local::Extracts;
//! use epitome_core::message::Message;
//! use epitome_core::tokens::{Counter, Encoding};
//!
//! let counter = Counter::new(Encoding::O200k);
//! let mut extracts = Extracts::default();
//! extracts.read(&Message::user("Please move the release to 14 March, and tell Ann."));
//! extracts.read(&Message::assistant("Okay! The release is on 14 March now; Ann knows."));
//! let text = extracts.render(60, &counter);
//! assert_eq!(text, "[#1-2] user: Please move the release to 14 March, and tell Ann. | \
//!     assistant: The release is on 14 March now; Ann knows.");
//! ```

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ledger::{self, Ledger};
use crate::message::{Message, Seq, Tokens};
use crate::reading::each_text;
use crate::slot::Limit;
use crate::tokens::Counter;

mod lines;
mod pieces;
mod read;
mod render;
mod select;

/// Maximum number of pieces in memory. When it is reached, the least informative pieces are dropped before more
/// messages are read.
const MOST_PIECES: usize = 4_096;

/// The material of a local summary: the most informative pieces, and the names.
///
/// A store saves the serialized form together with the text. Its size is limited by the size passed to
/// [`Extracts::keep_to`], not by the length of the session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extracts {
    /// The pieces, in order of time.
    extracts: Vec<Extract>,
    ledger: Ledger,
    /// Position of the last message read.
    through: Seq,
    /// Number of messages read. `tools` is the number of these messages that were tool calls or results.
    messages: u64,
    tools: u64,
    /// The current day of the conversation; `None` if the messages do not contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    date: Option<Arc<str>>,
    /// Whether the messages themselves contain their dates.
    #[serde(rename = "tells_days", default, skip_serializing_if = "std::ops::Not::not")]
    has_dates: bool,
    /// Ids and tool names of the last calls, so that a result is shown with the name of its tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls: Vec<(Arc<str>, Arc<str>)>,
    /// Whether the last piece read was a question.
    #[serde(rename = "asked")]
    after_question: bool,
    /// Whether the task was already read. The task is the first statement of a user.
    #[serde(rename = "tasked")]
    has_read_task: bool,
    /// If a summary was read in place of messages: the share of its text that is lists of names, in thousandths. `None`
    /// if there are no such lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    listed: Option<u64>,
}

/// A piece of text that is selected or left out as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Extract {
    seq: Seq,
    #[serde(rename = "by")]
    speaker: Arc<str>,
    #[serde(rename = "kind")]
    origin: Origin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    date: Option<Arc<str>>,
    text: String,
    /// Number of the line that contains the piece, if it comes from a summary that was written elsewhere; otherwise 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    line: u32,
    /// Whether the piece answers a question.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    answers: bool,
    /// Whether the message that contains the piece has many pieces.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    of_many: bool,
    /// Whether the piece states the task of the session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    task: bool,
    /// Features of the text, cached after the first use.
    #[serde(skip)]
    cached: select::CachedFeatures,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands in a reference")]
fn is_zero(line: &u32) -> bool {
    *line == 0
}

/// The origin of a piece.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Origin {
    /// A user or a peer.
    #[default]
    #[serde(rename = "asked")]
    User,
    /// The assistant.
    #[serde(rename = "said")]
    Assistant,
    /// The arguments of a tool call.
    Call,
    /// The output of a tool.
    Output,
    /// A summary that was written elsewhere.
    #[serde(rename = "told")]
    Summary,
}

impl Extract {
    /// Returns the approximate number of tokens, for ranking. It is independent of the tokenizer: in every script four
    /// to five bytes make a token.
    fn size(&self) -> Tokens {
        (self.text.len() as u64).div_ceil(4)
    }
}

impl Extracts {
    /// Returns the approximate memory use in bytes, for caches that hold many extracts.
    pub fn bytes(&self) -> usize {
        let pieces =
            self.extracts.iter().map(|extract| size_of::<Extract>().saturating_add(extract.text.len()));
        pieces.fold(self.ledger.bytes().saturating_add(size_of::<Self>()), usize::saturating_add)
    }

    /// Builds extracts from the sentences and names of a summary that was written elsewhere, to extend or to shorten
    /// the summary.
    ///
    /// ```
    /// use epitome_core::local::Extracts;
    /// use epitome_core::tokens::{Counter, Encoding};
    ///
    /// let counter = Counter::new(Encoding::O200k);
    /// let written = "They talked for a while.\nAnn moved the release to 14 March.\nIt went on and on.";
    /// let text = Extracts::of_text(written, 40).render(10, &counter);
    /// assert_eq!(text, "Ann moved the release to 14 March.");
    /// ```
    pub fn of_text(text: &str, through: Seq) -> Self {
        let mut extracts = Self { through, has_read_task: true, ..Self::default() };
        extracts.ledger.at(through);
        extracts.read_summary("", text);
        let names = text.lines().filter(|line| ledger::listed(line).is_some()).map(str::len);
        let names = names.fold(0, usize::saturating_add) as u64;
        extracts.listed =
            names.saturating_mul(1_000).checked_div(text.len() as u64).filter(|listed| *listed > 0);
        extracts
    }

    /// Replaces the names that were read so far. A ledger of the messages themselves is more complete than the names in
    /// a summary of the messages.
    ///
    /// ```
    /// use epitome_core::ledger::Ledger;
    /// use epitome_core::local::Extracts;
    /// use epitome_core::message::Message;
    ///
    /// let mut ledger = Ledger::default();
    /// ledger.read(&Message::tool("c1", "error[E0432] in src/api.rs"));
    /// let extracts = Extracts::of_text("The build failed.", 1).with_ledger(ledger.clone());
    /// assert_eq!(extracts.ledger(), &ledger);
    /// ```
    pub fn with_ledger(self, ledger: Ledger) -> Self {
        Self { ledger, ..self }
    }

    /// Ranks all pieces and drops those that a summary of `limit` tokens could not contain. A quarter more than `limit`
    /// is retained, because sizes are only estimated here.
    pub fn keep_to(&mut self, limit: Tokens) {
        self.retain_best(with_margin(limit), MOST_PIECES);
    }

    /// Ranks all pieces and retains the best, up to `limit` tokens and `most` pieces. Returns their indices, best
    /// first.
    fn retain_best(&mut self, limit: Tokens, most: usize) -> Vec<usize> {
        self.drop_repeated();
        let mut order = select::order(self, limit, most);
        let mut retained = order.clone();
        retained.sort_unstable();
        let mut places = 0..;
        self.extracts.retain(|_| places.next().is_some_and(|at| retained.binary_search(&at).is_ok()));
        for at in &mut order {
            *at = retained.binary_search(at).unwrap_or(*at);
        }
        order
    }

    /// Returns whether the session has a task, which means that an assistant works for a user. A conversation among
    /// people has no task: its first statement is usually a greeting.
    fn has_task(&self) -> bool {
        self.tools > 0 || self.extracts.iter().any(|extract| extract.task && *extract.speaker == *"user")
    }

    /// Drops repeated pieces, except the newest copy of each. Pieces of the task are never dropped.
    fn drop_repeated(&mut self) {
        let mut said = HashSet::new();
        let mut keep: Vec<bool> =
            self.extracts.iter().rev().map(|e| e.task || said.insert(e.text.as_str())).collect();
        self.extracts.retain(|_| keep.pop().unwrap_or(true));
    }

    /// Retains the pieces that a summary within this limit can contain, and returns the summary.
    ///
    /// ```
    /// use epitome_core::local::Extracts;
    /// use epitome_core::message::Message;
    /// use epitome_core::slot::Limit;
    /// use epitome_core::tokens::{Counter, Encoding};
    ///
    /// let mut extracts = Extracts::default();
    /// extracts.read(&Message::user("Deploy build 4711 to staging, please. Tell me when it is done."));
    /// let text = extracts.summarize(Limit::Chars(50), &Counter::new(Encoding::O200k));
    /// assert_eq!(text, "[#1] user: Deploy build 4711 to staging, please.");
    /// ```
    pub fn summarize(&mut self, limit: Limit, counter: &Counter) -> String {
        let characters;
        let (room, tokens, counter) = match limit {
            Limit::Tokens(tokens) => (tokens, tokens, counter),
            // A token has about four characters, in some texts only three. Dividing by three makes sure that enough
            // pieces are retained.
            Limit::Chars(chars) => {
                characters = Counter::custom("characters", |text| text.chars().count() as u64);
                (chars, chars / 3, &characters)
            }
        };
        let order = self.retain_best(with_margin(tokens), MOST_PIECES);
        let text = render::write(self, &order, room, self.balanced_share(room), counter);
        if text.is_empty() && self.messages > 0 {
            // Emoji or punctuation cannot be summarized. A count is returned, so that such a list can be condensed.
            let count = format!("{} messages without words, up to #{}", self.messages, self.through);
            return if counter.text(&count) <= room { count } else { String::new() };
        }
        text
    }

    /// Returns a summary of at most `room` tokens: lines in order of time, then the names.
    pub fn render(&self, room: Tokens, counter: &Counter) -> String {
        // The counter may count fewer tokens than estimated, so more pieces are ranked than are likely to fit.
        let order = select::order(self, room.saturating_mul(2), usize::MAX);
        render::write(self, &order, room, self.share_of_names(room), counter)
    }

    /// Returns these extracts, extended by the pieces of `newer` that are about later messages. This combines a long
    /// summary with a newer, short summary.
    pub fn joined(&self, newer: &Self) -> Self {
        let mut joined = self.clone();
        let later = newer.extracts.iter().filter(|extract| extract.seq > self.through);
        joined.extracts.extend(later.cloned());
        joined.ledger.join(&newer.ledger);
        joined.through = self.through.max(newer.through);
        joined.messages = self.messages.max(newer.messages);
        joined.tools = self.tools.max(newer.tools);
        // The next message that is read follows the messages of `newer`.
        (joined.date, joined.calls) = (newer.date.clone(), newer.calls.clone());
        joined.after_question = newer.after_question;
        joined.has_read_task = self.has_read_task || newer.has_read_task;
        joined.has_dates |= newer.has_dates;
        joined
    }

    /// Removes the content of the message at position `seq`, because the message is shown verbatim together with the
    /// summary.
    pub fn hide_at(&mut self, seq: Seq, message: &Message) {
        self.extracts.retain(|extract| extract.seq != seq || extract.origin == Origin::Summary);
        each_text(message, |voice, text| self.ledger.hide(voice, text));
    }

    /// Returns the names found.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the last message that the extracts cover.
    pub fn through(&self) -> Seq {
        self.through
    }
}

/// Returns a quarter more than the limit, because sizes are only estimated when pieces are selected.
fn with_margin(limit: Tokens) -> Tokens {
    limit.saturating_add(limit / 4)
}

#[cfg(test)]
mod tests;
