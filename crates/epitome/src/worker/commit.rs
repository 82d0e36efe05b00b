//! Commits of a worker, all under its fencing token: a summary, a failure, or that there is nothing to do.

use std::time::Duration;

use epitome_core::message::{Span, Timestamp};
use epitome_core::outline::Outline;
use epitome_core::plan::Next;
use epitome_core::view::summary_tokens;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::job::{Ground, Job, Step, Task, held};
use crate::brief::brief;
use crate::error::Error;
use crate::event::Happened;
use crate::hook::Condensed;
use crate::lock::lock;
use crate::measure;
use crate::retry::{Failure, after_failure, jitter};
use crate::settings::StandIn;
use crate::shared::Unready;
use crate::store::{Changes, Facts, Load, Log, SlotRow, Standing, SummaryRow, SummaryState, UsageRow};
use crate::summarizer::{Draft, Label, Spending};
use crate::time::{later, millis_between};
use crate::writer::Who;

impl Job<'_> {
    /// Runs a long operation, and renews the lease meanwhile. Returns `None` if the lease was lost.
    pub(super) async fn renewing<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        let every = self.shared.pace.renew.max(Duration::from_millis(1));
        let mut renewal = interval_at(Instant::now() + every, every);
        renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut given_up = self.shared.signals.give_up.subscribe();
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = async { let _ = given_up.wait_for(|told| *told).await; } => return None,
                _ = renewal.tick() => {
                    // If the store is busy now, the renewal may still succeed before the lease ends.
                    if let Ok(false) = self.renew().await {
                        return None;
                    }
                }
            }
        }
    }

    /// Returns whether a model may be called under the lease: it has not expired by our own clock, or it could be renewed
    /// because no other worker took the slot in the meantime.
    pub(super) async fn still_ours(&self) -> Result<bool, Error> {
        let ran_out = lock(&self.leased).elapsed() >= self.shared.pace.lease;
        if ran_out { self.renew().await } else { Ok(true) }
    }

    async fn renew(&self) -> Result<bool, Error> {
        let asked = std::time::Instant::now();
        let hold = self.shared.pace.lease;
        let renewed = self.move_on(Log::None, move |row, standing| {
            row.work.until = Some(later(standing.now, hold));
            Ok(Changes::default())
        });
        let ours = renewed.await?;
        if ours {
            let mut leased = lock(&self.leased);
            *leased = asked.max(*leased);
        }
        Ok(ours)
    }

    /// Changes the slot if the lease is still valid. Returns false if it is not.
    pub(super) async fn move_on<F>(&self, log: Log, change: F) -> Result<bool, Error>
    where
        F: Fn(&mut SlotRow, &Standing) -> Result<Changes, Error> + Send + Sync + 'static,
    {
        let lease = self.lease.clone();
        let load = Load { log, ..Load::default() };
        let decide = move |standing: &Standing| {
            let Some(mut row) = held(&lease, standing).cloned() else {
                return Ok((None, false));
            };
            let mut changes = change(&mut row, standing)?;
            row.mark(standing.now);
            changes.slots.push(row);
            Ok((Some(changes), true))
        };
        Ok(self.shared.change(&self.lease.key, load, decide).await?.0)
    }

    /// Stores the summary and moves the cursor, if the lease is still valid and the slot is unchanged.
    pub(super) async fn keep(&mut self, task: Task<'_>, draft: Draft) -> Result<Step, Error> {
        let Task { ground, plan, log, .. } = task;
        let seen = |outline: &&Outline| !outline.skip && !outline.leading && outline.seq <= plan.firing;
        let before = log.iter().filter(seen).count() as u64;
        let kept = log.iter().filter(seen).filter(|outline| outline.seq > plan.span.through).count() as u64;
        let summary = self.summary(task, draft, before, kept)?;
        let condensed = self.condensed(&summary, before.saturating_sub(kept));
        let room = self.shared.room(&ground.settings, &ground.order);
        let (slot, covered, active) =
            (ground.order.slot.clone(), ground.row.state.covered, ground.row.active);
        let usage = self.spent.unrecorded.clone();
        let events = vec![
            Happened::moved(&summary, SummaryState::Standing, Some(summary.id)),
            Happened::from(&condensed),
        ];
        let facts = summary.facts.clone();
        // A summary was written, but possibly not by the first choice of model.
        let trouble = match self.mode {
            Who::StandIn => self.failed.as_ref().map(|failure| brief(&failure.to_string())),
            Who::Models => self.spent.missed.first().map(|missed| brief(missed)),
        };
        let next = Next::Summarize(plan.clone());
        let kept = self
            .move_on(self.pending(), move |row, standing| {
                if row.state.covered != covered || row.active != active {
                    // Only this worker can change the slot under its fencing token, and it did not.
                    return Err(Error::Conflict("the slot changed under its lease".to_owned()));
                }
                next.settle(&slot, &mut row.state, &standing.log, room);
                row.work.last_error = trouble.clone();
                kept_work(row, summary.facts.stand_in, standing.now);
                let summary = SummaryRow { parent: row.active, created: standing.now, ..summary.clone() };
                let states = row.active.map(|id| (id, SummaryState::Superseded)).into_iter().collect();
                let (usage, events) = (usage.clone(), events.clone());
                Ok(Changes { summary: Some(summary), states, usage, events, ..Changes::default() })
            })
            .await?;
        if !kept {
            return Ok(Step::Lost);
        }
        measure::kept(&facts, &self.spent.unrecorded);
        self.spent = Spending::default();
        self.held = None;
        self.kept += 1;
        self.shared.tell_moved();
        if !self.shared.models.hooks.is_empty() {
            let problems = self.shared.models.hooks.after(&condensed).await;
            if let Some(problem) = problems.into_iter().next() {
                *lock(&self.shared.health.hook_trouble) = Some(problem);
            }
        }
        Ok(Step::Again)
    }

    /// Returns the row of the summary. `before` is the number of messages without it, `kept` of those that stay verbatim.
    fn summary(&self, task: Task<'_>, draft: Draft, before: u64, kept: u64) -> Result<SummaryRow, Error> {
        let Task { ground, plan, base, .. } = task;
        let through = plan.span.through;
        let facts = Facts {
            from: plan.span.from,
            firing: plan.firing,
            built_on: base.id,
            model: draft.model,
            stand_in: self.mode == Who::StandIn,
            elastic: draft.sources.extracts.is_some(),
            tokens: draft.tokens,
            shown: summary_tokens(&draft.text, through, &ground.counter),
            replaced: base.tokens.saturating_add(plan.tokens),
            original_count: before + u64::from(base.text.is_some()),
            compressed_count: kept + 1,
            skipped: plan.skipped,
            focus: ground.row.work.focus.clone(),
            added: draft.added,
            input: self.spent.input,
            output: self.spent.output,
            cost: self.spent.cost,
            millis: self.spent.millis,
            asked: draft.asked,
            fence: self.lease.slot.fence,
        };
        Ok(SummaryRow {
            id: 0,
            scope: self.lease.slot.scope.clone(),
            slot: self.lease.slot.name.clone(),
            through,
            state: SummaryState::Standing,
            parent: None,
            text: draft.text,
            sources: serde_json::to_string(&draft.sources).map_err(Error::invalid)?,
            facts,
            created: Timestamp(0),
        })
    }

    /// Returns what hooks and events report about a summary that condensed `messages` messages.
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

    /// Selects the messages that the slot does not cover yet, to be loaded.
    fn pending(&self) -> Log {
        Log::Pending(self.lease.slot.scope.clone(), self.lease.slot.name.clone())
    }

    /// Marks a trigger event as done that requires no summary.
    pub(super) async fn pass(&mut self, ground: &Ground, next: Next) -> Result<Step, Error> {
        let room = self.shared.room(&ground.settings, &ground.order);
        let slot = ground.order.slot.clone();
        let passed = self
            .move_on(self.pending(), move |row, standing| {
                next.settle(&slot, &mut row.state, &standing.log, room);
                if row.state.due.is_none() {
                    row.work.focus = None;
                    row.work.rebuild = false;
                }
                Ok(Changes::default())
            })
            .await?;
        self.held = None;
        Ok(if passed { Step::Again } else { Step::Lost })
    }

    /// Handles a failure: `local` writes a fallback summary if it is time for that, otherwise the slot is retried later.
    pub(super) async fn fail(&mut self, ground: &Ground, failure: Failure) -> Result<Step, Error> {
        let now = ground.standing.now;
        let since = ground.row.work.failing_since.unwrap_or(now);
        let stand_in = ground.settings.summarize.stand_in_after;
        let rebuilding = ground.row.work.rebuild;
        let failing = Duration::from_millis(millis_between(since, now));
        self.held = None;
        // A fallback summary that exists already is not written again.
        let new = ground.row.state.newest.is_some_and(|newest| newest.seq > ground.row.state.covered);
        if self.mode == Who::Models && !rebuilding && new && stand_in.is_due(failing) {
            self.mode = Who::StandIn;
            self.spent.unrecorded = self.spent.in_vain();
            self.failed = Some(failure);
            return Ok(Step::Again);
        }
        let failure = self.failed.take().unwrap_or(failure);
        let calls = self.spent.in_vain();
        tracing::warn!(reason = %brief(&failure.to_string()), "no summary was written; the worker will retry");
        if self.put_off(failure, Some(stand_in).filter(|_| !rebuilding), calls.clone()).await? {
            measure::recorded(&calls);
            self.spent.unrecorded.clear();
        }
        Ok(Step::Done)
    }

    /// Releases the slot after a failure, to be retried later. Returns false if the lease is lost.
    async fn put_off(
        &self,
        failure: Failure,
        stand_in: Option<StandIn>,
        usage: Vec<UsageRow>,
    ) -> Result<bool, Error> {
        let backoff = self.shared.pace.backoff;
        self.move_on(Log::None, move |row, standing| {
            let since = *row.work.failing_since.get_or_insert(standing.now);
            // If no model was called, this is not another failure.
            row.work.attempts = row.work.attempts.saturating_add(u32::from(failure.is_attempt()));
            let mut wait = after_failure(&failure, row.work.attempts, jitter(), &backoff);
            if let Some(StandIn::After(after)) = stand_in {
                let left = after.saturating_sub(Duration::from_millis(millis_between(since, standing.now)));
                // Retry at the latest when a fallback summary is due.
                wait = if left.is_zero() { wait } else { wait.min(left) };
            }
            row.work.not_before = Some(later(standing.now, wait));
            row.work.last_error = Some(brief(&failure.to_string()));
            release(row);
            Ok(Changes { usage: usage.clone(), events: vec![Happened::failed(row)], ..Changes::default() })
        })
        .await
    }

    /// Puts the slot off because messages could not be read or the summary could not be stored. Retries become less and less
    /// frequent. If even this cannot be written, the lease expires by itself.
    pub(super) async fn break_off(&mut self, error: &Error) -> Result<(), Error> {
        // Clients see this reason, so it contains no path. The operator sees the complete error as the worker's problem.
        let reason = match error {
            Error::Store(error) | Error::Busy(error) => Unready::from(error).short,
            other => brief(&other.to_string()),
        };
        self.put_off(Failure::Store { reason }, None, Vec::new()).await.map(drop)
    }

    /// Releases a slot that belongs to another engine, unchanged, and skips it for a while.
    pub(super) async fn leave(&self) -> Result<Step, Error> {
        if !self.shared.caches.look_away(self.lease.id, &self.lease.slot.scope, &self.lease.slot.name) {
            // This engine may lease the slot again at once, so it pauses here.
            tokio::time::sleep(self.shared.pace.poll).await;
        }
        self.give_back().await
    }

    /// Releases the slot unchanged.
    pub(super) async fn give_back(&self) -> Result<Step, Error> {
        self.end(|_, _| {}).await
    }

    /// Releases the slot with this change.
    pub(super) async fn end<F>(&self, change: F) -> Result<Step, Error>
    where
        F: Fn(&mut SlotRow, &Standing) + Send + Sync + 'static,
    {
        self.move_on(Log::None, move |row, standing| {
            release(row);
            change(row, standing);
            Ok(Changes::default())
        })
        .await?;
        Ok(Step::Done)
    }
}

fn release(row: &mut SlotRow) {
    (row.work.owner, row.work.until, row.work.aside) = (None, None, None);
}

/// Updates the slot's work state after a summary was stored. The lease stays as long as something is due.
fn kept_work(row: &mut SlotRow, stand_in: bool, now: Timestamp) {
    let work = &mut row.work;
    if row.state.due.is_none() {
        // Until then, the summary requested with the focus may be a later one of several that are due.
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
