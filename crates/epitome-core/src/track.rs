//! Following a log message by message: which calls are open, where it may be cut.
//!
//! Everything before a cut can be replaced by a summary; everything after it is sent to the model
//! as it was written. Providers refuse a tool result whose call they cannot see and a call without
//! its result, so a cut is legal only where no call is open. A tool loop opened by reasoning may be
//! entered only at a message that brings its own.
//!
//! Logs are not always well formed. Any input is lawful here:
//! - the first result of a call answers it; a second one, one that answers nothing and one that
//!   comes too late are *strays*, which stay in the log and leave the view;
//! - a call still open when the user speaks again, or after its author has gone on for
//!   [`PATIENCE`] rounds, is *abandoned*, so that it cannot block cuts for ever; when shown it gets
//!   a marked result;
//! - blank text says nothing;
//! - a call that repeats an open id of the same author is a stray too;
//! - a result may name its call by either of the call's ids; where two authors use the same one, it
//!   answers its own author's call before another's, and a message that answered somebody goes on
//!   answering them.
//!
//! One message costs O(1): a [`Tracker`] holds the open calls and the loops under way, nothing of
//! the history. What it finds is written into the message's [`Outline`] and never changes later.
//! Choosing among the legal cuts is [`crate::cut`]'s work.

use serde::{Deserialize, Serialize};

use crate::message::{Author, CallId, Message, Part, Role, Seq, Tokens};
use crate::outline::{Cut, Outline};
use crate::tokens::Counter;

/// More calls than this are never open at once, nor more loops under way; the oldest is abandoned to
/// make room, so that a log that only ever calls cannot grow the state without end.
pub const MAX_OPEN_CALLS: usize = 1_024;

/// How often an author may get other results and reply again before a call still open is given up.
/// An agent whose tools run in the background gets its answer a few rounds late; one that was never
/// answered must not keep an agent without a user from ever being condensed.
pub const PATIENCE: u32 = 8;

/// Where a session stands: its open calls, its turn, its loops. Small, and worth storing with the
/// session so that the next append need not look back.
///
/// ```
/// use epitome_core::message::{Message, Part, Role};
/// use epitome_core::outline::Cut;
/// use epitome_core::tokens::{Counter, Encoding};
/// use epitome_core::track::Tracker;
///
/// let counter = Counter::new(Encoding::O200k);
/// let mut tracker = Tracker::default();
/// tracker.push(&Message::user("What is in a.rs?"), &counter);
/// let call = Message::new(Role::Assistant, [Part::call("c1", "read", r#"{"path":"a.rs"}"#)]);
/// let called = tracker.push(&call, &counter);
/// assert_eq!(called.cut, Cut::Legal);                  // before the call: fine
/// assert_eq!(tracker.cut_at_end(), Cut::InCall);       // after it: its result is still to come
/// let result = Message::new(Role::Tool, [Part::result("c1", "fn main() {}")]);
/// assert_eq!(tracker.push(&result, &counter).cut, Cut::InCall);
/// assert_eq!(tracker.cut_at_end(), Cut::Legal);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tracker {
    head: Seq,
    turn: u64,
    tokens: Tokens,
    /// Whether anything but standing orders was said yet.
    begun: bool,
    open: OpenCalls,
    /// The authors who are inside a tool loop that reasoning opened.
    loops: Vec<Option<Author>>,
}

impl Tracker {
    /// The newest message's place; 0 in an empty session.
    pub fn head(&self) -> Seq {
        self.head
    }

    /// The turns begun so far.
    pub fn turns(&self) -> u64 {
        self.turn
    }

    /// The tokens of all messages so far.
    pub fn tokens(&self) -> Tokens {
        self.tokens
    }

    /// How many calls wait for their result.
    pub fn open_calls(&self) -> usize {
        self.open.calls.len()
    }

    /// How many of this author's calls wait for their result.
    pub fn own_open_calls(&self, author: &Author) -> usize {
        self.open.open_for(&Some(author.clone()))
    }

    /// What a cut after the newest message would part, as far as is known: the next message may
    /// settle it for the better, never for the worse.
    pub fn cut_at_end(&self) -> Cut {
        judge(!self.open.calls.is_empty(), !self.loops.is_empty())
    }

    /// The same among one author's messages only.
    pub fn own_cut_at_end(&self, author: &Author) -> Cut {
        let author = Some(author.clone());
        judge(self.open.is_open_for(&author), self.loops.contains(&author))
    }

