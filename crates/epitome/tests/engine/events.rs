//! Events report every change, in order, to every client, whichever engine made the change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use epitome::event::{Event, EventBody};
use epitome::model::Reply;
use epitome::rules::message::{Message, Seq};
use epitome::store::SummaryState;
use epitome::{Batch, Engine, Error, Fork, Pace, Session, Summarize, Workspace};
use epitome_testkit::scripted::Scripted;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde_json::json;

use crate::failing::down;
use crate::support::{
    Home, MINUTE, cases, current_summary, fast_pace, on_every_store, one_slot, slot, talk, with_settings,
    within_timeout,
};

async fn all_events(workspace: &Workspace) -> Vec<Event> {
    workspace.events(None, None, 1_000).await.unwrap().events
}

fn kinds(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(|event| event.body.kind()).collect()
}

#[tokio::test]
async fn every_kind_of_event_is_reported_in_order_by_any_engine() {
    let home = Home::file();
    let model = Scripted::new()
        .named("gpt-test")
        .answers(|_| Ok(Reply::complete("Customers in Oslo wait for parcels; they were told so.")))
        .fails(down());
    let (one, two) = (home.open(one_slot(&model)).await, home.open(one_slot(&model)).await);
    let session = one.session("s");
    session.append(talk(1, 20)).await.unwrap();
    two.work().await.unwrap();
    let summary = current_summary(&session, "short").await.unwrap();
    session.append(talk(21, 40)).await.unwrap();
    one.work().await.unwrap();
    let failing = slot(&session, "short").await;
    two.session("s").undo(summary.id).await.unwrap();
    two.session("s").fork(Fork { at: Some(30), ..Fork::whole("copy") }).await.unwrap();
    two.session("s").fork(Fork::condensed("helper")).await.unwrap();

    let events = all_events(&one.workspace("default")).await;
    assert_eq!(events, all_events(&two.workspace("default")).await);
    assert_eq!(events.iter().map(|event| event.id).collect::<Vec<_>>(), (1..=8).collect::<Vec<_>>());
    let shown: Vec<_> = events.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    let now = home.clock.now().0;
    let event = |id: u64, session: &str, kind: &str, data: serde_json::Value| json!({"id": id, "session": session, "at": now, "kind": kind, "data": data});
    let id = summary.id;
    let moved = |state: &str, stands: Option<i64>| {
        json!({"summary": id, "slot": "short", "scope": null, "through": 20, "model": "gpt-test", "stand_in": false,
            "state": state, "stands": stands})
    };
    assert_eq!(shown[0], event(1, "s", "message", json!({"from": 1, "through": 20})));
    assert_eq!(shown[1], event(2, "s", "summary", moved("standing", Some(id))));
    let condensed = json!({"slot": "short", "scope": null, "covers": [1, 20], "messages": 20,
        "tokens_before": summary.replaced_tokens, "tokens_after": summary.tokens, "model": "gpt-test",
        "stand_in": false, "notice": "Condensed 20 messages into a summary"});
    assert_eq!(shown[2], event(3, "s", "condensed", condensed));
    assert_eq!(shown[3], event(4, "s", "message", json!({"from": 21, "through": 40})));
    let failed = json!({"slot": "short", "scope": null, "attempts": 1,
        "reason": "no answer from the model: connection refused", "not_before": failing.not_before});
    assert_eq!(shown[4], event(5, "s", "failed", failed));
    assert_eq!(shown[5], event(6, "s", "summary", moved("undone", None)));
    assert_eq!(shown[6], event(7, "copy", "message", json!({"from": 1, "through": 30})));
    assert_eq!((&*events[7].session, events[7].body.kind()), ("helper", "message"));
    assert!(!serde_json::to_string(&shown).unwrap().contains("Oslo"), "no word of what was said");

    session.delete().await.unwrap();
    let left = all_events(&two.workspace("default")).await;
    assert_eq!(left.iter().map(|event| event.id).collect::<Vec<_>>(), [7, 8]);
    assert_eq!(one.workspace("default").newest_event().await.unwrap(), 8);
    assert_eq!(all_events(&one.workspace("other")).await, []);
}

