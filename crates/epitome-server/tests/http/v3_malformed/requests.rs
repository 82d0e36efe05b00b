//! Generates malformed requests: valid ones with a wrong value at every position, and some that are no requests at all.

use std::io::Write;

use serde_json::{Value, json};

use crate::server::{Answer, Client, Server};
use crate::v3_routes::Call;

/// A malformed request.
pub struct Malformed {
    pub method: String,
    path: String,
    headers: Vec<(&'static str, &'static str)>,
    body: Option<Vec<u8>>,
}

impl Malformed {
    fn new(call: &Call) -> Self {
        let Call { method, path, .. } = call;
        let json = vec![("content-type", "application/json")];
        Self { method: (*method).to_owned(), path: path.clone(), headers: json, body: None }
    }

    /// Sends the request on a shared connection. A large body gets its own connection, because a server that refuses it
    /// unread closes the connection.
    pub fn send(&self, server: &Server, client: &mut Client) -> Answer {
        let large = self.body.as_ref().is_some_and(|body| body.len() > 4_000);
        let mut own = server.client();
        let client = if large { &mut own } else { client };
        client.send(&self.method, &self.path, &self.headers, self.body.as_deref())
    }

    /// Returns the request with the message id of another server.
    pub fn renamed(&self, own: &str, other: &str) -> Self {
        let Self { method, path, headers, body } = self;
        Self {
            method: method.clone(),
            path: path.replace(own, other),
            headers: headers.clone(),
            body: body.clone(),
        }
    }

    /// Describes the request in a failure, shortened.
    pub fn what(&self) -> String {
        let body = self.body.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        let text = format!("{} {} {:?} {body}", self.method, self.path, self.headers);
        text.chars().take(1_000).collect()
    }
}

/// Numbers from a seed (splitmix64).
pub struct Rng(pub u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// Returns malformed variants of a valid call.
pub fn malformed(call: &Call, rng: &mut Rng) -> Vec<Malformed> {
    let mut all = paths(call);
    all.extend(queries(call));
    all.extend(methods(call));
    all.extend(bodies(call, rng));
    all
}

/// Returns values as JSON text: of every type, too large, too deep, empty, and texts that are no JSON.
fn values() -> Vec<String> {
    let mut all: Vec<String> = [
        "null",
        "true",
        "0",
        "-1",
        "-0",
        "1.5",
        "1e3",
        "1e400",
        "18446744073709551616",
        "123456789012345678901234567890.5",
        "NaN",
        "[]",
        "{}",
        "[null]",
        "[[],[{}]]",
        r#"{"":{"":""}}"#,
        r#"{"a":1,"a":2}"#,
        r#""""#,
        r#""x""#,
        r#""*""#,
        r#""yes""#,
        r#""\ud800""#,
        r#""\udc00\ud800""#,
        r#""a\u0000b""#,
        r#""a\nb\u202e\u007f""#,
        r#""a/b c""#,
        r#""é😀""#,
        r#""<|endoftext|>""#,
        r#""2026-03-14T10:22:05Z""#,
        r#""0000-00-00T99:99:99Z""#,
        r#"{"gte":[]}"#,
        r#"{"near":1}"#,
        r#"{"in":[1,"x",null]}"#,
        r#"{"OR":[{"peer_id":"ann"},7]}"#,
        r#"{"enabled":"maybe"}"#,
    ]
    .map(str::to_owned)
    .into();
    let quoted = |text: String| format!("\"{text}\"");
    all.extend([600, 30_000].map(|size| quoted("x".repeat(size))));
    all.push(quoted("😀".repeat(600)));
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("{\"NOT\":[", "]}")] {
        all.extend([7, 60, 500].map(|deep| format!("{}1{}", open.repeat(deep), close.repeat(deep))));
    }
    let keys: Vec<String> = (0..150).map(|n| format!("\"k{n}\":{n}")).collect();
    all.push(format!("{{{}}}", keys.join(",")));
    all.push(format!("[{}]", vec!["{}"; 150].join(",")));
    all
}

