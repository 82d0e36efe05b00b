//! Writes JSON responses. A response to a read request has an `etag`. Caches rendered contexts.
//!
//! Agents often request the same context again, for example after a call to the provider has failed. If the session has
//! not changed since the first request, the server returns the cached bytes. To check this, the server reads only the
//! session's [`Stamp`], a small database row. A cached context is never older than its stamp, because the stamp is read
//! before the context is built.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use epitome::Stamp;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use serde::Serialize;

use crate::metrics;
use crate::problem::Problem;

/// The `if-none-match` header. It contains the `etag`s of responses that the client already has.
pub struct IfNoneMatch(Option<HeaderValue>);

impl<S: Send + Sync> FromRequestParts<S> for IfNoneMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self(parts.headers.get(header::IF_NONE_MATCH).cloned()))
    }
}

impl IfNoneMatch {
    fn has(&self, tag: &str) -> bool {
        let Some(tags) = self.0.as_ref().and_then(|tags| tags.to_str().ok()) else { return false };
        tags.split(',').map(|own| own.trim().trim_start_matches("W/")).any(|own| own == "*" || own == tag)
    }

    /// Responds with a value, or with 304 if the client already has this value.
    pub fn respond(&self, value: &impl Serialize) -> Result<Response, Problem> {
        Ok(self.respond_rendered(&Rendered::new(value)?))
    }

    /// Responds with a rendered value, or with 304 if the client already has this value.
    pub fn respond_rendered(&self, rendered: &Rendered) -> Response {
        let mut headers = HeaderMap::new();
        // The value may change at any time, so caches must revalidate it.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        if let Ok(tag) = HeaderValue::from_str(&rendered.tag) {
            headers.insert(header::ETAG, tag);
        }
        if self.has(rendered.tag.trim_start_matches("W/")) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        (headers, Body::from(rendered.body())).into_response()
    }
}

/// A rendered value and its `etag`.
#[derive(Debug, Clone)]
pub struct Rendered {
    /// The JSON text. If the value ends with an age, this is only the text before the age.
    text: Bytes,
    age: Option<Age>,
    /// A weak `etag`, because the response may be compressed.
    tag: Arc<str>,
}

/// An age that grows while the value is cached.
#[derive(Debug, Clone, Copy)]
struct Age {
    millis: u64,
    measured: Instant,
    /// The text after the age.
    tail: &'static str,
}

impl Rendered {
    /// Renders a value.
    pub fn new(value: &impl Serialize) -> Result<Self, Problem> {
        Ok(Self::of(to_json(value)?, None))
    }

    /// Renders a value that ends with an age in milliseconds, followed only by `tail`. The age is not part of the `etag`,
    /// so a growing age alone does not change the response.
    pub fn with_age(value: &impl Serialize, millis: u64, tail: &'static str) -> Result<Self, Problem> {
        let mut json = to_json(value)?;
        // The text after the age contains no colon. So the last colon of the JSON text is directly before the age.
        let end = json.iter().rposition(|byte| *byte == b':').map_or(0, |at| at.saturating_add(1));
        json.truncate(end);
        Ok(Self::of(json, Some(Age { millis, measured: Instant::now(), tail })))
    }

    fn of(json: Vec<u8>, age: Option<Age>) -> Self {
        let hex = blake3::hash(&json).to_hex();
        let tag = format!("W/\"{}\"", hex.get(..24).unwrap_or_default());
        Self { text: json.into(), age, tag: tag.into() }
    }

