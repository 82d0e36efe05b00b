//! `--json` prints the objects that HTTP returns, and the fields of earlier releases.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::bin::{TestFolder, result_of, talk};

/// `epitome serve` on a test's database, until dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(place: &TestFolder) -> Self {
        let mut command = place.epitome(&["serve", "--listen", "127.0.0.1:0", "--db", "epitome.db"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").unwrap().to_owned();
        Self { child, address }
    }

    fn send(&self, method: &str, path: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 20"), "{method} {path}: {answer}");
        serde_json::from_str(body).unwrap()
    }

    fn get(&self, path: &str) -> Value {
        self.send("GET", path, "")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The paths of all fields of an object, such as `slots[].name`.
fn fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                fields(value, &path, found);
                found.insert(path);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, &format!("{path}[]"), found)),
        _ => {}
    }
}

fn all_fields(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    fields(value, "", &mut found);
    found
}

/// Checks that the command line prints every field of HTTP, and besides only those below one of `more`.
#[track_caller]
fn check(over_http: &Value, printed: &Value, more: &[&str]) {
    let (over_http, printed) = (all_fields(over_http), all_fields(printed));
    let missing: Vec<&String> = over_http.difference(&printed).collect();
    assert!(missing.is_empty() && !over_http.is_empty(), "only over HTTP: {missing:?}");
    let is_allowed =
        |field: &&String| more.iter().any(|name| *field == name || field.starts_with(&format!("{name}.")));
    let extra: Vec<&String> = printed.difference(&over_http).filter(|field| !is_allowed(field)).collect();
    assert!(extra.is_empty(), "only on the command line: {extra:?}");
}

#[test]
fn json_has_the_fields_of_http() {
    let place = TestFolder::with_sessions();
    let server = Server::start(&place);
    let first = |page: Value| page["items"][0].clone();

    let session = first(server.get("/v1/sessions"));
    check(&session, &place.json_lines(&["list"])[0], &["slots", "slots[]"]);

    let context = place.json(&["context", "ann", "--tokens", "600"]);
    check(&server.get("/v1/sessions/ann/context?tokens=600"), &context, &["through", "encoding"]);
    assert!(context["report"]["tokens"]["total"].as_u64().unwrap() <= 600, "{context}");
    assert_eq!((&context["through"], &context["encoding"]), (&json!(60), &json!("o200k_base")));

    // Over HTTP, the model calls are at /v1/usage.
    let explained = place.json(&["explain", "ann"]);
    check(&server.get("/v1/sessions/ann"), &explained, &["usage", "session", "settings"]);
    check(&server.get("/v1/usage?session=ann"), &explained["usage"], &[]);
    assert_eq!(explained["session"]["name"], "ann");
    check(&server.get("/v1/queue"), &place.json(&["explain"]), &[]);

    let found = first(server.get("/v1/search?q=oslo"));
    check(&found, &place.json_lines(&["search", "oslo"])[0], &["cursor"]);

    let summary = server.get("/v1/sessions/ann/summaries")["items"].as_array().unwrap()[0].clone();
    let id = summary["id"].to_string();
    let messages = server.get(&format!("/v1/sessions/ann/summaries/{id}/messages"));
    check(&first(messages), &place.json_lines(&["expand", "ann", "--summary", &id])[0], &[]);
    let current = place.json(&["summarize", "ann", "--slot", "short"]);
    check(&json!({"status": 0, "summary": summary, "reason": 0}), &current, &[]);
}

#[test]
fn an_undo_and_a_key_have_the_fields_of_http() {
    let place = TestFolder::with_sessions();
    place.engine(|engine| async move {
        for name in ["one", "two"] {
            talk(&engine.session(name), 10).await;
            engine.work().await.unwrap();
            talk(&engine.session(name), 10).await;
            engine.work().await.unwrap();
        }
    });
    let undone = place.json(&["undo", "one"]);
    let created = place.json(&["keys", "create", "--rights", "read", "--expires", "30d"]);
    let server = Server::start(&place);
    let summaries = server.get("/v1/sessions/two/summaries");
    let id = &summaries["items"][0]["id"];
    check(&server.send("POST", &format!("/v1/sessions/two/summaries/{id}/undo"), ""), &undone, &[]);
    assert!(undone["stands"]["created_at"].as_str().unwrap().ends_with('Z'), "{undone}");

    let body = r#"{"workspace": "default", "rights": "read", "expires": "30d"}"#;
    check(&server.send("POST", "/v1/keys", body), &created, &[]);
    check(&server.get("/v1/keys")["items"][0], &place.json_lines(&["keys", "list"])[0], &[]);
    assert_eq!(created["state"], "good");
}

/// The hash of a slot in the log leads to its session, in any workspace.
#[test]
fn explain_accepts_the_hash_of_a_log_line() {
    let place = TestFolder::new();
    let (send, hash) = std::sync::mpsc::channel();
    place.engine(|engine| async move {
        let session = engine.workspace("team").session("bo");
        talk(&session, 2).await;
        send.send(session.log_hash(None, "short").await.unwrap()).unwrap();
    });
    let hash = hash.recv().unwrap();
    let (code, out, errors) = place.on_db(&["explain", &hash]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(out.starts_with("bo: 4 messages, 2 turns, "), "{out}");
    let line = format!("{hash} is session \"bo\" of the workspace \"team\", slot \"short\"\n");
    assert_eq!(errors, line);
    // Without the slot's part, the hash names the session.
    let (session, _) = hash.rsplit_once('-').unwrap();
    assert_eq!(place.json(&["explain", session])["name"], "bo");
    let (code, _, errors) = result_of(
        place.epitome(&["explain", "00000000-000000000000", "--db", "epitome.db"]).output().unwrap(),
    );
    assert_eq!((code, errors.lines().count()), (Some(1), 1), "{errors}");
}

#[test]
fn a_slot_that_does_not_exist_is_reported_with_a_similar_one() {
    let place = TestFolder::with_sessions();
    place.fails(&["summarize", "ann", "--slot", "shrt"], 1, "there is no slot \"shrt\"; did you mean short?");
    place.fails(
        &["undo", "ann", "--slot", "lng"],
        1,
        "there is no summary of the slot \"lng\"; did you mean long?",
    );
    let other = "there is no slot \"zebra\"; the session's slots are long, short";
    place.fails(&["summarize", "ann", "--slot", "zebra"], 1, other);
}