    /// Adds the next message of the log and tells its shape. Total over any input. The message's
    /// place is the next one, whatever its own `seq` says.
    pub fn push(&mut self, message: &Message, counter: &Counter) -> Outline {
        self.push_sized(message, counter.message(message))
    }

    /// As [`Tracker::push`], for a message whose tokens were counted before.
    pub fn push_sized(&mut self, message: &Message, tokens: Tokens) -> Outline {
        let spoken = Spoken::of(message);
        let opens_turn = message.role.is_user() && spoken.words;
        // Reasoning alone is never shown, so it cannot open what follows.
        let thinks = spoken.thinking
            && (spoken.words || message.calls().any(|call| !self.open.has(&call.id, &message.author)));
        if message.role == Role::Assistant {
            self.open.reply(&message.author);
        }

        let calls_open = !self.open.calls.is_empty();
        let askers = self.answer_calls(message);
        // A result belongs to whoever asked for it, whoever carries it.
        let author = match askers.first() {
            Some(asker) if !opens_turn => asker.clone(),
            _ => message.author.clone(),
        };

        let fresh = opens_turn && askers.is_empty();
        let before = |call_open, in_loop, alone| match judge(call_open, in_loop) {
            _ if fresh => Cut::Legal,
            Cut::InLoop if thinks && alone => Cut::Legal,
            judged => judged,
        };
        let alone = self.loops.iter().all(|a| *a == author);
        let cut = before(calls_open, !self.loops.is_empty(), alone);
        let own_open = askers.contains(&author) || self.open.is_open_for(&author);
        let own_cut = before(own_open, self.loops.contains(&author), true);

        if opens_turn {
            self.open.calls.clear();
            self.loops.clear();
            self.turn = self.turn.saturating_add(1);
        }
        let calls = self.take_calls(message, &author, thinks, spoken.words);
        let answers = count(askers.len());

        let leading = message.role.is_system() && !self.begun;
        self.begun |= !message.role.is_system();
        self.head = self.head.saturating_add(1);
        let outline = Outline {
            seq: self.head,
            role: message.role,
            turn: self.turn,
            tokens,
            before: self.tokens,
            chars: spoken.chars,
            longest: spoken.longest,
            calls,
            answers,
            own_answers: count(askers.iter().filter(|asker| **asker == author).count()),
            open: count(self.open.calls.len()),
            own_open: count(self.open.open_for(&author)),
            leading,
            opens_turn,
            thinking: thinks,
            stray: !(spoken.words || answers > 0 || calls > 0),
            pinned: message.pinned,
            skip: message.skip,
            cut,
            own_cut,
            at: message.at,
            author,
        };
        self.tokens = self.tokens.saturating_add(tokens);
        outline
    }

    /// Closes the calls that a message answers. Tells who asked, for each of them.
    fn answer_calls(&mut self, message: &Message) -> Vec<Option<Author>> {
        let mut askers: Vec<Option<Author>> = Vec::new();
        if answers_calls(message.role) {
            for result in message.results() {
                if let Some(call) = self.open.answer(&result.call, &message.author, askers.first()) {
                    askers.push(call.author);
                }
            }
        }
        askers
    }

    /// Opens the calls of a reply, and with them a tool loop where it also thinks; a reply in words ends one. Tells how
    /// many were opened.
    fn take_calls(&mut self, message: &Message, author: &Option<Author>, thinks: bool, words: bool) -> u32 {
        let mut calls = 0u32;
        if message.role != Role::Assistant {
            return calls;
        }
        for call in message.calls() {
            calls += u32::from(self.open.open(&call.id, call.item_id.as_ref(), author));
        }
        if thinks && calls > 0 {
            if !self.loops.contains(author) {
                if self.loops.len() >= MAX_OPEN_CALLS {
                    self.loops.remove(0);
                }
                self.loops.push(author.clone());
            }
        } else if calls == 0 && words && !self.open.is_open_for(author) {
            self.loops.retain(|a| a != author);
        }
        calls
    }
}

/// Never more than [`MAX_OPEN_CALLS`].
fn count(calls: usize) -> u32 {
    u32::try_from(calls).unwrap_or(u32::MAX)
}

/// Whether results found in such a message count. Elsewhere no provider knows them.
pub(crate) fn answers_calls(role: Role) -> bool {
    matches!(role, Role::Tool | Role::User)
}

