//! Summaries over HTTP: listed, wished for, undone, made anew, looked beneath.

use serde_json::{Value, json};

use crate::server::Server;
use crate::talk::{add, pages, settle, talk};

#[test]
fn a_due_summary_is_written_and_listed() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 20));
    settle(&mut client);
    let standing = client.get("/v1/sessions/a/summaries").ok();
    let summary = &standing["items"][0];
    assert_eq!(
        (&summary["id"], &summary["slot"], &summary["state"]),
        (&json!(1), &json!("short"), &json!("standing"))
    );
    assert_eq!((&summary["model"], &summary["through"]), (&json!("local"), &json!(20)));
    assert!(summary["tokens"].as_u64() < summary["replaced_tokens"].as_u64(), "{summary}");
    assert_eq!(standing["next"], Value::Null);
}

#[test]
fn history_lists_all_summaries_newest_first() {
    let server = Server::start();
    let mut client = server.client();
    for round in 0..6 {
        add(&mut client, "a", &talk(round * 20 + 1, 20));
        settle(&mut client);
    }
    let all = pages(&mut client, "/v1/sessions/a/summaries?history=true", 100);
    let ids: Vec<i64> = all.iter().map(|summary| summary["id"].as_i64().unwrap()).collect();
    assert!(ids.len() >= 6 && ids.windows(2).all(|two| two[0] > two[1]), "{ids:?}");
    for limit in [1, 4] {
        assert_eq!(pages(&mut client, "/v1/sessions/a/summaries?history=true", limit), all);
    }
    let states: Vec<&str> = all.iter().map(|summary| summary["state"].as_str().unwrap()).collect();
    assert!(states.contains(&"standing") && states.contains(&"superseded"), "{states:?}");
}

#[test]
fn a_requested_summary_is_written_while_the_client_waits() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 6));
    let focus = json!({"slot": "short", "focus": "who signed"});
    let written = client.post("/v1/sessions/a/summaries?wait=true", &focus);
    assert_eq!((written.status, &written.ok()["status"]), (200, &json!("written")));
    assert_eq!(
        (&written.ok()["summary"]["focus"], &written.ok()["summary"]["through"]),
        (&json!("who signed"), &json!(6))
    );
    let again = client.post("/v1/sessions/a/summaries?wait=true", &json!({"slot": "short"})).ok();
    assert_eq!(
        (&again["status"], &again["summary"]["id"]),
        (&json!("nothing_new"), &written.ok()["summary"]["id"])
    );
}

#[test]
fn without_waiting_the_summary_is_written_later() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 6));
    // Nothing need be sent along.
    let promised = client.send("POST", "/v1/sessions/a/summaries", &[], None);
    assert_eq!((promised.status, &promised.ok()["status"]), (202, &json!("pending")));
    settle(&mut client);
    assert_eq!(client.get("/v1/sessions/a/summaries").ok()["items"][0]["through"], 6);
}

#[test]
fn an_invalid_summary_request_is_refused_by_field() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 6));
    let mut wish = |body: Value| client.post("/v1/sessions/a/summaries?wait=true", &body);
    wish(json!({"slot": "middle"})).refused(404, "there are: short, long");
    wish(json!({"scope": "ann"})).refused(404, "scope `ann`");
    wish(json!({"focus": "x".repeat(4001)})).refused(400, "focus: 4001 characters; at most 4000");
    wish(json!({"force": true})).refused(400, "unknown field `force`");
    client.post("/v1/sessions/nobody/summaries", &json!({})).refused(404, "session `nobody` not found");
    client.post("/v1/sessions/a/summaries?wait=soon", &json!({})).refused(400, "true or false");
}

