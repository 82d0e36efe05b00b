//! Contexts that were given before, kept as they were written down.
//!
//! Agents ask again: a retry, a second reader, a question that failed at the provider. Where nothing changed since, which
//! one small row tells ([`Stamp`]), what was written down before is given again. It is never older than that row: the
//! stamp is read before the context is made.

use std::hash::Hash;
use std::sync::Arc;

use axum::http::HeaderValue;
use epitome::Stamp;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::reply::Written;

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
struct Bytes;

impl<A> Weighter<Question<A>, (Stamp, Given)> for Bytes {
    fn weight(&self, _: &Question<A>, (_, given): &(Stamp, Given)) -> u64 {
        given.bytes() as u64
    }
}

/// Those given last, within a number of bytes.
pub struct Kept<A>(Cache<Question<A>, (Stamp, Given), Bytes>);

impl<A: Eq + Hash> Default for Kept<A> {
    fn default() -> Self {
        // One shard, since each has its own share of the bytes. Most of them are for the newest: what is asked for again is
        // asked for within seconds.
        let (items, bytes) = (MOST / BESIDE, MOST as u64);
        let mut options = OptionsBuilder::new();
        options.shards(1).estimated_items_capacity(items).weight_capacity(bytes).hot_allocation(0.1);
        let (hasher, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        Self(match options.build() {
            Ok(options) => Cache::with_options(options, Bytes, hasher, lifecycle),
            // It fails only where one of them is left out.
            Err(_) => Cache::with_weighter(items, bytes, Bytes),
        })
    }
}

impl<A: Eq + Hash> Kept<A> {
    /// What was given to that question, where it holds still.
    pub fn get(&self, question: &Question<A>, stamp: Stamp) -> Option<Given> {
        self.0.get(question).filter(|(then, _)| *then == stamp).map(|(_, given)| given)
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
