//! Bodies that are wrong, broken, too large or too deep: a clear error each, the server goes on, nothing is stored by
//! halves.

use std::io::Write;

use serde_json::{Value, json};

use crate::rough::{Raw, peak_mib};
use crate::server::{Answer, Server};

const MESSAGES: &str = "/v1/sessions/ann/messages";

/// Sends a body as it is to the append.
fn append(server: &Server, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    server.client().send("POST", MESSAGES, headers, Some(body))
}

fn as_json(server: &Server, body: &[u8]) -> Answer {
    append(server, &[("content-type", "application/json")], body)
}

/// Nothing was kept of what was refused, and what is right is still taken.
#[track_caller]
fn goes_on(server: &Server) {
    server.client().get("/v1/sessions/ann").refused(404, "session `ann` not found");
    let added = server.client().post("/v1/sessions/ben/messages", &json!({"role": "user", "content": "Hi."}));
    assert_eq!(added.status, 201, "{}", added.text());
    server.client().send("DELETE", "/v1/sessions/ben", &[], None).ok();
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

#[test]
fn invalid_json_is_refused_with_its_position() {
    let server = Server::start();
    as_json(&server, b"").refused(400, "the body is empty");
    as_json(&server, b"{").refused(400, "the body is not JSON: EOF");
    as_json(&server, b"{\"role\": \"user\",}").refused(400, "line 1 column 17");
    as_json(&server, b"{\"role\": 'user'}").refused(400, "not JSON");
    as_json(&server, b"{} {}").refused(400, "trailing characters");
    as_json(&server, b"\xef\xbb\xbf{}").refused(400, "not JSON");
    as_json(&server, b"{\"role\":\"user\",\"content\":\"\xff\xfe\"}").refused(400, "not UTF-8");
    as_json(&server, b"{\"role\":\"user\",\"content\":\"\\ud800\"}").refused(400, "not JSON");
    as_json(&server, b"{\"role\":\"user\",\"content\":NaN}").refused(400, "not JSON");
    as_json(&server, &vec![0u8; 1_000]).refused(400, "not JSON");
    goes_on(&server);
}

#[test]
fn a_wrong_type_is_refused_by_field() {
    let server = Server::start();
    let wrong = |body: Value, told: &str| {
        as_json(&server, body.to_string().as_bytes()).refused(400, told);
    };
    wrong(json!(null), "expected a message, a list of messages");
    wrong(json!(7), "expected a message, a list of messages");
    wrong(json!("hello"), "expected a message, a list of messages");
    wrong(json!([]), "messages");
    wrong(json!([7]), "messages[0]");
    wrong(json!({"role": 7, "content": "x"}), "role");
    wrong(json!({"role": "captain", "content": "x"}), "role");
    wrong(json!({"role": "user", "content": 7}), "content");
    wrong(json!({"messages": {}}), "messages: expected a list");
    wrong(json!({"messages": [], "format": "morse"}), "format: no such format; use one of: openai");
    wrong(json!({"messages": [], "colour": "red"}), "\"colour\": no such field");
    // The second of them is wrong: the first is not kept either.
    wrong(json!([{"role": "user", "content": "fine"}, {"role": "user", "content": 7}]), "messages[1]");
    goes_on(&server);
}

#[test]
fn a_body_without_a_json_content_type_is_not_read() {
    let server = Server::start();
    let message = br#"{"role":"user","content":"Hi."}"#;
    append(&server, &[], message).refused(415, "content-type: expected application/json");
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"]
    {
        append(&server, &[("content-type", kind)], message).refused(415, "expected application/json");
    }
    append(&server, &[("content-type", "application/json"), ("content-encoding", "br")], message)
        .refused(415, "expected gzip");
    goes_on(&server);
    for kind in ["application/json; charset=utf-8", "Application/JSON", "application/problem+json"] {
        assert_eq!(append(&server, &[("content-type", kind)], message).status, 201, "{kind}");
    }
}

#[test]
fn a_body_over_the_limit_is_refused_with_or_without_a_length() {
    let server = Server::start();
    let head = format!("POST {MESSAGES} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    // It is not even asked for where its length tells.
    let told = Raw::send(&server, format!("{head}content-length: 99999999999\r\n\r\n").as_bytes()).answer();
    told.refused(413, "exceeds 16777216 bytes");
    let waits = format!("{head}expect: 100-continue\r\ncontent-length: 99999999999\r\n\r\n");
    let mut waits = Raw::send(&server, waits.as_bytes());
    assert!(waits.line().starts_with("HTTP/1.1 413"), "it is not told to go on");
    let mut chunked = Raw::send(&server, format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes());
    let chunk = [b"100000\r\n".as_slice(), &vec![b' '; 1 << 20], b"\r\n"].concat();
    let sent = (0..40).take_while(|_| chunked.more(&chunk)).count();
    assert!(sent >= 16, "{sent}");
    chunked.answer().refused(413, "exceeds 16777216 bytes");
    goes_on(&server);
}

#[test]
fn a_body_shorter_than_declared_times_out() {
    let server = Server::with(&["--bound", "silence=300"], &[]);
    let head = format!("POST {MESSAGES} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    let half = format!("{head}content-length: 100\r\n\r\n{{\"role\":\"user\",");
    Raw::send(&server, half.as_bytes()).answer().refused(408, "was not received in time");
    // A little now and then is no silence, and has an end all the same.
    let patient = Server::with(&["--bound", "silence=600000", "--bound", "body=600"], &[]);
    let mut slow = Raw::send(&patient, format!("{head}content-length: 1000\r\n\r\n").as_bytes());
    for _ in 0..10 {
        std::thread::sleep(std::time::Duration::from_millis(40));
        slow.more(b" ");
    }
    slow.answer().refused(408, "was not received in time");
    // Whoever closes their side in the middle of it has said all they will say.
    let mut closed = Raw::send(&server, half.as_bytes());
    closed.close_sending();
    closed.answer().refused(400, "the body is incomplete");
    let mut wrong =
        Raw::send(&server, format!("{head}transfer-encoding: chunked\r\n\r\nzz\r\n{{}}").as_bytes());
    wrong.answer().refused(400, "its chunks are invalid");
    goes_on(&server);
}

#[test]
fn deep_nesting_is_an_error_and_no_crash() {
    let server = Server::start();
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        as_json(&server, deep.as_bytes()).refused(400, "recursion limit");
        as_json(&server, open.repeat(100_000).as_bytes()).refused(400, "recursion limit");
        let inside = format!("{{\"role\":\"user\",\"content\":\"x\",\"metadata\":{deep}}}");
        as_json(&server, inside.as_bytes()).refused(400, "recursion limit");
    }
    goes_on(&server);
}

#[test]
fn nul_is_refused_in_names_and_stored_in_text() {
    let server = Server::start();
    let mut client = server.client();
    let message = json!({"role": "user", "content": "a\u{0}b"});
    client.post("/v1/sessions/a%00b/messages", &message).refused(400, "session");
    let author = json!({"role": "user", "parts": [{"type": "text", "text": "x"}], "author": "a\u{0}"});
    client.post(MESSAGES, &author).refused(400, "author");
    let keyed = format!("POST {MESSAGES} HTTP/1.1\r\nhost: localhost\r\nidempotency-key: a\0b\r\n\r\n");
    assert!(Raw::send(&server, keyed.as_bytes()).rest().starts_with("HTTP/1.1 400 "));
    client.get("/v1/sessions?after=%00").ok();
    goes_on(&server);
    client.post(MESSAGES, &message).ok();
    let kept = client.get(MESSAGES).ok();
    assert_eq!(kept["items"][0]["parts"][0]["text"], "a\u{0}b", "it is what was said");
}

#[test]
fn an_append_over_a_limit_stores_nothing() {
    let server = Server::start();
    let mut client = server.client();
    let large = json!({"role": "user", "content": "x".repeat(10_000_000)});
    client.post(MESSAGES, &large).refused(400, "limits.message");
    let few = json!({"role": "user", "content": "x"});
    let batch: Vec<Value> = vec![few.clone(); 1_001];
    client.post(MESSAGES, &json!(batch)).refused(400, "limits.batch");
    let last: Vec<Value> = vec![few.clone(), few, large];
    client.post(MESSAGES, &json!(last)).refused(400, "messages[2]");
    let notes = json!({"role": "user", "parts": [{"type": "text", "text": "x"}], "metadata": {"note": "x".repeat(70_000)}});
    client.post(MESSAGES, &notes).refused(400, "limits.metadata");
    goes_on(&server);
}

#[test]
fn a_million_metadata_keys_cost_neither_memory_nor_time() {
    let server = Server::start();
    let before = peak_mib(&server);
    let mut body = String::from(r#"{"role":"user","parts":[],"metadata":{"#);
    for key in 0..1_000_000 {
        body.push_str(&format!("\"{key:x}\":1,"));
    }
    body.pop();
    body.push_str("}}");
    let senders: Vec<_> = (0..8)
        .map(|_| {
            let (mut client, body) = (server.client(), body.clone());
            std::thread::spawn(move || {
                client.send("POST", MESSAGES, &[("content-type", "application/json")], Some(body.as_bytes()))
            })
        })
        .collect();
    for sender in senders {
        let answer = sender.join().unwrap();
        if answer.status == 503 {
            answer.refused(503, "no memory is free for this body");
        } else {
            answer.refused(413, "more than 200000 JSON values");
        }
    }
    as_json(&server, body.as_bytes()).refused(413, "more than 200000 JSON values");
    let after = peak_mib(&server);
    assert!(after < 400, "{before} MiB before, {after} MiB at most");
    goes_on(&server);
}

#[test]
fn gzipped_bodies_are_unpacked_within_the_same_limits() {
    let server = Server::start();
    let packed = [("content-type", "application/json"), ("content-encoding", "gzip")];
    let message = gzip(br#"{"role":"user","content":"Hi."}"#);
    append(&server, &packed, b"no gzip at all").refused(400, "not gzip");
    append(&server, &packed, &message[..message.len() - 9]).refused(400, "is incomplete");
    let mut broken = message.clone();
    broken[15] ^= 0xff;
    append(&server, &packed, &broken).refused(400, "not gzip");
    append(&server, &packed, b"").refused(400, "");
    // A thousand times as much as was sent.
    let bomb = gzip(&vec![b' '; 512 << 20]);
    assert!(bomb.len() < 1 << 20, "{}", bomb.len());
    append(&server, &packed, &bomb).refused(413, "exceeds 16777216 bytes");
    assert!(peak_mib(&server) < 400);
    append(&server, &[packed[0], ("content-encoding", "gzip, gzip")], &message).refused(415, "gzip");
    goes_on(&server);
    assert_eq!(append(&server, &packed, &message).status, 201);
}

#[test]
fn many_large_bodies_stay_within_the_memory_limit() {
    let server = Server::start();
    let texts: Vec<Value> =
        (0..15).map(|_| json!({"role": "user", "content": "word ".repeat(200_000)})).collect();
    let body = json!(texts).to_string();
    let senders: Vec<_> = (0..32)
        .map(|at| {
            let (mut client, body) = (server.client(), body.clone());
            std::thread::spawn(move || {
                let path = format!("/v1/sessions/flood-{at}/messages");
                client.send("POST", &path, &[("content-type", "application/json")], Some(body.as_bytes()))
            })
        })
        .collect();
    let mut taken = 0;
    for (at, sender) in senders.into_iter().enumerate() {
        let answer = sender.join().unwrap();
        let there = server.client().get(&format!("/v1/sessions/flood-{at}"));
        if answer.status == 201 {
            taken += 1;
            assert_eq!(there.ok()["messages"], 15);
        } else {
            answer.refused(503, "no memory is free for this body");
            assert_eq!(answer.header("retry-after"), "1");
            assert_eq!(there.status, 404, "nothing is stored by halves");
        }
    }
    assert!(taken > 0, "some are served");
    let peak = peak_mib(&server);
    assert!(peak < 400, "{peak} MiB");
}
