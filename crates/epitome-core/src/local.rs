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

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ledger::{self, Ledger};
use crate::message::{Message, Role, Seq, Timestamp, Tokens};
use crate::reading::{Voice, each_text};
use crate::slot::Limit;
use crate::tokens::Counter;

mod lines;
mod pieces;
mod render;
mod select;

/// More pieces than this are never held: the least telling leave before more are read.
const MOST_PIECES: usize = 4_096;

/// The tokens of the task that are always told.
const TASK: Tokens = 120;

/// The calls whose tools are remembered, and how long their ids may be.
const CALLS: usize = 64;
const LONGEST_ID: usize = 256;

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
    /// The last calls, so that results can be told by their tool's name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls: Vec<(Arc<str>, Arc<str>)>,
    /// Whether the last thing said was a question.
    asked: bool,
    /// Whether the task was read: the first thing a user said.
    tasked: bool,
}

/// A piece of text that is taken or left whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// The user asked for it.
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
    #[must_use]
    pub fn of_text(text: &str, through: Seq) -> Self {
        let mut extracts = Self { through, tasked: true, ..Self::default() };
        extracts.ledger.at(through);
        extracts.tell("", text);
        extracts
    }

    /// Takes in a text that stands for messages, as an author's own summary does.
    pub fn tell(&mut self, author: &str, text: &str) {
        let speaker: Arc<str> = lines::name(author).into();
        let text = crate::reading::cleaned(text);
        let first = self.extracts.iter().map(|extract| extract.line).max().unwrap_or(0);
        let mut tools: HashSet<String> = HashSet::from(["tool".to_owned()]);
        for (line, nth) in text.lines().zip(first.saturating_add(1)..) {
            if let Some(names) = ledger::listed(line) {
                self.ledger.told(&names);
                continue;
            }
            if let Some(own) = lines::read(line) {
                self.own_line(&own, &mut tools);
                continue;
            }
            self.ledger.read_text(Voice::Assistant, line);
            for piece in pieces::of_told(line) {
                self.add(self.through, Kind::Told, &speaker, piece.into(), nth, false);
            }
        }
        self.bound();
    }

    /// Takes in a line that was written here once: whoever stored only the text goes on from it.
    /// `tools` are those known by the calls of them.
    fn own_line(&mut self, line: &lines::Line<'_>, tools: &mut HashSet<String>) {
        // Whatever it says, it is of messages that are past.
        let last = if self.through == 0 { Seq::MAX } else { self.through };
        let through = line.through.min(last);
        let date = std::mem::replace(&mut self.date, line.date.map(Into::into));
        let mut task = !self.extracts.iter().any(|extract| extract.task);
        for turn in &line.turns {
            let seq = if task { line.from.min(through) } else { through };
            let (kind, voice) = match turn.speaker {
                "user" => (Kind::Asked, Voice::User),
                speaker => match speaker.rsplit_once(" calls ") {
                    Some((_, tool)) => {
                        tools.insert(tool.to_owned());
                        (Kind::Call, Voice::Assistant)
                    }
                    None if tools.contains(speaker) || speaker.starts_with("tool ") => {
                        (Kind::Output, Voice::Tool { call: "" })
                    }
                    None => (Kind::Said, Voice::Assistant),
                },
            };
            task &= kind == Kind::Asked;
            self.ledger.read_text(voice, &turn.text);
            for piece in pieces::of_told(&turn.text) {
                let at = self.extracts.len();
                self.add(seq, kind, &turn.speaker.into(), piece.into(), 0, false);
                if let Some(extract) = self.extracts.get_mut(at) {
                    extract.task = task;
                }
            }
        }
        self.date = date;
    }

    /// Takes in one more message. Skipped and pinned ones are passed over, reasoning and media too: the
    /// pinned are always shown word for word.
    pub fn read(&mut self, message: &Message) {
        self.read_at(message.seq, message);
    }

    /// The same for a message that has its place from elsewhere; with 0 it comes after the last.
    pub fn read_at(&mut self, seq: Seq, message: &Message) {
        let seq = if seq == 0 { self.through.saturating_add(1) } else { seq };
        // A message that stayed in sight for long is read late.
        let late = seq < self.through;
        self.through = self.through.max(seq);
        self.messages = self.messages.saturating_add(1);
        let tool = message.role == Role::Tool || message.calls().next().is_some();
        self.tools = self.tools.saturating_add(u64::from(tool));
        self.ledger.at(self.through);
        if message.skip || message.pinned {
            // A pinned message stands beside every summary; the task, if it is one, too.
            self.tasked |= message.pinned && message.role.is_user();
            return;
        }
        if message.at != Timestamp::default() {
            self.date = Some(day(message.at).into());
        }
        let role = message.role.to_string();
        let speaker: Arc<str> =
            lines::name_in_role(message.author.as_deref().unwrap_or_default(), &role).into();
        for call in message.calls() {
            if self.calls.len() >= CALLS {
                self.calls.remove(0);
            }
            // Nobody's ids are so long; a result by such a one is told as a tool's.
            if call.id.len() <= LONGEST_ID {
                self.calls.push((call.id.clone(), lines::name_in_role(&call.name, "tool").into()));
            }
        }
        let task = message.role.is_user() && !self.tasked;
        let mut told_of_task: Tokens = 0;
        let answers = std::mem::take(&mut self.asked);
        let mut asks = false;
        let mut calls: Vec<(usize, String, String)> = Vec::new();
        each_text(message, |voice, text| {
            let text = if matches!(voice, Voice::User | Voice::Assistant) { self.dated(text) } else { text };
            self.ledger.read_text(voice, text);
            match voice {
                Voice::User | Voice::Assistant => {
                    let found = pieces::of_speech(text);
                    asks |= found.last().is_some_and(|piece| piece.ends_with(['?', '？', '؟']));
                    let of_many = found.len() >= 3;
                    for piece in found {
                        let piece = pieces::without_fillers(piece);
                        let at = self.extracts.len();
                        let kind = if voice == Voice::User { Kind::Asked } else { Kind::Said };
                        self.add(seq, kind, &speaker, piece, 0, of_many);
                        let Some(extract) = self.extracts.get_mut(at) else { continue };
                        extract.answers = answers && !asks;
                        // However long its first sentence is.
                        let first = told_of_task == 0;
                        told_of_task = told_of_task.saturating_add(extract.size());
                        extract.task = task && (first || told_of_task <= TASK);
                        self.tasked |= task;
                    }
                }
                Voice::Tool { call } => {
                    let named =
                        self.calls.iter().rfind(|(id, _)| **id == *call).map(|(_, tool)| tool.clone());
                    let tool = named.unwrap_or_else(|| "tool".into());
                    for piece in pieces::of_output(text) {
                        self.add(seq, Kind::Output, &tool, piece.into(), 0, true);
                    }
                }
                Voice::Call { tool, nth, .. } => match calls.last_mut() {
                    Some((of, _, told)) if *of == nth => pieces::tell_of_call(told, text),
                    _ => {
                        let mut told = String::new();
                        pieces::tell_of_call(&mut told, text);
                        calls.push((nth, format!("{speaker} calls {}", lines::name(tool)), told));
                    }
                },
            }
        });
        for (_, caller, told) in calls.into_iter().filter(|(_, _, told)| !told.is_empty()) {
            self.add(seq, Kind::Call, &caller.into(), told.into(), 0, false);
        }
        // A tool's output between a question and its answer does not part them.
        self.asked = asks || (answers && tool);
        if late {
            self.extracts.sort_by_key(|extract| extract.seq);
        }
        self.bound();
    }

    /// Makes room where more is held than should be: a quarter of it, so that it is not needed again at
    /// once.
    fn bound(&mut self) {
        if self.extracts.len() > MOST_PIECES {
            self.keep(Tokens::try_from(MOST_PIECES * 8).unwrap_or(Tokens::MAX), MOST_PIECES / 4 * 3);
        }
    }

    fn add(
        &mut self,
        seq: Seq,
        kind: Kind,
        speaker: &Arc<str>,
        text: Cow<'_, str>,
        line: u32,
        of_many: bool,
    ) {
        let date = if kind == Kind::Told { None } else { self.date.clone() };
        let text = lines::on_one_line(text);
        let speaker = speaker.clone();
        self.extracts.push(Extract {
            seq,
            speaker,
            kind,
            date,
            text,
            line,
            answers: false,
            of_many,
            task: false,
            found: select::Found::default(),
        });
    }

    /// Takes a date at the head of a text for the day it was said.
    fn dated<'t>(&mut self, text: &'t str) -> &'t str {
        match pieces::head_date(text) {
            Some((date, rest)) => {
                self.date = Some(date.into());
                rest
            }
            None => text,
        }
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
        let mut place: Vec<Option<usize>> = vec![None; self.extracts.len()];
        for at in &order {
            if let Some(kept) = place.get_mut(*at) {
                *kept = Some(0);
            }
        }
        let mut kept = place.iter_mut();
        let mut next = 0;
        self.extracts.retain(|_| match kept.next() {
            Some(Some(place)) => {
                *place = next;
                next += 1;
                true
            }
            _ => false,
        });
        for at in &mut order {
            *at = place.get(*at).copied().flatten().unwrap_or(*at);
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
        let text = render::write(self, &order, room, counter);
        if text.is_empty() && self.messages > 0 {
            // Emoji, punctuation: what cannot be told is counted, so that a list of it can be condensed.
            let count = format!("{} messages without words, up to #{}", self.messages, self.through);
            return if counter.text(&count) <= room { count } else { String::new() };
        }
        text
    }

    /// A text of at most `room` tokens: lines in order of time, then the names.
    #[must_use]
    pub fn render(&self, room: Tokens, counter: &Counter) -> String {
        render::render(self, room, counter)
    }

    /// Goes on with what a newer one knows of later messages: a long summary, and what a short one has
    /// after it.
    #[must_use]
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
        joined
    }

    /// Leaves out what a message says that is shown beside the summary word for word.
    pub fn hide(&mut self, message: &Message) {
        self.hide_at(message.seq, message);
    }

    /// The same for a message that has its place from elsewhere.
    pub fn hide_at(&mut self, seq: Seq, message: &Message) {
        self.extracts.retain(|extract| extract.seq != seq || extract.kind == Kind::Told);
        each_text(message, |voice, text| self.ledger.hide(voice, text));
    }

    /// The best lines of a text in at most `room` tokens; empty when none fits.
    #[must_use]
    pub fn shorten(text: &str, room: Tokens, counter: &Counter) -> String {
        Self::of_text(text, 0).render(room, counter)
    }

    /// The names it found.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The last message it knows.
    #[must_use]
    pub fn through(&self) -> Seq {
        self.through
    }

    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.extracts.is_empty() && self.ledger.is_empty()
    }
}

/// A little more than a limit: sizes are estimated when it is decided what is kept.
fn more(limit: Tokens) -> Tokens {
    limit.saturating_add(limit / 4)
}

/// The day of a moment, as `2026-11-15`.
fn day(at: Timestamp) -> String {
    let days = at.0.div_euclid(86_400_000);
    // Counted from 1 March of year 0, where leap days come last.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests;
