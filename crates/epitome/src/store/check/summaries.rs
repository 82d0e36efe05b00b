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

use super::super::rows::{SessionRow, SlotRow, SummaryId, SummaryRow, SummaryState};
use super::Faults;

type SlotKey = (Scope, String);

/// A summary without its words.
struct Kept {
    slot: SlotKey,
    through: Seq,
    state: SummaryState,
    parent: Option<SummaryId>,
    from: Seq,
    built_on: Option<SummaryId>,
    stand_in: bool,
    fence: u64,
}

impl Kept {
    /// Whether it was not taken back.
    fn lasts(&self) -> bool {
        self.state != SummaryState::Undone
    }
}

/// Columns of a slot that only repeat what its state or its session says.
pub(crate) struct SlotColumns {
    pub(crate) covered: Seq,
    pub(crate) due: Option<i64>,
    pub(crate) ready_at: Option<i64>,
    pub(crate) workspace: String,
}

/// Takes a session's summaries, then its slots.
pub(crate) struct SummaryCheck<'a> {
    at: &'a str,
    workspace: &'a str,
    head: Seq,
    all: BTreeMap<SummaryId, Kept>,
    /// Which summary each slot points to, and its fence where its row can be read.
    slots: HashMap<SlotKey, (Option<SummaryId>, Option<u64>)>,
}

/// A slot's name, for people.
fn named((scope, name): &SlotKey) -> String {
    match scope {
        Scope::Session => format!("slot \"{name}\""),
        Scope::Author(author) => format!("slot \"{name}\" of \"{author}\""),
    }
}

impl<'a> SummaryCheck<'a> {
    /// Of the session that is called so, in that workspace.
    pub(crate) fn new(at: &'a str, workspace: &'a str, session: &SessionRow) -> Self {
        let head = session.tracker.head();
        Self { at, workspace, head, all: BTreeMap::new(), slots: HashMap::new() }
    }

    /// One of its summaries, in any order, or why it cannot be read.
    pub(crate) fn summary(&mut self, faults: &mut Faults, id: SummaryId, read: Result<SummaryRow, String>) {
        let row = match read {
            Ok(row) => row,
            Err(why) => return faults.unreadable(self.summary_at(id), &why),
        };
        let facts = row.facts;
        let kept = Kept {
            slot: (row.scope, row.slot),
            through: row.through,
            state: row.state,
            parent: row.parent,
            from: facts.from,
            built_on: facts.built_on,
            stand_in: facts.stand_in,
            fence: facts.fence,
        };
        self.all.insert(id, kept);
    }

    /// One of its slots, when all summaries are known: which summary its row points to, and the rest of it or why that
    /// cannot be read.
    pub(crate) fn slot(
        &mut self,
        faults: &mut Faults,
        key: SlotKey,
        active: Option<SummaryId>,
        read: Result<(SlotRow, SlotColumns), String>,
    ) {
        let at = format!("{} {}", self.at, named(&key));
        let fence = match read {
            Ok((slot, columns)) => {
                self.covers(faults, &at, &slot);
                self.repeats(faults, &at, &slot, &columns);
                Some(slot.fence)
            }
            Err(why) => {
                faults.unreadable(at, &why);
                None
            }
        };
        self.slots.insert(key, (active, fence));
    }

    fn summary_at(&self, id: SummaryId) -> String {
        format!("{} summary {id}", self.at)
    }

    fn covers(&self, faults: &mut Faults, at: &str, slot: &SlotRow) {
        let (covered, head) = (slot.state.covered, self.head);
        if covered > head {
            faults.add(at, format!("it covers messages to {covered}, the log reaches to {head}"));
        }
        let Some(active) = slot.active else { return };
        match self.all.get(&active) {
            None => faults.add(at, format!("its summary, {active}, does not exist")),
            Some(kept) if (&kept.slot.0, &kept.slot.1) != (&slot.scope, &slot.name) => {
                faults.add(at, format!("its summary, {active}, is another slot's"));
            }
            Some(kept) if kept.state != SummaryState::Standing => {
                faults.add(at, format!("its summary, {active}, does not stand"));
            }
            Some(kept) if kept.through != covered => {
                let through = kept.through;
                faults.add(at, format!("it covers messages to {covered}, its summary reaches to {through}"));
            }
            Some(_) => {}
        }
    }

    fn repeats(&self, faults: &mut Faults, at: &str, slot: &SlotRow, columns: &SlotColumns) {
        let due = slot.state.due.map(|due| i64::try_from(due.seq).unwrap_or(i64::MAX));
        if columns.covered != slot.state.covered || columns.due != due {
            faults.add(at, "coverage or firing are not what its state says");
        }
        if columns.ready_at != slot.ready_at().map(|at| at.0) {
            faults.add(at, "it is not ready when its state says so");
        }
        if slot.work.owner.is_some() != slot.work.until.is_some() {
            faults.add(at, "somebody holds it without a lease, or nobody does with one");
        }
        if columns.workspace != self.workspace {
            faults.add(at, "it waits for the turn of another workspace");
        }
    }

