//! Making a list shorter before it is sent: the inline form.
//!
//! An agent's list of messages grows until it no longer fits, or costs more than it is worth. One
//! step here looks at such a list and says what to do: nothing, and why; something that can be done
//! at once; or ask a model for a summary of these messages, and come back with the answer. Every
//! step makes the list strictly smaller, by a worthwhile part, or leaves it exactly as it was.
//!
//! What is handed out is, in this order:
//!
//! 1. the standing orders at the head, and while no summary stands the first `keep_first` messages;
//! 2. pinned messages, and the last user message where it would otherwise leave;
//! 3. the summary;
//! 4. what was kept, and everything that is said later.
//!
//! Between two condensations that list only grows at its end, so prompt caches hit. The caller may
//! go on with the full history and the same [`List`], or store the shorter list and start with a
//! fresh one: a summary of ours is recognised and built upon.
//!
//! Where a list may be cut is [`crate::cut`]'s matter, what a valid list looks like
//! [`crate::view`]'s, and [`crate::strategy`] says by which means. Who writes the summary, and
//! whether its text is any good, is not known here.
//!
//! ```
//! use epitome_core::condense::{Decision, Facts, List, Policy};
//! use epitome_testkit::drawing::{draw, messages, word_counter};
//! use epitome_core::message::Timestamp;
//!
//! let counter = word_counter();
//! let policy = Policy { trigger: "messages(8)".parse().unwrap(), ..Policy::default() };
//! let history = messages("s u:90 a:90 u:90 a:90 u a u a u a").unwrap();
//!
//! // 1. Before each call: take in what is new, and decide.
//! let mut list = List::default();
//! list.advance(&history, &counter);
//! let decision = list.decide(&history, &policy, &Facts::at(Timestamp(0)), &counter);
//!
//! // 2. Somebody writes a summary of what leaves.
//! let Decision::Ask(plan) = decision else { panic!("due at 8") };
//! let said: Vec<_> = plan.read(&history).map(|message| message.seq).collect();
//! assert_eq!(said, [2, 3, 4, 5]);
//!
//! // 3. The answer goes in, if it makes the list smaller.
//! let report = plan.finish(&mut list, &history, "They spoke of four things.", &counter).unwrap();
//! assert_eq!(report.notice, "Condensed 4 messages into a summary: 367 tokens are now 23");
//! assert_eq!(draw(&list.shown(&history)), "s u:16 u a u a u a");
//! ```
//!
//! # With a model
//!
//! What it is asked is [`crate::prompt`]'s matter, and its answer is inspected before it is taken:
//!
//! ```
//! use epitome_core::condense::Plan;
//! use epitome_core::inspect::{Finish, Inspected, Refusal, Standard, inspect};
//! use epitome_core::ledger::Ledger;
//! use epitome_core::message::Message;
//! use epitome_core::prompt::{Input, Profile, Said, prompt};
//! use epitome_core::slot::Limit;
//! use epitome_core::tokens::Counter;
//!
//! fn asked(plan: &Plan, history: &[Message], counter: &Counter, model: &dyn Fn(&str, &str) -> String)
//! -> Result<Inspected, Box<dyn std::error::Error>> {
//!     let read: Vec<_> = plan.read(history).collect();
//!     let said: Vec<Said<'_>> = read.iter().map(|message| Said::Message(message)).collect();
//!     let (template, limit) = (Profile::Coding.template(), Limit::Tokens(plan.limit));
//!     let input = Input { previous: plan.prior.as_deref(), ..Input::new(&template, &said, limit, 100_000, counter) };
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

mod divide;
mod done;
mod draft;
mod list;
mod mask;
mod plan;
mod sheet;
mod step;

pub use done::Done;
pub use list::{List, Prior, Standing};
pub use plan::Plan;

pub use crate::cut::Press;
pub use crate::tokens::rescaled;

/// No summary can say anything in fewer tokens.
pub const LEAST_LIMIT: Tokens = 16;

/// When, how and how far a list is condensed.
///
/// ```
/// use epitome_core::condense::Policy;
///
/// let policy: Policy = serde_json::from_str(r#"{"strategy": "amortized", "keep_first": 2}"#).unwrap();
/// assert_eq!(policy.trigger.to_string(), "any(tokens(170000), window(0.75))");
/// assert!(policy.check(Some(128_000)).is_ok());
/// assert_eq!(
///     policy.check(None).unwrap_err().to_string(),
///     "trigger: window(0.75): the model's window is not known; set `window` for its model"
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// By which means.
    pub strategy: Strategy,
    /// When. `tokens` and `window` measure the whole request.
    pub trigger: Trigger,
    /// How much of the newest stays, for strategies that do not say so themselves.
    pub keep: Option<Keep>,
    /// How many messages after the leading ones stay. Falls to 0 once a summary stands: a head that
    /// was protected anew at every pass would outlive its meaning.
    pub keep_first: usize,
    /// The part of the request that a condensation must save.
    pub worth: Fraction,
    /// The most tokens a summary may have.
    #[serde(rename = "max_tokens")]
    pub limit: Tokens,
    /// In which role the summary is sent.
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
    /// Refuses a policy that could not work, by the name of what is wrong. `room` is the model's
    /// window less its output reserve, where that is known.
    pub fn check(&self, room: Option<Tokens>) -> Result<(), SettingError> {
        self.strategy.check(room).map_err(SettingError::of("strategy"))?;
        self.trigger.check(Use::Inline, room).map_err(SettingError::of("trigger"))?;
        self.keep.map_or(Ok(()), |keep| keep.check(room)).map_err(SettingError::of("keep"))?;
        if self.limit < LEAST_LIMIT {
            let problem = format!("{} given; at least {LEAST_LIMIT} is needed", self.limit);
            return Err(SettingError::new("max_tokens", problem));
        }
        Ok(())
    }
}

