//! Request input: a body that may be missing, and the query parameters.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use epitome_http::Problem;
use epitome_http::body::{Charged, Raw, Sent, is_json};
use serde_json::Value;

use super::check::Faults;
use super::state::Honcho;

/// A body as a JSON value, `null` if there is none. Its memory counts against the limit until it is dropped.
pub(super) struct Body(pub(super) Value, pub(super) Charged);

impl FromRequest<Arc<Honcho>> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<Honcho>) -> Result<Self, Problem> {
        let json = is_json(request.headers());
        let raw = Raw::from_request(request, app).await?;
        if raw.bytes.is_empty() {
            return Ok(Self(Value::Null, raw.charged()?));
        }
        json?;
        let text = raw.bytes.clone();
        match raw.json().await {
            Ok(Sent { value, charged, .. }) => Ok(Self(value, charged)),
            Err(problem) => match serde_json::from_slice::<serde::de::IgnoredAny>(&text) {
                Err(wrong) if problem.code == "invalid" => Err(Faults::no_json(&text, &wrong).into()),
                _ => Err(problem),
            },
        }
    }
}

/// The decoded query parameters, in their order.
pub(super) struct Pairs(pub(super) Vec<(String, String)>);

impl FromRequestParts<Arc<Honcho>> for Pairs {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Honcho>) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect()))
    }
}

impl Pairs {
    /// Returns the last value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}
