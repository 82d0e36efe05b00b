//! Checks that slots and summaries match, and that each summary was committed correctly.
//!
//! The summaries of a slot form a chain, which contains no undone summary. Each summary was stored while the summary
//! before it was current. A summary covers at least as many messages as the summary before it, and no message between
//! the two summaries is left out. If two summaries follow the same summary, or are built on the same summary, the same
//! messages were summarized twice.
//!
//! Fencing tokens show whether a worker committed a summary after it had lost its lease. In the order of a slot's
//! summary ids, the tokens must never decrease.
//!
//! These cases are legal:
//!
//! - A summary covers the same messages as an undone summary.
//! - A summary starts at the first message, because a caller requested a rebuild.
//! - A summary by a model replaces a fallback summary by `local`.
//! - Summaries of a copied session have no fencing token, and the copy does not contain every summary of the original.

use std::collections::{BTreeMap, HashMap};

use epitome_core::message::Seq;
use epitome_core::slot::Scope;

use super::super::decode::scope_of;
use super::super::decode::{self, RowRef};
use super::super::op_error::OpResult;
use super::super::rows::{SessionRow, SlotRow, SummaryId, SummaryRow, SummaryState};
use super::FaultList;

/// A slot's scope and name.
type SlotKey<'k> = (&'k Scope, &'k str);

fn slot_of(row: &SummaryRow) -> SlotKey<'_> {
    (&row.scope, &row.slot)
}

/// Formats a slot's name for a fault.
fn slot_name((scope, name): SlotKey<'_>) -> String {
    match scope {
        Scope::Session => format!("slot \"{name}\""),
        Scope::Author(author) => format!("slot \"{name}\" of \"{author}\""),
    }
}

/// Whether the summary was not undone.
fn is_not_undone(row: &SummaryRow) -> bool {
    row.state != SummaryState::Undone
}

/// Checks a session's summaries and slots.
pub(in crate::store) struct SummaryCheck<'a> {
    at: &'a str,
    workspace: &'a str,
    head: Seq,
    /// The session's summaries, without text.
    all: BTreeMap<SummaryId, SummaryRow>,
    /// For each slot: the id of the slot's current summary, if any, and the slot's fencing token. The token is `None`
    /// if the slot's row cannot be read.
    slots: HashMap<(Scope, String), (Option<SummaryId>, Option<u64>)>,
}

impl<'a> SummaryCheck<'a> {
    /// Creates a check for a session in this workspace. `at` is the session's name in faults.
    pub(in crate::store) fn new(at: &'a str, workspace: &'a str, session: &SessionRow) -> Self {
        let head = session.tracker.head();
        Self { at, workspace, head, all: BTreeMap::new(), slots: HashMap::new() }
    }

    /// Adds a summary and returns its id. Summaries can be added in any order.
    pub(in crate::store) fn summary(
        &mut self,
        faults: &mut FaultList,
        row: RowRef<'_>,
    ) -> OpResult<SummaryId> {
        let id = row.int(0)?;
        if let Some(summary) = faults.note(self.summary_at(id), decode::summary(row))? {
            self.all.insert(id, summary);
        }
        Ok(id)
    }

    /// Checks a slot. The caller must add all summaries first. The row contains the columns [`decode::SLOT`], followed
    /// by columns that repeat values of the slot's state or of its session.
    pub(in crate::store) fn slot(&mut self, faults: &mut FaultList, row: RowRef<'_>) -> OpResult<()> {
        let (scope, name, active) = (scope_of(row.text(0)?), row.string(1)?, row.maybe_int(3)?);
        let at = format!("{} {}", self.at, slot_name((&scope, &name)));
        let fence = self.slot_row(faults, &at, row);
        self.slots.insert((scope, name), (active, faults.note(at, fence)?));
        Ok(())
    }

