//! What slots counted since their own rows were written.
//!
//! An append moves every slot of its session, and most often nothing of them but their counts. These stand in the session's
//! row, which every append writes anyway. A slot's own row is written when more than that changes, and says all then.

use epitome_core::message::{Seq, Timestamp};
use epitome_core::outline::Totals;
use epitome_core::slot::{Scope, SlotState};
use serde::{Deserialize, Serialize};

use super::super::changes::{Changes, Standing};
use super::super::columns::scope_text;
use super::super::rows::{SlotRow, SummaryRow};
use super::super::statements::json;
use super::error::{Outcome, nonsense};

/// Of so many slots at most. A session may have two for each of its authors; what the others count is written to their rows,
/// when they count.
const MOST: usize = 8;

/// Counts by slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counts(Vec<Count>);

/// A slot's scope and name, its totals since it last fired, and when it fires if nobody says anything more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Count(String, String, Totals, Option<Timestamp>);

impl Count {
    fn is_of(&self, scope: &Scope, name: &str) -> bool {
        let Self(its_scope, its_name, ..) = self;
        its_scope == scope_text(scope) && its_name == name
    }
}

impl Counts {
    /// Of what stands in a session's row.
    pub(super) fn read(text: &str) -> Outcome<Self> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_str(text).map(Self).map_err(|_| nonsense("a session's counts cannot be read"))
    }

    /// The same again.
    pub(super) fn text(&self) -> Outcome<String> {
        if self.0.is_empty() { Ok(String::new()) } else { Ok(json(&self.0)) }
    }

    /// A slot as it stands, where this is what its own row says.
    pub(super) fn complete(&self, mut slot: SlotRow) -> SlotRow {
        if let Some(Count(_, _, since, due_at)) = self.0.iter().find(|one| one.is_of(&slot.scope, &slot.name))
        {
            slot.state.since = *since;
            slot.state.due_at = *due_at;
        }
        slot
    }

    /// Whether each is of one of these slots, as their own rows say them, and counted no less than that and no more than
    /// there is.
    pub(super) fn go_on_from(&self, slots: &[SlotRow], head: Seq) -> bool {
        self.0.iter().all(|one| {
            let slot = slots.iter().find(|slot| one.is_of(&slot.scope, &slot.name));
            slot.is_some_and(|slot| (slot.state.since.last_seq..=head).contains(&one.2.last_seq))
        })
    }

    /// Takes in what changes do to slots, and gives those whose own rows are to be written.
    pub(super) fn take_all<'c>(&mut self, standing: &Standing, changes: &'c Changes) -> Vec<&'c SlotRow> {
        let mut moved = Vec::new();
        for slot in &changes.slots {
            let pointed = changes.summary.as_ref().is_some_and(|row| is_its(row, slot));
            let before = standing.slot(&slot.scope, &slot.name).filter(|_| !pointed);
            if !before.is_some_and(|before| self.take(before, slot)) {
                self.forget(slot);
                moved.push(slot);
            }
        }
        moved
    }

    /// Takes in how a slot changed. False where its own row is to be written.
    fn take(&mut self, before: &SlotRow, slot: &SlotRow) -> bool {
        if before == slot {
            return true;
        }
        self.forget(slot);
        let only_counts = self.0.len() < MOST && only_counts(before, slot);
        if only_counts {
            let (scope, name) = (scope_text(&slot.scope).to_owned(), slot.name.clone());
            self.0.push(Count(scope, name, slot.state.since, slot.state.due_at));
        }
        only_counts
    }

    /// A slot's own row says all.
    pub(super) fn forget(&mut self, slot: &SlotRow) {
        self.0.retain(|one| !one.is_of(&slot.scope, &slot.name));
    }
}

/// Whether it is a summary of this slot.
pub(super) fn is_its(summary: &SummaryRow, slot: &SlotRow) -> bool {
    summary.scope == slot.scope && summary.slot == slot.name
}

/// Whether nothing of a slot changed but what it counts.
fn only_counts(before: &SlotRow, slot: &SlotRow) -> bool {
    let state = SlotState { since: before.state.since, due_at: before.state.due_at, ..slot.state.clone() };
    state == before.state
        && before.ready_at() == slot.ready_at()
        && before.fence == slot.fence
        && before.work == slot.work
        && before.active == slot.active
}

#[cfg(test)]
mod tests {
    use epitome_core::drawing::outlines;
    use epitome_core::slot::Slot;

    use super::*;

    fn row(name: &str) -> SlotRow {
        SlotRow {
            scope: Scope::Session,
            name: name.to_owned(),
            state: SlotState::default(),
            active: None,
            fence: 0,
            work: Default::default(),
        }
    }

    #[test]
    fn counts_stand_for_a_slot_until_its_row_is_written() {
        let slot = Slot { name: "short".to_owned(), ..Slot::short() };
        let (mut counts, mut stored) = (Counts::default(), [row("long"), row("short")]);
        let mut state = stored[1].clone();
        let mut written = Vec::new();
        for outline in outlines(&"u a ".repeat(25)).unwrap() {
            let before = state.clone();
            state.state.advance(&slot, &outline, None);
            if !counts.take(&before, &state) {
                written.push(outline.seq);
                stored[1] = state.clone();
            }
            counts = Counts::read(&counts.text().unwrap()).unwrap();
            assert_eq!(counts.complete(stored[1].clone()), state, "at {}", outline.seq);
            assert_eq!(counts.complete(stored[0].clone()), stored[0]);
            assert!(counts.go_on_from(&stored, outline.seq));
            assert_eq!(counts.0.is_empty(), written.contains(&outline.seq));
        }
        assert_eq!(written, [20, 40], "it fired");
        assert!(!counts.go_on_from(&stored[..1], 50), "one is not there");
        assert!(!counts.go_on_from(&stored, 49), "it counted what was not said");
        assert!(
            !counts.go_on_from(&[stored[0].clone(), state.clone()].map(later), 50),
            "its row counted more"
        );
        counts.forget(&state);
        assert_eq!((counts.0.is_empty(), counts.text().unwrap()), (true, String::new()));
        assert!(Counts::read("[1]").is_err());
    }

    fn later(mut slot: SlotRow) -> SlotRow {
        slot.state.since.last_seq += 1;
        slot
    }

    #[test]
    fn no_more_than_a_few_are_counted_there() {
        let mut counts = Counts::default();
        let slots: Vec<SlotRow> = (0..20).map(|n| row(&format!("slot-{n}"))).collect();
        for _ in 0..3 {
            let taken = slots.iter().filter(|slot| counts.take(slot, &later((*slot).clone()))).count();
            assert_eq!((taken, counts.0.len()), (MOST, MOST));
        }
    }

    #[test]
    fn whatever_else_changes_is_written() {
        let before = row("short");
        let mut counts = Counts::default();
        let changed: [fn(&mut SlotRow); 5] = [
            |slot| slot.fence = 1,
            |slot| slot.active = Some(7),
            |slot| slot.work.owner = Some("ann".to_owned()),
            |slot| slot.state.fired = 3,
            |slot| slot.state.due_at = Some(Timestamp(5)),
        ];
        for change in changed {
            let mut slot = before.clone();
            change(&mut slot);
            assert!(!counts.take(&before, &slot), "{slot:?}");
            assert!(counts.0.is_empty());
        }
        assert!(counts.take(&before, &before) && counts.0.is_empty());
    }
}
