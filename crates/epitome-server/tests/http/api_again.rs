//! A context that was given before is given again only while nothing changed.

use serde_json::{Value, json};

use crate::server::{Client, Server, command, db};
use crate::talk::{add, settle, talk};

/// Ways to ask, each kept for itself.
const WAYS: [&str; 4] = ["?tokens=1500", "", "?format=openai", "?format=anthropic&tokens=900"];

/// What the session comes to in all those ways. Each is asked for twice, and says the same but for its age.
fn contexts(client: &mut Client, session: &str) -> Vec<Value> {
    let ways = WAYS.iter().map(|way| format!("/v1/sessions/{session}/context{way}"));
    ways.map(|path| {
        let mut twice = [client.get(&path), client.get(&path)];
        assert_eq!(twice[0].header("etag"), twice[1].header("etag"));
        assert_eq!(twice[0].header("x-epitome-report"), twice[1].header("x-epitome-report"));
        let [first, again] = twice.each_mut().map(|answer| {
            let mut said = answer.ok();
            if let Some(summary) = said.get_mut("summary").and_then(Value::as_object_mut) {
                summary.remove("age");
            }
            said
        });
        assert_eq!(first, again);
        first
    })
    .collect()
}

/// All of them are others than before.
#[track_caller]
fn moved(before: &mut Vec<Value>, now: Vec<Value>, why: &str) {
    for (way, (before, now)) in WAYS.iter().zip(before.iter().zip(&now)) {
        assert!(before != now, "{why}: {way:?}");
    }
    *before = now;
}

#[test]
fn a_change_is_in_the_next_context() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 30));
    settle(&mut client);
    let mut before = contexts(&mut client, "a");

    add(&mut client, "a", &json!({"role": "user", "content": "Where is the parcel now?"}));
    moved(&mut before, contexts(&mut client, "a"), "a message");

    client.json("PATCH", "/v1/sessions/a/messages/3", &json!({"pinned": true})).ok();
    moved(&mut before, contexts(&mut client, "a"), "a pinned message");
    client.json("PATCH", "/v1/sessions/a/messages/3", &json!({"pinned": false})).ok();
    moved(&mut before, contexts(&mut client, "a"), "a message pinned no more");

    client.post("/v1/sessions/a/summaries?wait=true", &json!({})).ok();
    moved(&mut before, contexts(&mut client, "a"), "a summary");

    // By another program on the same database.
    let line = r#"{"role":"assistant","content":"It is in the harbour of Hull."}"#;
    std::fs::write(server.folder.join("more.jsonl"), line).unwrap();
    let mut import = command(&server.folder);
    import.args([
        "import",
        "--db",
        &db(&server.folder),
        "--session",
        "a",
        "--append",
        "--no-wait",
        "more.jsonl",
    ]);
    assert!(import.output().unwrap().status.success());
    moved(&mut before, contexts(&mut client, "a"), "a message of another program's");

    let path = "/v1/sessions/a/context?tokens=1500";
    let put = |client: &mut Client, path: &str, most: Value| {
        client.json("PUT", path, &json!({"settings": {"context": {"max_tokens": most}}})).ok();
    };
    put(&mut client, "/v1/sessions/a", json!(700));
    client.get(path).refused(400, "700");
    put(&mut client, "/v1/sessions/a", Value::Null);
    client.get(path).ok();
    put(&mut client, "/v1/workspace", json!(500));
    client.get(path).refused(400, "500");
    put(&mut client, "/v1/workspace", Value::Null);
    client.get(path).ok();

    client.send("DELETE", "/v1/sessions/a", &[], None).ok();
    client.get(path).refused(404, "session");
    add(&mut client, "a", &talk(1, 3));
    moved(&mut before, contexts(&mut client, "a"), "another session of that name");
}

#[test]
fn a_cached_context_is_counted_and_its_age_grows() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 30));
    settle(&mut client);
    let count = |client: &mut Client| {
        let figures = client.get("/metrics").text();
        let line = figures.lines().find(|line| line.starts_with("epitome_contexts_total "));
        line.and_then(|line| line.split(' ').next_back()?.parse::<u64>().ok()).unwrap_or(0)
    };
    let path = "/v1/sessions/a/context?tokens=1500";
    let (before, first) = (count(&mut client), client.get(path).ok());
    let born = first["summary"]["created"].as_u64().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(30));
    let last = client.get(path).ok();
    assert_eq!(count(&mut client), before + 2);
    let (young, old) = (first["summary"]["age"].as_u64().unwrap(), last["summary"]["age"].as_u64().unwrap());
    assert!(old >= young + 30 && last["summary"]["created"] == born, "{young} {old}");
}