#[tokio::test]
async fn calls_that_change_nothing_create_no_events() {
    on_every_store(async |home| {
        let engine = home.open(one_slot(&Scripted::new())).await;
        let (session, workspace) = (engine.session("s"), engine.workspace("default"));
        let batch = || Batch::from(talk(1, 2)).key("k");
        session.append(batch()).await.unwrap();
        assert!(session.append(batch()).await.unwrap().repeated);
        assert!(session.append(Batch::from(talk(1, 2)).after(7)).await.is_err());
        assert!(session.undo(99).await.is_err());
        session.set_metadata(Default::default()).await.unwrap();
        assert_eq!(kinds(&all_events(&workspace).await), ["message"]);
    })
    .await;
}

#[tokio::test]
async fn each_failure_is_an_event_and_fallback_summaries_are_marked() {
    let home = Home::memory();
    let model = Scripted::new().otherwise(|_| Err(down()));
    let settings = r#", "slot": [{"name": "short", "trigger": "messages(20)"}],
        "summarize": {"models": ["main"], "stand_in_after": "10m"}"#;
    let engine = home.open(with_settings(&model, settings)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    for _ in 0..2 {
        session.work().await.unwrap();
        home.clock.pass(MINUTE * 5);
    }
    home.clock.pass(MINUTE * 5);
    session.work().await.unwrap();
    let events = all_events(&engine.workspace("default")).await;
    assert_eq!(kinds(&events), ["message", "failed", "failed", "summary", "condensed"]);
    let attempts: Vec<u32> = events
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::Failed(failed) => Some(failed.attempts),
            _ => None,
        })
        .collect();
    assert_eq!(attempts, [1, 2]);
    let EventBody::Summary(changed) = &events[3].body else { panic!("{events:?}") };
    assert!(changed.stand_in && &*changed.model == "local" && changed.current == Some(changed.summary));
}

