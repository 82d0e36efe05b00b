//! Contexts that were given before, kept as they were written down.
//!
//! Agents ask again: a retry, a second reader, a question that failed at the provider. Where nothing changed since, which
//! one small row tells ([`Stamp`]), what was written down before is given again. It is never older than that row: the
//! stamp is read before the context is made.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderValue;
use epitome::Stamp;

use super::reply::Written;

/// So many bytes of them are kept.
const MOST: usize = 2 << 20;

/// A longer one is not: pictures take few tokens and many bytes.
const LONGEST: usize = 1 << 18;

/// What one takes beside its words, about.
const BESIDE: usize = 512;

/// Which context: of a session in a workspace, asked for in this way, as that route has it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Question<A> {
    pub(super) workspace: Arc<str>,
    pub(super) session: String,
    pub(super) asked: A,
}

/// A context as it was given.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) written: Written,
    /// What it holds and leaves out, where that is told in a header.
    pub(super) report: Option<HeaderValue>,
    pub(super) tokens: u64,
}

impl Given {
    fn bytes(&self) -> usize {
        let report = self.report.as_ref().map_or(0, HeaderValue::len);
        self.written.len().saturating_add(report).saturating_add(BESIDE)
    }
}

/// Those given last: two generations, the older of which is dropped when the newer is full.
pub(crate) struct Kept<A>(Mutex<Inner<A>>);

impl<A> Default for Kept<A> {
    fn default() -> Self {
        Self(Mutex::new(Inner { young: HashMap::new(), old: HashMap::new(), bytes: 0 }))
    }
}

struct Inner<A> {
    young: HashMap<Question<A>, (Stamp, Given)>,
    old: HashMap<Question<A>, (Stamp, Given)>,
    /// Of the young ones.
    bytes: usize,
}

impl<A: Eq + Hash> Kept<A> {
    /// What was given to that question, where it holds still.
    pub(super) fn get(&self, question: &Question<A>, stamp: Stamp) -> Option<Given> {
        let mut inner = self.lock();
        if let Some((then, given)) = inner.young.get(question) {
            return (*then == stamp).then(|| given.clone());
        }
        let (question, (then, given)) = inner.old.remove_entry(question)?;
        if then != stamp {
            return None;
        }
        inner.put(question, stamp, given.clone());
        Some(given)
    }

    /// Keeps what is given. The stamp was read before it was made.
    pub(super) fn put(&self, question: Question<A>, stamp: Stamp, given: Given) {
        if given.bytes() <= LONGEST {
            self.lock().put(question, stamp, given);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<A>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A: Eq + Hash> Inner<A> {
    fn put(&mut self, question: Question<A>, stamp: Stamp, given: Given) {
        let bytes = given.bytes();
        if let Some((_, before)) = self.young.remove(&question) {
            self.bytes = self.bytes.saturating_sub(before.bytes());
        }
        if self.bytes.saturating_add(bytes) > MOST / 2 {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.young.insert(question, (stamp, given));
    }
}

#[cfg(test)]
mod tests {
    use super::super::context::Asked;
    use super::*;

    fn stamp(head: u64) -> Stamp {
        Stamp { session: 1, head, revision: 0, workspace: 0 }
    }

    fn question(session: &str) -> Question<Asked> {
        Question { workspace: Arc::from("w"), session: session.to_owned(), asked: Asked::default() }
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
        let otherwise = Question { asked: Asked::of(1), ..question("a") };
        assert!(kept.get(&otherwise, stamp(1)).is_none());
    }

    #[test]
    fn no_more_is_kept_than_that_and_what_is_asked_for_stays() {
        let kept = Kept::default();
        kept.put(question("asked"), stamp(1), given(10));
        for n in 0..100 {
            kept.put(question(&n.to_string()), stamp(1), given(LONGEST / 2));
            assert!(kept.get(&question("asked"), stamp(1)).is_some());
            let inner = kept.lock();
            let of = |all: &HashMap<Question<Asked>, (Stamp, Given)>| {
                all.values().map(|(_, given)| given.bytes()).sum()
            };
            let (young, old): (usize, usize) = (of(&inner.young), of(&inner.old));
            assert!(young == inner.bytes && young + old <= MOST, "{young} and {old}");
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
