//! Writes one summary. The worker and the condenser share this pipeline.
//!
//! The caller creates three values:
//!
//! - an [`Input`]: the messages, the previous summary and the limits;
//! - a [`Summarizer`]: the models, the settings and the accounting;
//! - a [`Host`]: the operations that only the caller can implement, for permits, leases, cached answers and reserved
//!   money.
//!
//! The result is a [`Draft`] that passed inspection, or a [`SummaryError`]. [`Spending`] contains the cost of every
//! call, including failed calls. The caller records this cost.
//!
//! The steps are:
//!
//! 1. Run the hooks.
//! 2. If the messages are short, return them verbatim.
//! 3. Otherwise, let each model try in order, until one succeeds. For each model: look for a cached answer, take a
//!    permit, reserve money, check the lease and the circuit breaker, call the model, and inspect its answer. If the
//!    inspection refuses the answer, call the model a second time.
//!
//! The summarizer has no access to stores, sessions, slots and lists. The caller decides when a summary is due, and
//! where it is stored. The worker uses the summarizer for the slots of sessions, and `condenser::ListSummarizer` uses
//! it for message lists.

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

/// Maximum number of tokens of messages that a model with an unknown window gets in one call.
const DEFAULT_INPUT_TOKENS: Tokens = 100_000;

/// Maximum number of tokens of a prompt's rules, template and frame together.
pub(crate) const PROMPT_OVERHEAD: Tokens = 2_000;

/// Minimum size of a piece in tokens, if the messages are divided into pieces.
pub(crate) const MIN_INPUT_TOKENS: Tokens = 500;

/// The circuit breakers by provider. A provider has no entry if its last call succeeded.
pub(crate) type CircuitBreakers = Mutex<HashMap<String, CircuitBreaker>>;

/// In-memory state that several summaries share.
#[derive(Default)]
pub(crate) struct SummarizerState {
    pub(crate) breakers: CircuitBreakers,
    pub(crate) answers: AnswerCache,
}

/// The operations that only the caller can implement. The default implementations are for a caller that needs no permit
/// and no lease.
#[async_trait]
pub(crate) trait Host: Sync {
    /// Returns the current time, by the clock of the caller's records.
    fn now(&self) -> Timestamp;

    /// Takes a permit for the model that is called next, or returns how long to wait for a permit. If `paid` is true,
    /// earlier calls for the same summary have cost money. Without a permit, this money would be lost.
    fn permit(&self, _writer: &NamedModel, _paid: bool) -> Result<(), Duration> {
        Ok(())
    }

    /// Returns whether the caller may still write the summary. Nothing else is awaited between this check and the model
    /// call.
    async fn may_write(&self) -> Result<bool, Error> {
        Ok(true)
    }

    /// Reserves the maximum cost of a call. Returns `None` if no spend cap applies.
    async fn reserve(
        &self,
        writer: &NamedModel,
        max_usage: &TokenUsage,
    ) -> Result<Option<SpendReservation>, SummaryError>;

    /// Returns the cached result of a request, by its hash.
    async fn cached_answer(&self, request_hash: &str) -> Result<Option<CachedAnswer>, Error>;

    /// Caches the result of a request: an accepted answer, or the error that the prompt is too long.
    fn cache_answer(&self, _request_hash: &str, _answer: CachedAnswer) {}
}

/// The models, the settings and the accounting for one summary.
pub(crate) struct Summarizer<'a> {
    /// The models, first choice first.
    pub(crate) models: &'a [NamedModel],
    pub(crate) settings: &'a Settings,
    pub(crate) pace: &'a Pace,
    pub(crate) hooks: &'a Hooks,
    /// The circuit breakers. `None` if the models are called with a caller's own key, because failures with that key do
    /// not concern other callers.
    pub(crate) breakers: Option<&'a CircuitBreakers>,
    /// The names under which calls are recorded.
    pub(crate) label: Label,
    pub(crate) host: &'a dyn Host,
    /// The cost of the calls so far.
    pub(crate) spent: &'a mut Spending,
}

