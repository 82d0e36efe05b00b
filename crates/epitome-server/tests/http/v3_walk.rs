//! Every route of v3, with something right to ask of it, for whoever wants to go through all of them.
//!
//! The walk is held against the router's own text: a route that is added there and not here fails a test.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::server::{Answer, Client, Server, command, db};

/// What a route asks of whoever calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Any key: everybody gets what is theirs.
    Key,
    /// A key of the workspace.
    Read,
    /// One that may write there; one that only reads gets what is there already, where nothing else is sent.
    Make,
    Write,
    Admin,
}

/// One request, as a decent client sends it.
#[derive(Debug, Clone)]
pub struct Step {
    pub needs: Needs,
    pub method: &'static str,
    /// As the router has it.
    pub route: &'static str,
    pub path: String,
    pub body: Option<Value>,
    /// For what is no JSON: its type and its bytes.
    pub form: Option<(&'static str, Vec<u8>)>,
}

impl Step {
    /// The same with something that a query may have.
    pub fn asking(mut self, query: &str) -> Self {
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

    /// For whoever reads of a failure.
    pub fn what(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// What a walk is about.
#[derive(Debug, Clone)]
pub struct About {
    pub workspace: String,
    pub session: String,
    pub peer: String,
    pub message: String,
}

impl About {
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

/// A file in a form.
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

/// Every route in an order that can be gone through: what takes away comes last.
pub fn walk(about: &About) -> Vec<Step> {
    use Needs::{Admin, Key, Make, Read, Write};
    let About { workspace, session, peer, .. } = about;
    let (notes, member) = (json!({"metadata": {"note": 1}}), json!({"observe_me": true}));
    let query = json!({"query": "order", "limit": 10});
    let said = json!({"messages": [{"content": "One more order.", "peer_id": peer}]});
    let members = json!({peer.as_str(): {}});
    let mut all = Vec::new();
    let mut step = |needs, method, route: &'static str, body: Option<Value>| {
        let path = about.fill(route);
        all.push(Step { needs, method, route, path, body, form: None });
    };
    step(Make, "POST", "/v3/workspaces", Some(json!({"id": workspace})));
    step(Key, "POST", "/v3/workspaces/list", None);
    step(Admin, "POST", "/v3/keys", None);
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
        step(needs, method, whole(route), body);
    }
    for route in ABSENT {
        step(Read, "POST", whole(route), Some(json!({"query": "who are they?"})));
    }
    for step in &mut all {
        if step.route.ends_with("/upload") {
            step.form = Some(form(&[("peer_id", peer)], Some(("text/plain", b"A whole order."))));
        }
        if step.route == "/v3/keys" {
            step.path = format!("/v3/keys?workspace_id={workspace}");
        }
    }
    // What is not offered is asked before anything is taken away.
    all.sort_by_key(|step| step.method == "DELETE");
    all
}

/// What is not offered.
const ABSENT: [&str; 11] = [
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

/// A route within a workspace, as it is called from outside.
fn whole(route: &str) -> &'static str {
    format!("{INNER}{}", if route == "/" { "" } else { route }).leak()
}

/// The methods and paths that the router's own text names.
fn served() -> BTreeSet<(String, String)> {
    let text = include_str!("../../../epitome-honcho/src/lib.rs");
    let mut routes = BTreeSet::new();
    for call in text.split(".route(").skip(1).filter(|call| call.trim_start().starts_with('"')) {
        let (path, rest) = call.trim_start()[1..].split_once('"').unwrap();
        // As far as the next statement.
        let methods = rest.split(';').next().unwrap();
        // Whoever looks after the server asks there, and needs no key.
        if path == "/health" {
            continue;
        }
        let full = if path.starts_with("/v3/") { path } else { whole(path) };
        for method in ["get", "post", "put", "delete", "patch"] {
            let called =
                [' ', '.', '\n'].iter().any(|before| methods.contains(&format!("{before}{method}(")));
            if called {
                routes.insert((method.to_uppercase(), full.to_owned()));
            }
        }
    }
    let absent = text.split("const ABSENT: &[&str] = &[").nth(1).unwrap().split("];").next().unwrap();
    let absent = absent.split('"').skip(1).step_by(2);
    routes.extend(absent.map(|path| ("POST".to_owned(), whole(path).to_owned())));
    routes
}

#[test]
fn every_route_of_the_router_is_tested() {
    let walked: BTreeSet<_> = walk(&About::new("w", "s", "p", "m"))
        .iter()
        .map(|step| (step.method.to_owned(), step.route.to_owned()))
        .collect();
    assert_eq!(
        walked,
        served(),
        "tests/http/v3_walk.rs goes through the routes of src/http/v3.rs, and no others"
    );
    assert!(walked.len() > 40, "{}", walked.len());
}

/// All that is kept in a workspace, as whoever may see everything sees it: an export, and what it does not tell.
pub fn kept(server: &Server, client: &mut Client, workspace: &str) -> Vec<String> {
    let export = ["export", "--all", "--db", &db(&server.folder), "--workspace", workspace];
    let export = command(&server.folder).args(export).output().unwrap();
    let mut kept = vec![String::from_utf8(export.stdout).unwrap()];
    let within = format!("/v3/workspaces/{workspace}");
    let list = |client: &mut Client, path: &str| client.post(path, &json!({})).ok();
    let named = json!({"filters": {"id": workspace}});
    kept.push(client.post("/v3/workspaces/list", &named).ok().to_string());
    kept.push(list(client, &format!("{within}/peers/list?size=100")).to_string());
    let sessions = list(client, &format!("{within}/sessions/list?size=100"));
    for session in sessions["items"].as_array().unwrap() {
        let within = format!("{within}/sessions/{}", session["id"].as_str().unwrap());
        kept.push(list(client, &format!("{within}/messages/list?size=100&reverse=true")).to_string());
        for path in ["peers?size=100", "summaries"] {
            kept.push(client.get(&format!("{within}/{path}")).ok().to_string());
        }
    }
    kept.push(sessions.to_string());
    kept
}

/// It was refused, with this status, in the words that their clients read; and what it says.
#[track_caller]
pub fn refused(answer: &Answer, status: u16) -> Value {
    let told = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, status, "{told}");
    assert_eq!(answer.header("content-type"), "application/json", "{told}");
    let told = answer.json();
    let fields: Vec<&String> = told.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["detail"], "{told}");
    assert!(told["detail"].is_string() || told["detail"].is_array(), "{told}");
    assert!(answer.body.len() <= 32 << 10, "{} bytes", answer.body.len());
    told["detail"].clone()
}
