//! Works on one slot under one lease: reads the input of the slot's next summary, and gives the summarizer access to
//! the lease.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use epitome_core::message::{Author, Span, Timestamp, Tokens};
use epitome_core::outline::Outline;
use epitome_core::plan::{self, AuthorSummary, NextStep, NoPlan, Source, SummaryPlan};
use epitome_core::prompt::SMALL;
use epitome_core::slot::{Scope, SlotState};
use epitome_core::tokens::{Counter, Encoding};

use crate::error::Error;
use crate::lock::lock;
use crate::metrics;
use crate::model::{ModelError, SummaryInput, SummaryRequest, TokenUsage};
use crate::model_permits::ModelPermit;
use crate::named_model::{ModelChoice, NamedModel};
use crate::retry::Failure;
use crate::settings::{Patch, Settings, SlotSettings};
use crate::shared::Shared;
use crate::spend_reservations::SpendReservation;
use crate::store::{Lease, Load, PickMessages, PickSummaries, SessionRow, SessionState, SlotRow, SummaryRow};
use crate::summarizer::{
    Base, CachedAnswer, Draft, Host, Input, Label, MIN_INPUT_TOKENS, Spending, Summarizer, SummaryError,
    input_limit, without_media_bytes,
};
use crate::time::later;

/// Maximum number of message outlines that are read to plan a summary. If these outlines contain no legal cut, ten
/// times this number is read.
const MAX_OUTLINES: usize = 20_000;

/// Maximum tokens that `local` reads at once. `local` has no context window, so this limit only bounds the memory.
const LOCAL_INPUT_TOKENS: Tokens = 400_000;

/// Maximum number of summaries of one slot that a job writes in a row. If more summaries are due, the job releases the
/// slot, so that workers can continue with other slots.
const MAX_SUMMARIES_IN_A_ROW: usize = 8;

/// How long a worker pauses if all permits for a model are taken. Without the pause, when very many slots wait for the
/// same model, workers would lease and release slots without a break.
const NO_PERMIT_PAUSE: Duration = Duration::from_millis(25);

/// Maximum number of messages that are read at once.
const MESSAGES_PER_READ: usize = 32;

/// The result of one step.
pub(super) enum JobStep {
    /// There may be more to do.
    Again,
    /// Nothing is left, or the slot was released.
    Done,
    /// The lease is lost. Unfinished work is dropped.
    Lost,
}

/// Work on one slot under one lease.
pub(super) struct Job<'a> {
    pub(super) shared: &'a Shared,
    pub(super) lease: Lease,
    pub(super) label: Label,
    /// When the lease or its last renewal was requested, by this machine's monotonic clock. This clock does not depend
    /// on the store's clock or on changes of the system time, and it continues while the process is stopped. The store
    /// starts the lease after the request. So a lease that is measured from the request ends no later than the lease in
    /// the store.
    pub(super) leased: Mutex<Instant>,
    /// How many workers may wait for the same model; `None` if a caller's task does the work.
    pub(super) share: Option<usize>,
    /// The permit for the model that is in use.
    pub(super) permit: Mutex<Option<ModelPermit>>,
    pub(super) mode: ModelChoice,
    /// The result of the steps so far, if a summary needs several steps. The result is stored only when it covers at
    /// least the messages that the current summary covers.
    pub(super) partial: Option<Base>,
    /// The largest input for the model, in tokens, after a prompt was too long for the model; `None` before that.
    pub(super) input: Option<Tokens>,
    /// The span that was too long for the model.
    pub(super) too_long: Option<Span>,
    /// The failure of the configured models, while `local` writes the fallback summary; otherwise `None`.
    pub(super) model_failure: Option<Failure>,
    pub(super) spent: Spending,
    /// How many summaries were stored under this lease.
    pub(super) stored: usize,
}

/// A snapshot of the slot, its session and its settings.
pub(super) struct SlotSnapshot {
    pub(super) session_state: SessionState,
    /// When the snapshot was read, by this machine's clock.
    pub(super) read: Instant,
    pub(super) row: SlotRow,
    pub(super) settings: Arc<Settings>,
    pub(super) slot_settings: SlotSettings,
    pub(super) counter: Counter,
}

/// One summary to be written under a lease.
#[derive(Clone, Copy)]
pub(super) struct SummaryTask<'a> {
    pub(super) snapshot: &'a SlotSnapshot,
    pub(super) plan: &'a SummaryPlan,
    pub(super) base: &'a Base,
    /// Summaries of single authors with their texts. In the input, such a summary may replace messages of its author.
    pub(super) authors: &'a [(AuthorSummary, String)],
    pub(super) log: &'a [Outline],
}

