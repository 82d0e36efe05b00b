//! One slot, worked off under one lease.

use std::sync::Arc;
use std::time::Duration;

use epitome_core::message::{Seq, Span, Timestamp, Tokens};
use epitome_core::outline::Outline;
use epitome_core::plan::{self, AuthorSummary, Next, NoPlan, Plan};
use epitome_core::slot::{Scope, SlotState};
use epitome_core::tokens::{Counter, Encoding};
use epitome_core::view::summary_tokens;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::draft::{Base, Draft, Spent};
use super::write::{Failed, Task};
use crate::engine::{Shared, millis_between};
use crate::error::Error;
use crate::hook::Condensed;
use crate::model::{Local, Model, ModelError};
use crate::retry::{Failure, after_failure, jitter};
use crate::settings::{Settings, SlotSettings, StandIn};
use crate::store::{
    Changes, Facts, Lease, Load, Log, PickSummaries, SessionId, SessionKey, SlotRow, Standing, SummaryRow,
    SummaryState,
};

/// So many shapes are looked at when a summary is planned; ten times as many where no cut is among them.
const LOOK_AHEAD: usize = 20_000;

/// What a model whose window nobody knows is given to read at once.
const UNKNOWN_INPUT: Tokens = 100_000;

/// What `local` is given to read at once: no window binds it, but memory does.
const LOCAL_INPUT: Tokens = 400_000;

/// What rules, template and frame of a prompt take, at most.
const PROMPT_OVERHEAD: Tokens = 2_000;

/// Below this a prompt is not made smaller any more.
const LEAST_INPUT: Tokens = 500;

/// What came of one step.
pub(super) enum Step {
    /// There may be more to do.
    Again,
    /// Nothing is left, or it was given back.
    Done,
    /// The slot is not ours any more. What was begun is dropped.
    Lost,
}

/// Who writes, and on what.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The models of the settings, built on the last summary that is no stand-in.
    Models,
    /// `local` in their place, built on whatever stands.
    StandIn,
}

/// One slot, worked off under one lease.
pub(super) struct Job<'a> {
    pub(super) shared: &'a Shared,
    pub(super) key: SessionKey,
    id: SessionId,
    scope: Scope,
    name: String,
    fence: u64,
    mode: Mode,
    /// Steps towards a summary that is only kept when it reaches far enough.
    held: Option<Base>,
    /// What a model turned out to be able to read at once.
    input: Option<Tokens>,
    /// What was too long for it.
    too_long: Option<Span>,
    /// What failed, while `local` stands in.
    failed: Option<Failure>,
    spent: Spent,
}

/// Where a slot stands, as its worker sees it.
struct Ground {
    standing: Standing,
    row: SlotRow,
    settings: Arc<Settings>,
    order: SlotSettings,
    head: Seq,
    counter: Counter,
}

impl<'a> Job<'a> {
    pub(super) fn new(shared: &'a Shared, lease: Lease) -> Self {
        Self {
            shared,
            key: lease.key,
            id: lease.id,
            scope: lease.slot.scope,
            name: lease.slot.name,
            fence: lease.slot.fence,
            mode: Mode::Models,
            held: None,
            input: None,
            too_long: None,
            failed: None,
            spent: Spent::default(),
        }
    }

