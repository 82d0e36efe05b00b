//! Why something was not done, in their words: `{"detail": …}`, a text or a list of faults.

use axum::http::{StatusCode, response};
use axum::response::{IntoResponse, Response};
use epitome::Error;
use epitome_http::problem::{Problem, Words};
use epitome_http::reply::done;
use serde::Serialize;
use serde_json::{Value, json};

use super::check::Faults;

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
struct Detail(Value);

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
        // Their clients know what we call attributes of theirs as a configuration.
        let error = match error {
            Error::Invalid(text) => Error::Invalid(text.replace("attributes.honcho", "configuration")),
            other => other,
        };
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
    let detail = parts.extensions.get::<Detail>().map(|Detail(list)| list.clone());
    let told = json!({"detail": detail.unwrap_or_else(|| problem.detail.as_str().into())});
    Words { status, kind: "application/json", body: serde_json::to_vec(&told).unwrap_or_default() }
}

/// With a status that their clients do not try again.
pub(super) fn not_offered() -> Refusal {
    let detail = "not offered: Epitome keeps and condenses conversations, and does not reason about those who hold \
                  them (no chat, representations, cards, conclusions, scopes, dreams or webhooks)";
    Refusal::told(StatusCode::NOT_IMPLEMENTED, "not-offered", detail)
}

/// What a route answers.
pub(super) type Answer = Result<Response, Refusal>;

/// The answer of what was done.
pub(super) fn answered(status: StatusCode, value: &impl Serialize) -> Answer {
    Ok(done(status, value)?)
}

/// What was read; nothing where there is no such session.
pub(super) fn found<T>(read: Result<T, Error>) -> Result<Option<T>, Refusal> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
