//! Condenses a message list before the caller sends the list to a model. No stored log is needed.
//!
//! An agent's message list grows until the list no longer fits the model's window or becomes too expensive.
//! [`List::decide`] returns a [`Decision`], which is one of three:
//!
//! - Do nothing. The decision contains the reason.
//! - Apply a shorter list. No model is needed.
//! - Write a summary, and pass the summary to [`CondensePlan::finish`].
//!
//! A condensation must save a minimum number of tokens (see [`Policy::worth`]). If it saves less, the list does not
//! change.
//!
//! A condensed list consists of these messages, in this order:
//!
//! 1. The system messages at the start of the list. If the list has no summary, the next `keep_first` messages follow.
//! 2. The pinned messages. The last user message is added if it is older than the messages of item 4.
//! 3. The summary.
//! 4. The messages that stay verbatim, and every message that is added later.
//!
//! Between two condensations, the list only grows at its end. The prompt cache of the provider therefore stays valid.
//! After a condensation, the caller has two options. The caller can continue with the full history and the same
//! [`List`]. Or the caller can store the shorter list and start with a new [`List`]: the new [`List`] recognises the
//! summary that Epitome wrote, and the next summary extends that summary.
//!
//! [`crate::cut`] decides where a list may be cut, [`crate::view`] defines a valid list, and [`crate::strategy`]
//! defines the methods. This module does not write summaries and does not check their text.
//!
//! ```
//! use epitome_core::condense::{Decision, RequestFacts, List, Policy};
//! use epitome_testkit::drawing::{draw, messages, word_counter};
//! use epitome_core::message::Timestamp;
//!
//! let counter = word_counter();
//! let policy = Policy { trigger: "messages(8)".parse().unwrap(), ..Policy::default() };
//! let history = messages("s u:90 a:90 u:90 a:90 u a u a u a").unwrap();
//!
//! // 1. Before each model call: add the new messages to the list, and decide.
//! let mut list = List::default();
//! list.advance(&history, &counter);
//! let decision = list.decide(&history, &policy, &RequestFacts::at(Timestamp(0)), &counter);
//!
//! // 2. A model or `local` writes a summary of the messages that leave the list.
//! let Decision::Summarize(plan) = decision else { panic!("due at 8") };
//! let read: Vec<_> = plan.read(&history).map(|message| message.seq).collect();
//! assert_eq!(read, [2, 3, 4, 5]);
//!
//! // 3. `finish` puts the summary into the list if this saves enough tokens.
//! let report = plan.finish(&mut list, &history, "They spoke of four things.", &counter).unwrap();
//! assert_eq!(report.notice, "Condensed 4 messages into a summary: 367 tokens are now 23");
//! assert_eq!(draw(&list.shown(&history)), "s u:16 u a u a u a");
//! ```
//!
//! # With a model
//!
//! [`crate::prompt`] builds the prompt, and [`crate::inspect`] checks the answer before it is used:
//!
//! ```
//! use epitome_core::condense::CondensePlan;
//! use epitome_core::inspect::{Finish, Inspected, Refusal, Standard, inspect};
//! use epitome_core::ledger::Ledger;
//! use epitome_core::message::Message;
//! use epitome_core::prompt::{PromptInput, Profile, TranscriptEntry, prompt};
//! use epitome_core::slot::Limit;
//! use epitome_core::tokens::Counter;
//!
//! fn summary(plan: &CondensePlan, history: &[Message], counter: &Counter, model: &dyn Fn(&str, &str) -> String)
//! -> Result<Inspected, Box<dyn std::error::Error>> {
//!     let read: Vec<_> = plan.read(history).collect();
//!     let entries: Vec<TranscriptEntry<'_>> = read.iter().map(|message| TranscriptEntry::Message(message)).collect();
//!     let (template, limit) = (Profile::Coding.template(), Limit::Tokens(plan.limit));
//!     let previous = plan.prior.as_deref();
//!     let input = PromptInput { previous, ..PromptInput::new(&template, &entries, limit, 100_000, counter) };
//!     let prompt = prompt(&input)?;
//!     let answer = model(&prompt.system, &prompt.user);
//!
//!     let mut ledger = Ledger::default();
//!     read.iter().for_each(|message| ledger.read(message));
//!     let names: Vec<&str> = ledger.ranked().take(30).collect();
//!     let (replaces, prior) = (plan.replaces, plan.prior.as_deref());
//!     let standard = Standard { limit, replaces, prior, names: &names, counter, redact: true };
//!     Ok(inspect(&answer, Finish::Complete, &standard)?)
//! }
//! ```

use serde::{Deserialize, Serialize};

use crate::keep::Keep;
use crate::message::{Seq, Timestamp, Tokens};
use crate::setting::SettingError;
use crate::strategy::Strategy;
use crate::trigger::{self, Fraction, Trigger, Use, When, grouped};

mod decide;
mod divide;
mod draft;
mod list;
mod list_view;
mod mask;
mod plan;
mod shorter_list;

pub use list::{List, ListState, ListSummary};
pub use plan::CondensePlan;
pub use shorter_list::ShorterList;

pub use crate::cut::Press;
pub use crate::tokens::rescaled;

