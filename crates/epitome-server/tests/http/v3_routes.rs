//! A valid call of every route of v3, for tests that try all routes.
//!
//! A test compares the calls with the router's source: it fails if a route is added there and not here.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::server::{Answer, Client, Server, command, db};

/// The rights that a route requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Any key: each caller gets its own data.
    Key,
    /// A key of the workspace that may read.
    Read,
    /// A key that may write. A key that may only read gets an existing resource, if the body changes nothing.
    Make,
    Write,
    Admin,
}

/// One valid request.
#[derive(Debug, Clone)]
pub struct Call {
    pub needs: Needs,
    pub method: &'static str,
    /// The path pattern of the router.
    pub route: &'static str,
    pub path: String,
    pub body: Option<Value>,
    /// A body that is not JSON: its type and its bytes.
    pub form: Option<(&'static str, Vec<u8>)>,
}

impl Call {
    /// Returns the call with a query.
    pub fn with_query(mut self, query: &str) -> Self {
        self.path.push_str(query);
        self
    }

    pub fn send(&self, client: &mut Client) -> Answer {
        let body = self.body.as_ref().map(|body| body.to_string().into_bytes());
        let (kind, body) = match &self.form {
            Some((kind, body)) => (*kind, Some(body.clone())),
            None => ("application/json", body),
        };
        let headers: &[(&str, &str)] = if body.is_some() { &[("content-type", kind)] } else { &[] };
        client.send(self.method, &self.path, headers, body.as_deref())
    }

