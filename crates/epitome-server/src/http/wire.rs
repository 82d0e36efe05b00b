//! What goes over the wire, field by field.
//!
//! Each of these is mapped by hand from what the engine has, so that the one can change without the other, and so
//! that nothing goes out by accident: numbers of the store's own, say, which would tell of other workspaces.

use epitome::core::context::{Empty, Report};
use epitome::core::message::{Message, Part, Role, Span};
use epitome::store::UsageSum;
use epitome::{
    Explanation, Found, Queue, QueueEntry, SessionInfo, SlotExplanation, SlotStatus, Summarized, Summary,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A page of something.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// What to give as `after` for the next page; nothing where this is the last.
    pub(crate) next: Option<String>,
}

impl<T> Page<T> {
    /// What was read, one more than was asked for where there are more; and how to go on after an item.
    pub(crate) fn new(mut items: Vec<T>, limit: usize, place: impl Fn(&T) -> String) -> Self {
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(place);
        Self { items, next }
    }
}

/// A run of messages, both ends included.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[schema(as = Span)]
pub(crate) struct SpanOut {
    #[schema(minimum = 1)]
    pub(crate) from: u64,
    #[schema(minimum = 1)]
    pub(crate) through: u64,
}

impl From<Span> for SpanOut {
    fn from(span: Span) -> Self {
        Self { from: span.from, through: span.through }
    }
}

/// A session: how long it is, and the caller's notes on it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Session)]
pub(crate) struct SessionOut {
    pub(crate) name: String,
    /// How many messages it holds: the place of the newest.
    pub(crate) messages: u64,
    pub(crate) turns: u64,
    pub(crate) tokens: u64,
    /// How tokens are counted.
    #[schema(example = "o200k_base")]
    pub(crate) encoding: String,
    /// How many messages are skipped, by whole call batches.
    pub(crate) skipped: u64,
    #[schema(value_type = Object)]
    pub(crate) metadata: Map<String, Value>,
    /// Milliseconds since 1970.
    pub(crate) created: i64,
    pub(crate) updated: i64,
}

impl From<SessionInfo> for SessionOut {
    fn from(info: SessionInfo) -> Self {
        Self {
            name: info.name.to_string(),
            messages: info.messages,
            turns: info.turns,
            tokens: info.tokens,
            encoding: info.encoding,
            skipped: info.skipped,
            metadata: info.metadata,
            created: info.created.0,
            updated: info.updated.0,
        }
    }
}

/// A session with its slots and settings.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionWhole {
    #[serde(flatten)]
    pub(crate) session: SessionOut,
    /// Where each summary stands, and why it is due or not.
    pub(crate) slots: Vec<SlotOut>,
    /// The settings that hold in it.
    #[schema(value_type = Object)]
    pub(crate) settings: Value,
}

impl SessionWhole {
    pub(crate) fn new(explained: Explanation, settings: Value) -> Self {
        let slots = explained.slots.into_iter().map(SlotOut::from).collect();
        Self { session: explained.session.into(), slots, settings }
    }
}

/// Where a slot stands.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Slot)]
pub(crate) struct SlotOut {
    pub(crate) slot: String,
    /// Whose messages it covers; everybody's where nobody is named.
    pub(crate) scope: Option<String>,
    #[schema(value_type = Status)]
    pub(crate) status: SlotStatus,
    /// The same in words.
    pub(crate) why: String,
    /// The summary that stands.
    pub(crate) summary: Option<i64>,
    /// Up to which message it stands.
    pub(crate) covered: u64,
    /// The first firing to be worked off.
    pub(crate) due: Option<u64>,
    /// When it fires if nobody says anything more.
    pub(crate) due_at: Option<i64>,
    #[schema(example = "messages(20)")]
    pub(crate) trigger: Option<String>,
    /// How far each condition of the trigger is.
    pub(crate) gauges: Vec<GaugeOut>,
    pub(crate) keep: Option<String>,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) max_chars: Option<u64>,
    pub(crate) models: Vec<String>,
    /// How often in a row it failed.
    pub(crate) attempts: u32,
    pub(crate) failing_since: Option<i64>,
    /// When it is tried again.
    pub(crate) not_before: Option<i64>,
    pub(crate) last_error: Option<String>,
}

