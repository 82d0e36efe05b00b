//! Lets one model write a summary: returns a cached answer, or calls the model and inspects its answer. If the answer
//! is refused, calls the model a second time.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hashlink::LruCache;

use super::draft::{Base, Draft, refusal_code};
use super::spending::{DROPPED, max_usage, usage_of};
use super::{DEFAULT_INPUT_TOKENS, Summarizer, SummaryError};
use crate::circuit_breaker::BreakerLimits;
use crate::hook::AbortOnDrop;
use crate::lock::lock;
use crate::metrics::{ACCEPTED, REUSED};
use crate::model::{Model, ModelError, Reply, SummaryRequest, TokenUsage};
use crate::named_model::NamedModel;
use crate::retry::Failure;
use crate::spend_reservations::SpendReservation;

/// Maximum number of cached answers.
const MAX_ANSWERS: usize = 128;

/// How long the cache stores the error that a prompt is too long. The time is short, because the provider may switch to
/// a model with a larger window.
const TOO_LONG_TTL: Duration = Duration::from_secs(600);

/// The cached result of a request: an accepted answer, or the error that the prompt is too long. The error is cached
/// because the same prompt can occur again: while a fallback summary is in use, the model's next summary begins with
/// the same messages, and these messages may be divided at the same position.
#[derive(Clone)]
pub(crate) enum CachedAnswer {
    Accepted(Arc<str>),
    TooLong(Instant, ModelError),
}

/// An LRU cache of results, by the hash of the request.
pub(crate) struct AnswerCache(Mutex<LruCache<String, CachedAnswer>>);

impl Default for AnswerCache {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_ANSWERS)))
    }
}

impl AnswerCache {
    pub(crate) fn get(&self, request_hash: &str) -> Option<CachedAnswer> {
        let answer = lock(&self.0).get(request_hash).cloned()?;
        let stale = matches!(&answer, CachedAnswer::TooLong(when, _) if when.elapsed() >= TOO_LONG_TTL);
        (!stale).then_some(answer)
    }

    pub(crate) fn insert(&self, request_hash: String, answer: CachedAnswer) {
        lock(&self.0).insert(request_hash, answer);
    }
}

