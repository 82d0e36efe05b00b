//! What an answer's headers say of what was done; and what is refused here, said as the provider would say it, so that its
//! client understands.

use axum::http::HeaderName;
use epitome::dialect::format::Refusal;
use epitome::settings::Money;

use super::super::condense::{REPORT, told};
use super::super::prelude::*;
use super::account::Known;
use super::decide::Decided;

/// What was done, in a word.
pub(super) const OUTCOME: HeaderName = HeaderName::from_static("x-epitome");

/// The word of answers that came from here, and not from the provider.
pub(super) const WORD_REFUSED: &str = "refused";

impl Decided {
    /// Says it in an answer's headers.
    pub(super) fn tell(&self, headers: &mut HeaderMap) {
        let besides = match &self.known {
            None => json!({"saved": 0}),
            Some(Known { run, full, short, earlier, .. }) => json!({
                // The conversation it was taken for.
                "run": &**run,
                // How many tokens the request has fewer than it came with; in shadow mode, would have.
                "saved": full.saturating_sub(*short),
                // What was saved in this conversation by the requests before, as the provider counted them. The cost is in
                // the prices' money; 0 where there are none.
                "so_far": {"saved": earlier.saved, "saved_cost": Money::millionths(earlier.saved_cost).get()},
            }),
        };
        headers.insert(OUTCOME, HeaderValue::from_static(self.outcome.in_a_word()));
        headers.insert(REPORT, told(self.report.clone(), &besides));
    }
}

/// A problem as an answer of this provider's.
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
    // For the log.
    response.extensions_mut().insert(problem);
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
