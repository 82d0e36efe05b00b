//! Stores the state of one conversation, and decides what to do before each model call.
//!
//! This module calls no model and never waits. [`Conversation::next_step`] reads the new messages of the list and
//! returns the next step. If that step is to write a summary, the caller writes the summary and passes the result to
//! [`Conversation::apply_outcome`]. Both methods run under the conversation's lock, so concurrent callers run one after
//! the other. The module `background` handles summaries that are written in advance. The module `report` builds the
//! reports.

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

/// Sets when failed work is tried again: when the list has grown by its size divided by this number, which is 5 %.
const RETRY_GROWTH: Tokens = 20;

/// Maximum number of messages of a short list. A short list is examined on every turn even after a failure, because
/// this is fast.
const SHORT_LIST: usize = 256;

/// Maximum number of tokens of unread messages, which are the messages that only a fallback summary covers. Up to this
/// number, the model's next summary is written from the unread messages themselves. Above this number, it is based on
/// the fallback summary.
const MAX_UNREAD: Tokens = 400_000;

/// Condensing stops after this number of consecutive condensations that saved too few tokens.
const MAX_INEFFECTIVE: u32 = 2;

/// Size of the two fingerprints of one message, in bytes.
const FINGERPRINT_BYTES: usize = 16;

/// The configuration on which a condenser's decisions depend. All conversations of the condenser have the same rules.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) enabled: bool,
    /// Whether the model that receives a list should also write the summaries of the list.
    pub(super) uses_same_model: bool,
    /// Tokens of every request that are not in the list, mainly tool definitions.
    pub(super) fixed: Tokens,
    pub(super) policy: Policy,
    /// The policy that applies if the model's window is unknown.
    pub(super) policy_without_room: Policy,
    pub(super) counter: Counter,
    pub(super) room: Option<Tokens>,
    /// The model's whole window in tokens, including the output reserve.
    pub(super) window: Option<Tokens>,
    pub(super) prices: Prices,
    /// Token prices that apply if the model that receives the list also writes the summaries.
    pub(super) prices_of_same: Prices,
    /// Whether a turn waits until the model has written the summary.
    pub(super) wait: bool,
    /// Whether more calls of the conversation follow. If so, summaries are written in advance, and `local` writes a
    /// fallback summary if the model's summary is not ready in time.
    pub(super) has_next_call: bool,
    /// Whether `local` writes all summaries.
    pub(super) local: bool,
    pub(super) backoff: Backoff,
    /// The hash key of the in-memory fingerprints.
    pub(super) key: RandomState,
}

impl Rules {
    pub(super) fn policy(&self, facts: &RequestFacts) -> &Policy {
        if facts.room.is_some() { &self.policy } else { &self.policy_without_room }
    }
}

/// The inputs of a decision about a list: the call, the rules, and facts about the request.
struct DecisionInput<'a> {
    call: &'a Call<'a>,
    rules: &'a Rules,
    facts: RequestFacts,
}

/// The state of one conversation.
#[derive(Default)]
pub(super) struct Conversation {
    /// Increases when the list grows, is condensed, or is replaced. A caller that locks the conversation again compares
    /// the version, to find out whether another caller changed the conversation in the meantime.
    pub(super) version: u64,
    /// Memory address of the list that a caller passed last.
    pub(super) address: ListAddress,
    pub(super) fingerprints: MessageFingerprints,
    /// Fingerprints of the list that was returned right after the last condensation. Some callers continue with that
    /// list instead of their full history.
    returned: Option<MessageFingerprints>,
    pub(super) list: List,
    /// The material from which `local` can extend the current summary: sentences, and names of the conversation.
    extracts: Option<Arc<Extracts>>,
    progress: Progress,
    sizes: RequestSizes,
    pauses: Pauses,
    pending_report: PendingReport,
    /// The owner of the conversation, if there is one. Cached answers of models that another owner paid for are not
    /// reused for this conversation.
    pub(super) owner: Option<OwnerId>,
}

/// Conditions under which failed work is not tried again yet.
#[derive(Clone, Copy, Default)]
struct Pauses {
    /// Set if the list could not be condensed. Contains the size of the request, in local tokens, at which condensing
    /// is tried again, and the reason why it was not possible.
    retry_at: Option<(Tokens, Unchanged)>,
    /// Set if no summary could be prepared in advance. Contains the size of the request, in local tokens, at which the
    /// preparation is tried again.
    prepare_at: Option<Tokens>,
    /// Number of consecutive failures of the model.
    failures: u32,
    /// The model is not called before this time.
    not_before: Option<Instant>,
}

