//! What is answered when something was not done: RFC 9457 problem details, sorted by what the caller does next.
//!
//! A [`Problem`] is put into words in one place, at the very end (`dress`), together with those the router makes
//! itself (no such path, no such method), so that every answer that is not a success looks the same and carries the
//! request's id. Nothing of the server's own is told: no path, no address, no message's words.

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

/// Why something was not done.
#[derive(Debug, Clone)]
pub struct Problem {
    /// The status of the answer.
    pub status: StatusCode,
    /// What kind of problem it is, in a word or two; never changed once released.
    pub code: &'static str,
    /// What was wrong, where, and what to do.
    pub detail: String,
    /// After so many seconds the same may work.
    pub retry_after: Option<u64>,
    /// The rest of what was sent was not read: the connection cannot be used again.
    pub hang_up: bool,
    /// All that was wrong, piece by piece, where a [`Mount`] has a form for that.
    pub faults: Option<Box<Value>>,
}

/// A problem, as RFC 9457 writes it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct Told<'a> {
    /// What kind of problem it is: `urn:epitome:` and a word or two.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status in words.
    pub title: &'a str,
    /// The status.
    pub status: u16,
    /// What was wrong, where, and what to do.
    pub detail: &'a str,
    /// The request's id: the server's log has it too.
    pub request_id: &'a str,
}

/// The type of such answers.
pub const PROBLEM_JSON: &str = "application/problem+json";

impl Problem {
    /// The code of those who come when there is no room.
    pub const BUSY: &'static str = "busy";

    /// A problem that may not be tried again.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), retry_after: None, hang_up: false, faults: None }
    }

    /// The request is wrong, and will be refused again.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", detail)
    }

    /// There is no such thing, or it is somebody else's.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    /// More than is taken.
    pub fn too_large(detail: impl Into<String>) -> Self {
        Self { hang_up: true, ..Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail) }
    }

    /// Too much is under way.
    pub fn busy(detail: impl Into<String>) -> Self {
        let busy = Self::new(StatusCode::SERVICE_UNAVAILABLE, Self::BUSY, detail);
        Self { retry_after: Some(1), ..busy }
    }

    /// This caller has too much under way.
    pub fn too_many(detail: impl Into<String>) -> Self {
        let busy = Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many", detail);
        Self { retry_after: Some(1), ..busy }
    }

    /// The same, and the connection is closed after it.
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
            // What is wrong with the store is for whoever runs it: its words name files.
            Next::Mend | Next::Repair => {
                log_seldom(&told);
                let full = matches!(error, Error::Store(StoreError::Full { .. }));
                let what = if full { "the store is full" } else { "the store failed" };
                let detail = format!("{what}; nothing was changed, and the server's log says more");
                let failed = Self::new(StatusCode::SERVICE_UNAVAILABLE, "store", detail);
                Self { retry_after: Some(10), ..failed }
            }
        }
    }
}

/// Tells whoever runs the server what is wrong with the store, and not with every request.
fn log_seldom(told: &str) {
    static OFTEN: LazyLock<Seldom> = LazyLock::new(Seldom::default);
    if let Some(times) = OFTEN.happened() {
        tracing::error!(error = %told, times, "the store failed");
    }
}

impl IntoResponse for Problem {
    /// Without words yet: `dress` puts them in, since it knows the request's id.
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// A group of routes under one path prefix, and what is different about its answers. Whoever mounts the routes supplies it.
pub struct Mount {
    /// Where their paths begin.
    pub prefix: &'static str,
    /// Whether a request to this path only reads, whatever its method: its answer may be refused for want of memory.
    pub reads: fn(&str) -> bool,
    /// The problem for a status that the router answered by itself.
    pub bare: fn(StatusCode) -> Problem,
    /// Puts a problem into words.
    pub words: fn(&Problem, &response::Parts, &str) -> Words,
}

/// A problem in words.
pub struct Words {
    /// The status it is answered with.
    pub status: StatusCode,
    /// Its content type.
    pub kind: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl Mount {
    /// Everything that is mounted nowhere else: RFC 9457.
    const NATIVE: Self = Self { prefix: "/", reads: |_| false, bare, words };

    /// Returns whose path it is.
    pub(crate) fn of(mounts: &'static [Self], path: &str) -> &'static Self {
        mounts.iter().find(|mount| path.starts_with(mount.prefix)).unwrap_or(&Self::NATIVE)
    }
}

/// Puts a problem into words, also one the router made itself, as the routes of that mount do. Other answers stay as they are.
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

/// A problem as RFC 9457 has it.
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

/// Among the extensions of answers that are what they should be, whatever their status: `/readyz` says itself what is not
/// ready, and a provider what it refuses.
#[derive(Clone)]
pub struct Dressed;

/// What the router refuses by itself.
fn bare(status: StatusCode) -> Problem {
    match status {
        StatusCode::NOT_FOUND => {
            Problem::not_found("there is no such path; /openapi.json lists those there are")
        }
        StatusCode::METHOD_NOT_ALLOWED => Problem::new(
            status,
            "method-not-allowed",
            "this method does nothing here; the header `allow` says which do",
        ),
        StatusCode::BAD_REQUEST => Problem::invalid("the path is not UTF-8, or no name of anything"),
        _ => Problem::new(status, "failed", "it was not done"),
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
