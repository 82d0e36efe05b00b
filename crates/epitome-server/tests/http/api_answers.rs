//! What holds for every answer: marks, compression, ids of requests.

use std::collections::HashSet;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::server::{Answer, Client, Server};
use crate::talk::{add, settle, talk};

/// Everything that can be read and carries a mark.
const MARKED: [&str; 12] = [
    "/v1/sessions",
    "/v1/sessions/a",
    "/v1/sessions/a/messages",
    "/v1/sessions/a/context",
    "/v1/sessions/a/context?format=openai",
    "/v1/sessions/a/summaries",
    "/v1/sessions/a/summaries/1/messages",
    "/v1/sessions/a/search?q=parcel",
    "/v1/search?q=parcel",
    "/v1/workspace",
    "/v1/usage",
    "/v1/keys",
];

fn again(client: &mut Client, path: &str, mark: &str) -> Answer {
    client.send("GET", path, &[("if-none-match", mark)], None)
}

#[test]
fn an_unchanged_answer_is_304() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 45));
    settle(&mut client);
    for path in MARKED.into_iter().chain(["/v1/queue"]) {
        let first = client.get(path);
        first.ok();
        let mark = first.header("etag");
        assert!(mark.starts_with("W/\"") && first.header("cache-control") == "private, no-cache", "{path}");
        let same = again(&mut client, path, mark);
        assert_eq!((same.status, same.body.len(), same.header("etag")), (304, 0, mark), "{path}");
        assert_eq!(again(&mut client, path, &mark.replace("W/", "")).status, 304, "{path}");
        assert_eq!(again(&mut client, path, &format!("\"x\", {mark}")).status, 304, "{path}");
        assert_eq!(again(&mut client, path, "*").status, 304, "{path}");
        assert_eq!(again(&mut client, path, "W/\"0123456789abcdef01234567\"").status, 200, "{path}");
    }
}

#[test]
fn a_new_message_changes_the_etags_that_depend_on_it() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 45));
    settle(&mut client);
    let shown = |path: &&str| {
        !["/summaries", "/workspace", "/usage", "/keys"].iter().any(|other| path.contains(other))
    };
    for path in MARKED.into_iter().filter(shown) {
        let mark = client.get(path).header("etag").to_owned();
        add(&mut client, "a", &json!({"role": "user", "content": "One more parcel."}));
        assert_eq!(again(&mut client, path, &mark).status, 200, "{path}");
        settle(&mut client);
    }
}

#[test]
fn a_new_summary_changes_a_contexts_etag_and_its_age_does_not() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 30));
    settle(&mut client);
    let path = "/v1/sessions/a/context?tokens=1500";
    let first = client.get(path);
    loop {
        let later = client.get(path);
        assert_eq!(later.header("etag"), first.header("etag"));
        if later.ok()["summary"]["age"] != first.ok()["summary"]["age"] {
            break;
        }
    }
    client.post("/v1/sessions/a/summaries?wait=true", &json!({})).ok();
    assert_ne!(client.get(path).header("etag"), first.header("etag"));
}

#[test]
fn an_answer_is_compressed_if_the_client_accepts_it() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 10));
    let plain = client.get("/v1/sessions/a/messages");
    assert_eq!(plain.header("content-encoding"), "");
    let packed = client.send("GET", "/v1/sessions/a/messages", &[("accept-encoding", "gzip")], None);
    assert_eq!((packed.header("content-encoding"), packed.header("etag")), ("gzip", plain.header("etag")));
    assert!(packed.body.len() < plain.body.len() / 2 && packed.header("vary").contains("accept-encoding"));
    let mut text = Vec::new();
    GzDecoder::new(&packed.body[..]).read_to_end(&mut text).unwrap();
    assert_eq!(text, plain.body);
}

fn packed(body: &Value) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(body.to_string().as_bytes()).unwrap();
    packer.finish().unwrap()
}

#[test]
fn a_body_may_come_compressed() {
    let server = Server::start();
    let mut client = server.client();
    let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
    let mut post = |headers: &[(&str, &str)], body: &[u8]| {
        client.send("POST", "/v1/sessions/a/messages", headers, Some(body))
    };
    assert_eq!(post(&headers, &packed(&talk(1, 50))).ok()["through"], 50);
    post(&headers, b"not packed at all").refused(400, "not gzip");
    let whole = packed(&talk(1, 50));
    post(&headers, &whole[..whole.len() / 2]).refused(400, "the body is not gzip, or is incomplete");
    let bomb = packed(&json!({"role": "user", "content": " ".repeat(17 << 20)}));
    assert!(bomb.len() < 200_000);
    post(&headers, &bomb).refused(413, "limits.body");
    post(&[("content-type", "application/json"), ("content-encoding", "br")], b"x")
        .refused(415, "expected gzip");
    assert_eq!(client.get("/v1/sessions/a").ok()["messages"], 50);
}

#[test]
fn a_request_has_the_clients_id_or_a_new_one() {
    let server = Server::start();
    let mut client = server.client();
    let mut with = |id: &str| {
        client.send("GET", "/healthz", &[("x-request-id", id)], None).header("x-request-id").to_owned()
    };
    let longest = "x".repeat(128);
    for id in ["4711", "a-b_c.d~e", "{\"a\":1}", &longest] {
        assert_eq!(with(id), id);
    }
    let too_long = "x".repeat(129);
    for id in ["", "two words", "clé", &too_long] {
        let given = with(id);
        assert!(given != id && given.len() == 16, "{given}");
    }
    let ids: HashSet<String> =
        (0..20).map(|_| client.get("/healthz").header("x-request-id").to_owned()).collect();
    assert_eq!(ids.len(), 20);
    let refused = client.send("GET", "/v1/nothing", &[("x-request-id", "mine")], None);
    assert_eq!(refused.refused(404, "no such path")["request_id"], "mine");
}

#[test]
fn a_method_that_is_not_allowed_is_answered_with_those_that_are() {
    let server = Server::start();
    let mut client = server.client();
    let refused = client.send("DELETE", "/v1/sessions", &[], None);
    refused.refused(405, "the header `allow`");
    assert!(refused.header("allow").contains("GET"));
    assert_eq!(client.send("HEAD", "/v1/sessions", &[], None).status, 200);
}
