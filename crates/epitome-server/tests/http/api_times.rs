//! Times over HTTP: RFC 3339 in every answer, next to milliseconds; requests take both.

use epitome::rules::message::Timestamp;
use serde_json::{Value, json};

use crate::api_models::served;
use crate::event_stream::EventStream;
use crate::home::now;
use crate::provider::Act;
use crate::server::Server;
use crate::talk::{add, settle, talk};

/// Asserts that `new` is the time in milliseconds in `old`, as RFC 3339.
#[track_caller]
fn assert_same_time(object: &Value, old: &str, new: &str) {
    let millis = object[old].as_i64().unwrap_or_else(|| panic!("no {old}: {object}"));
    assert_eq!(object[new], json!(Timestamp(millis).to_rfc3339()), "{old}, {new}: {object}");
}

#[test]
fn every_answer_has_its_times_in_both_forms() {
    let server = Server::start();
    let mut client = server.client();
    let mut events = EventStream::open(&server, "?after=0", &[]);
    add(&mut client, "a", &talk(1, 20));
    settle(&mut client);
    let session = client.get("/v1/sessions/a").ok();
    for session in [&session, &client.get("/v1/sessions").ok()["items"][0]] {
        assert_same_time(session, "created", "created_at");
        assert_same_time(session, "updated", "updated_at");
    }
    let slot = &session["slots"][0];
    for (old, new) in
        [("due_at", "next_due_at"), ("failing_since", "first_failed_at"), ("not_before", "retry_at")]
    {
        assert_eq!((&slot[old], slot.get(new)), (&Value::Null, Some(&Value::Null)), "{slot}");
    }
    assert_same_time(&client.get("/v1/sessions/a/messages").ok()["items"][0], "at", "created_at");
    assert_same_time(&client.get("/v1/search?q=parcel").ok()["items"][0]["message"], "at", "created_at");
    let flagged = client.json("PATCH", "/v1/sessions/a/messages/2", &json!({"skip": true})).ok();
    assert_same_time(&flagged, "at", "created_at");
    for path in ["summaries", "summaries?history=true"] {
        let summary = &client.get(&format!("/v1/sessions/a/{path}")).ok()["items"][0];
        assert_same_time(summary, "created", "created_at");
        assert_eq!(summary["fired_at_seq"], summary["fired_at"]);
    }
    let context = client.get("/v1/sessions/a/context?tokens=1500").ok();
    assert_same_time(&context["summary"], "created", "created_at");
    let summary = &context["summary"];
    assert_eq!((summary["text_through"].is_u64(), &summary["text_through"]), (true, &summary["told"]));
    let messages = context["messages"].as_array().unwrap();
    for message in messages {
        match message["seq"].as_u64() {
            Some(0) => assert_eq!(message.get("created_at"), None, "the summary is no stored message"),
            _ => assert_same_time(message, "at", "created_at"),
        }
    }
    assert!(messages.iter().any(|message| message["seq"] == 0), "{context}");
    assert_same_time(&events.next_of("summary").data, "at", "created_at");
    let fork = client.post("/v1/sessions/a/fork", &json!({"name": "b"})).ok();
    assert_same_time(&fork, "created", "created_at");
}

#[test]
fn failures_have_their_times_in_both_forms() {
    let (server, _provider, _runtime) = served(Act::Status(500));
    let mut client = server.client();
    let mut events = EventStream::open(&server, "?after=0", &[]);
    add(&mut client, "a", &talk(1, 20));
    assert_same_time(&events.next_of("failed").data, "not_before", "retry_at");
    let queued = &client.get("/v1/queue").ok()["slots"][0];
    assert_same_time(queued, "since", "queued_at");
    let session = client.get("/v1/sessions/a").ok();
    let slots = session["slots"].as_array().unwrap();
    let failing = slots.iter().find(|slot| slot["attempts"].as_u64() > Some(0)).unwrap();
    assert_same_time(failing, "failing_since", "first_failed_at");
}

