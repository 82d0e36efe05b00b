//! The state of one conversation, and the decision before each of its calls.
//!
//! This module calls no model and waits for nothing. [`Conversation::next_step`] takes the list in and returns the next
//! step; [`Conversation::apply_outcome`] takes the result of a summary. Both run under the conversation's lock, so
//! concurrent callers are serialized. Summaries written in advance are in `background`, reports in `report`.

use std::hash::RandomState;
use std::sync::Arc;
use std::time::Instant;

use epitome_core::condense::{
    CondensePlan, Decision, List, ListState, Policy, Press, RequestFacts, Unchanged, rescaled,
};
use epitome_core::economic::{Growth, Prices, threshold};
use epitome_core::local::Extracts;
use epitome_core::message::{Message, Role, Seq, Tokens};
use epitome_core::tokens::{Counter, Factor};
use epitome_core::trigger::{Fraction, SOFT};
use tokio::sync::watch;

use super::Call;
use super::list_summarizer::{OwnerId, SummaryJob, SummaryOutcome, WrittenSummary, now};
use super::ready::{Report, Turn};
use crate::fingerprint::{ListAddress, MessageFingerprints};
use crate::model::ModelError;
use crate::named_model::ModelChoice;
use crate::retry::{Backoff, Failure, after_failure, jitter};
use crate::summarizer::PROMPT_OVERHEAD;

mod background;
mod report;

pub(super) use background::{BackgroundSummary, ResultCell};
use background::{Progress, UnreadMessages};
use report::PendingReport;
pub use report::ThreadState;

/// After a failure, the same work is tried again when the list has grown by one part in this many (5 %).
const RETRY_GROWTH: Tokens = 20;

/// Up to this number of messages, the list is examined on every turn even after a failure, because that is cheap.
const SHORT_LIST: usize = 256;

/// Up to this many tokens, the model reads the messages again that a fallback summary covers. Beyond, it builds on the
/// fallback summary.
const MAX_UNREAD: Tokens = 400_000;

/// Number of consecutive condensations without effect after which condensing stops.
const MAX_INEFFECTIVE: u32 = 2;

/// Size of one message's fingerprints in bytes.
const FINGERPRINT_BYTES: usize = 16;

/// The configuration of a condenser's decisions, the same for all its conversations.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) enabled: bool,
    /// Whether the model that a list is for should also write its summaries.
    pub(super) uses_same_model: bool,
    /// Tokens of every request outside the list.
    pub(super) fixed: Tokens,
    pub(super) policy: Policy,
    /// The policy if the model's window is unknown.
    pub(super) policy_without_room: Policy,
    pub(super) counter: Counter,
    pub(super) room: Option<Tokens>,
    /// The model's whole window, including the output reserve.
    pub(super) window: Option<Tokens>,
    pub(super) prices: Prices,
    /// Token prices if the model that the list is for writes the summaries itself.
    pub(super) prices_of_same: Prices,
    /// Whether a turn waits for the model.
    pub(super) wait: bool,
    /// Whether there is a next call. If so, summaries are begun in advance, and `local` writes a fallback if one is
    /// late.
    pub(super) has_next_call: bool,
    /// Whether `local` is the only model.
    pub(super) local: bool,
    pub(super) backoff: Backoff,
    /// The key of the in-memory fingerprints.
    pub(super) key: RandomState,
}

impl Rules {
    pub(super) fn policy(&self, facts: &RequestFacts) -> &Policy {
        if facts.room.is_some() { &self.policy } else { &self.policy_without_room }
    }
}

/// What a decision about a list depends on: the call, the rules, and the facts about the list's size.
struct DecisionInput<'a> {
    call: &'a Call<'a>,
    rules: &'a Rules,
    facts: RequestFacts,
}

/// The state of one conversation.
#[derive(Default)]
pub(super) struct Conversation {
    /// Counts the changes: the list grew, was condensed, or was replaced. A caller that released the lock notices by
    /// this that another caller changed the conversation.
    pub(super) version: u64,
    /// Memory address of the list when it was last passed in.
    pub(super) address: ListAddress,
    pub(super) fingerprints: MessageFingerprints,
    /// Fingerprints of the list returned after the last condensation; some callers continue with that list.
    returned: Option<MessageFingerprints>,
    pub(super) list: List,
    /// The extracts that the current summary was made of, if `local` wrote it.
    extracts: Option<Arc<Extracts>>,
    progress: Progress,
    sizes: RequestSizes,
    pauses: Pauses,
    pending_report: PendingReport,
    /// The owner of the conversation, if it has one. Cached answers that other owners paid for are not reused for it.
    pub(super) owner: Option<OwnerId>,
}

