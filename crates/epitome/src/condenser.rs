//! Condenses an agent's message list before each model call.
//!
//! An agent that stores its history itself needs no Epitome store. Before every model call it passes its list to a
//! [`Condenser`] and sends the list that it gets back. While nothing is due, that is the same list. Otherwise it is a
//! shorter list that every provider accepts and that grows only at its end until the next condensation.
//!
//! ```
//! # async fn try_it() -> Result<(), epitome::Error> {
//! use epitome::{Condenser, Dialect, Message};
//!
//! let condenser = Condenser::builder().for_model("gpt-5-mini").build()?;
//! let mut history = vec![Message::system("You are a harbour master."), Message::user("Which berths are free?")];
//! loop {
//!     let ready = condenser.before_model(&history).await;
//!     let request = Dialect::OPENAI.write(&ready);        // send it
//!     # let _ = request; let (reply, input_tokens) = (Message::assistant("Berths 4 and 7."), 61);
//!     ready.turn().reported(input_tokens);               // the provider's own count, if it reports one
//!     history.push(reply);
//!     # break;
//! }
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
//! ```
//!
//! # Position in a middleware stack
//!
//! The condenser belongs before the model. It runs after middleware that gathers or adds messages (tool results, to-do
//! lists, files, sub-agents), and before middleware that marks or rewrites messages (cache markers, repair of tool
//! calls, approval). Messages that are added before the condenser are counted and may be condensed. Middleware after
//! the condenser works on the list that is really sent. A cache marker that is set before the condenser could be lost,
//! because the marked message may leave the list.
//!
//! # Cost of a turn
//!
//! Each message is counted once, when it first appears in a list. A turn without a condensation costs as much as its
//! new messages and a few comparisons of old messages, independent of the length of the list. No turn waits for a
//! model, unless `condense.wait` is set: at four fifths of the threshold the condenser begins a summary in the
//! background, and at the threshold it puts that summary in. If the summary is not ready by then, `local` writes one
//! immediately, and the model's next summary is based on the model's own previous one.
//!
//! # Which list to pass
//!
//! The caller continues with its full history, or with the list that it got back. The condenser recognises both, and
//! also a history that was shortened again or forked. Several agents may share a condenser: it distinguishes their
//! conversations by comparing every message of each list. A turn is cheapest if each agent has its own condenser
//! ([`Condenser::another`]) and its list stays at the same memory address.
//!
//! Lists are assumed to grow only at their end. A message that was changed in place is noticed immediately if it is a
//! leading system message, pinned or among the newest. Other changes are noticed by sampling, and always before
//! messages are cut. If the system messages change from turn to turn, for example because they contain the current
//! time, the whole list is counted again and the provider's prompt cache misses. It is better to put changing text at
//! the end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use epitome_core::condense::{ListState, Press};
use epitome_core::message::{Message, Seq, Span, Tokens};
use epitome_core::tokens::Counter;
use tokio::sync::watch;

use crate::fingerprint::{ListAddress, list_address};
use crate::hidden::Hidden;
use crate::hook::{AbortOnDrop, Condensed};
use crate::lock::lock;
use crate::named_model::ModelChoice;
use crate::summarizer::{Label, notify_hooks, without_media_bytes};

mod builder;
mod conversation;
mod forecast;
mod list_summarizer;
mod ready;
mod thread;

pub use builder::CondenserBuilder;
pub use conversation::ThreadState;
use conversation::{BackgroundSummary, Conversation, NextStep, ResultCell, Rules};
pub use forecast::{Forecast, ForecastReason, MessageForecast};
use list_summarizer::{ListSummarizer, SummaryJob};
pub use ready::{ModelCall, ReadyList, Report, Totals, Turn};
pub use thread::{ModelLoan, Thread};

/// Default maximum number of conversations that a condenser remembers. The least recently used one is evicted.
const MAX_CONVERSATIONS: usize = 64;

/// A conversation counts as ended after this many turns of other conversations.
const RECENT_TURNS: u64 = 64;

/// Condenses message lists before they are sent. Clones share their state.
///
/// See the [module](self) for its use.
#[derive(Debug, Clone)]
pub struct Condenser {
    inner: Hidden<Arc<CondenserInner>>,
}

