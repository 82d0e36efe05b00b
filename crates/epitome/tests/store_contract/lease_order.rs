//! The order in which slots are leased, for every store.

use std::collections::HashSet;
use std::sync::Arc;

use epitome::store::*;
use epitome_core::message::Timestamp;

use super::support::*;
use super::{every, want};

/// Creates a session with a due slot in this workspace.
async fn due(store: &dyn Store, workspace: &str, session: &str) {
    say_with(store, &SessionKey::new(workspace, session), "u a", &[every(2)]).await;
}

fn after(workspace: &str) -> LeaseRequest {
    LeaseRequest { after: Some(workspace.into()), ..want("one") }
}

fn full(workspaces: &[&str]) -> HashSet<Arc<str>> {
    workspaces.iter().map(|name| Arc::from(*name)).collect()
}

/// Leases the expected slot, `workspace/session`. A session that is being written at the time, for example by the
/// search index, may be skipped. Then this releases the other lease and tries again.
#[track_caller]
fn takes<'a>(
    store: &'a dyn Store,
    want: LeaseRequest,
    expected: Option<&'a str>,
) -> impl Future<Output = ()> + 'a {
    let caller = std::panic::Location::caller();
    async move {
        let mut taken = None;
        for _ in 0..1_000 {
            let lease = store.lease(want.clone()).await.unwrap();
            taken = lease.as_ref().map(|lease| format!("{}/{}", lease.key.workspace, lease.key.session));
            if taken.as_deref() == expected {
                return;
            }
            if let Some(lease) = lease {
                give_back(store, lease).await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("{caller}: {expected:?} never came first, but {taken:?}; {want:?}");
    }
}

async fn give_back(store: &dyn Store, lease: Lease) {
    let (scope, name) = (lease.slot.scope, lease.slot.name);
    let decide: Decide = Box::new(move |standing| {
        let mut slot = standing.slot(&scope, &name)?.clone();
        (slot.work.owner, slot.work.until) = (None, None);
        Some(Changes { slots: vec![slot], ..Changes::default() })
    });
    assert!(store.change(&lease.key, Load::default(), decide).await.unwrap().is_some());
}

/// Leases exactly these slots, one after the other, starting after `last`.
async fn take_in_turn(store: &dyn Store, mut last: &'static str, expected: &[&'static str]) {
    for next in expected {
        takes(store, after(last), Some(next)).await;
        last = next.split('/').next().unwrap();
    }
}

pub(crate) async fn workspaces_take_turns_longest_waiting_slot_first(made: Made) {
    let store = &*made.store;
    for (at, workspace, session) in
        [(1, "b", "old"), (2, "b", "new"), (3, "d", "x"), (4, "a", "x"), (5, "c", "x"), (6, "B", "x")]
    {
        made.clock.set(at * 1_000);
        due(store, workspace, session).await;
    }
    // Ordered by their bytes, like all names.
    take_in_turn(store, "b", &["c/x", "d/x", "B/x", "a/x", "b/old", "b/new"]).await;
    takes(store, after("b"), None).await;
    assert_eq!(store.verify().await.unwrap(), []);
}

pub(crate) async fn without_round_robin_the_longest_waiting_slot_is_leased(made: Made) {
    let store = &*made.store;
    for (at, workspace, session) in [(1, "z", "x"), (2, "a", "x"), (3, "m", "x"), (4, "a", "y")] {
        made.clock.set(at * 1_000);
        due(store, workspace, session).await;
    }
    for next in [Some("z/x"), Some("a/x"), Some("m/x"), Some("a/y"), None] {
        takes(store, want("one"), next).await;
    }
}

