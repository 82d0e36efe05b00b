//! What one caller takes, others still get.

use std::io::Write;
use std::time::Duration;

use serde_json::json;

use crate::rough::Raw;
use crate::server::Server;

/// What they unpack to is charged, not what they might.
#[test]
fn dozens_of_small_gzipped_bodies_are_accepted() {
    let server = Server::start();
    let send = || {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(br#"{"role":"user","content":"Hi."}"#).unwrap();
        let packed = packed.finish().unwrap();
        let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
        let once =
            || server.client().send("POST", "/v1/sessions/ann/messages", &headers, Some(&packed)).status;
        (0..20).map(|_| once()).filter(|status| *status != 201).count()
    };
    let refused: usize = std::thread::scope(|scope| {
        let all: Vec<_> = (0..16).map(|_| scope.spawn(send)).collect();
        all.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(refused, 0, "of 320");
}

/// A body of which so much has come, and no more comes.
fn begun(server: &Server, workspace: &str, bytes: usize) -> Raw {
    let head = format!(
        "POST /v1/sessions/x/messages HTTP/1.1\r\nhost: localhost\r\nx-epitome-workspace: {workspace}\r\n\
         content-type: application/json\r\ncontent-length: 900000\r\n\r\n{}",
        " ".repeat(bytes)
    );
    Raw::send(server, head.as_bytes())
}

/// Holds memory until somebody is refused for it. Whoever asks may have been in the way, so it may take more than one try.
fn held(hold: impl Fn() -> Vec<Raw>, ask: impl Fn() -> u16) -> Vec<Raw> {
    for _ in 0..100 {
        let held = hold();
        for _ in 0..50 {
            if ask() == 503 {
                return held;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    panic!("there is always enough");
}

#[test]
fn a_completed_write_is_never_answered_as_refused() {
    let server = Server::with(&["--bound", "memory_kib=400"], &[]);
    let mut client = server.client();
    client.json("PUT", "/v1/sessions/ann", &json!({"metadata": {"note": "n".repeat(65_400)}})).ok();
    client.post("/v1/sessions/ann/messages", &json!({"role": "user", "content": "Hi."})).ok();
    // Nobody may have more than half, so it takes two to leave too little for an answer of that length.
    let _held = held(
        || ["one", "two"].map(|workspace| begun(&server, workspace, 175_000)).into(),
        || server.client().get("/v1/sessions/ann").status,
    );
    let forked = client.post("/v1/sessions/ann/fork", &json!({"name": "bob"}));
    let there = server.client().send("HEAD", "/v1/sessions/bob/messages", &[], None).status == 200;
    assert_eq!(forked.status < 300, there, "{} {}", forked.status, forked.text());
}

#[test]
fn one_workspace_cannot_use_all_memory() {
    let server = Server::with(&["--bound", "memory_kib=400"], &[]);
    let hi = |workspace: &str, text: &str| {
        let mut client = server.client().with("x-epitome-workspace", workspace);
        client.post("/v1/sessions/ann/messages", &json!({"role": "user", "content": text})).status
    };
    let _held = held(
        || (0..24).map(|_| begun(&server, "greedy", 20_000)).collect(),
        || hi("greedy", &"Hi. ".repeat(5_000)),
    );
    assert_eq!(hi("other", "Hi."), 201);
}
