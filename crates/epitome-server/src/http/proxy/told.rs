//! What an answer's headers say of what was done; and what is refused here, said as the provider would say it, so that its
//! client understands.

use axum::http::HeaderName;
use epitome::Report;
use epitome::dialect::format::Refusal;
use epitome::settings::Money;

use super::super::condense::{REPORT, ascii, told_as};
use super::super::prelude::*;
use super::account::Known;
use super::decide::Decided;

/// What was done, in a word.
pub(super) const OUTCOME: HeaderName = HeaderName::from_static("x-epitome");

/// The word of answers that came from here, and not from the provider.
pub(super) const WORD_REFUSED: &str = "refused";

#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    report: &'a Report,
    /// The conversation it was taken for.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a str>,
    /// How many tokens the request has fewer than it came with; in shadow mode, would have.
    saved: u64,
    /// What was saved in this conversation by the requests before, as the provider counted them.
    #[serde(skip_serializing_if = "Option::is_none")]
    so_far: Option<Value>,
}

impl Decided {
    /// Says it in an answer's headers.
    pub(super) fn tell(&self, headers: &mut HeaderMap) {
        headers.insert(OUTCOME, HeaderValue::from_static(self.outcome.in_a_word()));
        headers.insert(REPORT, told_as(self.report.clone(), |report| self.text_of(report)));
    }

    fn text_of(&self, report: &Report) -> String {
        let known = self.known.as_ref();
        ascii(&Told {
            report,
            run: known.map(|known| &*known.run),
            saved: known.map_or(0, |known| known.full.saturating_sub(known.short)),
            // The cost is in the prices' money; 0 where nobody knows them.
            so_far: known.map(|Known { earlier, .. }| {
                json!({"saved": earlier.saved, "saved_cost": Money::millionths(earlier.saved_cost).get()})
            }),
        })
    }
}

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