    /// Checks a slot's row, and returns the slot's fencing token.
    fn slot_row(&self, faults: &mut FaultList, at: &str, row: RowRef<'_>) -> OpResult<u64> {
        let columns = (row.uint(6)?, row.maybe_int(7)?);
        let (ready_at, workspace) = (row.maybe_int(8)?, row.text(9)?);
        let slot = decode::slot(row)?;
        self.check_coverage(faults, at, &slot);
        let due = slot.state.due.map(|due| i64::try_from(due.seq).unwrap_or(i64::MAX));
        let wrong = [
            (
                columns != (slot.state.covered, due),
                "its coverage or its trigger event differs from its state",
            ),
            (ready_at != slot.ready_at().map(|at| at.0), "its ready time differs from its state"),
            (
                slot.work.owner.is_some() != slot.work.until.is_some(),
                "it has an owner without a lease expiry, or an expiry without an owner",
            ),
            (workspace != self.workspace, "its row contains the name of another workspace"),
        ];
        for (_, what) in wrong.into_iter().filter(|(wrong, _)| *wrong) {
            faults.add(at, what);
        }
        Ok(slot.fence)
    }

    fn check_coverage(&self, faults: &mut FaultList, at: &str, slot: &SlotRow) {
        let (covered, head) = (slot.state.covered, self.head);
        if covered > head {
            faults.add(at, format!("it covers messages up to {covered}, but the log ends at {head}"));
        }
        let Some(active) = slot.active else { return };
        let what = match self.all.get(&active) {
            None => format!("its current summary, {active}, does not exist"),
            Some(summary) if slot_of(summary) != (&slot.scope, &slot.name) => {
                format!("its current summary, {active}, belongs to another slot")
            }
            Some(summary) if summary.state != SummaryState::Current => {
                format!("its current summary, {active}, is superseded or undone")
            }
            Some(SummaryRow { through, .. }) if *through != covered => {
                format!(
                    "it covers messages up to {covered}, but its current summary covers messages up to {through}"
                )
            }
            Some(_) => return,
        };
        faults.add(at, what);
    }

    fn summary_at(&self, id: SummaryId) -> String {
        format!("{} summary {id}", self.at)
    }

