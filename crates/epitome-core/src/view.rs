//! Turns a planned layout into a message list that providers accept.
//!
//! [`render`](crate::context_texts::render) inserts the texts into a [`Layout`](crate::context::Layout) and repairs the
//! messages. The log itself does not change. The repair removes strays, adds a placeholder result to each unanswered
//! call, and places results directly after the reply that made the calls. It also converts arguments to JSON and makes
//! ids unique. The repair adds no content except placeholders, and the text of each placeholder shows that it is one.
//!
//! Before that, [`crate::context`] decides which messages are shown. Afterwards, the dialects handle the differences
//! between providers: the role of a peer, the characters allowed in an id, and whether two messages of the same role
//! must be merged.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::message::{Author, CallId, Message, Part, Role, ToolCall};
use crate::track::{OpenCalls, answers_calls, is_blank};

mod frame;

pub use frame::{FramedSummary, recognise, split, summary, summary_tokens};
pub(crate) use frame::{HISTORY, bare, joined};

/// Placeholder result in the view for a call that has no result in the log.
pub const NO_RESULT: &str = "[no result recorded]";

/// Text of the placeholder user message. The placeholder is inserted if a list would not start with a user message,
/// because providers reject such a list.
pub const NOTE: &str = "[…]";

/// Returns the placeholder result for an unanswered call.
pub fn marked_result(call: impl Into<CallId>) -> Message {
    Message::tool(call, NO_RESULT)
}

/// Returns the placeholder user message for a list that would not start with a user message.
pub fn note() -> Message {
    Message::user(NOTE)
}

/// Repairs a list. Valid messages are not removed. [`render`](crate::context_texts::render) repairs the messages of a
/// layout in the same way.
///
/// ```
/// use epitome_testkit::drawing::{draw, messages};
/// use epitome_core::view::repair;
///
/// // The log contains an orphaned result, an unanswered call and a late result.
/// let log = messages("u r(z) a(x) u r(x) a").unwrap();
/// assert_eq!(draw(&repair(log)), "u a(x) r(x):3 u a"); // the placeholder has three words
/// ```
pub fn repair(messages: impl IntoIterator<Item = Message>) -> Vec<Message> {
    let mut repairer = Repairer::default();
    messages.into_iter().for_each(|message| repairer.push(message));
    repairer.finish()
}

fn without_reasoning(message: Cow<'_, Message>) -> Message {
    let mut message = message.into_owned();
    message.parts.retain(|part| !matches!(part, Part::Thinking { .. }));
    message
}

fn has_words(message: &Message) -> bool {
    message.parts.iter().any(is_words)
}

fn is_words(part: &Part) -> bool {
    match part {
        Part::Text { text } => !is_blank(text),
        Part::Media(_) => true,
        Part::Thinking { .. } | Part::ToolCall(_) | Part::ToolResult(_) => false,
    }
}

/// Like [`repair`], for a list to which no further results are added. Every call without a result gets a placeholder.
pub(crate) fn repair_closed(messages: impl IntoIterator<Item = Message>) -> Vec<Message> {
    let mut repairer = Repairer::default();
    messages.into_iter().for_each(|message| repairer.push(message));
    repairer.seam();
    repairer.finish()
}

/// Repairs the order and form of messages so that every provider accepts them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Repairer {
    /// The finished messages. Callers share this list. It is copied only if a message is added while a caller still
    /// holds the list.
    out: Arc<Vec<Message>>,
    open: OpenCalls,
    /// The messages from the oldest open call on. They wait for the results of open calls.
    waiting: Vec<Waiting>,
    /// The number of uses of each call id in the list. Providers reject duplicate ids.
    used: HashMap<CallId, u32>,
    /// The item ids in the list. An item id is optional, so a duplicate item id is removed from its call.
    items: HashSet<CallId>,
    /// The peer whose messages are sent with the role of the assistant.
    pub(crate) assistant: Option<Author>,
    /// Whether the list starts inside the current tool loop, after the loop's first reasoning. If true, all reasoning
    /// of the loop is removed.
    pub(crate) strip_reasoning: bool,
}

