//! Builds the API description that the server returns at `/openapi.json`.
//!
//! Each handler describes its own route. This module adds the parts that many routes share:
//!
//! - `common.json`: keys, the workspace, request ids and `etag`s
//! - `refusals.json`: error responses
//! - `links.json`: links to operations that can follow an operation
//!
//! `shapes.json` describes data that Rust types cannot describe, such as messages in four formats. The schemas of
//! settings come from the settings' structs. The macro `shapes!` defines type names for these schemas.

use axum::http::StatusCode;
use epitome_http::auth::Keys;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::settings::patch_schema;

const SHAPES: &str = include_str!("openapi/shapes.json");
const COMMON: &str = include_str!("openapi/common.json");
const LINKS: &str = include_str!("openapi/links.json");

/// Returns the complete description. `keys` says whether the server requires keys.
pub(super) fn document(routes: &utoipa::openapi::OpenApi, keys: Keys) -> Value {
    let (mut document, refusals) = (serde_json::to_value(routes).unwrap_or_default(), refusals());
    merge(&mut document, serde_json::from_str(COMMON).unwrap_or_default());
    merge(&mut document, json!({"components": refusal_components(&refusals)}));
    let schemas = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut);
    if let (Some(schemas), Ok(Value::Object(shapes))) = (schemas, serde_json::from_str(SHAPES)) {
        let settings = patch_schema();
        // The spend cap belongs to the workspace, so a session cannot set it.
        let mut own = settings.clone();
        merge(&mut own, json!({"properties": {"summarize": {"properties": {"spend_cap_per_day": null}}}}));
        schemas.insert("SessionSettings".to_owned(), own);
        schemas.insert("Settings".to_owned(), settings);
        schemas.extend(shapes);
    }
    let paths = document.get_mut("paths").and_then(Value::as_object_mut);
    for (path, methods) in paths.into_iter().flatten() {
        for (method, route) in methods.as_object_mut().into_iter().flatten() {
            complete(path, method, route, &refusals);
        }
    }
    // If keys are optional, a request may have no key. A key that is sent is checked in both cases.
    let optional = if keys == Keys::Required { json!([{"key": []}]) } else { json!([{}, {"key": []}]) };
    merge(&mut document, json!({"security": optional}));
    document
}

/// Adds the shared parts to the description of a route. A route is one method of one path.
fn complete(path: &str, method: &str, route: &mut Value, refusals: &[Refusal]) {
    // These routes need no key, because they reveal nothing about tenants.
    let open = matches!(path, "/healthz" | "/readyz");
    // These routes are for the operator, and belong to no workspace.
    let admins = path.starts_with("/v1/keys") || path == "/metrics";
    // Responses of these routes have an `etag`, so that a client can see whether the response has changed.
    let marked = method == "get" && path.starts_with("/v1/") && path != "/v1/events";
    let has_body = route.get("requestBody").is_some();
    let refuses = |status: u16| match status {
        400 => !open && path != "/metrics",
        401 | 403 | 503 => !open,
        404 => path.contains('{'),
        408 | 413 | 415 => has_body,
        409 => (method != "get" || path.ends_with("/search")) && !admins,
        429 => !open && !admins,
        _ => false,
    };
    let verb = route.get("operationId").and_then(Value::as_str).unwrap_or_default();
    let noun = route.pointer("/tags/0").and_then(Value::as_str).unwrap_or_default();
    let name = format!("{noun}_{verb}");
    let mut added = json!({"operationId": name, "responses": {}});
    if open {
        merge(&mut added, json!({"security": []}));
    }
    if let Some(links) = links(&name) {
        merge(&mut added, links);
    }
    for refusal in refusals.iter().filter(|refusal| refuses(refusal.status)) {
        let answer = json!({"$ref": format!("#/components/responses/{}", refusal.name)});
        merge(&mut added, json!({"responses": {refusal.status.to_string(): answer}}));
    }
    if marked {
        let marks = header_refs(&["etag", "cache-control"]);
        let unchanged = json!({"$ref": "#/components/responses/NotModified"});
        merge(&mut added, json!({"responses": {"200": {"headers": marks}, "304": unchanged}}));
    }
    let Some(fields) = route.as_object_mut() else { return };
    parameters(fields, path.contains("{session}"), !open && !admins, marked);
    for answer in fields.get_mut("responses").and_then(Value::as_object_mut).into_iter().flatten() {
        merge(answer.1, json!({"headers": header_refs(&["x-request-id"])}));
    }
    merge(route, added);
    if let Some(answers) = route.get_mut("responses").and_then(Value::as_object_mut) {
        answers.sort_keys();
    }
}

