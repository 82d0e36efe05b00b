//! Condenses an agent's message list before each model call.
//!
//! An agent that stores its own history needs no Epitome store. Before every model call, the agent passes its message
//! list to a [`Condenser`], and sends the list that the condenser returns. Until a condensation is due, the condenser
//! returns the same list. After a condensation, it returns a shorter list, which every provider accepts. Until the next
//! condensation, the shorter list only grows at its end.
//!
//! ```
//! # async fn try_it() -> Result<(), epitome::Error> {
//! use epitome::{Condenser, Dialect, Message};
//!
//! let condenser = Condenser::builder().for_model("gpt-5-mini").build()?;
//! let mut history = vec![Message::system("You are a harbour master."), Message::user("Which berths are free?")];
//! loop {
//!     let ready = condenser.before_model(&history).await;
//!     let request = Dialect::OPENAI.write(&ready);        // send this request
//!     # let _ = request; let (reply, input_tokens) = (Message::assistant("Berths 4 and 7."), 61);
//!     ready.turn().reported(input_tokens);               // the provider's count of input tokens
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
//! Place the condenser shortly before the model call: after middleware that adds messages (such as tool results, to-do
//! lists, files or output of sub-agents), and before middleware that marks or rewrites messages (such as cache markers,
//! repair of tool calls or approval of tool calls). The condenser counts every message that was added before it, and
//! may condense the message. Middleware after the condenser works on the list that is sent. Do not set a cache marker
//! before the condenser: if the marked message leaves the list, the cache marker is lost.
//!
//! # Cost of a turn
//!
//! The condenser counts the tokens of each message once, when the message first appears in a list. On a turn without a
//! condensation, it processes the new messages and compares a few old messages. The time for this does not depend on
//! the length of the list.
//!
//! By default, no turn waits for a model; the setting `condense.wait` changes this. When the list reaches four fifths
//! of the threshold, the condenser starts to write a summary in the background. At the threshold, it inserts the
//! summary into the list. If the summary is not ready by then, the built-in summarizer `local` immediately writes one
//! instead. The model's next summary is then based on the model's own last summary, not on the summary by `local`.
//!
//! # Which list to pass
//!
//! On the next turn, the caller passes its full history, or the list that the condenser returned, with the new messages
//! at the end. The condenser recognises both. It also recognises a history that the caller shortened or forked. Several
//! agents may share a condenser. The condenser then compares every message of each list, to find out which agent's
//! conversation the list belongs to. A turn takes the least time if each agent has its own condenser
//! ([`Condenser::another`]), and if the agent's list stays at the same memory address. The condenser then compares only
//! a few messages.
//!
//! The condenser assumes that a list only grows at its end. The condenser immediately notices a change of a leading
//! system message, of a pinned message or of one of the newest messages. It finds other changes by sampling. Before it
//! removes messages from a list, it compares every message.
//!
//! If the leading system messages change on every turn, for example because they contain the current time, the
//! condenser counts the whole list again on every turn, and the provider's prompt cache misses. Put changing text at
//! the end of the list instead.

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

/// Default maximum number of conversations that a condenser remembers. At the maximum, the condenser evicts the least
/// recently used conversation.
const MAX_CONVERSATIONS: usize = 64;

/// Number of turns of other conversations after which a conversation counts as ended.
const RECENT_TURNS: u64 = 64;

/// Condenses message lists before they are sent. Clones share their state.
///
/// The [module documentation](self) explains how to use a condenser.
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
    /// Set if a caller lends the model. The channel closes when the loan ends.
    loan: Option<watch::Receiver<()>>,
}

type SharedConversation = Hidden<Arc<Mutex<Conversation>>>;

/// Returns an id that is unique in this process.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// An LRU cache of the conversations that a condenser remembers.
struct RecentConversations {
    /// The conversations, most recently used first. The number is the turn on which the conversation was last used.
    all: Vec<(SharedConversation, u64)>,
    turns: u64,
    /// Maximum number of conversations.
    max: usize,
}

impl RecentConversations {
    fn with_limit(max: usize) -> Self {
        Self { all: Vec::new(), turns: 0, max }
    }

    /// Returns whether several agents may be using the condenser. This is assumed if more than one conversation was
    /// active during the last [`RECENT_TURNS`] turns. A list that its agent abandoned therefore soon stops counting. An
    /// agent abandons a list, for example, when it requests a reply again.
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

/// A model call that the caller is about to make: the message list, and other facts about the request.
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
    /// The whole message list.
    pub messages: &'a [Message],
    /// Tokens of the request that are not in the list, mainly tool definitions. If 0, the condenser uses the tokens of
    /// the schemas that [`CondenserBuilder::tools`] set.
    pub fixed: Tokens,
    /// Window of the called model minus its output reserve, in tokens. If `None`, the condenser uses the window that
    /// its builder determined.
    pub room: Option<Tokens>,
    /// Size of the whole request in tokens, as counted by the provider. If `None`, the condenser computes the size
    /// itself.
    pub counted: Option<Tokens>,
    /// If set, the condenser condenses the list even if the trigger is not met. Set `Gently` if a person requests it,
    /// and `Hard` if the provider rejected the request as too long.
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