/// Returns a valid body with a value at every field of the route.
fn full(call: &Call) -> Option<Value> {
    let route = call.route;
    let notes = json!({"n": 1, "in": {"deep": ["x", {"y": null}]}});
    let configuration = json!({
        "summary": {"enabled": true, "messages_per_short_summary": 15, "messages_per_long_summary": 40},
        "reasoning": {"enabled": false}, "other": [1],
    });
    let filters = json!({"AND": [{"peer_id": {"in": ["ann"]}}, {"metadata": {"n": {"gte": 1}}}], "created_at": {"lt": "2999-01-01"}});
    let body = match (call.method, route.rsplit('/').next().unwrap_or_default()) {
        (_, "workspaces" | "{workspace}" | "{peer}" | "{session}") if call.body.is_some() => {
            json!({"id": "w", "metadata": notes, "configuration": configuration})
        }
        ("POST", "peers") if !route.contains("{session}") => {
            json!({"id": "ann", "metadata": notes, "configuration": {"observe_me": true}})
        }
        ("POST", "sessions") if !route.contains("{peer}") => {
            json!({"id": "s", "metadata": notes, "configuration": configuration, "peers": {"ann": {"observe_me": true}}})
        }
        ("POST" | "PUT", "peers") => json!({"ann": {"observe_me": true, "observe_others": null}}),
        ("DELETE", "peers") => json!(["nobody", "no-one"]),
        (_, "config") => json!({"observe_me": true, "observe_others": false}),
        (_, "messages" | "") => json!({"messages": [
            {"content": "Hello.", "peer_id": "bob", "metadata": notes, "created_at": "2026-03-14T10:22:05Z"},
            {"content": "", "peer_id": "bob", "configuration": {"reasoning": {"enabled": true}}},
        ]}),
        ("PUT", "{message}") => json!({"metadata": notes}),
        (_, "list" | "sessions") => json!({"filters": filters}),
        (_, "search") => json!({"query": "order", "filters": filters, "limit": 5}),
        _ => return call.body.clone(),
    };
    Some(body)
}

/// The path to a position in a value.
fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| places(value, &format!("{at}/{name}"), all));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(nr, value)| places(value, &format!("{at}/{nr}"), all));
        }
        _ => {}
    }
}

/// Placeholder for a text that no JSON value can represent.
const HERE: &str = "@here@";

fn bodies(call: &Call, rng: &mut Rng) -> Vec<Malformed> {
    let with_body = |body: Vec<u8>| Malformed { body: Some(body), ..Malformed::new(call) };
    let mut all: Vec<Malformed> = values().into_iter().map(|value| with_body(value.into_bytes())).collect();
    for bytes in [
        b"".as_slice(),
        b" ",
        b"{",
        b"{\"",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"\0\0\0",
        b"{} {}",
        b"id=w",
        b"<a/>",
    ] {
        all.push(with_body(bytes.to_vec()));
    }
    let Some(full) = full(call) else { return all };
    let text = full.to_string();
    all.extend([1, 2, 3].map(|part| with_body(text.as_bytes()[..text.len() * part / 4].to_vec())));
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "json"]
    {
        all.push(Malformed { headers: vec![("content-type", kind)], ..with_body(text.clone().into_bytes()) });
    }
    all.push(Malformed { headers: Vec::new(), ..with_body(text.clone().into_bytes()) });
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    for (coding, body) in
        [("gzip", &packed[..]), ("gzip", &packed[..9]), ("gzip", text.as_bytes()), ("br", &packed[..])]
    {
        let headers = vec![("content-type", "application/json"), ("content-encoding", coding)];
        all.push(Malformed { headers, ..with_body(body.to_vec()) });
    }
    // Every position with some of the values, and without its field.
    let (values, mut found) = (values(), Vec::new());
    places(&full, "", &mut found);
    for place in found.iter().skip(1) {
        for _ in 0..14 {
            let mut body = full.clone();
            *body.pointer_mut(place).unwrap() = HERE.into();
            let value = rng.pick(&values);
            all.push(with_body(body.to_string().replace(&format!("\"{HERE}\""), value).into_bytes()));
        }
        let (parent, name) = place.rsplit_once('/').unwrap();
        let mut body = full.clone();
        if let Some(Value::Object(fields)) = body.pointer_mut(parent) {
            let value = fields.remove(name).unwrap_or_default();
            all.push(with_body(json!(fields).to_string().into_bytes()));
            let fields = body.pointer_mut(parent).and_then(Value::as_object_mut).unwrap();
            fields.insert(["", "\u{0}", "a b", "é", "__proto__"][rng.below(5)].to_owned(), value);
            all.push(with_body(body.to_string().into_bytes()));
        }
    }
    all
}