impl Pauses {
    /// Records a failure. The model is not called again until a pause with backoff has passed.
    fn failed(&mut self, failure: &Failure, backoff: &Backoff) {
        if failure.is_attempt() {
            self.failures = self.failures.saturating_add(1);
        }
        let wait = after_failure(failure, self.failures, jitter(), backoff);
        self.not_before = Instant::now().checked_add(wait);
    }

    /// Resets the failures and ends the pause, because the model wrote a summary.
    fn succeeded(&mut self) {
        (self.failures, self.not_before) = (0, None);
    }

    fn model_is_paused(&self) -> bool {
        self.not_before.is_some_and(|until| Instant::now() < until)
    }
}

/// The sizes of a conversation's requests.
#[derive(Clone, Copy, Default)]
struct RequestSizes {
    growth: Growth,
    factor: Factor,
    /// The largest input in tokens that the provider accepts. `None` until the provider reports this limit in a
    /// rejection.
    room: Option<Tokens>,
    /// Whether the provider rejected the last request as too long.
    too_long: bool,
    /// The request of the previous turn: its local token count, and the number of condensations before the request.
    last: Option<(Tokens, u64)>,
    /// The last token count that the provider reported for a request.
    reported: Option<ProviderCount>,
    /// Number of consecutive condensations that saved too little, by the provider's token count.
    ineffective: u32,
    /// Set after a condensation, until the provider's next token count shows whether the condensation saved enough.
    /// Contains the size of the request before the condensation, in the provider's tokens, and the number of
    /// condensations including this one.
    unverified: Option<(Tokens, u64)>,
    /// The request size and the number of condensations for which the economic threshold was last computed, and the
    /// threshold. Both sizes are in tokens.
    economic: Option<(Tokens, u64, Option<Tokens>)>,
}

/// The local token count of a request, and the provider's count of the same request.
#[derive(Clone, Copy)]
struct ProviderCount {
    counted: Tokens,
    reported: Tokens,
    /// Number of condensations of the list before the request.
    rounds: u64,
}

impl RequestSizes {
    /// Returns the part of the state that also applies to a fork of the conversation.
    fn fork(&self) -> Self {
        Self { too_long: false, last: None, unverified: None, economic: None, ..*self }
    }

    /// Removes the sizes of the old list, because the list was replaced.
    fn reset(&mut self) {
        (self.last, self.reported) = (None, None);
    }

    /// Records the size of a request that is about to be sent.
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

    /// Records a condensation. The provider's next token count shows whether the condensation saved enough.
    fn condensed(&mut self, before: Tokens, rounds: u64) {
        self.too_long = false;
        if self.reported.is_some() {
            self.unverified = Some((before, rounds));
        }
    }

    /// Estimates the provider's token count of a request from the local count `counted`. Returns `None` if the provider
    /// has not reported a count yet.
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
            // The provider has not counted the list since its last condensation. The ratio comes from earlier counts,
            // including counts before a restart.
            Some(_) => Some(self.factor.apply(counted)),
            None => (self.factor != Factor::default()).then(|| self.factor.apply(counted)),
        }
    }
}

/// The next step for a list.
pub(super) enum NextStep {
    /// Return this report. Either nothing is due, or the due work is done.
    Done(Report),
    /// Write a summary now, and wait for the result.
    Write(SummaryJob, ModelChoice),
    /// Wait for the summary that is being written. The channel closes when the task that writes the summary ends.
    Wait(watch::Receiver<()>),
    /// Work is due, but the list does not belong to this conversation.
    Mismatch,
}

impl Conversation {
    /// Creates the state of a conversation with this list. `state` is the effect of earlier condensations of the list;
    /// `None` if the list was never condensed.
    pub(super) fn new(messages: &[Message], state: Option<&ListState>, rules: &Rules) -> Self {
        let mut new = Self {
            fingerprints: MessageFingerprints::of(messages, &rules.key),
            list: list_of(messages, state, &rules.counter),
            ..Self::default()
        };
        // The number of calls: one for each assistant message, plus the call that is about to be made.
        let replies = messages.iter().filter(|message| message.role == Role::Assistant).count() as u64;
        new.sizes.growth = Growth::of(replies.saturating_add(1), new.list.tokens());
        new.mark_removed();
        new
    }

    /// Returns whether the list appears to continue this conversation. Compares only a sample of the messages.
    pub(super) fn seems_continued_by(&mut self, messages: &[Message], rules: &Rules) -> bool {
        let from = usize::try_from(self.list.state().from).unwrap_or(0);
        self.fingerprints.len() > 0 && self.fingerprints.match_sampled(messages, from, &rules.key)
    }

