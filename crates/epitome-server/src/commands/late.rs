//! Summaries that should have been written by now, told where somebody waited for them.

use std::collections::HashSet;

use epitome::Workspace;

use super::prelude::*;

/// So many causes are told.
const TOLD: usize = 3;

/// Says why summaries of these sessions are late, where they are: each cause once, with a session it holds up. That
/// it cannot be known is no reason to fail.
pub(super) async fn tell(
    workspace: &Workspace,
    sessions: &HashSet<&str>,
    show: &mut Show,
) -> Result<(), Failure> {
    let queue = workspace.queue().await.unwrap_or_default();
    let mut causes: Vec<&str> = Vec::new();
    for slot in queue.slots.iter().filter(|slot| slot.due.is_some() && sessions.contains(&*slot.session)) {
        let Some(cause) = slot.last_error.as_deref().filter(|cause| !causes.contains(cause)) else {
            continue;
        };
        causes.push(cause);
        let (cause, session) = (tame(cause), tame(&slot.session));
        show.error(format!("summaries are late: {cause}; `epitome explain {session}` says more"))?;
        if causes.len() == TOLD {
            break;
        }
    }
    Ok(())
}