/// Returns the row of the leased slot if the lease is still valid. A session that was deleted and recreated has another
/// id, so an old lease is not valid for the new session.
pub(super) fn leased_row<'s>(lease: &Lease, state: &'s SessionState) -> Option<&'s SlotRow> {
    let same = state.session.as_ref().is_some_and(|session| session.id == lease.id);
    let row = state.slot(&lease.slot.scope, &lease.slot.name).filter(|_| same)?;
    Some(row).filter(|row| row.fence == lease.slot.fence && row.work.owner.is_some())
}

impl<'a> Job<'a> {
    /// Creates a job. `requested` is the time just before the lease was requested. `share` is how many background
    /// workers may wait for one model; `None` in a caller's task.
    pub(super) fn new(shared: &'a Shared, lease: Lease, requested: Instant, share: Option<usize>) -> Self {
        let (key, slot) = (&lease.key, &lease.slot);
        let label = Label {
            workspace: Arc::clone(&key.workspace),
            session: Arc::clone(&key.session),
            slot: slot.name.as_str().into(),
            scope: slot.scope.clone().into(),
        };
        Self {
            shared,
            lease,
            label,
            leased: Mutex::new(requested),
            share,
            permit: Mutex::default(),
            mode: ModelChoice::Configured,
            partial: None,
            input: None,
            too_long: None,
            model_failure: None,
            spent: Spending::default(),
            stored: 0,
        }
    }

    /// Works until nothing is due or something fails. Returns how many summaries were stored.
    pub(super) async fn run(mut self) -> Result<usize, Error> {
        let result = loop {
            let step = match self.step().await {
                // During a fallback the job does not release the slot here, because the failure of the models is stored
                // only in the job.
                Ok(JobStep::Again)
                    if self.stored >= MAX_SUMMARIES_IN_A_ROW && self.mode == ModelChoice::Configured =>
                {
                    self.release_unchanged().await
                }
                step => step,
            };
            match step {
                Ok(JobStep::Again) => {}
                Ok(JobStep::Done) => break Ok(self.stored),
                Ok(JobStep::Lost) => {
                    metrics::count_lease_loss();
                    break Ok(self.stored);
                }
                Err(error) => {
                    // The caller gets the first error, not an error of `postpone`.
                    let _ = self.postpone(&error).await;
                    break Err(error);
                }
            }
        };
        let unrecorded = self.spent.rows_without_summary();
        if !unrecorded.is_empty() {
            // The money is spent, so the calls are recorded even if the lease is lost.
            metrics::count_calls(&unrecorded);
            self.shared.store.record(unrecorded).await?;
        }
        self.shared.notify_slot_changed();
        result
    }

    async fn step(&mut self) -> Result<JobStep, Error> {
        let session_state = self.shared.store.session_state(&self.lease.key, Load::default()).await?;
        let read = Instant::now();
        let Some(row) = leased_row(&self.lease, &session_state).cloned() else {
            return Ok(JobStep::Lost);
        };
        let settings = self.shared.settings_at(&session_state)?;
        let session =
            session_state.session.as_ref().ok_or_else(|| Error::no_session(&self.lease.key.session))?;
        let Some(slot_settings) = settings.slot(&self.lease.slot.scope, &self.lease.slot.name).cloned()
        else {
            // If the session or its workspace defines the slots, every engine has the same slots. Otherwise another
            // engine may define this slot.
            if !defines_slots(&session_state) {
                return self.release_foreign().await;
            }
            let retire = |row: &mut SlotRow, _: &SessionState| {
                (row.state.due, row.state.due_at) = (None, None);
                row.state.forced.clear();
            };
            return self.release_with(retire).await;
        };
        if self.shared.missing_model(&settings, &slot_settings).is_some() {
            return self.release_foreign().await;
        }
        let encoding: Encoding = session.encoding.parse().map_err(Error::invalid)?;
        let head = session.tracker.head();
        let counter = Counter::new(encoding);
        let snapshot = SlotSnapshot { row, settings, slot_settings, counter, session_state, read };
        let base = self.base(&snapshot).await?;
        let authors = self.authors(&snapshot).await?;
        let room = self.shared.room(&snapshot.settings, &snapshot.slot_settings);
        let input = self.input(&snapshot, &base);
        let slot_state = SlotState { covered: base.through, ..snapshot.row.state.clone() };
        let summaries: Vec<_> = authors.iter().map(|(summary, _)| summary.clone()).collect();
        let mut limit = MAX_OUTLINES;
        let (next, log) = loop {
            let ahead = self
                .shared
                .store
                .outlines_after(self.lease.id, &self.lease.slot.scope, base.through, limit)
                .await?;
            let input =
                plan::PlanInput { outlines: &ahead.log, end: ahead.end, room, input, authors: &summaries };
            let next = plan::next_step(&snapshot.slot_settings.slot, &slot_state, &input);
            let truncated = ahead.end.is_none() && limit == MAX_OUTLINES;
            if next == NextStep::Nothing(NoPlan::NoLegalCut) && truncated {
                limit = MAX_OUTLINES * 10;
                continue;
            }
            break (next, ahead.log);
        };
        match &next {
            NextStep::Nothing(NoPlan::NoLegalCut) => {
                // Do not lease this slot again until a message is added.
                let at_head = move |row: &SessionRow| row.tracker.head() == head;
                let parked = move |state: &SessionState| state.session.as_ref().is_some_and(at_head);
                self.release_with(move |row, state| row.work.parked = parked(state)).await
            }
            NextStep::Nothing(_) => self.release_unchanged().await,
            NextStep::Pass { .. } => self.mark_done(&snapshot, next).await,
            NextStep::Summarize(plan) => {
                let task =
                    SummaryTask { snapshot: &snapshot, plan, base: &base, authors: &authors, log: &log };
                self.summarize(task).await
            }
        }
    }