/// What a slot does.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "it is there to be described")]
pub(crate) enum Status {
    Idle,
    Due,
    Working,
    Waiting,
    Parked,
    Retired,
}

/// How far one condition is: `messages 13 of 20`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Gauge)]
pub(crate) struct GaugeOut {
    pub(crate) condition: &'static str,
    pub(crate) have: u64,
    /// From where on it is met; nothing where that is not known.
    pub(crate) need: Option<u64>,
}

impl From<SlotExplanation> for SlotOut {
    fn from(slot: SlotExplanation) -> Self {
        let gauges = slot.gauges.map(|standing| standing.gauges).unwrap_or_default();
        Self {
            slot: slot.slot,
            scope: slot.scope.map(|scope| scope.to_string()),
            status: slot.status,
            why: slot.why,
            summary: slot.summary,
            covered: slot.covered,
            due: slot.due,
            due_at: slot.due_at.map(|at| at.0),
            trigger: slot.trigger,
            gauges: gauges
                .into_iter()
                .map(|gauge| GaugeOut { condition: gauge.condition, have: gauge.have, need: gauge.need })
                .collect(),
            keep: slot.keep,
            max_tokens: slot.max_tokens,
            max_chars: slot.max_chars,
            models: slot.models,
            attempts: slot.attempts,
            failing_since: slot.failing_since.map(|at| at.0),
            not_before: slot.not_before.map(|at| at.0),
            last_error: slot.last_error,
        }
    }
}

/// A message as it is kept.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Message)]
pub(crate) struct MessageOut<'a> {
    /// Its place in the session; 0 for what is only in a context (the summary).
    pub(crate) seq: u64,
    #[schema(value_type = RoleName)]
    pub(crate) role: Role,
    /// Who said it, where that is known beyond the role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) author: Option<&'a str>,
    #[schema(value_type = Vec<PartShape>)]
    pub(crate) parts: &'a [Part],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) pinned: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) skip: bool,
    /// When it was said, in milliseconds since 1970.
    pub(crate) at: i64,
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Option<Object>)]
    pub(crate) metadata: &'a Map<String, Value>,
}

impl<'a> From<&'a Message> for MessageOut<'a> {
    fn from(message: &'a Message) -> Self {
        Self {
            seq: message.seq,
            role: message.role,
            author: message.author.as_deref(),
            parts: &message.parts,
            pinned: message.pinned,
            skip: message.skip,
            at: message.at.0,
            metadata: &message.metadata,
        }
    }
}

/// In which role a message was said.
#[derive(ToSchema)]
#[schema(as = Role, rename_all = "lowercase")]
#[expect(dead_code, reason = "it is there to be described")]
pub(crate) enum RoleName {
    System,
    Developer,
    User,
    Assistant,
    Tool,
    Peer,
}

/// One piece of a message.
#[derive(ToSchema, Serialize)]
#[schema(as = Part)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(dead_code, reason = "it is there to be described")]
pub(crate) enum PartShape {
    /// Plain words.
    Text { text: String },
    /// The model's reasoning.
    Thinking { text: String, signature: Option<String>, id: Option<String>, redacted: Option<bool> },
    /// The model asks for a tool; `arguments` as it wrote them.
    ToolCall {
        #[schema(min_length = 1)]
        id: String,
        item_id: Option<String>,
        #[schema(min_length = 1)]
        name: String,
        arguments: String,
    },
    /// What answers a call.
    ToolResult {
        #[schema(min_length = 1)]
        call: String,
        content: Vec<ContentShape>,
        error: Option<bool>,
    },
    /// A picture, a sound, a document.
    Media {
        mime: String,
        source: SourceShape,
        /// Width and height.
        #[schema(min_items = 2, max_items = 2)]
        size: Option<Vec<u32>>,
    },
}