    /// Returns the approximate size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Returns the response body, with the current age.
    fn body(&self) -> Bytes {
        let Some(Age { millis, measured, tail }) = self.age else { return self.text.clone() };
        let since = u64::try_from(measured.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut body = BytesMut::with_capacity(self.text.len().saturating_add(32));
        body.extend_from_slice(&self.text);
        body.extend_from_slice(format!("{}{tail}", millis.saturating_add(since)).as_bytes());
        body.freeze()
    }
}

/// Responds with a value as JSON, without an `etag`. Used for example for the result of a change.
pub fn json_response(status: StatusCode, value: &impl Serialize) -> Result<Response, Problem> {
    let mut response = (status, Body::from(to_json(value)?)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn to_json(value: &impl Serialize) -> Result<Vec<u8>, Problem> {
    let mut json = Vec::with_capacity(1 << 10);
    let failed =
        |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "the response could not be rendered");
    serde_json::to_writer(&mut json, value).map_err(failed)?;
    Ok(json)
}

/// Maximum size of the cache, in bytes.
const MAX_CACHE_BYTES: usize = 2 << 20;

/// Maximum size of a cached context, in bytes. Larger contexts are not cached: images can make a context very large.
const MAX_ENTRY_BYTES: usize = 1 << 18;

/// Approximate size of a cache entry without its text, in bytes.
const ENTRY_OVERHEAD: usize = 512;

/// The cache key of a context: workspace, session, and the route's parameters.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ContextKey<P> {
    /// The workspace.
    pub workspace: Arc<str>,
    /// The session's name.
    pub session: String,
    /// The parameters.
    pub params: P,
}

/// A rendered context, as it was returned to a client.
#[derive(Debug, Clone)]
pub struct CachedContext {
    /// The response body.
    pub body: Rendered,
    /// The report of the context, if the route sends the report in a header.
    pub report: Option<HeaderValue>,
    /// Number of tokens of the context.
    pub tokens: u64,
}

impl CachedContext {
    fn bytes(&self) -> usize {
        let report = self.report.as_ref().map_or(0, HeaderValue::len);
        self.body.len().saturating_add(report).saturating_add(ENTRY_OVERHEAD)
    }
}

/// Computes the size of a cache entry, in bytes.
#[derive(Clone)]
struct Weight;

impl<P> Weighter<ContextKey<P>, (Stamp, CachedContext)> for Weight {
    fn weight(&self, _: &ContextKey<P>, (_, context): &(Stamp, CachedContext)) -> u64 {
        context.bytes() as u64
    }
}

/// A cache of the contexts that were returned last. Its size in bytes is limited.
pub struct ContextCache<P>(Cache<ContextKey<P>, (Stamp, CachedContext), Weight>);

impl<P: Eq + Hash> Default for ContextCache<P> {
    fn default() -> Self {
        // The cache has only one shard, because every shard can use only its own share of the bytes. Most of the space
        // is for new entries, because a context that is requested again is usually requested within seconds.
        let (items, bytes) = (MAX_CACHE_BYTES / ENTRY_OVERHEAD, MAX_CACHE_BYTES as u64);
        let mut options = OptionsBuilder::new();
        options.shards(1).estimated_items_capacity(items).weight_capacity(bytes).hot_allocation(0.1);
        let (hasher, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        Self(match options.build() {
            Ok(options) => Cache::with_options(options, Weight, hasher, lifecycle),
            // Fails only if an option is missing.
            Err(_) => Cache::with_weighter(items, bytes, Weight),
        })
    }
}

impl<P: Eq + Hash> ContextCache<P> {
    /// Returns the cached context, if it is still current.
    pub fn get(&self, key: &ContextKey<P>, stamp: Stamp) -> Option<CachedContext> {
        let (_, context) = self.0.get(key).filter(|(own, _)| *own == stamp)?;
        metrics::record_cached_context(context.tokens);
        Some(context)
    }

    /// Stores a context. The stamp must have been read before the context was built.
    pub fn put(&self, key: ContextKey<P>, stamp: Stamp, context: CachedContext) {
        if context.bytes() <= MAX_ENTRY_BYTES {
            self.0.insert(key, (stamp, context));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(head: u64) -> Stamp {
        Stamp { session: 1, head, revision: 0, workspace: 0 }
    }

    fn key(session: &str) -> ContextKey<u64> {
        ContextKey { workspace: Arc::from("w"), session: session.to_owned(), params: 0 }
    }

    fn context(bytes: usize) -> CachedContext {
        CachedContext { body: Rendered::new(&" ".repeat(bytes)).unwrap(), report: None, tokens: bytes as u64 }
    }

    #[test]
    fn a_cached_context_is_returned_only_while_its_stamp_is_current() {
        let cache = ContextCache::default();
        cache.put(key("a"), stamp(1), context(10));
        assert_eq!(cache.get(&key("a"), stamp(1)).unwrap().tokens, 10);
        for other in
            [stamp(2), stamp(0), Stamp { session: 2, ..stamp(1) }, Stamp { workspace: 1, ..stamp(1) }]
        {
            assert!(cache.get(&key("a"), other).is_none());
        }
        assert!(cache.get(&key("b"), stamp(1)).is_none());
        let run_blocking = ContextKey { workspace: Arc::from("v"), ..key("a") };
        assert!(cache.get(&run_blocking, stamp(1)).is_none());
        let otherwise = ContextKey { params: 1, ..key("a") };
        assert!(cache.get(&otherwise, stamp(1)).is_none());
    }

    #[test]
    fn the_cache_is_limited_in_bytes_and_retains_what_is_requested() {
        let cache = ContextCache::default();
        cache.put(key("requested"), stamp(1), context(10));
        for n in 0..100 {
            cache.put(key(&n.to_string()), stamp(1), context(MAX_ENTRY_BYTES / 2));
            assert!(cache.get(&key("requested"), stamp(1)).is_some());
            assert!(cache.0.weight() <= MAX_CACHE_BYTES as u64, "{}", cache.0.weight());
        }
        assert!(cache.get(&key("1"), stamp(1)).is_none());
        // Entries with the same key replace each other.
        for head in 0..100 {
            cache.put(key("requested"), stamp(head), context(MAX_ENTRY_BYTES / 2));
        }
        assert!(cache.get(&key("99"), stamp(1)).is_some());
        cache.put(key("long"), stamp(1), context(MAX_ENTRY_BYTES));
        assert!(cache.get(&key("long"), stamp(1)).is_none());
    }
}