/// Smallest accepted token limit for a summary. A shorter text cannot contain anything useful.
pub const LEAST_LIMIT: Tokens = 16;

/// Configures when a list is condensed, by which strategy, and to what size.
///
/// ```
/// use epitome_core::condense::Policy;
///
/// let policy: Policy = serde_json::from_str(r#"{"strategy": "amortized", "keep_first": 2}"#).unwrap();
/// assert_eq!(policy.trigger.to_string(), "any(tokens(170000), window(0.75))");
/// assert!(policy.check(Some(128_000)).is_ok());
/// assert_eq!(
///     policy.check(None).unwrap_err().to_string(),
///     "trigger: window(0.75): the model's window is unknown; set `window` for that model"
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Strategy by which the list is condensed.
    pub strategy: Strategy,
    /// Condition under which the list is condensed. The conditions `tokens` and `window` measure the whole request.
    pub trigger: Trigger,
    /// The newest messages that stay verbatim. A keep inside the strategy overrides this field. If both are missing,
    /// the default of the strategy applies.
    pub keep: Option<Keep>,
    /// Number of messages that stay verbatim at the start of the list, after the leading system messages. Once the list
    /// contains a summary, this number counts as 0. Otherwise these messages would stay long after they matter.
    pub keep_first: usize,
    /// Minimum share of the request's tokens that a condensation must save.
    pub worth: Fraction,
    /// Maximum number of tokens of a summary.
    #[serde(rename = "max_tokens")]
    pub limit: Tokens,
    /// Role of the message that contains the summary.
    pub summary_role: SummaryRole,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            trigger: Trigger::any([Trigger::Tokens(170_000), Trigger::Window(Fraction::percent(75))]),
            keep: None,
            keep_first: 0,
            worth: Fraction::percent(10),
            limit: 4_000,
            summary_role: SummaryRole::User,
        }
    }
}

impl Policy {
    /// Returns an error if the policy cannot work. The error names the invalid setting. `room` is the model's window
    /// minus its output reserve, in tokens; `None` if unknown.
    pub fn check(&self, room: Option<Tokens>) -> Result<(), SettingError> {
        self.strategy.check(room).map_err(SettingError::of("strategy"))?;
        self.trigger.check(Use::Inline, room).map_err(SettingError::of("trigger"))?;
        self.keep.map_or(Ok(()), |keep| keep.check(room)).map_err(SettingError::of("keep"))?;
        if self.limit < LEAST_LIMIT {
            let problem = format!("{} is too small; a summary needs at least {LEAST_LIMIT}", self.limit);
            return Err(SettingError::new("max_tokens", problem));
        }
        Ok(())
    }
}

/// Role in which a summary is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SummaryRole {
    /// The summary is sent as a user message. Every provider accepts a user message at any position.
    #[default]
    User,
    /// The summary is sent as a system message.
    System,
}

/// Inputs of a decision, in addition to the list and the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestFacts {
    /// The current time.
    pub now: Timestamp,
    /// The model's window minus its output reserve, in tokens; `None` if unknown.
    pub room: Option<Tokens>,
    /// Request size at which condensing costs least, in tokens. [`crate::economic::threshold`] computes this size.
    /// `None` if unknown.
    pub economic: Option<Tokens>,
    /// Number of tokens of the request outside of the list. These are mainly tool definitions.
    pub fixed: Tokens,
    /// Size of the whole request in tokens, as counted by the provider. If this is `None`, the local count is used.
    pub request: Option<Tokens>,
    /// If set, the list is condensed even if the trigger is not met. Set `Gently` if a person requested the
    /// condensation. Set `Hard` if the provider rejected the request as too long.
    pub force: Option<Press>,
}

impl RequestFacts {
    /// Creates facts with this timestamp. Every other fact is `None` or 0.
    pub fn at(now: Timestamp) -> Self {
        Self { now, room: None, economic: None, fixed: 0, request: None, force: None }
    }
}

impl List {
    /// Returns the size of the whole request in tokens: the provider's count if there is one, otherwise the local
    /// count.
    pub fn request(&self, facts: &RequestFacts) -> Tokens {
        facts.request.unwrap_or(self.counted(facts))
    }

    /// Returns the size of the whole request in tokens, by the local count.
    pub(super) fn counted(&self, facts: &RequestFacts) -> Tokens {
        self.tokens().saturating_add(facts.fixed)
    }

    /// Converts a local token count into the provider's token count. The factor is the provider's count of the whole
    /// request, divided by the local count of the same request.
    pub fn to_provider_tokens(&self, ours: Tokens, facts: &RequestFacts) -> Tokens {
        rescaled(ours, self.request(facts), self.counted(facts))
    }

    /// Converts the provider's token count into a local token count.
    pub fn to_local_tokens(&self, theirs: Tokens, facts: &RequestFacts) -> Tokens {
        rescaled(theirs, self.counted(facts), self.request(facts))
    }

