//! Whether slots and summaries agree, and each summary was rightly kept.
//!
//! The summaries of a slot that were not undone are a chain: each was kept while the one before it stood, reaches at least
//! as far, and leaves no message out. Two that follow the same one, or a second one written from what another was written
//! from, are a window that was committed twice. What a worker committed whose slot somebody else had taken shows by its
//! fence: along a slot's numbers they never fall.
//!
//! Legal, and so no fault: a summary over the window of one that was undone; one from the first message on where that
//! was asked for; one in place of `local`'s that stood in; and in a copy of a session, whose summaries have no fence, one
//! that follows the last but two.

use std::collections::{BTreeMap, HashMap};

use epitome_core::message::Seq;
use epitome_core::slot::Scope;

use super::super::decode::scope_of;
use super::super::decode::{self, Found};
use super::super::rows::{SessionRow, SlotRow, SummaryId, SummaryRow, SummaryState};
use super::super::trouble::Outcome;
use super::Faults;

/// Whose slot it is, and its name.
type SlotKey<'k> = (&'k Scope, &'k str);

fn slot_of(row: &SummaryRow) -> SlotKey<'_> {
    (&row.scope, &row.slot)
}

/// A slot's name, for people.
fn named((scope, name): SlotKey<'_>) -> String {
    match scope {
        Scope::Session => format!("slot \"{name}\""),
        Scope::Author(author) => format!("slot \"{name}\" of \"{author}\""),
    }
}

/// Whether it was not taken back.
fn lasts(row: &SummaryRow) -> bool {
    row.state != SummaryState::Undone
}

/// Takes a session's summaries, then its slots.
pub(in crate::store) struct SummaryCheck<'a> {
    at: &'a str,
    workspace: &'a str,
    head: Seq,
    /// Without their words.
    all: BTreeMap<SummaryId, SummaryRow>,
    /// Which summary each slot points to, and its fence where its row can be read.
    slots: HashMap<(Scope, String), (Option<SummaryId>, Option<u64>)>,
}

impl<'a> SummaryCheck<'a> {
    /// Of the session that is called so, in that workspace.
    pub(in crate::store) fn new(at: &'a str, workspace: &'a str, session: &SessionRow) -> Self {
        let head = session.tracker.head();
        Self { at, workspace, head, all: BTreeMap::new(), slots: HashMap::new() }
    }

    /// One of its summaries, in any order. Returns its number.
    pub(in crate::store) fn summary(&mut self, faults: &mut Faults, row: Found<'_>) -> Outcome<SummaryId> {
        let id = row.int(0)?;
        if let Some(summary) = faults.note(self.summary_at(id), decode::summary(row))? {
            self.all.insert(id, summary);
        }
        Ok(id)
    }

    /// One of its slots, when all summaries are known: [`decode::SLOT`], and the columns that only repeat what its state or
    /// its session says.
    pub(in crate::store) fn slot(&mut self, faults: &mut Faults, row: Found<'_>) -> Outcome<()> {
        let (scope, name, active) = (scope_of(row.text(0)?), row.string(1)?, row.maybe_int(3)?);
        let at = format!("{} {}", self.at, named((&scope, &name)));
        let fence = self.slot_row(faults, &at, row);
        self.slots.insert((scope, name), (active, faults.note(at, fence)?));
        Ok(())
    }

    /// Checks a slot's row and returns its fence.
    fn slot_row(&self, faults: &mut Faults, at: &str, row: Found<'_>) -> Outcome<u64> {
        let columns = (row.uint(6)?, row.maybe_int(7)?);
        let (ready_at, workspace) = (row.maybe_int(8)?, row.text(9)?);
        let slot = decode::slot(row)?;
        self.covers(faults, at, &slot);
        let due = slot.state.due.map(|due| i64::try_from(due.seq).unwrap_or(i64::MAX));
        let wrong = [
            (columns != (slot.state.covered, due), "coverage or firing are not what its state says"),
            (ready_at != slot.ready_at().map(|at| at.0), "it is not ready when its state says so"),
            (
                slot.work.owner.is_some() != slot.work.until.is_some(),
                "somebody holds it without a lease, or nobody does with one",
            ),
            (workspace != self.workspace, "it waits for the turn of another workspace"),
        ];
        for (_, what) in wrong.into_iter().filter(|(wrong, _)| *wrong) {
            faults.add(at, what);
        }
        Ok(slot.fence)
    }

    fn covers(&self, faults: &mut Faults, at: &str, slot: &SlotRow) {
        let (covered, head) = (slot.state.covered, self.head);
        if covered > head {
            faults.add(at, format!("it covers messages to {covered}, the log reaches to {head}"));
        }
        let Some(active) = slot.active else { return };
        let what = match self.all.get(&active) {
            None => format!("its summary, {active}, does not exist"),
            Some(kept) if slot_of(kept) != (&slot.scope, &slot.name) => {
                format!("its summary, {active}, is another slot's")
            }
            Some(kept) if kept.state != SummaryState::Standing => {
                format!("its summary, {active}, does not stand")
            }
            Some(SummaryRow { through, .. }) if *through != covered => {
                format!("it covers messages to {covered}, its summary reaches to {through}")
            }
            Some(_) => return,
        };
        faults.add(at, what);
    }

    fn summary_at(&self, id: SummaryId) -> String {
        format!("{} summary {id}", self.at)
    }

