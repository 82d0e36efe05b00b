//! Writes JSON responses, with an `etag` for values that were read. Caches rendered contexts.
//!
//! Agents often request the same context again: a retry, a second reader, a call that failed at the provider. If nothing
//! has changed, which one small database row shows ([`Stamp`]), the cached bytes are returned. They are never older than the
//! stamp, because the stamp is read before the context is built.

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

use crate::figures;
use crate::problem::Problem;

/// The `if-none-match` header: what the client has already.
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

    /// Responds with a value that was read, or with 304 if the client has it already.
    pub fn read(&self, value: &impl Serialize) -> Result<Response, Problem> {
        Ok(self.given(&Written::new(value)?))
    }

    /// Responds with a rendered value, or with 304 if the client has it already.
    pub fn given(&self, written: &Written) -> Response {
        let mut headers = HeaderMap::new();
        // The value may change at any time, so caches must revalidate it.
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

/// A rendered value and its `etag`.
#[derive(Debug, Clone)]
pub struct Written {
    /// The JSON text; or, if it ends with an age, the text before the age.
    lasting: Bytes,
    /// The age in milliseconds, when it was measured, and the text after it.
    aging: Option<(u64, Instant, &'static str)>,
    /// A weak `etag`, because the response may be compressed.
    tag: Arc<str>,
}

impl Written {
    /// Renders a value.
    pub fn new(value: &impl Serialize) -> Result<Self, Problem> {
        Ok(Self::of(words(value)?, None))
    }

    /// Renders a value that ends with an age in milliseconds, followed only by `behind`. The age is not part of the `etag`,
    /// so a growing age alone does not change the response.
    pub fn aging(value: &impl Serialize, age: u64, behind: &'static str) -> Result<Self, Problem> {
        let mut words = words(value)?;
        // No string follows the age, so the last colon is the one before it.
        let lasting = words.iter().rposition(|byte| *byte == b':').map_or(0, |at| at.saturating_add(1));
        words.truncate(lasting);
        Ok(Self::of(words, Some((age, Instant::now(), behind))))
    }

    fn of(words: Vec<u8>, aging: Option<(u64, Instant, &'static str)>) -> Self {
        let hex = blake3::hash(&words).to_hex();
        let tag = format!("W/\"{}\"", hex.get(..24).unwrap_or_default());
        Self { lasting: words.into(), aging, tag: tag.into() }
    }

    /// Returns the approximate size in bytes.
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

/// Responds with the result of a change.
pub fn done(status: StatusCode, value: &impl Serialize) -> Result<Response, Problem> {
    let mut response = (status, Body::from(words(value)?)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn words(value: &impl Serialize) -> Result<Vec<u8>, Problem> {
    let mut words = Vec::with_capacity(1 << 10);
    let failed =
        |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "the response could not be written");
    serde_json::to_writer(&mut words, value).map_err(failed)?;
    Ok(words)
}

/// Maximum size of the cache, in bytes.
const MOST: usize = 2 << 20;

/// Maximum size of a cached context, in bytes. Images take few tokens and many bytes.
const LONGEST: usize = 1 << 18;

/// Approximate size of a cache entry without its text, in bytes.
const BESIDE: usize = 512;

/// The cache key of a context: workspace, session, and the route's parameters.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Question<A> {
    /// The workspace.
    pub workspace: Arc<str>,
    /// The session's name.
    pub session: String,
    /// The parameters.
    pub asked: A,
}

/// A context as it was returned.
#[derive(Debug, Clone)]
pub struct Given {
    /// The response body.
    pub written: Written,
    /// The report, if it is sent in a header.
    pub report: Option<HeaderValue>,
    /// Number of tokens of the context.
    pub tokens: u64,
}

impl Given {
    fn bytes(&self) -> usize {
        let report = self.report.as_ref().map_or(0, HeaderValue::len);
        self.written.len().saturating_add(report).saturating_add(BESIDE)
    }
}

/// Weighs an entry in bytes.
#[derive(Clone)]
struct Weight;

impl<A> Weighter<Question<A>, (Stamp, Given)> for Weight {
    fn weight(&self, _: &Question<A>, (_, given): &(Stamp, Given)) -> u64 {
        given.bytes() as u64
    }
}

/// A cache of the contexts that were returned last, limited in bytes.
pub struct Kept<A>(Cache<Question<A>, (Stamp, Given), Weight>);

impl<A: Eq + Hash> Default for Kept<A> {
    fn default() -> Self {
        // One shard, because every shard has its own share of the bytes. Most space is for new entries: if a context is
        // requested again, then usually within seconds.
        let (items, bytes) = (MOST / BESIDE, MOST as u64);
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

impl<A: Eq + Hash> Kept<A> {
    /// Returns the cached context, if it is still current.
    pub fn get(&self, question: &Question<A>, stamp: Stamp) -> Option<Given> {
        let (_, given) = self.0.get(question).filter(|(then, _)| *then == stamp)?;
        figures::given_again(given.tokens);
        Some(given)
    }

    /// Stores a context. The stamp must have been read before the context was built.
    pub fn put(&self, question: Question<A>, stamp: Stamp, given: Given) {
        if given.bytes() <= LONGEST {
            self.0.insert(question, (stamp, given));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(head: u64) -> Stamp {
        Stamp { session: 1, head, revision: 0, workspace: 0 }
    }

    fn question(session: &str) -> Question<u64> {
        Question { workspace: Arc::from("w"), session: session.to_owned(), asked: 0 }
    }

    fn given(bytes: usize) -> Given {
        Given { written: Written::new(&" ".repeat(bytes)).unwrap(), report: None, tokens: bytes as u64 }
    }

    #[test]
    fn what_was_given_is_given_again_only_while_it_holds() {
        let kept = Kept::default();
        kept.put(question("a"), stamp(1), given(10));
        assert_eq!(kept.get(&question("a"), stamp(1)).unwrap().tokens, 10);
        for other in
            [stamp(2), stamp(0), Stamp { session: 2, ..stamp(1) }, Stamp { workspace: 1, ..stamp(1) }]
        {
            assert!(kept.get(&question("a"), other).is_none());
        }
        assert!(kept.get(&question("b"), stamp(1)).is_none());
        let elsewhere = Question { workspace: Arc::from("v"), ..question("a") };
        assert!(kept.get(&elsewhere, stamp(1)).is_none());
        let otherwise = Question { asked: 1, ..question("a") };
        assert!(kept.get(&otherwise, stamp(1)).is_none());
    }

    #[test]
    fn no_more_is_kept_than_that_and_what_is_asked_for_stays() {
        let kept = Kept::default();
        kept.put(question("asked"), stamp(1), given(10));
        for n in 0..100 {
            kept.put(question(&n.to_string()), stamp(1), given(LONGEST / 2));
            assert!(kept.get(&question("asked"), stamp(1)).is_some());
            assert!(kept.0.weight() <= MOST as u64, "{}", kept.0.weight());
        }
        assert!(kept.get(&question("1"), stamp(1)).is_none());
        // The same question takes its place only once.
        for head in 0..100 {
            kept.put(question("asked"), stamp(head), given(LONGEST / 2));
        }
        assert!(kept.get(&question("99"), stamp(1)).is_some());
        kept.put(question("long"), stamp(1), given(LONGEST));
        assert!(kept.get(&question("long"), stamp(1)).is_none());
    }
}
