//! Several nodes on one database: what one writes the others have, and each does what its role says.

use serde_json::json;

use crate::event_stream::EventStream;
use crate::postgres_server::{Database, server};
use crate::server::Server;
use crate::talk::{add, talk};

/// With a password, which the cluster does not ask for and nobody is to see.
fn address(database: &Database) -> String {
    database.url().replacen('@', ":s3cret-word@", 1)
}

/// A node, in a folder of its own.
fn node(db: &str, flags: &[&str]) -> Server {
    Server::with(&[&["--db", db], flags].concat(), &[])
}

/// Nodes of one database, by whichever kind it is.
fn check_roles(db: &str) {
    let api = node(db, &["--role", "api"]);
    let mut client = api.client();
    let mut events = EventStream::open(&api, "?after=0", &[]);
    add(&mut client, "ann", &talk(1, 20));
    assert_eq!(events.next().kind, "message");
    // Nobody is there to write it, and that is no fault of this node.
    let due = |queue: serde_json::Value| queue["due"].as_u64();
    assert_eq!(due(client.get("/v1/queue").ok()), Some(1));
    assert_eq!(client.get("/readyz").ok(), json!({"ready": true, "problems": []}));

    let worker = node(db, &["--role", "worker"]);
    let heard = events.take(2);
    assert_eq!((heard[0].kind.as_str(), heard[1].kind.as_str()), ("summary", "condensed"));
    assert_eq!(
        client.get("/v1/sessions/ann/context?tokens=2000").ok()["report"]["covers"],
        json!({"from": 1, "through": 20})
    );
    add(&mut client, "ann", &talk(21, 5));
    let written = client.post("/v1/sessions/ann/summaries?wait=true", &json!({})).ok();
    assert_eq!((&written["status"], &written["summary"]["through"]), (&json!("written"), &json!(25)));

    let mut watch = worker.client();
    assert_eq!(watch.get("/healthz").ok()["status"], "ok");
    assert_eq!(watch.get("/readyz").ok()["ready"], true);
    assert!(watch.get("/metrics").text().contains("epitome_queue_slots"));
    for path in ["/v1/sessions", "/v1/sessions/ann/context", "/openapi.json", "/openai/v1/models", "/"] {
        watch.get(path).refused(404, "this node only writes summaries");
    }
    let theirs = watch.get("/v3/workspaces");
    assert_eq!(theirs.status, 404);
    assert!(theirs.text().contains("this node only writes summaries"), "{}", theirs.text());
    for server in [&api, &worker] {
        assert!(!server.log().contains("s3cret-word"), "{}", server.log());
    }
}

#[test]
fn one_node_serves_and_another_writes_summaries() {
    let database = server().database();
    check_roles(&address(&database));
}

#[test]
fn processes_with_roles_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    check_roles(&folder.path().join("shared.db").display().to_string());
}

#[test]
fn a_write_on_one_node_is_visible_on_all_at_once() {
    let database = server().database();
    let nodes: Vec<Server> =
        (0..3).map(|_| node(&address(&database), &["--require-keys", "always"])).collect();
    let made = crate::server::command(&nodes[0].folder)
        .args(["keys", "create", "--admin", "--db", &address(&database)])
        .output()
        .unwrap();
    let secret = String::from_utf8(made.stdout).unwrap();
    let mut clients: Vec<_> = nodes.iter().map(|node| node.client().key(secret.trim())).collect();
    for round in 0..4 {
        for writer in 0..3 {
            let before = round * 6 + writer * 2;
            add(&mut clients[writer], "ann", &talk(before + 1, 2));
            for client in &mut clients {
                let context = client.get("/v1/sessions/ann/context?tokens=4000").ok();
                let last = context["messages"].as_array().unwrap().last().unwrap();
                assert_eq!(last["seq"], before + 2, "{context}");
                let session = client.get("/v1/sessions/ann").ok();
                assert_eq!(session["messages"], before + 2, "{session}");
            }
        }
    }
    // Settings, flags and keys too.
    clients[0].json("PUT", "/v1/sessions/ann", &json!({"metadata": {"by": "the first"}})).ok();
    assert_eq!(clients[1].get("/v1/sessions/ann").ok()["metadata"], json!({"by": "the first"}));
    clients[1].json("PATCH", "/v1/sessions/ann/messages/3", &json!({"pinned": true})).ok();
    assert_eq!(clients[2].get("/v1/sessions/ann/messages?after=2&limit=1").ok()["items"][0]["pinned"], true);
    let id = clients[2].get("/v1/keys").ok()["items"][0]["id"].as_str().unwrap().to_owned();
    clients[2].send("DELETE", &format!("/v1/keys/{id}"), &[], None).ok();
    for client in &mut clients {
        client.get("/v1/sessions/ann").refused(401, "");
    }
}
