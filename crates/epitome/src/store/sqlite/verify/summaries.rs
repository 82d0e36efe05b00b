//! Whether slots and summaries agree.

use std::collections::{HashMap, HashSet};

use epitome_core::message::Seq;
use epitome_core::slot::Scope;
use rusqlite::{Row, params};

use super::super::super::{SessionRow, SlotRow, SummaryId, SummaryState};
use super::super::error::{Outcome, Trouble};
use super::super::rows::{self, SLOT, SUMMARY, int};
use super::Check;

/// A summary without its words.
struct Kept {
    slot: (Scope, String),
    through: Seq,
    state: SummaryState,
    parent: Option<SummaryId>,
}

/// A slot's name, for people.
fn named((scope, name): &(Scope, String)) -> String {
    match scope {
        Scope::Session => format!("slot \"{name}\""),
        Scope::Author(author) => format!("slot \"{name}\" of \"{author}\""),
    }
}

impl Check<'_> {
    pub(super) fn summaries(&mut self, at: &str, session: &SessionRow) -> Outcome<()> {
        let all = self.kept(at, session)?;
        let head = session.tracker.head();
        let parents: HashSet<SummaryId> = all.values().filter_map(|kept| kept.parent).collect();
        let mut standing: HashMap<&(Scope, String), Vec<SummaryId>> = HashMap::new();
        let mut ids: Vec<_> = all.iter().collect();
        ids.sort_by_key(|(id, _)| **id);
        for (id, kept) in ids {
            let at = format!("{at} summary {id}");
            if kept.through > head {
                self.fault(&at, format!("it reaches to message {}, the log to {head}", kept.through));
            }
            if kept.state == SummaryState::Superseded && !parents.contains(id) {
                self.fault(&at, "it is superseded, and nothing followed it");
            }
            if kept.state == SummaryState::Standing {
                standing.entry(&kept.slot).or_default().push(*id);
            }
            if let Some(parent) = kept.parent {
                match all.get(&parent) {
                    None => self.fault(&at, format!("the one before it, {parent}, does not exist")),
                    Some(before) if before.slot != kept.slot => {
                        self.fault(&at, format!("the one before it, {parent}, is another slot's"));
                    }
                    Some(before) if before.through > kept.through => {
                        self.fault(&at, format!("the one before it, {parent}, reaches further"));
                    }
                    Some(_) => {}
                }
            }
        }
        let slots = self.slots(at, session, &all)?;
        let mut standing: Vec<_> = standing.into_iter().collect();
        standing.sort_by_key(|(_, ids)| ids.first().copied());
        for (slot, ids) in standing {
            let at = format!("{at} {}", named(slot));
            if ids.len() > 1 {
                self.fault(&at, format!("{} summaries stand at once", ids.len()));
            }
            if ids.iter().any(|id| slots.get(slot) != Some(&Some(*id))) {
                self.fault(&at, "a summary stands that it does not point to");
            }
        }
        Ok(())
    }

    fn kept(&mut self, at: &str, session: &SessionRow) -> Outcome<HashMap<SummaryId, Kept>> {
        let db = self.db;
        let mut statement = db.prepare(&format!("SELECT {SUMMARY} FROM summaries WHERE session = ?1"))?;
        let mut found = statement.query([session.id])?;
        let mut all = HashMap::new();
        while let Some(row) = found.next()? {
            let id: SummaryId = row.get(0)?;
            let at = format!("{at} summary {id}");
            if let Some(row) = self.note(&at, rows::summary(row).map_err(Trouble::from)) {
                let (slot, through) = ((row.scope, row.slot), row.through);
                all.insert(id, Kept { slot, through, state: row.state, parent: row.parent });
            }
        }
        Ok(all)
    }

    /// Looks at every slot; tells which summary each points to.
    fn slots(
        &mut self,
        at: &str,
        session: &SessionRow,
        all: &HashMap<SummaryId, Kept>,
    ) -> Outcome<HashMap<(Scope, String), Option<SummaryId>>> {
        let db = self.db;
        let sql = format!("SELECT {SLOT}, s.covered, s.due, s.ready_at FROM slots s WHERE s.session = ?1");
        let mut statement = db.prepare(&sql)?;
        let mut found = statement.query(params![session.id])?;
        let mut slots = HashMap::new();
        while let Some(row) = found.next()? {
            let key = (rows::scope_of(&row.get::<_, String>(0)?), row.get::<_, String>(1)?);
            let at = format!("{at} {}", named(&key));
            let slot = self.note(&at, rows::slot(row).map_err(Trouble::from));
            slots.insert(key, row.get(3)?);
            if let Some(slot) = slot {
                self.slot(&at, session, &slot, all);
                let columns = self.columns(&at, &slot, row);
                self.note(&at, columns);
            }
        }
        Ok(slots)
    }

    fn slot(&mut self, at: &str, session: &SessionRow, slot: &SlotRow, all: &HashMap<SummaryId, Kept>) {
        let (covered, head) = (slot.state.covered, session.tracker.head());
        if covered > head {
            self.fault(at, format!("it covers messages to {covered}, the log reaches to {head}"));
        }
        let Some(active) = slot.active else { return };
        match all.get(&active) {
            None => self.fault(at, format!("its summary, {active}, does not exist")),
            Some(kept) if (&kept.slot.0, &kept.slot.1) != (&slot.scope, &slot.name) => {
                self.fault(at, format!("its summary, {active}, is another slot's"));
            }
            Some(kept) if kept.state != SummaryState::Standing => {
                self.fault(at, format!("its summary, {active}, does not stand"));
            }
            Some(kept) if kept.through != covered => {
                let through = kept.through;
                self.fault(at, format!("it covers messages to {covered}, its summary reaches to {through}"));
            }
            Some(_) => {}
        }
    }

    /// Columns that only repeat what the slot's state says.
    fn columns(&mut self, at: &str, slot: &SlotRow, row: &Row<'_>) -> Outcome<()> {
        let due: Option<i64> = row.get(7)?;
        if rows::uint(row, 6)? != slot.state.covered || due != slot.state.due.map(|due| int(due.seq)) {
            self.fault(at, "coverage or firing are not what its state says");
        }
        let ready: Option<i64> = row.get(8)?;
        if ready != slot.ready_at().map(|at| at.0) {
            self.fault(at, "it is not ready when its state says so");
        }
        Ok(())
    }
}