/// Until when failed work is not tried again.
#[derive(Clone, Copy, Default)]
struct Pauses {
    /// The size of the request from which condensing is tried again, and why nothing could be done.
    retry_at: Option<(Tokens, Unchanged)>,
    /// The size of the request from which preparing a summary is tried again.
    prepare_at: Option<Tokens>,
    /// Number of consecutive failures of the model.
    failures: u32,
    /// The model is not called before this time.
    not_before: Option<Instant>,
}

impl Pauses {
    /// Starts a pause of the model, with backoff.
    fn failed(&mut self, failure: &Failure, backoff: &Backoff) {
        if failure.is_attempt() {
            self.failures = self.failures.saturating_add(1);
        }
        let wait = after_failure(failure, self.failures, jitter(), backoff);
        self.not_before = Instant::now().checked_add(wait);
    }

    /// Resets the failures after the model wrote a summary.
    fn succeeded(&mut self) {
        (self.failures, self.not_before) = (0, None);
    }

    fn model_is_paused(&self) -> bool {
        self.not_before.is_some_and(|until| Instant::now() < until)
    }
}

/// Sizes of a conversation's requests.
#[derive(Clone, Copy, Default)]
struct RequestSizes {
    growth: Growth,
    factor: Factor,
    /// The largest input that the provider accepts, learned from a rejection.
    room: Option<Tokens>,
    /// Whether the provider rejected the last request as too long.
    too_long: bool,
    /// The previous turn's request: its local token count, and the number of condensations at that time.
    last: Option<(Tokens, u64)>,
    /// The provider's own count of a request.
    reported: Option<ProviderCount>,
    /// Number of consecutive condensations that did not help, by the provider's count.
    ineffective: u32,
    /// Size of the request before the last condensation, in the provider's tokens, until the provider's next count
    /// shows whether the condensation helped.
    unverified: Option<(Tokens, u64)>,
    /// Result of the economic threshold, and the size and number of condensations for which it was computed.
    economic: Option<(Tokens, u64, Option<Tokens>)>,
}

/// The provider's count of a request, next to the local count of the same request.
#[derive(Clone, Copy)]
struct ProviderCount {
    counted: Tokens,
    reported: Tokens,
    /// Number of condensations before the request.
    rounds: u64,
}

impl RequestSizes {
    /// Returns the part of the state that also applies to a fork.
    fn fork(&self) -> Self {
        Self { too_long: false, last: None, unverified: None, economic: None, ..*self }
    }

    /// Resets the state because the list was replaced.
    fn reset(&mut self) {
        (self.last, self.reported) = (None, None);
    }

    /// Records the size of a call that is about to be made.
    fn call_begins(&mut self, counted: Tokens, list: &List) {
        let rounds = list.state().rounds;
        match self.last {
            Some((last, before)) if before == rounds && counted > last => self.growth.add(counted - last),
            Some(_) => {}
            None if self.growth.calls() == 0 => self.growth.add(counted),
            None => {}
        }
        self.last = Some((counted, rounds));
    }

    /// Records a condensation; the provider's next count shows whether it helped.
    fn condensed(&mut self, before: Tokens, rounds: u64) {
        self.too_long = false;
        if self.reported.is_some() {
            self.unverified = Some((before, rounds));
        }
    }

    /// Returns the provider's count for a request with this local count, if there is any information about it.
    fn provider_count(&self, counted: Tokens, rounds: u64) -> Option<Tokens> {
        match self.reported {
            Some(count) if count.rounds == rounds => {
                let difference = self.factor.apply(counted.abs_diff(count.counted));
                Some(if counted >= count.counted {
                    count.reported.saturating_add(difference)
                } else {
                    count.reported.saturating_sub(difference)
                })
            }
            // Without a count of this list: uses the ratio from earlier counts, including those before a restart.
            Some(_) => Some(self.factor.apply(counted)),
            None => (self.factor != Factor::default()).then(|| self.factor.apply(counted)),
        }
    }
}

