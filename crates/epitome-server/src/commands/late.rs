//! Summaries that should have been written by now, told where somebody waited for them.

use epitome::{Session, SlotStatus};

use crate::failure::Failure;
use crate::show::{Show, tame};

/// So many causes are told.
const TOLD: usize = 3;

/// Why summaries are late, each cause once, with the first session it holds up.
#[derive(Debug, Default)]
pub(super) struct Late(Vec<(String, String)>);

impl Late {
    /// Looks at a session. That it cannot be looked at is no reason to fail.
    pub(super) async fn look(&mut self, session: &Session) {
        if self.0.len() >= TOLD {
            return;
        }
        let slots = session.explain().await.map(|explained| explained.slots).unwrap_or_default();
        for slot in slots {
            let owed = slot.due.is_some() && slot.status != SlotStatus::Retired && slot.attempts > 0;
            let Some(cause) = slot.last_error.filter(|_| owed) else { continue };
            if self.0.len() < TOLD && self.0.iter().all(|(known, _)| *known != cause) {
                self.0.push((cause, session.name().to_owned()));
            }
        }
    }

    /// A line for each.
    pub(super) fn tell(&self, show: &mut Show) -> Result<(), Failure> {
        for (cause, session) in &self.0 {
            let (cause, session) = (tame(cause), tame(session));
            show.error(format!("summaries are late: {cause}; `epitome explain {session}` says more"))?;
        }
        Ok(())
    }
}
