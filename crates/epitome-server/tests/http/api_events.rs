//! Events over HTTP: every kind, in order, none lost and none twice.

use epitome::rules::message::Message;
use serde_json::{Value, json};

use crate::event_stream::{EventStream, ReceivedEvent};
use crate::server::{Server, open};
use crate::talk::{add, settle, talk};

fn ids(heard: &[ReceivedEvent]) -> Vec<u64> {
    heard.iter().map(|heard| heard.id.unwrap()).collect()
}

#[test]
fn a_listener_receives_new_events() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "before", &talk(1, 1));
    let mut events = EventStream::open(&server, "", &[]);
    add(&mut client, "a", &talk(1, 3));
    let heard = events.next();
    assert_eq!((heard.kind.as_str(), heard.id), ("message", Some(2)));
    assert_eq!(
        (&heard.data["session"], &heard.data["from"], &heard.data["through"]),
        (&json!("a"), &json!(1), &json!(3))
    );
    assert!(heard.data["at"].is_i64());
}

#[test]
fn a_summary_and_its_undo_are_events() {
    let server = Server::start();
    let mut client = server.client();
    let mut events = EventStream::open(&server, "?after=0", &[]);
    add(&mut client, "a", &talk(1, 20));
    let heard = events.take(3);
    assert_eq!(
        heard.iter().map(|heard| heard.kind.as_str()).collect::<Vec<_>>(),
        ["message", "summary", "condensed"]
    );
    let (summary, condensed) = (&heard[1].data, &heard[2].data);
    assert_eq!(
        (&summary["summary"], &summary["stands"], &summary["state"]),
        (&json!(1), &json!(1), &json!("standing"))
    );
    assert_eq!(
        (&summary["slot"], &summary["through"], &summary["model"]),
        (&json!("short"), &json!(20), &json!("local"))
    );
    assert_eq!((&condensed["covers"], &condensed["messages"]), (&json!([1, 20]), &json!(20)));
    assert!(condensed["tokens_after"].as_u64() < condensed["tokens_before"].as_u64(), "{condensed}");
    client.send("POST", "/v1/sessions/a/summaries/1/undo", &[], None).ok();
    let undone = events.next();
    assert_eq!(
        (undone.kind.as_str(), &undone.data["state"], &undone.data["stands"]),
        ("summary", &json!("undone"), &Value::Null)
    );
}

#[test]
fn no_event_contains_message_text() {
    let server = Server::start();
    let mut client = server.client();
    let mut events = EventStream::open(&server, "?after=0", &[]);
    add(&mut client, "a", &talk(1, 20));
    for heard in events.take(3) {
        assert!(!heard.data.to_string().contains("parcel"), "{heard:?}");
    }
}

#[test]
fn after_its_event_a_summary_is_in_the_next_context() {
    let server = Server::start();
    let mut client = server.client();
    let mut events = EventStream::open(&server, "", &[]);
    for round in 0..5 {
        add(&mut client, "a", &talk(round * 20 + 1, 20));
        let told = events.next_of("summary").data;
        let listed = client.get("/v1/sessions/a/summaries?history=true").ok();
        assert!(listed["items"].as_array().unwrap().iter().any(|one| one["id"] == told["summary"]), "{told}");
        let context = client.get("/v1/sessions/a/context?tokens=1500").ok();
        assert!(context["summary"]["through"].as_u64() >= told["through"].as_u64(), "{context} {told}");
        settle(&mut client);
    }
}

#[test]
fn a_listener_that_reconnects_receives_each_event_once() {
    let server = Server::start();
    let mut client = server.client();
    let mut all = Vec::new();
    let mut last = "0".to_owned();
    for round in 0..6 {
        for at in 0..10 {
            add(&mut client, "a", &talk(round * 10 + at + 1, 1));
        }
        // The header goes before what stands in the address, as browsers have it.
        let mut events = EventStream::open(&server, "?after=3", &[("last-event-id", &last)]);
        let heard = events.take(9);
        last = heard.last().unwrap().id.unwrap().to_string();
        all.extend(heard);
    }
    let newest = all.len() as u64;
    assert!(ids(&all).into_iter().eq(1..=newest), "{:?}", ids(&all));
    let mut events = EventStream::open(&server, "?after=0", &[]);
    assert_eq!(events.take(all.len()), all);
}

#[test]
fn events_can_be_limited_to_one_session() {
    let server = Server::start();
    let mut client = server.client();
    for at in 1..=5 {
        add(&mut client, "a", &talk(at, 1));
        add(&mut client, "b", &talk(at, 1));
    }
    let mut events = EventStream::open(&server, "?after=0&session=b", &[]);
    let heard = events.take(5);
    assert!(heard.iter().all(|heard| heard.data["session"] == "b"));
    assert_eq!(ids(&heard), [2, 4, 6, 8, 10]);
    add(&mut client, "a", &talk(6, 1));
    add(&mut client, "b", &talk(6, 1));
    assert_eq!(events.next().id, Some(12));
}

#[test]
fn a_workspace_receives_only_its_own_events() {
    let server = Server::start();
    let mut events = EventStream::open(&server, "?after=0", &[("x-epitome-workspace", "one")]);
    add(&mut server.client().with("x-epitome-workspace", "two"), "a", &talk(1, 1));
    add(&mut server.client().with("x-epitome-workspace", "one"), "b", &talk(1, 1));
    let heard = events.next();
    assert_eq!((heard.id, &heard.data["session"]), (Some(1), &json!("b")));
}

#[test]
fn events_no_longer_stored_are_reported_as_missed() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let newest = runtime.block_on(async {
        let engine = open(folder.path()).await;
        let workspace = engine.workspace("default");
        let mut all = tokio::task::JoinSet::new();
        // So few in each that none is summed up.
        for name in 0..2_500 {
            let session = workspace.session(format!("s-{name}"));
            all.spawn(async move {
                for _ in 0..5 {
                    session.append(Message::user("Hello.")).await.unwrap();
                }
            });
        }
        while let Some(done) = all.join_next().await {
            done.unwrap();
        }
        let newest = workspace.newest_event().await.unwrap();
        engine.close().await;
        newest
    });
    assert_eq!(newest, 12_500);
    let server = Server::in_folder(folder, &[], &[]);
    let mut events = EventStream::open(&server, "", &[("last-event-id", "7")]);
    let missed = events.next();
    assert_eq!((missed.kind.as_str(), missed.id, &missed.data["from"]), ("missed", None, &json!(8)));
    let through = missed.data["through"].as_u64().unwrap();
    assert!(newest - through >= 10_000, "{through}");
    let rest = usize::try_from(newest - through).unwrap();
    assert!(ids(&events.take(rest)).into_iter().eq(through + 1..=newest));
    // Whoever names a number that was never given hears what comes.
    let mut events = EventStream::open(&server, "?after=99999999", &[]);
    add(&mut server.client(), "a", &talk(1, 1));
    assert_eq!(events.next().id, Some(newest + 1));
}

#[test]
fn the_last_event_id_is_a_number() {
    let server = Server::start();
    let mut client = server.client();
    client.get("/v1/events?after=x").refused(400, "after");
    client.get("/v1/events?from=1").refused(400, "unknown parameter `from`");
    client.send("GET", "/v1/events", &[("last-event-id", "x")], None).refused(400, "last-event-id");
}
