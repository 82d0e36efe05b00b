//! One slot under one lease: reads the input of its next summary, and gives the summarizer access to the lease.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use epitome_core::message::{Author, Span, Timestamp, Tokens};
use epitome_core::outline::Outline;
use epitome_core::plan::{self, AuthorSummary, Next, NoPlan, Plan, Source};
use epitome_core::prompt::SMALL;
use epitome_core::slot::{Scope, SlotState};
use epitome_core::tokens::{Counter, Encoding};

use crate::error::Error;
use crate::lock::lock;
use crate::measure;
use crate::model::{Ask, ModelError, Tally, Told};
use crate::purse::Reserved;
use crate::retry::Failure;
use crate::seats::Seat;
use crate::settings::{Patch, Settings, SlotSettings};
use crate::shared::Shared;
use crate::store::{Lease, Load, Pick, PickSummaries, SessionRow, SlotRow, Standing, SummaryRow};
use crate::summarizer::{
    Answer, Base, Draft, Failed, Host, Input, LEAST_INPUT, Label, Spending, Summarizer, input_of,
    without_bytes,
};
use crate::time::later;
use crate::writer::{Who, Writer};

/// Maximum number of message outlines that are read to plan a summary; ten times as many if they contain no legal cut.
const LOOK_AHEAD: usize = 20_000;

/// Maximum tokens that `local` reads at once. It has no window; this limits the memory used.
const LOCAL_INPUT: Tokens = 400_000;

/// Maximum number of summaries of one slot in a row. If more are due, the slot is released, so that other slots get a turn.
const IN_A_ROW: usize = 8;

/// Pause of a worker that found no permit. Without it, if very many slots wait for the same model, workers would only lease
/// and release slots.
const REST: Duration = Duration::from_millis(25);

/// Maximum number of messages that are read at once.
const AT_A_TIME: usize = 32;

/// The result of one step.
pub(super) enum Step {
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
    /// When the lease, or its last renewal, was requested, by this machine's monotonic clock. That clock is independent of
    /// the store's clock and of changes to the time, and it runs on while the process is stopped. Measured from the request,
    /// the lease ends no later than in the store.
    pub(super) leased: Mutex<Instant>,
    /// How many workers may wait for the same model; `None` if a caller's task does the work.
    pub(super) share: Option<usize>,
    /// The permit for the model that is in use.
    pub(super) seat: Mutex<Option<Seat>>,
    pub(super) mode: Who,
    /// The result of intermediate steps towards a summary that is stored only when it reaches far enough.
    pub(super) held: Option<Base>,
    /// How many tokens the model can read at once, learned from a prompt that was too long.
    pub(super) input: Option<Tokens>,
    /// The span that was too long for the model.
    pub(super) too_long: Option<Span>,
    /// The failure of the models, while `local` writes the fallback summary.
    pub(super) failed: Option<Failure>,
    pub(super) spent: Spending,
    /// How many summaries were stored under this lease.
    pub(super) kept: usize,
}

/// A snapshot of the slot, its session and its settings.
pub(super) struct Ground {
    pub(super) standing: Standing,
    /// When the snapshot was read, by this machine's clock.
    pub(super) read: Instant,
    pub(super) row: SlotRow,
    pub(super) settings: Arc<Settings>,
    pub(super) order: SlotSettings,
    pub(super) counter: Counter,
}

/// One summary to be written under a lease.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) ground: &'a Ground,
    pub(super) plan: &'a Plan,
    pub(super) base: &'a Base,
    /// Summaries of single authors, which may replace the authors' messages.
    pub(super) authors: &'a [(AuthorSummary, String)],
    pub(super) log: &'a [Outline],
}

/// Returns the row of the leased slot if the lease is still valid. A session that was deleted and recreated is another one.
pub(super) fn held<'s>(lease: &Lease, standing: &'s Standing) -> Option<&'s SlotRow> {
    let same = standing.session.as_ref().is_some_and(|session| session.id == lease.id);
    let row = standing.slot(&lease.slot.scope, &lease.slot.name).filter(|_| same)?;
    Some(row).filter(|row| row.fence == lease.slot.fence && row.work.owner.is_some())
}

