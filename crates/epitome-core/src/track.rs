//! Tracks open calls and tool loops message by message, and marks where the log may be cut.
//!
//! A summary can replace everything before a cut. Everything after the cut is sent to the model unchanged. Providers
//! reject a tool result without its call, and a call without its result. Therefore a cut is legal only where no call is
//! open. Inside a tool loop that started with reasoning, a cut is legal only before a message that has its own
//! reasoning.
//!
//! Logs are not always well formed. The tracker accepts every input:
//! - The first result of a call answers the call. A second result, a result without a call and a late result are
//!   *strays*. Strays stay in the log and are removed from the view.
//! - A call is *abandoned* if it is still open when the user speaks again. A call is also abandoned after its author
//!   has continued for [`PATIENCE`] rounds. An abandoned call does not block cuts. When it is shown, it gets a
//!   placeholder result.
//! - Blank text counts as no text.
//! - A call is also a stray if its author already has an open call with the same id.
//! - A call can have two ids, and a result may refer to the call by either id. If calls of two authors have the same
//!   id, the result answers the call of the result's own author. Later results of the same message prefer the author
//!   whose call was answered first.
//!
//! Adding a message takes O(1) time, because a [`Tracker`] stores only the open calls and the current loops, and no
//! history. The tracker writes its results into the message's [`Outline`] and never changes them later. [`crate::cut`]
//! chooses among the legal cuts.

use serde::{Deserialize, Serialize};

use crate::message::{Author, CallId, Message, Part, Role, Seq, Tokens};
use crate::outline::{Cut, Outline};
use crate::tokens::Counter;

/// Maximum number of open calls. The same maximum applies to tool loops. When it is reached, the oldest call or loop is
/// abandoned. The size of the state is therefore limited, even for a log with many unanswered calls.
pub const MAX_OPEN_CALLS: usize = 1_024;

/// Number of rounds after which an open call is abandoned. In a round, the author of the call receives other results
/// and then replies. A background tool may answer a few rounds late. But a call that is never answered must not block
/// condensing forever.
pub const PATIENCE: u32 = 8;

/// The tracking state of a session: the open calls, the current turn and the tool loops. The state is small. Store it
/// with the session, so that the next append does not need to read the history.
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
/// assert_eq!(called.cut, Cut::Legal);                  // a cut before the call is legal
/// assert_eq!(tracker.cut_at_end(), Cut::InCall);       // a cut after the call is not: the result is missing
/// let result = Message::new(Role::Tool, [Part::result("c1", "fn main() {}")]);
/// assert_eq!(tracker.push(&result, &counter).cut, Cut::InCall);
/// assert_eq!(tracker.cut_at_end(), Cut::Legal);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tracker {
    head: Seq,
    turn: u64,
    tokens: Tokens,
    /// Whether anything other than system messages was added.
    begun: bool,
    open: OpenCalls,
    /// Authors that are inside a tool loop which started with reasoning.
    loops: Vec<Option<Author>>,
}

impl Tracker {
    /// Returns the newest message's position; 0 in an empty session.
    pub fn head(&self) -> Seq {
        self.head
    }

    /// Returns the number of turns so far.
    pub fn turns(&self) -> u64 {
        self.turn
    }

    /// Returns the tokens of all messages so far.
    pub fn tokens(&self) -> Tokens {
        self.tokens
    }

    /// Returns the number of calls without a result.
    pub fn open_calls(&self) -> usize {
        self.open.calls.len()
    }

    /// Returns the number of this author's calls without a result.
    pub fn own_open_calls(&self, author: &Author) -> usize {
        self.open.open_for(&Some(author.clone()))
    }

    /// Returns what a cut after the newest message would separate. The next message may make an illegal cut legal, but
    /// never makes a legal cut illegal.
    pub fn cut_at_end(&self) -> Cut {
        cut_kind(!self.open.calls.is_empty(), !self.loops.is_empty())
    }

    /// Like [`Tracker::cut_at_end`], but only for the messages of one author.
    pub fn own_cut_at_end(&self, author: &Author) -> Cut {
        let author = Some(author.clone());
        cut_kind(self.open.is_open_for(&author), self.loops.contains(&author))
    }

    /// Adds the next message of the log and returns its outline. Accepts any input. The message gets the next position;
    /// its own `seq` is ignored.
    pub fn push(&mut self, message: &Message, counter: &Counter) -> Outline {
        self.push_sized(message, counter.message(message))
    }

