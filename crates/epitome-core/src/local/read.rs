//! Taking in what was said: messages, and texts that stand for them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use super::{Extract, Extracts, Kind, MOST_PIECES, lines, pieces};
use crate::ledger;
use crate::message::{Message, Role, Seq, Timestamp, Tokens};
use crate::reading::{Voice, cleaned, each_text};

/// The tokens of the task that are always told.
const TASK: Tokens = 120;

/// The calls whose tools are remembered, and how long their ids may be.
const CALLS: usize = 64;
const LONGEST_ID: usize = 256;

impl Extracts {
    /// Takes in a text that stands for messages, as an author's own summary does.
    pub fn tell(&mut self, author: &str, text: &str) {
        let speaker: Arc<str> = lines::name(author).into();
        let text = cleaned(text);
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
                let extract = self.extract(self.through, Kind::Told, &speaker, piece.into());
                self.extracts.push(Extract { line: nth, ..extract });
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
                let extract = self.extract(seq, kind, &turn.speaker.into(), piece.into());
                self.extracts.push(Extract { task, ..extract });
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
        // Where people say themselves which day it is, that is the day they speak of; when it was written down is not.
        if message.at != Timestamp::default() && !self.tells_days {
            self.date = day(message.at).map(Into::into);
        }
        let role = message.role.to_string();
        let speaker: Arc<str> =
            lines::name_in_role(message.author.as_deref().unwrap_or_default(), &role).into();
        self.learn_calls(message);
        let mut speech = Speech {
            seq,
            task: message.role.is_user() && !self.tasked,
            told_of_task: 0,
            answers: std::mem::take(&mut self.asked),
            asks: false,
            speaker,
        };
        let mut calls: Vec<(usize, String, String)> = Vec::new();
        each_text(message, |voice, text| {
            let text = if matches!(voice, Voice::User | Voice::Assistant) { self.dated(text) } else { text };
            self.ledger.read_text(voice, text);
            match voice {
                Voice::User => self.read_speech(&mut speech, Kind::Asked, text),
                Voice::Assistant => self.read_speech(&mut speech, Kind::Said, text),
                Voice::Tool { call } => self.read_output(seq, call, text),
                Voice::Call { tool, nth, .. } => match calls.last_mut() {
                    Some((of, _, told)) if *of == nth => pieces::tell_of_call(told, text),
                    _ => {
                        let mut told = String::new();
                        pieces::tell_of_call(&mut told, text);
                        calls.push((nth, format!("{} calls {}", speech.speaker, lines::name(tool)), told));
                    }
                },
            }
        });
        for (_, caller, told) in calls.into_iter().filter(|(_, _, told)| !told.is_empty()) {
            let extract = self.extract(seq, Kind::Call, &caller.into(), told.into());
            self.extracts.push(extract);
        }
        // A tool's output between a question and its answer does not part them.
        self.asked = speech.asks || (speech.answers && tool);
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

    /// Remembers the names of the tools a message calls, by the ids their results will name.
    fn learn_calls(&mut self, message: &Message) {
        for call in message.calls() {
            if self.calls.len() >= CALLS {
                self.calls.remove(0);
            }
            // Nobody's ids are so long; a result by such a one is told as a tool's.
            if call.id.len() <= LONGEST_ID {
                self.calls.push((call.id.clone(), lines::name_in_role(&call.name, "tool").into()));
            }
        }
    }

    /// Takes in a text that somebody said.
    fn read_speech(&mut self, speech: &mut Speech, kind: Kind, text: &str) {
        let found = pieces::of_speech(text);
        speech.asks |= found.last().is_some_and(|piece| piece.ends_with(['?', '？', '؟']));
        let of_many = found.len() >= 3;
        for piece in found {
            let piece = pieces::without_fillers(piece);
            let mut extract = self.extract(speech.seq, kind, &speech.speaker, piece);
            // However long its first sentence is.
            let first = speech.told_of_task == 0;
            speech.told_of_task = speech.told_of_task.saturating_add(extract.size());
            extract.of_many = of_many;
            extract.answers = speech.answers && !speech.asks;
            extract.task = speech.task && (first || speech.told_of_task <= TASK);
            self.extracts.push(extract);
            self.tasked |= speech.task;
        }
    }

    /// Takes in what a tool gave back.
    fn read_output(&mut self, seq: Seq, call: &str, text: &str) {
        let named = self.calls.iter().rfind(|(id, _)| **id == *call).map(|(_, tool)| tool.clone());
        let tool = named.unwrap_or_else(|| "tool".into());
        for piece in pieces::of_output(text) {
            let extract = self.extract(seq, Kind::Output, &tool, piece.into());
            self.extracts.push(Extract { of_many: true, ..extract });
        }
    }

    fn extract(&self, seq: Seq, kind: Kind, speaker: &Arc<str>, text: Cow<'_, str>) -> Extract {
        Extract {
            seq,
            speaker: speaker.clone(),
            kind,
            date: if kind == Kind::Told { None } else { self.date.clone() },
            text: lines::on_one_line(text),
            ..Extract::default()
        }
    }

    /// Takes a date at the head of a text for the day it was said.
    fn dated<'t>(&mut self, text: &'t str) -> &'t str {
        match pieces::head_date(text) {
            Some((date, rest)) => {
                self.date = Some(date.into());
                self.tells_days = true;
                rest
            }
            None => text,
        }
    }
}

/// What is known of whoever speaks while one message is read.
struct Speech {
    seq: Seq,
    speaker: Arc<str>,
    /// Whether it may be the task: the first thing that a user says.
    task: bool,
    told_of_task: Tokens,
    /// Whether the message before asked something.
    answers: bool,
    /// Whether this one does.
    asks: bool,
}

/// The day of a moment, as `2026-11-15`; none where it is beyond all calendars.
pub(super) fn day(at: Timestamp) -> Option<String> {
    let at = jiff::Timestamp::from_millisecond(at.0).ok()?;
    Some(jiff::tz::Offset::UTC.to_datetime(at).date().to_string())
}