struct CondenserInner {
    /// Condensers with the same id count tokens in the same way.
    id: u64,
    rules: Rules,
    summarizer: Arc<ListSummarizer>,
    conversations: Mutex<RecentConversations>,
    totals: Mutex<Totals>,
    /// Set if the model is lent. The channel closes when the loan ends.
    loan: Option<watch::Receiver<()>>,
}

type SharedConversation = Hidden<Arc<Mutex<Conversation>>>;

/// Returns an id that is unique in this process.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The conversations that a condenser remembers: an LRU cache.
struct RecentConversations {
    /// The conversations, most recently used first, each with the turn on which it was last used.
    all: Vec<(SharedConversation, u64)>,
    turns: u64,
    /// Maximum number of conversations.
    max: usize,
}

impl RecentConversations {
    fn with_limit(max: usize) -> Self {
        Self { all: Vec::new(), turns: 0, max }
    }

    /// Returns whether several agents may use the condenser: more than one conversation was active recently. An
    /// abandoned list, for example after a reply was requested again, soon stops counting.
    fn is_shared(&self) -> bool {
        self.all.get(1).is_some_and(|(_, used)| self.turns.saturating_sub(*used) < RECENT_TURNS)
    }

    fn insert(&mut self, shared: &SharedConversation) {
        self.turns = self.turns.saturating_add(1);
        self.all.insert(0, (shared.clone(), self.turns));
        self.all.truncate(self.max);
    }

    /// Moves a conversation to the front.
    fn mark_used(&mut self, conversation: &SharedConversation) {
        if let Some(at) = self.all.iter().position(|(shared, _)| Arc::ptr_eq(shared, conversation)) {
            self.all.remove(at);
        }
        self.insert(conversation);
    }
}

/// A model call that is about to be made: its list, and what else the caller knows about it.
///
/// ```
/// use epitome::Call;
/// use epitome::rules::condense::Press;
/// use epitome::Message;
///
/// let list = [Message::user("Hello")];
/// let call = Call { fixed: 812, force: Some(Press::Gently), ..Call::of(&list) };
/// assert_eq!(call.messages.len(), 1);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The whole list.
    pub messages: &'a [Message],
    /// Tokens of the request outside the list, mainly tool definitions. If 0, the value of the builder applies.
    pub fixed: Tokens,
    /// The called model's window minus its output reserve, in tokens, if it differs from the builder's.
    pub room: Option<Tokens>,
    /// Size of the whole request by the provider's own count, if available; otherwise the condenser counts it.
    pub counted: Option<Tokens>,
    /// Condenses although nothing is due: gently, for example when a person requests it, or hard.
    pub force: Option<Press>,
}

impl<'a> Call<'a> {
    /// Creates a call with this list and no other facts.
    pub fn of(messages: &'a [Message]) -> Self {
        Self { messages, fixed: 0, room: None, counted: None, force: None }
    }
}

impl Condenser {
    /// Returns a new builder.
    pub fn builder() -> CondenserBuilder {
        CondenserBuilder::default()
    }

