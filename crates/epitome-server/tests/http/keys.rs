//! When keys are needed, what is said at the start, and who is let in where they are not.

use std::io::Write;

use serde_json::{Value, json};

use crate::home::shown;
use crate::server::{Answer, Server, command, connect, db, read_answer};

fn run(server: &Server, args: &[&str]) -> String {
    let output = command(&server.folder).args(args).args(["--db", &db(&server.folder)]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn made(server: &Server, args: &[&str]) -> String {
    run(server, &[&["keys", "create"], args].concat()).trim().to_owned()
}

#[test]
fn on_loopback_keys_are_optional_by_default() {
    let server = Server::start();
    server.client().get("/v1/keys").ok();
    assert_eq!(server.client().get("/metrics").status, 200);
    assert!(!server.log().contains("WARN"), "{}", server.log());
    let told = Server::with(&[], &[("EPITOME_SERVER_REQUIRE_KEYS", "always")]);
    told.client().get("/v1/sessions").refused(401, "a key is required: send `authorization: Bearer epk_...`");
    told.client().get("/metrics").refused(401, "a key is required");
    assert_eq!(told.client().get("/v1/queue").header("www-authenticate"), "Bearer realm=\"epitome\"");
    assert_eq!(told.client().get("/healthz").status, 200);
    assert_eq!(told.client().get("/openapi.json").status, 200);
}

#[test]
fn beyond_loopback_keys_are_required_and_the_log_says_how_to_create_one() {
    let server = Server::with(&["--listen", "0.0.0.0:0"], &[]);
    server.client().get("/v1/sessions").refused(401, "a key is required");
    let how = format!("epitome keys create --admin --db {}", shown());
    assert!(server.log().contains(&how), "{}", server.log());
    let admin = made(&server, &["--admin"]);
    let mut client = server.client().key(&admin);
    let wanted = json!({"workspace": "team", "rights": "write", "label": "ann"});
    let made = client.post("/v1/keys", &wanted).ok();
    let mut ann = server.client().key(made["secret"].as_str().unwrap());
    ann.post("/v1/sessions/a/messages", &json!({"role": "user", "content": "Hello."})).ok();
    client.send("DELETE", &format!("/v1/keys/{}", made["id"].as_str().unwrap()), &[], None).ok();
    ann.get("/v1/sessions").refused(401, "the key is unknown, revoked or expired");
    // A name that leads elsewhere is no matter where keys are sent.
    let host = [("authorization", format!("Bearer {admin}")), ("x-forwarded-host", "api.example".to_owned())];
    let headers: Vec<(&str, &str)> = host.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(server.client().send("GET", "/v1/keys", &headers, None).status, 200);
}

#[test]
fn require_keys_never_logs_a_warning() {
    let server = Server::with(&["--listen", "0.0.0.0:0", "--require-keys", "never"], &[]);
    server.client().get("/v1/sessions").ok();
    let log = server.log();
    assert!(log.contains("any client that reaches this address can read and write everything"), "{log}");
    assert!(log.contains("WARN"), "{log}");
}

#[test]
fn the_command_lines_workspace_does_not_apply_to_callers() {
    let server = Server::with(&[], &[("EPITOME_WORKSPACE", "team")]);
    server.client().post("/v1/sessions/a/messages", &json!({"role": "user", "content": "Hello."})).ok();
    assert_eq!(server.client().get("/v1/workspace").ok()["name"], "default");
    let named = server.client().with("x-epitome-workspace", "team").get("/v1/sessions");
    assert_eq!(named.ok()["items"], json!([]));
    assert!(run(&server, &["list"]).contains('a'));
    let folder = tempfile::tempdir().unwrap();
    for args in [["--workspace", "team"], ["--set", "server.workspace=team"]] {
        let output =
            command(folder.path()).args(["serve", "--listen", "127.0.0.1:0"]).args(args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("a server serves every workspace") && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn a_key_is_checked_even_if_keys_are_optional() {
    let server = Server::start();
    let read = made(&server, &["--workspace", "team", "--rights", "read"]);
    assert_eq!(server.client().key(&read).get("/v1/workspace").ok()["name"], "team");
    let said = json!({"role": "user", "content": "Hello."});
    server.client().key(&read).post("/v1/sessions/a/messages", &said).refused(403, "this key may only read");
    server.client().key(&read).get("/v1/keys").refused(403, "an admin key is required here");
    server.client().key(&read).get("/metrics").refused(403, "an admin key is required here");
    let other = server.client().key(&read).with("x-epitome-workspace", "default").get("/v1/workspace");
    other.refused(403, "this key is for another workspace");
    run(&server, &["keys", "revoke", &read[4..20]]);
    server.client().key(&read).get("/v1/workspace").refused(401, "the key is unknown, revoked or expired");
    for odd in ["Basic YTpi", "Bearer", "epk_", "Bearer \u{e9}"] {
        let answer = server.client().with("authorization", odd).get("/v1/workspace");
        answer.refused(401, "authorization: expected `Bearer` and a key");
    }
}

#[test]
fn two_keys_in_one_request_are_refused() {
    let server = Server::with(&["--require-keys", "always"], &[]);
    let key = made(&server, &["--rights", "write"]);
    server.client().key(&key).get("/v1/workspace").ok();
    server.client().key(&key).key("epk_x").get("/v1/workspace").refused(401, "in one header");
    server.client().key("epk_x").key(&key).get("/v1/workspace").refused(401, "in one header");
    let listed = format!("Bearer {key}, Bearer {key}");
    server.client().with("authorization", &listed).get("/v1/workspace").refused(401, "the key is unknown");
}

#[test]
fn an_unauthorized_caller_learns_nothing_about_its_request() {
    let server = Server::with(&["--require-keys", "always"], &[]);
    let read = made(&server, &["--rights", "read"]);
    let json = [("content-type", "application/json")];
    for (method, path) in [
        ("GET", "/v1/sessions?limit=many&odd=1"),
        ("GET", "/v1/sessions/%ff/context?tokens=x"),
        ("PATCH", "/v1/sessions/a/messages/one"),
        ("POST", "/v1/sessions/a/messages?after=x"),
        ("PUT", "/v1/workspace"),
        ("POST", "/v1/keys"),
        ("GET", "/v1/keys?limit=0"),
        ("GET", "/v1/events?after=x"),
    ] {
        server.client().send(method, path, &json, Some(b"{no json")).refused(401, "a key is required");
        let named = server.client().with("x-epitome-workspace", "").send(method, path, &json, Some(b"{"));
        named.refused(401, "a key is required");
        if method != "GET" {
            let known = server.client().key(&read).send(method, path, &json, Some(b"{no json"));
            known.refused(403, "");
        }
    }
}

#[test]
fn the_body_of_an_unauthorized_request_is_not_read() {
    let server = Server::with(&["--require-keys", "always"], &[]);
    let read = made(&server, &["--rights", "read"]);
    for authorization in [String::new(), format!("authorization: Bearer {read}\r\n")] {
        let mut stream = connect(&server.address);
        let head = format!(
            "POST /v1/sessions/a/messages HTTP/1.1\r\nhost: {}\r\n{authorization}content-type: application/json\r\n\
             content-length: 1000000\r\n\r\n",
            server.address
        );
        stream.get_mut().write_all(head.as_bytes()).unwrap();
        // Not a byte of it is sent.
        let answer = read_answer(&mut stream, false).unwrap();
        assert!([401, 403].contains(&answer.status), "{answer:?}");
    }
}

#[test]
fn a_web_page_cannot_use_the_server_of_this_machine() {
    let server = Server::start();
    let mut client = server.client();
    let page = |method: &str, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>| -> Answer {
        server.client().send(method, path, headers, body)
    };
    let messages: Vec<Value> =
        (1..=6).map(|n| json!({"role": "user", "content": format!("Order {n} has not arrived.")})).collect();
    client.post("/v1/sessions/a/messages", &json!(messages)).ok();
    client.post("/v1/sessions/a/summaries?wait=true", &json!({})).ok();
    let said = br#"{"role": "user", "content": "Hello."}"#;
    // A form can be sent anywhere, but cannot say that it is JSON.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let sent = [("content-type", kind)];
        page("POST", "/v1/sessions/a/messages", &sent, Some(said)).refused(415, "application/json");
    }
    page("POST", "/v1/sessions/a/messages", &[], Some(said)).refused(415, "application/json");
    // What needs no body can be sent without asking; but the browser says for whom.
    for origin in ["https://evil.example", "null", "http://127.0.0.1.evil.example:7878"] {
        for path in ["summaries/1/undo", "summaries", "slots/short/rebuild"] {
            let path = format!("/v1/sessions/a/{path}");
            page("POST", &path, &[("origin", origin)], None).refused(403, "the header `origin`");
        }
        let json = [("origin", origin), ("content-type", "application/json")];
        page("PUT", "/v1/workspace", &json, Some(b"{}")).refused(403, "the header `origin`");
        page("GET", "/v1/keys", &[("origin", origin)], None).refused(403, "the header `origin`");
    }
    let own = [("origin", "http://localhost:3000"), ("content-type", "application/json")];
    page("POST", "/v1/sessions/a/messages", &own, Some(said)).ok();
    // A name of theirs that leads here is known by being theirs.
    for (path, host) in
        [("/v1/sessions", "evil.example:7878"), ("/metrics", "evil.example"), ("/v1/keys", "0.0.0.0")]
    {
        let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
        server
            .client()
            .raw(head.as_bytes(), false)
            .refused(403, "the header `host` names neither this machine");
    }
    let both = b"GET /v1/sessions HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n";
    assert!([400, 403].contains(&server.client().raw(both, false).status));
    let key = made(&server, &["--rights", "read"]);
    let head = format!("GET /v1/queue HTTP/1.1\r\nhost: evil.example\r\nauthorization: Bearer {key}\r\n\r\n");
    assert_eq!(server.client().raw(head.as_bytes(), false).status, 200, "whoever has a key may call it so");
    let stands = client.get("/v1/sessions/a/summaries").ok();
    assert_eq!(stands["items"].as_array().unwrap().len(), 1, "it was undone");
}