impl<'a> Job<'a> {
    /// Creates a job. `asked` is the time just before the lease was requested. `share` is set for background workers: the
    /// maximum number of them that may wait for one model.
    pub(super) fn new(shared: &'a Shared, lease: Lease, asked: Instant, share: Option<usize>) -> Self {
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
            leased: Mutex::new(asked),
            share,
            seat: Mutex::default(),
            mode: Who::Models,
            held: None,
            input: None,
            too_long: None,
            failed: None,
            spent: Spending::default(),
            kept: 0,
        }
    }

    /// Works until nothing is due or something fails. Returns how many summaries were stored.
    pub(super) async fn run(mut self) -> Result<usize, Error> {
        let result = loop {
            let step = match self.step().await {
                // With a fallback in progress the job continues: only this job has the failure of the models.
                Ok(Step::Again) if self.kept >= IN_A_ROW && self.mode == Who::Models => {
                    self.give_back().await
                }
                step => step,
            };
            match step {
                Ok(Step::Again) => {}
                Ok(Step::Done) => break Ok(self.kept),
                Ok(Step::Lost) => {
                    metrics::counter!(measure::LEASE_LOSSES).increment(1);
                    break Ok(self.kept);
                }
                Err(error) => {
                    // The first error is returned, not an error of this call.
                    let _ = self.break_off(&error).await;
                    break Err(error);
                }
            }
        };
        let unrecorded = self.spent.in_vain();
        if !unrecorded.is_empty() {
            // The money is spent, even if the lease is lost.
            measure::recorded(&unrecorded);
            self.shared.store.record(unrecorded).await?;
        }
        self.shared.tell_moved();
        result
    }

    async fn step(&mut self) -> Result<Step, Error> {
        let standing = self.shared.store.standing(&self.lease.key, Load::default()).await?;
        let read = Instant::now();
        let Some(row) = held(&self.lease, &standing).cloned() else {
            return Ok(Step::Lost);
        };
        let settings = self.shared.settings_at(&standing)?;
        let session = standing.session.as_ref().ok_or_else(|| Error::no_session(&self.lease.key.session))?;
        let Some(order) = settings.slot(&self.lease.slot.scope, &self.lease.slot.name).cloned() else {
            // Stored slots are the same for every engine. A slot that is not stored may belong to another engine.
            if !stores_slots(&standing) {
                return self.leave().await;
            }
            let retire = |row: &mut SlotRow, _: &Standing| {
                (row.state.due, row.state.due_at) = (None, None);
                row.state.forced.clear();
            };
            return self.end(retire).await;
        };
        if self.shared.lacking(&settings, &order).is_some() {
            return self.leave().await;
        }
        let encoding: Encoding = session.encoding.parse().map_err(Error::invalid)?;
        let head = session.tracker.head();
        let counter = Counter::new(encoding);
        let ground = Ground { row, settings, order, counter, standing, read };
        let base = self.base(&ground).await?;
        let authors = self.authors(&ground).await?;
        let room = self.shared.room(&ground.settings, &ground.order);
        let input = self.input(&ground, &base);
        let state = SlotState { covered: base.through, ..ground.row.state.clone() };
        let summaries: Vec<_> = authors.iter().map(|(summary, _)| summary.clone()).collect();
        let mut look = LOOK_AHEAD;
        let (next, log) = loop {
            let ahead =
                self.shared.store.ahead(self.lease.id, &self.lease.slot.scope, base.through, look).await?;
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
            Next::Nothing(NoPlan::NoLegalCut) => {
                // Do not lease this slot again until a message is added.
                let at_head = move |row: &SessionRow| row.tracker.head() == head;
                let parked = move |standing: &Standing| standing.session.as_ref().is_some_and(at_head);
                self.end(move |row, standing| row.work.parked = parked(standing)).await
            }
            Next::Nothing(_) => self.give_back().await,
            Next::Pass { .. } => self.pass(&ground, next).await,
            Next::Summarize(plan) => {
                let task = Task { ground: &ground, plan, base: &base, authors: &authors, log: &log };
                self.summarize(task).await
            }
        }
    }

    /// Returns the summary that the next one is built on.
    async fn base(&self, ground: &Ground) -> Result<Base, Error> {
        if let Some(held) = &self.held {
            return Ok(held.clone());
        }
        if ground.row.work.rebuild && self.mode == Who::Models {
            return Ok(Base::default());
        }
        let mut next = ground.row.active;
        while let Some(id) = next {
            let rows = self.shared.store.summaries(self.lease.id, PickSummaries::Ids(vec![id])).await?;
            let Some(row) = rows.into_iter().next() else { break };
            if row.facts.stand_in && self.mode == Who::Models {
                next = row.facts.built_on;
            } else {
                return Ok(row.into());
            }
        }
        Ok(Base::default())
    }

    /// Returns the current summaries of single authors: for each the one that covers most. Empty for an author's slot.
    async fn authors(&self, ground: &Ground) -> Result<Vec<(AuthorSummary, String)>, Error> {
        let own = |row: &&SlotRow| row.active.is_some() && row.scope != Scope::Session;
        if self.lease.slot.scope != Scope::Session || !ground.standing.slots.iter().any(|row| own(&row)) {
            return Ok(Vec::new());
        }
        let mut rows = self.shared.store.summaries(self.lease.id, PickSummaries::Standing).await?;
        rows.sort_by_key(|row| std::cmp::Reverse((row.through, row.facts.tokens)));
        let mut seen = HashSet::new();
        let summary = |row: SummaryRow| {
            let author = Option::<Author>::from(row.scope).filter(|author| seen.insert(author.clone()))?;
            Some((AuthorSummary { author, through: row.through, tokens: row.facts.tokens }, row.text))
        };
        Ok(rows.into_iter().filter_map(summary).collect())
    }

    /// Returns how many tokens of messages are read at once.
    fn input(&self, ground: &Ground, base: &Base) -> Tokens {
        let chain = self.shared.chain(&ground.settings, &ground.order);
        let first = chain.first().filter(|_| self.mode == Who::Models);
        let input = first.and_then(|writer| input_of(writer, base.tokens)).unwrap_or(LOCAL_INPUT);
        input.min(self.input.unwrap_or(Tokens::MAX)).max(LEAST_INPUT)
    }

    /// Has the planned summary written, and stores it.
    async fn summarize(&mut self, task: Task<'_>) -> Result<Step, Error> {
        let Task { ground, plan, base, .. } = task;
        if *self.shared.signals.give_up.borrow() {
            return self.leave().await;
        }
        if self.mode == Who::Models && self.too_long == Some(plan.span) {
            // There is no cut to divide it, so the same prompt would be too long again.
            return self.fail(ground, too_long(plan)).await;
        }
        let chain = match self.mode {
            Who::Models => self.shared.chain(&ground.settings, &ground.order),
            Who::StandIn => vec![Writer::local()],
        };
        // Before messages are read and hooks are notified, because a slot without a permit comes here often.
        let first = chain.iter().find(|writer| !self.spent.down.contains_key(&writer.name));
        if let Some(first) = first.filter(|_| base.tokens.saturating_add(plan.tokens) >= SMALL)
            && let Err(wait) = self.sit(first, !self.spent.unrecorded.is_empty())
        {
            return self.stand_back(wait).await;
        }
        *lock(&self.shared.health.trouble) = None;
        let mut spent = std::mem::take(&mut self.spent);
        let written = self.renewing(self.write(task, &chain, &mut spent)).await;
        self.spent = spent;
        match written {
            // After a shutdown request, release the slot: other workers need not wait until the lease expires.
            None if *self.shared.signals.give_up.borrow() => self.leave().await,
            None => Ok(Step::Lost),
            Some(Err(failed)) => self.not_written(ground, plan, failed).await,
            Some(Ok(draft)) if plan.span.through >= ground.row.state.covered => self.keep(task, draft).await,
            Some(Ok(_)) if plan.completes => {
                // The summary could only reduce the coverage: the settings keep more messages verbatim than before.
                self.pass(ground, Next::Pass { firing: plan.firing, why: NoPlan::Covered }).await
            }
            Some(Ok(draft)) => {
                self.held = Some(draft.base(plan.span.through));
                Ok(Step::Again)
            }
        }
    }

    /// Has a summary written by these models.
    async fn write(&self, task: Task<'_>, models: &[Writer], spent: &mut Spending) -> Result<Draft, Failed> {
        let Task { ground, plan, base, log, .. } = task;
        let (shared, order) = (self.shared, &ground.order);
        let mut summarizer = Summarizer {
            models,
            settings: &ground.settings,
            pace: &shared.pace,
            hooks: &shared.models.hooks,
            breakers: Some(&shared.models.memory.breakers),
            label: self.label.clone(),
            host: &Writing { job: self, ground },
            spent,
        };
        let ask = Ask {
            template: Arc::new(order.template(log)),
            previous: base.text.clone(),
            extracts: base.extracts.clone(),
            said: self.said(task).await.map_err(Failed::Store)?.into(),
            through: plan.span.through,
            limit: order.slot.limit,
            instructions: ground.settings.instructions_of(order).into(),
            focus: ground.row.work.focus.as_deref().unwrap_or_default().into(),
            refused: None,
            replaces: base.tokens.saturating_add(plan.tokens),
            counter: ground.counter.clone(),
            redact: ground.settings.summarize.redact,
        };
        let input = Input { ask, base, span: plan.span, divide: false, await_hooks: true };
        let written = summarizer.write(input).await;
        if !shared.models.hooks.is_empty() {
            let problems = std::mem::take(&mut spent.hook_problems);
            *lock(&shared.health.hook_trouble) = problems.into_iter().next();
        }
        written
    }

    /// Returns the messages and author summaries of the plan, in order.
    async fn said(&self, task: Task<'_>) -> Result<Vec<Told>, Error> {
        let mut said = Vec::new();
        for source in &task.plan.sources {
            match source {
                Source::Messages(span) => {
                    let mut within = Some(*span);
                    while let Some(rest) = within {
                        let scope = Scope::Session;
                        let (limit, bytes) = (AT_A_TIME, None);
                        let page = Pick::Page { scope, within: rest, reverse: false, limit, bytes };
                        let messages = self.shared.store.messages(self.lease.id, page).await?;
                        let last = messages.last().map(|message| message.seq);
                        said.extend(messages.into_iter().map(without_bytes).map(Told::Message));
                        within = last.and_then(|last| Span::new(last.saturating_add(1), span.through));
                    }
                }
                Source::Author(own) => {
                    let its = task.authors.iter().find(|(summary, _)| summary.author == own.author);
                    let text = its.map(|(_, text)| text.clone()).unwrap_or_default();
                    said.push(Told::Summary { author: own.author.clone(), text });
                }
            }
        }
        Ok(said)
    }

    /// Handles a failed attempt: the slot is put off, divided into halves, or needs no summary.
    async fn not_written(&mut self, ground: &Ground, plan: &Plan, failed: Failed) -> Result<Step, Error> {
        match failed {
            Failed::Lost => Ok(Step::Lost),
            Failed::TooLong if plan.tokens > LEAST_INPUT && self.mode == Who::Models => {
                // The model reads less than expected: the same window again, in halves.
                self.input = Some((plan.tokens / 2).max(LEAST_INPUT));
                self.too_long = Some(plan.span);
                Ok(Step::Again)
            }
            Failed::TooLong => self.fail(ground, too_long(plan)).await,
            Failed::Failure(failure) => self.fail(ground, failure).await,
            Failed::Full(wait) => self.stand_back(wait).await,
            Failed::Store(error) => Err(error),
            Failed::Nothing => {
                self.pass(ground, Next::Pass { firing: plan.firing, why: NoPlan::NothingToSay }).await
            }
        }
    }

    /// Takes a permit for the model that is called next, and releases the previous one. Otherwise returns how long to wait.
    ///
    /// A job that has paid for a part of a summary that is stored only as a whole always gets a permit: without it that part
    /// would be paid for again.
    pub(super) fn sit(&self, writer: &Writer, paid: bool) -> Result<(), Duration> {
        let Some(share) = self.share else { return Ok(()) };
        let mut seat = lock(&self.seat);
        let asked = (writer.model.provider().to_owned(), writer.model.name().to_owned());
        if seat.as_ref().is_some_and(|seat| seat.asked == asked) {
            return Ok(());
        }
        *seat = None;
        if !writer.is_local() {
            let most = if paid { usize::MAX } else { share };
            *seat = Some(self.shared.models.seats.take(asked, most, Instant::now())?);
        }
        Ok(())
    }

    /// Releases the slot unchanged, to be leased again after `wait`. Nothing failed, so nothing is counted or reported.
    pub(super) async fn stand_back(&self, wait: Duration) -> Result<Step, Error> {
        self.end(move |row, standing| row.work.aside = Some(later(standing.now, wait))).await?;
        self.shared.models.seats.put_aside(wait);
        tokio::time::sleep(REST).await;
        Ok(Step::Done)
    }
}