    /// Returns the list to send in place of this one: the same list while nothing is due, otherwise a shorter one.
    ///
    /// ```
    /// # async fn try_it() -> Result<(), epitome::Error> {
    /// use epitome::{Condenser, Message};
    ///
    /// let condenser = Condenser::builder()
    ///     .settings(r#"{"condense": {"trigger": "messages(12)", "keep": "messages(4)"}}"#)
    ///     .build()?;
    /// let history: Vec<Message> =
    ///     (1..=12).map(|n| Message::user(format!("Order {n} goes to Oslo on ship S{n}042, berth {n}."))).collect();
    /// let ready = condenser.before_model(&history).await;
    /// assert_eq!((ready.len(), ready.report.covers), (1 + 4, Some([1, 8])));
    /// assert!(ready.report.notice.starts_with("Condensed 8 messages into a summary"));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
    /// ```
    pub async fn before_model<'a>(&self, messages: &'a [Message]) -> ReadyList<'a> {
        self.before(Call::of(messages)).await
    }

    /// Like [`Condenser::before_model`], for a caller that knows more about the call.
    pub async fn before<'a>(&self, call: Call<'a>) -> ReadyList<'a> {
        let inner = &self.inner;
        let call = Call { fixed: inner.fixed(&call), ..call };
        if !inner.rules.enabled {
            return inner.disabled(&call);
        }
        let compare_fully = lock(&inner.conversations).is_shared();
        let mut matched = inner.find(call.messages, compare_fully);
        loop {
            match inner.run_turn(&mut matched, &call).await {
                Some(ready) => return ready,
                None => {
                    let models_failed = matched.models_failed;
                    matched = MatchedConversation { models_failed, ..inner.find(call.messages, true) };
                }
            }
        }
    }

    /// Returns whether all summaries are written by `local`, so that no call waits for a model.
    pub fn is_local(&self) -> bool {
        self.inner.rules.local
    }

    /// Returns the input limit, in tokens, of the model that lists are for: its window minus `output`, the output limit
    /// of a request, or by default minus the model's usual output reserve. `None` if the window is unknown.
    pub fn room(&self, output: Option<Tokens>) -> Option<Tokens> {
        let rules = &self.inner.rules;
        output.and_then(|output| Some(rules.window?.saturating_sub(output).max(1))).or(rules.room)
    }

    /// Returns whether `condense.model` is `same`: the model that a list is for should also write its summaries. A
    /// caller that has this model [lends](Condenser::lend) it while the request is open. Otherwise `local` writes the
    /// summaries.
    pub fn uses_same_model(&self) -> bool {
        self.inner.rules.uses_same_model
    }

    /// Returns the token counter, to measure the parts of a request outside its list.
    pub fn counter(&self) -> &Counter {
        &self.inner.rules.counter
    }

    /// Creates a condenser with the same configuration for another agent. The two share only the circuit breakers of
    /// the providers and cached answers of models.
    pub fn another(&self) -> Self {
        let max = lock(&self.inner.conversations).max;
        Self { inner: Hidden(Arc::new(self.inner.sibling(next_id(), max))) }
    }

    /// Continues a conversation that was condensed before, for example after a restart. `state` comes from
    /// [`Turn::list_state`].
    pub fn resume(&self, messages: &[Message], state: &ListState) {
        let inner = &self.inner;
        let conversation = Conversation::new(messages, Some(state), &inner.rules);
        inner.remember(conversation, list_address(messages));
    }

    /// Returns what the condenser has done so far.
    pub fn totals(&self) -> Totals {
        *lock(&self.inner.totals)
    }
}

impl CondenserInner {
    /// Creates a condenser with the same configuration that remembers no conversation yet.
    fn sibling(&self, id: u64, max: usize) -> Self {
        Self {
            id,
            rules: self.rules.clone(),
            summarizer: Arc::clone(&self.summarizer),
            conversations: Mutex::new(RecentConversations::with_limit(max)),
            totals: Mutex::default(),
            loan: self.loan.clone(),
        }
    }

    /// Returns the tokens of the request outside its list.
    fn fixed(&self, call: &Call<'_>) -> Tokens {
        if call.fixed == 0 { self.rules.fixed } else { call.fixed }
    }

