//! More than there is room for: whoever is over it is told when to come again, and the rest is served.

use std::time::Duration;

use serde_json::json;

use crate::rough::Raw;
use crate::server::{Answer, Server, read_answer};

const HEAD: &str =
    "POST /v1/sessions/ann/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";

const BODY: &str = r#"{"role":"user","content":"Hi."}"#;

/// A request that is under way until its body has come.
fn begin(server: &Server, workspace: &str) -> Raw {
    let length = BODY.len();
    let head = format!("{HEAD}x-epitome-workspace: {workspace}\r\ncontent-length: {length}\r\n\r\n");
    Raw::send(server, head.as_bytes())
}

fn wait_for(server: &Server, what: &str, many: usize) {
    let line = format!("epitome_http_requests_in_progress{{kind=\"{what}\"}} {many}");
    for _ in 0..2_000 {
        if server.client().get("/metrics").text().contains(&line) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("waited for {line}: {}", server.client().get("/metrics").text());
}

fn of(server: &Server, workspace: &str) -> Answer {
    server.client().with("x-epitome-workspace", workspace).get("/v1/sessions")
}

#[test]
fn requests_over_the_limit_get_retry_after_and_others_are_served() {
    let server = Server::with(&["--bound", "requests=3", "--bound", "requests_of_one=2"], &[]);
    let mut one = [begin(&server, "one"), begin(&server, "one")];
    wait_for(&server, "request", 2);
    let refused = of(&server, "one");
    refused.refused(429, "this workspace's limit of 2 requests in progress is reached; try again");
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(of(&server, "two").status, 200, "others have their own");
    let mut two = begin(&server, "two");
    wait_for(&server, "request", 3);
    let refused = of(&server, "three");
    refused.refused(503, "the server's limit of 3 requests in progress is reached; try again");
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(server.client().get("/healthz").status, 200, "whoever looks after it is always answered");
    assert_eq!(server.client().get("/readyz").status, 200);
    for raw in one.iter_mut().chain([&mut two]) {
        raw.more(BODY.as_bytes());
        assert_eq!(raw.answer().status, 201);
    }
    assert_eq!((of(&server, "one").status, of(&server, "three").status), (200, 200));
    let log = server.log();
    assert!(log.contains("a limit of the server is reached"), "{log}");
}

#[test]
fn event_streams_use_no_request_permits() {
    let few = ["--bound", "requests=2", "--bound", "listening=3", "--bound", "listening_of_one=2"];
    let server = Server::with(&few, &[]);
    let listen = |workspace: &str| {
        let head =
            format!("GET /v1/events HTTP/1.1\r\nhost: localhost\r\nx-epitome-workspace: {workspace}\r\n\r\n");
        Raw::send(&server, head.as_bytes())
    };
    let mut listeners = vec![listen("one")];
    assert!(listeners[0].line().starts_with("HTTP/1.1 200"));
    wait_for(&server, "event_stream", 1);
    listeners.push(listen("one"));
    wait_for(&server, "event_stream", 2);
    let refused = listen("one").answer();
    refused.refused(429, "this workspace's limit of 2 connections that listen to events is reached");
    assert_eq!(refused.header("retry-after"), "1");
    listeners.push(listen("two"));
    wait_for(&server, "event_stream", 3);
    listen("three").answer().refused(503, "limit of 3 connections that listen to events is reached");
    assert_eq!(of(&server, "one").status, 200);
    drop(listeners);
    wait_for(&server, "event_stream", 0);
}

#[test]
fn connections_over_the_limit_get_retry_after() {
    let server = Server::with(&["--bound", "connections=8"], &[]);
    let mut idle: Vec<Raw> = (0..8).map(|_| Raw::send(&server, b"")).collect();
    let mut over = crate::server::connect(&server.address);
    let refused = read_answer(&mut over, false).expect("an answer before anything was asked");
    assert_eq!((refused.status, refused.header("retry-after")), (503, "1"));
    assert!(refused.json()["detail"].as_str().unwrap().contains("too many connections"));
    // A place that is free is taken by the next.
    idle.pop();
    for attempt in 0.. {
        let mut next =
            Raw::send(&server, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        if next.line().starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(attempt < 200, "the place is never given back");
        std::thread::sleep(Duration::from_millis(20));
    }
    for raw in &mut idle {
        raw.more(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
        assert_eq!(raw.answer().status, 200, "those who were there before are served");
    }
}

/// As many as a process may have here; the bound itself is tried with few.
#[test]
fn hundreds_of_idle_connections_do_no_harm() {
    let server = Server::start();
    let idle: Vec<Raw> = (0..800).map(|_| Raw::send(&server, b"")).collect();
    let mut client = server.client();
    for _ in 0..50 {
        client.post("/v1/sessions/ann/messages", &json!({"role": "user", "content": "Hi."})).ok();
    }
    assert_eq!(client.get("/v1/sessions/ann").ok()["messages"], 50);
    let peak = crate::rough::peak_mib(&server);
    assert!(peak < 200, "{peak} MiB");
    drop(idle);
}

#[test]
fn bodies_over_the_memory_limit_get_retry_after() {
    let server = Server::with(&["--bound", "memory_kib=100"], &[]);
    let mut client = server.client();
    let large = json!({"role": "user", "content": "x".repeat(200_000)});
    let refused = client.post("/v1/sessions/ann/messages", &large);
    refused.refused(503, "no memory is free for this body");
    assert_eq!(refused.header("retry-after"), "1");
    let small = json!({"role": "user", "content": "x"});
    assert_eq!(client.post("/v1/sessions/ann/messages", &small).status, 201);
}
