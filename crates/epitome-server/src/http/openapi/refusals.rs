//! How requests are refused: every kind of problem there is, once, in `refusals.json`.
//!
//! 405 is no route's own answer, so it is not among them; its kind is `method-not-allowed`.

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

const ALL: &str = include_str!("refusals.json");

/// One status by which requests are refused.
#[derive(Deserialize)]
pub(super) struct Refusal {
    pub(super) status: u16,
    /// Its name in the description.
    pub(super) name: String,
    when: String,
    /// The kinds of problem it comes with; the first is the example's.
    kinds: Vec<String>,
    detail: String,
    /// A header that is always there.
    header: Option<String>,
}

/// All of them.
pub(super) fn all() -> Vec<Refusal> {
    serde_json::from_str(ALL).unwrap_or_default()
}

/// All of them as answers, and the kinds of problem there are.
pub(super) fn components(all: &[Refusal]) -> Value {
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
            "headers": super::header_refs(&names),
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