    /// Decides what is due, does it, and returns the caller's result. Returns `None` if the list does not belong to the
    /// conversation that it was matched with.
    async fn run_turn<'a>(
        &self,
        matched: &mut MatchedConversation,
        call: &Call<'a>,
    ) -> Option<ReadyList<'a>> {
        loop {
            let next = {
                let mut conversation = lock(&matched.conversation);
                if conversation.version != matched.version {
                    // Another caller continued the conversation after the list was compared with it.
                    return None;
                }
                let mut background = None;
                let MatchedConversation { fully_compared, models_failed, .. } = *matched;
                let step =
                    conversation.next_step(call, &self.rules, fully_compared, models_failed, &mut background);
                if let Some(job) = background {
                    self.start_background(&mut conversation, job);
                }
                matched.version = conversation.version;
                match step {
                    // The conversation is still locked, so that no caller gets messages that another caller added in
                    // the meantime.
                    NextStep::Done(report) => {
                        return Some(self.finish_turn(
                            conversation,
                            &matched.conversation,
                            call,
                            report,
                            false,
                        ));
                    }
                    NextStep::Mismatch => return None,
                    NextStep::Wait(ended) => Err(ended),
                    NextStep::Write(job, choice) => Ok((job, choice)),
                }
            };
            let (job, choice) = match next {
                Ok(write) => write,
                Err(mut ended) => {
                    // No value is ever sent: the channel closes when the task ends, with or without a summary.
                    while ended.changed().await.is_ok() {}
                    continue;
                }
            };
            let (plan, outcome) = self.summarizer.write(job, choice).await;
            let mut conversation = lock(&matched.conversation);
            if conversation.version != matched.version {
                // The plan does not apply to the changed list. The spending is reported nevertheless.
                conversation.add_to_report(outcome.spent, outcome.problems);
                return None;
            }
            match conversation.apply_outcome(*plan, outcome, choice, call, &self.rules) {
                Some(report) => {
                    return Some(self.finish_turn(conversation, &matched.conversation, call, report, true));
                }
                None => matched.models_failed = true,
            }
        }
    }

    /// Starts to write a summary in the background.
    fn start_background(&self, conversation: &mut Conversation, job: SummaryJob) {
        if self.loan.as_ref().is_some_and(|loan| loan.has_changed().is_err()) {
            // The loan has already ended.
            return;
        }
        let (summarizer, result, loan) =
            (Arc::clone(&self.summarizer), ResultCell::default(), self.loan.clone());
        let lent = loan.is_some();
        let bytes = job.leaving.iter().map(Message::memory).fold(0, usize::saturating_add);
        let (ends, ended) = watch::channel(());
        let (cell, plan) = (Arc::clone(&result), job.plan.clone());
        let task = AbortOnDrop(tokio::spawn(async move {
            tokio::select! {
                biased;
                () = loan_ended(loan) => {}
                (_, outcome) = summarizer.write(job, ModelChoice::Configured) => *lock(&cell) = Some(outcome),
            }
            drop(ends);
        }));
        conversation.set_background(BackgroundSummary { plan, result, ended, lent, bytes, _task: task });
    }

    /// Builds the caller's result and notifies the hooks. `summarized` says that a summary was written on this turn, so
    /// that the hooks already got the messages.
    fn finish_turn<'a>(
        &self,
        mut conversation: MutexGuard<'_, Conversation>,
        shared: &SharedConversation,
        call: &Call<'a>,
        report: Report,
        summarized: bool,
    ) -> ReadyList<'a> {
        let condensed = conversation.list.shared();
        if report.condensed {
            conversation
                .remember_returned(condensed.as_ref().map_or(call.messages, |list| list), &self.rules);
            if !self.summarizer.hooks.is_empty() {
                self.notify_hooks_after(&conversation, &report, call.messages, summarized);
            }
            conversation.mark_removed();
        }
        let turn = Turn {
            conversation: shared.clone(),
            counted: conversation.list.tokens().saturating_add(call.fixed),
            rounds: conversation.list.state().rounds,
            worth: Some(self.rules.policy.worth),
        };
        let (full, sent) = conversation.full_and_sent(call.fixed);
        drop(conversation);
        lock(&self.totals).add(&report);
        ReadyList { own: call.messages, condensed, report, turn, full, sent }
    }

    /// Notifies hooks of the condensation, and of the removed messages unless the summarizer already reported them.
    fn notify_hooks_after(
        &self,
        conversation: &Conversation,
        report: &Report,
        messages: &[Message],
        summarized: bool,
    ) {
        let removed = conversation.removed(messages);
        let count = removed.len() as u64;
        let ends = [removed.first(), removed.last()].map(|end| end.map_or(1, |message| message.seq));
        let span = |[from, through]: [Seq; 2]| Span { from, through };
        if !summarized && report.model.is_none() && !removed.is_empty() {
            let removed = removed.into_iter().map(without_media_bytes).collect();
            notify_hooks(&self.summarizer.hooks, self.summarizer.label.due_messages(span(ends), removed));
        }
        let Label { workspace, session, slot, scope } = self.summarizer.label.clone();
        let done = Condensed {
            workspace,
            session,
            slot,
            scope,
            covers: span(report.covers.unwrap_or(ends)),
            messages: count,
            tokens_before: report.tokens_before,
            tokens_after: report.tokens_after,
            model: report.model.as_deref().unwrap_or_default().into(),
            stand_in: report.stand_in,
        };
        let hooks = self.summarizer.hooks.clone();
        tokio::spawn(async move { hooks.after(&done).await });
    }

    /// Finds the conversation that the list belongs to, or begins a new one. With `compare_fully` set, it compares
    /// every message. Otherwise it skips the full comparison for the most recently used conversation if the list is at
    /// the same memory address.
    fn find(&self, messages: &[Message], compare_fully: bool) -> MatchedConversation {
        let candidates: Vec<SharedConversation> =
            lock(&self.conversations).all.iter().map(|(shared, _)| shared.clone()).collect();
        let address = list_address(messages);
        let mut best: Option<(usize, MatchedConversation)> = None;
        for (at, shared) in candidates.iter().enumerate() {
            let mut conversation = lock(shared);
            let len = conversation.fingerprints.len();
            let longer = best.as_ref().is_none_or(|(longest, _)| len > *longest);
            if !longer || !conversation.seems_continued_by(messages, &self.rules) {
                continue;
            }
            let skip_comparison = !compare_fully && at == 0 && conversation.address == address;
            if skip_comparison || conversation.fingerprints.match_fully(messages, len, &self.rules.key) {
                best = Some((len, MatchedConversation::of(shared, &conversation, !skip_comparison)));
            }
        }
        if let Some((_, matched)) = best {
            lock(&matched.conversation).address = address;
            lock(&self.conversations).mark_used(&matched.conversation);
            return matched;
        }
        for shared in &candidates {
            let mut conversation = lock(shared);
            if conversation.adopt_system_messages(messages, &self.rules)
                || conversation.adopt_returned_list(messages, &self.rules)
            {
                conversation.address = address;
                let matched = MatchedConversation::of(shared, &conversation, true);
                drop(conversation);
                lock(&self.conversations).mark_used(shared);
                return matched;
            }
            if let Some(fork) = conversation.fork(messages, &self.rules) {
                drop(conversation);
                return self.remember(fork, address);
            }
        }
        self.remember(Conversation::new(messages, None, &self.rules), address)
    }

    fn remember(&self, mut conversation: Conversation, address: ListAddress) -> MatchedConversation {
        conversation.address = address;
        let version = conversation.version;
        let shared = Hidden(Arc::new(Mutex::new(conversation)));
        lock(&self.conversations).insert(&shared);
        MatchedConversation { conversation: shared, version, fully_compared: true, models_failed: false }
    }

    fn disabled<'a>(&self, Call { messages, fixed, .. }: &Call<'a>) -> ReadyList<'a> {
        let count = messages.len() as u64;
        let report = Report {
            reason: "off".to_owned(),
            strategy: self.rules.policy.strategy.to_string(),
            messages_before: count,
            messages_after: count,
            tokens_before: *fixed,
            tokens_after: *fixed,
            window: self.rules.room,
            notice: "condensing is switched off (condense.enabled)".to_owned(),
            ..Report::default()
        };
        let turn = Turn::default();
        ReadyList { own: messages, condensed: None, report, turn, full: *fixed, sent: *fixed }
    }
}

/// Waits until the loan of a model ends. Waits forever if the model is not lent.
async fn loan_ended(loan: Option<watch::Receiver<()>>) {
    match loan {
        Some(mut loan) => while loan.changed().await.is_ok() {},
        None => std::future::pending().await,
    }
}

/// The conversation that a list was matched with.
struct MatchedConversation {
    conversation: SharedConversation,
    /// The conversation's version at the time of the comparison.
    version: u64,
    /// Whether every message was compared.
    fully_compared: bool,
    /// Whether this call already waited for the models, and they wrote no summary.
    models_failed: bool,
}

impl MatchedConversation {
    fn of(shared: &SharedConversation, conversation: &Conversation, fully_compared: bool) -> Self {
        Self {
            conversation: shared.clone(),
            version: conversation.version,
            fully_compared,
            models_failed: false,
        }
    }
}
