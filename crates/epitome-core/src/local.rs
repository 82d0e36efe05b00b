//! The summarizer that is built in: no model, no network, no key, and the same text every time.
//!
//! It does not write; it picks. From each message it takes the pieces that tell most, lets them
//! compete with those picked before, and keeps what fits: so a summary is built on the one before it,
//! whatever its length, and old matters stay as long as they are worth more than new ones. The names
//! likeliest needed again close the text, word for word ([`crate::ledger`]).
//!
//! What is kept between two summaries is not the text but [`Extracts`]: the pieces and the ledger.
//! Any size can be rendered from them at any time, so a context of any budget gets a summary made
//! for it. Secrets are taken out before anything is read.
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

/// More pieces than this are never held: the least telling leave before more are read.
const MOST_PIECES: usize = 4_096;

/// What a local summary is made of: the pieces that tell most, and the names.
///
/// Serialized, it is what a store keeps beside the text. It is bounded by the size it was kept to,
/// never by the length of the session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extracts {
    /// In order of time.
    extracts: Vec<Extract>,
    ledger: Ledger,
    /// The last message read.
    through: Seq,
    /// Messages read, and how many of them were calls or results.
    messages: u64,
    tools: u64,
    /// The day the conversation is at, where it was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    date: Option<Arc<str>>,
    /// Whether the messages themselves tell their days.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    tells_days: bool,
    /// The last calls, so that results can be told by their tool's name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls: Vec<(Arc<str>, Arc<str>)>,
    /// Whether the last thing said was a question.
    asked: bool,
    /// Whether the task was read: the first thing a user said.
    tasked: bool,
    /// How much of a text that was read in place of messages lists names, in thousandths; nothing where it lists none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    listed: Option<u64>,
}

/// A piece of text that is taken or left whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Extract {
    seq: Seq,
    #[serde(rename = "by")]
    speaker: Arc<str>,
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    date: Option<Arc<str>>,
    text: String,
    /// In a text that was written elsewhere: the line it stood in.
    #[serde(default, skip_serializing_if = "is_zero")]
    line: u32,
    /// It answers a question.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    answers: bool,
    /// It is one of many pieces of its message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    of_many: bool,
    /// It tells what all of this is about.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    task: bool,
    /// What its text was found to hold, once that was asked.
    #[serde(skip)]
    found: select::Found,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands in a reference")]
fn is_zero(line: &u32) -> bool {
    *line == 0
}

/// Where a piece comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// The user asked for it.
    #[default]
    Asked,
    /// Somebody else said it.
    Said,
    /// A tool was called with it.
    Call,
    /// A tool printed it.
    Output,
    /// It stood in a summary that somebody else wrote.
    Told,
}

impl Extract {
    /// Near enough to its tokens to rank it by, and the same whoever counts: in every script four to five
    /// bytes make one.
    fn size(&self) -> Tokens {
        (self.text.len() as u64).div_ceil(4)
    }
}

impl Extracts {
    /// About how many bytes of memory it takes, for who holds many.
    pub fn bytes(&self) -> usize {
        let pieces =
            self.extracts.iter().map(|extract| size_of::<Extract>().saturating_add(extract.text.len()));
        pieces.fold(self.ledger.bytes().saturating_add(size_of::<Self>()), usize::saturating_add)
    }