    /// Returns the list to send instead of `messages`. This is the same list until a condensation is due, and a shorter
    /// list after that.
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

    /// Like [`Condenser::before_model`], but the caller can also pass other facts about the request.
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

    /// Returns whether `local` writes all summaries. If so, no call waits for a model.
    pub fn is_local(&self) -> bool {
        self.inner.rules.local
    }

    /// Returns the maximum number of input tokens of the model that receives the lists: its window minus the output
    /// limit. `output` is the output limit of a request. If `output` is `None`, the model's usual output reserve is
    /// subtracted instead. Returns `None` if the window is unknown.
    pub fn room(&self, output: Option<Tokens>) -> Option<Tokens> {
        let rules = &self.inner.rules;
        output.and_then(|output| Some(rules.window?.saturating_sub(output).max(1))).or(rules.room)
    }

    /// Returns whether the setting `condense.model` is `same`. This means that the model that receives a list should
    /// also write the summaries of the list. A caller that can call this model [lends](Condenser::lend) it to the
    /// condenser while the request is open. Without a lent model, `local` writes the summaries.
    pub fn uses_same_model(&self) -> bool {
        self.inner.rules.uses_same_model
    }

    /// Returns the token counter. A caller can use it to count the parts of a request that are not in the list.
    pub fn counter(&self) -> &Counter {
        &self.inner.rules.counter
    }

    /// Creates a condenser with the same configuration, for another agent. The two condensers share the circuit
    /// breakers of the providers and the cached answers of models. They do not share conversations.
    pub fn another(&self) -> Self {
        let max = lock(&self.inner.conversations).max;
        Self { inner: Hidden(Arc::new(self.inner.sibling(next_id(), max))) }
    }

    /// Continues a conversation that was condensed before, for example after a restart. `state` is the value that
    /// [`Turn::list_state`] returned.
    pub fn resume(&self, messages: &[Message], state: &ListState) {
        let inner = &self.inner;
        let conversation = Conversation::new(messages, Some(state), &inner.rules);
        inner.remember(conversation, list_address(messages));
    }

    /// Returns the sums over all calls to this condenser so far.
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

    /// Returns the tokens of the request that are not in the list.
    fn fixed(&self, call: &Call<'_>) -> Tokens {
        if call.fixed == 0 { self.rules.fixed } else { call.fixed }
    }

    /// Decides whether a condensation is due, carries it out, and returns the list to send. Returns `None` if the list
    /// does not belong to the matched conversation.
    async fn run_turn<'a>(
        &self,
        matched: &mut MatchedConversation,
        call: &Call<'a>,
    ) -> Option<ReadyList<'a>> {
        loop {
            let next = {
                let mut conversation = lock(&matched.conversation);
                if conversation.version != matched.version {
                    // Another caller continued the conversation after this list was compared with the conversation.
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
                    // The conversation stays locked until the result is built. Otherwise, another caller could add
                    // messages first, and these messages would appear in this caller's result.
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
                    // The task sends no value. The channel closes when the task ends, with or without a summary.
                    while ended.changed().await.is_ok() {}
                    continue;
                }
            };
            let (plan, outcome) = self.summarizer.write(job, choice).await;
            let mut conversation = lock(&matched.conversation);
            if conversation.version != matched.version {
                // The conversation has changed, so the plan cannot be applied. The next report still contains the cost.
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

    /// Builds the caller's result and notifies the hooks. `summarized` is true if a summary was written on this turn.
    /// The hooks have then already received the messages.
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

    /// Notifies the hooks of the condensation. Also passes the removed messages to the hooks, unless the summarizer
    /// already did so.
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

    /// Finds the conversation that the list belongs to, or begins a new conversation. Compares every message. Only if
    /// `compare_fully` is false and the list is at the same memory address as the list of the most recently used
    /// conversation, a comparison of a few messages is enough.
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

/// Waits until the loan of the model ends. If the model is not lent, waits forever.
async fn loan_ended(loan: Option<watch::Receiver<()>>) {
    match loan {
        Some(mut loan) => while loan.changed().await.is_ok() {},
        None => std::future::pending().await,
    }
}

/// The conversation that a list belongs to, and the state of the comparison.
struct MatchedConversation {
    conversation: SharedConversation,
    /// The conversation's version at the time of the comparison.
    version: u64,
    /// Whether every message of the list was compared with the conversation.
    fully_compared: bool,
    /// Whether this call already waited for the models, and the models wrote no summary.
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
