//! Answers: JSON, and where something was read, a mark by which a client knows whether it changed. Contexts that were given
//! before are kept as they were written down.
//!
//! Agents ask again: a retry, a second reader, a question that failed at the provider. Where nothing changed since, which
//! one small row tells ([`Stamp`]), what was written down before is given again. It is never older than that row: the
//! stamp is read before the context is made.

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
    let failed =
        |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "the answer could not be written");
    serde_json::to_writer(&mut words, value).map_err(failed)?;
    Ok(words)
}

/// So many bytes of them are kept.
const MOST: usize = 2 << 20;

/// A longer one is not: pictures take few tokens and many bytes.
const LONGEST: usize = 1 << 18;

/// What one takes beside its words, about.
const BESIDE: usize = 512;

/// Which context: of a session in a workspace, asked for in this way, as that route has it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Question<A> {
    /// The workspace.
    pub workspace: Arc<str>,
    /// The session's name.
    pub session: String,
    /// The parameters.
    pub asked: A,
}

/// A context as it was given.
#[derive(Debug, Clone)]
pub struct Given {
    /// The answer.
    pub written: Written,
    /// What it holds and leaves out, where that is told in a header.
    pub report: Option<HeaderValue>,
    /// How many tokens the context has.
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

/// Those given last, within a number of bytes.
pub struct Kept<A>(Cache<Question<A>, (Stamp, Given), Weight>);

impl<A: Eq + Hash> Default for Kept<A> {
    fn default() -> Self {
        // One shard, since each has its own share of the bytes. Most of them are for the newest: what is asked for again is
        // asked for within seconds.
        let (items, bytes) = (MOST / BESIDE, MOST as u64);
        let mut options = OptionsBuilder::new();
        options.shards(1).estimated_items_capacity(items).weight_capacity(bytes).hot_allocation(0.1);
        let (hasher, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        Self(match options.build() {
            Ok(options) => Cache::with_options(options, Weight, hasher, lifecycle),
            // It fails only where one of them is left out.
            Err(_) => Cache::with_weighter(items, bytes, Weight),
        })
    }
}

impl<A: Eq + Hash> Kept<A> {
    /// What was given to that question, where it holds still.
    pub fn get(&self, question: &Question<A>, stamp: Stamp) -> Option<Given> {
        let (_, given) = self.0.get(question).filter(|(then, _)| *then == stamp)?;
        figures::given_again(given.tokens);
        Some(given)
    }

    /// Keeps what is given. The stamp was read before it was made.
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