/// The next step for a list.
pub(super) enum NextStep {
    /// Return this report: nothing is due, or it was done.
    Done(Report),
    /// Write a summary now, and wait for it.
    Write(SummaryJob, ModelChoice),
    /// Wait for the summary that is being written; the channel closes when it is finished.
    Wait(watch::Receiver<()>),
    /// Something is due, but the list does not belong to this conversation.
    Mismatch,
}

impl Conversation {
    /// Creates the state for a conversation that begins with this list, condensed before or not.
    pub(super) fn new(messages: &[Message], state: Option<&ListState>, rules: &Rules) -> Self {
        let mut new = Self {
            fingerprints: MessageFingerprints::of(messages, &rules.key),
            list: list_of(messages, state, &rules.counter),
            ..Self::default()
        };
        // Calls made before: one per assistant message, plus the call in progress.
        let replies = messages.iter().filter(|message| message.role == Role::Assistant).count() as u64;
        new.sizes.growth = Growth::of(replies.saturating_add(1), new.list.tokens());
        new.mark_removed();
        new
    }

    /// Returns whether the list appears to continue this conversation, by sampling.
    pub(super) fn seems_continued_by(&mut self, messages: &[Message], rules: &Rules) -> bool {
        let from = usize::try_from(self.list.state().from).unwrap_or(0);
        self.fingerprints.len() > 0 && self.fingerprints.match_sampled(messages, from, &rules.key)
    }

    /// Returns a fork of the conversation if the list shares everything up to the last condensation but ends
    /// differently: it was shortened again, or continued by another caller. The fork inherits the condensation and the
    /// learned counts.
    pub(super) fn fork(&mut self, messages: &[Message], rules: &Rules) -> Option<Self> {
        let state = self.list.state();
        let seen = usize::try_from(state.length).unwrap_or(usize::MAX);
        if state.rounds == 0 || !self.fingerprints.match_fully(messages, seen, &rules.key) {
            return None;
        }
        let new = Self::new(messages, Some(state), rules);
        // Moves the summary in progress to the fork if it covers only messages that both share.
        let background = self.progress.background.take_if(|background| {
            let through = usize::try_from(background.plan.state.from).unwrap_or(usize::MAX);
            self.fingerprints.match_fully(messages, through, &rules.key)
                && background.plan.can_apply_to(&new.list)
        });
        let Progress { unread, stopped_at, .. } = &self.progress;
        Some(Self {
            progress: Progress { background, unread: unread.clone(), stopped_at: *stopped_at },
            extracts: self.extracts.clone(),
            sizes: self.sizes.fork(),
            pauses: Pauses { retry_at: None, prepare_at: None, ..self.pauses },
            owner: self.owner,
            ..new
        })
    }

    /// Takes over the leading system messages of the list, if the list differs from this one only in them. Returns
    /// whether it did. The whole list is counted again; the rest of the state stays.
    pub(super) fn adopt_system_messages(&mut self, messages: &[Message], rules: &Rules) -> bool {
        if !self.fingerprints.differ_only_in_head(messages, &rules.key) {
            return false;
        }
        let old = messages.get(..self.fingerprints.len()).unwrap_or(messages);
        let state = Some(self.list.state()).filter(|state| state.rounds > 0);
        self.list = list_of(old, state, &rules.counter);
        self.fingerprints = MessageFingerprints::of(old, &rules.key);
        self.version = self.version.wrapping_add(1);
        true
    }

    /// Takes over the list, if it is the one returned last with more messages at its end. Returns whether it did. From
    /// then on that is the conversation's list: the removed messages are no longer available, and positions are counted
    /// from its start.
    pub(super) fn adopt_returned_list(&mut self, messages: &[Message], rules: &Rules) -> bool {
        let key = &rules.key;
        let continues = |returned: &mut MessageFingerprints| {
            returned.match_sampled(messages, 0, key) && returned.match_fully(messages, returned.len(), key)
        };
        if !self.returned.as_mut().is_some_and(continues) {
            return false;
        }
        let new = Self::new(messages, None, rules);
        (self.fingerprints, self.list) = (new.fingerprints, new.list);
        self.pending_report.removed = new.pending_report.removed;
        self.version = self.version.wrapping_add(1);
        self.returned = None;
        (self.progress.unread, self.progress.background) = (None, None);
        self.sizes.reset();
        true
    }

