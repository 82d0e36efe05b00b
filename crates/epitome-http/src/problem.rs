//! Error responses: RFC 9457 problem details, classified by what the caller can do next.
//!
//! `dress` renders every [`Problem`] in one place, at the end of the request, and also the errors of the router itself (no
//! such path, no such method). So all error responses look the same and contain the request's id. They contain no internal
//! data: no file paths, no addresses, no message text.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header, response};
use axum::response::{IntoResponse, Response};
use epitome::store::StoreError;
use epitome::{Error, Next};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::discreet::discreet;
use crate::seldom::Seldom;

/// An error response.
#[derive(Debug, Clone)]
pub struct Problem {
    /// HTTP status.
    pub status: StatusCode,
    /// Kind of problem, in a word or two. Never changes once released.
    pub code: &'static str,
    /// What was wrong, where, and what to do.
    pub detail: String,
    /// Number of seconds after which the same request may succeed.
    pub retry_after: Option<u64>,
    /// Whether to close the connection, because the rest of the request was not read.
    pub hang_up: bool,
    /// List of all faults, if the [`Mount`] has a format for it.
    pub faults: Option<Box<Value>>,
}

/// A problem in the format of RFC 9457.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct Told<'a> {
    /// Kind of problem: `urn:epitome:` and a word or two.
    #[serde(rename = "type")]
    pub kind: String,
    /// The name of the HTTP status.
    pub title: &'a str,
    /// The HTTP status.
    pub status: u16,
    /// What was wrong, where, and what to do.
    pub detail: &'a str,
    /// The request's id, which the server's log contains too.
    pub request_id: &'a str,
}

/// Content type of problem details.
pub const PROBLEM_JSON: &str = "application/problem+json";

impl Problem {
    /// Code of problems caused by a limit of the server.
    pub const BUSY: &'static str = "busy";

    /// Returns a problem that the caller should not retry.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), retry_after: None, hang_up: false, faults: None }
    }

    /// Returns the problem of an invalid request, which would be refused again.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", detail)
    }

    /// Returns the problem of a resource that does not exist or belongs to another tenant.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    /// Returns the problem of a request that is too large.
    pub fn too_large(detail: impl Into<String>) -> Self {
        Self { hang_up: true, ..Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail) }
    }

    /// Returns the problem of a busy server.
    pub fn busy(detail: impl Into<String>) -> Self {
        let busy = Self::new(StatusCode::SERVICE_UNAVAILABLE, Self::BUSY, detail);
        Self { retry_after: Some(1), ..busy }
    }

    /// Returns the problem of a caller with too many requests in progress.
    pub fn too_many(detail: impl Into<String>) -> Self {
        let busy = Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many", detail);
        Self { retry_after: Some(1), ..busy }
    }

    /// Closes the connection after the response.
    pub fn and_hang_up(self) -> Self {
        Self { hang_up: true, ..self }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let told = error.to_string();
        match error.next() {
            Next::Look => Self::not_found(told),
            Next::Decide => Self::new(StatusCode::CONFLICT, "conflict", told),
            Next::Mend if matches!(error, Error::Invalid(_)) => Self::invalid(told),
            Next::Retry if matches!(error, Error::Model { .. }) => {
                let failed = Self::new(StatusCode::SERVICE_UNAVAILABLE, "no-summary-yet", discreet(&told));
                Self { retry_after: Some(5), ..failed }
            }
            Next::Retry if matches!(error, Error::Busy(StoreError::Unavailable { .. })) => {
                log_seldom(&told);
                Self { retry_after: Some(5), ..Self::busy("the store cannot be reached; try again") }
            }
            Next::Retry if matches!(error, Error::Busy(StoreError::Moving { .. })) => {
                log_seldom(&told);
                let detail = "the store is being filled by `epitome migrate`; try again when that is done";
                Self { retry_after: Some(10), ..Self::busy(detail) }
            }
            Next::Retry => Self::busy("the store is busy; try again"),
            Next::Reopen => Self::busy("the server is shutting down; try again").and_hang_up(),
            // Details are only logged, for the operator: they name files.
            Next::Mend | Next::Repair => {
                log_seldom(&told);
                let full = matches!(error, Error::Store(StoreError::Full { .. }));
                let what = if full { "the store is full" } else { "the store failed" };
                let detail = format!("{what}; nothing was changed; the server's log has the details");
                let failed = Self::new(StatusCode::SERVICE_UNAVAILABLE, "store", detail);
                Self { retry_after: Some(10), ..failed }
            }
        }
    }
}

