//! Nothing of one workspace shows in another: not what it holds, not that it is there.
//!
//! The same requests go to two servers, one where another tenant has been at work and one where nobody has. What is
//! answered must be the same, byte for byte, but for moments and the ids of requests.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::server::{Answer, Server, command, db};

mod cases;
mod streams;

use cases::{Case, Needs, cases};

/// In everything of the first tenant's that the second never says itself.
const MARKER: &str = "periwinkle";

/// A server that wants keys, and keys to it.
struct Tenants {
    server: Server,
    admin: String,
    alpha: String,
    beta: String,
    beta_reads: String,
}

impl Tenants {
    fn new() -> Self {
        let server = Server::with(&["--require-keys", "always"], &[]);
        let admin = made(&server, &["--admin"]);
        let key =
            |workspace: &str, rights: &str| made(&server, &["--workspace", workspace, "--rights", rights]);
        let (alpha, beta, beta_reads) = (key("alpha", "write"), key("beta", "write"), key("beta", "read"));
        let tenants = Self { server, admin, alpha, beta, beta_reads };
        tenants.talk(&tenants.beta, "both", 2, "order");
        tenants.talk(&tenants.beta, "own", 8, "order");
        tenants.summarize(&tenants.beta, "own");
        tenants
    }

    /// The same, where another tenant is at work before and after.
    fn beside_another() -> Self {
        let tenants = Self::new();
        let alpha = &tenants.alpha;
        let slots = json!([
            {"name": "short", "trigger": "messages(4)", "max_tokens": 200},
            {"name": "night", "trigger": "messages(6)", "max_tokens": 200, "instructions": MARKER},
        ]);
        let settings = json!({"settings": {"slot": slots, "context": {"max_tokens": 77_777}}});
        tenants.server.client().key(alpha).json("PUT", "/v1/workspace", &settings).ok();
        let text = format!("{MARKER} order submarine");
        tenants.talk(alpha, "plans", 12, &text);
        tenants.talk(alpha, "both", 12, &text);
        tenants.talk(alpha, MARKER, 1, &text);
        tenants.summarize(alpha, "plans");
        tenants.summarize(alpha, "both");
        let mut client = tenants.server.client().key(alpha);
        client.post("/v1/sessions/plans/fork", &json!({"name": "plans-fork"})).ok();
        let first = json!({"role": "user", "content": text, "metadata": {MARKER: 1}});
        let keyed = [("idempotency-key", "first"), ("content-type", "application/json")];
        let first = first.to_string();
        client.send("POST", "/v1/sessions/plans/messages", &keyed, Some(first.as_bytes())).ok();
        tenants
    }

    fn talk(&self, key: &str, session: &str, messages: usize, words: &str) {
        let said = |n| json!({"role": "user", "content": format!("Message {n}: {words} {n}0071.")});
        let messages: Vec<Value> = (1..=messages).map(said).collect();
        self.server
            .client()
            .key(key)
            .post(&format!("/v1/sessions/{session}/messages"), &json!(messages))
            .ok();
    }

    fn summarize(&self, key: &str, session: &str) {
        let path = format!("/v1/sessions/{session}/summaries?wait=true");
        self.server.client().key(key).post(&path, &json!({})).ok();
    }

    /// Asks for it with this key, or none.
    fn ask(&self, case: &Case, key: Option<&str>) -> Answer {
        let client = self.server.client();
        let mut client = match key {
            Some(key) => client.key(key),
            None => client,
        };
        let body = case.body.as_ref().map(Value::to_string);
        let mut headers = case.headers.clone();
        if body.is_some() {
            headers.push(("content-type", "application/json"));
        }
        client.send(case.method, &case.path, &headers, body.as_deref().map(str::as_bytes))
    }

    /// The same, of something that would go on for ever only whether it would be answered.
    fn ask_shortly(&self, case: &Case, key: Option<&str>) -> Answer {
        let method = if case.is_stream() { "HEAD" } else { case.method };
        let headers = case.headers.clone();
        let body = case.body.clone();
        self.ask(&Case { method, headers, body, path: case.path.clone(), ..*case }, key)
    }
}

/// A key made beside the server, as whoever runs it makes one.
fn made(server: &Server, args: &[&str]) -> String {
    let output = command(&server.folder)
        .args(["keys", "create", "--db", &db(&server.folder)])
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Where a word that must not be there stands in an answer.
fn leak(answer: &Answer, word: &str) -> Option<String> {
    let body = String::from_utf8_lossy(&answer.body);
    let headers = answer.headers.iter().map(|(name, value)| format!("{name}: {value}"));
    headers.chain([body.into_owned()]).find(|text| text.contains(word))
}

/// What was answered, but for moments and ids of requests.
fn lasting(answer: &Answer) -> String {
    let told = ["content-type", "www-authenticate", "location", "allow", "retry-after"];
    let headers: Vec<&str> = told.iter().map(|name| answer.header(name)).collect();
    let body = match serde_json::from_slice::<Value>(&answer.body) {
        Ok(mut value) => {
            still(&mut value);
            value.to_string()
        }
        Err(_) => String::from_utf8_lossy(&answer.body).into_owned(),
    };
    format!("{} {headers:?} {body}", answer.status)
}

fn still(value: &mut Value) {
    const MOVING: [&str; 9] =
        ["created", "created_at", "updated", "updated_at", "at", "age", "millis", "request_id", "latency"];
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if MOVING.contains(&name.as_str()) { *value = Value::Null } else { still(value) }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(still),
        _ => {}
    }
}