    /// Takes the list in and returns the next step, and in `prepare` the summary to write in the background. Before
    /// anything is done, every message is compared, unless `compared` says that this was done. `models_failed` says
    /// that this call already waited for the models, and they wrote no summary.
    pub(super) fn next_step(
        &mut self,
        call: &Call<'_>,
        rules: &Rules,
        compared: bool,
        models_failed: bool,
        prepare: &mut Option<SummaryJob>,
    ) -> NextStep {
        let old = self.fingerprints.len();
        let differs =
            |this: &Self| !compared && !this.fingerprints.match_fully(call.messages, old, &rules.key);
        if call.messages.len() > old {
            self.version = self.version.wrapping_add(1);
        }
        self.list.advance(call.messages, &rules.counter);
        self.fingerprints.extend(call.messages, &rules.key);
        self.check_background(rules);
        let mut facts = self.facts_of_new_call(call, rules);
        if self.sizes.too_long {
            facts.force = Some(Press::Hard);
        }
        let policy = rules.policy(&facts);
        let request = self.list.request(&facts);
        let over = facts.room.is_some_and(|room| request > room);
        let due = facts.force.is_some() || over || self.list.due(policy, &facts, Fraction::ONE).is_now();
        let input = DecisionInput { call, rules, facts };
        let counted = self.counted(call);
        if !due || self.list.is_empty() {
            if self.may_prepare(counted, rules) && self.list.due(policy, &input.facts, SOFT).is_now() {
                if differs(self) {
                    return NextStep::Mismatch;
                }
                *prepare = self.background_job(&input);
            }
            return NextStep::Done(self.unchanged(&Unchanged::NotDue, &input));
        }
        if input.facts.force.is_none() && !over {
            let half_more = |size: Tokens| size.saturating_add(size / 2);
            if self.progress.stopped_at.is_some_and(|size| request < half_more(size)) {
                let addition = format!(
                    "; stopped: by the provider's token count, condensing did not help {MAX_INEFFECTIVE} times in a row"
                );
                return NextStep::Done(self.unchanged_report("stopped", &addition, &input));
            }
            if let Some((until, why)) = self.pauses.retry_at
                && counted < until
                && self.list.shown_len() > SHORT_LIST
            {
                return NextStep::Done(self.unchanged(&why, &input));
            }
        }
        if differs(self) {
            return NextStep::Mismatch;
        }
        self.carry_out(&input, models_failed, prepare)
    }

    /// Carries out what is due: puts in the prepared summary, or decides now.
    fn carry_out(
        &mut self,
        input: &DecisionInput<'_>,
        models_failed: bool,
        prepare: &mut Option<SummaryJob>,
    ) -> NextStep {
        let DecisionInput { call, rules, facts } = input;
        if let Some(done) = self.insert_prepared(input) {
            return NextStep::Done(done);
        }
        if rules.wait
            && let Some(ended) = self.in_progress()
        {
            return NextStep::Wait(ended);
        }
        match self.list.decide(call.messages, rules.policy(facts), facts, &rules.counter) {
            Decision::Unchanged(why) => {
                self.pause_until_grown(&why, facts);
                NextStep::Done(self.unchanged(&why, input))
            }
            Decision::Apply(done) => {
                let before = self.list.request(facts);
                NextStep::Done(match done.apply(&mut self.list) {
                    Ok(report) => self.condensed(report, None, before, input),
                    Err(why) => self.unchanged(&why, input),
                })
            }
            Decision::Summarize(plan) => self.summarize_now(*plan, input, models_failed, prepare),
        }
    }

    /// Requests a summary that is needed now.
    fn summarize_now(
        &mut self,
        plan: CondensePlan,
        input: &DecisionInput<'_>,
        models_failed: bool,
        prepare: &mut Option<SummaryJob>,
    ) -> NextStep {
        let DecisionInput { call, rules, .. } = input;
        // A forced call calls the model immediately. Otherwise a model that failed is not called during its pause.
        let paused = call.force.is_none() && self.pauses.model_is_paused();
        let skip_model = models_failed || paused;
        let (plan, choice) = if rules.local {
            (plan, ModelChoice::Configured)
        } else if rules.wait && !skip_model {
            (self.plan_for_model(plan), ModelChoice::Configured)
        } else if !rules.has_next_call {
            return NextStep::Done(self.model_failed(input));
        } else {
            if self.progress.background.is_none() && !skip_model {
                // Too late for this turn; the next summary is based on the result.
                *prepare = Some(self.job(self.plan_for_model(plan.clone()), call.messages));
            }
            (plan, ModelChoice::Fallback)
        };
        NextStep::Write(self.job(plan, call.messages), choice)
    }