/// A piece of a tool's answer.
#[derive(ToSchema, Serialize)]
#[schema(as = Content)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(dead_code, reason = "it is there to be described")]
pub(crate) enum ContentShape {
    Text {
        text: String,
    },
    Media {
        mime: String,
        source: SourceShape,
        #[schema(min_items = 2, max_items = 2)]
        size: Option<Vec<u32>>,
    },
}

/// Where a medium's bytes are.
#[derive(ToSchema, Serialize)]
#[schema(as = Source)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "it is there to be described")]
pub(crate) enum SourceShape {
    Base64(String),
    Url(String),
    File(String),
}

/// What became of an append.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Appended)]
pub(crate) struct AppendedOut {
    /// The first of the messages, by its place.
    #[schema(minimum = 1)]
    pub(crate) from: u64,
    /// The last of them.
    #[schema(minimum = 1)]
    pub(crate) through: u64,
    /// Whether they were there already, under the same idempotency key.
    pub(crate) repeated: bool,
}

/// A context: what the agent is given.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Context)]
pub(crate) struct ContextOut<'a> {
    /// A list any provider accepts. A summary is a message of its own, between tags.
    pub(crate) messages: Vec<MessageOut<'a>>,
    pub(crate) report: ReportOut,
    /// Last, as its age is in it.
    pub(crate) summary: Option<ShownOut<'a>>,
}

/// The summary a context holds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ShownSummary)]
pub(crate) struct ShownOut<'a> {
    /// Its number; nothing where it is only a digest made on the spot.
    pub(crate) id: Option<i64>,
    /// The second one, where two were joined.
    pub(crate) joined: Option<i64>,
    pub(crate) slot: Option<&'a str>,
    pub(crate) model: Option<&'a str>,
    /// Whether it only stands in for one that a failing model should have written.
    pub(crate) stand_in: bool,
    /// Up to which message it stands.
    pub(crate) through: u64,
    pub(crate) created: Option<i64>,
    /// Its text as shown.
    pub(crate) text: &'a str,
    /// How old it is, in milliseconds. Last, so that what lasts can be told from it ([`Known::read_aging`]).
    ///
    /// [`Known::read_aging`]: super::reply::Known::read_aging
    pub(crate) age: Option<u64>,
}

/// What a context holds and what it leaves out.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Report)]
pub(crate) struct ReportOut {
    /// The budget it was made for.
    pub(crate) budget: u64,
    pub(crate) tokens: SpentOut,
    /// The messages the summary stands for.
    pub(crate) covers: Option<SpanOut>,
    /// Whether every message not skipped is covered by the summary or there word for word.
    pub(crate) exhaustive: bool,
    /// From the first to the last message that is neither, where there are such.
    pub(crate) gap: Option<SpanOut>,
    /// Messages that are skipped, outside coverage.
    pub(crate) skipped: u64,
    /// Messages that answer nothing or repeat what is there: never shown.
    pub(crate) strays: u64,
    /// Whether the budget cut the list of messages short.
    pub(crate) cut: bool,
    /// Whether the summary was shortened on the spot.
    pub(crate) fitted: bool,
    /// The messages that are in the summary only as their best lines, picked on the spot.
    pub(crate) digested: Option<SpanOut>,
    /// Why there is nothing in it.
    #[schema(value_type = Option<EmptyName>)]
    pub(crate) empty: Option<Empty>,
    /// The last message of the log it was made from.
    pub(crate) through: u64,
    /// How tokens were counted.
    pub(crate) encoding: String,
}

/// Why a context is empty.
#[derive(ToSchema)]
#[schema(as = Empty, rename_all = "snake_case")]
#[expect(dead_code, clippy::enum_variant_names, reason = "it is there to be described")]
pub(crate) enum EmptyName {
    NoMessages,
    PinnedOverBudget,
    NewestOverBudget,
    NoValidList,
}

