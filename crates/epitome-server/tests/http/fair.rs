//! What one caller takes, others still get.

use std::io::Write;
use std::time::Duration;

use serde_json::json;

use crate::rough::Raw;
use crate::server::Server;

/// What they unpack to is charged, not what they might.
#[test]
fn small_gzipped_bodies_are_taken_by_the_dozen() {
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
    let raw = Raw::send(server, head.as_bytes());
    std::thread::sleep(Duration::from_millis(300));
    raw
}

#[test]
fn what_was_done_is_not_answered_as_if_it_was_refused() {
    let server = Server::with(&["--bound", "memory_kib=400"], &[]);
    let mut client = server.client();
    client.json("PUT", "/v1/sessions/ann", &json!({"metadata": {"note": "n".repeat(65_400)}})).ok();
    client.post("/v1/sessions/ann/messages", &json!({"role": "user", "content": "Hi."})).ok();
    let _held = begun(&server, "default", 350_000);
    let forked = client.post("/v1/sessions/ann/fork", &json!({"name": "bob"}));
    let there = server.client().send("HEAD", "/v1/sessions/bob/messages", &[], None).status == 200;
    assert_eq!(forked.status < 300, there, "{} {}", forked.status, forked.text());
}

#[test]
fn one_workspace_cannot_take_all_the_memory() {
    let server = Server::with(&["--bound", "memory_kib=400"], &[]);
    let mut held = Vec::new();
    for _ in 0..24 {
        held.push(begun(&server, "greedy", 20_000));
    }
    let mut client = server.client().with("x-epitome-workspace", "other");
    client.post("/v1/sessions/ann/messages", &json!({"role": "user", "content": "Hi."})).ok();
}
