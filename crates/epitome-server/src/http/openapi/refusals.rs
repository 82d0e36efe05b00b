//! How requests are refused: every kind of problem there is, once.

use serde_json::{Map, Value, json};

/// One status by which requests are refused.
pub(super) struct Refusal {
    pub(super) status: &'static str,
    /// Its name in the description.
    pub(super) name: &'static str,
    when: &'static str,
    /// The kinds of problem it comes with; the first is the example's.
    kinds: &'static [&'static str],
    title: &'static str,
    detail: &'static str,
    /// A header that is always there.
    header: Option<&'static str>,
}

/// All of them. 405 is no route's own answer, so it is not among them; its kind is `method-not-allowed`.
pub(super) const ALL: &[Refusal] = &[
    Refusal {
        status: "400",
        name: "Invalid",
        when: "Something in the request is wrong, and will be refused again",
        kinds: &["invalid"],
        title: "Bad Request",
        detail: "limit: 1 to 500 are allowed",
        header: None,
    },
    Refusal {
        status: "401",
        name: "Unauthorized",
        when: "A key is wanted, or the one that was sent opens nothing",
        kinds: &["unauthorized"],
        title: "Unauthorized",
        detail: "the key is unknown, revoked or expired",
        header: Some("www-authenticate"),
    },
    Refusal {
        status: "403",
        name: "Forbidden",
        when: "The key may not do this",
        kinds: &["forbidden"],
        title: "Forbidden",
        detail: "this key may only read",
        header: None,
    },
    Refusal {
        status: "404",
        name: "NotFound",
        when: "There is no such thing, or it is somebody else's",
        kinds: &["not-found"],
        title: "Not Found",
        detail: "session `ann` not found",
        header: None,
    },
    Refusal {
        status: "408",
        name: "TooSlow",
        when: "The body did not come to its end in time",
        kinds: &["too-slow"],
        title: "Request Timeout",
        detail: "the body did not come to its end in time; send it again",
        header: None,
    },
    Refusal {
        status: "409",
        name: "Conflict",
        when: "It does not fit what stands by now: look again, and decide",
        kinds: &["conflict"],
        title: "Conflict",
        detail: "session `ann` exists already; choose another name",
        header: None,
    },
    Refusal {
        status: "413",
        name: "TooLarge",
        when: "More than is taken at once",
        kinds: &["too-large"],
        title: "Payload Too Large",
        detail: "the body is over 16777216 bytes (limits.body); send less at once",
        header: None,
    },
    Refusal {
        status: "415",
        name: "NotJson",
        when: "The body is not said to be JSON, or packed in a way that is not known",
        kinds: &["not-json", "encoding"],
        title: "Unsupported Media Type",
        detail: "content-type: application/json is wanted (with curl: --json instead of -d)",
        header: None,
    },
    Refusal {
        status: "429",
        name: "TooMany",
        when: "The workspace has too much under way",
        kinds: &["too-many"],
        title: "Too Many Requests",
        detail: "256 requests are being worked on for this workspace already; try again",
        header: Some("retry-after"),
    },
    Refusal {
        status: "503",
        name: "Unavailable",
        when: "Not now: the server is busy, its database cannot be used, or a model gave no summary",
        kinds: &["busy", "store", "no-summary-yet"],
        title: "Service Unavailable",
        detail: "the store is busy; try again",
        header: Some("retry-after"),
    },
];

/// All of them as answers, and the kinds of problem there are.
pub(super) fn components() -> Value {
    let answers: Map<_, _> = ALL.iter().map(|refusal| (refusal.name.to_owned(), refusal.answer())).collect();
    let own = ALL.iter().flat_map(|refusal| refusal.kinds).chain(&["method-not-allowed", "failed"]);
    let kinds: Vec<String> = own.map(|kind| urn(kind)).collect();
    json!({"responses": answers, "schemas": {"Problem": {"properties": {"type": {"enum": kinds}}}}})
}

impl Refusal {
    fn answer(&self) -> Value {
        let kinds: Vec<String> = self.kinds.iter().map(|kind| format!("`{}`", urn(kind))).collect();
        let example = json!({
            "type": urn(self.kinds.first().unwrap_or(&"failed")),
            "title": self.title,
            "status": self.status.parse().unwrap_or(500),
            "detail": self.detail,
            "request_id": "4bf92f3577b34da6",
        });
        let names = self.header.into_iter().chain(["x-request-id"]).collect::<Vec<_>>();
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
