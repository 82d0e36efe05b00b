//! What is refused here, said as the provider would say it, so that its client understands.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use epitome::dialect::Dialect;
use epitome::dialect::format::Refusal;

use super::super::problem::Problem;
use super::told::{OUTCOME, WORD_REFUSED};

/// A problem as an answer of this provider's.
pub(super) fn refused(dialect: Dialect, problem: &Problem, id: &str) -> Response {
    let message = &format!("epitome: {}", problem.detail);
    let (kind, code) = (kind(problem.status), problem.code);
    let told = dialect.format().refusal(&Refusal { message, kind, code, id });
    let mut response = Response::new(Body::from(told.to_string()));
    *response.status_mut() = problem.status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(OUTCOME, HeaderValue::from_static(WORD_REFUSED));
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert("x-request-id", id);
    }
    if let Some(seconds) = problem.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if problem.hang_up {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// What both providers call it.
fn kind(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "api_error",
    }
}
