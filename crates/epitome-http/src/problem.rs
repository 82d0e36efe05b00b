//! Error responses: RFC 9457 problem details, classified by what the caller can do next.
//!
//! `render_problem` renders every [`Problem`] in one place, at the end of the request. It also renders the errors that
//! the router detects, such as an unknown path. So all error responses have the same format and contain the request's
//! id. Error responses contain no internal data: no file paths, no addresses, no message text.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header, response};
use axum::response::{IntoResponse, Response};
use epitome::store::StoreError;
use epitome::{Error, Remedy};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::log_limiter::LogLimiter;
use crate::scrub::scrub;

/// An error response.
#[derive(Debug, Clone)]
pub struct Problem {
    /// HTTP status.
    pub status: StatusCode,
    /// Kind of problem, such as `not-found`. A released code never changes.
    pub code: &'static str,
    /// What was wrong, where, and what to do.
    pub detail: String,
    /// Number of seconds after which the same request may succeed.
    pub retry_after: Option<u64>,
    /// Whether to close the connection, because the rest of the request was not read.
    pub close_connection: bool,
    /// List of all faults of the request, in the format of the [`Mount`]; `None` if the problem has no such list.
    pub faults: Option<Box<Value>>,
}

/// A problem in the format of RFC 9457.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody<'a> {
    /// Kind of problem, such as `urn:epitome:not-found`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The name of the HTTP status.
    pub title: &'a str,
    /// The HTTP status.
    pub status: u16,
    /// What was wrong, where, and what to do.
    pub detail: &'a str,
    /// The request's id. The server's log contains the same id.
    pub request_id: &'a str,
}

/// Content type of problem details.
pub const PROBLEM_JSON: &str = "application/problem+json";

impl Problem {
    /// Code of problems caused by a limit of the server.
    pub const BUSY: &'static str = "busy";

    /// Returns a problem without `retry_after`. The caller should not retry the request.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), retry_after: None, close_connection: false, faults: None }
    }

    /// Returns the problem of an invalid request. The server would refuse the same request again.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", detail)
    }

    /// Returns the problem of a resource that does not exist or belongs to another tenant.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    /// Returns the problem of a request that is too large.
    pub fn too_large(detail: impl Into<String>) -> Self {
        Self { close_connection: true, ..Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail) }
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
    pub fn closing(self) -> Self {
        Self { close_connection: true, ..self }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error.remedy() {
            Remedy::CheckName => Self::not_found(text),
            Remedy::ReadState => Self::new(StatusCode::CONFLICT, "conflict", text),
            Remedy::FixRequest if matches!(error, Error::Invalid(_)) => Self::invalid(text),
            Remedy::Retry if matches!(error, Error::Model { .. }) => {
                let failed = Self::new(StatusCode::SERVICE_UNAVAILABLE, "no-summary-yet", scrub(&text));
                Self { retry_after: Some(5), ..failed }
            }
            Remedy::Retry if matches!(error, Error::Busy(StoreError::Unavailable { .. })) => {
                log_store_error(&text);
                Self { retry_after: Some(5), ..Self::busy("the server cannot reach its store; try again") }
            }
            Remedy::Retry if matches!(error, Error::Busy(StoreError::Migrating { .. })) => {
                log_store_error(&text);
                let detail = "`epitome migrate` is filling the store; try again when the migration has ended";
                Self { retry_after: Some(10), ..Self::busy(detail) }
            }
            Remedy::Retry => Self::busy("the store is busy; try again"),
            Remedy::Reopen => Self::busy("the server is shutting down; try again").closing(),
            // The details are only logged. They name files, so only the operator may see them.
            Remedy::FixRequest | Remedy::CheckStore => {
                log_store_error(&text);
                let full = matches!(error, Error::Store(StoreError::Full { .. }));
                let cause = if full { "the store is full" } else { "the store failed" };
                let detail = format!("{cause}; nothing was changed; the server's log has the details");
                let failed = Self::new(StatusCode::SERVICE_UNAVAILABLE, "store", detail);
                Self { retry_after: Some(10), ..failed }
            }
        }
    }
}

/// Logs an error of the store for the operator, at most once per second.
fn log_store_error(text: &str) {
    static LOG_LIMITER: LazyLock<LogLimiter> = LazyLock::new(LogLimiter::default);
    if let Some(failures) = LOG_LIMITER.record() {
        tracing::error!(error = %text, failures, "the store failed");
    }
}

