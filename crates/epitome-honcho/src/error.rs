//! Errors in Honcho's format: `{"detail": …}`. The detail is a text or a list of faults.

use axum::http::{StatusCode, response};
use axum::response::Response;
use epitome::Error;
use epitome_http::problem::{Problem, RenderedProblem};
use serde_json::json;

use super::validate::Faults;

/// Returns the error for an invalid request: 422.
pub(super) fn unprocessable(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail)
}

pub(super) fn session_not_found(session: &str, workspace: &str) -> Problem {
    Problem::not_found(format!("Session {session} not found in workspace {workspace}"))
}

pub(super) fn message_not_found(id: &str) -> Problem {
    // The id comes from the path and can be long, so only its first 64 characters are shown.
    let id: String = id.chars().take(64).collect();
    Problem::not_found(format!("Message with ID {id} not found"))
}

/// Returns the error for an invalid name. The error does not repeat the name, because the name can be long.
pub(super) fn invalid_name(param: &str) -> Problem {
    unprocessable(format!("{param}: a name has 1 to 512 bytes and no control characters"))
}

impl From<Faults> for Problem {
    fn from(faults: Faults) -> Self {
        Self { faults: Some(Box::new(json!(faults))), ..unprocessable("the request is invalid") }
    }
}

/// Returns the error for a request that the router refuses. As in Honcho, the text is the name of the HTTP status.
pub(super) fn router_error(status: StatusCode) -> Problem {
    Problem::new(
        status,
        "failed",
        status.canonical_reason().unwrap_or("the server could not process the request"),
    )
}

/// Converts a problem into Honcho's format, with the HTTP status that Honcho's clients expect.
pub(super) fn render(problem: &Problem, parts: &response::Parts, _: &str) -> RenderedProblem {
    let status = match parts.status {
        StatusCode::BAD_REQUEST => StatusCode::UNPROCESSABLE_ENTITY,
        StatusCode::FORBIDDEN => StatusCode::UNAUTHORIZED,
        other => other,
    };
    // Honcho's clients call Epitome's `attributes.honcho` a configuration.
    let detail = || problem.detail.replace("attributes.honcho", "configuration").into();
    let body = json!({"detail": problem.faults.as_deref().cloned().unwrap_or_else(detail)});
    let body = serde_json::to_vec(&body).unwrap_or_default();
    RenderedProblem { status, content_type: "application/json", body }
}

/// Returns the error for a route that is not offered. Honcho's clients do not retry after this HTTP status.
pub(super) fn not_offered() -> Problem {
    let detail = "not offered: Epitome stores and condenses conversations, and does not reason about their \
                  participants (no chat, representations, cards, conclusions, scopes, dreams or webhooks)";
    Problem::new(StatusCode::NOT_IMPLEMENTED, "not-offered", detail)
}

/// The result of a route: a response, or a problem that the middleware renders.
pub(super) type Answer = Result<Response, Problem>;

/// Returns the value that was read, or `None` if the session does not exist.
pub(super) fn existing<T>(read: Result<T, Error>) -> Result<Option<T>, Problem> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