pub(crate) async fn a_workspace_with_enough_workers_is_skipped(made: Made) {
    let store = &*made.store;
    for (at, workspace) in [(1, "a"), (2, "b"), (3, "c")] {
        made.clock.set(at * 1_000);
        due(store, workspace, "x").await;
    }
    let all = LeaseRequest { full_workspaces: full(&["a", "b", "c"]), ..want("one") };
    takes(store, all.clone(), None).await;
    takes(store, LeaseRequest { after: Some("a".into()), ..all }, None).await;
    takes(store, LeaseRequest { full_workspaces: full(&["a", "c"]), ..want("one") }, Some("b/x")).await;
    takes(store, LeaseRequest { full_workspaces: full(&["c", "nobody"]), ..after("b") }, Some("a/x")).await;
    let only = LeaseRequest { session: Some(SessionKey::new("c", "x")), ..after("c") };
    takes(store, only, Some("c/x")).await;
}

pub(crate) async fn a_returned_slot_waits_behind_the_others_without_a_failure(made: Made) {
    let store = &*made.store;
    for (at, workspace) in [(1, "a"), (2, "b")] {
        made.clock.set(at * 1_000);
        due(store, workspace, "x").await;
    }
    let lease = store.lease(want("one")).await.unwrap().unwrap();
    assert_eq!(&*lease.key.workspace, "a");
    let (key, fence) = (lease.key.clone(), lease.slot.fence);
    let (scope, name) = (lease.slot.scope, lease.slot.name);
    let decide: Decide = Box::new(move |standing| {
        let mut slot = standing.slot(&scope, &name)?.clone();
        (slot.work.owner, slot.work.until) = (None, None);
        slot.work.aside = Some(Timestamp(3_000));
        Some(Changes { slots: vec![slot], ..Changes::default() })
    });
    assert!(store.change(&key, Load::default(), decide).await.unwrap().is_some());
    assert_eq!(store.verify().await.unwrap(), []);
    let (counts, rows) = store.queue(Some("a"), 10).await.unwrap();
    assert_eq!((counts.due, counts.waiting, rows.len()), (1, 0, 1), "it waits for no other attempt");
    takes(store, LeaseRequest { session: Some(key.clone()), ..want("one") }, None).await;
    made.clock.set(2_999);
    due(store, "c", "x").await;
    // Regardless of whose turn it is.
    takes(store, LeaseRequest { full_workspaces: full(&["b", "c"]), ..after("c") }, None).await;
    made.clock.set(3_000);
    for next in ["b/x", "c/x", "a/x"] {
        takes(store, want("two"), Some(next)).await;
    }
    let standing = store.session_state(&key, Load::default()).await.unwrap();
    let slot = standing.slots.first().unwrap();
    assert_eq!((slot.work.attempts, slot.fence), (0, fence + 1));
    assert_eq!(store.verify().await.unwrap(), []);
}

pub(crate) async fn one_workspace_with_many_ready_slots_does_not_block_the_others(made: Made) {
    let store = &*made.store;
    for n in 0..600 {
        due(store, "huge", &format!("s{n:03}")).await;
    }
    // These are not ready yet, and do not use up a turn.
    let timed = epitome_core::slot::Slot { trigger: "idle(60)".parse().unwrap(), ..every(1) };
    for workspace in ["hugf", "waits", "a1"] {
        say_with(store, &SessionKey::new(workspace, "x"), "u a", std::slice::from_ref(&timed)).await;
    }
    made.clock.set(1_000);
    for workspace in ["small", "a", "z"] {
        due(store, workspace, "x").await;
        due(store, workspace, "y").await;
    }
    take_in_turn(
        store,
        "a",
        &[
            "huge/s000",
            "small/x",
            "z/x",
            "a/x",
            "huge/s001",
            "small/y",
            "z/y",
            "a/y",
            "huge/s002",
            "huge/s003",
        ],
    )
    .await;
    // Without round-robin they do not wait either, once the huge workspace has enough workers.
    due(store, "b", "x").await;
    let others = LeaseRequest { full_workspaces: full(&["huge"]), ..want("two") };
    takes(store, others.clone(), Some("b/x")).await;
    takes(store, others, None).await;
    // Excluded slots are skipped inside a workspace too.
    let id = row(store, &SessionKey::new("huge", "s004")).await.id;
    let excluded = [(id, Default::default(), every(2).name)].into();
    takes(store, LeaseRequest { excluded, ..after("a") }, Some("huge/s005")).await;
    takes(store, after("a"), Some("huge/s004")).await;
    assert_eq!(store.verify().await.unwrap(), []);
}