impl IntoResponse for Problem {
    /// Returns a response without a body: `render_problem` adds it, because only `render_problem` has the request's id.
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// A group of routes under one path prefix, with its own error format. The crate that defines the routes supplies the
/// `Mount`.
pub struct Mount {
    /// Path prefix of the routes.
    pub prefix: &'static str,
    /// Returns whether a request to this path only reads data, with any method. If no memory is free, the response to
    /// such a request is replaced by an error.
    pub reads: fn(&str) -> bool,
    /// Returns the problem for an error status that the router sets, for example for an unknown path.
    pub router_error: fn(StatusCode) -> Problem,
    /// Renders a problem.
    pub render: fn(&Problem, &response::Parts, &str) -> RenderedProblem,
}

/// A rendered problem.
pub struct RenderedProblem {
    /// HTTP status of the response.
    pub status: StatusCode,
    /// Content type of the body.
    pub content_type: &'static str,
    /// Body of the response.
    pub body: Vec<u8>,
}

impl Mount {
    /// The mount of paths that belong to no other mount. Its errors have the format of RFC 9457.
    const NATIVE: Self = Self { prefix: "/", reads: |_| false, router_error, render };

    /// Returns the mount of a path.
    pub(crate) fn of(mounts: &'static [Self], path: &str) -> &'static Self {
        mounts.iter().find(|mount| path.starts_with(mount.prefix)).unwrap_or(&Self::NATIVE)
    }
}

/// Renders the problem of an error response in the format of the mount. Also renders the errors that the router
/// detects. Other responses stay unchanged.
pub(crate) fn render_problem(response: Response, request_id: &str, mount: &Mount) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    if !is_error || response.extensions().get::<KeepBody>().is_some() {
        return response;
    }
    let problem = response.extensions().get::<Problem>().cloned();
    let problem = problem.unwrap_or_else(|| (mount.router_error)(status));
    let (mut parts, _) = response.into_parts();
    let RenderedProblem { status, content_type, body } = (mount.render)(&problem, &parts, request_id);
    parts.status = status;
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Some(seconds) = problem.retry_after {
        parts.headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if problem.close_connection {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if parts.status == StatusCode::UNAUTHORIZED {
        parts.headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"epitome\""));
    }
    Response::from_parts(parts, Body::from(body))
}

/// Renders a problem in the format of RFC 9457.
fn render(problem: &Problem, parts: &response::Parts, request_id: &str) -> RenderedProblem {
    let status = parts.status;
    let body = ProblemBody {
        kind: format!("urn:epitome:{}", problem.code),
        title: status.canonical_reason().unwrap_or("Error"),
        status: status.as_u16(),
        detail: &problem.detail,
        request_id,
    };
    let body = serde_json::to_vec(&body).unwrap_or_default();
    RenderedProblem { status, content_type: PROBLEM_JSON, body }
}

/// Response extension: the middleware does not change the body of the response, even if the status is an error. The
/// route `/readyz` uses it, because its body lists what is not ready. The proxy uses it to forward a provider's errors.
#[derive(Clone)]
pub struct KeepBody;

/// Returns the problem for an error status that the router sets, for example for an unknown path.
fn router_error(status: StatusCode) -> Problem {
    match status {
        StatusCode::NOT_FOUND => {
            Problem::not_found("there is no such path; /openapi.json lists all valid paths")
        }
        StatusCode::METHOD_NOT_ALLOWED => Problem::new(
            status,
            "method-not-allowed",
            "this path does not support this method; the header `allow` lists the methods that it supports",
        ),
        StatusCode::BAD_REQUEST => Problem::invalid("the path is not valid UTF-8"),
        _ => Problem::new(status, "failed", "the server could not process the request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_store_is_a_503_that_does_not_name_it() {
        let (place, reason) = ("db.example/epitome".to_owned(), "refused".to_owned());
        let problem = Problem::from(Error::from(StoreError::Unavailable { place, reason }));
        assert_eq!((problem.status.as_u16(), problem.retry_after), (503, Some(5)));
        assert!(!problem.detail.contains("example"), "{}", problem.detail);
    }
}
