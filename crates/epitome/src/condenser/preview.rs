//! What would be done to a list, without doing it.

use std::collections::BTreeSet;

use epitome_core::condense::{Decision, Done, Facts, List, Plan, Policy, Press, Standing};
use epitome_core::message::{Message, Role, Seq, Tokens};
use epitome_core::trigger::Fraction;
use serde::{Deserialize, Serialize};

use super::Call;
use super::conversation::{Ahead, Conversation, Rules};

/// What would be done to a list, message by message. No model was asked and nothing is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preview {
    /// Whether the trigger is met, the list is forced, or it is larger than the window.
    pub due: bool,
    /// What is done: `condense`, or the name of why not.
    pub reason: String,
    /// The same for people.
    pub told: String,
    /// How far each condition of the trigger is: `tokens 4,100 of 170,000`.
    pub trigger: String,
    /// By which means.
    pub strategy: String,
    /// Who would be asked for a summary, where one would be.
    pub model: Option<String>,
    /// The request as it is, tools included.
    pub tokens: Tokens,
    /// The part of that which is not the list.
    pub fixed: Tokens,
    /// The most it would be afterwards.
    pub at_most: Tokens,
    /// The window less its output reserve, where known.
    pub window: Option<Tokens>,
    /// What becomes of each message, in order.
    pub messages: Vec<Fate>,
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fate {
    /// Its place in the list, from 1.
    pub place: Seq,
    /// In which role it was said.
    pub role: Role,
    /// Its size.
    pub tokens: Tokens,
    /// What is done with it.
    pub fate: Verdict,
}

/// What is done with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// It leaves. A summary tells of it where the strategy writes one.
    Leaves,
    /// It stays without what its tool gave back.
    Masked,
    /// It stays: one of the standing orders at the head.
    System,
    /// It stays: somebody pinned it.
    Pinned,
    /// It stays: what the user asked for last.
    LastRequest,
    /// It stays: one of the first, which `keep_first` protects.
    First,
    /// It stays: one of the newest, which are kept, or nothing is done.
    Kept,
}

impl Rules {
    /// What would be done to this list.
    pub(super) fn preview(&self, call: &Call<'_>, model: &str) -> Preview {
        let Call { messages, fixed, force, .. } = *call;
        let hash = std::hash::RandomState::new();
        let mut conversation = Conversation::begun(messages, None, self, &hash);
        let facts = conversation.facts_of(&Ahead::of(call), self);
        let (list, policy) = (&conversation.list, conversation.policy(self, &facts));
        let over = facts.room.is_some_and(|room| list.request(&facts) > room);
        let due = force.is_some() || over || list.due(policy, &facts, Fraction::ONE).is_now();
        // What would leave is told even where it is not time yet.
        let asked = Facts { force: facts.force.or(Some(Press::Gently)), ..facts };
        let tokens = list.request(&facts);
        let mut preview = Preview {
            due,
            reason: "condense".to_owned(),
            told: "due".to_owned(),
            trigger: list.gauges(policy, &facts).to_string(),
            strategy: policy.strategy.to_string(),
            model: None,
            tokens,
            fixed,
            at_most: tokens,
            window: facts.room,
            messages: Vec::new(),
        };
        let standing = match list.decide(messages, policy, &asked, &self.counter) {
            Decision::Unchanged(why) => {
                (preview.reason, preview.told) = (why.name().to_owned(), why.to_string());
                None
            }
            Decision::Done(done) => {
                preview.at_most = tokens.saturating_sub(saved(&done));
                Some(Done::standing(&done).clone())
            }
            Decision::Ask(plan) => {
                preview.model = Some(model.to_owned());
                let gone = plan.replaces().saturating_sub(plan.limit);
                preview.at_most = tokens.saturating_sub(gone);
                Some(Plan::standing(&plan).clone())
            }
        };
        if !due && preview.reason == "condense" {
            (preview.reason, preview.told) = ("not_due".to_owned(), "not due yet".to_owned());
        }
        preview.messages = fates(list, messages, standing.as_ref(), policy, self);
        preview
    }
}

fn saved(done: &Done) -> Tokens {
    done.report().tokens_before.saturating_sub(done.report().tokens_after)
}

fn fates(
    list: &List,
    messages: &[Message],
    standing: Option<&Standing>,
    policy: &Policy,
    rules: &Rules,
) -> Vec<Fate> {
    let kept: BTreeSet<Seq> =
        standing.map(|standing| standing.kept.iter().copied().collect()).unwrap_or_default();
    let leading = messages.iter().take_while(|message| message.role.is_system()).count() as Seq;
    let request =
        messages.iter().rposition(|message| message.role.is_user() && message.results().next().is_none());
    let first = leading.saturating_add(if list.summary().is_some() { 0 } else { policy.keep_first as Seq });
    let verdict = |place: Seq, message: &Message| {
        let Some(standing) = standing else { return Verdict::Kept };
        if place <= leading {
            return Verdict::System;
        }
        let stays = place > standing.from || kept.contains(&place);
        match stays {
            false => Verdict::Leaves,
            true if message.pinned => Verdict::Pinned,
            true if request.is_some_and(|at| at as Seq + 1 == place) => Verdict::LastRequest,
            true if place <= standing.masked && message.results().next().is_some() => Verdict::Masked,
            true if place <= first => Verdict::First,
            true => Verdict::Kept,
        }
    };
    let fate = |(place, message): (Seq, &Message)| Fate {
        place,
        role: message.role,
        tokens: rules.counter.message(message),
        fate: verdict(place, message),
    };
    (1..).zip(messages).map(fate).collect()
}