#[test]
fn undo_restores_the_previous_summary_once() {
    let server = Server::start();
    let mut client = server.client();
    for round in 0..2 {
        add(&mut client, "a", &talk(round * 20 + 1, 20));
        settle(&mut client);
    }
    let standing = client.get("/v1/sessions/a/summaries").ok();
    let shorts: Vec<&Value> =
        standing["items"].as_array().unwrap().iter().filter(|one| one["slot"] == "short").collect();
    let (newest, parent) = (shorts[0]["id"].as_i64().unwrap(), shorts[0]["parent"].as_i64().unwrap());
    let undo = format!("/v1/sessions/a/summaries/{newest}/undo");
    let undone = client.send("POST", &undo, &[], None).ok();
    assert_eq!((&undone["undone"], &undone["stands"]["id"]), (&json!(newest), &json!(parent)));
    assert_eq!(undone["stands"]["state"], "standing");
    client.send("POST", &undo, &[], None).refused(409, "is not the current summary of its slot");
    let all = client.get("/v1/sessions/a/summaries?history=true").ok();
    let state = |id: i64| {
        all["items"].as_array().unwrap().iter().find(|one| one["id"] == id).unwrap()["state"].clone()
    };
    assert_eq!((state(newest), state(parent)), (json!("undone"), json!("standing")));
    let context = client.get("/v1/sessions/a/context?tokens=1500").ok();
    assert_ne!(context["summary"]["id"], newest);
    let last = client.send("POST", &format!("/v1/sessions/a/summaries/{parent}/undo"), &[], None).ok();
    assert_eq!(last["stands"], Value::Null);
    client.send("POST", "/v1/sessions/a/summaries/99/undo", &[], None).refused(404, "summary 99");
    client
        .send("POST", "/v1/sessions/a/summaries/x/undo", &[], None)
        .refused(400, "summary: expected a whole number in the path");
}

#[test]
fn a_slot_is_rebuilt_with_the_current_settings() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 20));
    settle(&mut client);
    let before = client.get("/v1/sessions/a/summaries").ok()["items"][0].clone();
    let smaller =
        json!({"settings": {"slot": [{"name": "short", "trigger": "messages(20)", "max_tokens": 60}]}});
    client.json("PUT", "/v1/sessions/a", &smaller).ok();
    let rebuilding = client.send("POST", "/v1/sessions/a/slots/short/rebuild", &[], None);
    assert_eq!((rebuilding.status, rebuilding.ok()), (202, json!({"rebuilding": true})));
    settle(&mut client);
    let after = client.get("/v1/sessions/a/summaries").ok()["items"][0].clone();
    assert!(
        after["id"].as_i64() > before["id"].as_i64() && after["tokens"].as_u64().unwrap() <= 60,
        "{after}"
    );
    client.send("POST", "/v1/sessions/a/slots/long/rebuild", &[], None).refused(404, "there are: short");
    client
        .send("POST", "/v1/sessions/a/slots/short/rebuild?scope=ann", &[], None)
        .refused(404, "scope `ann`");
}

#[test]
fn an_empty_session_has_nothing_to_summarize_or_rebuild() {
    let server = Server::start();
    let mut client = server.client();
    client.json("PUT", "/v1/sessions/a", &json!({"metadata": {}})).ok();
    let nothing = client.send("POST", "/v1/sessions/a/slots/short/rebuild", &[], None);
    assert_eq!((nothing.status, nothing.ok()), (200, json!({"rebuilding": false})));
    let nothing = client.post("/v1/sessions/a/summaries?wait=true", &json!({})).ok();
    assert_eq!(nothing, json!({"status": "nothing_new", "summary": null, "reason": null}));
}

#[test]
fn expand_returns_the_covered_messages_verbatim() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 25));
    settle(&mut client);
    let beneath = pages(&mut client, "/v1/sessions/a/summaries/1/messages", 7);
    let all = pages(&mut client, "/v1/sessions/a/messages", 100);
    assert_eq!(beneath[..], all[..20]);
    let back = pages(&mut client, "/v1/sessions/a/summaries/1/messages?reverse=true", 7);
    assert!(back.iter().eq(all[..20].iter().rev()));
    let came = pages(&mut client, "/v1/sessions/a/summaries/1/messages?format=openai", 100);
    assert_eq!(Value::Array(came), talk(1, 20));
    client.get("/v1/sessions/a/summaries/2/messages").refused(404, "summary 2");
    client.get("/v1/sessions/a/summaries/1/messages?scope=ann").refused(400, "unknown parameter `scope`");
}
