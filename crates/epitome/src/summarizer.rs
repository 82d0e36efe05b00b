//! Writes one summary: the pipeline that the worker and the condenser share.
//!
//! The caller supplies an [`Input`] (messages, previous summary, limits), a [`Summarizer`] (models, settings,
//! accounting) and a [`Host`] (what only the caller can do: permits, its lease, cached answers, reserved money). It
//! gets a [`Draft`] that passed inspection, or a [`SummaryError`]. [`Spending`] contains the cost of each call,
//! successful or not; the caller records it.
//!
//! ```text
//! hooks → short? verbatim → each model in order: cache, permit, lease, money, breaker → call → inspect → retry or next
//! ```
//!
//! The summarizer has no access to stores, sessions, slots and lists. The caller decides when a summary is due and
//! where it is stored. The worker calls it for slots of sessions, and `condenser::ListSummarizer` for message lists.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use epitome_core::message::{Span, Timestamp, Tokens};
use epitome_core::prompt::SMALL;
use epitome_core::tokens::Counter;

use crate::circuit_breaker::CircuitBreaker;
use crate::error::Error;
use crate::hook::{DueMessages, Hooks};
use crate::model::{ModelError, SummaryInput, SummaryRequest, TokenUsage};
use crate::named_model::NamedModel;
use crate::pace::Pace;
use crate::retry::Failure;
use crate::settings::Settings;
use crate::spend_reservations::SpendReservation;

mod call;
mod draft;
mod spending;

use call::AnswerCache;
pub(crate) use call::CachedAnswer;
pub(crate) use draft::{Base, Draft, without_media_bytes};
pub(crate) use spending::{Label, Spending};

/// Tokens of messages that a model with an unknown window reads at once.
const DEFAULT_INPUT_TOKENS: Tokens = 100_000;

/// Upper bound for the tokens of a prompt's rules, template and frame.
pub(crate) const PROMPT_OVERHEAD: Tokens = 2_000;

/// Minimum size of a piece of messages when input is divided, in tokens.
pub(crate) const MIN_INPUT_TOKENS: Tokens = 500;

/// The circuit breakers of providers that failed lately, by provider.
pub(crate) type CircuitBreakers = Mutex<HashMap<String, CircuitBreaker>>;

/// In-memory state that several summaries share.
#[derive(Default)]
pub(crate) struct SummarizerState {
    pub(crate) breakers: CircuitBreakers,
    pub(crate) answers: AnswerCache,
}

/// What only the caller can do while a summary is written. The defaults are for a caller without competitors.
#[async_trait]
pub(crate) trait Host: Sync {
    /// Returns the current time, by the clock of the caller's records.
    fn now(&self) -> Timestamp;

    /// Takes a permit for the model that is called next, or returns how long to wait for one. `paid` means that earlier
    /// calls for the same summary were paid for; without a permit that money would be lost.
    fn permit(&self, _writer: &NamedModel, _paid: bool) -> Result<(), Duration> {
        Ok(())
    }

    /// Returns whether the caller may still write the summary. Awaited last before each call.
    async fn may_write(&self) -> Result<bool, Error> {
        Ok(true)
    }

    /// Reserves what a call may cost, if a spend cap applies.
    async fn reserve(
        &self,
        writer: &NamedModel,
        max_usage: &TokenUsage,
    ) -> Result<Option<SpendReservation>, SummaryError>;

    /// Returns the cached result of a request, by its hash.
    async fn cached_answer(&self, request_hash: &str) -> Result<Option<CachedAnswer>, Error>;

    /// Caches a result: an accepted answer, or that the prompt was refused as too long.
    fn cache_answer(&self, _request_hash: &str, _answer: CachedAnswer) {}
}

/// The models, the settings and the accounting for one summary.
pub(crate) struct Summarizer<'a> {
    /// First choice first.
    pub(crate) models: &'a [NamedModel],
    pub(crate) settings: &'a Settings,
    pub(crate) pace: &'a Pace,
    pub(crate) hooks: &'a Hooks,
    /// `None` for models with a caller's own key: their failures say nothing about requests of other callers.
    pub(crate) breakers: Option<&'a CircuitBreakers>,
    /// The names under which calls are recorded.
    pub(crate) label: Label,
    pub(crate) host: &'a dyn Host,
    /// The cost so far.
    pub(crate) spent: &'a mut Spending,
}