    /// Like [`Tracker::push`], for a message whose tokens were counted before.
    pub fn push_sized(&mut self, message: &Message, tokens: Tokens) -> Outline {
        let stats = ContentStats::of(message);
        let opens_turn = message.role.is_user() && stats.has_text;
        // Reasoning alone is never shown, so it cannot start a loop.
        let thinks = stats.thinking
            && (stats.has_text || message.calls().any(|call| !self.open.has(&call.id, &message.author)));
        if message.role == Role::Assistant {
            self.open.reply(&message.author);
        }

        let calls_open = !self.open.calls.is_empty();
        let call_authors = self.answer_calls(message);
        // A result belongs to the author of the call, regardless of the message that contains it.
        let author = match call_authors.first() {
            Some(call_author) if !opens_turn => call_author.clone(),
            _ => message.author.clone(),
        };

        let fresh = opens_turn && call_authors.is_empty();
        let before = |call_open, in_loop, alone| match cut_kind(call_open, in_loop) {
            _ if fresh => Cut::Legal,
            Cut::InLoop if thinks && alone => Cut::Legal,
            kind => kind,
        };
        let alone = self.loops.iter().all(|a| *a == author);
        let cut = before(calls_open, !self.loops.is_empty(), alone);
        let own_open = call_authors.contains(&author) || self.open.is_open_for(&author);
        let own_cut = before(own_open, self.loops.contains(&author), true);

        if opens_turn {
            self.open.calls.clear();
            self.loops.clear();
            self.turn = self.turn.saturating_add(1);
        }
        let calls = self.take_calls(message, &author, thinks, stats.has_text);
        let answers = count(call_authors.len());

        let leading = message.role.is_system() && !self.begun;
        self.begun |= !message.role.is_system();
        self.head = self.head.saturating_add(1);
        let outline = Outline {
            seq: self.head,
            role: message.role,
            turn: self.turn,
            tokens,
            before: self.tokens,
            chars: stats.chars,
            longest: stats.longest,
            calls,
            answers,
            own_answers: count(call_authors.iter().filter(|call_author| **call_author == author).count()),
            open: count(self.open.calls.len()),
            own_open: count(self.open.open_for(&author)),
            leading,
            opens_turn,
            thinking: thinks,
            stray: !(stats.has_text || answers > 0 || calls > 0),
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

    /// Closes the calls that a message answers. Returns the author of each call.
    fn answer_calls(&mut self, message: &Message) -> Vec<Option<Author>> {
        let mut call_authors: Vec<Option<Author>> = Vec::new();
        if answers_calls(message.role) {
            for result in message.results() {
                if let Some(call) = self.open.answer(&result.call, &message.author, call_authors.first()) {
                    call_authors.push(call.author);
                }
            }
        }
        call_authors
    }

    /// Opens the calls of a reply. If the reply also contains reasoning, a tool loop starts. If the reply contains text
    /// and no calls, and no call of the author is open, the loop ends. Returns the number of opened calls.
    fn take_calls(
        &mut self,
        message: &Message,
        author: &Option<Author>,
        thinks: bool,
        has_text: bool,
    ) -> u32 {
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
        } else if calls == 0 && has_text && !self.open.is_open_for(author) {
            self.loops.retain(|a| a != author);
        }
        calls
    }
}

/// Converts a number of calls, which is at most [`MAX_OPEN_CALLS`].
fn count(calls: usize) -> u32 {
    u32::try_from(calls).unwrap_or(u32::MAX)
}

/// Returns whether a message of this role can answer calls. Providers do not accept results in messages of other roles.
pub(crate) fn answers_calls(role: Role) -> bool {
    matches!(role, Role::Tool | Role::User)
}

/// Returns whether the text is blank. Providers reject blank text, so it is ignored and never shown.
pub(crate) fn is_blank(text: &str) -> bool {
    text.trim_start().is_empty()
}

/// Returns what a cut at a position separates. The parameters say whether a call is open and whether a tool loop is in
/// progress at that position.
fn cut_kind(call_open: bool, in_loop: bool) -> Cut {
    match (call_open, in_loop) {
        (true, _) => Cut::InCall,
        (false, true) => Cut::InLoop,
        (false, false) => Cut::Legal,
    }
}

/// The properties of a message's content that the message's outline contains or needs.
#[derive(Default)]
struct ContentStats {
    /// Whether the message contains text or media outside of calls, results and reasoning.
    has_text: bool,
    thinking: bool,
    chars: u64,
    longest: u64,
}

impl ContentStats {
    fn of(message: &Message) -> Self {
        let mut stats = Self::default();
        for part in &message.parts {
            match part {
                Part::Text { text } => {
                    stats.has_text |= message.role != Role::Tool && !is_blank(text);
                    stats.text(text);
                }
                Part::Media(_) => stats.has_text |= message.role != Role::Tool,
                Part::Thinking { .. } => stats.thinking |= message.role == Role::Assistant,
                Part::ToolCall(call) => stats.text(&call.arguments),
                Part::ToolResult(result) => result.texts().for_each(|text| stats.text(text)),
            }
        }
        stats
    }

    fn text(&mut self, text: &str) {
        let chars = text.chars().count() as u64;
        self.chars = self.chars.saturating_add(chars);
        let trimmed = text.trim();
        let longest = if trimmed.len() == text.len() { chars } else { trimmed.chars().count() as u64 };
        self.longest = self.longest.max(longest);
    }
}

/// The calls without a result, oldest first.
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
    /// Whether the author of the call received another result since the author's last reply.
    passed_over: bool,
    /// Number of rounds in which the author of the call continued without the result of this call.
    rounds: u32,
}

impl OpenCalls {
    /// Adds an open call. Returns false if the call is a stray: its author already has an open call with this id.
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

    /// Records a reply of this author, and abandons calls that were open for too many rounds. A reply may be split into
    /// several messages. If no result arrives between these messages, they count as one round.
    pub(crate) fn reply(&mut self, author: &Option<Author>) {
        self.calls.retain_mut(|call| {
            if call.author == *author {
                call.rounds += u32::from(std::mem::take(&mut call.passed_over));
            }
            call.rounds < PATIENCE
        });
    }

    /// Removes and returns the call that this result answers. Returns `None` if no call matches. If several calls
    /// match, these rules decide, in this order:
    ///
    /// 1. A call of the author `before` is preferred. The same message already answered a call of this author.
    /// 2. A call with the id `id` is preferred to a call with the item id `id`.
    /// 3. A call of the message's own author is preferred.
    pub(crate) fn answer(
        &mut self,
        id: &CallId,
        author: &Option<Author>,
        before: Option<&Option<Author>>,
    ) -> Option<OpenCall> {
        let rank = |call: &OpenCall| {
            let by_id = call.id == *id;
            let named = by_id || call.item_id.as_ref() == Some(id);
            let other = before.is_some_and(|call_author| call.author != *call_author);
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