/// The [`Host`] of a job: what the summarizer may do under its lease.
struct Writing<'a> {
    job: &'a Job<'a>,
    ground: &'a Ground,
}

#[async_trait]
impl Host for Writing<'_> {
    /// The store's clock, estimated without a query.
    fn now(&self) -> Timestamp {
        later(self.ground.standing.now, self.ground.read.elapsed())
    }

    fn permit(&self, writer: &Writer, paid: bool) -> Result<(), Duration> {
        self.job.sit(writer, paid)
    }

    async fn is_ours(&self) -> Result<bool, Error> {
        self.job.still_ours().await
    }

    async fn reserve(&self, writer: &Writer, most: &Tally) -> Result<Option<Reserved>, Failed> {
        let (shared, workspace) = (self.job.shared, &self.job.lease.key.workspace);
        shared.reserve(workspace, &self.ground.settings, writer, most, self.now()).await
    }

    async fn recall(&self, asked: &str) -> Result<Option<Answer>, Error> {
        if self.ground.row.work.rebuild {
            // A rebuild is requested because the earlier answer was not good enough.
            return Ok(None);
        }
        let (workspace, id) = (&self.job.lease.key.workspace, self.job.lease.id);
        let found = self.job.shared.store.recall(workspace, id, asked).await?;
        Ok(found.map(|text| Answer::Accepted(text.into())))
    }
}

fn too_long(plan: &Plan) -> Failure {
    ModelError::TooLong { sent: plan.tokens, limit: None }.into()
}

/// Returns whether the slots of a session are set by its own settings or by its workspace's.
fn stores_slots(standing: &Standing) -> bool {
    let own = standing.session.as_ref().map_or("", |row| &row.settings);
    [own, &standing.workspace_settings]
        .into_iter()
        .any(|document| Patch::parse(document).is_ok_and(|patch| patch.entries().contains_key("slot")))
}