    /// Describes the call in a failure.
    pub fn what(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// The names in the paths of the calls.
#[derive(Debug, Clone)]
pub struct Names {
    pub workspace: String,
    pub session: String,
    pub peer: String,
    pub message: String,
}

impl Names {
    pub fn new(workspace: &str, session: &str, peer: &str, message: &str) -> Self {
        let [workspace, session, peer, message] = [workspace, session, peer, message].map(str::to_owned);
        Self { workspace, session, peer, message }
    }

    fn fill(&self, route: &str) -> String {
        route
            .replace("{workspace}", &self.workspace)
            .replace("{session}", &self.session)
            .replace("{peer}", &self.peer)
            .replace("{message}", &self.message)
            .replace("{*rest}", "list")
    }
}

/// Returns a form with fields and a file.
pub fn form(fields: &[(&str, &str)], file: Option<(&str, &[u8])>) -> (&'static str, Vec<u8>) {
    let mut body = Vec::new();
    for (name, value) in fields {
        let part = format!("--edge\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend_from_slice(part.as_bytes());
    }
    if let Some((kind, bytes)) = file {
        let head = "--edge\r\ncontent-disposition: form-data; name=\"file\"; filename=\"notes.txt\"\r\n";
        body.extend_from_slice(format!("{head}content-type: {kind}\r\n\r\n").as_bytes());
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--edge--\r\n");
    ("multipart/form-data; boundary=edge", body)
}

const INNER: &str = "/v3/workspaces/{workspace}";

/// Returns a call of every route, in an order in which all succeed: deletions come last.
pub fn calls(names: &Names) -> Vec<Call> {
    use Needs::{Admin, Key, Make, Read, Write};
    let Names { workspace, session, peer, .. } = names;
    let (notes, member) = (json!({"metadata": {"note": 1}}), json!({"observe_me": true}));
    let query = json!({"query": "order", "limit": 10});
    let said = json!({"messages": [{"content": "One more order.", "peer_id": peer}]});
    let members = json!({peer.as_str(): {}});
    let mut all = Vec::new();
    let mut call = |needs, method, route: &'static str, body: Option<Value>| {
        let path = names.fill(route);
        all.push(Call { needs, method, route, path, body, form: None });
    };
    call(Make, "POST", "/v3/workspaces", Some(json!({"id": workspace})));
    call(Key, "POST", "/v3/workspaces/list", None);
    call(Admin, "POST", "/v3/keys", None);
    for (needs, method, route, body) in [
        (Make, "POST", "/sessions", Some(json!({"id": session}))),
        (Make, "POST", "/peers", Some(json!({"id": peer}))),
        (Read, "POST", "/search", Some(query.clone())),
        (Read, "GET", "/queue/status", None),
        (Read, "POST", "/peers/list", None),
        (Read, "POST", "/peers/{peer}/sessions", None),
        (Read, "POST", "/peers/{peer}/search", Some(query.clone())),
        (Read, "GET", "/peers/{peer}/context", None),
        (Read, "POST", "/sessions/list", None),
        (Read, "GET", "/sessions/{session}/peers", None),
        (Read, "GET", "/sessions/{session}/peers/{peer}/config", None),
        (Read, "POST", "/sessions/{session}/messages/list", Some(json!({"filters": {"peer_id": peer}}))),
        (Read, "GET", "/sessions/{session}/messages/{message}", None),
        (Read, "GET", "/sessions/{session}/context", None),
        (Read, "GET", "/sessions/{session}/summaries", None),
        (Read, "POST", "/sessions/{session}/search", Some(query)),
        (Write, "PUT", "/", Some(notes.clone())),
        (Write, "PUT", "/peers/{peer}", Some(notes.clone())),
        (Write, "PUT", "/sessions/{session}", Some(notes.clone())),
        (Write, "POST", "/sessions/{session}/peers", Some(members.clone())),
        (Write, "PUT", "/sessions/{session}/peers", Some(members)),
        (Write, "PUT", "/sessions/{session}/peers/{peer}/config", Some(member)),
        (Write, "POST", "/sessions/{session}/messages", Some(said.clone())),
        (Write, "POST", "/sessions/{session}/messages/", Some(said)),
        (Write, "PUT", "/sessions/{session}/messages/{message}", Some(notes)),
        (Write, "POST", "/sessions/{session}/clone", None),
        (Write, "POST", "/sessions/{session}/messages/upload", None),
        (Write, "DELETE", "/sessions/{session}/peers", Some(json!([peer]))),
        (Write, "DELETE", "/sessions/{session}", None),
        (Write, "DELETE", "/", None),
    ] {
        call(needs, method, full_path(route), body);
    }
    for route in NOT_OFFERED {
        call(Read, "POST", full_path(route), Some(json!({"query": "who are they?"})));
    }
    for call in &mut all {
        if call.route.ends_with("/upload") {
            call.form = Some(form(&[("peer_id", peer)], Some(("text/plain", b"A whole order."))));
        }
        if call.route == "/v3/keys" {
            call.path = format!("/v3/keys?workspace_id={workspace}");
        }
    }
    // Routes that are not offered come before deletions.
    all.sort_by_key(|call| call.method == "DELETE");
    all
}

/// Routes that are not offered.
const NOT_OFFERED: [&str; 11] = [
    "/chat",
    "/schedule_dream",
    "/peers/{peer}/chat",
    "/peers/{peer}/representation",
    "/peers/{peer}/card",
    "/conclusions",
    "/conclusions/{*rest}",
    "/scopes",
    "/scopes/{*rest}",
    "/webhooks",
    "/webhooks/{*rest}",
];

/// Returns the full path pattern of a route within a workspace.
fn full_path(route: &str) -> &'static str {
    format!("{INNER}{}", if route == "/" { "" } else { route }).leak()
}

/// Returns the methods and paths in the router's source.
fn served() -> BTreeSet<(String, String)> {
    let text = include_str!("../../../epitome-honcho/src/lib.rs");
    let mut routes = BTreeSet::new();
    for call in text.split(".route(").skip(1).filter(|call| call.trim_start().starts_with('"')) {
        let (path, rest) = call.trim_start()[1..].split_once('"').unwrap();
        // Up to the next statement.
        let methods = rest.split(';').next().unwrap();
        // The health check needs no key.
        if path == "/health" {
            continue;
        }
        let full = if path.starts_with("/v3/") { path } else { full_path(path) };
        for method in ["get", "post", "put", "delete", "patch"] {
            let called =
                [' ', '.', '\n'].iter().any(|before| methods.contains(&format!("{before}{method}(")));
            if called {
                routes.insert((method.to_uppercase(), full.to_owned()));
            }
        }
    }
    let not_offered =
        text.split("const NOT_OFFERED: &[&str] = &[").nth(1).unwrap().split("];").next().unwrap();
    let not_offered = not_offered.split('"').skip(1).step_by(2);
    routes.extend(not_offered.map(|path| ("POST".to_owned(), full_path(path).to_owned())));
    routes
}

#[test]
fn every_route_of_the_router_is_tested() {
    let tested: BTreeSet<_> = calls(&Names::new("w", "s", "p", "m"))
        .iter()
        .map(|call| (call.method.to_owned(), call.route.to_owned()))
        .collect();
    assert_eq!(tested, served(), "tests/http/v3_routes.rs has the routes of epitome-honcho, and no others");
    assert!(tested.len() > 40, "{}", tested.len());
}

/// Returns everything that is stored in a workspace: an export, and what the export does not contain.
pub fn snapshot(server: &Server, client: &mut Client, workspace: &str) -> Vec<String> {
    let export = ["export", "--all", "--db", &db(&server.folder), "--workspace", workspace];
    let export = command(&server.folder).args(export).output().unwrap();
    let mut all = vec![String::from_utf8(export.stdout).unwrap()];
    let within = format!("/v3/workspaces/{workspace}");
    let list = |client: &mut Client, path: &str| client.post(path, &json!({})).ok();
    let named = json!({"filters": {"id": workspace}});
    all.push(client.post("/v3/workspaces/list", &named).ok().to_string());
    all.push(list(client, &format!("{within}/peers/list?size=100")).to_string());
    let sessions = list(client, &format!("{within}/sessions/list?size=100"));
    for session in sessions["items"].as_array().unwrap() {
        let within = format!("{within}/sessions/{}", session["id"].as_str().unwrap());
        all.push(list(client, &format!("{within}/messages/list?size=100&reverse=true")).to_string());
        for path in ["peers?size=100", "summaries"] {
            all.push(client.get(&format!("{within}/{path}")).ok().to_string());
        }
    }
    all.push(sessions.to_string());
    all
}

/// Requires an error with this status in Honcho's format, and returns its detail.
#[track_caller]
pub fn refused(answer: &Answer, status: u16) -> Value {
    let text = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, status, "{text}");
    assert_eq!(answer.header("content-type"), "application/json", "{text}");
    let error = answer.json();
    let fields: Vec<&String> = error.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["detail"], "{error}");
    assert!(error["detail"].is_string() || error["detail"].is_array(), "{error}");
    assert!(answer.body.len() <= 32 << 10, "{} bytes", answer.body.len());
    error["detail"].clone()
}
