//! Whose turn it is: no workspace waits for another that has more to do, or whose model is slower.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// How many summaries are written at a time in all. One workspace, or one model, has as many as there are workers; a third
/// more is for whoever else comes meanwhile, however slow those are. With one worker it is whose turn it is.
pub(super) fn places(workers: usize) -> usize {
    if workers > 1 { workers.saturating_add(workers.div_ceil(3)) } else { workers }
}

/// How many of the places one workspace may hold, or one model keep waiting; nothing where there is only one.
pub(super) fn share(workers: usize) -> Option<usize> {
    (workers > 1).then_some(workers)
}

/// The workspaces that hold as many of the places as they may. `held` names one for each that is taken.
pub(super) fn full<'a>(workers: usize, held: impl Iterator<Item = &'a Arc<str>>) -> HashSet<Arc<str>> {
    let Some(most) = share(workers) else { return HashSet::new() };
    let mut counts: HashMap<&Arc<str>, usize> = HashMap::new();
    for workspace in held {
        *counts.entry(workspace).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| *count >= most).map(|(name, _)| Arc::clone(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_holds_all_places_where_there_are_two_workers() {
        assert_eq!([0, 1, 2, 3, 4, 16].map(places), [0, 1, 3, 4, 6, 22]);
        assert_eq!((share(0), share(1), share(2)), (None, None, Some(2)));
        assert!((2..1_000).all(|workers| share(workers).is_some_and(|most| most < places(workers))));
    }

    #[test]
    fn a_workspace_is_full_when_it_holds_its_share() {
        let names: Vec<Arc<str>> = ["a", "b", "a", "a"].map(Arc::from).to_vec();
        let full_of = |workers| full(workers, names.iter()).into_iter().collect::<Vec<_>>();
        assert_eq!(full_of(3), [Arc::from("a")]);
        assert_eq!(full_of(4), [] as [Arc<str>; 0]);
        // Whoever has one worker works for whoever's turn it is.
        assert_eq!(full_of(1), [] as [Arc<str>; 0]);
    }
}