/// What is to be summarized.
pub(crate) struct Input<'a> {
    /// The request for the model, without the text that hooks add. Its messages are without the bytes of media.
    pub(crate) request: SummaryRequest,
    /// The summary that the new one is built on and must include.
    pub(crate) base: &'a Base,
    /// The position of the messages in the conversation, for hooks.
    pub(crate) span: Span,
    /// Whether input that is too long for a model is divided here, one piece after the other. A caller that plans and
    /// stores the steps itself gets [`SummaryError::TooLong`] instead.
    pub(crate) divide: bool,
    /// Whether to wait for hooks even if only `local` writes, which ignores the text that they add.
    pub(crate) await_hooks: bool,
}

/// Why there is no summary.
pub(crate) enum SummaryError {
    /// The input is too long for a model, and the caller divides it.
    TooLong,
    /// No model returned an acceptable summary.
    Failure(Failure),
    /// There are messages, but they contain no text.
    NoText,
    /// The caller may no longer write the summary.
    LeaseLost,
    /// No permit is free, and no model was called. Try again after this time.
    NoPermit(Duration),
    /// The store failed.
    Store(Error),
}

impl From<Failure> for SummaryError {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl Summarizer<'_> {
    /// Writes a summary: the messages verbatim if they are short, otherwise by the first model that succeeds.
    pub(crate) async fn write(&mut self, input: Input<'_>) -> Result<Draft, SummaryError> {
        // Hooks are notified in every case: the messages leave the window, no matter which model writes.
        let added = self.run_before_hooks(&input).await;
        let Input { mut request, base, divide, .. } = input;
        let verbatim = || Draft::verbatim(base, &request);
        if !request.inputs.iter().any(draft::has_text) {
            // There is nothing to summarize. The previous summary already contains everything.
            return verbatim().filter(|_| base.text.is_some()).ok_or(SummaryError::NoText);
        }
        if request.replaces < SMALL
            && let Some(draft) = verbatim()
        {
            return Ok(draft);
        }
        let texts: Vec<&str> =
            [&*request.instructions, &added].into_iter().filter(|text| !text.is_empty()).collect();
        request.instructions = texts.join("\n\n").into();
        self.by_any_model(&request, base, divide).await
    }

    /// Passes the messages to hooks, and returns what the hooks add to the operator's instructions.
    async fn run_before_hooks(&mut self, input: &Input<'_>) -> String {
        if self.hooks.is_empty() {
            return String::new();
        }
        let messages = input.request.inputs.iter().filter_map(SummaryInput::message).cloned();
        let due = self.label.due_messages(input.span, messages.collect());
        if !input.await_hooks && self.models.iter().all(NamedModel::is_local) {
            notify_hooks(self.hooks, due);
            return String::new();
        }
        let added = self.hooks.before(&due).await;
        self.spent.hook_problems = added.problems;
        added.text
    }

    /// Tries one model after the other. A model that failed is not tried again for the same summary.
    async fn by_any_model(
        &mut self,
        request: &SummaryRequest,
        base: &Base,
        divide: bool,
    ) -> Result<Draft, SummaryError> {
        let mut last = Failure::from(ModelError::no_answer("no model is named in the settings"));
        let mut too_long = false;
        let before = self.spent.unrecorded.len();
        self.spent.paid = before > 0;
        for writer in self.models {
            if self.spent.failed_models.contains_key(&writer.name) {
                continue;
            }
            let written = match divide {
                true => self.in_pieces(writer, request, base).await,
                false => self.by_model(writer, request.clone(), base).await,
            };
            let failure = match written {
                Err(SummaryError::Failure(failure)) => failure,
                // The models before it were called and failed, and would be called again each time without a permit for
                // this one. So the missing permit is handled like a failure, with backoff.
                Err(SummaryError::NoPermit(_)) if self.spent.unrecorded.len() > before => break,
                settled => return settled,
            };
            self.spent.model_failures.push(format!("`{}` wrote no summary: {failure}", writer.name));
            match failure {
                Failure::Model(ModelError::TooLong { .. }) => too_long = true,
                // A model whose answer was refused may be called again for a smaller piece. A model that failed may
                // not.
                Failure::Answer(_) => {}
                _ => drop(self.spent.failed_models.insert(writer.name.clone(), failure.clone())),
            }
            last = failure;
        }
        if too_long && !divide {
            // Even if other models failed for other reasons, this model may still write a summary of fewer messages.
            return Err(SummaryError::TooLong);
        }
        // The caller waits for the model that may be called soonest. The circuit breakers protect the others.
        let soonest = self.spent.failed_models.values().min_by_key(|failure| failure.retry_after());
        Err(SummaryError::Failure(soonest.cloned().unwrap_or(last)))
    }