pub(crate) async fn a_ready_slot_is_found_behind_many_that_are_not(made: Made) {
    let store = &*made.store;
    let mut excluded = HashSet::new();
    for n in 0..300 {
        let workspace = format!("w{n:03}");
        due(store, &workspace, "x").await;
        let id = row(store, &SessionKey::new(&*workspace, "x")).await.id;
        excluded.insert((id, Default::default(), every(2).name));
    }
    made.clock.set(1_000);
    due(store, "w1499", "x").await;
    takes(store, LeaseRequest { excluded: excluded.clone(), ..after("w150") }, Some("w1499/x")).await;
    // No other slot is leased: with round-robin, without it, or for a session of that workspace.
    let theirs = SessionKey::new("w007", "x");
    for nothing in [after("w150"), want("one"), LeaseRequest { session: Some(theirs), ..want("one") }] {
        takes(store, LeaseRequest { excluded: excluded.clone(), ..nothing }, None).await;
    }
    takes(store, after("w150"), Some("w151/x")).await;
    assert_eq!(store.verify().await.unwrap(), []);
}

/// Returns pseudo-random numbers that are the same in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    fn of<'a>(&mut self, names: &[&'a str]) -> &'a str {
        names[usize::try_from(self.below(names.len() as u64)).unwrap()]
    }
}

pub(crate) async fn leases_match_a_simple_model(made: Made) {
    let store = &*made.store;
    let names = ["", "A", "a", "a b", "aa", "b", "zß"];
    let mut draw = Draw(0x9E37_79B9_7F4A_7C15);
    // The waiting slots: since when, the id of the session, the workspace.
    let mut waiting: Vec<(i64, i64, Arc<str>)> = Vec::new();
    for now in 1..=400 {
        made.clock.set(now);
        if draw.below(2) == 0 {
            let workspace = draw.of(&names[1..]);
            let key = SessionKey::new(workspace, format!("s{now}"));
            say_with(store, &key, "u a", &[every(2)]).await;
            waiting.push((now, row(store, &key).await.id, workspace.into()));
        } else {
            let after = (draw.below(4) > 0).then(|| Arc::from(draw.of(&names)));
            let full: HashSet<Arc<str>> =
                names.iter().filter(|_| draw.below(4) == 0).map(|name| Arc::from(*name)).collect();
            let excluded: HashSet<_> =
                waiting.iter().filter(|_| draw.below(9) == 0).map(|(_, id, _)| *id).collect();
            let hold = std::time::Duration::from_secs(1_000);
            let wanted = LeaseRequest {
                after: after.clone(),
                full_workspaces: full.clone(),
                excluded: excluded.iter().map(|id| (*id, Default::default(), every(2).name)).collect(),
                duration: hold,
                ..want("one")
            };
            let expected = waiting
                .iter()
                .enumerate()
                .filter(|(_, (_, id, workspace))| !full.contains(workspace) && !excluded.contains(id))
                .min_by_key(|(_, (since, id, workspace))| {
                    let turn = after.as_ref().map(|after| (workspace <= after, workspace.clone()));
                    (turn, *since, *id)
                })
                .map(|(at, _)| at);
            let expected = expected.map(|at| waiting.remove(at));
            let name = expected.map(|(since, _, workspace)| format!("{workspace}/s{since}"));
            takes(store, wanted, name.as_deref()).await;
        }
    }
    assert_eq!(store.verify().await.unwrap(), []);
}
