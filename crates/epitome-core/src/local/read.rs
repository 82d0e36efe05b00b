//! Reads messages, and texts that summarize messages.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use super::{Extract, Extracts, MOST_PIECES, Origin, lines, pieces};
use crate::ledger;
use crate::message::{Message, Role, Seq, Timestamp, Tokens};
use crate::reading::{Voice, cleaned, each_text};

/// The task is part of every summary, up to this number of tokens.
const TASK: Tokens = 120;

/// Maximum number of calls whose tool names are stored, and the maximum length of a stored call id in bytes.
const CALLS: usize = 64;
const LONGEST_ID: usize = 256;

impl Extracts {
    /// Reads a text that summarizes messages, such as an author's own summary.
    pub fn read_summary(&mut self, author: &str, text: &str) {
        let speaker: Arc<str> = lines::name(author).into();
        let text = cleaned(text);
        let first = self.extracts.iter().map(|extract| extract.line).max().unwrap_or(0);
        let mut tools: HashSet<String> = HashSet::from(["tool".to_owned()]);
        for (line, nth) in text.lines().zip(first.saturating_add(1)..) {
            if let Some(names) = ledger::listed(line) {
                self.ledger.read_listed(&names);
                continue;
            }
            if let Some(own) = lines::read(line) {
                self.read_own_line(&own, &mut tools);
                continue;
            }
            self.ledger.read_text(Voice::Assistant, line);
            for piece in pieces::of_summary(line) {
                let extract = self.extract(self.through, Origin::Summary, &speaker, piece.into());
                self.extracts.push(Extract { line: nth, ..extract });
            }
        }
        self.bound();
    }

    /// Reads a line in the format of [`lines`], so that a caller that stored only the text of a summary can extend it.
    /// `tools` contains the names of the tools that were called in earlier lines.
    fn read_own_line(&mut self, line: &lines::ParsedLine<'_>, tools: &mut HashSet<String>) {
        // The line describes past messages, even if its label contains later positions.
        let last = if self.through == 0 { Seq::MAX } else { self.through };
        let through = line.through.min(last);
        let date = std::mem::replace(&mut self.date, line.date.map(Into::into));
        let mut task = !self.extracts.iter().any(|extract| extract.task);
        for turn in &line.turns {
            let seq = if task { line.from.min(through) } else { through };
            let (origin, voice) = match turn.speaker {
                "user" => (Origin::User, Voice::User),
                speaker => match speaker.rsplit_once(" calls ") {
                    Some((_, tool)) => {
                        tools.insert(tool.to_owned());
                        (Origin::Call, Voice::Assistant)
                    }
                    None if tools.contains(speaker) || speaker.starts_with("tool ") => {
                        (Origin::Output, Voice::Tool { call: "" })
                    }
                    None => (Origin::Assistant, Voice::Assistant),
                },
            };
            task &= origin == Origin::User;
            self.ledger.read_text(voice, &turn.text);
            for piece in pieces::of_summary(&turn.text) {
                let extract = self.extract(seq, origin, &turn.speaker.into(), piece.into());
                self.extracts.push(Extract { task, ..extract });
            }
        }
        self.date = date;
    }

    /// Reads one more message. Skipped messages, reasoning and media are left out. Pinned messages are left out too,
    /// because they are always shown verbatim.
    pub fn read(&mut self, message: &Message) {
        self.read_at(message.seq, message);
    }

    /// Reads the message at position `seq`. With 0, the message follows the last message read.
    pub fn read_at(&mut self, seq: Seq, message: &Message) {
        let seq = if seq == 0 { self.through.saturating_add(1) } else { seq };
        // A message that stayed verbatim for a long time is read after messages that come later in the log.
        let late = seq < self.through;
        self.through = self.through.max(seq);
        self.messages = self.messages.saturating_add(1);
        let tool = message.role == Role::Tool || message.calls().next().is_some();
        self.tools = self.tools.saturating_add(u64::from(tool));
        self.ledger.at(self.through);
        if message.skip || message.pinned {
            // A pinned message is shown next to every summary. If it is the task, the task needs no piece.
            self.has_read_task |= message.pinned && message.role.is_user();
            return;
        }
        // If messages contain their own dates, people refer to those days, and the message's timestamp does not matter.
        if message.at != Timestamp::default() && !self.has_dates {
            self.date = day(message.at).map(Into::into);
        }
        let role = message.role.to_string();
        let speaker: Arc<str> =
            lines::name_in_role(message.author.as_deref().unwrap_or_default(), &role).into();
        self.learn_calls(message);
        let mut speech = Speech {
            seq,
            task: message.role.is_user() && !self.has_read_task,
            task_size: 0,
            answers: std::mem::take(&mut self.after_question),
            has_question: false,
            speaker,
        };
        let mut calls: Vec<(usize, String, String)> = Vec::new();
        each_text(message, |voice, text| {
            let text = if matches!(voice, Voice::User | Voice::Assistant) { self.dated(text) } else { text };
            self.ledger.read_text(voice, text);
            match voice {
                Voice::User => self.read_speech(&mut speech, Origin::User, text),
                Voice::Assistant => self.read_speech(&mut speech, Origin::Assistant, text),
                Voice::Tool { call } => self.read_output(seq, call, text),
                Voice::Call { tool, nth, .. } => match calls.last_mut() {
                    Some((of, _, description)) if *of == nth => pieces::add_argument(description, text),
                    _ => {
                        let mut description = String::new();
                        pieces::add_argument(&mut description, text);
                        calls.push((
                            nth,
                            format!("{} calls {}", speech.speaker, lines::name(tool)),
                            description,
                        ));
                    }
                },
            }
        });
        for (_, caller, description) in
            calls.into_iter().filter(|(_, _, description)| !description.is_empty())
        {
            let extract = self.extract(seq, Origin::Call, &caller.into(), description.into());
            self.extracts.push(extract);
        }
        // A tool's output between a question and its answer does not separate them.
        self.after_question = speech.has_question || (speech.answers && tool);
        if late {
            self.extracts.sort_by_key(|extract| extract.seq);
        }
        self.bound();
    }