    /// Everything was fed: looks at the summaries one by one, then at each slot's together.
    pub(crate) fn finish(self, faults: &mut Faults) {
        let lasting = self.all.iter().filter(|(_, kept)| kept.lasts());
        let mut following: HashMap<(&SlotKey, Option<SummaryId>), Vec<SummaryId>> = HashMap::new();
        for (id, kept) in lasting {
            following.entry((&kept.slot, kept.parent)).or_default().push(*id);
        }
        let mut lines: HashMap<&SlotKey, Vec<(SummaryId, &Kept)>> = HashMap::new();
        for (id, kept) in &self.all {
            self.alone(faults, *id, kept);
            if kept.state == SummaryState::Superseded && !following.contains_key(&(&kept.slot, Some(*id))) {
                faults.add(self.summary_at(*id), "it is superseded, and nothing followed it");
            }
            let siblings = following.get(&(&kept.slot, kept.parent));
            if let Some(first) = siblings.and_then(|ids| ids.first()).filter(|first| **first < *id)
                && kept.lasts()
            {
                let after = kept.parent.map_or("nothing".to_owned(), |parent| format!("summary {parent}"));
                faults.add(
                    self.summary_at(*id),
                    format!("it follows {after}, as summary {first} does already: one window was kept twice"),
                );
            }
            lines.entry(&kept.slot).or_default().push((*id, kept));
        }
        let mut lines: Vec<_> = lines.into_iter().collect();
        lines.sort_by_key(|(_, line)| line.first().map(|(id, _)| *id));
        for (slot, line) in lines {
            self.line(faults, slot, &line);
        }
    }

    /// What a summary says of itself, and of the one before it.
    fn alone(&self, faults: &mut Faults, id: SummaryId, kept: &Kept) {
        let at = self.summary_at(id);
        let (through, head) = (kept.through, self.head);
        if through > head {
            faults.add(&at, format!("it reaches to message {through}, the log to {head}"));
        }
        if kept.from > through {
            let from = kept.from;
            faults
                .add(&at, format!("it reaches to message {through}, and was written from message {from} on"));
        }
        let Some(parent) = kept.parent else {
            if kept.from > 1 && kept.fence > 0 {
                faults.add(&at, format!("nothing stands for the messages before {}", kept.from));
            }
            return;
        };
        match self.all.get(&parent) {
            None => faults.add(&at, format!("the one before it, {parent}, does not exist")),
            Some(before) if before.slot != kept.slot => {
                faults.add(&at, format!("the one before it, {parent}, is another slot's"));
            }
            Some(before) if before.through > through => {
                faults.add(&at, format!("the one before it, {parent}, reaches further"));
            }
            Some(before) if kept.from > before.through.saturating_add(1) => {
                let (reached, from) = (before.through, kept.from);
                faults.add(
                    &at,
                    format!(
                        "it begins with message {from}, and the one before it, {parent}, ends with {reached}"
                    ),
                );
            }
            Some(_) => self.ground(faults, &at, kept, parent),
        }
    }

    /// Whether it was written from what stood when it was kept: from the one before it, or from the last one that did
    /// not stand in for a model's. One without a fence was copied, or is older than they are.
    fn ground(&self, faults: &mut Faults, at: &str, kept: &Kept, parent: SummaryId) {
        let Some(base) = kept.built_on.filter(|_| kept.fence > 0 && kept.lasts()) else { return };
        let mut ground = Some(parent);
        while let Some(before) = ground.and_then(|id| self.all.get(&id))
            && before.stand_in
            && !kept.stand_in
        {
            // A number that does not fall would lead round and round.
            ground = before.built_on.filter(|next| ground.is_some_and(|id| *next < id));
        }
        if ground != Some(base) {
            faults.add(
                at,
                format!("it was written from summary {base} while {parent} stood: one window was kept twice"),
            );
        } else if let Some(reached) = self.all.get(&base).map(|base| base.through)
            && kept.from != reached.saturating_add(1)
        {
            let from = kept.from;
            faults.add(at, format!("it begins with message {from}, and {base}, which it was written from, ends with {reached}"));
        }
    }

    /// A slot's summaries in the order they were kept.
    fn line(&self, faults: &mut Faults, slot: &SlotKey, line: &[(SummaryId, &Kept)]) {
        let at = format!("{} {}", self.at, named(slot));
        let (active, fence) = self.slots.get(slot).copied().unwrap_or_default();
        let (mut reached, mut fenced, mut anew): (Option<(SummaryId, Seq)>, _, _) =
            (None, (0, 0), HashMap::new());
        for (id, kept) in line {
            if kept.lasts() {
                if let Some((before, through)) = reached.filter(|(_, through)| *through > kept.through) {
                    let now = kept.through;
                    let what =
                        format!("it reaches to message {now}, and summary {before} to {through} already");
                    faults.add(self.summary_at(*id), what);
                }
                reached = Some((*id, kept.through));
            }
            if kept.fence == 0 {
                continue;
            }
            let (before, highest) = fenced;
            if kept.fence < highest {
                let stale = kept.fence;
                let what =
                    format!("it was kept under fence {stale}, and summary {before} under {highest} already");
                faults.add(self.summary_at(*id), what);
            } else {
                fenced = (*id, kept.fence);
            }
            if let Some(own) = fence.filter(|own| kept.fence > *own) {
                let above = kept.fence;
                faults.add(
                    self.summary_at(*id),
                    format!("it was kept under fence {above}, and its slot has only {own}"),
                );
            }
            // Under one lease nobody begins twice at the same message with nothing to build on.
            if kept.built_on.is_none()
                && let Some(first) = anew.insert((kept.fence, kept.from), *id)
            {
                let (from, stale) = (kept.from, kept.fence);
                let what = format!(
                    "it was written from message {from} on under fence {stale}, as summary {first} was already: one window was kept twice"
                );
                faults.add(self.summary_at(*id), what);
            }
        }
        let standing: Vec<_> =
            line.iter().filter(|(_, kept)| kept.state == SummaryState::Standing).map(|(id, _)| *id).collect();
        if standing.len() > 1 {
            faults.add(&at, format!("{} summaries stand at once", standing.len()));
        }
        if standing.iter().any(|id| active != Some(*id)) {
            faults.add(&at, "a summary stands that it does not point to");
        }
    }
}
