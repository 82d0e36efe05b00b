//! Why something was not done, in their words: `{"detail": …}`, a text or a list of faults.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use epitome::Error;
use serde_json::{Value, json};

use super::check::Faults;
use crate::http::problem::Problem;

/// Why something was not done.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// As everywhere.
    Problem(Problem),
    /// What was sent is wrong, here and there.
    Faults(Faults),
}

/// What is told in place of a problem's own words.
#[derive(Debug, Clone)]
pub(crate) struct Detail(pub(crate) Value);

impl Refusal {
    /// What was sent is wrong.
    pub(super) fn unfit(detail: impl Into<String>) -> Self {
        Self::told(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail)
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::told(StatusCode::NOT_FOUND, "not-found", detail)
    }

    pub(super) fn no_session(session: &str, workspace: &str) -> Self {
        Self::not_found(format!("Session {session} not found in workspace {workspace}"))
    }

    pub(super) fn no_message(id: &str) -> Self {
        // Whatever stood in the path.
        let id: String = id.chars().take(64).collect();
        Self::not_found(format!("Message with ID {id} not found"))
    }

    /// Nothing can be called so. The name is not repeated: it may be long.
    pub(super) fn no_name(what: &str) -> Self {
        Self::unfit(format!("{what}: a name has 1 to 512 bytes and no control characters"))
    }

    pub(super) fn told(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self::Problem(Problem::new(status, code, detail))
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Problem(error.into())
    }
}

impl From<Faults> for Refusal {
    fn from(faults: Faults) -> Self {
        Self::Faults(faults)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Problem(problem) => problem.into_response(),
            Self::Faults(faults) => {
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                let mut response = Problem::new(status, "invalid", "what was sent is wrong").into_response();
                response.extensions_mut().insert(Detail(json!(faults)));
                response
            }
        }
    }
}

/// What the router refuses by itself, as theirs does: the status in words.
pub(crate) fn bare(status: StatusCode) -> Problem {
    Problem::new(status, "failed", status.canonical_reason().unwrap_or("it was not done"))
}

/// The status their clients know for it.
pub(crate) fn status(status: StatusCode) -> StatusCode {
    match status {
        StatusCode::BAD_REQUEST => StatusCode::UNPROCESSABLE_ENTITY,
        StatusCode::FORBIDDEN => StatusCode::UNAUTHORIZED,
        other => other,
    }
}