    /// Everything was fed: looks at the summaries one by one, then at each slot's together.
    pub(in crate::store) fn finish(self, faults: &mut Faults) {
        let mut first_after: HashMap<(SlotKey<'_>, Option<SummaryId>), SummaryId> = HashMap::new();
        for kept in self.all.values().filter(|kept| lasts(kept)) {
            first_after.entry((slot_of(kept), kept.parent)).or_insert(kept.id);
        }
        let mut lines: HashMap<SlotKey<'_>, Vec<&SummaryRow>> = HashMap::new();
        for (id, kept) in &self.all {
            let (at, slot) = (self.summary_at(*id), slot_of(kept));
            self.alone(faults, &at, kept);
            if kept.state == SummaryState::Superseded && !first_after.contains_key(&(slot, Some(*id))) {
                faults.add(&at, "it is superseded, and nothing followed it");
            }
            let first = first_after.get(&(slot, kept.parent));
            if let Some(first) = first.filter(|first| *first < id && lasts(kept)) {
                let after = kept.parent.map_or("nothing".to_owned(), |parent| format!("summary {parent}"));
                let what =
                    format!("it follows {after}, as summary {first} does already: one window was kept twice");
                faults.add(&at, what);
            }
            lines.entry(slot).or_default().push(kept);
        }
        let mut lines: Vec<_> = lines.into_iter().collect();
        lines.sort_by_key(|(_, line)| line.first().map(|kept| kept.id));
        for (slot, line) in lines {
            self.line(faults, slot, &line);
        }
    }

    /// What a summary says of itself, and of the one before it.
    fn alone(&self, faults: &mut Faults, at: &str, kept: &SummaryRow) {
        let (through, head, from) = (kept.through, self.head, kept.facts.from);
        if through > head {
            faults.add(at, format!("it reaches to message {through}, the log to {head}"));
        }
        if from > through {
            faults
                .add(at, format!("it reaches to message {through}, and was written from message {from} on"));
        }
        let Some(parent) = kept.parent else {
            if from > 1 && kept.facts.fence > 0 {
                faults.add(at, format!("nothing stands for the messages before {from}"));
            }
            return;
        };
        let Some(before) = self.all.get(&parent) else {
            return faults.add(at, format!("the one before it, {parent}, does not exist"));
        };
        let reached = before.through;
        let what = if slot_of(before) != slot_of(kept) {
            format!("the one before it, {parent}, is another slot's")
        } else if reached > through {
            format!("the one before it, {parent}, reaches further")
        } else if from > reached.saturating_add(1) {
            format!("it begins with message {from}, and the one before it, {parent}, ends with {reached}")
        } else {
            return self.ground(faults, at, kept, parent);
        };
        faults.add(at, what);
    }

    /// Whether it was written from what stood when it was kept: from the one before it, or from the last one that did
    /// not stand in for a model's. One without a fence was copied, or is older than they are.
    fn ground(&self, faults: &mut Faults, at: &str, kept: &SummaryRow, parent: SummaryId) {
        let facts = &kept.facts;
        let Some(base) = facts.built_on.filter(|_| facts.fence > 0 && lasts(kept)) else { return };
        let mut ground = Some(parent);
        while let Some(before) = ground.and_then(|id| self.all.get(&id))
            && before.facts.stand_in
            && !facts.stand_in
        {
            // A number that does not fall would lead round and round.
            ground = before.facts.built_on.filter(|next| *next < before.id);
        }
        let from = facts.from;
        if ground != Some(base) {
            faults.add(
                at,
                format!("it was written from summary {base} while {parent} stood: one window was kept twice"),
            );
        } else if let Some(SummaryRow { through, .. }) = self.all.get(&base)
            && from != through.saturating_add(1)
        {
            faults.add(at, format!("it begins with message {from}, and {base}, which it was written from, ends with {through}"));
        }
    }

    /// A slot's summaries in the order they were kept.
    fn line(&self, faults: &mut Faults, slot: SlotKey<'_>, line: &[&SummaryRow]) {
        let known = self.slots.get(&(slot.0.clone(), slot.1.to_owned()));
        let (active, highest) = known.copied().unwrap_or_default();
        let (mut reached, mut fenced): (Option<&SummaryRow>, Option<&SummaryRow>) = (None, None);
        let mut anew = HashMap::new();
        for kept in line {
            let (at, through) = (self.summary_at(kept.id), kept.through);
            if lasts(kept) {
                if let Some(SummaryRow { id, through: before, .. }) =
                    reached.filter(|row| row.through > through)
                {
                    let what =
                        format!("it reaches to message {through}, and summary {id} to {before} already");
                    faults.add(&at, what);
                }
                reached = Some(kept);
            }
            let (fence, from) = (kept.facts.fence, kept.facts.from);
            if fence == 0 {
                continue;
            }
            if let Some(before) = fenced.filter(|before| before.facts.fence > fence) {
                let (id, before) = (before.id, before.facts.fence);
                let what =
                    format!("it was kept under fence {fence}, and summary {id} under {before} already");
                faults.add(&at, what);
            } else {
                fenced = Some(kept);
            }
            if let Some(highest) = highest.filter(|highest| fence > *highest) {
                faults.add(&at, format!("it was kept under fence {fence}, and its slot has only {highest}"));
            }
            // Under one lease nobody begins twice at the same message with nothing to build on.
            if kept.facts.built_on.is_none()
                && let Some(first) = anew.insert((fence, from), kept.id)
            {
                let what = format!(
                    "it was written from message {from} on under fence {fence}, as summary {first} was already: one window was kept twice"
                );
                faults.add(&at, what);
            }
        }
        let at = format!("{} {}", self.at, named(slot));
        let standing = || line.iter().filter(|kept| kept.state == SummaryState::Standing);
        if standing().count() > 1 {
            faults.add(&at, format!("{} summaries stand at once", standing().count()));
        }
        if standing().any(|kept| active != Some(kept.id)) {
            faults.add(&at, "a summary stands that it does not point to");
        }
    }
}