    /// Returns the text that the next summary continues; empty for the first summary and for a rebuild. For a
    /// configured model, fallback summaries are skipped.
    async fn base(&self, snapshot: &SlotSnapshot) -> Result<Base, Error> {
        if let Some(partial) = &self.partial {
            return Ok(partial.clone());
        }
        if snapshot.row.work.rebuild && self.mode == ModelChoice::Configured {
            return Ok(Base::default());
        }
        let mut next = snapshot.row.active;
        while let Some(id) = next {
            let rows = self.shared.store.summaries(self.lease.id, PickSummaries::Ids(vec![id])).await?;
            let Some(row) = rows.into_iter().next() else { break };
            if row.facts.stand_in && self.mode == ModelChoice::Configured {
                next = row.facts.built_on;
            } else {
                return Ok(row.into());
            }
        }
        Ok(Base::default())
    }

    /// Returns, for each author with summaries, the current summary that covers the most messages. If the slot covers
    /// only one author, returns an empty list.
    async fn authors(&self, snapshot: &SlotSnapshot) -> Result<Vec<(AuthorSummary, String)>, Error> {
        let own = |row: &&SlotRow| row.active.is_some() && row.scope != Scope::Session;
        if self.lease.slot.scope != Scope::Session
            || !snapshot.session_state.slots.iter().any(|row| own(&row))
        {
            return Ok(Vec::new());
        }
        let mut rows = self.shared.store.summaries(self.lease.id, PickSummaries::Current).await?;
        rows.sort_by_key(|row| std::cmp::Reverse((row.through, row.facts.tokens)));
        let mut seen = HashSet::new();
        let summary = |row: SummaryRow| {
            let author = Option::<Author>::from(row.scope).filter(|author| seen.insert(author.clone()))?;
            Some((AuthorSummary { author, through: row.through, tokens: row.facts.tokens }, row.text))
        };
        Ok(rows.into_iter().filter_map(summary).collect())
    }

    /// Returns the maximum number of message tokens in one prompt.
    fn input(&self, snapshot: &SlotSnapshot, base: &Base) -> Tokens {
        let models = self.shared.models_of_slot(&snapshot.settings, &snapshot.slot_settings);
        let first = models.first().filter(|_| self.mode == ModelChoice::Configured);
        let input = first.and_then(|writer| input_limit(writer, base.tokens)).unwrap_or(LOCAL_INPUT_TOKENS);
        input.min(self.input.unwrap_or(Tokens::MAX)).max(MIN_INPUT_TOKENS)
    }