/// A message that waits because a tool call before it has no result yet.
#[derive(Debug, Clone)]
enum Waiting {
    /// A reply with calls, and the results found so far.
    Reply { message: Message, calls: Vec<Call>, answers: Vec<Message> },
    /// Any other message. It is placed after the results of the last reply before it.
    Other(Message),
}

#[derive(Debug, Clone)]
struct Call {
    /// The call's id in the log.
    id: CallId,
    /// The call's id in the view.
    shown: CallId,
    answered: bool,
}

impl Repairer {
    /// Returns the finished messages. Messages that wait for a result are not included.
    pub(crate) fn done(&self) -> &[Message] {
        &self.out
    }

    /// Returns the finished messages as a shared list.
    pub(crate) fn shared(&self) -> Arc<Vec<Message>> {
        Arc::clone(&self.out)
    }

    fn out(&mut self) -> &mut Vec<Message> {
        Arc::make_mut(&mut self.out)
    }

    /// Returns the messages that wait for a result, in the form that they have if no further message is added.
    pub(crate) fn waiting(&self) -> Vec<Message> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        Self { waiting: self.waiting.clone(), ..Self::default() }.finish()
    }

    /// Inserts a message before position `at` of the finished messages.
    pub(crate) fn insert(&mut self, at: usize, message: Message) {
        let at = at.min(self.out.len());
        self.out().insert(at, message);
    }

    /// Adds a message at another position than in the log. The message then belongs to no tool loop, so its reasoning
    /// is removed.
    pub(crate) fn push_moved(&mut self, message: Cow<'_, Message>) {
        self.push(without_reasoning(message));
    }

    /// Adds a message at the same position as in the log.
    pub(crate) fn push_in_place(&mut self, message: Cow<'_, Message>) {
        let message = if self.strip_reasoning { without_reasoning(message) } else { message.into_owned() };
        let words = has_words(&message);
        let opens_turn = message.role.is_user() && words;
        // A message that contains only reasoning does not end a loop.
        let last_reply = message.role == Role::Assistant && words && message.calls().next().is_none();
        self.push(message);
        self.strip_reasoning &= !(opens_turn || (last_reply && self.open.calls.is_empty()));
    }

    pub(crate) fn push(&mut self, message: Message) {
        match message.role {
            Role::Assistant => self.reply(message),
            Role::System | Role::Developer => self.other(message),
            Role::Peer if self.assistant.is_some() && message.author == self.assistant => self.peer(message),
            Role::User | Role::Peer | Role::Tool => self.answer(message),
        }
        if self.open.calls.is_empty() {
            self.flush(false);
        }
    }

    fn reply(&mut self, mut message: Message) {
        let mut calls = Vec::new();
        let author = message.author.clone();
        self.open.reply(&author);
        if self.open.calls.is_empty() {
            self.flush(false);
        }
        message.parts.retain_mut(|part| match part {
            Part::ToolResult(_) => false,
            Part::ToolCall(call) => self.call(call, &author, &mut calls),
            Part::Thinking { .. } => true,
            words => is_words(words),
        });
        // Providers reject reasoning at the end of a reply. This occurs if the reply was cut off.
        while message.parts.pop_if(|part| matches!(part, Part::Thinking { .. })).is_some() {}
        if calls.is_empty() && !has_words(&message) {
            return;
        }
        match self.waiting.last_mut() {
            // The log contains one reply as several messages. These messages are joined here.
            Some(Waiting::Reply { message: first, calls: earlier, answers })
                if answers.is_empty() && first.author == message.author =>
            {
                first.parts.append(&mut message.parts);
                earlier.append(&mut calls);
                // A flag of one of these messages applies to the whole batch.
                first.pinned |= message.pinned;
                first.skip |= message.skip;
            }
            None if calls.is_empty() => self.out().push(message),
            _ => self.waiting.push(Waiting::Reply { message, calls, answers: Vec::new() }),
        }
    }

    /// Prepares a call for the view. Returns false if the call must be removed.
    fn call(&mut self, call: &mut ToolCall, author: &Option<Author>, calls: &mut Vec<Call>) -> bool {
        if !self.open.open(&call.id, call.item_id.as_ref(), author) {
            return false;
        }
        let shown = self.unique(&call.id);
        calls.push(Call { id: call.id.clone(), shown: shown.clone(), answered: false });
        call.id = shown;
        call.item_id.take_if(|item| !self.items.insert(item.clone()));
        if let Cow::Owned(repaired) = call.arguments_as_object() {
            call.arguments = repaired;
        } else if call.arguments.trim().is_empty() {
            "{}".clone_into(&mut call.arguments);
        }
        true
    }

    fn unique(&mut self, id: &CallId) -> CallId {
        let uses = self.used.entry(id.clone()).or_default();
        *uses += 1;
        let mut count = *uses;
        let mut shown = id.clone();
        while count > 1 {
            shown = CallId::from(format!("{id}_{count}"));
            if self.used.insert(shown.clone(), 1).is_none() {
                break;
            }
            count += 1;
        }
        shown
    }

    fn answer(&mut self, mut message: Message) {
        let spoken = message.role != Role::Tool && has_words(&message);
        let parts = std::mem::take(&mut message.parts);
        let mut call_author = None;
        for part in parts {
            match part {
                Part::ToolResult(mut result) if answers_calls(message.role) => {
                    let Some(call) = self.open.answer(&result.call, &message.author, call_author.as_ref())
                    else {
                        continue;
                    };
                    call_author.get_or_insert(call.author.clone());
                    // If several calls have this id, the newest one is used, because the older ones were abandoned.
                    let entry = self.waiting.iter_mut().rev().find_map(|entry| match entry {
                        Waiting::Reply { message, calls, answers } if message.author == call.author => {
                            let call = calls.iter_mut().find(|c| c.id == call.id && !c.answered)?;
                            Some((call, answers))
                        }
                        Waiting::Reply { .. } | Waiting::Other(_) => None,
                    });
                    if let Some((call, answers)) = entry {
                        call.answered = true;
                        result.call = call.shown.clone();
                        let parts = vec![Part::ToolResult(result)];
                        answers.push(Message { role: Role::Tool, parts, ..message.clone() });
                    }
                }
                words if spoken && is_words(&words) => message.parts.push(words),
                _ => {}
            }
        }
        if spoken {
            self.seam();
            self.out().push(message);
        }
    }

    /// Adds a message of the peer that is sent as the assistant. In the log, the message opened a turn, like a message
    /// of any other peer. It contains no calls.
    fn peer(&mut self, mut message: Message) {
        message.parts.retain(is_words);
        if !message.parts.is_empty() {
            self.seam();
            self.out().push(Message { role: Role::Assistant, ..message });
        }
    }

    fn other(&mut self, mut message: Message) {
        message.parts.retain(is_words);
        if message.parts.is_empty() {
            return;
        }
        if self.waiting.is_empty() {
            self.out().push(message);
        } else {
            self.waiting.push(Waiting::Other(message));
        }
    }

    /// Closes all open calls. These calls stay unanswered, and the waiting messages are moved to the finished messages.
    pub(crate) fn seam(&mut self) {
        self.open.calls.clear();
        self.flush(false);
    }

    /// Moves the waiting messages to the finished messages. Each reply is followed by its results and by a placeholder
    /// for each missing result. If `at_the_end` is true, the last reply gets no placeholders, because its results may
    /// still arrive.
    fn flush(&mut self, at_the_end: bool) {
        let entries = self.waiting.len();
        for (at, entry) in std::mem::take(&mut self.waiting).into_iter().enumerate() {
            match entry {
                Waiting::Other(message) => self.out().push(message),
                Waiting::Reply { message, calls, answers } => {
                    self.out().push(message);
                    self.out().extend(answers);
                    if !(at_the_end && at + 1 == entries) {
                        let unanswered = calls.into_iter().filter(|call| !call.answered);
                        self.out().extend(unanswered.map(|call| marked_result(call.shown)));
                    }
                }
            }
        }
    }

    pub(crate) fn finish(mut self) -> Vec<Message> {
        self.flush(true);
        Arc::unwrap_or_clone(self.out)
    }
}