/// Where the tokens of a context went.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[schema(as = Spent)]
pub(crate) struct SpentOut {
    pub(crate) total: u64,
    /// Standing orders at the head.
    pub(crate) leading: u64,
    /// Pinned messages, and the user message that opened the turn under way.
    pub(crate) pinned: u64,
    pub(crate) summary: u64,
    pub(crate) messages: u64,
    /// The note of ours that opens a list.
    pub(crate) marks: u64,
}

impl ReportOut {
    pub(crate) fn new(report: &Report, through: u64, encoding: &str) -> Self {
        let tokens = &report.tokens;
        Self {
            budget: report.budget,
            tokens: SpentOut {
                total: tokens.total(),
                leading: tokens.leading,
                pinned: tokens.pinned,
                summary: tokens.summary,
                messages: tokens.messages,
                marks: tokens.marks,
            },
            covers: report.covers.map(SpanOut::from),
            exhaustive: report.exhaustive,
            gap: report.gap.map(SpanOut::from),
            skipped: report.skipped,
            strays: report.strays,
            cut: report.cut,
            fitted: report.fitted,
            digested: report.digested.map(SpanOut::from),
            empty: report.empty,
            through,
            encoding: encoding.to_owned(),
        }
    }
}

/// A summary, and all that is known of it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Summary)]
pub(crate) struct SummaryOut {
    /// Its number in its session.
    pub(crate) id: i64,
    pub(crate) slot: String,
    /// Whose messages it stands for; everybody's where nobody is named.
    pub(crate) scope: Option<String>,
    /// It stands for all its scope's messages up to this one.
    pub(crate) through: u64,
    /// What was new in it.
    pub(crate) span: Option<SpanOut>,
    pub(crate) text: String,
    pub(crate) tokens: u64,
    /// The tokens of what it replaced: messages, and the summary before.
    pub(crate) replaced_tokens: u64,
    /// How many messages there were to see before it; a summary counts as one.
    pub(crate) original_count: u64,
    pub(crate) compressed_count: u64,
    /// By how much that is less, in percent.
    pub(crate) compression_ratio: f64,
    pub(crate) skipped: u64,
    pub(crate) model: String,
    pub(crate) stand_in: bool,
    /// `standing`, `superseded` or `undone`.
    #[schema(value_type = StateName)]
    pub(crate) state: epitome::store::SummaryState,
    /// The one that stood before it, and stands again when this one is undone.
    pub(crate) parent: Option<i64>,
    pub(crate) built_on: Option<i64>,
    /// The message at which it became due.
    pub(crate) fired_at: u64,
    pub(crate) focus: Option<String>,
    /// Names the model left out, and that were added.
    pub(crate) added_names: Vec<String>,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    /// In the price table's money; nothing where no price is known.
    pub(crate) cost: Option<f64>,
    pub(crate) millis: u64,
    pub(crate) created: i64,
}

/// Whether a summary stands.
#[derive(ToSchema)]
#[schema(as = SummaryState, rename_all = "lowercase")]
#[expect(dead_code, reason = "it is there to be described")]
pub(crate) enum StateName {
    Standing,
    Superseded,
    Undone,
}

impl From<Summary> for SummaryOut {
    fn from(summary: Summary) -> Self {
        Self {
            id: summary.id,
            slot: summary.slot,
            scope: summary.scope.map(|scope| scope.to_string()),
            through: summary.through,
            span: summary.span.map(SpanOut::from),
            text: summary.text,
            tokens: summary.tokens,
            replaced_tokens: summary.replaced_tokens,
            original_count: summary.original_count,
            compressed_count: summary.compressed_count,
            compression_ratio: summary.compression_ratio,
            skipped: summary.skipped,
            model: summary.model,
            stand_in: summary.stand_in,
            state: summary.state,
            parent: summary.parent,
            built_on: summary.built_on,
            fired_at: summary.fired_at,
            focus: summary.focus,
            added_names: summary.added_names,
            input_tokens: summary.input_tokens,
            output_tokens: summary.output_tokens,
            cost: summary.cost,
            millis: summary.millis,
            created: summary.created.0,
        }
    }
}