#[test]
fn a_message_has_its_time_in_either_form() {
    let server = Server::start();
    let mut client = server.client();
    let (millis, text) = (1_773_483_725_120_i64, "2026-03-14T10:22:05.120Z");
    let message = |times: Value| {
        let mut message = json!({"role": "user", "parts": [{"type": "text", "text": "Where is it?"}]});
        message.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
        message
    };
    for times in [
        json!({"at": millis}),
        json!({"at": text}),
        json!({"created_at": text}),
        json!({"created_at": millis}),
        json!({"created_at": "2026-03-14T11:22:05.12+01:00"}),
        json!({"at": millis, "created_at": text}),
    ] {
        let sent = message(times);
        let seq = add(&mut client, "a", &sent)["through"].as_u64().unwrap();
        let after = seq - 1;
        let stored = client.get(&format!("/v1/sessions/a/messages?after={after}")).ok();
        assert_eq!(
            (&stored["items"][0]["at"], &stored["items"][0]["created_at"]),
            (&json!(millis), &json!(text))
        );
        let back = client.get(&format!("/v1/sessions/a/messages?after={after}&format=epitome")).ok();
        for (key, value) in sent.as_object().unwrap() {
            assert_eq!(back["items"][0][key], *value, "{key}");
        }
    }
    // What was read can be appended again.
    let all = client.get("/v1/sessions/a/messages").ok()["items"].clone();
    add(&mut client, "copy", &all);
    let copied = client.get("/v1/sessions/copy/messages").ok()["items"].clone();
    assert_eq!(copied, all);
    let mut refused = |times: Value, detail: &str| {
        client.post("/v1/sessions/a/messages", &message(times)).refused(400, detail);
    };
    refused(json!({"at": "yesterday"}), "at: is a string; it must be RFC 3339");
    refused(json!({"created_at": "2026-03-14T10:22:05"}), "created_at: is a string; it must be RFC 3339");
    refused(json!({"at": 1, "created_at": text}), "created_at: differs from `at`");
}

#[test]
fn a_key_expires_after_a_duration_or_at_a_time() {
    let server = Server::start();
    let mut client = server.client();
    let new = |expires: Value| json!({"workspace": "team", "rights": "read", "expires": expires});
    let before = now();
    let created = client.post("/v1/keys", &new(json!("30d"))).ok();
    assert_same_time(&created, "created", "created_at");
    assert_same_time(&created, "expires", "expires_at");
    assert_eq!(created["state"], "good");
    let (month, expires) = (30 * 86_400_000, created["expires"].as_i64().unwrap());
    assert!((before + month..=now() + month).contains(&expires), "{created}");
    for (expires, expected) in [
        (json!(4_102_444_800_000_i64), "2100-01-01T00:00:00.000Z"),
        (json!("2100-01-01"), "2100-01-01T00:00:00.000Z"),
        (json!("2100-01-01T01:00:00+01:00"), "2100-01-01T00:00:00.000Z"),
    ] {
        assert_eq!(client.post("/v1/keys", &new(expires)).ok()["expires_at"], expected);
    }
    assert_eq!(client.post("/v1/keys", &new(Value::Null)).ok()["expires_at"], Value::Null);
    for wrong in [json!("30"), json!("tomorrow"), json!("2100-13-01"), json!(1.5), json!(true)] {
        client.post("/v1/keys", &new(wrong)).refused(400, "expires: ");
    }
    client.post("/v1/keys", &new(json!("2020-01-01"))).refused(400, "expires");
    let id = created["id"].as_str().unwrap();
    client.send("DELETE", &format!("/v1/keys/{id}"), &[], None).ok();
    let keys = client.get("/v1/keys").ok();
    let revoked = keys["items"].as_array().unwrap().iter().find(|key| key["id"] == id).unwrap();
    assert_same_time(revoked, "revoked", "revoked_at");
    assert_eq!(revoked["state"], "revoked");
}

#[test]
fn usage_is_counted_since_a_time_in_either_form() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 20));
    settle(&mut client);
    let mut calls =
        |since: &str| client.get(&format!("/v1/usage?since={since}")).ok()["total"]["calls"].clone();
    for since in ["0", "1970-01-01", "2020-01-01T00:00:00Z", "2020-01-01T00:00:00%2B02:00"] {
        assert_eq!(calls(since), json!(1), "{since}");
    }
    for since in ["4000000000000", "2090-01-01", "2090-01-01T00:00:00Z"] {
        assert_eq!(calls(since), json!(0), "{since}");
    }
    for wrong in ["yesterday", "30d", "2020-01-01T00:00:00", "-1", ""] {
        client.get(&format!("/v1/usage?since={wrong}")).refused(400, "since: expected a time");
    }
}
