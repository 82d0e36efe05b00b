//! Contexts that were given before, kept as they were written down.
//!
//! Agents ask again: a retry, a second reader, a question that failed at the provider. Where nothing changed since, which
//! one small row tells ([`Stamp`]), what was written down before is given again. It is never older than that row: the
//! stamp is read before the context is made.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderValue;
use epitome::Stamp;

use super::context::Asked;
use super::reply::Written;

/// So many bytes of them are kept.
const MOST: usize = 16 << 20;

/// A longer one is not: pictures take few tokens and many bytes.
const LONGEST: usize = 1 << 20;

/// What one takes beside its words, about.
const BESIDE: usize = 512;

/// Which context: of a session in a workspace, asked for in this way.
pub(super) type Question = (Arc<str>, String, Asked);

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
#[derive(Default)]
pub(crate) struct Kept(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    young: HashMap<Question, (Stamp, Given)>,
    old: HashMap<Question, (Stamp, Given)>,
    /// Of the young ones.
    bytes: usize,
}

impl Kept {
    /// What was given to that question, where it holds still.
    pub(super) fn get(&self, question: &Question, stamp: Stamp) -> Option<Given> {
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
    pub(super) fn put(&self, question: Question, stamp: Stamp, given: Given) {
        if given.bytes() <= LONGEST {
            self.lock().put(question, stamp, given);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn put(&mut self, question: Question, stamp: Stamp, given: Given) {
        let bytes = given.bytes();
        if self.bytes.saturating_add(bytes) > MOST / 2 {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some((_, before)) = self.young.insert(question, (stamp, given)) {
            self.bytes = self.bytes.saturating_sub(before.bytes());
        }
    }
}