    /// Applies the result of a summary that the call waited for. Returns `None` if the models wrote none and `local`
    /// should write it.
    pub(super) fn apply_outcome(
        &mut self,
        plan: CondensePlan,
        outcome: SummaryOutcome,
        choice: ModelChoice,
        call: &Call<'_>,
        rules: &Rules,
    ) -> Option<Report> {
        self.add_to_report(outcome.spent, outcome.problems);
        let facts = self.facts(call, rules);
        let input = DecisionInput { call, rules, facts };
        let written = match outcome.written {
            Ok(written) => written,
            Err(failure) => {
                if choice == ModelChoice::Configured {
                    self.pauses.failed(&failure, &rules.backoff);
                    if rules.has_next_call && !rules.local {
                        return None;
                    }
                }
                let before = self.list.request(&facts);
                return Some(match plan.without_answer(&mut self.list, call.messages, &rules.counter) {
                    // The earlier stages of a pipeline may have shortened the list.
                    Ok(report) => {
                        let report = self.condensed(report, None, before, &input);
                        Report { reason: Report::MODEL_FAILED.to_owned(), ..report }
                    }
                    Err(why) => {
                        self.pause_until_grown(&why, &facts);
                        self.model_failed(&input)
                    }
                });
            }
        };
        Some(self.insert_summary(plan, &written, choice, &input).unwrap_or_else(|why| {
            if choice == ModelChoice::Configured {
                self.saved_too_little(rules);
            }
            self.pause_until_grown(&why, &facts);
            self.unchanged(&why, &input)
        }))
    }

    /// Puts a summary into the list, if that makes the list smaller.
    fn insert_summary(
        &mut self,
        plan: CondensePlan,
        written: &WrittenSummary,
        choice: ModelChoice,
        input: &DecisionInput<'_>,
    ) -> Result<Report, Unchanged> {
        let before = self.list.request(&input.facts);
        let (prior, positions, tokens) = (plan.prior.clone(), plan.positions.clone(), plan.replaces);
        let done = plan.finish(&mut self.list, input.call.messages, &written.text, &input.rules.counter)?;
        match choice {
            ModelChoice::Configured => {
                self.pauses.succeeded();
                self.progress.unread = None;
            }
            ModelChoice::Fallback => self.progress.fallback(UnreadMessages { prior, positions, tokens }),
        }
        Ok(self.condensed(done, Some((written, choice)), before, input))
    }

    /// Does not try to condense again until the list has grown.
    fn pause_until_grown(&mut self, why: &Unchanged, facts: &RequestFacts) {
        let counted = self.list.tokens().saturating_add(facts.fixed);
        self.sizes.too_long = false;
        self.pauses.retry_at = Some((grown(counted), *why));
    }

    /// Starts a pause after a valid summary that would have saved too little, so that it is not requested again
    /// immediately.
    fn saved_too_little(&mut self, rules: &Rules) {
        let failure = ModelError::no_answer("the summary would have saved too little").into();
        self.pauses.failed(&failure, &rules.backoff);
    }
}

impl Conversation {
    /// Records the provider's token count of a turn's request. `worth` is the share that a condensation must save.
    pub(super) fn reported(&mut self, turn: &Turn, reported: Tokens, worth: Fraction) {
        let Turn { counted, rounds, .. } = *turn;
        let sizes = &mut self.sizes;
        sizes.factor.learn(counted, reported);
        sizes.reported = Some(ProviderCount { counted, reported, rounds });
        let Some((before, _)) = sizes.unverified.take_if(|(_, round)| *round == rounds) else { return };
        let helped = before.saturating_sub(reported) >= worth.of_rounded_up(before);
        sizes.ineffective = if helped { 0 } else { sizes.ineffective.saturating_add(1) };
        self.progress.stopped_at = (sizes.ineffective >= MAX_INEFFECTIVE).then_some(reported);
    }

