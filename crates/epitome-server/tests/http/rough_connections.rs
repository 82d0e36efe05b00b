//! Connections that are slow, broken, greedy or no HTTP at all: an error or an end each, and everybody else is served.

use std::time::Duration;

use serde_json::json;

use crate::rough::{Raw, peak_mib};
use crate::rough_pages::large;
use crate::server::Server;

/// Others are answered.
#[track_caller]
fn goes_on(server: &Server) {
    assert_eq!(server.client().get("/readyz").ok()["ready"], true);
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
}

#[test]
fn requests_that_are_not_http_are_refused_and_disconnected() {
    let server = Server::start();
    let hello = [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(), &[7; 200]].concat();
    let noise: Vec<u8> = (0..4_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let words = b"EHLO mail.example\r\nQUIT\r\n".to_vec();
    let later = b"GET /healthz HTTP/9.9\r\nhost: localhost\r\n\r\n".to_vec();
    let spaced = b"GET  /healthz  HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec();
    let bare = b"GET /healthz HTTP/1.1\r\nno colon here\r\n\r\n".to_vec();
    for bytes in [hello, noise, words, later, spaced, bare] {
        let told = Raw::send(&server, &bytes).rest();
        assert!(told.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{told}");
    }
    // What HTTP/2 begins with, where nobody agreed on it.
    let told = Raw::send(&server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").rest();
    assert!(told.is_empty() || told.starts_with("HTTP/1.1 4"), "{told}");
    goes_on(&server);
}

#[test]
fn two_lengths_or_a_length_and_chunks_are_refused() {
    let server = Server::start();
    let post =
        "POST /v1/sessions/ann/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let smuggled = "0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for lengths in [
        "content-length: 5\r\ncontent-length: 6\r\n",
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        "content-length: -1\r\n",
        "content-length: 5, 5\r\n",
        "content-length: five\r\n",
        "transfer-encoding: gzip\r\n",
    ] {
        let told = Raw::send(&server, format!("{post}{lengths}\r\n{smuggled}").as_bytes()).rest();
        assert!(told.starts_with("HTTP/1.1 4"), "{lengths} {told}");
        assert!(!told.contains("HTTP/1.1 200"), "what was hidden in it is not answered: {told}");
    }
    goes_on(&server);
}

#[test]
fn heads_that_are_too_large_are_refused() {
    let server = Server::start();
    let many: String = (0..200).map(|n| format!("x-{n}: 1\r\n")).collect();
    let huge = format!("x-large: {}\r\n", "x".repeat(1 << 20));
    for headers in [many, huge] {
        let head = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        let told = Raw::send(&server, head.as_bytes()).rest();
        assert!(told.is_empty() || told.starts_with("HTTP/1.1 431 "), "{told}");
    }
    let told = Raw::send(&server, get(&format!("/{}", "x".repeat(70_000))).as_bytes()).rest();
    assert!(told.is_empty() || told.starts_with("HTTP/1.1 4"), "{told}");
    let long = format!("/v1/sessions/{}", "x".repeat(8_000));
    server.client().get(&long).refused(400, "session");
    goes_on(&server);
}

#[test]
fn names_that_are_not_utf_8_are_refused_everywhere() {
    let server = Server::start();
    let mut client = server.client();
    client.get("/v1/sessions/%ff%fe").refused(400, "UTF-8");
    client.get("/v1/search?q=%ff").refused(400, "a query parameter is not UTF-8");
    let raw = |header: &[u8]| {
        let head = [b"GET /v1/sessions HTTP/1.1\r\nhost: localhost\r\n", header, b"\r\n\r\n"].concat();
        Raw::send(&server, &head).answer()
    };
    raw(b"x-epitome-workspace: \xff\xfe").refused(400, "x-epitome-workspace");
    raw(b"authorization: Bearer \xff").refused(401, "");
    assert_eq!(raw(b"x-request-id: \xff").status, 200, "one that cannot be repeated is left out");
    goes_on(&server);
}

#[test]
fn every_route_lists_its_allowed_methods() {
    let server = Server::start();
    let mut client = server.client();
    let refused = client.send("PUT", "/v1/sessions/ann/messages", &[], None);
    refused.refused(405, "the header `allow` lists the methods");
    let allowed: Vec<&str> = refused.header("allow").split(',').map(str::trim).collect();
    assert!(allowed.contains(&"GET") && allowed.contains(&"POST"), "{allowed:?}");
    for method in ["DELETE", "OPTIONS", "TRACE", "BREW", "CONNECT"] {
        client.send(method, "/v1/sessions/ann/context", &[], None).refused(405, "allow");
    }
    let head = client.send("HEAD", "/healthz", &[], None);
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(client.send("HEAD", "/v1/sessions/nobody", &[], None).status, 404);
    let star = Raw::send(&server, b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n").answer();
    assert!((400..500).contains(&star.status), "{star:?}");
    goes_on(&server);
}

#[test]
fn old_and_unusual_http_requests_are_accepted() {
    let server = Server::start();
    let told = Raw::send(&server, b"GET /healthz HTTP/1.0\r\n\r\n").rest();
    assert!(told.starts_with("HTTP/1.0 200 OK\r\n") && told.ends_with("{\"status\":\"ok\"}"), "{told}");
    let whole = format!("GET http://{}/healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", server.address);
    assert_eq!(Raw::send(&server, whole.as_bytes()).answer().status, 200);
    let last = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let told = Raw::send(&server, last).rest();
    assert!(told.to_ascii_lowercase().contains("connection: close\r\n"), "{told}");
    // Three at once, answered in order.
    let mut piped =
        Raw::send(&server, [get("/healthz"), get("/v1/nothing"), get("/readyz")].concat().as_bytes());
    let statuses = [piped.answer().status, piped.answer().status, piped.answer().status];
    assert_eq!(statuses, [200, 404, 200]);
    goes_on(&server);
}

#[test]
fn slow_requests_are_disconnected() {
    let server = Server::with(&["--bound", "headers=300"], &[]);
    let silent = Raw::send(&server, b"").rest();
    let half = Raw::send(&server, b"GET /healthz HTTP/1.1\r\nhost: loc").rest();
    assert!(silent.is_empty() && !half.contains("200"), "{half}");
    // Byte by byte is no faster.
    let mut slow = Raw::send(&server, b"GET /healthz HTTP/1.1\r\n");
    let sent = (0..200).take_while(|_| {
        std::thread::sleep(Duration::from_millis(20));
        slow.more(b"x")
    });
    assert!(sent.count() < 200, "it was let go before it was done");
    goes_on(&server);
}

/// Whoever closes one side has hung up: no client that wants its answer does so.
#[test]
fn half_closed_connections_are_dropped_without_partial_writes() {
    let server = Server::start();
    let head =
        "POST /v1/sessions/ann/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    for sent in [
        "GET /healthz HT".to_owned(),
        get("/healthz"),
        format!("{head}content-length: 100\r\n\r\n{{\"role\":"),
    ] {
        let mut half = Raw::send(&server, sent.as_bytes());
        half.close_sending();
        let told = half.rest();
        assert!(told.is_empty() || told.starts_with("HTTP/1.1 "), "{told}");
    }
    server.client().get("/v1/sessions/ann").refused(404, "not found");
    goes_on(&server);
}

#[test]
fn disconnected_clients_leave_nothing_behind() {
    let server = Server::start();
    let body = json!({"role": "user", "content": "x".repeat(500_000)}).to_string();
    let head =
        "POST /v1/sessions/ann/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let whole = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    for cut in [30, head.len() + 10, whole.len() / 2, whole.len() - 1] {
        drop(Raw::send(&server, &whole.as_bytes()[..cut]));
    }
    server.client().get("/v1/sessions/ann").refused(404, "not found");
    // Gone before the answer: it is done or not, and never by halves.
    for _ in 0..20 {
        drop(Raw::send(&server, whole.as_bytes()));
    }
    for _ in 0..20 {
        drop(Raw::send(&server, get("/v1/sessions/ann/messages").as_bytes()));
        drop(Raw::send(&server, get("/v1/events?after=0").as_bytes()));
    }
    let mut client = server.client();
    client.post("/v1/sessions/ann/messages", &json!({"role": "user", "content": "last"})).ok();
    let head = client.get("/v1/sessions/ann").ok()["messages"].as_u64().unwrap();
    let newest = client.get("/v1/sessions/ann/messages?reverse&limit=1").ok();
    assert_eq!(newest["items"][0]["seq"].as_u64(), Some(head));
    // Their places are free again.
    for _ in 0..100 {
        let figures = client.get("/metrics").text();
        if figures.contains("epitome_http_requests_in_progress{kind=\"event_stream\"} 0") {
            return goes_on(&server);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("somebody still listens: {}", client.get("/metrics").text());
}

#[test]
fn clients_that_do_not_read_their_answers_are_disconnected() {
    let server = Server::with(&["--bound", "unread=500"], &[]);
    let mut client = server.client();
    client.post("/v1/sessions/ann/messages", &json!(vec![large(); 15])).ok();
    let deaf: Vec<_> = (0..64)
        .map(|_| Raw::send(&server, get("/v1/sessions/ann/messages?limit=500").repeat(3).as_bytes()))
        .collect();
    // Those who read are served as soon as the others are let go.
    for attempt in 0.. {
        let answer = server.client().get("/v1/sessions/ann/messages?limit=500");
        if answer.status == 200 {
            break;
        }
        answer.refused(503, "no memory is free for this response");
        assert!(attempt < 200, "they are never let go");
        std::thread::sleep(Duration::from_millis(50));
    }
    let peak = peak_mib(&server);
    assert!(peak < 400, "{peak} MiB");
    drop(deaf);
    goes_on(&server);
}

#[test]
fn event_streams_that_are_not_read_use_little_memory() {
    let server = Server::start();
    let mut client = server.client();
    let deaf: Vec<_> = (0..64).map(|_| Raw::send(&server, get("/v1/events?after=0").as_bytes())).collect();
    for _ in 0..300 {
        client.post("/v1/sessions/ann/messages", &json!({"role": "user", "content": "again"})).ok();
    }
    let peak = peak_mib(&server);
    assert!(peak < 200, "{peak} MiB");
    drop(deaf);
    goes_on(&server);
}
