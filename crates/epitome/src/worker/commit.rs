//! Writes the result of a worker's job to the store: a summary, a failure, or the fact that no summary was needed.
//! Every write carries the lease's fencing token.

use std::time::Duration;

use epitome_core::message::{Span, Timestamp};
use epitome_core::outline::Outline;
use epitome_core::plan::NextStep;
use epitome_core::view::summary_tokens;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::job::{Job, JobStep, SlotSnapshot, SummaryTask, leased_row};
use crate::brief::brief;
use crate::error::Error;
use crate::event::EventBody;
use crate::hook::Condensed;
use crate::lock::lock;
use crate::metrics;
use crate::named_model::ModelChoice;
use crate::retry::{Failure, after_failure, jitter};
use crate::settings::StandIn;
use crate::shared::Unready;
use crate::store::{
    Changes, Facts, Load, LoadLog, SessionState, SlotRow, SummaryRow, SummaryState, UsageRow,
};
use crate::summarizer::{Draft, Label, Spending};
use crate::time::{later, millis_between};

impl Job<'_> {
    /// Runs a long operation and renews the lease in the meantime. Returns `None` if the lease was lost or the engine
    /// aborts.
    pub(super) async fn while_renewing<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        let every = self.shared.pace.renew.max(Duration::from_millis(1));
        let mut renewal = interval_at(Instant::now() + every, every);
        renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut aborted = self.shared.signals.abort.subscribe();
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = async { let _ = aborted.wait_for(|abort| *abort).await; } => return None,
                _ = renewal.tick() => {
                    // An error of the store is ignored: the next renewal may succeed before the lease ends.
                    if let Ok(false) = self.renew().await {
                        return None;
                    }
                }
            }
        }
    }

    /// Returns whether a model may be called under the lease. If the lease has expired by the clock of this machine,
    /// renews the lease first. The renewal fails if another worker has leased the slot in the meantime.
    pub(super) async fn still_ours(&self) -> Result<bool, Error> {
        let ran_out = lock(&self.leased).elapsed() >= self.shared.pace.lease;
        if ran_out { self.renew().await } else { Ok(true) }
    }

    async fn renew(&self) -> Result<bool, Error> {
        let requested = std::time::Instant::now();
        let duration = self.shared.pace.lease;
        let renewed = self.change_slot(LoadLog::None, move |row, state| {
            row.work.until = Some(later(state.now, duration));
            Ok(Changes::default())
        });
        let ours = renewed.await?;
        if ours {
            let mut leased = lock(&self.leased);
            *leased = requested.max(*leased);
        }
        Ok(ours)
    }

    /// Changes the slot if the lease is still valid. Returns false if the lease is lost.
    pub(super) async fn change_slot<F>(&self, log: LoadLog, change: F) -> Result<bool, Error>
    where
        F: Fn(&mut SlotRow, &SessionState) -> Result<Changes, Error> + Send + Sync + 'static,
    {
        let lease = self.lease.clone();
        let load = Load { log, ..Load::default() };
        let decide = move |state: &SessionState| {
            let Some(mut row) = leased_row(&lease, state).cloned() else {
                return Ok((None, false));
            };
            let mut changes = change(&mut row, state)?;
            row.update_waiting_since(state.now);
            changes.slots.push(row);
            Ok((Some(changes), true))
        };
        Ok(self.shared.change(&self.lease.key, load, decide).await?.0)
    }

    /// Stores the summary and updates what the slot covers, if the lease is still valid and the slot is unchanged.
    pub(super) async fn store_summary(
        &mut self,
        task: SummaryTask<'_>,
        draft: Draft,
    ) -> Result<JobStep, Error> {
        let SummaryTask { snapshot, plan, log, .. } = task;
        let seen = |outline: &&Outline| !outline.skip && !outline.leading && outline.seq <= plan.firing;
        let before = log.iter().filter(seen).count() as u64;
        let verbatim =
            log.iter().filter(seen).filter(|outline| outline.seq > plan.span.through).count() as u64;
        let summary = self.summary(task, draft, before, verbatim)?;
        let condensed = self.condensed(&summary, before.saturating_sub(verbatim));
        let room = self.shared.room(&snapshot.settings, &snapshot.slot_settings);
        let (slot, covered, active) =
            (snapshot.slot_settings.slot.clone(), snapshot.row.state.covered, snapshot.row.active);
        let usage = self.spent.unrecorded.clone();
        let events = vec![
            EventBody::summary_changed(&summary, SummaryState::Current, Some(summary.id)),
            EventBody::from(&condensed),
        ];
        let facts = summary.facts.clone();
        // The error of the preferred model, if another model wrote the summary.
        let problem = match self.mode {
            ModelChoice::Fallback => self.model_failure.as_ref().map(|failure| brief(&failure.to_string())),
            ModelChoice::Configured => self.spent.model_failures.first().map(|missed| brief(missed)),
        };
        let next = NextStep::Summarize(plan.clone());
        let stored = self
            .change_slot(self.pending(), move |row, state| {
                if row.state.covered != covered || row.active != active {
                    // Cannot happen: under this fencing token only this worker can change the slot.
                    return Err(Error::Conflict("the slot changed under its lease".to_owned()));
                }
                next.settle(&slot, &mut row.state, &state.log, room);
                row.work.last_error = problem.clone();
                record_success(row, summary.facts.stand_in, state.now);
                let summary = SummaryRow { parent: row.active, created: state.now, ..summary.clone() };
                let states = row.active.map(|id| (id, SummaryState::Superseded)).into_iter().collect();
                let (usage, events) = (usage.clone(), events.clone());
                Ok(Changes { summary: Some(summary), states, usage, events, ..Changes::default() })
            })
            .await?;
        if !stored {
            return Ok(JobStep::Lost);
        }
        metrics::count_summary(&facts, &self.spent.unrecorded);
        self.spent = Spending::default();
        self.partial = None;
        self.stored += 1;
        self.shared.notify_slot_changed();
        if !self.shared.models.hooks.is_empty() {
            let problems = self.shared.models.hooks.after(&condensed).await;
            if let Some(problem) = problems.into_iter().next() {
                *lock(&self.shared.health.hook_problem) = Some(problem);
            }
        }
        Ok(JobStep::Again)
    }

    /// Returns the row of the summary. `before` is the number of messages after the previous summary. `verbatim` is the
    /// number of these messages that stay verbatim.
    fn summary(
        &self,
        task: SummaryTask<'_>,
        draft: Draft,
        before: u64,
        verbatim: u64,
    ) -> Result<SummaryRow, Error> {
        let SummaryTask { snapshot, plan, base, .. } = task;
        let through = plan.span.through;
        let facts = Facts {
            from: plan.span.from,
            firing: plan.firing,
            built_on: base.id,
            model: draft.model,
            stand_in: self.mode == ModelChoice::Fallback,
            elastic: draft.sources.extracts.is_some(),
            tokens: draft.tokens,
            shown: summary_tokens(&draft.text, through, &snapshot.counter),
            replaced: base.tokens.saturating_add(plan.tokens),
            original_count: before + u64::from(base.text.is_some()),
            compressed_count: verbatim + 1,
            skipped: plan.skipped,
            focus: snapshot.row.work.focus.clone(),
            added: draft.added,
            input: self.spent.input,
            output: self.spent.output,
            cost: self.spent.cost,
            millis: self.spent.millis,
            request_hash: draft.request_hash,
            fence: self.lease.slot.fence,
        };
        Ok(SummaryRow {
            id: 0,
            scope: self.lease.slot.scope.clone(),
            slot: self.lease.slot.name.clone(),
            through,
            state: SummaryState::Current,
            parent: None,
            text: draft.text,
            sources: serde_json::to_string(&draft.sources).map_err(Error::invalid)?,
            facts,
            created: Timestamp(0),
        })
    }

    /// Returns the data that hooks and events report about a summary. `messages` is the number of messages that were
    /// condensed.
    fn condensed(&self, summary: &SummaryRow, messages: u64) -> Condensed {
        let Label { workspace, session, slot, scope } = self.label.clone();
        Condensed {
            workspace,
            session,
            slot,
            scope,
            covers: Span { from: 1, through: summary.through },
            messages,
            tokens_before: summary.facts.replaced,
            tokens_after: summary.facts.tokens,
            model: summary.facts.model.as_str().into(),
            stand_in: summary.facts.stand_in,
        }
    }

    /// Selects the messages that the slot does not cover yet. A change of the slot loads the outlines of these
    /// messages.
    fn pending(&self) -> LoadLog {
        LoadLog::Pending(self.lease.slot.scope.clone(), self.lease.slot.name.clone())
    }

    /// Marks the trigger event as handled without a new summary.
    pub(super) async fn mark_done(
        &mut self,
        snapshot: &SlotSnapshot,
        next: NextStep,
    ) -> Result<JobStep, Error> {
        let room = self.shared.room(&snapshot.settings, &snapshot.slot_settings);
        let slot = snapshot.slot_settings.slot.clone();
        let done = self
            .change_slot(self.pending(), move |row, state| {
                next.settle(&slot, &mut row.state, &state.log, room);
                if row.state.due.is_none() {
                    row.work.focus = None;
                    row.work.rebuild = false;
                }
                Ok(Changes::default())
            })
            .await?;
        self.partial = None;
        Ok(if done { JobStep::Again } else { JobStep::Lost })
    }

    /// Handles a failure: `local` writes a fallback summary if the models have failed for `summarize.stand_in_after`.
    /// Otherwise the slot is retried later.
    pub(super) async fn on_failure(
        &mut self,
        snapshot: &SlotSnapshot,
        failure: Failure,
    ) -> Result<JobStep, Error> {
        let now = snapshot.session_state.now;
        let since = snapshot.row.work.failing_since.unwrap_or(now);
        let stand_in = snapshot.settings.summarize.stand_in_after;
        let rebuilding = snapshot.row.work.rebuild;
        let failing = Duration::from_millis(millis_between(since, now));
        self.partial = None;
        // Without new messages, a fallback summary would cover nothing that is not covered already.
        let has_new = snapshot.row.state.newest.is_some_and(|newest| newest.seq > snapshot.row.state.covered);
        if self.mode == ModelChoice::Configured && !rebuilding && has_new && stand_in.is_due(failing) {
            self.mode = ModelChoice::Fallback;
            self.spent.unrecorded = self.spent.rows_without_summary();
            self.log(snapshot, &failure.to_string(), "models fail; `local` writes a fallback summary").await;
            self.model_failure = Some(failure);
            return Ok(JobStep::Again);
        }
        let failure = self.model_failure.take().unwrap_or(failure);
        let calls = self.spent.rows_without_summary();
        self.log(snapshot, &failure.to_string(), "no summary was written; the worker retries").await;
        if self.retry_later(failure, Some(stand_in).filter(|_| !rebuilding), calls.clone()).await? {
            metrics::count_calls(&calls);
            self.spent.unrecorded.clear();
        }
        Ok(JobStep::Done)
    }

    /// Logs a failure. The log line names the slot by a hash ([`crate::Engine::find_logged`]). It also names the model
    /// of the last call, or the slot's first model if no model was called.
    async fn log(&self, snapshot: &SlotSnapshot, reason: &str, what: &str) {
        let slot = self.shared.log_hash(&self.lease).await;
        let first = snapshot.settings.models_of(&snapshot.slot_settings).first().map(String::as_str);
        let model =
            self.spent.unrecorded.last().map(|call| call.model.as_str()).or(first).unwrap_or_default();
        tracing::warn!(slot, model, reason = %brief(reason), "{what}");
    }

    /// Releases the slot after a failure, so that a worker retries later. Returns false if the lease is lost.
    async fn retry_later(
        &self,
        failure: Failure,
        stand_in: Option<StandIn>,
        usage: Vec<UsageRow>,
    ) -> Result<bool, Error> {
        let backoff = self.shared.pace.backoff;
        self.change_slot(LoadLog::None, move |row, state| {
            let since = *row.work.failing_since.get_or_insert(state.now);
            // A failure without a model call does not count as a failed attempt.
            row.work.attempts = row.work.attempts.saturating_add(u32::from(failure.is_attempt()));
            let mut wait = after_failure(&failure, row.work.attempts, jitter(), &backoff);
            if let Some(StandIn::After(after)) = stand_in {
                let left = after.saturating_sub(Duration::from_millis(millis_between(since, state.now)));
                // Retry at the latest when a fallback summary is due.
                wait = if left.is_zero() { wait } else { wait.min(left) };
            }
            row.work.not_before = Some(later(state.now, wait));
            row.work.last_error = Some(brief(&failure.to_string()));
            release(row);
            Ok(Changes {
                usage: usage.clone(),
                events: vec![EventBody::summary_failed(row)],
                ..Changes::default()
            })
        })
        .await
    }

    /// Handles an error that prevented reading the messages or storing the summary. Releases the slot, so that a worker
    /// retries later. The waiting time grows with each failure. If the release cannot be stored either, the lease
    /// expires by itself.
    pub(super) async fn postpone(&mut self, error: &Error) -> Result<(), Error> {
        // Clients see this reason, so it contains no path. The operator sees the complete error as the worker's
        // problem.
        let reason = match error {
            Error::Store(error) | Error::Busy(error) => Unready::from(error).public,
            other => brief(&other.to_string()),
        };
        let slot = self.shared.log_hash(&self.lease).await;
        // Errors that do not come from the store may contain names, so they are not logged.
        let logged = match error {
            Error::Store(error) | Error::Busy(error) => error.to_string(),
            _ => "the slot's summary cannot be written; `epitome explain` shows the error".to_owned(),
        };
        tracing::warn!(slot, reason = %brief(&logged), "no summary was written; the worker retries");
        self.retry_later(Failure::Store { reason }, None, Vec::new()).await.map(drop)
    }

    /// Releases a slot that belongs to another engine, and changes nothing else. For a while, this engine does not
    /// lease the slot again.
    pub(super) async fn release_foreign(&self) -> Result<JobStep, Error> {
        if !self.shared.caches.skip_foreign_slot(self.lease.id, &self.lease.slot.scope, &self.lease.slot.name)
        {
            // The list of foreign slots is full, so this engine may lease the slot again. To avoid leasing it at once,
            // this engine pauses.
            tokio::time::sleep(self.shared.pace.poll).await;
        }
        self.release_unchanged().await
    }

    /// Releases the slot without another change.
    pub(super) async fn release_unchanged(&self) -> Result<JobStep, Error> {
        self.release_with(|_, _| {}).await
    }

    /// Releases the slot, and makes this change in the same transaction.
    pub(super) async fn release_with<F>(&self, change: F) -> Result<JobStep, Error>
    where
        F: Fn(&mut SlotRow, &SessionState) + Send + Sync + 'static,
    {
        self.change_slot(LoadLog::None, move |row, state| {
            release(row);
            change(row, state);
            Ok(Changes::default())
        })
        .await?;
        Ok(JobStep::Done)
    }
}

fn release(row: &mut SlotRow) {
    (row.work.owner, row.work.until, row.work.aside) = (None, None, None);
}

/// Updates the slot's work state after a summary was stored. The lease stays as long as another summary is due.
fn record_success(row: &mut SlotRow, stand_in: bool, now: Timestamp) {
    let work = &mut row.work;
    if row.state.due.is_none() {
        // As long as another summary is due, the focus stays: it may have been requested for that summary.
        work.focus = None;
    }
    work.rebuild = false;
    (work.not_before, work.aside) = (None, None);
    if stand_in {
        work.failing_since.get_or_insert(now);
    } else {
        (work.attempts, work.failing_since) = (0, None);
    }
}