    /// Checks each summary, then each slot's chain of summaries. The caller must add all summaries and slots first.
    pub(in crate::store) fn finish(self, faults: &mut FaultList) {
        let mut first_after: HashMap<(SlotKey<'_>, Option<SummaryId>), SummaryId> = HashMap::new();
        for summary in self.all.values().filter(|summary| is_not_undone(summary)) {
            first_after.entry((slot_of(summary), summary.parent)).or_insert(summary.id);
        }
        let mut chains: HashMap<SlotKey<'_>, Vec<&SummaryRow>> = HashMap::new();
        for (id, summary) in &self.all {
            let (at, slot) = (self.summary_at(*id), slot_of(summary));
            self.check_one(faults, &at, summary);
            if summary.state == SummaryState::Superseded && !first_after.contains_key(&(slot, Some(*id))) {
                faults.add(&at, "it is superseded, but no summary follows it");
            }
            let first = first_after.get(&(slot, summary.parent));
            if let Some(first) = first.filter(|first| *first < id && is_not_undone(summary)) {
                let after =
                    summary.parent.map_or("no summary".to_owned(), |parent| format!("summary {parent}"));
                let what = format!(
                    "it follows {after}, like summary {first}: the same messages were summarized twice"
                );
                faults.add(&at, what);
            }
            chains.entry(slot).or_default().push(summary);
        }
        let mut chains: Vec<_> = chains.into_iter().collect();
        chains.sort_by_key(|(_, chain)| chain.first().map(|summary| summary.id));
        for (slot, chain) in chains {
            self.check_chain(faults, slot, &chain);
        }
    }

    /// Checks a summary alone, then compares it with the summary before it (its `parent`).
    fn check_one(&self, faults: &mut FaultList, at: &str, summary: &SummaryRow) {
        let (through, head, from) = (summary.through, self.head, summary.facts.from);
        if through > head {
            faults.add(at, format!("it covers messages up to {through}, but the log ends at {head}"));
        }
        if from > through {
            faults
                .add(at, format!("it covers messages up to {through}, but begins later: at message {from}"));
        }
        let Some(parent) = summary.parent else {
            if from > 1 && summary.facts.fence > 0 {
                faults.add(at, format!("no summary covers the messages before {from}"));
            }
            return;
        };
        let Some(before) = self.all.get(&parent) else {
            return faults.add(at, format!("the summary before it, {parent}, does not exist"));
        };
        let covered_before = before.through;
        let what = if slot_of(before) != slot_of(summary) {
            format!("the summary before it, {parent}, belongs to another slot")
        } else if covered_before > through {
            format!("the summary before it, {parent}, covers more messages")
        } else if from > covered_before.saturating_add(1) {
            format!(
                "it begins with message {from}, but the summary before it, {parent}, ends with {covered_before}"
            )
        } else {
            return self.check_base(faults, at, summary, parent);
        };
        faults.add(at, what);
    }

    /// Checks that a summary was built on its `parent`: the summary that was current when this summary was stored. If
    /// the parent is a fallback summary and this summary is not, the expected base is the summary on which the fallback
    /// summary was built. Summaries without a fencing token are not checked, because they were copied or an older
    /// release wrote them.
    fn check_base(&self, faults: &mut FaultList, at: &str, summary: &SummaryRow, parent: SummaryId) {
        let facts = &summary.facts;
        let Some(base) = facts.built_on.filter(|_| facts.fence > 0 && is_not_undone(summary)) else { return };
        let mut expected = Some(parent);
        while let Some(before) = expected.and_then(|id| self.all.get(&id))
            && before.facts.stand_in
            && !facts.stand_in
        {
            // The loop follows only decreasing ids. Otherwise damaged data could cause an endless loop.
            expected = before.facts.built_on.filter(|next| *next < before.id);
        }
        let from = facts.from;
        if expected != Some(base) {
            faults.add(
                at,
                format!("it was built on summary {base} while summary {parent} was current: the same messages were summarized twice"),
            );
        } else if let Some(SummaryRow { through, .. }) = self.all.get(&base)
            && from != through.saturating_add(1)
        {
            faults.add(at, format!("it begins with message {from}, but summary {base}, on which it was built, ends with {through}"));
        }
    }

    /// Checks a slot's summaries in the order in which they were stored.
    fn check_chain(&self, faults: &mut FaultList, slot: SlotKey<'_>, chain: &[&SummaryRow]) {
        let pointers = self.slots.get(&(slot.0.clone(), slot.1.to_owned()));
        let (active, highest) = pointers.copied().unwrap_or_default();
        let (mut furthest, mut highest_fenced): (Option<&SummaryRow>, Option<&SummaryRow>) = (None, None);
        let mut first_without_base = HashMap::new();
        for summary in chain {
            let (at, through) = (self.summary_at(summary.id), summary.through);
            if is_not_undone(summary) {
                if let Some(SummaryRow { id, through: before, .. }) =
                    furthest.filter(|row| row.through > through)
                {
                    let what = format!(
                        "it ends with message {through}, but the earlier summary {id} ends with message {before}"
                    );
                    faults.add(&at, what);
                }
                furthest = Some(summary);
            }
            let (fence, from) = (summary.facts.fence, summary.facts.from);
            if fence == 0 {
                continue;
            }
            if let Some(before) = highest_fenced.filter(|before| before.facts.fence > fence) {
                let (id, before) = (before.id, before.facts.fence);
                let what = format!("its fencing token is {fence}, but the earlier summary {id} has {before}");
                faults.add(&at, what);
            } else {
                highest_fenced = Some(summary);
            }
            if let Some(highest) = highest.filter(|highest| fence > *highest) {
                faults.add(
                    &at,
                    format!("its fencing token is {fence}, but the slot's fencing token is only {highest}"),
                );
            }
            // Within one lease, a worker never writes two summaries that start at the same message and are built on no
            // summary.
            if summary.facts.built_on.is_none()
                && let Some(first) = first_without_base.insert((fence, from), summary.id)
            {
                let what = format!(
                    "it and summary {first} both begin with message {from} and have the fencing token {fence}: the same messages were summarized twice"
                );
                faults.add(&at, what);
            }
        }
        let at = format!("{} {}", self.at, slot_name(slot));
        let all_current = || chain.iter().filter(|summary| summary.state == SummaryState::Current);
        if all_current().count() > 1 {
            faults.add(&at, format!("it has {} current summaries", all_current().count()));
        }
        if all_current().any(|summary| active != Some(summary.id)) {
            faults.add(&at, "it does not point to its current summary");
        }
    }
}
