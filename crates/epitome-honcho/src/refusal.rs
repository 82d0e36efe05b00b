//! Why something was not done, in their words: `{"detail": …}`, a text or a list of faults.

use axum::http::{StatusCode, response};
use axum::response::Response;
use epitome::Error;
use epitome_http::problem::{Problem, Words};
use serde_json::json;

use super::check::Faults;

/// What was sent is wrong.
pub(super) fn unfit(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail)
}

pub(super) fn no_session(session: &str, workspace: &str) -> Problem {
    Problem::not_found(format!("Session {session} not found in workspace {workspace}"))
}

pub(super) fn no_message(id: &str) -> Problem {
    // Whatever stood in the path.
    let id: String = id.chars().take(64).collect();
    Problem::not_found(format!("Message with ID {id} not found"))
}

/// Nothing can be called so. The name is not repeated: it may be long.
pub(super) fn no_name(what: &str) -> Problem {
    unfit(format!("{what}: a name has 1 to 512 bytes and no control characters"))
}

impl From<Faults> for Problem {
    fn from(faults: Faults) -> Self {
        Self { faults: Some(Box::new(json!(faults))), ..unfit("what was sent is wrong") }
    }
}

/// What the router refuses by itself, as theirs does: the status in words.
pub(super) fn bare(status: StatusCode) -> Problem {
    Problem::new(status, "failed", status.canonical_reason().unwrap_or("it was not done"))
}

/// A problem in their words, with the status their clients know for it.
pub(super) fn words(problem: &Problem, parts: &response::Parts, _: &str) -> Words {
    let status = match parts.status {
        StatusCode::BAD_REQUEST => StatusCode::UNPROCESSABLE_ENTITY,
        StatusCode::FORBIDDEN => StatusCode::UNAUTHORIZED,
        other => other,
    };
    // Their clients know what we call attributes of theirs as a configuration.
    let detail = || problem.detail.replace("attributes.honcho", "configuration").into();
    let told = json!({"detail": problem.faults.as_deref().cloned().unwrap_or_else(detail)});
    Words { status, kind: "application/json", body: serde_json::to_vec(&told).unwrap_or_default() }
}

/// With a status that their clients do not try again.
pub(super) fn not_offered() -> Problem {
    let detail = "not offered: Epitome keeps and condenses conversations, and does not reason about those who hold \
                  them (no chat, representations, cards, conclusions, scopes, dreams or webhooks)";
    Problem::new(StatusCode::NOT_IMPLEMENTED, "not-offered", detail)
}

/// What a route answers.
pub(super) type Answer = Result<Response, Problem>;

/// What was read; nothing where there is no such session.
pub(super) fn found<T>(read: Result<T, Error>) -> Result<Option<T>, Problem> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
