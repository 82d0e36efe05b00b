//! From a layout to the list a provider accepts.
//!
//! [`render`](crate::shelf::render) puts the words into a [`Layout`](crate::context::Layout) and mends what the log has wrong, without touching
//! the log: strays leave, a call nobody answered gets a marked result, results stand right behind
//! the reply that asked for them, arguments become JSON, ids become unique. Nothing is made up
//! beyond the marks, and every mark says what it is.
//!
//! Which messages are shown was decided before, by [`crate::context`]. How a provider spells them is
//! a dialect's matter: what a peer is called, which letters an id may have, whether two messages of
//! one role must be merged.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::message::{Author, CallId, Message, Part, Role, ToolCall};
use crate::track::{OpenCalls, answers_calls, is_blank};

mod frame;

pub use frame::{Found, recognise, split, summary, summary_tokens};
pub(crate) use frame::{HISTORY, bare, joined};

/// What a call is answered with in the view when the log holds no answer.
pub const NO_RESULT: &str = "[no result recorded]";

/// What stands first where no user message would. Providers refuse a list that starts otherwise.
pub const NOTE: &str = "[…]";

/// The marked result for a call nobody answered.
pub fn marked_result(call: impl Into<CallId>) -> Message {
    Message::tool(call, NO_RESULT)
}

/// The marked user message for a list that would not start with one.
pub fn note() -> Message {
    Message::user(NOTE)
}

/// Mends a list without choosing anything: what [`render`](crate::shelf::render) does to a layout's messages.
///
/// ```
/// use epitome_testkit::drawing::{draw, messages};
/// use epitome_core::view::mend;
///
/// // An orphan, a call nobody answered, a result that comes late.
/// let log = messages("u r(z) a(x) u r(x) a").unwrap();
/// assert_eq!(draw(&mend(log)), "u a(x) r(x):3 u a"); // three words: [no result recorded]
/// ```
pub fn mend(messages: impl IntoIterator<Item = Message>) -> Vec<Message> {
    let mut mender = Mender::default();
    messages.into_iter().for_each(|message| mender.push(message));
    mender.finish()
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

/// As [`mend`], for messages that nothing will answer any more: every call gets a result.
pub(crate) fn mend_closed(messages: impl IntoIterator<Item = Message>) -> Vec<Message> {
    let mut mender = Mender::default();
    messages.into_iter().for_each(|message| mender.push(message));
    mender.seam();
    mender.finish()
}

/// Puts messages into an order and a form that every provider accepts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mender {
    /// The list so far. Shared with whoever was shown it, and copied only where they still hold it when more comes.
    out: Arc<Vec<Message>>,
    open: OpenCalls,
    /// What was said since the oldest open call, waiting for its results.
    knot: Vec<Strand>,
    /// Ids already in the list, and how often each was used: no provider takes one twice.
    used: HashMap<CallId, u32>,
    /// Item ids already in the list. They may be left out, so a second use is.
    items: HashSet<CallId>,
    /// The peer whose messages are the assistant's.
    pub(crate) assistant: Option<Author>,
    /// Whether the loop under way was entered past its reasoning, which therefore leaves.
    pub(crate) stripping: bool,
}

/// A message in a knot.
#[derive(Debug, Clone)]
enum Strand {
    /// A reply with calls, and the answers found so far.
    Reply { message: Message, calls: Vec<Call>, answers: Vec<Message> },
    /// Anything else; comes out behind the results of the reply before it.
    Other(Message),
}

#[derive(Debug, Clone)]
struct Call {
    /// What the log calls it.
    id: CallId,
    /// What the view calls it.
    shown: CallId,
    answered: bool,
}

impl Mender {
    /// The list so far, but for what waits for a result.
    pub(crate) fn done(&self) -> &[Message] {
        &self.out
    }

    /// The same, to be kept.
    pub(crate) fn shared(&self) -> Arc<Vec<Message>> {
        Arc::clone(&self.out)
    }

    fn out(&mut self) -> &mut Vec<Message> {
        Arc::make_mut(&mut self.out)
    }

    /// What waits for a result, as it is shown when nothing more comes.
    pub(crate) fn waiting(&self) -> Vec<Message> {
        if self.knot.is_empty() {
            return Vec::new();
        }
        Self { knot: self.knot.clone(), ..Self::default() }.finish()
    }

    /// Puts a message of ours before the one at this place of the list so far.
    pub(crate) fn put(&mut self, at: usize, message: Message) {
        let at = at.min(self.out.len());
        self.out().insert(at, message);
    }

    /// A message out of its place: it belongs to no loop, so it brings no reasoning.
    pub(crate) fn keep(&mut self, message: Cow<'_, Message>) {
        self.push(without_reasoning(message));
    }