/// In which role a summary is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SummaryRole {
    /// As the user's, which every provider takes anywhere.
    #[default]
    User,
    /// As a standing order, for who asks for it.
    System,
}

/// What a step is decided by, besides the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The moment of asking.
    pub now: Timestamp,
    /// The model's window less its output reserve, where known.
    pub room: Option<Tokens>,
    /// What [`crate::economic::threshold`] gave.
    pub economic: Option<Tokens>,
    /// What the request holds besides the list: tools, chiefly.
    pub fixed: Tokens,
    /// The size of the whole request, where the caller knows it better than by counting: the
    /// provider's own count decides.
    pub request: Option<Tokens>,
    /// Whether to go on when nothing is due: gently, as when a person asks for it, or hard, as when
    /// the provider found the request too long.
    pub force: Option<Press>,
}

impl Facts {
    /// Nothing known but the moment.
    pub fn at(now: Timestamp) -> Self {
        Self { now, room: None, economic: None, fixed: 0, request: None, force: None }
    }
}

impl List {
    /// The size of the whole request: what the provider said, else what was counted.
    pub fn request(&self, facts: &Facts) -> Tokens {
        facts.request.unwrap_or(self.counted(facts))
    }

    /// The size of the whole request as it is counted here.
    pub(super) fn counted(&self, facts: &Facts) -> Tokens {
        self.tokens().saturating_add(facts.fixed)
    }

    /// As many tokens of the provider's as these are of ours, by what it said of the whole request.
    pub fn as_theirs(&self, ours: Tokens, facts: &Facts) -> Tokens {
        rescaled(ours, self.request(facts), self.counted(facts))
    }

    /// As many tokens of ours as these are of the provider's.
    pub fn as_ours(&self, theirs: Tokens, facts: &Facts) -> Tokens {
        rescaled(theirs, self.counted(facts), self.request(facts))
    }

    /// When the trigger is met, every threshold multiplied by `scale`: [`trigger::SOFT`] for when to
    /// prepare, [`Fraction::ONE`] for when to act. Costs the size of the trigger.
    pub fn due(&self, policy: &Policy, facts: &Facts, scale: Fraction) -> When {
        policy.trigger.when_scaled(&self.trigger_facts(facts), scale)
    }

    /// What the trigger is judged by.
    pub fn trigger_facts(&self, facts: &Facts) -> trigger::Facts<'_> {
        trigger::Facts {
            request: Some(self.request(facts)),
            room: facts.room,
            economic: facts.economic,
            ..trigger::Facts::new(self.totals(), facts.now)
        }
    }
}

/// What to do with a list.
#[derive(Debug, Clone)]
pub enum Decision {
    /// Nothing, and why.
    Unchanged(Unchanged),
    /// This, which needs no model. [`Done::apply`] accepts it.
    Done(Box<Done>),
    /// Ask for a summary. [`Plan::finish`] takes the answer.
    Ask(Box<Plan>),
}

/// Why a list stays as it is.
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
    /// Nothing lies before what is to be kept.
    #[error("everything is kept")]
    AllKept,
    /// Something could go, but it belongs together with what is kept.
    #[error("no legal cut: what could go belongs together with what is kept")]
    NoLegalCut,
    /// All that would leave is skipped, a stray, or always stays.
    #[error("nothing to say: what would leave is skipped, stray or pinned")]
    NothingToSay,
    /// No tool output is old and large enough.
    #[error("nothing to mask: no tool output is old and large enough")]
    NothingToMask,
    /// It would be smaller, but by too little.
    #[error("not worth it: it would save {} tokens, and {} are needed", grouped(*saves), grouped(*needed))]
    NotWorth {
        /// What it would save.
        saves: Tokens,
        /// What it must save.
        needed: Tokens,
    },
    /// The result would be no smaller.
    #[error("not smaller: {} tokens would become {}", grouped(*before), grouped(*after))]
    NotSmaller {
        /// The size it has.
        before: Tokens,
        /// The size it would have.
        after: Tokens,
    },
    /// What always stays is larger than the model's room, so that condensing cannot help.
    #[error(
        "over budget elsewhere: tools, standing orders, pinned messages and the newest message alone \
         are {} tokens, and there is room for {}",
        grouped(*needs),
        grouped(*room)
    )]
    OverBudgetElsewhere {
        /// The size of what always stays.
        needs: Tokens,
        /// The room there is.
        room: Tokens,
    },
    /// The model said nothing.
    #[error("the model's answer is empty")]
    EmptyAnswer,
    /// The list was condensed by somebody else meanwhile.
    #[error("overtaken: the list was condensed or grew meanwhile")]
    Overtaken,
}

impl Unchanged {
    /// Its name, as serde writes it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotDue => "not_due",
            Self::Noop => "noop",
            Self::AllKept => "all_kept",
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

/// What was done to a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The strategies that did it, in order.
    pub strategy: String,
    /// How many messages would have been sent.
    pub messages_before: u64,
    /// How many are.
    pub messages_after: u64,
    /// The tokens that would have been sent, tools included.
    pub tokens_before: Tokens,
    /// The tokens that are.
    pub tokens_after: Tokens,
    /// The first and the last message of the caller's list, from 1, that are no longer there word for
    /// word: summarized, dropped or masked. Those that always stay may lie between them.
    pub covers: Option<[Seq; 2]>,
    /// The same for people.
    pub notice: String,
}

/// So many of something, for people.
fn count(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}