    /// Calls the models for the planned summary, and stores it.
    async fn summarize(&mut self, task: SummaryTask<'_>) -> Result<JobStep, Error> {
        let SummaryTask { snapshot, plan, base, .. } = task;
        if *self.shared.signals.abort.borrow() {
            return self.release_foreign().await;
        }
        if self.mode == ModelChoice::Configured && self.too_long == Some(plan.span) {
            // The plan is the same as before, so the span cannot be divided, and its prompt would be too long again.
            return self.on_failure(snapshot, too_long(plan)).await;
        }
        let models = match self.mode {
            ModelChoice::Configured => {
                self.shared.models_of_slot(&snapshot.settings, &snapshot.slot_settings)
            }
            ModelChoice::Fallback => vec![NamedModel::local()],
        };
        // The permit is taken before messages are read and hooks are called, because many attempts get no permit.
        let first = models.iter().find(|writer| !self.spent.failed_models.contains_key(&writer.name));
        if let Some(first) = first.filter(|_| base.tokens.saturating_add(plan.tokens) >= SMALL)
            && let Err(wait) = self.take_permit(first, !self.spent.unrecorded.is_empty())
        {
            return self.set_aside(wait).await;
        }
        *lock(&self.shared.health.worker_problem) = None;
        let mut spent = std::mem::take(&mut self.spent);
        let written = self.while_renewing(self.write(task, &models, &mut spent)).await;
        self.spent = spent;
        match written {
            // The engine is aborting. The slot is released, so that other workers need not wait until the lease
            // expires.
            None if *self.shared.signals.abort.borrow() => self.release_foreign().await,
            None => Ok(JobStep::Lost),
            Some(Err(failed)) => self.on_write_failed(snapshot, plan, failed).await,
            Some(Ok(draft)) if plan.span.through >= snapshot.row.state.covered => {
                self.store_summary(task, draft).await
            }
            Some(Ok(_)) if plan.completes => {
                // The summary would cover fewer messages than the current one, because the settings now keep more
                // messages verbatim. So it is not stored.
                self.mark_done(snapshot, NextStep::Pass { firing: plan.firing, why: NoPlan::Covered }).await
            }
            Some(Ok(draft)) => {
                self.partial = Some(draft.base(plan.span.through));
                Ok(JobStep::Again)
            }
        }
    }

    /// Returns a summary that one of these models wrote.
    async fn write(
        &self,
        task: SummaryTask<'_>,
        models: &[NamedModel],
        spent: &mut Spending,
    ) -> Result<Draft, SummaryError> {
        let SummaryTask { snapshot, plan, base, log, .. } = task;
        let (shared, slot_settings) = (self.shared, &snapshot.slot_settings);
        let mut summarizer = Summarizer {
            models,
            settings: &snapshot.settings,
            pace: &shared.pace,
            hooks: &shared.models.hooks,
            breakers: Some(&shared.models.memory.breakers),
            label: self.label.clone(),
            host: &JobHost { job: self, snapshot },
            spent,
        };
        let request = SummaryRequest {
            template: Arc::new(slot_settings.template(log)),
            previous: base.text.clone(),
            extracts: base.extracts.clone(),
            inputs: self.inputs(task).await.map_err(SummaryError::Store)?.into(),
            through: plan.span.through,
            limit: slot_settings.slot.limit,
            instructions: snapshot.settings.instructions_of(slot_settings).into(),
            focus: snapshot.row.work.focus.as_deref().unwrap_or_default().into(),
            refused: None,
            replaces: base.tokens.saturating_add(plan.tokens),
            counter: snapshot.counter.clone(),
            redact: snapshot.settings.summarize.redact,
        };
        let input = Input { request, base, span: plan.span, divide: false, await_hooks: true };
        let written = summarizer.write(input).await;
        if !shared.models.hooks.is_empty() {
            let problems = std::mem::take(&mut spent.hook_problems);
            *lock(&shared.health.hook_problem) = problems.into_iter().next();
        }
        written
    }

    /// Returns the messages and author summaries of the plan, in order.
    async fn inputs(&self, task: SummaryTask<'_>) -> Result<Vec<SummaryInput>, Error> {
        let mut inputs = Vec::new();
        for source in &task.plan.sources {
            match source {
                Source::Messages(span) => {
                    let mut within = Some(*span);
                    while let Some(rest) = within {
                        let scope = Scope::Session;
                        let (limit, bytes) = (MESSAGES_PER_READ, None);
                        let page = PickMessages::Page { scope, within: rest, reverse: false, limit, bytes };
                        let messages = self.shared.store.messages(self.lease.id, page).await?;
                        let last = messages.last().map(|message| message.seq);
                        inputs
                            .extend(messages.into_iter().map(without_media_bytes).map(SummaryInput::Message));
                        within = last.and_then(|last| Span::new(last.saturating_add(1), span.through));
                    }
                }
                Source::Author(own) => {
                    let its = task.authors.iter().find(|(summary, _)| summary.author == own.author);
                    let text = its.map(|(_, text)| text.clone()).unwrap_or_default();
                    inputs.push(SummaryInput::Summary { author: own.author.clone(), text });
                }
            }
        }
        Ok(inputs)
    }

