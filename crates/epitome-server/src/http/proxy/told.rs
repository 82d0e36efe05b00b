//! Writes the headers that report what was done, and renders errors of this server in the provider's format, so that the
//! provider's client understands them.

use axum::http::HeaderName;
use epitome::dialect::format::Refusal;
use epitome::settings::Money;

use super::super::condense::{REPORT, told};
use super::super::prelude::*;
use super::account::Known;
use super::decide::Decided;

/// Header that says in one word what was done.
pub(super) const OUTCOME: HeaderName = HeaderName::from_static("x-epitome");

/// Value of that header in responses of this server, not of the provider.
pub(super) const WORD_REFUSED: &str = "refused";

impl Decided {
    /// Writes the report into a response's headers.
    pub(super) fn tell(&self, headers: &mut HeaderMap) {
        let besides = match &self.known {
            None => json!({"saved": 0}),
            Some(Known { run, full, short, earlier, .. }) => json!({
                // The conversation that the request was assigned to.
                "run": &**run,
                // Number of tokens saved in this request; in shadow mode, that would have been saved.
                "saved": full.saturating_sub(*short),
                // What earlier requests of this conversation saved, by the provider's counts. The cost is in the price
                // table's currency; 0 without prices.
                "so_far": {"saved": earlier.saved, "saved_cost": Money::millionths(earlier.saved_cost).get()},
            }),
        };
        headers.insert(OUTCOME, HeaderValue::from_static(self.outcome.in_a_word()));
        headers.insert(REPORT, told(self.report.clone(), &besides));
    }
}

/// Renders a problem as an error response in the provider's format.
pub(super) fn refused(dialect: Dialect, problem: Problem, id: &str) -> Response {
    let message = &format!("epitome: {}", problem.detail);
    let (kind, code) = (kind(problem.status), problem.code);
    let told = dialect.format().refusal(&Refusal { message, kind, code, id });
    let mut response = Response::new(Body::from(told.to_string()));
    *response.status_mut() = problem.status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(OUTCOME, HeaderValue::from_static(WORD_REFUSED));
    if let Some(seconds) = problem.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if problem.hang_up {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    // The log reads the problem from the extensions.
    response.extensions_mut().insert(problem);
    response
}

/// Returns the error type that both providers use for a status.
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
