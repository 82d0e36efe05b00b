//! Connects a condenser to the [summarizer](crate::summarizer), and converts the results.
//!
//! The cost of each model call is reported, even if the call failed. If the condenser works for a workspace, the cost
//! is also written to the workspace's usage records.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use epitome_core::condense::CondensePlan;
use epitome_core::inspect::Refusal;
use epitome_core::local::Extracts;
use epitome_core::message::{Message, Seq, Timestamp};
use epitome_core::slot::Limit;
use epitome_core::tokens::Counter;
use epitome_core::track::Tracker;

use super::ready::ModelCall;
use crate::error::Error;
use crate::hook::Hooks;
use crate::lock::lock;
use crate::metrics;
use crate::model::{SummaryInput, SummaryRequest, TokenUsage};
use crate::named_model::{ModelChoice, NamedModel};
use crate::pace::Pace;
use crate::retry::Failure;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::spend_reservations::SpendReservation;
use crate::store::UsageRow;
use crate::summarizer::{
    Base, CachedAnswer, Draft, Host, Input, Label, Spending, Summarizer, SummarizerState, SummaryError,
    without_media_bytes,
};

/// Maximum time that a call waits for the store to record the calls of `local`.
const RECORD_WAIT: Duration = Duration::from_millis(50);

/// Writes the summaries of message lists for a condenser. It builds a request from the messages that leave a list, and
/// runs a [`Summarizer`] for this request. The worker also runs a [`Summarizer`], for the slots of sessions.
#[derive(Clone)]
pub(super) struct ListSummarizer {
    pub(super) writer: NamedModel,
    pub(super) counter: Counter,
    pub(super) settings: Arc<Settings>,
    pub(super) hooks: Hooks,
    /// The names of the conversation for hooks and usage records. The workspace name is empty if the condenser works
    /// for no workspace.
    pub(super) label: Label,
    /// Circuit breakers and cached answers.
    pub(super) state: Arc<SummarizerState>,
    /// The engine, if the condenser works for a workspace. The engine then records the spending and applies the
    /// workspace's spend cap.
    pub(super) engine: Option<Arc<Shared>>,
    pub(super) pace: Pace,
    /// Whether a caller lends the model. A lent model is called with the caller's key.
    pub(super) lent: bool,
}

/// Id of the owner of a conversation.
pub(super) type OwnerId = [u8; 16];

/// A summary to be written, with everything that is needed to write it.
pub(super) struct SummaryJob {
    pub(super) plan: Box<CondensePlan>,
    /// The messages that leave the list. `seq` of each message is its position in the conversation.
    pub(super) leaving: Vec<Message>,
    pub(super) extracts: Option<Arc<Extracts>>,
    /// The owner of the conversation.
    pub(super) owner: Option<OwnerId>,
}

/// A finished summary that may be inserted into the list.
#[derive(Clone)]
pub(super) struct WrittenSummary {
    pub(super) text: Arc<str>,
    /// The model that wrote the text.
    pub(super) model: String,
    pub(super) extracts: Option<Arc<Extracts>>,
}

/// The result of a job.
pub(super) struct SummaryOutcome {
    pub(super) written: Result<WrittenSummary, Failure>,
    pub(super) spent: Vec<ModelCall>,
    pub(super) problems: Vec<String>,
}

impl ListSummarizer {
    /// Writes the summary with the model that `choice` selects: the configured model, or `local` as the fallback.
    /// Returns the plan and the result.
    pub(super) async fn write(
        &self,
        job: SummaryJob,
        choice: ModelChoice,
    ) -> (Box<CondensePlan>, SummaryOutcome) {
        let SummaryJob { plan, leaving, extracts, owner } = job;
        let writer = match choice {
            ModelChoice::Configured => self.writer.clone(),
            ModelChoice::Fallback => NamedModel::local(),
        };
        let through = leaving.last().map_or(plan.through(), |last| last.seq);
        let mut tracker = Tracker::default();
        let outlines: Vec<_> = leaving.iter().map(|message| tracker.push_sized(message, 0)).collect();
        let base = Base {
            through,
            id: None,
            tokens: plan.prior.as_deref().map_or(0, |text| self.counter.text(text)),
            text: plan.prior.as_deref().map(Into::into),
            extracts,
            ledger: None,
        };
        let own = &self.settings.condense;
        let instructions = match own.instructions.as_str() {
            "" => &self.settings.summarize.instructions,
            own => own,
        };
        let request = SummaryRequest {
            template: Arc::new(own.template(&outlines)),
            previous: base.text.clone(),
            extracts: base.extracts.clone(),
            inputs: leaving
                .into_iter()
                .map(|message| SummaryInput::Message(without_media_bytes(message)))
                .collect(),
            through,
            limit: Limit::Tokens(plan.limit),
            instructions: instructions.into(),
            focus: "".into(),
            refused: None,
            replaces: plan.replaces,
            counter: self.counter.clone(),
            redact: self.settings.summarize.redact,
        };
        let input = Input { request, base: &base, span: plan.span, divide: true, await_hooks: false };
        let mut recorder = SpendRecorder { engine: self.engine.as_ref(), spent: Spending::default() };
        let mut summarizer = Summarizer {
            models: std::slice::from_ref(&writer),
            settings: &self.settings,
            pace: &self.pace,
            hooks: &self.hooks,
            breakers: Some(&self.state.breakers).filter(|_| !self.lent),
            label: self.label.clone(),
            host: &ListHost { summarizer: self, owner },
            spent: &mut recorder.spent,
        };
        let written = summarizer.write(input).await;
        let written = written.map(|draft| WrittenSummary::of(draft, through)).map_err(failure);
        let mut problems = std::mem::take(&mut recorder.spent.hook_problems);
        problems.append(&mut recorder.spent.model_failures);
        let spent = recorder.settle(writer.is_local()).await;
        (plan, SummaryOutcome { written, spent, problems })
    }
}