    /// Returns a fork of the conversation, if the list and the conversation have the same messages up to the last
    /// condensation and different messages after it. This happens if the caller shortened the list, or if another
    /// caller continued the conversation. The fork inherits the condensation and the learned token counts.
    pub(super) fn fork(&mut self, messages: &[Message], rules: &Rules) -> Option<Self> {
        let state = self.list.state();
        let seen = usize::try_from(state.length).unwrap_or(usize::MAX);
        if state.rounds == 0 || !self.fingerprints.match_fully(messages, seen, &rules.key) {
            return None;
        }
        let new = Self::new(messages, Some(state), rules);
        // Moves the summary in progress to the fork if the summary covers only messages that both conversations
        // contain.
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

    /// Replaces the leading system messages of the conversation, if `messages` differs from the conversation only in
    /// these messages. Returns whether they were replaced. The whole list is then counted again; the rest of the state
    /// does not change.
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

    /// Replaces the conversation's list, if `messages` is the list that was returned after the last condensation, with
    /// new messages at its end. Returns whether the list was replaced. After that, the removed messages are no longer
    /// available, and positions refer to the new list.
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

    /// Reads the new messages of the list and returns the next step. If a summary should be written in the background,
    /// stores its job in `prepare`. If work is due, first compares every message with the conversation. `compared` is
    /// true if the caller has already compared every message; this comparison is then skipped. `models_failed` is true
    /// if this call already waited for the models, and the models wrote no summary.
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
                    "; stopped: by the provider's token count, the last {MAX_INEFFECTIVE} condensations saved too little"
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

    /// Carries out the due condensation: inserts the prepared summary, or decides now how to condense the list.
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

    /// Returns the next step if a summary is needed now.
    fn summarize_now(
        &mut self,
        plan: CondensePlan,
        input: &DecisionInput<'_>,
        models_failed: bool,
        prepare: &mut Option<SummaryJob>,
    ) -> NextStep {
        let DecisionInput { call, rules, .. } = input;
        // If the caller forces a condensation, the model is called even during its pause. Otherwise, a model that
        // failed is not called until its pause ends.
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
                // The model's summary will be too late for this turn. The model's next summary is based on this late
                // summary.
                *prepare = Some(self.job(self.plan_for_model(plan.clone()), call.messages));
            }
            (plan, ModelChoice::Fallback)
        };
        NextStep::Write(self.job(plan, call.messages), choice)
    }

    /// Applies the result of a summary that the call waited for. Returns `None` if the models wrote no summary and
    /// `local` should write a fallback summary.
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

    /// Inserts a summary into the list, if the summary makes the list smaller.
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

    /// Pauses condensing until the list has grown.
    fn pause_until_grown(&mut self, why: &Unchanged, facts: &RequestFacts) {
        let counted = self.list.tokens().saturating_add(facts.fixed);
        self.sizes.too_long = false;
        self.pauses.retry_at = Some((grown(counted), *why));
    }

    /// Starts a pause of the model after a valid summary that would have saved too little. Without a pause, the next
    /// turn would request the same summary again.
    fn saved_too_little(&mut self, rules: &Rules) {
        let failure = ModelError::no_answer("the summary would have saved too little").into();
        self.pauses.failed(&failure, &rules.backoff);
    }
}

impl Conversation {
    /// Records the provider's token count of a turn's request. `worth` is the minimum share of the request's tokens
    /// that a condensation must save.
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

    /// Records that the provider rejected the last request as too long. `room` is the provider's input limit in tokens;
    /// `None` if the provider did not report it.
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

    /// Returns two sizes in tokens: the size of the request without any condensation, and the size of the request that
    /// is sent. If the provider has reported counts, both sizes are estimates of the provider's count, with the same
    /// ratio to the local count. Otherwise they are local counts.
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

    /// Returns the request size at which condensing costs least, in the provider's tokens. The size is computed from
    /// local token counts and then converted. After the first 8 calls, the result is cached until the list has grown by
    /// 5 % or was condensed.
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

    /// Records the size of a new call, and returns the facts about its request.
    pub(super) fn facts_of_new_call(&mut self, call: &Call<'_>, rules: &Rules) -> RequestFacts {
        self.sizes.call_begins(self.counted(call), &self.list);
        self.facts(call, rules)
    }
}

/// Returns the smaller of two optional sizes.
fn smaller(one: Option<Tokens>, other: Option<Tokens>) -> Option<Tokens> {
    one.into_iter().chain(other).min()
}

/// Builds the list of a conversation. `state` is the effect of earlier condensations; `None` if there were none.
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

/// Returns the size in tokens at which failed work is tried again, after it failed at the size `tokens`.
fn grown(tokens: Tokens) -> Tokens {
    tokens.saturating_add((tokens / RETRY_GROWTH).max(1))
}
