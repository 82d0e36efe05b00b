//! Making an agent's own list shorter, before each of its calls.
//!
//! An agent that holds its history itself needs no store. It hands its list to a [`Condenser`] before every call of its
//! model and sends what it gets back: the same list, until that is due; then one that is shorter, valid for every provider,
//! and grows only at its end until the next time.
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
//!     ready.turn().reported(input_tokens);               // the provider's own count, if it tells
//!     history.push(reply);
//!     # break;
//! }
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
//! ```
//!
//! # Where it stands among others
//!
//! In a stack of middleware, before the model: after whatever gathers or adds messages (tools' results, to-do lists, files,
//! sub-agents), and before whatever marks or rewrites them (cache marks, repair of calls, approval). What is put before it
//! is counted and may leave; what comes after it works on the list that is really sent. A cache mark that stood before it
//! would be set on messages that leave.
//!
//! # What a turn costs
//!
//! A message is counted once, when it is first handed in. A turn on which nothing happens costs that of its new messages
//! and a few looks at the old ones, however long the list is. No turn waits for a model, unless `condense.wait` is set: at
//! four fifths of the threshold a summary is begun in the background, and at the threshold it is put in. If it is not there
//! yet, `local` writes one on the spot, and the next is built on the model's own again.
//!
//! # Which list
//!
//! The caller goes on with the full history, or with what it was handed; both are recognised, and so is a history that
//! was shortened again or forked. A condenser may be shared by several agents: it knows their conversations apart, by
//! looking at every message of a list that comes in. Where each has its own ([`Condenser::another`]), a turn stays as cheap
//! as it can be, as long as the list stays where it is in memory. Lists are taken to grow at their end: what was changed
//! in place is noticed at once in standing orders, pinned and newest messages, by samples elsewhere, and always before
//! something is cut. Standing orders that change from turn to turn, because they tell the time say, cost a count of the
//! whole list and the provider's cache; better put what changes at the end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use epitome_core::condense::{Press, Standing};
use epitome_core::message::{Message, Seq, Span, Tokens};
use epitome_core::tokens::Counter;
use tokio::sync::watch;

use crate::fingerprint::{Place, place};
use crate::hidden::Hidden;
use crate::hook::{Condensed, Running};
use crate::lock::lock;
use crate::summarizer::{Label, notify, without_bytes};
use crate::writer::Who;

mod builder;
mod conversation;
mod forecast;
mod ready;
mod scribe;
mod thread;

pub use builder::CondenserBuilder;
pub use conversation::Kept;
use conversation::{Conversation, Preparing, Rules, Slip, Step};
pub use forecast::{Fate, Forecast, Why};
pub use ready::{Ready, Report, Spent, Totals, Turn};
use scribe::{Order, Scribe};
pub use thread::{Lent, Thread};

/// So many conversations one condenser knows unless told otherwise; the one that was longest away is forgotten.
const MOST_CONVERSATIONS: usize = 64;

/// A conversation that did not go on for so many turns of others' is taken to have ended.
const LATELY: u64 = 64;

/// Makes lists shorter before they are sent. Clones are one.
///
/// See the [module](self) for how it is used.
#[derive(Debug, Clone)]
pub struct Condenser {
    inner: Hidden<Arc<Inner>>,
}

struct Inner {
    /// Two condensers of the same number count in the same way.
    id: u64,
    rules: Rules,
    scribe: Arc<Scribe>,
    known: Mutex<Known>,
    totals: Mutex<Totals>,
    /// Closed when the model is taken back, where it was lent.
    loan: Option<watch::Receiver<()>>,
}

type Shared = Hidden<Arc<Mutex<Conversation>>>;

/// A number that no other condenser has.
fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The conversations a condenser knows.
struct Known {
    /// The last used first, with the turn on which it was.
    all: Vec<(Shared, u64)>,
    turns: u64,
    /// So many are known at most.
    most: usize,
}

impl Known {
    fn at_most(most: usize) -> Self {
        Self { all: Vec::new(), turns: 0, most }
    }

