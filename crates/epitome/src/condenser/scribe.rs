//! Connects a condenser to the [summarizer](crate::summarizer), and converts the results.
//!
//! The cost of each call is reported, whether or not the call succeeded, and recorded if the condenser works for a
//! workspace.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use epitome_core::condense::Plan;
use epitome_core::inspect::Refusal;
use epitome_core::local::Extracts;
use epitome_core::message::{Message, Seq, Timestamp};
use epitome_core::slot::Limit;
use epitome_core::tokens::Counter;
use epitome_core::track::Tracker;

use super::ready::Spent;
use crate::error::Error;
use crate::hook::Hooks;
use crate::lock::lock;
use crate::measure;
use crate::model::{Ask, Tally, Told};
use crate::pace::Pace;
use crate::purse::Reserved;
use crate::retry::Failure;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::store::UsageRow;
use crate::summarizer::{
    Answer, Base, Draft, Failed, Host, Input, Label, Memory, Spending, Summarizer, without_bytes,
};
use crate::writer::{Who, Writer};

/// How long a call waits for the store to record what `local` did.
const BRIEF: Duration = Duration::from_millis(50);

/// Writes the summaries of a condenser's conversations, through the summarizer.
#[derive(Clone)]
pub(super) struct Scribe {
    pub(super) writer: Writer,
    pub(super) counter: Counter,
    pub(super) settings: Arc<Settings>,
    pub(super) hooks: Hooks,
    /// The names of the conversation for hooks and records. Without a workspace, the workspace name is empty.
    pub(super) label: Label,
    /// Circuit breakers and cached answers.
    pub(super) memory: Arc<Memory>,
    /// The engine whose workspace this works for: spending is recorded there, and the workspace's cap applies.
    pub(super) workspace: Option<Arc<Shared>>,
    pub(super) pace: Pace,
    /// Whether the models are a caller's own, called with the caller's key.
    pub(super) lent: bool,
}

/// An id of the owner of a conversation.
pub(super) type Whose = [u8; 16];

/// A summary to be written.
pub(super) struct Order {
    pub(super) plan: Box<Plan>,
    /// The messages that leave, with their positions in the conversation.
    pub(super) leaving: Vec<Message>,
    pub(super) extracts: Option<Arc<Extracts>>,
    /// The owner of the conversation.
    pub(super) whose: Option<Whose>,
}

/// A finished summary that may be put in.
#[derive(Clone)]
pub(super) struct Written {
    pub(super) text: Arc<str>,
    /// The model that wrote it.
    pub(super) model: String,
    pub(super) extracts: Option<Arc<Extracts>>,
}

/// The result of an order.
pub(super) struct Outcome {
    pub(super) written: Result<Written, Failure>,
    pub(super) spent: Vec<Spent>,
    pub(super) problems: Vec<String>,
}

impl Scribe {
    /// Writes the summary, with the configured model or with `local` as its fallback.
    pub(super) async fn write(&self, order: Order, who: Who) -> (Box<Plan>, Outcome) {
        let Order { plan, leaving, extracts, whose } = order;
        let writer = match who {
            Who::Models => self.writer.clone(),
            Who::StandIn => Writer::local(),
        };
        let through = leaving.last().map_or(plan.through(), |last| last.seq);
        let mut shapes = Tracker::default();
        let shapes: Vec<_> = leaving.iter().map(|message| shapes.push_sized(message, 0)).collect();
        let base = Base {
            through,
            id: None,
            tokens: plan.prior.as_deref().map_or(0, |text| self.counter.text(text)),
            text: plan.prior.as_deref().map(Into::into),
            extracts,
            ledger: None,
        };
        let own = &self.settings.condense;
        let instructions = match own.instructions.as_str() {
            "" => &self.settings.summarize.instructions,
            own => own,
        };
        let ask = Ask {
            template: Arc::new(own.template(&shapes)),
            previous: base.text.clone(),
            extracts: base.extracts.clone(),
            said: leaving.into_iter().map(|message| Told::Message(without_bytes(message))).collect(),
            through,
            limit: Limit::Tokens(plan.limit),
            instructions: instructions.into(),
            focus: "".into(),
            refused: None,
            replaces: plan.replaces,
            counter: self.counter.clone(),
            redact: self.settings.summarize.redact,
        };
        let input = Input { ask, base: &base, span: plan.span, divide: true, await_hooks: false };
        let mut bill = Bill { shared: self.workspace.as_ref(), spent: Spending::default() };
        let mut summarizer = Summarizer {
            models: std::slice::from_ref(&writer),
            settings: &self.settings,
            pace: &self.pace,
            hooks: &self.hooks,
            breakers: Some(&self.memory.breakers).filter(|_| !self.lent),
            label: self.label.clone(),
            host: &Caller { scribe: self, whose },
            spent: &mut bill.spent,
        };
        let written = summarizer.write(input).await;
        let written = written.map(|draft| Written::of(draft, through)).map_err(failure);
        let mut problems = std::mem::take(&mut bill.spent.hook_problems);
        problems.append(&mut bill.spent.missed);
        let spent = bill.settle(writer.is_local()).await;
        (plan, Outcome { written, spent, problems })
    }
}

