//! Extractors for the body of a request, which may be missing, and for the query parameters.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use epitome_http::Problem;
use epitome_http::body::{BodyMemory, JsonBody, RawBody, require_json};
use serde_json::Value;

use super::state::Honcho;
use super::validate::Faults;

/// The body of a request as a JSON value; `null` if there is no body. The body counts against the server's limit of
/// memory until the [`BodyMemory`] is dropped.
pub(super) struct Body(pub(super) Value, pub(super) BodyMemory);

impl FromRequest<Arc<Honcho>> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<Honcho>) -> Result<Self, Problem> {
        let is_json = require_json(request.headers());
        let raw = RawBody::from_request(request, app).await?;
        if raw.bytes.is_empty() {
            return Ok(Self(Value::Null, raw.into_memory()?));
        }
        is_json?;
        let text = raw.bytes.clone();
        match raw.json().await {
            Ok(JsonBody { value, memory, .. }) => Ok(Self(value, memory)),
            Err(problem) => match serde_json::from_slice::<serde::de::IgnoredAny>(&text) {
                Err(error) if problem.code == "invalid" => Err(Faults::no_json(&text, &error).into()),
                _ => Err(problem),
            },
        }
    }
}

/// The decoded query parameters, in the order in which they were sent.
pub(super) struct QueryParams(pub(super) Vec<(String, String)>);

impl FromRequestParts<Arc<Honcho>> for QueryParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Honcho>) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect()))
    }
}

impl QueryParams {
    /// Returns the last value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}