#[test]
fn every_route_has_a_case() {
    let described = Server::start().client().get("/openapi.json").ok();
    let mut routes = BTreeSet::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            routes.insert((method.to_uppercase(), path.clone()));
        }
    }
    let cased: BTreeSet<_> =
        cases().iter().map(|case| (case.method.to_owned(), case.route.to_owned())).collect();
    assert_eq!(cased, routes, "tests/http/tenants/cases.rs asks every route that is described, and no other");
    for case in cases() {
        let (path, _) = case.path.split_once('?').unwrap_or((&case.path, ""));
        let parts = |text: &str| text.split('/').count();
        assert_eq!(parts(path), parts(case.route), "{}", case.path);
    }
}

#[test]
fn no_route_works_without_a_valid_key() {
    let tenants = Tenants::new();
    let mut admin = tenants.server.client().key(&tenants.admin);
    let revoked = made(&tenants.server, &["--workspace", "beta", "--rights", "write"]);
    admin.send("DELETE", &format!("/v1/keys/{}", &revoked[4..20]), &[], None).ok();
    let expired = made(&tenants.server, &["--workspace", "beta", "--rights", "write", "--expires", "3s"]);
    while tenants.server.client().key(&expired).get("/v1/queue").status == 200 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let mut unknown = tenants.beta.clone();
    let last = if unknown.ends_with('0') { "1" } else { "0" };
    unknown.replace_range(unknown.len() - 1.., last);
    for case in cases() {
        let (what, none) = (format!("{} {}", case.method, case.path), tenants.ask(&case, None));
        if case.needs == Needs::Nothing {
            assert_eq!(none.status, 200, "{what}");
            continue;
        }
        none.refused(401, "a key is required");
        let bad = [&unknown, &revoked, &expired].map(|key| tenants.ask(&case, Some(key)));
        for answer in &bad {
            answer.refused(401, "the key is unknown, revoked or expired");
            assert_eq!(lasting(answer), lasting(&bad[0]), "{what}");
        }
        for odd in ["epk_", "x", "epk_0123456789abcdef_", &tenants.beta.to_uppercase()] {
            assert_eq!(lasting(&tenants.ask(&case, Some(odd))), lasting(&bad[0]), "{what}");
        }
    }
}

