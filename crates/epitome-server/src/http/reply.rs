//! Answers: JSON, and where something was read, a mark by which a client knows whether it changed.

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::problem::Problem;

/// What the client has already.
pub(crate) struct Known(Option<HeaderValue>);

impl<S: Send + Sync> FromRequestParts<S> for Known {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self(parts.headers.get(header::IF_NONE_MATCH).cloned()))
    }
}

impl Known {
    fn has(&self, tag: &str) -> bool {
        let Some(known) = self.0.as_ref().and_then(|known| known.to_str().ok()) else { return false };
        known
            .split(',')
            .map(|known| known.trim().trim_start_matches("W/"))
            .any(|known| known == "*" || known == tag)
    }

    /// What was read: the whole of it, or that it is what the client has.
    pub(crate) fn read(&self, value: &impl Serialize) -> Result<Response, Problem> {
        let words = words(value)?;
        let hash = blake3::hash(&words);
        Ok(self.tagged(words, hash))
    }

    /// The same, where the last value in it changes by itself, which is no reason to send it again.
    pub(crate) fn read_aging(&self, value: &impl Serialize) -> Result<Response, Problem> {
        let words = words(value)?;
        // No text is after it, so that the last colon stands before that value.
        let lasting = words.iter().rposition(|byte| *byte == b':').unwrap_or(words.len());
        let hash = blake3::hash(words.get(..lasting).unwrap_or_default());
        Ok(self.tagged(words, hash))
    }

    fn tagged(&self, words: Vec<u8>, hash: blake3::Hash) -> Response {
        let hex = hash.to_hex();
        let tag = format!("\"{}\"", hex.get(..24).unwrap_or_default());
        let mut headers = HeaderMap::new();
        // What was read may be another's tomorrow: whoever keeps it asks first. Compressed or not it says the same,
        // hence a weak mark.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        if let Ok(tag) = HeaderValue::from_str(&format!("W/{tag}")) {
            headers.insert(header::ETAG, tag);
        }
        if self.has(&tag) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        (headers, Body::from(words)).into_response()
    }
}

/// What was done.
pub(crate) fn done(status: StatusCode, value: &impl Serialize) -> Result<Response, Problem> {
    let mut response = (status, Body::from(words(value)?)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn words(value: &impl Serialize) -> Result<Vec<u8>, Problem> {
    let mut words = Vec::with_capacity(1 << 10);
    match serde_json::to_writer(&mut words, value) {
        Ok(()) => Ok(words),
        Err(_) => {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            Err(Problem::new(status, "failed", "the answer could not be written"))
        }
    }
}
