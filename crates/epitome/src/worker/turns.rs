//! Whose turn it is: no workspace waits for another that has more to do, or whose model is slower.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Goes round the workspaces, and sees to it that none holds all workers.
#[derive(Default)]
pub(super) struct Turns {
    last: Option<Arc<str>>,
}

impl Turns {
    /// Which workspace was served last.
    pub(super) fn last(&self) -> Option<Arc<str>> {
        self.last.clone()
    }

    pub(super) fn served(&mut self, workspace: &Arc<str>) {
        self.last = Some(Arc::clone(workspace));
    }
}

/// So many of these workers one workspace may hold, or one model keep waiting: three of four, and never all. However slow
/// it is, the others' turns come meanwhile. Nothing where there is one worker: it works for whoever's turn it is.
pub(super) fn share(workers: usize) -> Option<usize> {
    (workers > 1).then(|| workers.saturating_mul(3).div_ceil(4).min(workers.saturating_sub(1)))
}

/// The workspaces that hold as many of these workers as they may. `held` names one for each that is busy.
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
    fn nobody_holds_all_workers_where_there_are_two() {
        assert_eq!((share(0), share(1)), (None, None));
        let shares: Vec<usize> = (2..=9).filter_map(share).collect();
        assert_eq!(shares, [1, 2, 3, 4, 5, 6, 6, 7]);
        let holds =
            |workers| share(workers).is_some_and(|most| most < workers && most * 4 + 4 >= workers * 3);
        assert!((2..1_000).all(holds));
    }

    #[test]
    fn a_workspace_is_full_when_it_holds_its_share() {
        let names: Vec<Arc<str>> = ["a", "b", "a", "a"].map(Arc::from).to_vec();
        let full_of = |workers| {
            let mut full: Vec<_> = full(workers, names.iter()).into_iter().collect();
            full.sort();
            full
        };
        assert_eq!(full_of(4), [Arc::from("a")]);
        assert_eq!(full_of(5), [] as [Arc<str>; 0]);
        assert_eq!(full_of(2), [Arc::from("a"), Arc::from("b")]);
        // Whoever has one worker works for whoever's turn it is.
        assert_eq!(full_of(1), [] as [Arc<str>; 0]);
    }
}