    /// A message in its place.
    pub(crate) fn take(&mut self, message: Cow<'_, Message>) {
        let message = if self.stripping { without_reasoning(message) } else { message.into_owned() };
        let words = has_words(&message);
        let opens_turn = message.role.is_user() && words;
        // Reasoning alone ends nothing.
        let last_reply = message.role == Role::Assistant && words && message.calls().next().is_none();
        self.push(message);
        self.stripping &= !(opens_turn || (last_reply && self.open.calls.is_empty()));
    }

    pub(crate) fn push(&mut self, message: Message) {
        match message.role {
            Role::Assistant => self.reply(message),
            Role::System | Role::Developer => self.other(message),
            Role::Peer if self.assistant.is_some() && message.author == self.assistant => self.peer(message),
            Role::User | Role::Peer | Role::Tool => self.answer(message),
        }
        if self.open.calls.is_empty() {
            self.untie(false);
        }
    }

    fn reply(&mut self, mut message: Message) {
        let mut calls = Vec::new();
        let author = message.author.clone();
        self.open.reply(&author);
        if self.open.calls.is_empty() {
            self.untie(false);
        }
        message.parts.retain_mut(|part| match part {
            Part::ToolResult(_) => false,
            Part::ToolCall(call) => self.call(call, &author, &mut calls),
            Part::Thinking { .. } => true,
            words => is_words(words),
        });
        // Reasoning that leads to nothing, as where a reply was cut off, is refused.
        while message.parts.pop_if(|part| matches!(part, Part::Thinking { .. })).is_some() {}
        if calls.is_empty() && !has_words(&message) {
            return;
        }
        match self.knot.last_mut() {
            // One reply that was logged in pieces.
            Some(Strand::Reply { message: first, calls: asked, answers })
                if answers.is_empty() && first.author == message.author =>
            {
                first.parts.append(&mut message.parts);
                asked.append(&mut calls);
                // What was said of a piece was said of the whole batch.
                first.pinned |= message.pinned;
                first.skip |= message.skip;
            }
            None if calls.is_empty() => self.out().push(message),
            _ => self.knot.push(Strand::Reply { message, calls, answers: Vec::new() }),
        }
    }

    /// Readies one call for the view; false when it must leave.
    fn call(&mut self, call: &mut ToolCall, author: &Option<Author>, calls: &mut Vec<Call>) -> bool {
        if !self.open.open(&call.id, call.item_id.as_ref(), author) {
            return false;
        }
        let shown = self.unique(&call.id);
        calls.push(Call { id: call.id.clone(), shown: shown.clone(), answered: false });
        call.id = shown;
        call.item_id.take_if(|item| !self.items.insert(item.clone()));
        if let Cow::Owned(mended) = call.arguments_as_object() {
            call.arguments = mended;
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
        let mut asker = None;
        for part in parts {
            match part {
                Part::ToolResult(mut result) if answers_calls(message.role) => {
                    let Some(call) = self.open.answer(&result.call, &message.author, asker.as_ref()) else {
                        continue;
                    };
                    asker.get_or_insert(call.author.clone());
                    // The newest call of that name: an older one was given up for it.
                    let strand = self.knot.iter_mut().rev().find_map(|strand| match strand {
                        Strand::Reply { message, calls, answers } if message.author == call.author => {
                            let call = calls.iter_mut().find(|c| c.id == call.id && !c.answered)?;
                            Some((call, answers))
                        }
                        Strand::Reply { .. } | Strand::Other(_) => None,
                    });
                    if let Some((call, answers)) = strand {
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

    /// The assistant among peers: it opened a turn like any of them, and calls nothing.
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
        if self.knot.is_empty() {
            self.out().push(message);
        } else {
            self.knot.push(Strand::Other(message));
        }
    }

    /// What is open here stays unanswered.
    pub(crate) fn seam(&mut self) {
        self.open.calls.clear();
        self.untie(false);
    }

    /// Brings the knot into order: each reply, its results, a mark for each that is missing. At the
    /// very end the last reply's open calls stay open.
    fn untie(&mut self, at_the_end: bool) {
        let strands = self.knot.len();
        for (at, strand) in std::mem::take(&mut self.knot).into_iter().enumerate() {
            match strand {
                Strand::Other(message) => self.out().push(message),
                Strand::Reply { message, calls, answers } => {
                    self.out().push(message);
                    self.out().extend(answers);
                    if !(at_the_end && at + 1 == strands) {
                        let unanswered = calls.into_iter().filter(|call| !call.answered);
                        self.out().extend(unanswered.map(|call| marked_result(call.shown)));
                    }
                }
            }
        }
    }

    pub(crate) fn finish(mut self) -> Vec<Message> {
        self.untie(true);
        Arc::unwrap_or_clone(self.out)
    }
}