    /// What a summary that somebody else wrote can be built on, or shortened from: its sentences, and
    /// the names in it.
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
        let mut extracts = Self { through, tasked: true, ..Self::default() };
        extracts.ledger.at(through);
        extracts.tell("", text);
        let names = text.lines().filter(|line| ledger::listed(line).is_some()).map(str::len);
        let names = names.fold(0, usize::saturating_add) as u64;
        extracts.listed =
            names.saturating_mul(1_000).checked_div(text.len() as u64).filter(|listed| *listed > 0);
        extracts
    }

    /// With these names in place of its own: whoever read the messages knows them better than who read a text about them.
    ///
    /// ```
    /// use epitome_core::ledger::Ledger;
    /// use epitome_core::local::Extracts;
    /// use epitome_core::message::Message;
    ///
    /// let mut ledger = Ledger::default();
    /// ledger.read(&Message::tool("c1", "error[E0432] in src/api.rs"));
    /// let extracts = Extracts::of_text("The build failed.", 1).naming(ledger.clone());
    /// assert_eq!(extracts.ledger(), &ledger);
    /// ```
    pub fn naming(self, ledger: Ledger) -> Self {
        Self { ledger, ..self }
    }

    /// Lets all pieces compete, and keeps those a summary of `limit` tokens could hold, and a few more:
    /// their sizes are only estimated.
    pub fn keep_to(&mut self, limit: Tokens) {
        self.keep(more(limit), MOST_PIECES);
    }

    /// The same; gives back what is kept in the order of its worth.
    fn keep(&mut self, limit: Tokens, most: usize) -> Vec<usize> {
        self.drop_repeated();
        let mut order = select::order(self, limit, most);
        let mut kept = order.clone();
        kept.sort_unstable();
        let mut places = 0..;
        self.extracts.retain(|_| places.next().is_some_and(|at| kept.binary_search(&at).is_ok()));
        for at in &mut order {
            *at = kept.binary_search(at).unwrap_or(*at);
        }
        order
    }

    /// Whether there is a task: somebody works for a user. People among themselves have none, and the
    /// first thing they say is a greeting.
    fn has_task(&self) -> bool {
        self.tools > 0 || self.extracts.iter().any(|extract| extract.task && *extract.speaker == *"user")
    }

    /// Of what was said twice, the newest is kept; the task where it was first said.
    fn drop_repeated(&mut self) {
        let mut said = HashSet::new();
        let mut keep: Vec<bool> =
            self.extracts.iter().rev().map(|e| e.task || said.insert(e.text.as_str())).collect();
        self.extracts.retain(|_| keep.pop().unwrap_or(true));
    }

    /// Keeps what a summary inside this limit can hold, and writes it.
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
            // About four to a token, three where they are many.
            Limit::Chars(chars) => {
                characters = Counter::custom("characters", |text| text.chars().count() as u64);
                (chars, chars / 3, &characters)
            }
        };
        let order = self.keep(more(tokens), MOST_PIECES);
        let text = render::write(self, &order, room, self.balanced_share(room), counter);
        if text.is_empty() && self.messages > 0 {
            // Emoji, punctuation: what cannot be told is counted, so that a list of it can be condensed.
            let count = format!("{} messages without words, up to #{}", self.messages, self.through);
            return if counter.text(&count) <= room { count } else { String::new() };
        }
        text
    }

    /// A text of at most `room` tokens: lines in order of time, then the names.
    pub fn render(&self, room: Tokens, counter: &Counter) -> String {
        // A counter may make less of a text than is thought.
        let order = select::order(self, room.saturating_mul(2), usize::MAX);
        render::write(self, &order, room, self.share_of_names(room), counter)
    }

    /// Goes on with what a newer one knows of later messages: a long summary, and what a short one has
    /// after it.
    pub fn joined(&self, newer: &Self) -> Self {
        let mut joined = self.clone();
        let later = newer.extracts.iter().filter(|extract| extract.seq > self.through);
        joined.extracts.extend(later.cloned());
        joined.ledger.join(&newer.ledger);
        joined.through = self.through.max(newer.through);
        joined.messages = self.messages.max(newer.messages);
        joined.tools = self.tools.max(newer.tools);
        // What comes next comes after the newer.
        (joined.date, joined.calls) = (newer.date.clone(), newer.calls.clone());
        (joined.asked, joined.tasked) = (newer.asked, self.tasked || newer.tasked);
        joined.tells_days |= newer.tells_days;
        joined
    }

    /// Leaves out what a message at this place says, which is shown beside the summary word for word.
    pub fn hide_at(&mut self, seq: Seq, message: &Message) {
        self.extracts.retain(|extract| extract.seq != seq || extract.kind == Kind::Told);
        each_text(message, |voice, text| self.ledger.hide(voice, text));
    }

    /// The names it found.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The last message it knows.
    pub fn through(&self) -> Seq {
        self.through
    }
}

/// A little more than a limit: sizes are estimated when it is decided what is kept.
fn more(limit: Tokens) -> Tokens {
    limit.saturating_add(limit / 4)
}

#[cfg(test)]
mod tests;
