//! Answers: JSON, and where something was read, a mark by which a client knows whether it changed.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use serde::Serialize;

use crate::problem::Problem;

/// What the client has already.
pub struct Known(Option<HeaderValue>);

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
    pub fn read(&self, value: &impl Serialize) -> Result<Response, Problem> {
        Ok(self.given(&Written::new(value)?))
    }

    /// The same of what was written down before.
    pub fn given(&self, written: &Written) -> Response {
        let mut headers = HeaderMap::new();
        // What was read may be another's tomorrow: whoever keeps it asks first.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        if let Ok(tag) = HeaderValue::from_str(&written.tag) {
            headers.insert(header::ETAG, tag);
        }
        if self.has(written.tag.trim_start_matches("W/")) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        (headers, Body::from(written.words())).into_response()
    }
}

/// Something read, written down, and a mark by which a client knows whether it changed.
#[derive(Debug, Clone)]
pub struct Written {
    /// All of them; or, where something in it grows older, those before that.
    lasting: Bytes,
    /// How old that is, in milliseconds, and since when; and what is behind it.
    aging: Option<(u64, Instant, &'static str)>,
    /// Compressed or not it says the same, hence a weak mark.
    tag: Arc<str>,
}

impl Written {
    /// Writes a value down.
    pub fn new(value: &impl Serialize) -> Result<Self, Problem> {
        Ok(Self::of(words(value)?, None))
    }

    /// The same, where the last value in it is an age in milliseconds with nothing but `behind` after it: that it grew
    /// older is no reason to send it again.
    pub fn aging(value: &impl Serialize, age: u64, behind: &'static str) -> Result<Self, Problem> {
        let mut words = words(value)?;
        // No text is after it, so that the last colon stands before that value.
        let lasting = words.iter().rposition(|byte| *byte == b':').map_or(0, |at| at.saturating_add(1));
        words.truncate(lasting);
        Ok(Self::of(words, Some((age, Instant::now(), behind))))
    }

    fn of(words: Vec<u8>, aging: Option<(u64, Instant, &'static str)>) -> Self {
        let hex = blake3::hash(&words).to_hex();
        let tag = format!("W/\"{}\"", hex.get(..24).unwrap_or_default());
        Self { lasting: words.into(), aging, tag: tag.into() }
    }

    /// About how many bytes it takes.
    pub(crate) fn len(&self) -> usize {
        self.lasting.len()
    }

    fn words(&self) -> Bytes {
        let Some((age, since, behind)) = self.aging else { return self.lasting.clone() };
        let passed = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut words = BytesMut::with_capacity(self.lasting.len().saturating_add(32));
        words.extend_from_slice(&self.lasting);
        words.extend_from_slice(format!("{}{behind}", age.saturating_add(passed)).as_bytes());
        words.freeze()
    }
}

/// What was done.
pub fn done(status: StatusCode, value: &impl Serialize) -> Result<Response, Problem> {
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
