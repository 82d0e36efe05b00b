//! Sessions and the workspace over HTTP: listed, set, forked, deleted.

use serde_json::{Value, json};

use crate::server::Server;
use crate::talk::{add, escaped, pages, settle, talk};

#[test]
fn sessions_are_listed_by_name_page_by_page() {
    let server = Server::start();
    let mut client = server.client();
    for at in 0..23 {
        add(&mut client, &format!("s-{at:02}"), &talk(1, 1));
    }
    let names =
        |all: Vec<Value>| all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let wanted: Vec<String> = (0..23).map(|at| format!("s-{at:02}")).collect();
    for limit in [1, 5, 23, 500] {
        assert_eq!(names(pages(&mut client, "/v1/sessions", limit)), wanted);
    }
    assert_eq!(client.get("/v1/sessions?after=zzz").ok(), json!({"items": [], "next": null}));
    client.get("/v1/sessions?limit=501").refused(400, "limit: 1 to 500");
}

#[test]
fn a_session_contains_totals_settings_and_slots() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 13));
    let session = client.get("/v1/sessions/a").ok();
    assert_eq!(
        (&session["messages"], &session["turns"], &session["encoding"]),
        (&json!(13), &json!(7), &json!("o200k_base"))
    );
    let short = session["slots"].as_array().unwrap().iter().find(|slot| slot["slot"] == "short").unwrap();
    assert_eq!(
        (&short["slot"], &short["status"], &short["covered"]),
        (&json!("short"), &json!("idle"), &json!(0))
    );
    assert_eq!(short["gauges"][0], json!({"condition": "messages", "have": 13, "need": 20}));
    assert!(short["why"].as_str().unwrap().contains("13"), "{short}");
    assert_eq!(session["settings"]["context"]["max_tokens"], 100_000);
}

#[test]
fn settings_and_metadata_change_together_or_not_at_all() {
    let server = Server::start();
    let mut client = server.client();
    let mut put = |body: Value| client.json("PUT", "/v1/sessions/a", &body);
    let made = put(json!({"settings": {"context": {"max_tokens": 5000}}, "metadata": {"who": "ann"}})).ok();
    assert_eq!(
        (&made["settings"]["context"]["max_tokens"], &made["metadata"]),
        (&json!(5000), &json!({"who": "ann"}))
    );
    put(json!({"settings": {"context": {"max_tokens": 0}}, "metadata": {"who": "bob"}}))
        .refused(400, "settings.context.max_tokens");
    put(json!({"settings": {"context": {"max": 1}}, "metadata": {"who": "bob"}}))
        .refused(400, "settings.context.max");
    let big = json!({"note": "x".repeat(65 << 10)});
    put(json!({"settings": {"context": {"max_tokens": 6000}}, "metadata": big})).refused(400, "metadata");
    put(json!({"settings": {"summarize": {"models": ["gpt"]}}, "metadata": {"who": "bob"}}))
        .refused(400, "gpt");
    put(json!({"setting": {}})).refused(400, "unknown field `setting`");
    let after = client.get("/v1/sessions/a").ok();
    assert_eq!((&after["settings"], &after["metadata"]), (&made["settings"], &made["metadata"]));
    client.get("/v1/sessions/a/context?tokens=5001").refused(400, "5000");
    let back =
        client.json("PUT", "/v1/sessions/a", &json!({"settings": {"context": {"max_tokens": null}}})).ok();
    assert_eq!(
        (&back["settings"]["context"]["max_tokens"], &back["metadata"]),
        (&json!(100_000), &json!({"who": "ann"}))
    );
}

#[test]
fn the_encoding_is_fixed_when_a_session_is_created() {
    let server = Server::start();
    let mut client = server.client();
    let encoding = |name: &str| json!({"settings": {"encoding": name}});
    client.json("PUT", "/v1/sessions/a", &encoding("cl100k_base")).ok();
    assert_eq!(client.get("/v1/sessions/a").ok()["encoding"], "cl100k_base");
    client.json("PUT", "/v1/sessions/a", &encoding("o200k_base")).refused(409, "cannot be changed after");
}

