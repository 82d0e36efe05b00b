//! Writes the headers that report what was done. Renders errors of this server in the provider's format, so that the
//! provider's client understands them.

use axum::http::HeaderName;
use epitome::dialect::format::ErrorReply;
use epitome::settings::Money;

use super::super::condense::{REPORT_HEADER, report_header};
use super::super::prelude::*;
use super::account::Conversation;
use super::decide::Decision;

/// Header that says in one word what was done.
pub(super) const OUTCOME_HEADER: HeaderName = HeaderName::from_static("x-epitome");

/// Value of [`OUTCOME_HEADER`] in a response that comes from this server and not from the provider.
pub(super) const REFUSED: &str = "refused";

impl Decision {
    /// Writes the report into a response's headers.
    pub(super) fn write_headers(&self, headers: &mut HeaderMap) {
        let extra = match &self.conversation {
            None => json!({"saved": 0}),
            Some(Conversation { id, full, short, before, .. }) => json!({
                // The conversation that the request was assigned to.
                "run": &**id,
                // Number of tokens that condensing saved in this request, or in shadow mode would have saved.
                "saved": full.saturating_sub(*short),
                // The savings of earlier requests of this conversation, by the provider's counts. The cost is in the
                // currency of the price table. Without a price, it is 0.
                "so_far": {"saved": before.saved, "saved_cost": Money::millionths(before.saved_cost).get()},
            }),
        };
        headers.insert(OUTCOME_HEADER, HeaderValue::from_static(self.outcome.name()));
        headers.insert(REPORT_HEADER, report_header(self.report.clone(), &extra));
    }
}

/// Renders a problem as an error response in the provider's format.
pub(super) fn error_response(dialect: Dialect, problem: Problem, id: &str) -> Response {
    let message = &format!("epitome: {}", problem.detail);
    let (kind, code) = (error_type(problem.status), problem.code);
    let body = dialect.format().error_body(&ErrorReply { message, kind, code, id });
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = problem.status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(OUTCOME_HEADER, HeaderValue::from_static(REFUSED));
    if let Some(seconds) = problem.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if problem.close_connection {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    // The code that writes the log reads the problem from the response's extensions.
    response.extensions_mut().insert(problem);
    response
}

/// Returns the error type that both providers use for a status.
fn error_type(status: StatusCode) -> &'static str {
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
