//! Every route, with something to ask of it. What is named here exists in the workspace `alpha` and not in `beta`,
//! unless it is called `both` or `own`.

use serde_json::{Value, json};

/// What a route asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Read,
    Write,
    Admin,
}

pub(crate) struct Case {
    pub(crate) method: &'static str,
    /// As `/openapi.json` has it.
    pub(crate) route: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) body: Option<Value>,
    pub(crate) needs: Needs,
}

impl Case {
    /// Whether what it answers goes on for ever, where it is answered at all.
    pub(crate) fn is_stream(&self) -> bool {
        self.route == "/v1/events"
    }
}

fn case(needs: Needs, method: &'static str, route: &'static str, path: &str) -> Case {
    Case { method, route, path: path.to_owned(), headers: Vec::new(), body: None, needs }
}

fn reads(route: &'static str, paths: &[&str]) -> Vec<Case> {
    paths.iter().map(|path| case(Needs::Read, "GET", route, path)).collect()
}

fn writes(method: &'static str, route: &'static str, body: Option<&Value>, paths: &[&str]) -> Vec<Case> {
    let write = |path: &&str| Case { body: body.cloned(), ..case(Needs::Write, method, route, path) };
    paths.iter().map(write).collect()
}

/// In an order that can be gone through: what makes things comes last.
pub(crate) fn cases() -> Vec<Case> {
    let session = "/v1/sessions/{session}";
    let messages = "/v1/sessions/{session}/messages";
    let summaries = "/v1/sessions/{session}/summaries";
    let beneath = "/v1/sessions/{session}/summaries/{summary}/messages";
    let within = "/v1/sessions/{session}/search";
    let said = json!({"role": "user", "content": "One more thing."});
    let mut all = vec![
        case(Needs::Nothing, "GET", "/healthz", "/healthz"),
        case(Needs::Nothing, "GET", "/readyz", "/readyz"),
        case(Needs::Admin, "GET", "/metrics", "/metrics"),
        case(Needs::Admin, "GET", "/v1/keys", "/v1/keys"),
        case(Needs::Admin, "GET", "/v1/keys", "/v1/keys?workspace=alpha"),
        case(Needs::Admin, "DELETE", "/v1/keys/{key}", "/v1/keys/0123456789abcdef"),
        Case {
            body: Some(json!({"workspace": "alpha", "rights": "read"})),
            ..case(Needs::Admin, "POST", "/v1/keys", "/v1/keys")
        },
    ];
    all.extend(reads("/v1/sessions", &["/v1/sessions", "/v1/sessions?limit=1", "/v1/sessions?after=oz"]));
    all.extend(reads(session, &["/v1/sessions/plans", "/v1/sessions/both", "/v1/sessions/own"]));
    all.extend(reads(
        messages,
        &[
            "/v1/sessions/plans/messages",
            "/v1/sessions/both/messages?after=1",
            "/v1/sessions/own/messages?reverse",
        ],
    ));
    all.extend(reads(
        "/v1/sessions/{session}/context",
        &[
            "/v1/sessions/plans/context",
            "/v1/sessions/both/context?format=openai",
            "/v1/sessions/own/context",
        ],
    ));
    all.extend(reads(
        summaries,
        &[
            "/v1/sessions/plans/summaries",
            "/v1/sessions/plans/summaries?history=true",
            "/v1/sessions/both/summaries?history=true",
            "/v1/sessions/own/summaries?history=true",
        ],
    ));
    all.extend(reads(
        beneath,
        &["/v1/sessions/plans/summaries/1/messages", "/v1/sessions/both/summaries/1/messages"],
    ));
    all.extend(reads(
        within,
        &[
            "/v1/sessions/plans/search?q=submarine",
            "/v1/sessions/both/search?q=submarine",
            "/v1/sessions/own/search?q=order&after=2.plans",
            "/v1/sessions/own/search?q=order&after=2.both",
            "/v1/sessions/both/search?q=order&summary=1",
        ],
    ));
    all.extend(reads(
        "/v1/search",
        &[
            "/v1/search?q=submarine",
            "/v1/search?q=order&limit=2",
            "/v1/search?q=order&after=2.plans",
            "/v1/search?q=order&after=2.own",
        ],
    ));
    all.extend(reads("/v1/workspace", &["/v1/workspace"]));
    all.extend(reads("/v1/queue", &["/v1/queue"]));
    all.extend(reads("/v1/usage", &["/v1/usage", "/v1/usage?session=plans", "/v1/usage?session=both"]));
    all.extend(reads("/v1/events", &["/v1/events", "/v1/events?session=plans&after=3"]));
    for told in [[("x-epitome-workspace", "alpha")], [("x-epitome-workspace", "nowhere")]] {
        all.push(Case { headers: told.to_vec(), ..case(Needs::Read, "GET", session, "/v1/sessions/plans") });
    }
    all.extend(writes(
        "PATCH",
        "/v1/sessions/{session}/messages/{seq}",
        Some(&json!({"pinned": true})),
        &["/v1/sessions/plans/messages/1", "/v1/sessions/both/messages/7"],
    ));
    all.extend(writes(
        "POST",
        summaries,
        Some(&json!({})),
        &["/v1/sessions/plans/summaries", "/v1/sessions/plans/summaries?wait=true"],
    ));
    all.extend(writes(
        "POST",
        summaries,
        Some(&json!({"slot": "night"})),
        &["/v1/sessions/own/summaries", "/v1/sessions/both/summaries"],
    ));
    all.extend(writes(
        "POST",
        "/v1/condense",
        Some(&json!([{"role": "user", "content": "Where is the ferry?"}])),
        &["/v1/condense", "/v1/condense?force&explain"],
    ));
    all.extend(writes(
        "POST",
        "/v1/sessions/{session}/summaries/{summary}/undo",
        None,
        &["/v1/sessions/plans/summaries/1/undo", "/v1/sessions/both/summaries/1/undo"],
    ));
    all.extend(writes(
        "POST",
        "/v1/sessions/{session}/slots/{slot}/rebuild",
        None,
        &["/v1/sessions/plans/slots/short/rebuild", "/v1/sessions/both/slots/night/rebuild"],
    ));
    all.extend(writes("DELETE", session, None, &["/v1/sessions/plans", "/v1/sessions/plans-fork"]));
    all.extend(writes(
        "PUT",
        "/v1/workspace",
        Some(&json!({"settings": {"limits": {"batch": 50}}})),
        &["/v1/workspace"],
    ));
    let fork = "/v1/sessions/{session}/fork";
    all.extend(writes("POST", fork, Some(&json!({"name": "x"})), &["/v1/sessions/plans/fork"]));
    all.extend(writes("POST", fork, Some(&json!({"name": "plans-fork"})), &["/v1/sessions/both/fork"]));
    all.extend(writes("PUT", session, Some(&json!({"metadata": {"a": 1}})), &["/v1/sessions/plans"]));
    for mut adding in writes("POST", messages, Some(&said), &["/v1/sessions/plans/messages"]) {
        adding.headers.push(("idempotency-key", "first"));
        all.push(adding);
    }
    all.extend(reads("/v1/sessions", &["/v1/sessions"]));
    all
}