    /// If there are too many pieces, drops a quarter of them, so that pieces are not dropped again for every message.
    fn bound(&mut self) {
        if self.extracts.len() > MOST_PIECES {
            self.retain_best(Tokens::try_from(MOST_PIECES * 8).unwrap_or(Tokens::MAX), MOST_PIECES / 4 * 3);
        }
    }

    /// Stores the name of each tool that a message calls, by the call id that the result will contain.
    fn learn_calls(&mut self, message: &Message) {
        for call in message.calls() {
            if self.calls.len() >= CALLS {
                self.calls.remove(0);
            }
            // No provider uses ids this long. The result of such a call is shown with the name "tool".
            if call.id.len() <= LONGEST_ID {
                self.calls.push((call.id.clone(), lines::name_in_role(&call.name, "tool").into()));
            }
        }
    }

    /// Reads a text by a user, a peer or the assistant.
    fn read_speech(&mut self, speech: &mut Speech, origin: Origin, text: &str) {
        let found = pieces::of_speech(text);
        speech.has_question |= found.last().is_some_and(|piece| piece.ends_with(['?', '？', '؟']));
        let of_many = found.len() >= 3;
        for piece in found {
            let piece = pieces::without_fillers(piece);
            let mut extract = self.extract(speech.seq, origin, &speech.speaker, piece);
            // The first sentence is always part of the task, however long it is.
            let first = speech.task_size == 0;
            speech.task_size = speech.task_size.saturating_add(extract.size());
            extract.of_many = of_many;
            extract.answers = speech.answers && !speech.has_question;
            extract.task = speech.task && (first || speech.task_size <= TASK);
            self.extracts.push(extract);
            self.has_read_task |= speech.task;
        }
    }

    /// Reads the output of a tool.
    fn read_output(&mut self, seq: Seq, call: &str, text: &str) {
        let named = self.calls.iter().rfind(|(id, _)| **id == *call).map(|(_, tool)| tool.clone());
        let tool = named.unwrap_or_else(|| "tool".into());
        for piece in pieces::of_output(text) {
            let extract = self.extract(seq, Origin::Output, &tool, piece.into());
            self.extracts.push(Extract { of_many: true, ..extract });
        }
    }

    fn extract(&self, seq: Seq, origin: Origin, speaker: &Arc<str>, text: Cow<'_, str>) -> Extract {
        Extract {
            seq,
            speaker: speaker.clone(),
            origin,
            date: if origin == Origin::Summary { None } else { self.date.clone() },
            text: lines::on_one_line(text),
            ..Extract::default()
        }
    }

    /// Uses a date at the head of a text as the current day, and returns the rest of the text.
    fn dated<'t>(&mut self, text: &'t str) -> &'t str {
        match pieces::head_date(text) {
            Some((date, rest)) => {
                self.date = Some(date.into());
                self.has_dates = true;
                rest
            }
            None => text,
        }
    }
}

/// State while one message is read.
struct Speech {
    seq: Seq,
    speaker: Arc<str>,
    /// Whether the text may be the task: the first statement of a user.
    task: bool,
    task_size: Tokens,
    /// Whether the previous message ended with a question.
    answers: bool,
    /// Whether this message contains a question.
    has_question: bool,
}

/// Returns the day of a timestamp as `2026-11-15`; `None` outside the calendar's range.
pub(super) fn day(at: Timestamp) -> Option<String> {
    let at = jiff::Timestamp::from_millisecond(at.0).ok()?;
    Some(jiff::tz::Offset::UTC.to_datetime(at).date().to_string())
}