/// Logs an error of the store for the operator, at most once per second.
fn log_seldom(told: &str) {
    static OFTEN: LazyLock<Seldom> = LazyLock::new(Seldom::default);
    if let Some(times) = OFTEN.happened() {
        tracing::error!(error = %told, times, "the store failed");
    }
}

impl IntoResponse for Problem {
    /// Returns a response without a body: `dress` adds it, because only `dress` has the request's id.
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// A group of routes under one path prefix, with its own error format. The crate that mounts the routes supplies it.
pub struct Mount {
    /// Path prefix of the routes.
    pub prefix: &'static str,
    /// Whether a request to this path only reads, also with a method other than GET. Then its response may be refused for
    /// lack of memory.
    pub reads: fn(&str) -> bool,
    /// Returns the problem for an error status of the router itself.
    pub bare: fn(StatusCode) -> Problem,
    /// Renders a problem.
    pub words: fn(&Problem, &response::Parts, &str) -> Words,
}

/// A rendered problem.
pub struct Words {
    /// HTTP status of the response.
    pub status: StatusCode,
    /// Content type of the body.
    pub kind: &'static str,
    /// Body of the response.
    pub body: Vec<u8>,
}

impl Mount {
    /// The mount of all other paths: errors in the format of RFC 9457.
    const NATIVE: Self = Self { prefix: "/", reads: |_| false, bare, words };

    /// Returns the mount of a path.
    pub(crate) fn of(mounts: &'static [Self], path: &str) -> &'static Self {
        mounts.iter().find(|mount| path.starts_with(mount.prefix)).unwrap_or(&Self::NATIVE)
    }
}

/// Renders a problem, also one of the router itself, in the format of the mount. Other responses are unchanged.
pub(crate) fn dress(response: Response, request_id: &str, mount: &Mount) -> Response {
    let status = response.status();
    let fails = status.is_client_error() || status.is_server_error();
    if !fails || response.extensions().get::<Dressed>().is_some() {
        return response;
    }
    let known = response.extensions().get::<Problem>().cloned();
    let problem = known.unwrap_or_else(|| (mount.bare)(status));
    let (mut parts, _) = response.into_parts();
    let Words { status, kind, body } = (mount.words)(&problem, &parts, request_id);
    parts.status = status;
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(seconds) = problem.retry_after {
        parts.headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if problem.hang_up {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if parts.status == StatusCode::UNAUTHORIZED {
        parts.headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"epitome\""));
    }
    Response::from_parts(parts, Body::from(body))
}

/// Renders a problem in the format of RFC 9457.
fn words(problem: &Problem, parts: &response::Parts, request_id: &str) -> Words {
    let status = parts.status;
    let told = Told {
        kind: format!("urn:epitome:{}", problem.code),
        title: status.canonical_reason().unwrap_or("Error"),
        status: status.as_u16(),
        detail: &problem.detail,
        request_id,
    };
    Words { status, kind: PROBLEM_JSON, body: serde_json::to_vec(&told).unwrap_or_default() }
}

/// Response extension: leave the body as it is, also with an error status. `/readyz` reports itself what is not ready, and a
/// provider's errors are forwarded.
#[derive(Clone)]
pub struct Dressed;

/// Returns the problem for an error status of the router itself.
fn bare(status: StatusCode) -> Problem {
    match status {
        StatusCode::NOT_FOUND => {
            Problem::not_found("there is no such path; /openapi.json lists all valid paths")
        }
        StatusCode::METHOD_NOT_ALLOWED => Problem::new(
            status,
            "method-not-allowed",
            "this method is not allowed here; the header `allow` lists those that are",
        ),
        StatusCode::BAD_REQUEST => Problem::invalid("the path is not valid UTF-8"),
        _ => Problem::new(status, "failed", "the request failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_does_not_answer_may_be_asked_again_and_is_not_named() {
        let (place, reason) = ("db.example/epitome".to_owned(), "refused".to_owned());
        let problem = Problem::from(Error::from(StoreError::Unavailable { place, reason }));
        assert_eq!((problem.status.as_u16(), problem.retry_after), (503, Some(5)));
        assert!(!problem.detail.contains("example"), "{}", problem.detail);
    }
}
