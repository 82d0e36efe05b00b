//! Plays recorded conversations, message by message, and measures the lists that an agent's model would have received.
//!
//! A [`Policy`] is a way to build the list for the agent's model. The list is all messages, a context from the engine
//! for a budget, or the result of the [`Condenser`](epitome::Condenser). Before each reply in a recording, the real
//! engine or condenser builds the list from the earlier messages. Later messages are never used. [`crate::evaluation`]
//! describes the measures.
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
use crate::evaluation::{ListedChars, Mean, Question, Shown};

mod run;
#[cfg(test)]
mod tests;

pub use run::play;

/// A recorded conversation.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// The conversation's name.
    pub name: String,
    /// Number of messages at the beginning that are always shown, for example the system prompt and the task. Every
    /// list contains these messages.
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

/// A way to build the list for the agent's model.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The policy's name in tables.
    pub name: String,
    /// The method that builds the list.
    pub method: ListMethod,
    /// Settings that differ from the defaults.
    pub patch: Patch,
}

/// The method that builds a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListMethod {
    /// The list has all messages. Other methods are compared with this baseline.
    Whole,
    /// The list is a context from the engine. A context is requested for each budget of [`PlayOptions::budgets`].
    Context(ContextRequest),
    /// The list is the result of the condenser.
    Inline {
        /// Window of the agent's model, in tokens; `None` uses the window from the settings.
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

    /// Sends only the newest messages that fit the budget, without a summary.
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

/// Options for playing a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlayOptions {
    /// Budgets of the contexts, in tokens. The messages that are always shown are not counted.
    pub budgets: Vec<Tokens>,
    /// Whether a list is built before every model call, to measure the cost. If false, lists are built only at the
    /// positions where the measures are computed.
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
        /// Number of messages before this position.
        at: usize,
        /// Budget of the context, in tokens.
        budget: Tokens,
        /// Texts of the context.
        shown: &'a Shown,
        /// Tokens of the context, without the messages that are always shown.
        tokens: Tokens,
    },
    /// The request that the agent's model would have received for one reply.
    Request {
        /// Budget in tokens; `None` if the policy has no budget.
        budget: Option<Tokens>,
        /// The message list.
        messages: &'a [Message],
        /// The tokens of each message. A message with several tool results has one entry per result.
        tokens: &'a [Tokens],
    },
    /// A model call that wrote a summary.
    Summarizer {
        /// Budget in tokens; `None` if the policy has no budget.
        budget: Option<Tokens>,
        /// Input tokens.
        input: Tokens,
        /// Output tokens.
        output: Tokens,
    },
}

/// Upper bounds of the distance classes, in tokens between the last message that contains a name and the call that uses
/// the name. One more class has no upper bound.
pub const DISTANCES: [u64; 5] = [500, 1_000, 2_000, 4_000, 8_000];

/// The result of one conversation and one policy, for one budget.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Budget in tokens; `None` if the policy has no budget.
    pub budget: Option<Tokens>,
    /// FER: of the names that calls need, the share that the list still contains.
    pub fer: Mean,
    /// FEM: of the same names, the share that the list contains together with what was said about them.
    pub fem: Mean,
    /// FERfar: like FER, but only for names that are [far back](crate::evaluation::FAR).
    pub fer_far: Mean,
    /// AR: the share of the questions whose answer the list contains.
    pub ar: Mean,
    /// ER: the share of the evidence that the list contains.
    pub er: Mean,
    /// FER for each distance class of [`DISTANCES`], and for the class without an upper bound.
    pub by_distance: [Mean; DISTANCES.len() + 1],
    /// Cost of all requests.
    pub cost: Cost,
    /// For each call, the total cost of this call and all earlier calls, with a prompt cache.
    #[serde(skip)]
    pub curve: Vec<f64>,
    /// Number of requests that do not begin with the whole previous request.
    pub cuts: u64,
    /// How much of the measured summaries is bare lists of names.
    pub lists: ListedChars,
    /// Size of the measured lists in tokens, without the messages that are always shown.
    pub size: Mean,
    /// Number of contexts that leave out messages which no summary covers. These messages did not fit the budget, and
    /// no summary of them existed yet.
    pub gaps: u64,
    /// Number of faults. A fault is a list that a provider rejects, a list over its budget, or a failure of the
    /// summarizer.
    pub faulty: u64,
    /// Texts of the first faults, with their positions.
    pub faults: Vec<String>,
}