    /// Handles a failed attempt: the slot is retried later, the messages are summarized in halves, or the trigger event
    /// is marked as handled.
    async fn on_write_failed(
        &mut self,
        snapshot: &SlotSnapshot,
        plan: &SummaryPlan,
        failed: SummaryError,
    ) -> Result<JobStep, Error> {
        match failed {
            SummaryError::LeaseLost => Ok(JobStep::Lost),
            SummaryError::TooLong
                if plan.tokens > MIN_INPUT_TOKENS && self.mode == ModelChoice::Configured =>
            {
                // The model accepts less input than expected, so the same messages are summarized in halves.
                self.input = Some((plan.tokens / 2).max(MIN_INPUT_TOKENS));
                self.too_long = Some(plan.span);
                Ok(JobStep::Again)
            }
            SummaryError::TooLong => self.on_failure(snapshot, too_long(plan)).await,
            SummaryError::Failure(failure) => self.on_failure(snapshot, failure).await,
            SummaryError::NoPermit(wait) => self.set_aside(wait).await,
            SummaryError::Store(error) => Err(error),
            SummaryError::NoText => {
                self.mark_done(snapshot, NextStep::Pass { firing: plan.firing, why: NoPlan::NothingToSay })
                    .await
            }
        }
    }

    /// Takes a permit for the model that is called next, and releases the previous one. If no permit is free, returns
    /// how long to wait.
    ///
    /// A job that has paid for a part of a summary always gets a permit. A summary is stored only as a whole, so a job
    /// without a permit would lose that part and pay for it again.
    pub(super) fn take_permit(&self, writer: &NamedModel, paid: bool) -> Result<(), Duration> {
        let Some(share) = self.share else { return Ok(()) };
        let mut permit = lock(&self.permit);
        let model = (writer.model.provider().to_owned(), writer.model.name().to_owned());
        if permit.as_ref().is_some_and(|permit| permit.model == model) {
            return Ok(());
        }
        *permit = None;
        if !writer.is_local() {
            let most = if paid { usize::MAX } else { share };
            *permit = Some(self.shared.models.permits.take(model, most, Instant::now())?);
        }
        Ok(())
    }

    /// Releases the slot because no permit is free. Workers lease it again after `wait`. A missing permit is not a
    /// failure, so it is neither counted nor reported.
    pub(super) async fn set_aside(&self, wait: Duration) -> Result<JobStep, Error> {
        self.release_with(move |row, state| row.work.aside = Some(later(state.now, wait))).await?;
        self.shared.models.permits.defer_slot(wait);
        tokio::time::sleep(NO_PERMIT_PAUSE).await;
        Ok(JobStep::Done)
    }
}

/// Gives the summarizer access to the job's lease, permits and budget.
struct JobHost<'a> {
    job: &'a Job<'a>,
    snapshot: &'a SlotSnapshot,
}

#[async_trait]
impl Host for JobHost<'_> {
    /// Returns the time of the store's clock, estimated without a query.
    fn now(&self) -> Timestamp {
        later(self.snapshot.session_state.now, self.snapshot.read.elapsed())
    }

    fn permit(&self, writer: &NamedModel, paid: bool) -> Result<(), Duration> {
        self.job.take_permit(writer, paid)
    }

    async fn may_write(&self) -> Result<bool, Error> {
        self.job.still_ours().await
    }

    async fn reserve(
        &self,
        writer: &NamedModel,
        most: &TokenUsage,
    ) -> Result<Option<SpendReservation>, SummaryError> {
        let (shared, workspace) = (self.job.shared, &self.job.lease.key.workspace);
        shared.reserve(workspace, &self.snapshot.settings, writer, most, self.now()).await
    }

    async fn cached_answer(&self, request_hash: &str) -> Result<Option<CachedAnswer>, Error> {
        if self.snapshot.row.work.rebuild {
            // The caller requested a rebuild because the earlier answer was not good enough, so that answer is not used
            // again.
            return Ok(None);
        }
        let (workspace, id) = (&self.job.lease.key.workspace, self.job.lease.id);
        let found = self.job.shared.store.summary_for_request(workspace, id, request_hash).await?;
        Ok(found.map(|text| CachedAnswer::Accepted(text.into())))
    }
}

fn too_long(plan: &SummaryPlan) -> Failure {
    ModelError::TooLong { sent: plan.tokens, limit: None }.into()
}

/// Returns whether the settings of a session or of its workspace define the slots of the session.
fn defines_slots(state: &SessionState) -> bool {
    let own = state.session.as_ref().map_or("", |row| &row.settings);
    [own, &state.workspace_settings]
        .into_iter()
        .any(|document| Patch::parse(document).is_ok_and(|patch| patch.entries().contains_key("slot")))
}