    /// Whether there may be several agents: more than one conversation went on lately. A list that was given up, as when a
    /// reply was asked for again, soon counts no more.
    fn is_shared(&self) -> bool {
        self.all.get(1).is_some_and(|(_, used)| self.turns.saturating_sub(*used) < LATELY)
    }

    fn insert(&mut self, shared: &Shared) {
        self.turns = self.turns.saturating_add(1);
        self.all.insert(0, (shared.clone(), self.turns));
        self.all.truncate(self.most);
    }

    fn used(&mut self, found: &Shared) {
        if let Some(at) = self.all.iter().position(|(shared, _)| Arc::ptr_eq(shared, found)) {
            self.all.remove(at);
        }
        self.insert(found);
    }
}

/// A call that is about to be made, where more is known of it than its list.
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
    /// The tokens of what is sent besides it: tools, chiefly. Where it is 0, what the builder was told.
    pub fixed: Tokens,
    /// The window of the model that is called less its output reserve, where it is another than the builder was told.
    pub room: Option<Tokens>,
    /// The size of the whole request by the provider's own count, where that is known; else it is counted here.
    pub counted: Option<Tokens>,
    /// Whether to condense though nothing is due: gently, as when a person asks for it, or hard.
    pub force: Option<Press>,
}

impl<'a> Call<'a> {
    /// With this list, and nothing else known.
    pub fn of(messages: &'a [Message]) -> Self {
        Self { messages, fixed: 0, room: None, counted: None, force: None }
    }
}

impl Condenser {
    /// To make one.
    pub fn builder() -> CondenserBuilder {
        CondenserBuilder::default()
    }

    /// The list to send in place of this one: itself while nothing is due, else a shorter one.
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
    pub async fn before_model<'a>(&self, messages: &'a [Message]) -> Ready<'a> {
        self.before(Call::of(messages)).await
    }

    /// The same, where more is known of the call.
    pub async fn before<'a>(&self, call: Call<'a>) -> Ready<'a> {
        let inner = &self.inner;
        let call = Call { fixed: inner.fixed(&call), ..call };
        if !inner.rules.enabled {
            return inner.off(&call);
        }
        let sure = lock(&inner.known).is_shared();
        let mut found = inner.find(call.messages, sure);
        loop {
            match inner.go_on(&mut found, &call).await {
                Some(ready) => return ready,
                None => found = Found { given_up: found.given_up, ..inner.find(call.messages, true) },
            }
        }
    }

    /// Whether only `local` writes its summaries, so that none has to be waited for.
    pub fn is_local(&self) -> bool {
        self.inner.rules.local
    }

    /// What the model that lists are for has room for, where that is known: its window less what a request keeps free for
    /// the answer, or else what it usually keeps free.
    pub fn room(&self, output: Option<Tokens>) -> Option<Tokens> {
        let rules = &self.inner.rules;
        output.and_then(|output| Some(rules.window?.saturating_sub(output).max(1))).or(rules.room)
    }

    /// Whether `condense.model` is `same`: the model that a list is for should write its summaries too. Whoever has it
    /// [lends](Condenser::lend) it while the request is open; otherwise `local` writes them.
    pub fn borrows(&self) -> bool {
        self.inner.rules.borrows
    }

    /// How it counts, to measure what a request holds besides its list.
    pub fn counter(&self) -> &Counter {
        &self.inner.rules.counter
    }

    /// One that works in the same way and shares nothing but what providers are known to fail: for another agent.
    pub fn another(&self) -> Self {
        let most = lock(&self.inner.known).most;
        Self { inner: Hidden(Arc::new(self.inner.like(number(), most))) }
    }

    /// Takes up a conversation that was condensed before, by what [`Turn::standing`] gave then: after a restart, say.
    pub fn resume(&self, messages: &[Message], standing: &Standing) {
        let inner = &self.inner;
        let conversation = Conversation::begun(messages, Some(standing), &inner.rules);
        inner.remember(conversation, place(messages));
    }

    /// What it has done so far.
    pub fn totals(&self) -> Totals {
        *lock(&self.inner.totals)
    }
}