    /// Works until nothing is due, or it failed.
    pub(super) async fn run(mut self) -> Result<(), Error> {
        let result = loop {
            match self.step().await {
                Ok(Step::Again) => {}
                Ok(Step::Done | Step::Lost) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let unrecorded = self.spent.in_vain();
        if !unrecorded.is_empty() {
            // What was spent was spent, whoever holds the slot now.
            self.shared.store.record(unrecorded).await?;
        }
        self.shared.tell_moved();
        result
    }

    async fn step(&mut self) -> Result<Step, Error> {
        let standing = self.shared.store.standing(&self.key, Load::default()).await?;
        let Some(row) = self.mine(&standing).cloned() else {
            return Ok(Step::Lost);
        };
        let settings = self.shared.settings_at(&standing)?;
        let session = standing.session.as_ref().ok_or_else(|| Error::no_session(&self.key.session))?;
        let Some(order) = settings.slot(&self.scope, &self.name).cloned() else {
            return self.retire().await;
        };
        let encoding: Encoding = session.encoding.parse().map_err(Error::invalid)?;
        let head = session.tracker.head();
        let ground = Ground { row, settings, order, head, counter: Counter::new(encoding), standing };
        let base = self.base(&ground).await?;
        let authors = self.authors(&ground).await?;
        let room = self.shared.room(&ground.settings, &ground.order);
        let input = self.input(&ground, &base);
        let state = SlotState { covered: base.through, ..ground.row.state.clone() };
        let mut look = LOOK_AHEAD;
        let (next, log) = loop {
            let ahead = self.shared.store.ahead(self.id, &self.scope, base.through, look).await?;
            let summaries: Vec<AuthorSummary> = authors.iter().filter_map(author_summary).collect();
            let known =
                plan::Ahead { outlines: &ahead.log, end: ahead.end, room, input, authors: &summaries };
            let next = plan::next(&ground.order.slot, &state, &known);
            let blind = ahead.end.is_none() && look == LOOK_AHEAD;
            if next == Next::Nothing(NoPlan::NoLegalCut) && blind {
                look = LOOK_AHEAD * 10;
                continue;
            }
            break (next, ahead.log);
        };
        match &next {
            Next::Nothing(NoPlan::NoLegalCut) => self.park(ground.head).await,
            Next::Nothing(_) => self.give_back().await,
            Next::Pass { .. } => self.pass(&ground, next).await,
            Next::Summarize(plan) => self.summarize(&ground, base, &authors, &log, plan.clone()).await,
        }
    }

    /// The slot's row, as long as it is ours.
    fn mine<'s>(&self, standing: &'s Standing) -> Option<&'s SlotRow> {
        mine(standing, &self.scope, &self.name, self.fence)
    }

    /// What the next summary is built on.
    async fn base(&self, ground: &Ground) -> Result<Base, Error> {
        if let Some(held) = &self.held {
            return Ok(held.clone());
        }
        if ground.row.work.rebuild && self.mode == Mode::Models {
            return Ok(Base::default());
        }
        let mut next = ground.row.active;
        while let Some(id) = next {
            let rows = self.shared.store.summaries(self.id, PickSummaries::Ids(vec![id])).await?;
            let Some(row) = rows.into_iter().next() else { break };
            if row.facts.stand_in && self.mode == Mode::Models {
                next = row.facts.built_on;
            } else {
                return Ok(row.into());
            }
        }
        Ok(Base::default())
    }

    /// The summaries that stand for authors' messages, the furthest of each; for a session's slot only.
    async fn authors(&self, ground: &Ground) -> Result<Vec<SummaryRow>, Error> {
        let own = |row: &&SlotRow| row.active.is_some() && row.scope != Scope::Session;
        if self.scope != Scope::Session || !ground.standing.slots.iter().any(|row| own(&row)) {
            return Ok(Vec::new());
        }
        let mut rows = self.shared.store.summaries(self.id, PickSummaries::Standing).await?;
        rows.retain(|row| row.scope != Scope::Session);
        rows.sort_by_key(|row| std::cmp::Reverse((row.through, row.facts.tokens)));
        let mut furthest: Vec<SummaryRow> = Vec::new();
        for row in rows {
            if furthest.iter().all(|other| other.scope != row.scope) {
                furthest.push(row);
            }
        }
        Ok(furthest)
    }

    /// How many tokens of messages are read at once.
    fn input(&self, ground: &Ground, base: &Base) -> Tokens {
        let chain = self.shared.chain(&ground.settings, &ground.order);
        let first = chain.first().filter(|_| self.mode == Mode::Models);
        let input = match first {
            Some(model) if model.name() != Local::NAME => {
                let taken = PROMPT_OVERHEAD.saturating_add(base.tokens);
                model.room().map_or(UNKNOWN_INPUT, |room| room.saturating_sub(taken))
            }
            _ => LOCAL_INPUT,
        };
        input.min(self.input.unwrap_or(Tokens::MAX)).max(LEAST_INPUT)
    }