impl Written {
    fn of(draft: Draft, through: Seq) -> Self {
        let Draft { text, model, sources, .. } = draft;
        // Of a model's summary only the text is available; the names come from the messages.
        let of_text = |ledger| Extracts::of_text(&text, through).naming(ledger);
        let extracts = sources.extracts.or_else(|| sources.ledger.map(of_text));
        Self { model, extracts: extracts.map(Arc::new), text: text.into() }
    }
}

/// Converts the summarizer's failure. A list has a single owner and no permits are used, so the cases that cannot
/// happen are reported as an empty answer.
fn failure(failed: Failed) -> Failure {
    match failed {
        Failed::Failure(failure) => failure,
        Failed::Store(error) => Failure::Store { reason: error.to_string() },
        Failed::Nothing | Failed::TooLong | Failed::Lost | Failed::Full(_) => Refusal::Empty.into(),
    }
}

/// The summarizer's host for one order.
struct Caller<'a> {
    scribe: &'a Scribe,
    whose: Option<Whose>,
}

impl Caller<'_> {
    /// Returns the cache key of an answer. It includes workspace and owner, so that answers are not shared between
    /// them.
    fn key(&self, asked: &str) -> String {
        let whose = self.whose.map_or(String::new(), |whose| format!(" {:032x}", u128::from_be_bytes(whose)));
        format!("{asked}{whose} {}", self.scribe.label.workspace)
    }
}

#[async_trait]
impl Host for Caller<'_> {
    fn now(&self) -> Timestamp {
        now()
    }

    async fn reserve(&self, writer: &Writer, most: &Tally) -> Result<Option<Reserved>, Failed> {
        let Scribe { workspace: Some(shared), label, settings, .. } = self.scribe else { return Ok(None) };
        shared.reserve(&label.workspace, settings, writer, most, now()).await
    }

    async fn recall(&self, asked: &str) -> Result<Option<Answer>, Error> {
        Ok(self.scribe.memory.answers.recall(&self.key(asked)))
    }

    fn remember(&self, asked: &str, answer: Answer) {
        self.scribe.memory.answers.remember(self.key(asked), answer);
    }
}

/// The cost of an order. If it is dropped before it is settled, because the client disconnected, the spending is
/// recorded nevertheless: the provider bills it.
struct Bill<'a> {
    /// The engine that records the cost.
    shared: Option<&'a Arc<Shared>>,
    spent: Spending,
}

impl Bill<'_> {
    /// Records the calls. If they were free, the caller waits only briefly for the disk.
    async fn settle(mut self, free: bool) -> Vec<Spent> {
        let spent = std::mem::take(&mut self.spent);
        let rows = spent.unrecorded.clone();
        if let Some(shared) = self.shared
            && !rows.is_empty()
        {
            let recording = tokio::spawn(record(Arc::clone(shared), rows.clone(), spent));
            let wait = if free { BRIEF } else { Duration::MAX };
            let _ = tokio::time::timeout(wait, recording).await;
        }
        rows.into_iter().map(Spent::from).collect()
    }
}

impl Drop for Bill<'_> {
    fn drop(&mut self) {
        let rows = self.spent.in_vain();
        if let Some(shared) = self.shared
            && !rows.is_empty()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(record(Arc::clone(shared), rows, std::mem::take(&mut self.spent)));
        }
    }
}

/// Writes calls to the workspace's usage records. Their reserved amounts are released afterwards.
async fn record(shared: Arc<Shared>, rows: Vec<UsageRow>, _reserved: Spending) {
    measure::recorded(&rows);
    if let Err(error) = shared.store.record(rows).await {
        // The summary is valid nevertheless; the health check reports the problem with the store.
        *lock(&shared.health.trouble) = Some(error.to_string());
    }
}

impl From<UsageRow> for Spent {
    fn from(row: UsageRow) -> Self {
        let UsageRow { model, outcome, input, cached, output, cost, millis, .. } = row;
        Self { model, outcome, input, cached, output, cost, millis }
    }
}

/// Returns the current time.
pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