/// The messages to be summarized, and how to summarize them.
pub(crate) struct Input<'a> {
    /// The request for the model. It does not contain the text that hooks add. Its messages do not contain the bytes of
    /// media.
    pub(crate) request: SummaryRequest,
    /// The previous summary. The new summary must include its content.
    pub(crate) base: &'a Base,
    /// The positions of the first and the last message in the conversation, for hooks.
    pub(crate) span: Span,
    /// Whether the summarizer divides input that is too long for a model into pieces, and summarizes one piece after
    /// the other. If false, the summarizer returns [`SummaryError::TooLong`], and the caller divides the input and
    /// stores each step.
    pub(crate) divide: bool,
    /// Whether to wait for hooks even if `local` is the only model. `local` ignores the text that hooks add.
    pub(crate) await_hooks: bool,
}

/// Why there is no summary.
pub(crate) enum SummaryError {
    /// The input is too long for a model. The caller must divide it.
    TooLong,
    /// No model returned an acceptable summary.
    Failure(Failure),
    /// The messages contain no text, and there is no previous summary.
    NoText,
    /// The caller may no longer write the summary, for example because it lost its lease.
    LeaseLost,
    /// No permit is free, and no model was called. The caller may retry after this time.
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
    /// Writes a summary. If the messages are short, the summary contains them verbatim. Otherwise, the first model that
    /// succeeds writes the summary.
    pub(crate) async fn write(&mut self, input: Input<'_>) -> Result<Draft, SummaryError> {
        // Hooks are notified in every case, because the summary replaces the messages in every case.
        let added = self.run_before_hooks(&input).await;
        let Input { mut request, base, divide, .. } = input;
        let verbatim = || Draft::verbatim(base, &request);
        if !request.inputs.iter().any(draft::has_text) {
            // The messages contain no text to summarize, so the previous summary is still complete.
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

    /// Passes the messages to the hooks, and returns the text that the hooks add to the operator's instructions.
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

    /// Calls one model after the other until one succeeds. A model that failed is not called again for the same
    /// summary.
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
                // The models before this model were called and failed. If the caller retried until a permit for this
                // model is free, each retry would call the failed models again. Therefore the missing permit is handled
                // like a failure, with backoff.
                Err(SummaryError::NoPermit(_)) if self.spent.unrecorded.len() > before => break,
                settled => return settled,
            };
            self.spent.model_failures.push(format!("`{}` wrote no summary: {failure}", writer.name));
            match failure {
                Failure::Model(ModelError::TooLong { .. }) => too_long = true,
                // A model whose answer was refused may be called again with fewer messages, so it is not added to the
                // failed models.
                Failure::Answer(_) => {}
                _ => drop(self.spent.failed_models.insert(writer.name.clone(), failure.clone())),
            }
            last = failure;
        }
        if too_long && !divide {
            // A model that only needs shorter input may still succeed, even if other models failed for other reasons.
            return Err(SummaryError::TooLong);
        }
        // Returns the failure with the shortest wait. The caller retries after this wait. Circuit breakers then prevent
        // calls to models that need a longer wait.
        let soonest = self.spent.failed_models.values().min_by_key(|failure| failure.retry_after());
        Err(SummaryError::Failure(soonest.cloned().unwrap_or(last)))
    }

    /// Lets one model write the summary. If the model cannot read all messages in one call, it reads them piece by
    /// piece.
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
                    // The model accepts less input than its window. It gets the same messages again, in pieces of half
                    // the size.
                    halved = Some((tokens / 2).max(MIN_INPUT_TOKENS));
                }
                failed => return failed,
            }
        }
    }
}

/// Splits the messages into a first piece that fits `room`, and the rest. The returned number is the token count of the
/// first piece. It is 0 if `room` is `None`, because the messages are then not counted. A tool call and its results
/// stay in one piece, because a result means little without its call.
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

/// Passes messages that are about to be summarized to the hooks. Does not wait for the hooks.
pub(crate) fn notify_hooks(hooks: &Hooks, due: DueMessages) {
    let hooks = hooks.clone();
    tokio::spawn(async move { hooks.before(&due).await });
}

/// Returns how many tokens of messages a model can read in one call, in addition to a previous summary of `before`
/// tokens. `None` for `local`, which has no window.
pub(crate) fn input_limit(writer: &NamedModel, before: Tokens) -> Option<Tokens> {
    if writer.is_local() {
        return None;
    }
    let taken = PROMPT_OVERHEAD.saturating_add(before);
    let input = writer.model.room().map_or(DEFAULT_INPUT_TOKENS, |room| room.saturating_sub(taken));
    Some(input.max(MIN_INPUT_TOKENS))
}