    /// Records that the provider rejected the last request as too long, and the input limit if it reported one.
    pub(super) fn too_long(&mut self, room: Option<Tokens>) {
        self.sizes.too_long = true;
        self.sizes.room = smaller(self.sizes.room, room);
    }

    fn counted(&self, call: &Call<'_>) -> Tokens {
        self.list.tokens().saturating_add(call.fixed)
    }

    fn facts(&mut self, call: &Call<'_>, rules: &Rules) -> RequestFacts {
        let counted = self.counted(call);
        let room = smaller(call.room.or(rules.room), self.sizes.room);
        let rounds = self.list.state().rounds;
        let request = call.counted.or_else(|| self.sizes.provider_count(counted, rounds));
        let mut facts =
            RequestFacts { room, request, fixed: call.fixed, force: call.force, ..RequestFacts::at(now()) };
        if rules.policy.trigger.is_economic() {
            facts.economic = self.economic(rules, &facts, counted);
        }
        facts
    }

    /// Returns the size of the request as it came in, and of the request that is sent. Both are in the provider's
    /// tokens as far as its counts are available, assuming the same ratio to the local count for both.
    pub(super) fn full_and_sent(&self, fixed: Tokens) -> (Tokens, Tokens) {
        let counted = self.list.tokens().saturating_add(fixed);
        let sent = self.sizes.provider_count(counted, self.list.state().rounds).unwrap_or(counted);
        (rescaled(sent, self.list.uncondensed().saturating_add(fixed), counted), sent)
    }

    /// Returns the approximate memory use in bytes.
    pub(super) fn bytes(&self) -> usize {
        let fingerprints = self
            .fingerprints
            .len()
            .saturating_add(self.returned.as_ref().map_or(0, MessageFingerprints::len));
        let unread = self.progress.unread.as_ref().map_or(0, |unread| {
            let positions = unread.positions.capacity().saturating_mul(size_of::<Seq>());
            unread.prior.as_ref().map_or(0, String::len).saturating_add(positions)
        });
        let others = [
            fingerprints.saturating_mul(FINGERPRINT_BYTES),
            unread,
            self.extracts.as_ref().map_or(0, |extracts| extracts.bytes()),
            self.progress.background.as_ref().map_or(0, |background| background.bytes),
            size_of::<Self>(),
        ];
        others.into_iter().fold(self.list.bytes(), usize::saturating_add)
    }

    /// Returns the size at which cutting costs least. It is recomputed when the list has grown. The computation uses
    /// local token counts; the result is converted to the provider's.
    fn economic(&mut self, rules: &Rules, facts: &RequestFacts, counted: Tokens) -> Option<Tokens> {
        let rounds = self.list.state().rounds;
        let growth = &self.sizes.growth;
        let ours = match self.sizes.economic {
            Some((at, then, cached)) if then == rounds && counted < grown(at) && growth.calls() > 8 => cached,
            _ => {
                let prompt = if rules.local { 0 } else { PROMPT_OVERHEAD };
                let shape = self.list.cost_inputs(&rules.policy, facts, growth, prompt, &rules.counter);
                let room = facts.room.map(|room| self.list.to_local_tokens(room, facts));
                let size = threshold(&rules.prices, &shape, room);
                self.sizes.economic = Some((counted, rounds, size));
                size
            }
        };
        ours.map(|ours| self.list.to_provider_tokens(ours, facts))
    }

    /// Returns the facts for a new call, and records its size.
    pub(super) fn facts_of_new_call(&mut self, call: &Call<'_>, rules: &Rules) -> RequestFacts {
        self.sizes.call_begins(self.counted(call), &self.list);
        self.facts(call, rules)
    }
}

/// Returns the smaller of two optional sizes.
fn smaller(one: Option<Tokens>, other: Option<Tokens>) -> Option<Tokens> {
    one.into_iter().chain(other).min()
}

/// Builds the list state of messages that may have been condensed before.
fn list_of(messages: &[Message], state: Option<&ListState>, counter: &Counter) -> List {
    match state {
        Some(state) => List::resume(messages, state, counter),
        None => {
            let mut list = List::default();
            list.advance(messages, counter);
            list
        }
    }
}

/// Returns the size at which failed work is tried again.
fn grown(tokens: Tokens) -> Tokens {
    tokens.saturating_add((tokens / RETRY_GROWTH).max(1))
}