/// What came of a wish for a summary now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Summarized)]
pub(crate) struct SummarizedOut {
    pub(crate) status: SummarizedStatus,
    /// The one that was written, or that stands where nothing is new.
    pub(crate) summary: Option<SummaryOut>,
    /// Why it is not written yet, where that is known.
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SummarizedStatus {
    /// Nothing new was said, or all that is new is kept verbatim.
    NothingNew,
    Written,
    /// It will be written.
    Pending,
}

impl From<Summarized> for SummarizedOut {
    fn from(summarized: Summarized) -> Self {
        let (status, summary, reason) = match summarized {
            Summarized::NothingNew { summary } => (SummarizedStatus::NothingNew, summary, None),
            Summarized::Written { summary } => (SummarizedStatus::Written, Some(summary), None),
            Summarized::Pending { reason } => (SummarizedStatus::Pending, None, reason),
        };
        Self { status, summary: summary.map(SummaryOut::from), reason }
    }
}

/// What an undo left.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Undone {
    /// The summary that was taken back.
    pub(crate) undone: i64,
    /// The one that stands again, where there was one before.
    pub(crate) stands: Option<SummaryOut>,
}

/// Whether a slot is written anew.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Rebuilding {
    /// False where there is nothing to summarize.
    pub(crate) rebuilding: bool,
}

/// A message found by its words.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Found)]
pub(crate) struct FoundOut<'a> {
    pub(crate) session: &'a str,
    /// The words around the first match.
    pub(crate) excerpt: &'a str,
    pub(crate) message: MessageOut<'a>,
}

impl<'a> From<&'a Found> for FoundOut<'a> {
    fn from(found: &'a Found) -> Self {
        Self { session: &found.session, excerpt: &found.excerpt, message: (&found.message).into() }
    }
}

/// What is due in a workspace.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Queue)]
pub(crate) struct QueueOut {
    /// Due, and not yet taken up.
    pub(crate) due: u64,
    /// Being written.
    pub(crate) working: u64,
    /// Failed, and tried again later.
    pub(crate) waiting: u64,
    /// Due, but nothing can be cut yet.
    pub(crate) parked: u64,
    /// The slots, those waiting longest first; 1,000 of them at most.
    pub(crate) slots: Vec<QueueEntryOut>,
}

/// A slot with something to do.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QueueEntry)]
pub(crate) struct QueueEntryOut {
    pub(crate) session: String,
    pub(crate) slot: String,
    pub(crate) scope: Option<String>,
    #[schema(value_type = Status)]
    pub(crate) status: SlotStatus,
    pub(crate) due: Option<u64>,
    pub(crate) since: Option<i64>,
    pub(crate) attempts: u32,
    pub(crate) not_before: Option<i64>,
    pub(crate) last_error: Option<String>,
}

impl From<Queue> for QueueOut {
    fn from(queue: Queue) -> Self {
        let entry = |entry: QueueEntry| QueueEntryOut {
            session: entry.session.to_string(),
            slot: entry.slot,
            scope: entry.scope.map(|scope| scope.to_string()),
            status: entry.status,
            due: entry.due,
            since: entry.since.map(|at| at.0),
            attempts: entry.attempts,
            not_before: entry.not_before.map(|at| at.0),
            last_error: entry.last_error,
        };
        Self {
            due: queue.due,
            working: queue.working,
            waiting: queue.waiting,
            parked: queue.parked,
            slots: queue.slots.into_iter().map(entry).collect(),
        }
    }
}

/// Calls of models, added up.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Usage)]
pub(crate) struct UsageOut {
    /// All of them together.
    pub(crate) total: UsageSumOut,
    /// By slot, model and outcome.
    pub(crate) items: Vec<UsageItemOut>,
}

#[derive(Debug, Default, Clone, Copy, Serialize, ToSchema)]
#[schema(as = UsageSum)]
pub(crate) struct UsageSumOut {
    pub(crate) calls: u64,
    /// Tokens sent.
    pub(crate) input: u64,
    /// Of those, read from the provider's cache.
    pub(crate) cached: u64,
    pub(crate) output: u64,
    /// In the price table's money; nothing where no price was known for any of them.
    pub(crate) cost: Option<f64>,
    /// How long they took together.
    pub(crate) millis: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UsageItem)]
