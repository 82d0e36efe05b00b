//! Events: each tenant's own, for as long as their key is good.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::json;

use super::{MARKER, Tenants};
use crate::server::{command, connect, db};

/// Somebody who listens.
struct Listening(BufReader<TcpStream>);

impl Listening {
    fn start(tenants: &Tenants, key: &str, path: &str, last: Option<&str>) -> Self {
        let mut stream = connect(&tenants.server.address);
        let last = last.map_or(String::new(), |id| format!("last-event-id: {id}\r\n"));
        let host = &tenants.server.address;
        let head =
            format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\n{last}\r\n");
        stream.get_mut().write_all(head.as_bytes()).unwrap();
        let mut listening = Self(stream);
        assert!(listening.until(": listening").contains("200 OK"));
        listening
    }

    /// All that is said up to a line that begins so, or to the end; one that says nothing else twice goes on for ever.
    fn until(&mut self, start: &str) -> String {
        let mut said = String::new();
        loop {
            let at = said.len();
            assert!(said.matches(": still here").count() < 2, "it goes on: {said}");
            let read = self.0.read_line(&mut said).unwrap();
            // The last chunk has no bytes, and the connection may be used again.
            if read == 0 || &said[at..] == "0\r\n" || said[at..].starts_with(start) {
                return said;
            }
        }
    }
}

/// Returns the lines of events, without their times.
fn told(said: &str) -> Vec<String> {
    let kept =
        said.lines().filter(|line| ["id: ", "event: ", "data: "].iter().any(|start| line.starts_with(start)));
    kept.map(|line| match line.split_once("\"at\":") {
        Some((before, after)) => {
            // `created_at` is the same time.
            let before = before.split_once("\"created_at\":").map_or(before, |(before, _)| before);
            format!("{before}{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => line.to_owned(),
    })
    .collect()
}

/// All there is, up to a message that is added to be seen.
fn heard(tenants: &Tenants, path: &str, last: Option<&str>) -> Vec<String> {
    let mut listening = Listening::start(tenants, &tenants.beta, path, last);
    tenants.talk(&tenants.beta, "last", 1, "words");
    told(&listening.until("data: {\"session\":\"last\""))
}

#[test]
fn events_belong_to_the_keys_workspace_and_are_numbered_in_it() {
    let (alone, beside) = (Tenants::new(), Tenants::beside_another());
    let (one, other) =
        (heard(&alone, "/v1/events?after=0", None), heard(&beside, "/v1/events?after=0", None));
    assert!(one.len() >= 9, "{one:?}");
    assert_eq!(one, other);
    assert!(!other.join("\n").contains(MARKER));
}

#[test]
fn another_tenants_event_id_reveals_nothing() {
    let (alone, beside) = (Tenants::new(), Tenants::beside_another());
    for last in ["1", "4", "30", "18446744073709551615"] {
        let path = "/v1/events?session=last";
        assert_eq!(heard(&alone, path, Some(last)), heard(&beside, path, Some(last)), "{last}");
    }
}

#[test]
fn a_stream_ends_when_its_key_is_revoked() {
    let tenants = Tenants::new();
    let key = super::made(&tenants.server, &["--workspace", "beta", "--rights", "read"]);
    let mut listening = Listening::start(&tenants, &key, "/v1/events", None);
    tenants.talk(&tenants.beta, "before", 1, "words");
    listening.until("data: {\"session\":\"before\"");
    let revoking = ["keys", "revoke", &key[4..20], "--db", &db(&tenants.server.folder)];
    assert!(command(&tenants.server.folder).args(revoking).status().unwrap().success());
    tenants.talk(&tenants.beta, "after", 1, "words");
    let said = listening.until("never said");
    assert!(!said.contains("after"), "{said}");
    let again = tenants.server.client().key(&key).get("/v1/events");
    again.refused(401, "the key is unknown, revoked or expired");
}

#[test]
fn an_admin_key_listens_to_the_named_workspace() {
    let tenants = Tenants::new();
    let path = "/v1/events";
    let mut client = tenants.server.client().key(&tenants.admin).with("x-epitome-workspace", "beta");
    assert_eq!(client.send("HEAD", path, &[], None).status, 200);
    client.post("/v1/sessions/made/messages", &json!({"role": "user", "content": "Hello."})).ok();
    let there = tenants.server.client().key(&tenants.beta).get("/v1/sessions/made");
    assert_eq!(there.status, 200);
}