/// Returns a hash of the model and the prompt. The prompt contains the previous summary and the messages. Returns
/// `None` if the model's answers are not reused, or if no prompt can be built.
fn request_hash(writer: &NamedModel, request: &SummaryRequest) -> Option<String> {
    if !writer.model.reusable() {
        return None;
    }
    let prompt = request.prompt(writer.model.room().unwrap_or(DEFAULT_INPUT_TOKENS)).ok()?;
    let mut hasher = blake3::Hasher::new();
    for part in [writer.model.provider(), writer.model.name(), &prompt.system, &prompt.user] {
        // The lengths are included, so that no two different lists of parts have the same hash.
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    Some(hasher.finalize().to_hex().to_string())
}

impl Summarizer<'_> {
    /// Lets one model write the summary. Returns the cached answer to the same request, or a new answer of the model.
    /// If the inspection refuses the new answer, the model is called a second time, with the reason in the prompt.
    pub(super) async fn by_model(
        &mut self,
        writer: &NamedModel,
        mut request: SummaryRequest,
        base: &Base,
    ) -> Result<Draft, SummaryError> {
        let request_hash = request_hash(writer, &request);
        let cached = match &request_hash {
            Some(request_hash) => self.host.cached_answer(request_hash).await.map_err(SummaryError::Store)?,
            None => None,
        };
        match cached {
            Some(CachedAnswer::TooLong(_, error)) => return Err(Failure::from(error).into()),
            Some(CachedAnswer::Accepted(text)) => {
                let reply = Reply::complete(text.to_string());
                if let Ok(draft) = Draft::from_reply(&request, reply, base, writer.model.name()) {
                    self.spent.call_ended(
                        self.label.row(writer, self.settings, REUSED, &TokenUsage::default()),
                        None,
                    );
                    return Ok(Draft { request_hash, ..draft });
                }
            }
            None => {}
        }
        self.host.permit(writer, self.spent.paid).map_err(SummaryError::NoPermit)?;
        // A second call of `local` would only return the same text.
        let times = if writer.is_local() { 1 } else { 2 };
        let mut last = SummaryError::Failure(ModelError::no_answer("the model was not called").into());
        for _ in 0..times {
            let written = self.call(writer, &request, base).await;
            let answer = match &written {
                Ok(draft) => Some(CachedAnswer::Accepted(draft.text.as_str().into())),
                Err(SummaryError::Failure(Failure::Model(error @ ModelError::TooLong { .. }))) => {
                    Some(CachedAnswer::TooLong(Instant::now(), error.clone()))
                }
                Err(_) => None,
            };
            if let (Some(request_hash), Some(answer)) = (&request_hash, answer) {
                self.host.cache_answer(request_hash, answer);
            }
            match written {
                Ok(draft) => return Ok(Draft { request_hash, ..draft }),
                Err(SummaryError::Failure(Failure::Answer(refusal))) => {
                    last = Failure::Answer(refusal.clone()).into();
                    request.refused = Some(refusal);
                }
                Err(failed) => return Err(failed),
            }
        }
        Err(last)
    }

    /// Calls the model once, and inspects its answer.
    async fn call(
        &mut self,
        writer: &NamedModel,
        request: &SummaryRequest,
        base: &Base,
    ) -> Result<Draft, SummaryError> {
        let reserved = self.may_call(writer, request).await?;
        if !writer.is_local() {
            // If this call is dropped, its input tokens are recorded, because the provider bills them even if no caller
            // waits for the answer.
            let sent = TokenUsage { output: 0, ..max_usage(request) };
            self.spent.call_started(self.label.row(writer, self.settings, DROPPED, &sent));
        }
        let started = Instant::now();
        let answer = answer(&writer.model, request, self.pace.timeout).await;
        self.spent.in_progress = None;
        self.update_breaker(writer, answer.as_ref().err());
        let (usage, inspected) = match answer {
            Ok(reply) => {
                let usage = usage_of(request, &reply);
                let inspected = Draft::from_reply(request, reply, base, writer.model.name());
                (usage, inspected.map_err(Failure::from))
            }
            Err(error) => (TokenUsage::default(), Err(error.into())),
        };
        let outcome = match &inspected {
            Ok(_) => ACCEPTED,
            Err(Failure::Answer(refusal)) => refusal_code(refusal),
            Err(failure) => failure.kind(),
        };
        let mut row = self.label.row(writer, self.settings, outcome, &usage);
        row.millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.spent.call_ended(row, reserved);
        inspected.map_err(SummaryError::Failure)
    }

    /// Checks that the money for a call can be reserved, that the caller may still write the summary, and that the
    /// circuit of the provider is closed. Returns the reservation.
    async fn may_call(
        &self,
        writer: &NamedModel,
        request: &SummaryRequest,
    ) -> Result<Option<SpendReservation>, SummaryError> {
        let reserved = match writer.is_local() {
            true => None,
            false => self.host.reserve(writer, &max_usage(request)).await?,
        };
        // Nothing is awaited between this check and the model call. A task that was suspended for a long time therefore
        // notices a lost lease before the call.
        if !self.host.may_write().await.map_err(SummaryError::Store)? {
            return Err(SummaryError::LeaseLost);
        }
        if let Some(breakers) = self.breakers.filter(|_| !writer.is_local()) {
            let provider = writer.model.provider();
            if let Some(breaker) = lock(breakers).get_mut(provider) {
                breaker.try_call(provider, &self.breaker_limits(), self.host.now())?;
            }
        }
        Ok(reserved)
    }

    /// Updates the provider's circuit breaker, which all callers share. `error` is `None` if the model answered.
    fn update_breaker(&self, writer: &NamedModel, error: Option<&ModelError>) {
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

    fn breaker_limits(&self) -> BreakerLimits {
        BreakerLimits {
            after: self.settings.summarize.breaker_after,
            pause: self.settings.summarize.breaker_for,
            max_retry_after: self.pace.backoff.max_retry_after,
        }
    }
}

/// Calls a model in a separate task, so that a panic or a call that never ends does not stop the caller.
async fn answer(
    model: &Arc<dyn Model>,
    request: &SummaryRequest,
    timeout: Duration,
) -> Result<Reply, ModelError> {
    let timeout = model.timeout().unwrap_or(timeout);
    let (model, request) = (Arc::clone(model), request.clone());
    let mut call = AbortOnDrop(tokio::spawn(async move { model.write(&request).await }));
    match tokio::time::timeout(timeout, &mut call.0).await {
        Ok(Ok(answer)) => answer,
        // The panic message may contain any text, so it is not included.
        Ok(Err(_)) => Err(ModelError::no_answer("the model panicked")),
        Err(_) => Err(ModelError::no_answer(&format!("no answer within {timeout:?}"))),
    }
}
