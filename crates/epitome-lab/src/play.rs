//! Plays recorded conversations, message by message, and measures the lists that an agent's model would have received.
//!
//! A [`Policy`] defines how the list for the agent's model is built: all messages, a context from the engine for a budget,
//! or the result of the [`Condenser`](epitome::Condenser). Before each reply in a recording, the real engine or condenser
//! builds the list from the messages until then; later messages are never used. [`crate::evaluation`] describes the
//! measures.
//!
//! ```
//! # async fn try_it() -> Result<(), epitome::Error> {
//! use epitome::rules::message::Message;
//! use epitome_lab::play::{Conversation, PlayOptions, Policy, play};
//!
//! let mut messages = vec![Message::user("Please move the release to 14 March.")];
//! for n in 0..200 {
//!     messages.push(Message::assistant(format!("Step {n} is done.")));
//!     messages.push(Message::user("Go on."));
//! }
//! let conversation = Conversation { messages, ..Conversation::named("release") };
//! let options = PlayOptions { budgets: vec![500], ..PlayOptions::default() };
//! let outcomes = play(&conversation, &Policy::slots(), &options, &mut |_| ()).await?;
//! assert_eq!(outcomes[0].cost.calls, 200);
//! assert!(outcomes[0].cost.peak <= 500 && outcomes[0].faults.is_empty());
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
//! ```

use epitome::ContextRequest;
use epitome::rules::message::{Message, Tokens};
use epitome::settings::Patch;
use serde::Serialize;

use crate::evaluation::cost::Cost;
use crate::evaluation::{Mean, Question, Shown};

mod run;
#[cfg(test)]
mod tests;

pub use run::play;

/// A recorded conversation.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// The conversation's name.
    pub name: String,
    /// Number of messages at the beginning that are always shown, for example the system prompt and the task.
    pub pinned: usize,
    /// The messages.
    pub messages: Vec<Message>,
    /// Questions about the conversation.
    pub questions: Vec<Question>,
}

impl Conversation {
    /// Creates an empty conversation.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// How the list for the agent's model is built.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The policy's name in tables.
    pub name: String,
    /// The method.
    pub method: ListMethod,
    /// Settings that differ from the defaults.
    pub patch: Patch,
}

/// The method by which a list is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListMethod {
    /// All messages: the baseline of every comparison.
    Whole,
    /// A context from the engine, for each of the budgets.
    Context(ContextRequest),
    /// The result of the condenser, for a model with this window.
    Inline {
        /// The window in tokens; `None` takes it from the settings.
        window: Option<Tokens>,
    },
}

impl Policy {
    fn of(name: &str, method: ListMethod) -> Self {
        Self { name: name.to_owned(), method, patch: Patch::default() }
    }

    /// Sends all messages.
    pub fn whole() -> Self {
        Self::of("whole", ListMethod::Whole)
    }

    /// Sends only the newest messages that fit the budget.
    pub fn recent() -> Self {
        Self::of(
            "recent",
            ListMethod::Context(ContextRequest { summary: false, fill: true, ..ContextRequest::default() }),
        )
    }

    /// Sends the slots' summaries and fills the rest of the budget with messages.
    pub fn slots() -> Self {
        Self::of("slots", ListMethod::Context(ContextRequest { fill: true, ..ContextRequest::default() }))
    }

    /// Like [`slots`](Self::slots), but the beginning of the list changes as rarely as possible.
    pub fn steady() -> Self {
        Self::of("steady", ListMethod::Context(ContextRequest { steady: true, ..ContextRequest::default() }))
    }

    /// Sends the result of the condenser with the policy's settings.
    pub fn inline(window: Option<Tokens>) -> Self {
        Self::of("inline", ListMethod::Inline { window })
    }
}

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlayOptions {
    /// Budgets of the contexts, in tokens. The messages that are always shown are not counted.
    pub budgets: Vec<Tokens>,
    /// Whether every model call is played to measure the cost. If false, only the measured positions are played.
    pub costs: bool,
}

impl Default for PlayOptions {
    fn default() -> Self {
        Self { budgets: vec![1_000, 2_000, 4_000, 8_000], costs: true }
    }
}

/// A context, a request or a summary that a policy produced during the replay.
#[derive(Debug)]
pub enum ReplayEvent<'a> {
    /// A context at a measured position.
    Context {
        /// The number of messages before this position.
        at: usize,
        /// The budget.
        budget: Tokens,
        /// The content.
        shown: &'a Shown,
        /// The tokens, without the messages that are always shown.
        tokens: Tokens,
    },
    /// The request for one reply.
    Request {
        /// The budget, if the policy has one.
        budget: Option<Tokens>,
        /// The message list.
        messages: &'a [Message],
        /// The tokens of each message; a message with several results has one entry per result.
        tokens: &'a [Tokens],
    },
    /// A model call that wrote a summary.
    Summarizer {
        /// The budget, if the policy has one.
        budget: Option<Tokens>,
        /// Input tokens.
        input: Tokens,
        /// Output tokens.
        output: Tokens,
    },
}

/// Upper bounds of the distance classes, in tokens since a name was last seen. A further class has no upper bound.
pub const DISTANCES: [u64; 5] = [500, 1_000, 2_000, 4_000, 8_000];

/// The result of one conversation and one policy, for one budget.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// The budget; `None` if the policy has none.
    pub budget: Option<Tokens>,
    /// FER: the share of the names a call needs that the list still contains.
    pub fer: Mean,
    /// FERfar: the same for names last seen far back.
    pub fer_far: Mean,
    /// AR: the share of the questions that the list answers.
    pub ar: Mean,
    /// ER: the share of the evidence that the list contains.
    pub er: Mean,
    /// FER for each class of [`DISTANCES`].
    pub by_distance: [Mean; DISTANCES.len() + 1],
    /// Cost of the calls.
    pub cost: Cost,
    /// Running total of the cost after each call, with a prompt cache.
    #[serde(skip)]
    pub curve: Vec<f64>,
    /// Number of requests that do not begin with the whole previous request.
    pub cuts: u64,
    /// Size of the measured lists in tokens, without the messages that are always shown.
    pub size: Mean,
    /// Number of contexts that leave out messages which no summary covers. They did not fit the budget, and no summary of
    /// them had been written yet.
    pub gaps: u64,
    /// Number of faults: a provider rejects a list, a guarantee was broken, or a model wrote no summary.
    pub faulty: u64,
    /// The first faults, with their positions.
    pub faults: Vec<String>,
}