#[test]
fn a_key_allows_exactly_its_rights() {
    let tenants = Tenants::new();
    for case in cases() {
        let what = format!("{} {}", case.method, case.path);
        if case.headers.iter().any(|(name, _)| *name == "x-epitome-workspace") {
            continue;
        }
        let read = tenants.ask_shortly(&case, Some(&tenants.beta_reads));
        match case.needs {
            Needs::Nothing | Needs::Read => assert!(![401, 403].contains(&read.status), "{what}"),
            Needs::Write => drop(read.refused(403, "this key may only read")),
            Needs::Admin => drop(read.refused(403, "an admin key is required here")),
        }
        if case.needs == Needs::Admin {
            tenants.ask(&case, Some(&tenants.beta)).refused(403, "an admin key is required here");
        }
    }
    assert_eq!(
        tenants.server.client().key(&tenants.beta).get("/v1/sessions").ok()["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    for case in cases() {
        let answer = tenants.ask_shortly(&case, Some(&tenants.admin));
        assert!(![401, 403].contains(&answer.status), "{} {}", case.method, case.path);
    }
}

#[test]
fn other_tenants_data_never_changes_an_answer() {
    let (alone, beside) = (Tenants::new(), Tenants::beside_another());
    let mut alpha = beside.server.client().key(&beside.alpha);
    let own = |client: &mut crate::server::Client| {
        [
            "sessions",
            "sessions/plans/messages",
            "sessions/both/summaries?history=true",
            "workspace",
            "sessions/plans",
        ]
        .map(|path| client.get(&format!("/v1/{path}")).ok())
    };
    let before = own(&mut alpha);
    assert!(before.iter().any(|answer| answer.to_string().contains(MARKER)));
    for case in cases() {
        let (one, other) =
            (alone.ask_shortly(&case, Some(&alone.beta)), beside.ask_shortly(&case, Some(&beside.beta)));
        let what = format!("{} {} {:?}", case.method, case.path, case.headers);
        assert_eq!(lasting(&other), lasting(&one), "{what}");
        assert_eq!(leak(&other, MARKER), None, "{what}");
        assert_eq!(leak(&other, "submarine").filter(|_| !case.path.contains("submarine")), None, "{what}");
    }
    assert_eq!(own(&mut alpha), before, "what is another's was changed");
}

#[test]
fn the_tenant_check_detects_a_planted_leak() {
    let tenants = Tenants::beside_another();
    let context = tenants.server.client().key(&tenants.alpha).get("/v1/sessions/plans/context");
    assert!(leak(&context, MARKER).is_some());
    let in_a_header = Answer {
        status: 200,
        headers: [("x-epitome-report".to_owned(), format!("about {MARKER}"))].into(),
        body: Vec::new(),
    };
    assert!(leak(&in_a_header, MARKER).is_some());
    let (one, other) = (json!({"id": 1, "created": 5}), json!({"id": 2, "created": 5}));
    let told = |value: &Value| {
        lasting(&Answer { status: 200, headers: Default::default(), body: value.to_string().into_bytes() })
    };
    assert_ne!(told(&one), told(&other));
    assert_eq!(told(&one), told(&json!({"id": 1, "created": 6})));
}

#[test]
fn etags_and_cursors_of_another_tenant_reveal_nothing() {
    let tenants = Tenants::beside_another();
    let mut alpha = tenants.server.client().key(&tenants.alpha);
    let mut beta = tenants.server.client().key(&tenants.beta);
    let mark = alpha.get("/v1/sessions/plans/context").header("etag").to_owned();
    assert!(!mark.is_empty());
    let known = [("if-none-match", mark.as_str())];
    beta.send("GET", "/v1/sessions/plans/context", &known, None).refused(404, "session `plans` not found");
    assert_eq!(beta.send("GET", "/v1/sessions/both/context", &known, None).status, 200);
    let cursor = alpha.get("/v1/search?q=submarine&limit=1").ok()["next"].as_str().unwrap().to_owned();
    let (seq, session) = cursor.split_once('.').unwrap();
    let there = lasting(&beta.get(&format!("/v1/search?q=order&after={seq}.{session}")));
    let nowhere = lasting(&beta.get(&format!("/v1/search?q=order&after={seq}.nowhere")));
    assert_eq!(there.replace(session, "*"), nowhere.replace("nowhere", "*"));
}

#[test]
fn another_workspace_is_refused_whether_it_exists_or_not() {
    let tenants = Tenants::beside_another();
    let named = |key: &str, workspace: &str| {
        tenants.server.client().key(key).with("x-epitome-workspace", workspace).get("/v1/sessions")
    };
    named(&tenants.beta, "alpha").refused(403, "this key is for another workspace");
    assert_eq!(lasting(&named(&tenants.beta, "alpha")), lasting(&named(&tenants.beta, "nowhere")));
    assert_eq!(lasting(&named(&tenants.beta, "alpha")), lasting(&named(&tenants.beta, "Beta")));
    named(&tenants.beta, "beta").ok();
    named(&tenants.beta, "").refused(400, "x-epitome-workspace: expected one name");
    named("epk_0", "").refused(401, "the key is unknown");
    let names = |answer: Answer| answer.ok()["items"].as_array().unwrap().len();
    assert_eq!((names(named(&tenants.admin, "alpha")), names(named(&tenants.admin, "beta"))), (4, 2));
    let default = tenants.server.client().key(&tenants.admin).get("/v1/sessions");
    assert_eq!(names(default), 0, "whoever names none is in `default`");
}

#[test]
fn metrics_name_no_workspace_and_no_session() {
    let tenants = Tenants::beside_another();
    let figures = tenants.server.client().key(&tenants.admin).get("/metrics");
    assert_eq!(figures.status, 200);
    for word in [MARKER, "alpha", "beta", "plans", "night"] {
        assert_eq!(leak(&figures, word), None);
    }
}

#[test]
fn model_addresses_are_for_the_operator_only() {
    let env = [
        ("EPITOME_MODELS_BIG_PROVIDER", "openai"),
        ("EPITOME_MODELS_BIG_MODEL", "big-1"),
        ("EPITOME_MODELS_BIG_BASE_URL", "http://inner.example/v1"),
        ("EPITOME_MODELS_BIG_KEY_ENV", "INNER_KEY"),
    ];
    let server = Server::with(&[], &env);
    let mut client = server.client();
    client.post("/v1/sessions/ann/messages", &json!({"role": "user", "content": "Hello."})).ok();
    let set = json!({"settings": {"limits": {"batch": 5}}});
    let answers = [
        client.get("/v1/workspace"),
        client.get("/v1/sessions/ann"),
        client.json("PUT", "/v1/workspace", &set),
        client.json("PUT", "/v1/sessions/ann", &set),
    ];
    for answer in answers {
        assert_eq!(answer.ok()["settings"]["models"]["big"]["model"], "big-1");
        assert_eq!((leak(&answer, "inner.example"), leak(&answer, "INNER_KEY")), (None, None));
    }
}
