//! What is told of a turn: to the caller, and to hooks.

use std::hash::RandomState;

use epitome_core::condense::{self, Facts, Press, Standing, Unchanged};
use epitome_core::message::{Message, Seq, Tokens};

use super::{Conversation, Left, MOST_STRIKES, MOST_TOLD, Rules, Who};
use crate::condenser::known::Prints;
use crate::condenser::report::{Report, Spent};
use crate::condenser::scribe::Written;
use crate::condenser::thread::Kept;
use crate::hook::grouped;

impl Conversation {
    /// Notes what was spent and what went wrong, until it is told.
    pub(in crate::condenser) fn note(&mut self, spent: Vec<Spent>, problems: Vec<String>) {
        self.spent.extend(spent);
        self.problems.extend(problems);
        while self.problems.len() > MOST_TOLD {
            self.problems.pop_front();
        }
    }

    /// The report of a list that stays as it is.
    pub(super) fn unchanged(&mut self, why: &Unchanged, facts: &Facts, rules: &Rules) -> Report {
        let tokens = self.list.request(facts);
        let said = if *why == Unchanged::NotDue { String::new() } else { format!("; as it was: {why}") };
        let report = self.plain(why.name(), facts, rules);
        Report { notice: format!("{}{said}", used(tokens, facts.room)), ..report }
    }

    pub(super) fn model_failed(&mut self, facts: &Facts, rules: &Rules) -> Report {
        let tokens = self.list.request(facts);
        let report = self.plain(Report::MODEL_FAILED, facts, rules);
        let notice = format!("{}; as it was: the model gave no summary", used(tokens, facts.room));
        Report { notice, ..report }
    }

    pub(super) fn stopped(&mut self, facts: &Facts, rules: &Rules) -> Report {
        let tokens = self.list.request(facts);
        let report = self.plain("stopped", facts, rules);
        let notice = format!(
            "{}; stopped: by the provider's count, condensing did not help {MOST_STRIKES} times in a row",
            used(tokens, facts.room)
        );
        Report { notice, ..report }
    }

    pub(super) fn plain(&mut self, reason: &str, facts: &Facts, rules: &Rules) -> Report {
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
            window: facts.room,
            percent: percent(tokens, facts.room),
            spent: std::mem::take(&mut self.spent),
            problems: self.problems.drain(..).collect(),
            ..Report::default()
        }
    }

    /// The report of a list that was made shorter.
    pub(super) fn condensed(
        &mut self,
        done: condense::Report,
        written: Option<(&Written, Who)>,
        before: Tokens,
        facts: &Facts,
        rules: &Rules,
    ) -> Report {
        let reason = match (self.too_long, facts.force) {
            (true, _) | (_, Some(Press::Hard)) => "too_long",
            (_, Some(Press::Gently)) => "forced",
            _ => "due",
        };
        let rounds = self.list.standing().rounds;
        self.changes = self.changes.wrapping_add(1);
        if self.told.is_some() {
            self.on_trial = Some((before, rounds));
        }
        (self.too_long, self.resting, self.unprepared) = (false, None, None);
        if let Some((written, _)) = written {
            self.extracts = written.extracts.clone();
        }
        let report = self.plain(reason, facts, rules);
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

    /// What must be kept to take it up again.
    pub(in crate::condenser) fn kept(&self) -> Kept {
        Kept {
            standing: self.list.standing().clone(),
            extracts: self.extracts.clone(),
            growth: self.growth,
            factor: self.factor,
            room: self.room,
            untold: self.untold.clone(),
        }
    }

    /// Takes over what was kept of it beside what was done to its list.
    pub(in crate::condenser) fn take_up(&mut self, kept: &Kept) {
        (self.extracts, self.factor, self.room) = (kept.extracts.clone(), kept.factor, kept.room);
        self.untold.clone_from(&kept.untold);
        if kept.growth.calls() > 0 {
            self.growth = kept.growth;
        }
    }

    /// Keeps in mind what is handed out right after a pass.
    pub(in crate::condenser) fn hand_out(&mut self, shown: &[Message], hash: &RandomState) {
        self.handed = Some(Prints::of(shown, hash));
    }

    /// What left with the last pass, for hooks: what was shown word for word before it and is no longer.
    pub(in crate::condenser) fn left(&self, messages: &[Message]) -> Vec<Message> {
        let (now, before) = (self.list.standing(), &self.left);
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

    /// Notes what has left so far, so that hooks are told of each message once.
    pub(in crate::condenser) fn left_so_far(&mut self) {
        let Standing { from, masked, kept, .. } = self.list.standing();
        self.left = Left { from: *from, masked: *masked, kept: kept.clone() };
    }
}

fn percent(tokens: Tokens, room: Option<Tokens>) -> Option<u64> {
    room.filter(|room| *room > 0).map(|room| tokens.saturating_mul(100) / room)
}

/// How much is used, for people.
fn used(tokens: Tokens, room: Option<Tokens>) -> String {
    match (room, percent(tokens, room)) {
        (Some(room), Some(percent)) => {
            format!("{} of {} tokens are used, {percent} %", grouped(tokens), grouped(room))
        }
        _ => format!("{} tokens are used", grouped(tokens)),
    }
}