/// Being woken is all there is: looking by oneself would take an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_misses_nothing_between_reading_and_waiting() {
    let pace = Pace { poll: Duration::from_secs(3_600), ..fast_pace(0) };
    let engine = Home::memory().open(Engine::builder().pace(pace)).await;
    let workspace = engine.workspace("default");
    let mut listener = workspace.listen();
    let writers: Vec<_> = (0..4)
        .map(|n| {
            let session = engine.session(format!("s{n}"));
            tokio::spawn(async move {
                for n in 0..50 {
                    session.append(Message::user(format!("Line {n}."))).await.unwrap();
                }
            })
        })
        .collect();
    let mut last = 0;
    while last < 200 {
        let page = workspace.events(Some(last), None, 7).await.unwrap();
        for event in page.events {
            assert_eq!(event.id, last + 1);
            last = event.id;
        }
        if last == workspace.newest_event().await.unwrap() && last < 200 {
            within_timeout("waiting for an append", listener.changed()).await;
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    // Summaries and forks wake it too.
    let seen = async |listener: &mut epitome::Listener, kind: &str| {
        within_timeout("waiting for an event", async {
            while !kinds(&workspace.events(Some(200), None, 100).await.unwrap().events).contains(&kind) {
                listener.changed().await;
            }
        })
        .await;
    };
    engine.session("s0").summarize(Summarize::default()).await.unwrap();
    seen(&mut listener, "condensed").await;
    engine.session("s0").fork(Fork::whole("copy")).await.unwrap();
    seen(&mut listener, "message").await;
}

#[tokio::test]
async fn a_listener_also_wakes_for_other_processes() {
    let home = Home::file();
    let (one, two) =
        (home.open(Engine::builder().pace(fast_pace(0))).await, home.open(Engine::builder()).await);
    let workspace = one.workspace("default");
    let mut listener = workspace.listen();
    two.session("s").append(talk(1, 1)).await.unwrap();
    within_timeout("another engine's append", async {
        while workspace.newest_event().await.unwrap() == 0 {
            listener.changed().await;
        }
    })
    .await;
}

#[derive(Debug, Clone)]
enum Operation {
    Say(usize, usize),
    Force(usize),
    Undo(usize, u8),
    Rebuild(usize),
    Mood(bool),
    Work,
    Fork(usize),
    Delete(usize),
}

fn step() -> impl Strategy<Value = Operation> {
    let session = || 0usize..2;
    prop_oneof![
        6 => (session(), 1usize..9).prop_map(|(session, count)| Operation::Say(session, count)),
        2 => session().prop_map(Operation::Force),
        2 => (session(), any::<u8>()).prop_map(|(session, pick)| Operation::Undo(session, pick)),
        1 => session().prop_map(Operation::Rebuild),
        2 => any::<bool>().prop_map(Operation::Mood),
        4 => Just(Operation::Work),
        1 => session().prop_map(Operation::Fork),
        1 => session().prop_map(Operation::Delete),
    ]
}

/// The events alone give the length of every session, and the current summary of each slot that a fork did not copy.
async fn follow(workspace: &Workspace) -> TestCaseResult {
    let mut heads: BTreeMap<Arc<str>, Seq> = BTreeMap::new();
    let mut stands = BTreeMap::new();
    let events = all_events(workspace).await;
    for (at, event) in events.iter().enumerate() {
        match &event.body {
            EventBody::Message(span) => {
                let head = heads.entry(Arc::clone(&event.session)).or_insert(0);
                prop_assert_eq!(span.from, *head + 1, "a gap or an overlap in {}", event.session);
                *head = span.through;
            }
            EventBody::Summary(moved) => {
                stands.insert((Arc::clone(&event.session), Arc::clone(&moved.slot)), moved.current);
                let next = events.get(at + 1).map(|event| &event.body);
                let stood = moved.state == SummaryState::Current;
                prop_assert!(moved.through <= heads[&event.session]);
                prop_assert!(!stood || matches!(next, Some(EventBody::Condensed(c)) if c.slot == moved.slot));
            }
            EventBody::Condensed(condensed) => prop_assert_eq!(condensed.covers[0], 1),
            EventBody::Failed(failed) => prop_assert!(!failed.reason.is_empty()),
        }
    }
    let sessions = workspace.sessions(None, 100).await.unwrap();
    let real: BTreeMap<Arc<str>, Seq> =
        sessions.iter().map(|session| (Arc::clone(&session.name), session.messages)).collect();
    prop_assert_eq!(&heads, &real);
    for name in real.keys() {
        for slot in workspace.session(Arc::clone(name)).explain().await.unwrap().slots {
            if let Some(stands) = stands.get(&(Arc::clone(name), Arc::from(slot.slot.as_str()))) {
                prop_assert_eq!(*stands, slot.summary);
            }
        }
    }
    Ok(())
}

async fn run(steps: Vec<Operation>) -> TestCaseResult {
    let home = Home::memory();
    let well = Arc::new(AtomicBool::new(true));
    let mood = Arc::clone(&well);
    let model = Scripted::new().otherwise(move |ask| match mood.load(Ordering::SeqCst) {
        true => Ok(Scripted::plain(ask)),
        false => Err(down()),
    });
    let settings = r#", "slot": [{"name": "a", "trigger": "messages(5)"},
        {"name": "b", "trigger": "messages(7)", "keep": "messages(3)", "models": ["local"]}]"#;
    let engine = home.open(with_settings(&model, settings)).await;
    let workspace = engine.workspace("default");
    let sessions: Vec<Session> = ["one", "two"].map(|name| engine.session(name)).into();
    for (at, step) in steps.iter().enumerate() {
        let done = match step {
            Operation::Say(n, count) => {
                let session = &sessions[*n];
                let head = session.info().await.map_or(0, |info| info.messages as usize);
                session.append(talk(head + 1, head + count)).await.map(drop)
            }
            Operation::Force(n) => sessions[*n].summarize(Summarize::slot("a")).await.map(drop),
            Operation::Undo(n, pick) => match sessions[*n].history(None, 100).await {
                Ok(all) if !all.is_empty() => {
                    sessions[*n].undo(all[*pick as usize % all.len()].id).await.map(drop)
                }
                _ => Ok(()),
            },
            Operation::Rebuild(n) => sessions[*n].rebuild(None, "a").await.map(drop),
            Operation::Mood(new) => {
                well.store(*new, Ordering::SeqCst);
                Ok(())
            }
            Operation::Work => {
                home.clock.pass(MINUTE * 6);
                engine.work().await
            }
            Operation::Fork(n) => sessions[*n].fork(Fork::whole(format!("fork {at}"))).await.map(drop),
            Operation::Delete(n) => sessions[*n].delete().await.map(drop),
        };
        let expected =
            matches!(done, Ok(()) | Err(Error::NotFound { .. } | Error::Conflict(_) | Error::Model { .. }));
        prop_assert!(expected, "{step:?}: {done:?}");
    }
    follow(&workspace).await?;
    prop_assert_eq!(engine.verify().await.unwrap(), []);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(256), max_shrink_iters: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_events_alone_give_the_state_of_every_session(steps in prop::collection::vec(step(), 1..30)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(steps))?;
    }
}