/// Providers refuse text that says nothing, so it counts for nothing and is never shown.
pub(crate) fn is_blank(text: &str) -> bool {
    text.trim_start().is_empty()
}

/// What a cut parts, given what is under way there.
fn judge(call_open: bool, in_loop: bool) -> Cut {
    match (call_open, in_loop) {
        (true, _) => Cut::InCall,
        (false, true) => Cut::InLoop,
        (false, false) => Cut::Legal,
    }
}

/// What of a message matters to its shape.
#[derive(Default)]
struct Spoken {
    /// It says something itself, apart from calls, results and reasoning.
    words: bool,
    thinking: bool,
    chars: u64,
    longest: u64,
}

impl Spoken {
    fn of(message: &Message) -> Self {
        let mut spoken = Self::default();
        for part in &message.parts {
            match part {
                Part::Text { text } => {
                    spoken.words |= message.role != Role::Tool && !is_blank(text);
                    spoken.text(text);
                }
                Part::Media(_) => spoken.words |= message.role != Role::Tool,
                Part::Thinking { .. } => spoken.thinking |= message.role == Role::Assistant,
                Part::ToolCall(call) => spoken.text(&call.arguments),
                Part::ToolResult(result) => result.texts().for_each(|text| spoken.text(text)),
            }
        }
        spoken
    }

    fn text(&mut self, text: &str) {
        let chars = text.chars().count() as u64;
        self.chars = self.chars.saturating_add(chars);
        let trimmed = text.trim();
        let longest = if trimmed.len() == text.len() { chars } else { trimmed.chars().count() as u64 };
        self.longest = self.longest.max(longest);
    }
}

/// The calls that wait for a result, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct OpenCalls {
    pub(crate) calls: Vec<OpenCall>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenCall {
    pub(crate) id: CallId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    item_id: Option<CallId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) author: Option<Author>,
    /// Whether its author got another result since it last replied.
    passed_over: bool,
    /// The rounds its author went on without it.
    rounds: u32,
}

impl OpenCalls {
    /// Waits for this call's result. False for a stray: a call of that name waits already.
    pub(crate) fn open(&mut self, id: &CallId, item_id: Option<&CallId>, author: &Option<Author>) -> bool {
        if self.has(id, author) {
            return false;
        }
        if self.calls.len() >= MAX_OPEN_CALLS {
            self.calls.remove(0);
        }
        self.calls.push(OpenCall {
            id: id.clone(),
            item_id: item_id.cloned(),
            author: author.clone(),
            passed_over: false,
            rounds: 0,
        });
        true
    }

    /// Its author replies. Calls that were waited for too long are given up; pieces of one reply,
    /// with no result between them, are one round.
    pub(crate) fn reply(&mut self, author: &Option<Author>) {
        self.calls.retain_mut(|call| {
            if call.author == *author {
                call.rounds += u32::from(std::mem::take(&mut call.passed_over));
            }
            call.rounds < PATIENCE
        });
    }

    /// Takes away the call this result answers: one of whoever the message answered before, then one
    /// by that id before one by that item id, then the author's own before another's.
    pub(crate) fn answer(
        &mut self,
        id: &CallId,
        author: &Option<Author>,
        before: Option<&Option<Author>>,
    ) -> Option<OpenCall> {
        let rank = |call: &OpenCall| {
            let by_id = call.id == *id;
            let named = by_id || call.item_id.as_ref() == Some(id);
            let other = before.is_some_and(|asker| call.author != *asker);
            named.then_some((other, !by_id, call.author != *author))
        };
        let ranked = self.calls.iter().enumerate().filter_map(|(at, call)| Some((rank(call)?, at)));
        let (_, found) = ranked.min()?;
        let answered = self.calls.remove(found);
        for call in self.calls.iter_mut().filter(|call| call.author == answered.author) {
            call.passed_over = true;
        }
        Some(answered)
    }

    fn has(&self, id: &CallId, author: &Option<Author>) -> bool {
        self.calls.iter().any(|call| call.id == *id && call.author == *author)
    }

    fn is_open_for(&self, author: &Option<Author>) -> bool {
        self.open_for(author) > 0
    }

    fn open_for(&self, author: &Option<Author>) -> usize {
        self.calls.iter().filter(|call| call.author == *author).count()
    }
}
