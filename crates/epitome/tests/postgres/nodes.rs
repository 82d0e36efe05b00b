//! A node uses another node's changes at once, despite its caches.

use std::sync::{Arc, Mutex};

use epitome::store::{Decide, Load, Store};
use epitome_core::message::Message;
use epitome_core::slot::{Limit, Slot};
use epitome_core::trigger::Trigger;

use crate::postgres_server::server;
use crate::setup::{count_unique_messages, database, node, say, want};
use crate::support::{appended, key, say_with, set_workspace, standing};

/// Appends a message, and returns the settings that the decision used.
async fn decided_by(store: &dyn Store, text: &str) -> String {
    let seen = Arc::new(Mutex::new(String::new()));
    let (by, said) = (Arc::clone(&seen), vec![Message::user(text)]);
    let decide = Box::new(move |standing: &epitome::store::SessionState| {
        by.lock().unwrap().clone_from(&standing.workspace_settings);
        Some(appended(standing, &said, &[]))
    });
    assert!(store.change(&key("a"), Load::default(), decide).await.unwrap().is_some());
    seen.lock().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_uses_settings_from_another_node() {
    let database = database(server());
    let (here, there) = (node(&database.url()).await, node(&database.url()).await);
    for n in 0..4 {
        say(&here, &key("a"), &format!("before {n}")).await.unwrap();
    }
    for settings in [r#"{"limits": {"message": 1000}}"#, r#"{"limits": {"message": 2000}}"#, ""] {
        set_workspace(&there, &key("a").workspace, Some(settings)).await;
        assert_eq!(decided_by(&here, &format!("at once {settings}")).await, settings);
        assert_eq!(decided_by(&here, &format!("and again {settings}")).await, settings);
    }
    here.close().await;
    there.close().await;
    assert_eq!(count_unique_messages(&database), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_count_across_nodes() {
    let database = database(server());
    let nodes = [node(&database.url()).await, node(&database.url()).await];
    let every =
        |name: &str, count| Slot { trigger: Trigger::Messages(count), ..Slot::new(name, Limit::Tokens(100)) };
    let orders = [every("seldom", 17), every("soon", 5)];
    for n in 1..=40u64 {
        // Each several times in a row, so that both cached and uncached state is used.
        let here = &nodes[usize::from(n % 8 >= 4)];
        say_with(here, &key("a"), "u", &orders).await;
        if n % 9 == 0 {
            let lease = here.lease(want("somebody")).await.unwrap();
            assert_eq!(lease.is_some(), n <= 18, "there are two to take");
        }
        for node in &nodes {
            let slots = standing(node, &key("a")).await.slots;
            let counted: Vec<_> = slots.iter().map(|slot| (slot.state.since.messages, slot.fence)).collect();
            let fired = |slot: usize| slots[slot].state.newest.map_or(0, |newest| newest.seq);
            assert_eq!(
                counted.iter().map(|(count, _)| *count).collect::<Vec<_>>(),
                [n % 17, n % 5],
                "after {n}"
            );
            assert_eq!([fired(0), fired(1)], [n - n % 17, n - n % 5], "after {n}");
            assert_eq!(counted.iter().map(|(_, fence)| fence).sum::<u64>(), (n / 9).min(2));
        }
    }
    for node in nodes {
        assert_eq!(node.verify().await.unwrap(), []);
        node.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_of_an_earlier_release_move_back_into_slots() {
    let database = database(server());
    let store = node(&database.url()).await;
    let order = Slot { trigger: Trigger::Messages(9), ..Slot::new("often", Limit::Tokens(100)) };
    for _ in 0..3 {
        say_with(&store, &key("a"), "u", std::slice::from_ref(&order)).await;
    }
    let before = standing(&store, &key("a")).await.slots;
    store.close().await;
    // As the earlier release stored it: the slot's row before the first message, the counters in the session's row.
    database.psql(
        "ALTER TABLE epitome.sessions ADD COLUMN counts text NOT NULL DEFAULT '', ADD COLUMN version bigint NOT NULL DEFAULT 0;
         UPDATE epitome.sessions o SET counts = jsonb_build_array(jsonb_build_array(s.scope, s.name, \
         s.state::jsonb -> 'since', s.state::jsonb -> 'due_at'))::text FROM epitome.slots s WHERE s.session = o.id;
         UPDATE epitome.slots SET state = (state::jsonb || '{\"since\": [0,0,0,0,0,0,0,null,0]}')::text;
         ALTER TABLE epitome.workspaces RENAME COLUMN attributes TO configuration;
         ALTER TABLE epitome.sessions RENAME COLUMN attributes TO configuration;
         ALTER TABLE epitome.authors RENAME COLUMN attributes TO configuration;
         ALTER TABLE epitome.members RENAME COLUMN attributes TO configuration;
         DELETE FROM epitome.migrations WHERE name >= '0006_no_counts'",
    );
    let store = node(&database.url()).await;
    assert_eq!(standing(&store, &key("a")).await.slots, before);
    assert_eq!(before[0].state.since.messages, 3);
    assert_eq!(store.verify().await.unwrap(), []);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_change_affects_only_its_caller() {
    let database = database(server());
    let store = node(&database.url()).await;
    let mut running = tokio::task::JoinSet::new();
    for task in 0..60 {
        let store = store.clone();
        running.spawn(async move {
            let own = key(&format!("of {task}"));
            for number in 0..10 {
                if task % 3 != 0 {
                    say(&store, &own, &format!("{number}")).await.unwrap();
                    continue;
                }
                // Messages without a session; or a panic in the decision.
                let decide: Decide = Box::new(move |standing| {
                    let mut changes = appended(standing, &[Message::user("never")], &[]);
                    assert!(number % 2 == 0, "planted");
                    changes.session = None;
                    Some(changes)
                });
                let told = store.change(&own, Load::default(), decide).await;
                assert!(told.is_err(), "{number} of {task}");
            }
        });
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
    store.close().await;
    assert_eq!(count_unique_messages(&database), 400);
}