    /// Lets one model write the summary, piece by piece if it cannot read everything at once.
    async fn in_pieces(
        &mut self,
        writer: &NamedModel,
        request: &SummaryRequest,
        base: &Base,
    ) -> Result<Draft, SummaryError> {
        let mut rest = &*request.inputs;
        let mut intermediate: Option<Base> = None;
        let mut halved = None;
        loop {
            let base = intermediate.as_ref().unwrap_or(base);
            let room = halved.or_else(|| input_limit(writer, base.tokens));
            let (piece, left, tokens) = first_piece(rest, room, &request.counter);
            let through =
                piece.last().and_then(SummaryInput::message).map_or(request.through, |last| last.seq);
            let part = match piece.len() == request.inputs.len() {
                true => request.clone(),
                false => SummaryRequest {
                    previous: base.text.clone(),
                    extracts: base.extracts.clone(),
                    through,
                    replaces: tokens.saturating_add(base.tokens),
                    inputs: piece.into(),
                    ..request.clone()
                },
            };
            match self.by_model(writer, part, base).await {
                Ok(draft) if left.is_empty() => return Ok(draft),
                Ok(draft) => (intermediate, rest) = (Some(draft.base(through)), left),
                Err(SummaryError::Failure(Failure::Model(ModelError::TooLong { .. })))
                    if piece.len() > 1 && tokens > MIN_INPUT_TOKENS =>
                {
                    // The model reads less than its window says: the same input again, in halves.
                    halved = Some((tokens / 2).max(MIN_INPUT_TOKENS));
                }
                failed => return failed,
            }
        }
    }
}

/// Splits messages: returns the first ones that fit, the rest, and the tokens of the first ones if they were counted. A
/// tool call is not separated from its results: a result means little without its call.
fn first_piece<'t>(
    inputs: &'t [SummaryInput],
    room: Option<Tokens>,
    counter: &Counter,
) -> (&'t [SummaryInput], &'t [SummaryInput], Tokens) {
    let Some(room) = room else { return (inputs, &[], 0) };
    let (mut sum, mut end, mut at_end): (Tokens, usize, Tokens) = (0, 0, 0);
    for (at, input) in inputs.iter().enumerate() {
        let answers = input.message().is_some_and(|message| message.results().next().is_some());
        if at > 0 && !answers {
            (end, at_end) = (at, sum);
        }
        sum = sum.saturating_add(input.message().map_or(0, |message| counter.message(message)));
        if sum > room && end > 0 {
            let (piece, left) = inputs.split_at_checked(end).unwrap_or((inputs, &[]));
            return (piece, left, at_end);
        }
    }
    (inputs, &[], sum)
}

/// Passes messages that are about to be summarized to hooks, without waiting for the hooks.
pub(crate) fn notify_hooks(hooks: &Hooks, due: DueMessages) {
    let hooks = hooks.clone();
    tokio::spawn(async move { hooks.before(&due).await });
}

/// Returns how many tokens of messages a model can read at once, next to a previous summary of `before` tokens. `None`
/// for `local`, which has no window.
pub(crate) fn input_limit(writer: &NamedModel, before: Tokens) -> Option<Tokens> {
    if writer.is_local() {
        return None;
    }
    let taken = PROMPT_OVERHEAD.saturating_add(before);
    let input = writer.model.room().map_or(DEFAULT_INPUT_TOKENS, |room| room.saturating_sub(taken));
    Some(input.max(MIN_INPUT_TOKENS))
}
