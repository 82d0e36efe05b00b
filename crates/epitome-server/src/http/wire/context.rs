//! Contexts, and what they say of themselves.

use epitome::rules::context::{Empty, Report};
use serde::Serialize;
use utoipa::ToSchema;

use super::{MessageOut, SpanOut};

/// A context: what the agent is given.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Context)]
pub(crate) struct ContextOut<'a> {
    /// A list any provider accepts. A summary is a message of its own, between tags.
    pub(crate) messages: Vec<MessageOut<'a>>,
    pub(crate) report: ReportOut,
    /// The summary in it, where there is one.
    // Last, since what changes by itself is in it.
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
    /// Its slot.
    pub(crate) slot: Option<&'a str>,
    /// Who wrote it.
    pub(crate) model: Option<&'a str>,
    /// Whether it only stands in for one that a failing model should have written.
    pub(crate) stand_in: bool,
    /// Up to which message it stands.
    pub(crate) through: u64,
    /// When it was written, in milliseconds since 1970.
    pub(crate) created: Option<i64>,
    /// Its text as shown.
    pub(crate) text: &'a str,
    /// How old it is, in milliseconds.
    // Last and always there, so that it can be told from what lasts: see `Written::aging`.
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
#[expect(dead_code, reason = "it is there to be described")]
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
    /// All of it.
    pub(crate) total: u64,
    /// Standing orders at the head.
    pub(crate) leading: u64,
    /// Pinned messages, and the user message that opened the turn under way.
    pub(crate) pinned: u64,
    /// The summary.
    pub(crate) summary: u64,
    /// The other messages.
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