pub(crate) struct UsageItemOut {
    /// Whose messages; everybody's where nobody is named.
    pub(crate) scope: Option<String>,
    pub(crate) slot: String,
    pub(crate) model: String,
    /// `kept`, or what was wrong.
    pub(crate) outcome: String,
    #[serde(flatten)]
    pub(crate) sum: UsageSumOut,
}

impl From<Vec<UsageSum>> for UsageOut {
    fn from(sums: Vec<UsageSum>) -> Self {
        let mut total = UsageSumOut::default();
        let mut items = Vec::new();
        for row in sums {
            let sum = UsageSumOut {
                calls: row.calls,
                input: row.input,
                cached: row.cached,
                output: row.output,
                cost: row.cost.map(money),
                millis: row.millis,
            };
            total.calls = total.calls.saturating_add(sum.calls);
            total.input = total.input.saturating_add(sum.input);
            total.cached = total.cached.saturating_add(sum.cached);
            total.output = total.output.saturating_add(sum.output);
            total.millis = total.millis.saturating_add(sum.millis);
            if let Some(cost) = sum.cost {
                total.cost = Some(total.cost.unwrap_or_default() + cost);
            }
            let scope = Some(row.scope).filter(|scope| !scope.is_empty());
            items.push(UsageItemOut { scope, slot: row.slot, model: row.model, outcome: row.outcome, sum });
        }
        Self { total, items }
    }
}

/// Millionths to whole money.
#[expect(clippy::cast_precision_loss, reason = "nobody pays 2^52 millionths")]
fn money(millionths: i64) -> f64 {
    millionths as f64 / 1_000_000.0
}

/// What a session shall be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionIn {
    /// Settings of this session alone: what is named is changed, null takes a change back.
    #[schema(value_type = Option<Object>)]
    pub(crate) settings: Option<Map<String, Value>>,
    /// The caller's notes, in place of those there are; 64 KiB at most.
    #[schema(value_type = Option<Object>)]
    pub(crate) metadata: Option<Map<String, Value>>,
}

/// What a workspace's settings shall be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkspaceIn {
    /// What is named is changed, null takes a change back.
    #[schema(value_type = Object)]
    pub(crate) settings: Map<String, Value>,
}

/// A workspace's settings.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Workspace)]
pub(crate) struct WorkspaceOut<'a> {
    pub(crate) name: &'a str,
    /// What was set here.
    #[schema(value_type = Object)]
    pub(crate) own: Value,
    /// The settings that hold in its sessions, those that change some themselves excepted.
    #[schema(value_type = Object)]
    pub(crate) settings: Value,
}

/// Flags to be set; those left out stay.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FlagsIn {
    /// Always shown word for word.
    pub(crate) pinned: Option<bool>,
    /// Never summarized, counted by no trigger.
    pub(crate) skip: Option<bool>,
}

/// A summary wanted now.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SummarizeIn {
    /// Which slot; the first where none is named.
    pub(crate) slot: Option<String>,
    /// Whose messages; everybody's where nobody is named.
    pub(crate) scope: Option<String>,
    /// What to pay attention to most.
    #[schema(max_length = 4000)]
    pub(crate) focus: Option<String>,
}

/// A new session from this one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForkIn {
    /// What it is called. There must be no such session yet.
    #[schema(min_length = 1, max_length = 512)]
    pub(crate) name: String,
    /// The last message it takes over; the newest where none is named.
    #[schema(minimum = 1)]
    pub(crate) at: Option<u64>,
    #[serde(default)]
    pub(crate) kind: ForkKindIn,
}

/// What a fork takes over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ForkKindIn {
    /// Every message, and the summaries that stood there.
    #[default]
    Whole,
    /// What a context would hold: for a sub-agent.
    Condensed,
}