impl WrittenSummary {
    fn of(draft: Draft, through: Seq) -> Self {
        let Draft { text, model, sources, .. } = draft;
        // Models other than `local` return no extracts. The extracts then consist of the text and of the names in the
        // messages.
        let of_text = |ledger| Extracts::of_text(&text, through).with_ledger(ledger);
        let extracts = sources.extracts.or_else(|| sources.ledger.map(of_text));
        Self { model, extracts: extracts.map(Arc::new), text: text.into() }
    }
}

/// Converts the summarizer's error. If the messages contain no text, the failure is an empty answer. The other errors
/// in the last arm cannot happen: a condenser needs no lease and no permit, and its summarizer divides long input
/// itself.
fn failure(error: SummaryError) -> Failure {
    match error {
        SummaryError::Failure(failure) => failure,
        SummaryError::Store(error) => Failure::Store { reason: error.to_string() },
        SummaryError::NoText
        | SummaryError::TooLong
        | SummaryError::LeaseLost
        | SummaryError::NoPermit(_) => Refusal::Empty.into(),
    }
}

/// Implements [`Host`] for one job.
struct ListHost<'a> {
    summarizer: &'a ListSummarizer,
    owner: Option<OwnerId>,
}

impl ListHost<'_> {
    /// Returns the cache key of an answer. The key includes the workspace and the owner, so that two workspaces or two
    /// owners never share an answer.
    fn key(&self, request_hash: &str) -> String {
        let owner = self.owner.map_or(String::new(), |owner| format!(" {:032x}", u128::from_be_bytes(owner)));
        format!("{request_hash}{owner} {}", self.summarizer.label.workspace)
    }
}

#[async_trait]
impl Host for ListHost<'_> {
    fn now(&self) -> Timestamp {
        now()
    }

    async fn reserve(
        &self,
        writer: &NamedModel,
        max_usage: &TokenUsage,
    ) -> Result<Option<SpendReservation>, SummaryError> {
        let ListSummarizer { engine: Some(engine), label, settings, .. } = self.summarizer else {
            return Ok(None);
        };
        engine.reserve(&label.workspace, settings, writer, max_usage, now()).await
    }

    async fn cached_answer(&self, request_hash: &str) -> Result<Option<CachedAnswer>, Error> {
        Ok(self.summarizer.state.answers.get(&self.key(request_hash)))
    }

    fn cache_answer(&self, request_hash: &str, answer: CachedAnswer) {
        self.summarizer.state.answers.insert(self.key(request_hash), answer);
    }
}

/// Records the cost of a job. If the client disconnects, the recorder is dropped before `settle` is called. In this
/// case, the drop records the cost, because the provider bills the calls.
struct SpendRecorder<'a> {
    /// The engine that records the cost.
    engine: Option<&'a Arc<Shared>>,
    spent: Spending,
}

impl SpendRecorder<'_> {
    /// Records the calls and returns them. If the calls were free, waits at most [`RECORD_WAIT`] for the store.
    async fn settle(mut self, free: bool) -> Vec<ModelCall> {
        let spent = std::mem::take(&mut self.spent);
        let rows = spent.unrecorded.clone();
        if let Some(engine) = self.engine
            && !rows.is_empty()
        {
            let recording = tokio::spawn(record(Arc::clone(engine), rows.clone(), spent));
            let wait = if free { RECORD_WAIT } else { Duration::MAX };
            let _ = tokio::time::timeout(wait, recording).await;
        }
        rows.into_iter().map(ModelCall::from).collect()
    }
}

impl Drop for SpendRecorder<'_> {
    fn drop(&mut self) {
        let rows = self.spent.rows_without_summary();
        if let Some(engine) = self.engine
            && !rows.is_empty()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(record(Arc::clone(engine), rows, std::mem::take(&mut self.spent)));
        }
    }
}

/// Writes calls to the workspace's usage records. Afterwards, releases the money that was reserved for the calls.
async fn record(engine: Arc<Shared>, rows: Vec<UsageRow>, _reserved: Spending) {
    metrics::count_calls(&rows);
    if let Err(error) = engine.store.record(rows).await {
        // The summary is valid even if the store fails. The health check reports the store's error.
        *lock(&engine.health.worker_problem) = Some(error.to_string());
    }
}

impl From<UsageRow> for ModelCall {
    fn from(row: UsageRow) -> Self {
        let UsageRow { model, outcome, input, cached, output, cost, millis, .. } = row;
        Self { model, outcome, input, cached, output, cost, millis }
    }
}

/// Returns the current time.
pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
