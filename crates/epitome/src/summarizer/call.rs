//! One model: what it answered before, whether it may be called, the call, what its answer is worth, and a second try with the reason.

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
fn fingerprint(writer: &Writer, ask: &Ask) -> Option<String> {
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

impl Summarizer<'_> {
    /// Has one model write it: an answer that it gave before to the same question, else a new one. Where its answer is
    /// refused, it is called a second time with the reason.
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
        // `local` would only say the same again.
        let times = if writer.is_local() { 1 } else { 2 };
        let mut last = Failed::Failure(ModelError::no_answer("it was not asked").into());
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
            // The provider bills what was sent, also if nobody waits for the answer.
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

    /// Whether a model may be called: there is money for it, which is reserved, the summary is still ours to write, and
    /// the circuit of its provider is closed.
    async fn may_call(&self, writer: &Writer, ask: &Ask) -> Result<Option<Reserved>, Failed> {
        let reserved = match writer.is_local() {
            true => None,
            false => self.host.reserve(writer, &most(ask)).await?,
        };
        // The last thing that is awaited, so that a caller that slept until here notices.
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

    /// Notes for all callers whether a provider answered.
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

/// Calls a model in a task of its own, so that neither its panic nor its silence does harm.
async fn answer(model: &Arc<dyn Model>, ask: &Ask, time_out: Duration) -> Result<Reply, ModelError> {
    let time_out = model.time_out().unwrap_or(time_out);
    let (model, ask) = (Arc::clone(model), ask.clone());
    let mut call = Running(tokio::spawn(async move { model.write(&ask).await }));
    match tokio::time::timeout(time_out, &mut call.0).await {
        Ok(Ok(answer)) => answer,
        // What it panicked with may hold anything, so it is not repeated.
        Ok(Err(_)) => Err(ModelError::no_answer("the model panicked")),
        Err(_) => Err(ModelError::no_answer(&format!("no answer within {time_out:?}"))),
    }
}