    /// Has the planned summary written, and keeps it.
    async fn summarize(
        &mut self,
        ground: &Ground,
        base: Base,
        authors: &[SummaryRow],
        log: &[Outline],
        plan: Plan,
    ) -> Result<Step, Error> {
        if self.mode == Mode::Models && self.too_long == Some(plan.span) {
            // No cut divides it: the same would be too long again.
            let error = ModelError::TooLong { sent: plan.tokens, limit: None };
            return self.fail(ground, error.into()).await;
        }
        let chain: Vec<Arc<dyn Model>> = match self.mode {
            Mode::Models => self.shared.chain(&ground.settings, &ground.order),
            Mode::StandIn => vec![Arc::new(Local)],
        };
        let task = Task {
            shared: self.shared,
            key: &self.key,
            id: self.id,
            settings: &ground.settings,
            order: &ground.order,
            counter: &ground.counter,
            plan: &plan,
            base: &base,
            authors,
            log,
            focus: ground.row.work.focus.as_deref().unwrap_or(""),
            chain: &chain,
        };
        self.shared.set_trouble(None);
        let written = {
            let mut spent = std::mem::take(&mut self.spent);
            let written = self.renewing(task.write(&mut spent)).await;
            self.spent = spent;
            written
        };
        let draft = match written {
            None => return Ok(Step::Lost),
            Some(Ok(draft)) => draft,
            Some(Err(Failed::TooLong)) if plan.tokens > LEAST_INPUT && self.mode == Mode::Models => {
                // The model reads less than we knew: the same window again, in halves.
                self.input = Some((plan.tokens / 2).max(LEAST_INPUT));
                self.too_long = Some(plan.span);
                return Ok(Step::Again);
            }
            Some(Err(Failed::Store(error))) => return Err(error),
            Some(Err(Failed::TooLong)) => {
                let error = ModelError::TooLong { sent: plan.tokens, limit: None };
                return self.fail(ground, error.into()).await;
            }
            Some(Err(Failed::Failure(failure))) => return self.fail(ground, failure).await,
        };
        let through = plan.span.through;
        if through < ground.row.state.covered {
            if plan.completes {
                // It could only take the coverage back: the settings keep more than they did.
                return self.pass(ground, Next::Pass { firing: plan.firing, why: NoPlan::Covered }).await;
            }
            self.held = Some(draft.base(through));
            return Ok(Step::Again);
        }
        self.keep(ground, &base, log, plan, draft).await
    }