#[test]
fn workspace_settings_apply_to_sessions_and_cannot_set_models() {
    let server = Server::start();
    let mut client = server.client();
    let put =
        client.json("PUT", "/v1/workspace", &json!({"settings": {"context": {"max_tokens": 700}}})).ok();
    assert_eq!((&put["own"], &put["name"]), (&json!({"context": {"max_tokens": 700}}), &json!("default")));
    assert_eq!(client.get("/v1/workspace").ok(), put);
    add(&mut client, "a", &talk(1, 3));
    client.get("/v1/sessions/a/context?tokens=701").refused(400, "700");
    for settings in [
        json!({"models": {"x": {"provider": "openai", "model": "gpt-5", "base_url": "http://127.0.0.1:1/v1"}}}),
        json!({"prices": {"gpt-5": {"input": 0, "output": 0}}}),
    ] {
        client.json("PUT", "/v1/workspace", &json!({"settings": settings})).refused(400, "");
        client.json("PUT", "/v1/sessions/a", &json!({"settings": settings})).refused(400, "");
    }
    let cap = json!({"settings": {"summarize": {"spend_cap_per_day": 2.5}}});
    assert_eq!(
        client.json("PUT", "/v1/workspace", &cap).ok()["settings"]["summarize"]["spend_cap_per_day"],
        2.5
    );
    client.json("PUT", "/v1/sessions/a", &cap).refused(400, "for a workspace");
    client.json("PUT", "/v1/workspace", &json!({})).refused(400, "missing field `settings`");
}

#[test]
fn a_fork_is_a_separate_session_with_a_location() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 45));
    settle(&mut client);
    let made = client.post("/v1/sessions/a/fork", &json!({"name": "b/ü 1"}));
    assert_eq!((made.status, &made.ok()["messages"]), (201, &json!(45)));
    let place = made.header("location").to_owned();
    assert_eq!(place, format!("/v1/sessions/{}", escaped("b/ü 1")));
    let (one, other) =
        (client.get("/v1/sessions/a/context").ok(), client.get(&format!("{place}/context")).ok());
    assert_eq!(one["messages"], other["messages"]);
    client.post(&format!("{place}/messages"), &talk(46, 1)).ok();
    assert_eq!(client.get("/v1/sessions/a").ok()["messages"], 45);

    let early = client.post("/v1/sessions/a/fork", &json!({"name": "early", "at": 10})).ok();
    assert_eq!(early["messages"], 10);
    let condensed = client.post("/v1/sessions/a/fork", &json!({"name": "small", "kind": "condensed"})).ok();
    assert!(condensed["tokens"].as_u64() < made.ok()["tokens"].as_u64(), "{condensed}");
    assert!(condensed["messages"].as_u64().unwrap() < 45, "{condensed}");

    client.post("/v1/sessions/a/fork", &json!({"name": "early"})).refused(409, "exists already");
    client
        .post("/v1/sessions/a/fork", &json!({"name": "x", "at": 46}))
        .refused(409, "there is no message 46");
    client.post("/v1/sessions/a/fork", &json!({"name": "x", "at": 0})).refused(400, "there is no message 0");
    client.post("/v1/sessions/a/fork", &json!({"name": ""})).refused(400, "1 to 512 bytes");
    client.post("/v1/sessions/a/fork", &json!({"name": "x", "kind": "half"})).refused(400, "half");
    client.json("PUT", "/v1/sessions/empty", &json!({})).ok();
    client.post("/v1/sessions/empty/fork", &json!({"name": "x"})).refused(409, "no messages yet");
    client.post("/v1/sessions/nobody/fork", &json!({"name": "x"})).refused(404, "session `nobody` not found");
}

#[test]
fn a_deleted_session_leaves_nothing_behind() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 25));
    settle(&mut client);
    assert_eq!(client.send("DELETE", "/v1/sessions/a", &[], None).status, 204);
    for path in ["", "/messages", "/context", "/summaries", "/summaries/1/messages", "/search?q=parcel"] {
        client.get(&format!("/v1/sessions/a{path}")).refused(404, "session `a` not found");
    }
    client.send("DELETE", "/v1/sessions/a", &[], None).refused(404, "session `a` not found");
    assert_eq!(client.get("/v1/search?q=parcel").ok()["items"], json!([]));
    assert_eq!(add(&mut client, "a", &talk(1, 1))["from"], 1);
    assert_eq!(client.get("/v1/sessions/a/summaries?history=true").ok()["items"], json!([]));
}

#[test]
fn every_setting_is_in_the_description() {
    let server = Server::start();
    let mut client = server.client();
    let described = client.get("/openapi.json").ok();
    let described = &described["components"]["schemas"]["Settings"]["properties"];
    let there = client.get("/v1/workspace").ok()["settings"].clone();
    for (table, values) in
        there.as_object().unwrap().iter().filter(|(table, _)| !["models", "prices"].contains(&table.as_str()))
    {
        assert!(described[table].is_object(), "{table}");
        for (key, _) in values.as_object().into_iter().flatten() {
            assert!(described[table]["properties"][key].is_object(), "{table}.{key}");
        }
    }
}
