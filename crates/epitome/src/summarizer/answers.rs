//! Answers of models, so that the same question is asked once.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hashlink::LruCache;

use super::UNKNOWN_INPUT;
use crate::lock::lock;
use crate::model::{Ask, ModelError};
use crate::writer::Writer;

/// How many answers are cached.
const MOST_ANSWERS: usize = 128;

/// How long a provider is believed that a prompt is too long for it: its model may be replaced by a larger one.
const BELIEVED: Duration = Duration::from_secs(600);

/// What came of a question: an answer that was accepted, or that the provider refused the prompt as too long. That is
/// remembered because where a fallback is in use the next summary begins with the same messages, and may be divided at
/// the same place.
#[derive(Clone)]
pub(crate) enum Answer {
    Accepted(Arc<str>),
    TooLong(Instant, ModelError),
}

/// A cache of answers, by what was asked.
pub(crate) struct Answers(Mutex<LruCache<String, Answer>>);

impl Default for Answers {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MOST_ANSWERS)))
    }
}

impl Answers {
    pub(crate) fn recall(&self, asked: &str) -> Option<Answer> {
        let answer = lock(&self.0).get(asked).cloned()?;
        let stale = matches!(&answer, Answer::TooLong(when, _) if when.elapsed() >= BELIEVED);
        (!stale).then_some(answer)
    }

    pub(crate) fn remember(&self, asked: String, answer: Answer) {
        lock(&self.0).insert(asked, answer);
    }
}

/// A hash of what a model is asked: the same prior, messages, prompt and model give the same. `None` where calling again
/// costs nothing, or where no prompt can be made of it.
pub(super) fn fingerprint(writer: &Writer, ask: &Ask) -> Option<String> {
    if !writer.model.reusable() {
        return None;
    }
    let prompt = ask.prompt(writer.model.room().unwrap_or(UNKNOWN_INPUT)).ok()?;
    let mut hasher = blake3::Hasher::new();
    for part in [writer.model.provider(), writer.model.name(), &prompt.system, &prompt.user] {
        // With their lengths, so that no two lists of parts hash the same.
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    Some(hasher.finalize().to_hex().to_string())
}