    /// Does something that takes long, and renews the lease meanwhile. `None` when the lease was lost.
    async fn renewing<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        let every = self.shared.pace.renew.max(Duration::from_millis(1));
        let mut renewal = interval_at(Instant::now() + every, every);
        renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut given_up = self.shared.give_up.subscribe();
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = async { let _ = given_up.wait_for(|told| *told).await; } => return None,
                _ = renewal.tick() => {
                    // A store that is busy now may not be before the lease ends.
                    if let Ok(false) = self.renew().await {
                        return None;
                    }
                }
            }
        }
    }

    async fn renew(&self) -> Result<bool, Error> {
        let hold = i64::try_from(self.shared.pace.lease.as_millis()).unwrap_or(i64::MAX);
        self.move_on(Log::None, move |row, standing| {
            row.work.until = Some(Timestamp(standing.now.0.saturating_add(hold)));
            Ok(Changes::default())
        })
        .await
    }

    /// Changes the slot, as long as it is ours. False when it is not.
    async fn move_on<F>(&self, log: Log, change: F) -> Result<bool, Error>
    where
        F: Fn(&mut SlotRow, &Standing) -> Result<Changes, Error> + Send + Sync + 'static,
    {
        let (scope, name, fence) = (self.scope.clone(), self.name.clone(), self.fence);
        let load = Load { log, ..Load::default() };
        self.shared
            .change(&self.key, load, move |standing| {
                let Some(mut row) = mine(standing, &scope, &name, fence).cloned() else {
                    return Ok((None, false));
                };
                let mut changes = change(&mut row, standing)?;
                row.mark(standing.now);
                changes.slots.push(row);
                Ok((Some(changes), true))
            })
            .await
    }

    /// Stores the summary and moves the cursor, if the slot is still ours and stands where it stood.
    async fn keep(
        &mut self,
        ground: &Ground,
        base: &Base,
        log: &[Outline],
        plan: Plan,
        draft: Draft,
    ) -> Result<Step, Error> {
        let stand_in = self.mode == Mode::StandIn;
        let seen = |outline: &&Outline| !outline.skip && !outline.leading && outline.seq <= plan.firing;
        let before = log.iter().filter(seen).count() as u64;
        let kept = log.iter().filter(seen).filter(|outline| outline.seq > plan.span.through).count() as u64;
        let through = plan.span.through;
        let replaced = base.tokens.saturating_add(plan.tokens);
        let facts = Facts {
            from: plan.span.from,
            firing: plan.firing,
            built_on: base.id,
            model: draft.model.clone(),
            stand_in,
            elastic: draft.sources.extracts.is_some(),
            tokens: draft.tokens,
            shown: summary_tokens(&draft.text, through, &ground.counter),
            replaced,
            original_count: before + u64::from(base.text.is_some()),
            compressed_count: kept + 1,
            skipped: plan.skipped,
            focus: ground.row.work.focus.clone(),
            added: draft.added.clone(),
            input: self.spent.input,
            output: self.spent.output,
            cost: self.spent.cost,
            millis: self.spent.millis,
        };
        let condensed = Condensed {
            workspace: Arc::clone(&self.key.workspace),
            session: Arc::clone(&self.key.session),
            slot: self.name.as_str().into(),
            scope: self.scope.clone().into(),
            covers: Span { from: 1, through },
            messages: before.saturating_sub(kept),
            tokens_before: replaced,
            tokens_after: draft.tokens,
            model: draft.model.as_str().into(),
            stand_in,
        };
        let sources = serde_json::to_string(&draft.sources).map_err(Error::invalid)?;
        let summary = SummaryRow {
            id: 0,
            scope: self.scope.clone(),
            slot: self.name.clone(),
            through,
            state: SummaryState::Standing,
            parent: None,
            text: draft.text,
            sources,
            facts,
            created: Timestamp(0),
        };
        let room = self.shared.room(&ground.settings, &ground.order);
        let (slot, covered, active) =
            (ground.order.slot.clone(), ground.row.state.covered, ground.row.active);
        let (usage, failed) = (self.spent.unrecorded.clone(), self.failed.clone());
        let next = Next::Summarize(plan);
        let kept = self
            .move_on(Log::Pending(self.scope.clone(), self.name.clone()), move |row, standing| {
                if row.state.covered != covered || row.active != active {
                    // Only under our own fence could it have moved, and then nobody but us moved it.
                    return Err(Error::Conflict("the slot moved under its lease".to_owned()));
                }
                next.settle(&slot, &mut row.state, &standing.log, room);
                row.work = kept_work(row, stand_in, failed.as_ref(), standing.now);
                let mut summary = summary.clone();
                summary.parent = row.active;
                summary.created = standing.now;
                let states = row.active.map(|id| (id, SummaryState::Superseded)).into_iter().collect();
                Ok(Changes { summary: Some(summary), states, usage: usage.clone(), ..Changes::default() })
            })
            .await?;
        if !kept {
            return Ok(Step::Lost);
        }
        self.spent = Spent::default();
        self.held = None;
        self.shared.tell_moved();
        if !self.shared.hooks.is_empty() {
            let problems = self.shared.hooks.after(&condensed).await;
            if !problems.is_empty() {
                self.shared.set_hook_trouble(problems);
            }
        }
        Ok(Step::Again)
    }

    /// A firing that asks for nothing is worked off.
    async fn pass(&mut self, ground: &Ground, next: Next) -> Result<Step, Error> {
        let room = self.shared.room(&ground.settings, &ground.order);
        let slot = ground.order.slot.clone();
        let passed = self
            .move_on(Log::Pending(self.scope.clone(), self.name.clone()), move |row, standing| {
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

    /// No summary came: `local` stands in where it is time for that, else it is tried again later.
    async fn fail(&mut self, ground: &Ground, failure: Failure) -> Result<Step, Error> {
        let now = ground.standing.now;
        let since = ground.row.work.failing_since.unwrap_or(now);
        let stand_in = ground.settings.summarize.stand_in_after;
        let rebuilding = ground.row.work.rebuild;
        let failing = Duration::from_millis(millis_between(since, now));
        self.held = None;
        // What stands in already is not written again.
        let new = ground.row.state.newest.is_some_and(|newest| newest.seq > ground.row.state.covered);
        if self.mode == Mode::Models && !rebuilding && new && stand_in.is_due(failing) {
            self.mode = Mode::StandIn;
            self.failed = Some(failure);
            return Ok(Step::Again);
        }
        let failure = self.failed.take().unwrap_or(failure);
        let backoff = self.shared.pace.backoff;
        let usage = self.spent.in_vain();
        let told = self.move_on(Log::None, move |row, standing| {
            let now = standing.now;
            let since = *row.work.failing_since.get_or_insert(now);
            row.work.attempts = row.work.attempts.saturating_add(1);
            let mut wait = after_failure(&failure, row.work.attempts, jitter(), &backoff);
            if let StandIn::After(after) = stand_in {
                // Not later than `local` may stand in.
                let failing = Duration::from_millis(millis_between(since, now));
                wait = if rebuilding || failing >= after {
                    wait
                } else {
                    wait.min(after.saturating_sub(failing))
                };
            }
            let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
            row.work.not_before = Some(Timestamp(now.0.saturating_add(wait)));
            row.work.last_error = Some(failure.to_string());
            release(row);
            Ok(Changes { usage: usage.clone(), ..Changes::default() })
        });
        if told.await? {
            self.spent.unrecorded.clear();
        }
        Ok(Step::Done)
    }

    /// Nothing can be cut yet: not to be looked at again until somebody says something.
    async fn park(&mut self, head: Seq) -> Result<Step, Error> {
        self.move_on(Log::None, move |row, standing| {
            let unchanged = standing.session.as_ref().is_some_and(|row| row.tracker.head() == head);
            row.work.parked = unchanged;
            release(row);
            Ok(Changes::default())
        })
        .await?;
        Ok(Step::Done)
    }

    /// The settings do not know the slot any more.
    async fn retire(&mut self) -> Result<Step, Error> {
        self.move_on(Log::None, |row, _| {
            row.state.due = None;
            row.state.due_at = None;
            row.state.forced.clear();
            release(row);
            Ok(Changes::default())
        })
        .await?;
        Ok(Step::Done)
    }

    /// Gives the slot back as it is.
    pub(super) async fn give_back(&self) -> Result<Step, Error> {
        self.move_on(Log::None, |row, _| {
            release(row);
            Ok(Changes::default())
        })
        .await?;
        Ok(Step::Done)
    }
}

fn mine<'s>(standing: &'s Standing, scope: &Scope, name: &str, fence: u64) -> Option<&'s SlotRow> {
    standing.slot(scope, name).filter(|row| row.fence == fence && row.work.owner.is_some())
}

fn release(row: &mut SlotRow) {
    row.work.owner = None;
    row.work.until = None;
}

/// How the work stands after a summary was kept. The lease goes on as long as something is due.
fn kept_work(row: &SlotRow, stand_in: bool, failed: Option<&Failure>, now: Timestamp) -> crate::store::Work {
    let mut work = row.work.clone();
    if row.state.due.is_none() {
        // Until then it may be the last of several firings that was asked for.
        work.focus = None;
    }
    work.rebuild = false;
    work.not_before = None;
    if stand_in {
        work.last_error = failed.map(ToString::to_string);
        work.failing_since.get_or_insert(now);
    } else {
        work.attempts = 0;
        work.failing_since = None;
        work.last_error = None;
    }
    work
}

fn author_summary(row: &SummaryRow) -> Option<AuthorSummary> {
    match &row.scope {
        Scope::Author(author) => {
            Some(AuthorSummary { author: author.clone(), through: row.through, tokens: row.facts.tokens })
        }
        Scope::Session => None,
    }
}