    /// Returns when the trigger is met. Every threshold of the trigger is multiplied by `scale`. With
    /// [`trigger::SOFT`], the result is the time to prepare a summary in advance. With [`Fraction::ONE`], the result is
    /// the time to condense. The running time depends only on the size of the trigger expression.
    pub fn due(&self, policy: &Policy, facts: &RequestFacts, scale: Fraction) -> When {
        policy.trigger.when_scaled(&self.trigger_facts(facts), scale)
    }

    /// Returns the facts by which the trigger is evaluated.
    pub fn trigger_facts(&self, facts: &RequestFacts) -> trigger::TriggerFacts<'_> {
        trigger::TriggerFacts {
            request: Some(self.request(facts)),
            room: facts.room,
            economic: facts.economic,
            ..trigger::TriggerFacts::new(self.totals(), facts.now)
        }
    }
}

/// The result of [`List::decide`].
#[derive(Debug, Clone)]
pub enum Decision {
    /// Do nothing. The value contains the reason.
    Unchanged(Unchanged),
    /// Apply this shorter list with [`ShorterList::apply`]. No model is needed.
    Apply(Box<ShorterList>),
    /// Write a summary for this plan, and pass it to [`CondensePlan::finish`].
    Summarize(Box<CondensePlan>),
}

/// The reason why a list stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unchanged {
    /// The trigger is not met.
    #[error("not due")]
    NotDue,
    /// The strategy does nothing.
    #[error("the strategy does nothing")]
    Noop,
    /// No message is older than the part that stays verbatim.
    #[error("nothing to condense: the part that stays verbatim contains every message")]
    #[serde(rename = "all_kept")]
    AllVerbatim,
    /// The list contains older messages, but no cut before the part that stays is allowed. A cut must not separate a
    /// tool call from its result, or the replies of a tool loop from the loop's reasoning.
    #[error(
        "no legal cut: a tool call or reasoning loop connects the older messages with the part that stays"
    )]
    NoLegalCut,
    /// Every message that would leave the list is flagged `skip` or is a stray (see [`crate::track`]).
    #[error("nothing to summarize: the older messages are skipped, stray or pinned")]
    NothingToSay,
    /// No tool output is both old enough and large enough to be masked.
    #[error("nothing to mask: no tool output is both old enough and large enough")]
    NothingToMask,
    /// The list would become smaller, but the saving is below the minimum.
    #[error(
        "not worth it: condensing would save {} tokens; the minimum is {} tokens",
        grouped(*saves),
        grouped(*needed)
    )]
    NotWorth {
        /// Tokens that the condensation would save.
        saves: Tokens,
        /// Minimum number of tokens that the condensation must save.
        needed: Tokens,
    },
    /// The condensed list would not be smaller than the current list.
    #[error("not smaller: condensing would turn {} tokens into {} tokens", grouped(*before), grouped(*after))]
    NotSmaller {
        /// Current size in tokens.
        before: Tokens,
        /// Size in tokens after the condensation.
        after: Tokens,
    },
    /// The part of the request that always stays is larger than the model's window. Condensing cannot help.
    #[error(
        "over budget elsewhere: tools, system messages, pinned messages and the newest message alone \
         have {} tokens; the limit is {} tokens",
        grouped(*needs),
        grouped(*room)
    )]
    OverBudgetElsewhere {
        /// Number of tokens of the part that always stays.
        needs: Tokens,
        /// Number of available tokens: the window minus the output reserve.
        room: Tokens,
    },
    /// The model returned an empty answer.
    #[error("the model's answer is empty")]
    EmptyAnswer,
    /// The list was condensed, or grew, after the decision was made.
    #[error("overtaken: the list was condensed or grew after the decision was made")]
    Overtaken,
}

impl Unchanged {
    /// Returns the serialized name of the reason.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotDue => "not_due",
            Self::Noop => "noop",
            Self::AllVerbatim => "all_kept",
            Self::NoLegalCut => "no_legal_cut",
            Self::NothingToSay => "nothing_to_say",
            Self::NothingToMask => "nothing_to_mask",
            Self::NotWorth { .. } => "not_worth",
            Self::NotSmaller { .. } => "not_smaller",
            Self::OverBudgetElsewhere { .. } => "over_budget_elsewhere",
            Self::EmptyAnswer => "empty_answer",
            Self::Overtaken => "overtaken",
        }
    }
}

/// Describes a condensation that was applied to a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CondenseReport {
    /// Names of the strategies that were applied, in order, separated by ` + `.
    pub strategy: String,
    /// Number of messages in the list before the condensation.
    pub messages_before: u64,
    /// Number of messages in the list after the condensation.
    pub messages_after: u64,
    /// Number of tokens of the request before the condensation, tool definitions included.
    pub tokens_before: Tokens,
    /// Number of tokens of the request after the condensation, tool definitions included.
    pub tokens_after: Tokens,
    /// Positions of the first and the last message that are no longer sent verbatim, because they were summarized,
    /// dropped or masked. Positions in the caller's list start at 1. Messages that always stay may lie between the two
    /// positions. `None` if every message is still sent verbatim.
    pub covers: Option<[Seq; 2]>,
    /// Description of the change, for display to people.
    pub notice: String,
}

/// Formats a number and a noun, for display to people. Appends a plural `s` to the noun if the number is not 1.
fn count(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}
