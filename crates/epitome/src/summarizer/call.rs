//! One model call: cached answer, checks, call, inspection of the answer, and a second call if it is refused.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hashlink::LruCache;

use super::draft::{Base, Draft};
use super::spending::{DROPPED, most, tally};
use super::{Failed, Summarizer, UNKNOWN_INPUT};
use crate::breaker;
use crate::hook::Running;
use crate::lock::lock;
use crate::measure::{KEPT, REUSED};
use crate::model::{Ask, Model, ModelError, Reply, Tally};
use crate::purse::Reserved;
use crate::retry::Failure;
use crate::writer::Writer;

/// Maximum number of cached answers.
const MOST_ANSWERS: usize = 128;

/// How long a provider's "the prompt is too long" is cached. Not longer, because the provider may switch to a larger model.
const BELIEVED: Duration = Duration::from_secs(600);

/// The result of a question: an accepted answer, or that the provider refused the prompt as too long. The refusal is cached
/// because with a fallback summary in use the next summary begins with the same messages, and may be divided at the same
/// place.
#[derive(Clone)]
pub(crate) enum Answer {
    Accepted(Arc<str>),
    TooLong(Instant, ModelError),
}

/// A cache of results, by the fingerprint of the question.
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

/// Returns a hash of the question: the previous summary, the messages, the prompt and the model. `None` if calling again
/// costs nothing, or if no prompt can be made of it.
fn fingerprint(writer: &Writer, ask: &Ask) -> Option<String> {
    if !writer.model.reusable() {
        return None;
    }
    let prompt = ask.prompt(writer.model.room().unwrap_or(UNKNOWN_INPUT)).ok()?;
    let mut hasher = blake3::Hasher::new();
    for part in [writer.model.provider(), writer.model.name(), &prompt.system, &prompt.user] {
        // The lengths are included, so that no two different lists of parts have the same hash.
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    Some(hasher.finalize().to_hex().to_string())
}

impl Summarizer<'_> {
    /// Lets one model write the summary: returns its cached answer to the same question, or a new one. If its answer is
    /// refused, the model is called a second time with the reason.
    pub(super) async fn by(&mut self, writer: &Writer, mut ask: Ask, base: &Base) -> Result<Draft, Failed> {
        let asked = fingerprint(writer, &ask);
        let known = match &asked {
            Some(asked) => self.host.recall(asked).await.map_err(Failed::Store)?,
            None => None,
        };
        match known {
            Some(Answer::TooLong(_, error)) => return Err(Failure::from(error).into()),
            Some(Answer::Accepted(text)) => {
                let reply = Reply::complete(text.to_string());
                if let Ok(draft) = Draft::judge(&ask, reply, base, writer.model.name()) {
                    self.spent.add(self.label.row(writer, self.settings, REUSED, &Tally::default()), None);
                    return Ok(Draft { asked, ..draft });
                }
            }
            None => {}
        }
        self.host.permit(writer, self.spent.paid).map_err(Failed::Full)?;
        // `local` would only return the same text again.
        let times = if writer.is_local() { 1 } else { 2 };
        let mut last = Failed::Failure(ModelError::no_answer("the model was not called").into());
        for _ in 0..times {
            let written = self.call(writer, &ask, base).await;
            let answer = match &written {
                Ok(draft) => Some(Answer::Accepted(draft.text.as_str().into())),
                Err(Failed::Failure(Failure::Model(error @ ModelError::TooLong { .. }))) => {
                    Some(Answer::TooLong(Instant::now(), error.clone()))
                }
                Err(_) => None,
            };
            if let (Some(asked), Some(answer)) = (&asked, answer) {
                self.host.remember(asked, answer);
            }
            match written {
                Ok(draft) => return Ok(Draft { asked, ..draft }),
                Err(Failed::Failure(Failure::Answer(refusal))) => {
                    last = Failure::Answer(refusal.clone()).into();
                    ask.refused = Some(refusal);
                }
                Err(failed) => return Err(failed),
            }
        }
        Err(last)
    }

    /// Calls a model once, and inspects its answer.
    async fn call(&mut self, writer: &Writer, ask: &Ask, base: &Base) -> Result<Draft, Failed> {
        let reserved = self.may_call(writer, ask).await?;
        if !writer.is_local() {
            // The provider bills what was sent, even if no caller waits for the answer.
            let sent = Tally { output: 0, ..most(ask) };
            self.spent.begin(self.label.row(writer, self.settings, DROPPED, &sent));
        }
        let started = Instant::now();
        let answer = answer(&writer.model, ask, self.pace.time_out).await;
        self.spent.in_progress = None;
        self.note_health(writer, answer.as_ref().err());
        let (tally, judged) = match answer {
            Ok(reply) => {
                let tally = tally(ask, &reply);
                let judged = Draft::judge(ask, reply, base, writer.model.name());
                (tally, judged.map_err(Failure::from))
            }
            Err(error) => (Tally::default(), Err(error.into())),
        };
        let outcome = match &judged {
            Ok(_) => KEPT,
            Err(Failure::Answer(refusal)) => super::draft::word(refusal),
            Err(failure) => failure.kind(),
        };
        let mut row = self.label.row(writer, self.settings, outcome, &tally);
        row.millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.spent.add(row, reserved);
        judged.map_err(Failed::Failure)
    }

    /// Checks whether a model may be called: the money for it can be reserved, the caller may still write the summary, and
    /// the circuit of its provider is closed.
    async fn may_call(&self, writer: &Writer, ask: &Ask) -> Result<Option<Reserved>, Failed> {
        let reserved = match writer.is_local() {
            true => None,
            false => self.host.reserve(writer, &most(ask)).await?,
        };
        // Nothing is awaited after this check, so that a caller that was suspended before it notices a lost lease.
        if !self.host.is_ours().await.map_err(Failed::Store)? {
            return Err(Failed::Lost);
        }
        if let Some(breakers) = self.breakers.filter(|_| !writer.is_local()) {
            let provider = writer.model.provider();
            if let Some(breaker) = lock(breakers).get_mut(provider) {
                breaker.ask(provider, &self.breaker_limits(), self.host.now())?;
            }
        }
        Ok(reserved)
    }

    /// Updates the circuit breaker of the provider, which all callers share.
    fn note_health(&self, writer: &Writer, error: Option<&ModelError>) {
        let Some(breakers) = self.breakers.filter(|_| !writer.is_local()) else { return };
        let mut breakers = lock(breakers);
        match error {
            None => drop(breakers.remove(writer.model.provider())),
            Some(error) => {
                let breaker = breakers.entry(writer.model.provider().to_owned()).or_default();
                breaker.failed(error, &self.breaker_limits(), self.host.now());
            }
        }
    }

    fn breaker_limits(&self) -> breaker::Limits {
        breaker::Limits {
            after: self.settings.summarize.breaker_after,
            pause: self.settings.summarize.breaker_for,
            most_asked: self.pace.backoff.most_asked,
        }
    }
}

/// Calls a model in a task of its own, so that a panic or a call that never ends does no harm.
async fn answer(model: &Arc<dyn Model>, ask: &Ask, time_out: Duration) -> Result<Reply, ModelError> {
    let time_out = model.time_out().unwrap_or(time_out);
    let (model, ask) = (Arc::clone(model), ask.clone());
    let mut call = Running(tokio::spawn(async move { model.write(&ask).await }));
    match tokio::time::timeout(time_out, &mut call.0).await {
        Ok(Ok(answer)) => answer,
        // The panic message may contain anything, so it is not repeated.
        Ok(Err(_)) => Err(ModelError::no_answer("the model panicked")),
        Err(_) => Err(ModelError::no_answer(&format!("no answer within {time_out:?}"))),
    }
}