impl Inner {
    /// One that works in the same way and knows no conversation yet.
    fn like(&self, id: u64, most: usize) -> Self {
        Self {
            id,
            rules: self.rules.clone(),
            scribe: Arc::clone(&self.scribe),
            known: Mutex::new(Known::at_most(most)),
            totals: Mutex::default(),
            loan: self.loan.clone(),
        }
    }

    /// What comes with a call besides its list.
    fn fixed(&self, call: &Call<'_>) -> Tokens {
        if call.fixed == 0 { self.rules.fixed } else { call.fixed }
    }

    /// What the caller gets, once nothing is left to be done; nothing where the list is not where it was found.
    async fn go_on<'a>(&self, found: &mut Found, call: &Call<'a>) -> Option<Ready<'a>> {
        loop {
            let next = {
                let mut conversation = lock(&found.conversation);
                if conversation.changes != found.changes {
                    // Somebody else went on with it since it was compared.
                    return None;
                }
                let mut begin = None;
                let step = conversation.look(call, &self.rules, found.sure, found.given_up, &mut begin);
                if let Some(order) = begin {
                    self.start(&mut conversation, order);
                }
                found.changes = conversation.changes;
                match step {
                    // Under the same lock, so nobody is shown what another said meanwhile.
                    Step::Done(report) => {
                        return Some(self.hand_out(conversation, &found.conversation, call, report, false));
                    }
                    Step::Stranger => return None,
                    Step::Wait(ended) => Err(ended),
                    Step::Write(order, who) => Ok((order, who)),
                }
            };
            let (order, who) = match next {
                Ok(write) => write,
                Err(mut ended) => {
                    // Nothing is ever sent: it is closed when the summary is there, or never will be.
                    while ended.changed().await.is_ok() {}
                    continue;
                }
            };
            let (plan, outcome) = self.scribe.write(order, who).await;
            let mut conversation = lock(&found.conversation);
            if conversation.changes != found.changes {
                // What was planned is not to be done to what the list is now. What was spent is told all the same.
                conversation.note(outcome.spent, outcome.problems);
                return None;
            }
            match conversation.take(*plan, outcome, who, call, &self.rules) {
                Some(report) => {
                    return Some(self.hand_out(conversation, &found.conversation, call, report, true));
                }
                None => found.given_up = true,
            }
        }
    }

    /// Begins a summary that nobody waits for.
    fn start(&self, conversation: &mut Conversation, order: Order) {
        if self.loan.as_ref().is_some_and(|loan| loan.has_changed().is_err()) {
            // What was lent and is taken back by now is not used any more.
            return;
        }
        let (scribe, done, loan) = (Arc::clone(&self.scribe), Slip::default(), self.loan.clone());
        let lent = loan.is_some();
        let bytes = order.leaving.iter().map(Message::memory).fold(0, usize::saturating_add);
        let (ends, ended) = watch::channel(());
        let (slip, plan) = (Arc::clone(&done), order.plan.clone());
        let running = Running(tokio::spawn(async move {
            tokio::select! {
                biased;
                () = taken_back(loan) => {}
                (_, outcome) = scribe.write(order, Who::Models) => *lock(&slip) = Some(outcome),
            }
            drop(ends);
        }));
        conversation.begin(Preparing { plan, done, ended, lent, bytes, _running: running });
    }

    /// What the caller gets, and who else is told.
    fn hand_out<'a>(
        &self,
        mut conversation: MutexGuard<'_, Conversation>,
        shared: &Shared,
        call: &Call<'a>,
        report: Report,
        written: bool,
    ) -> Ready<'a> {
        let condensed = conversation.list.shared();
        if report.condensed {
            conversation.hand_out(condensed.as_ref().map_or(call.messages, |list| list), &self.rules);
            if !self.scribe.hooks.is_empty() {
                self.tell_hooks(&conversation, &report, call.messages, written);
            }
            conversation.left_so_far();
        }
        let turn = Turn {
            conversation: shared.clone(),
            counted: conversation.list.tokens().saturating_add(call.fixed),
            rounds: conversation.list.standing().rounds,
            worth: Some(self.rules.policy.worth),
        };
        let (full, sent) = conversation.full_and_sent(call.fixed);
        drop(conversation);
        lock(&self.totals).add(&report);
        Ready { own: call.messages, condensed, report, turn, full, sent }
    }

    /// Tells hooks what was done, and, where nobody wrote a summary of it, what leaves.
    fn tell_hooks(&self, conversation: &Conversation, report: &Report, messages: &[Message], written: bool) {
        let left = conversation.left(messages);
        let count = left.len() as u64;
        let ends = [left.first(), left.last()].map(|end| end.map_or(1, |message| message.seq));
        let span = |[from, through]: [Seq; 2]| Span { from, through };
        if !written && report.model.is_none() && !left.is_empty() {
            let left = left.into_iter().map(without_bytes).collect();
            notify(&self.scribe.hooks, self.scribe.label.leaving(span(ends), left));
        }
        let Label { workspace, session, slot, scope } = self.scribe.label.clone();
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
        let hooks = self.scribe.hooks.clone();
        tokio::spawn(async move { hooks.after(&done).await });
    }

    /// The conversation that the list belongs to. `sure` looks at every message of it; otherwise that is spared where it
    /// is the one that went on last, and the list lies in memory where it lay before.
    fn find(&self, messages: &[Message], sure: bool) -> Found {
        let known: Vec<Shared> = lock(&self.known).all.iter().map(|(shared, _)| shared.clone()).collect();
        let place = place(messages);
        let mut best: Option<(usize, Found)> = None;
        for (at, shared) in known.iter().enumerate() {
            let mut conversation = lock(shared);
            let len = conversation.prints.len();
            let longer = best.as_ref().is_none_or(|(longest, _)| len > *longest);
            if !longer || !conversation.seems_to_go_on(messages, &self.rules) {
                continue;
            }
            let spared = !sure && at == 0 && conversation.place == place;
            if spared || conversation.prints.are(messages, len, &self.rules.key) {
                best = Some((len, Found::of(shared, &conversation, !spared)));
            }
        }
        if let Some((_, found)) = best {
            lock(&found.conversation).place = place;
            lock(&self.known).used(&found.conversation);
            return found;
        }
        for shared in &known {
            let mut conversation = lock(shared);
            if conversation.takes_head(messages, &self.rules)
                || conversation.takes_handed(messages, &self.rules)
            {
                conversation.place = place;
                let found = Found::of(shared, &conversation, true);
                drop(conversation);
                lock(&self.known).used(shared);
                return found;
            }
            if let Some(fork) = conversation.forked(messages, &self.rules) {
                drop(conversation);
                return self.remember(fork, place);
            }
        }
        self.remember(Conversation::begun(messages, None, &self.rules), place)
    }

    fn remember(&self, mut conversation: Conversation, place: Place) -> Found {
        conversation.place = place;
        let changes = conversation.changes;
        let shared = Hidden(Arc::new(Mutex::new(conversation)));
        lock(&self.known).insert(&shared);
        Found { conversation: shared, changes, sure: true, given_up: false }
    }

    fn off<'a>(&self, Call { messages, fixed, .. }: &Call<'a>) -> Ready<'a> {
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
        Ready { own: messages, condensed: None, report, turn, full: *fixed, sent: *fixed }
    }
}

/// Waits until a model is taken back: forever where it was not lent.
async fn taken_back(loan: Option<watch::Receiver<()>>) {
    match loan {
        Some(mut loan) => while loan.changed().await.is_ok() {},
        None => std::future::pending().await,
    }
}

/// A conversation that was found.
struct Found {
    conversation: Shared,
    /// How often it had changed when the list was compared with it.
    changes: u64,
    /// Whether every message was looked at.
    sure: bool,
    /// Whether the models were waited for this time already, and gave nothing.
    given_up: bool,
}

impl Found {
    fn of(shared: &Shared, conversation: &Conversation, sure: bool) -> Self {
        Self { conversation: shared.clone(), changes: conversation.changes, sure, given_up: false }
    }
}