fn header_refs(names: &[&str]) -> Value {
    let header = |name: &&str| ((*name).to_owned(), json!({"$ref": format!("#/components/headers/{name}")}));
    names.iter().map(header).collect::<Map<_, _>>().into()
}

fn parameters(fields: &mut Map<String, Value>, session: bool, workspace: bool, marked: bool) {
    let own = fields.entry("parameters").or_insert_with(|| json!([]));
    let Some(own) = own.as_array_mut() else { return };
    for parameter in own.iter_mut() {
        if parameter.pointer("/schema/maximum").is_none()
            && parameter.pointer("/schema/format") == Some(&json!("int64"))
        {
            merge(parameter, json!({"schema": {"maximum": i64::MAX}}));
        }
    }
    if session {
        own.insert(0, json!({"$ref": "#/components/parameters/Session"}));
    }
    let common = [("Workspace", workspace), ("RequestId", true), ("IfNoneMatch", marked)];
    for (name, _) in common.into_iter().filter(|(_, holds)| *holds) {
        own.push(json!({"$ref": format!("#/components/parameters/{name}")}));
    }
}

/// Returns the links of an operation's response. For each operation and status, `links.json` lists the operations that
/// can follow, and their parameters.
fn links(name: &str) -> Option<Value> {
    let all: Value = serde_json::from_str(LINKS).ok()?;
    let (status, groups) = all.get(name)?.as_object()?.iter().next()?;
    let mut links = Map::new();
    for group in groups.as_array()? {
        for to in group.get("to")?.as_array()?.iter().filter_map(Value::as_str) {
            let link = json!({"operationId": to, "parameters": group.get("parameters")});
            links.insert(to.to_owned(), link);
        }
    }
    Some(json!({"responses": {status: {"links": links}}}))
}

/// Merges `over` into `under`. Objects are merged key by key. Any other value replaces the old value. Null removes the
/// key.
fn merge(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                if value.is_null() {
                    under.shift_remove(&key);
                } else {
                    merge(under.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (under, over) => *under = over,
    }
}

/// Defines type names for schemas that are described in JSON, because the handlers' annotations need types.
macro_rules! shapes {
    ($($name:ident)*) => {$(
        #[doc = concat!("The schema `", stringify!($name), "`.")]
        #[derive(ToSchema)]
        pub(crate) struct $name;
    )*};
}

shapes!(Appended Condensable Condensed ContextAnswer CreatedKey Found Fork Key Message Messages MessagesPage NewKey Queue);
shapes!(Rebuilding Session SessionSettings SessionWhole SetFlags Settings Summarize Summarized Summary Undone Usage);
shapes!(Workspace);

const REFUSALS: &str = include_str!("openapi/refusals.json");

/// An error status, and the kinds of problem with this status.
#[derive(Deserialize)]
struct Refusal {
    status: u16,
    /// Name of the response in the description.
    name: String,
    when: String,
    /// The kinds of problem. The example in the description shows the first kind.
    kinds: Vec<String>,
    detail: String,
    /// Header that every response with this status has.
    header: Option<String>,
}

/// Reads `refusals.json`.
fn refusals() -> Vec<Refusal> {
    serde_json::from_str(REFUSALS).unwrap_or_default()
}

/// Returns the error responses, and the list of all kinds of problem.
fn refusal_components(all: &[Refusal]) -> Value {
    let answers: Map<_, _> = all.iter().map(|refusal| (refusal.name.clone(), refusal.answer())).collect();
    let own = all.iter().flat_map(|refusal| &refusal.kinds).map(String::as_str);
    let kinds: Vec<String> = own.chain(["method-not-allowed", "failed"]).map(urn).collect();
    json!({"responses": answers, "schemas": {"Problem": {"properties": {"type": {"enum": kinds}}}}})
}

impl Refusal {
    fn answer(&self) -> Value {
        let kinds: Vec<String> = self.kinds.iter().map(|kind| format!("`{}`", urn(kind))).collect();
        let status = StatusCode::from_u16(self.status).unwrap_or_default();
        let example = json!({
            "type": urn(self.kinds.first().map_or("failed", String::as_str)),
            "title": status.canonical_reason(),
            "status": self.status,
            "detail": self.detail,
            "request_id": "4bf92f3577b34da6",
        });
        let names = self.header.as_deref().into_iter().chain(["x-request-id"]).collect::<Vec<_>>();
        json!({
            "description": format!("{}: {}", self.when, kinds.join(", ")),
            "headers": header_refs(&names),
            "content": {"application/problem+json": {
                "schema": {"$ref": "#/components/schemas/Problem"},
                "example": example,
            }},
        })
    }
}

fn urn(kind: &str) -> String {
    format!("urn:epitome:{kind}")
}
