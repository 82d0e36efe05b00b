//! Plays recorded conversations, message by message, and measures what an agent would have been given.
//!
//! A [`Policy`] says how the list is made that goes to the agent's model: everything, a context of the engine's for
//! a budget, or what the [`Condenser`](epitome::Condenser) makes of it. Before each reply of a recording the list is
//! made from what was said until then, by the real engine and its slots, and never from what comes later. What is
//! measured is told in [`crate::measure`].
//!
//! ```
//! # async fn try_it() -> Result<(), epitome::Error> {
//! use epitome::rules::message::Message;
//! use epitome_lab::play::{Conversation, Options, Policy, play};
//!
//! let mut messages = vec![Message::user("Please move the release to 14 March.")];
//! for n in 0..200 {
//!     messages.push(Message::assistant(format!("Step {n} is done.")));
//!     messages.push(Message::user("Go on."));
//! }
//! let conversation = Conversation { messages, ..Conversation::named("release") };
//! let outcomes = play(&conversation, &Policy::slots(), &Options { budgets: vec![500], ..Options::default() }, &mut |_| ()).await?;
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

use crate::measure::cost::Cost;
use crate::measure::{Mean, Question, Shown};

mod run;
#[cfg(test)]
mod tests;

pub use run::play;

/// A recorded conversation.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// What it is called.
    pub name: String,
    /// How many messages at its head are always shown: standing orders, the task.
    pub pinned: usize,
    /// What was said.
    pub messages: Vec<Message>,
    /// What was asked about it afterwards.
    pub questions: Vec<Question>,
}

impl Conversation {
    /// An empty one.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// How the list is made that goes to the agent's model.
#[derive(Debug, Clone)]
pub struct Policy {
    /// What it is called.
    pub name: String,
    /// By what means.
    pub form: Form,
    /// The settings that are other than the usual ones.
    pub patch: Patch,
}

/// By what means a list is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// Everything that was said: what it is all compared with.
    Whole,
    /// A context of the engine's, for each of the budgets.
    Context(ContextRequest),
    /// What the condenser makes of everything, for a model with this window.
    Inline {
        /// In tokens; nothing where the settings tell.
        window: Option<Tokens>,
    },
}

impl Policy {
    fn of(name: &str, form: Form) -> Self {
        Self { name: name.to_owned(), form, patch: Patch::default() }
    }

    /// Everything that was said.
    pub fn whole() -> Self {
        Self::of("whole", Form::Whole)
    }

    /// The newest messages that fit the budget, and nothing else.
    pub fn recent() -> Self {
        Self::of(
            "recent",
            Form::Context(ContextRequest { summary: false, fill: true, ..ContextRequest::default() }),
        )
    }

    /// Summaries by the engine's slots, and all of the budget spent.
    pub fn slots() -> Self {
        Self::of("slots", Form::Context(ContextRequest { fill: true, ..ContextRequest::default() }))
    }

    /// The same, and what was sent before stays as it was for as long as it can.
    pub fn steady() -> Self {
        Self::of("steady", Form::Context(ContextRequest { steady: true, ..ContextRequest::default() }))
    }

    /// The condenser, as the settings say.
    pub fn inline(window: Option<Tokens>) -> Self {
        Self::of("inline", Form::Inline { window })
    }
}

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The budgets that contexts are made for, the head that is always shown not counted.
    pub budgets: Vec<Tokens>,
    /// Whether every call is made and its cost told, or only the places looked at where something is needed.
    pub costs: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { budgets: vec![1_000, 2_000, 4_000, 8_000], costs: true }
    }
}

/// Something that was made on the way.
#[derive(Debug)]
pub enum Made<'a> {
    /// A context at a place where something is needed.
    Context {
        /// After so many messages.
        at: usize,
        /// For this budget.
        budget: Tokens,
        /// What it says.
        shown: &'a Shown,
        /// Its tokens, the head that is always shown not counted.
        tokens: Tokens,
    },
    /// What is sent for one reply.
    Request {
        /// For this budget, where there is one.
        budget: Option<Tokens>,
        /// The list.
        messages: &'a [Message],
        /// Their tokens, one by one; of a message with several results, those of each.
        tokens: &'a [Tokens],
    },
    /// What a model was asked for a summary.
    Summarizer {
        /// For this budget, where there is one.
        budget: Option<Tokens>,
        /// What went in.
        input: Tokens,
        /// What came out.
        output: Tokens,
    },
}

/// How far back a name was last seen, in tokens: up to each of these, and further.
pub const DISTANCES: [u64; 5] = [500, 1_000, 2_000, 4_000, 8_000];

/// What came of one conversation and one policy, for one budget.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Nothing where a policy knows no budget.
    pub budget: Option<Tokens>,
    /// Of the names that a call needs, how many the list still held.
    pub fer: Mean,
    /// Of those last seen long ago.
    pub fer_far: Mean,
    /// Of the questions, how many it answers.
    pub ar: Mean,
    /// How much of the evidence it tells.
    pub er: Mean,
    /// The first measure by [`DISTANCES`].
    pub by_distance: [Mean; DISTANCES.len() + 1],
    /// What the calls cost.
    pub cost: Cost,
    /// What they had cost after each, with a cache.
    #[serde(skip)]
    pub curve: Vec<f64>,
    /// How often what was sent before was not simply continued.
    pub cuts: u64,
    /// The size of what was looked at, the head that is always shown not counted.
    pub size: Mean,
    /// How often something was neither there nor in a summary: there was no room for it, and nobody has summed it up yet.
    pub gaps: u64,
    /// How often a provider would refuse a list, a promise was not kept, or a model wrote no summary.
    pub faulty: u64,
    /// The first of these, with their places.
    pub faults: Vec<String>,
}
