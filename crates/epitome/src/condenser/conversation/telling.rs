//! Builds the reports of a turn: for the caller and for hooks.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::Arc;

use epitome_core::condense::{self, Press, Standing, Unchanged};
use epitome_core::economic::Growth;
use epitome_core::local::Extracts;
use epitome_core::message::{Message, Seq, Tokens};
use epitome_core::tokens::Factor;
use serde::{Deserialize, Serialize};

use super::state::{Progress, Untold};
use super::{Conversation, Look, Rules};
use crate::condenser::ready::{Report, Spent};
use crate::condenser::scribe::Written;
use crate::fingerprint::Prints;
use crate::hook::grouped;
use crate::writer::Who;

/// Maximum number of problems that are stored until the next report.
const MOST_PROBLEMS: usize = 32;

/// Values for the next report.
#[derive(Default)]
pub(super) struct Notes {
    spent: Vec<Spent>,
    problems: VecDeque<String>,
    /// What had left the list after the last condensation.
    pub(super) left: Left,
}

/// The state to store of a conversation in order to continue it later: what was done to its list and what was learned
/// about its provider. Of the conversation's text it contains only the summary.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// What was done to the list.
    pub standing: Standing,
    /// The extracts that the summary was made of, if `local` wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) extracts: Option<Arc<Extracts>>,
    #[serde(default)]
    growth: Growth,
    #[serde(default)]
    factor: Factor,
    /// The largest input that the provider accepts, learned from a rejection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    room: Option<Tokens>,
    /// What the model has not read yet, while a fallback summary is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    untold: Option<Untold>,
}

/// What had left the list after a condensation.
#[derive(Default)]
pub(super) struct Left {
    from: Seq,
    masked: Seq,
    kept: Vec<Seq>,
}

impl Conversation {
    /// Stores spending and problems for the next report.
    pub(in crate::condenser) fn note(&mut self, spent: Vec<Spent>, problems: Vec<String>) {
        self.notes.spent.extend(spent);
        self.notes.problems.extend(problems);
        let most = self.notes.problems.len().saturating_sub(MOST_PROBLEMS);
        self.notes.problems.drain(..most);
    }

    /// Returns the report of a list that stays unchanged.
    pub(super) fn unchanged(&mut self, why: &Unchanged, look: &Look<'_>) -> Report {
        let said = if *why == Unchanged::NotDue { String::new() } else { format!("; unchanged: {why}") };
        self.plain(why.name(), &said, look)
    }

    pub(super) fn model_failed(&mut self, look: &Look<'_>) -> Report {
        self.plain(Report::MODEL_FAILED, "; unchanged: the model wrote no summary", look)
    }

    /// Returns a report with only a reason and an addition to its notice.
    pub(super) fn plain(&mut self, reason: &str, said: &str, look: &Look<'_>) -> Report {
        let Look { rules, facts, .. } = look;
        let tokens = self.list.request(facts);
        let messages = self.list.shown_len() as u64;
        Report {
            condensed: false,
            reason: reason.to_owned(),
            strategy: rules.policy.strategy.to_string(),
            messages_before: messages,
            messages_after: messages,
            tokens_before: tokens,
            tokens_after: tokens,
            notice: format!("{}{said}", used(tokens, facts.room)),
            window: facts.room,
            percent: percent(tokens, facts.room),
            spent: take(&mut self.notes.spent),
            problems: self.notes.problems.drain(..).collect(),
            ..Report::default()
        }
    }

    /// Returns the report of a list that was shortened.
    pub(super) fn condensed(
        &mut self,
        done: condense::Report,
        written: Option<(&Written, Who)>,
        before: Tokens,
        look: &Look<'_>,
    ) -> Report {
        let facts = &look.facts;
        let reason = match (self.counts.too_long, facts.force) {
            (true, _) | (_, Some(Press::Hard)) => "too_long",
            (_, Some(Press::Gently)) => "forced",
            _ => "due",
        };
        self.changes = self.changes.wrapping_add(1);
        self.counts.condensed(before, self.list.standing().rounds);
        (self.pauses.resting, self.pauses.unprepared) = (None, None);
        if let Some((written, _)) = written {
            self.extracts = written.extracts.clone();
        }
        let report = self.plain(reason, "", look);
        Report {
            condensed: true,
            strategy: done.strategy,
            messages_before: done.messages_before,
            messages_after: done.messages_after,
            tokens_before: done.tokens_before,
            tokens_after: done.tokens_after,
            covers: done.covers,
            model: written.map(|(written, _)| written.model.clone()),
            stand_in: written.is_some_and(|(_, who)| who == Who::StandIn),
            notice: done.notice,
            percent: percent(done.tokens_after, facts.room),
            ..report
        }
    }

    /// Returns the state to store.
    pub(in crate::condenser) fn kept(&self) -> Kept {
        Kept {
            standing: self.list.standing().clone(),
            extracts: self.extracts.clone(),
            growth: self.counts.growth,
            factor: self.counts.factor,
            room: self.counts.room,
            untold: self.progress.untold.clone(),
        }
    }

    /// Restores the stored state, except for the list, which is restored separately.
    pub(in crate::condenser) fn take_up(&mut self, kept: &Kept) {
        self.extracts.clone_from(&kept.extracts);
        (self.counts.factor, self.counts.room) = (kept.factor, kept.room);
        self.progress = Progress { untold: kept.untold.clone(), ..Progress::default() };
        if kept.growth.calls() > 0 {
            self.counts.growth = kept.growth;
        }
    }

    /// Stores the fingerprints of the list returned right after a condensation.
    pub(in crate::condenser) fn hand_out(&mut self, shown: &[Message], rules: &Rules) {
        self.handed = Some(Prints::of(shown, &rules.key));
    }

    /// Returns the messages that left with the last condensation, for hooks: those shown verbatim before it and no
    /// longer after it.
    pub(in crate::condenser) fn left(&self, messages: &[Message]) -> Vec<Message> {
        let (now, before) = (self.list.standing(), &self.notes.left);
        let shown = |from: Seq, kept: &[Seq], place: Seq| place > from || kept.binary_search(&place).is_ok();
        (1..=now.seen)
            .zip(messages)
            .filter(|(place, message)| {
                let masked =
                    *place > before.masked && *place <= now.masked && message.results().next().is_some();
                shown(before.from, &before.kept, *place) && (masked || !shown(now.from, &now.kept, *place))
            })
            .map(|(place, message)| Message { seq: place, ..message.clone() })
            .collect()
    }

    /// Records what has left so far, so that hooks get each message once.
    pub(in crate::condenser) fn left_so_far(&mut self) {
        let Standing { from, masked, kept, .. } = self.list.standing();
        self.notes.left = Left { from: *from, masked: *masked, kept: kept.clone() };
    }
}

fn percent(tokens: Tokens, room: Option<Tokens>) -> Option<u64> {
    room.filter(|room| *room > 0).map(|room| tokens.saturating_mul(100) / room)
}

/// Describes the token usage, as text for people.
fn used(tokens: Tokens, room: Option<Tokens>) -> String {
    match (room, percent(tokens, room)) {
        (Some(room), Some(percent)) => {
            format!("{} of {} tokens are used, {percent} %", grouped(tokens), grouped(room))
        }
        _ => format!("{} tokens are used", grouped(tokens)),
    }
}