/// Returns names as path segments.
fn names() -> Vec<String> {
    let mut all: Vec<String> = [
        "%2F",
        "a%2Fb",
        "%0A",
        "a%0Ab",
        "%00",
        "%ff",
        "%c3%28",
        "..",
        ".",
        "%2e%2e",
        "%2e%2e%2fw",
        "a%20b",
        "%F0%9F%98%80",
        "%",
        "%zz",
        "*",
        "a;b",
        "a:b",
        "a@b",
        "~",
        "list",
        "upload",
        "{session}",
        "-",
        "%E2%80%AE",
    ]
    .map(str::to_owned)
    .into();
    all.extend([513, 3_000, 40_000].map(|size| "x".repeat(size)));
    all.push("%C3%A9".repeat(300));
    all
}

fn paths(call: &Call) -> Vec<Malformed> {
    let mut all = Vec::new();
    let (path, query) =
        call.path.split_once('?').map_or((call.path.as_str(), ""), |(path, query)| (path, query));
    let parts: Vec<&str> = path.split('/').collect();
    for (nr, part) in call.route.split('/').enumerate().filter(|(_, part)| part.starts_with('{')) {
        for name in names() {
            let mut parts = parts.clone();
            parts[nr] = &name;
            // Skips requests that would delete what later requests need.
            if call.method == "DELETE" && part == "{workspace}" {
                continue;
            }
            let body = call.body.as_ref().map(|body| body.to_string().into_bytes());
            all.push(Malformed {
                path: format!("{}?{query}", parts.join("/")),
                body,
                ..Malformed::new(call)
            });
        }
    }
    for path in [
        format!("{path}/"),
        format!("{path}//"),
        format!("{path}/more"),
        format!("/{path}"),
        path.to_uppercase(),
    ] {
        all.push(Malformed { path, ..Malformed::new(call) });
    }
    // Other paths do not belong to v3.
    all.retain(|request| request.path.starts_with("/v3/"));
    all
}

fn queries(call: &Call) -> Vec<Malformed> {
    let numbers = [
        "",
        "0",
        "-1",
        "1",
        "101",
        "1.5",
        "1e3",
        "99999999999999999999",
        "-9223372036854775809",
        "x",
        "%00",
        "%ff",
        "+5",
        "NaN",
    ];
    let flags = ["", "maybe", "2", "TRUE", "off"];
    let texts = ["", "x", "%00", "%ff", "a%0Ab", "%F0%9F%98%80", "AAAAAAAAAAAAAAAAAAAAA"];
    let mut queries: Vec<String> = Vec::new();
    for (names, values) in [
        (
            ["page", "size", "tokens", "search_top_k", "search_max_distance", "max_conclusions"].as_slice(),
            numbers.as_slice(),
        ),
        (&["reverse", "summary", "limit_to_session", "include_most_frequent"], &flags),
        (
            &[
                "peer_target",
                "peer_perspective",
                "scope",
                "sessions",
                "target",
                "message_id",
                "session_id",
                "observer_id",
                "workspace_id",
                "expires_at",
            ],
            &texts,
        ),
    ] {
        for name in names {
            queries.extend(values.iter().map(|value| format!("{name}={value}")));
        }
    }
    queries.extend(
        ["", "&&&", "==&=", "%", "page", "page=1&page=0", "page=9223372036854775807&size=100"]
            .map(str::to_owned),
    );
    queries.push("peer_target=a&sessions=a&sessions=b&scope=c&limit_to_session=true".to_owned());
    queries.push(vec!["page=1"; 3_000].join("&"));
    queries.push(format!(
        "message_id={0}&session_id={0}&peer_target={0}&target={0}&expires_at={0}",
        "x".repeat(8_000)
    ));
    // Deletions come last, and do not depend on parameters.
    let body = call.body.as_ref().map(|body| body.to_string().into_bytes());
    let (path, _) = call.path.split_once('?').unwrap_or((&call.path, ""));
    let of = |query: String| Malformed {
        path: format!("{path}?{query}"),
        body: body.clone(),
        ..Malformed::new(call)
    };
    let wanted = matches!(
        call.needs,
        crate::v3_routes::Needs::Key | crate::v3_routes::Needs::Read | crate::v3_routes::Needs::Admin
    );
    let all =
        if wanted || call.route.ends_with("clone") { queries } else { queries.split_off(queries.len() - 6) };
    all.into_iter().map(of).collect()
}

fn methods(call: &Call) -> Vec<Malformed> {
    let with_method = |method: &str| Malformed { method: method.to_owned(), ..Malformed::new(call) };
    ["HEAD", "OPTIONS", "PATCH", "TRACE", "BREW", "get"].map(with_method).into()
}
