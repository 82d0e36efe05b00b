//! Whose turn it is to be worked for.

use std::collections::HashSet;
use std::sync::Arc;

use epitome::store::*;

use super::support::*;
use super::{every, want};

/// Makes a session of that workspace have something due.
async fn due(store: &dyn Store, workspace: &str, session: &str) {
    say_with(store, &SessionKey::new(workspace, session), "u a", &[every(2)]).await;
}

fn after(workspace: &str) -> Want {
    Want { after: Some(workspace.into()), ..want("one") }
}

fn full(workspaces: &[&str]) -> HashSet<Arc<str>> {
    workspaces.iter().map(|name| Arc::from(*name)).collect()
}

/// What is taken, `workspace/session`.
async fn taken(store: &dyn Store, want: Want) -> Option<String> {
    let lease = store.lease(want).await.unwrap()?;
    Some(format!("{}/{}", lease.key.workspace, lease.key.session))
}

pub(crate) async fn workspaces_have_their_turns_and_inside_each_whoever_waits_longest(made: Made) {
    let store = &*made.store;
    for (at, workspace, session) in
        [(1, "b", "old"), (2, "b", "new"), (3, "d", "x"), (4, "a", "x"), (5, "c", "x"), (6, "B", "x")]
    {
        made.clock.set(at * 1_000);
        due(store, workspace, session).await;
    }
    let mut last = "b".to_owned();
    let mut served = Vec::new();
    while let Some(next) = taken(store, after(&last)).await {
        last = next.split('/').next().unwrap().to_owned();
        served.push(next);
    }
    // By their bytes, as names are ordered everywhere.
    assert_eq!(served, ["c/x", "d/x", "B/x", "a/x", "b/old", "b/new"]);
    assert_eq!(store.verify().await.unwrap(), []);
}

pub(crate) async fn without_turns_whoever_waits_longest_comes_first_whosesoever_it_is(made: Made) {
    let store = &*made.store;
    for (at, workspace, session) in [(1, "z", "x"), (2, "a", "x"), (3, "m", "x"), (4, "a", "y")] {
        made.clock.set(at * 1_000);
        due(store, workspace, session).await;
    }
    let mut served = Vec::new();
    while let Some(next) = taken(store, want("one")).await {
        served.push(next);
    }
    assert_eq!(served, ["z/x", "a/x", "m/x", "a/y"]);
}

pub(crate) async fn a_workspace_that_holds_enough_is_passed_over(made: Made) {
    let store = &*made.store;
    for (at, workspace) in [(1, "a"), (2, "b"), (3, "c")] {
        made.clock.set(at * 1_000);
        due(store, workspace, "x").await;
    }
    let all = Want { full: full(&["a", "b", "c"]), ..want("one") };
    assert_eq!(taken(store, all.clone()).await, None);
    assert_eq!(taken(store, Want { after: Some("a".into()), ..all }).await, None);
    let passed = Want { full: full(&["a", "c"]), ..want("one") };
    assert_eq!(taken(store, passed).await.as_deref(), Some("b/x"));
    let next = Want { full: full(&["c", "nobody"]), ..after("b") };
    assert_eq!(taken(store, next).await.as_deref(), Some("a/x"));
    let only = Want { session: Some(SessionKey::new("c", "x")), ..after("c") };
    assert_eq!(taken(store, only).await.as_deref(), Some("c/x"));
}

pub(crate) async fn however_many_of_one_are_ready_the_others_have_their_turns(made: Made) {
    let store = &*made.store;
    for n in 0..600 {
        due(store, "huge", &format!("s{n:03}")).await;
    }
    // Nothing is to do for these yet, and they cost no turn.
    let timed = epitome_core::slot::Slot { trigger: "idle(60)".parse().unwrap(), ..every(1) };
    for workspace in ["hugf", "waits", "a1"] {
        say_with(store, &SessionKey::new(workspace, "x"), "u a", std::slice::from_ref(&timed)).await;
    }
    made.clock.set(1_000);
    for workspace in ["small", "a", "z"] {
        due(store, workspace, "x").await;
        due(store, workspace, "y").await;
    }
    let mut last = "a".to_owned();
    let mut served = Vec::new();
    for _ in 0..10 {
        let next = taken(store, after(&last)).await.unwrap();
        last = next.split('/').next().unwrap().to_owned();
        served.push(next);
    }
    assert_eq!(
        served,
        [
            "huge/s000",
            "small/x",
            "z/x",
            "a/x",
            "huge/s001",
            "small/y",
            "z/y",
            "a/y",
            "huge/s002",
            "huge/s003"
        ]
    );
    // Nor do they wait where nobody says whose turn it is, once the huge one holds enough.
    due(store, "b", "x").await;
    let others = Want { full: full(&["huge"]), ..want("two") };
    assert_eq!(taken(store, others.clone()).await.as_deref(), Some("b/x"));
    assert_eq!(taken(store, others).await, None);
    // What is not wanted is passed over inside a workspace too.
    let id = row(store, &SessionKey::new("huge", "s004")).await.id;
    let except = [(id, Default::default(), every(2).name)].into();
    assert_eq!(taken(store, Want { except, ..after("a") }).await.as_deref(), Some("huge/s005"));
    assert_eq!(taken(store, after("a")).await.as_deref(), Some("huge/s004"));
    assert_eq!(store.verify().await.unwrap(), []);
}

/// Numbers that look drawn and are the same every time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

pub(crate) async fn whoever_is_taken_is_whom_a_plain_list_would_give(made: Made) {
    let store = &*made.store;
    let names = ["", "A", "a", "a b", "aa", "b", "zß"];
    let mut draw = Draw(0x9E37_79B9_7F4A_7C15);
    // What waits: since when, and the number of its session.
    let mut waiting: Vec<(i64, i64, Arc<str>)> = Vec::new();
    for now in 1..=400 {
        made.clock.set(now);
        if draw.below(2) == 0 {
            let workspace = names[draw.below(names.len() as u64 - 1) as usize + 1];
            let key = SessionKey::new(workspace, format!("s{now}"));
            say_with(store, &key, "u a", &[every(2)]).await;
            waiting.push((now, row(store, &key).await.id, workspace.into()));
        } else {
            let after =
                (draw.below(4) > 0).then(|| Arc::from(names[draw.below(names.len() as u64) as usize]));
            let full: HashSet<Arc<str>> =
                names.iter().filter(|_| draw.below(4) == 0).map(|name| Arc::from(*name)).collect();
            let except: HashSet<_> =
                waiting.iter().filter(|_| draw.below(9) == 0).map(|(_, id, _)| *id).collect();
            let hold = std::time::Duration::from_secs(1_000);
            let wanted = Want {
                after: after.clone(),
                full: full.clone(),
                except: except.iter().map(|id| (*id, Default::default(), every(2).name)).collect(),
                hold,
                ..want("one")
            };
            let expected = waiting
                .iter()
                .enumerate()
                .filter(|(_, (_, id, workspace))| !full.contains(workspace) && !except.contains(id))
                .min_by_key(|(_, (since, id, workspace))| {
                    let turn = after.as_ref().map(|after| (workspace <= after, workspace.clone()));
                    (turn, *since, *id)
                })
                .map(|(at, _)| at);
            let taken = store.lease(wanted).await.unwrap().map(|lease| lease.id);
            assert_eq!(taken, expected.map(|at| waiting[at].1), "after {after:?}, full {full:?}");
            expected.map(|at| waiting.remove(at));
        }
    }
    assert_eq!(store.verify().await.unwrap(), []);
}
