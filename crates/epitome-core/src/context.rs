//! Lays out a context: a conversation within a token budget.
//!
//! [`lay_out`] decides, from outlines and sizes alone, which messages and which summary go into a context;
//! [`crate::view`] then inserts the texts. The budget is spent in a fixed order, so the same session and budget always
//! produce the same context:
//!
//! 1. the system messages at the head, and pinned messages;
//! 2. the newest message with its call batch;
//! 3. the user message that opened the current turn, so that the model sees the request;
//! 4. the summary, up to its share of the budget;
//! 5. the messages after the summary's coverage, with the tokens that remain;
//! 6. with `fill`, older messages.
//!
//! Messages that do not fit are left out at a legal cut, and the [`ContextReport`] says so. If no valid list fits the
//! budget, the context is empty and the report contains the reason.

use serde::{Deserialize, Serialize};

use crate::cut::Cuts;
use crate::message::{Author, Seq, Span, Tokens};
use crate::outline::Outline;
use crate::setting::SettingError;
use crate::tokens::Counter;
use crate::trigger::Fraction;
use crate::view::{marked_result, note};

mod choose;
mod lay_out;
mod planner;

pub use lay_out::lay_out;

/// Options of a context.
///
/// ```
/// use epitome_core::context::Request;
/// let request = Request { tokens: Some(4_000), ..Request::default() };
/// assert_eq!(request.budget(), Ok(4_000));
/// assert_eq!(Request::default().budget(), Ok(100_000));
/// let zero = Request { tokens: Some(0), ..Request::default() };
/// assert_eq!(zero.budget().unwrap_err().to_string(), "tokens: 0; the minimum is 1");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The token budget T. The default is `max_tokens`.
    pub tokens: Option<Tokens>,
    /// Whether the context may contain a summary.
    pub summary: bool,
    /// Whether a summary that is larger than its share may be shortened for this context.
    pub fit: bool,
    /// Whether the rest of the budget is spent on older messages.
    pub fill: bool,
    /// Whether the first message of a cut context changes only after the log has grown by about a quarter of T, so that
    /// prompt caches hit.
    pub steady: bool,
    /// What happens if the newest message alone exceeds the budget.
    pub oversize: Oversize,
    /// The peer whose messages are sent as the assistant's, in a session whose peers have no assigned role.
    pub assistant: Option<Author>,
    /// Largest share of T, after system and pinned messages, that the summary may use.
    pub share: Fraction,
    /// Largest share of T that the summary may use if `fill` is set.
    pub filled: Fraction,
    /// Upper limit of T.
    pub max_tokens: Tokens,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            tokens: None,
            summary: true,
            fit: true,
            fill: false,
            steady: false,
            oversize: Oversize::default(),
            assistant: None,
            share: Fraction::percent(40),
            filled: Fraction::percent(60),
            max_tokens: 100_000,
        }
    }
}

impl Request {
    /// Returns the budget, or an error that names the invalid option.
    pub fn budget(&self) -> Result<Tokens, SettingError> {
        let (limit, none) = (self.max_tokens, "0; the minimum is 1");
        match self.tokens {
            _ if self.fill && self.steady => Err(SettingError::new(
                "steady and fill",
                "both are set; set only one, because `fill` moves the start of the context with every message",
            )),
            _ if limit == 0 => Err(SettingError::new("context.max_tokens", none)),
            Some(0) => Err(SettingError::new("tokens", none)),
            Some(tokens) if tokens > limit => {
                let problem = format!("{tokens}; the maximum is {limit} (context.max_tokens)");
                Err(SettingError::new("tokens", problem))
            }
            tokens => Ok(tokens.unwrap_or(limit)),
        }
    }
}

/// What happens if the newest message alone exceeds the budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Oversize {
    /// The context is empty, and the report contains the reason.
    #[default]
    Empty,
    /// The context contains a marked excerpt of the message.
    Clip,
}

/// A summary that may be used in a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Last message that the summary covers: it covers `1..=through` of its scope.
    pub through: Seq,
    /// Size as sent, frame and overhead included: [`crate::view::summary_tokens`]. A summary whose text does not exist
    /// until it is rendered has the size `Tokens::MAX`, which exceeds any budget.
    pub tokens: Tokens,
    /// Whether the summary can be rendered in any size from its extracts, as a summary by `local` can. A shortened
    /// version of such a summary contains as much as any other summary of the same size.
    pub elastic: bool,
}

/// The shape of a session up to some message: the input of [`lay_out`].
///
/// [`SessionShape::whole`] builds it from all outlines of a session. For a long session, a store passes only the end of
/// the session and a few other messages, so that it need not load all messages:
///
/// ```
/// use epitome_core::context::{Candidate, PlaceholderCosts, Request, SessionShape, lay_out};
/// use epitome_core::cut::Cuts;
/// use epitome_testkit::drawing::{NoWords, outlines, word_counter};
/// use epitome_core::outline::Cut;
///
/// let log = outlines(&format!("s u!:5 {}", "u:9 a:9 ".repeat(500))).unwrap();
/// let end = &log[980..];
/// let session = SessionShape {
///     leading: log[..1].iter().collect(),  // the system prompt
///     pinned: log[1..2].iter().collect(),  // from an index
///     recent: Cuts::new(end, Cut::Legal),  // what fits the budget, and a little more
///     opener: None,                        // `end` starts with a user message
///     from: 981,
///     summaries: &[Candidate { through: 990, tokens: 20, elastic: false }],
///     skipped: 0,
///     open_calls: 0,
/// };
/// let request = Request { tokens: Some(200), ..Request::default() };
/// let layout = lay_out(&request, &session, &PlaceholderCosts::of(&word_counter()), &mut NoWords).unwrap();
/// assert!(layout.report.exhaustive);
/// ```
///
/// A context for one author contains only messages of that author: pass that author's outlines, cut by [`Cuts::own`],
/// and the summaries of that scope.
#[derive(Debug, Clone)]
pub struct SessionShape<'a> {
    /// The system and developer messages at the head.
    pub leading: Vec<&'a Outline>,
    /// Pinned messages with their whole batches, oldest first, without strays. Pinned messages that are also in
    /// `recent` are included.
    pub pinned: Vec<&'a Outline>,
    /// The newest messages.
    pub recent: Cuts<'a>,
    /// The message that opened the turn in which `recent` starts, if that message lies before `recent`.
    pub opener: Option<&'a Outline>,
    /// `recent` contains every message of the scope from this position on.
    pub from: Seq,
    /// The summaries to choose from.
    pub summaries: &'a [Candidate],
    /// Number of messages in the whole session that are skipped. If one message of a batch is flagged `skip`, the whole
    /// batch is skipped.
    pub skipped: u64,
    /// Number of calls that are open at the end.
    pub open_calls: u32,
}

impl<'a> SessionShape<'a> {
    /// Builds the shape of a session, or of one author in it, from all its outlines. To build the shape as of an
    /// earlier message, pass only the outlines up to that message.
    pub fn whole(recent: Cuts<'a>, summaries: &'a [Candidate]) -> Self {
        let outlines = recent.outlines();
        let pinned = recent.flagged(|outline| outline.pinned);
        let open = |last: &Outline| if recent.is_own() { last.own_open } else { last.open };
        Self {
            leading: outlines.iter().take_while(|outline| outline.leading).collect(),
            pinned: pinned.filter(|outline| !outline.leading && !outline.stray).collect(),
            recent,
            opener: None,
            from: 1,
            summaries,
            skipped: recent.flagged(|outline| outline.skip).count() as u64,
            open_calls: outlines.last().map_or(0, open),
        }
    }
}

/// A request to render a summary in another size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FitRequest<'a> {
    /// Index of the summary among the candidates. `None` requests only a digest of the gaps.
    pub summary: Option<usize>,
    /// Messages that the summary does not cover, in order. Their best lines are added to the rendered summary.
    pub gaps: &'a [Span],
    /// All messages from this position on are shown verbatim, so the summary can leave them out.
    pub shown: Option<Seq>,
    /// Maximum size in tokens.
    pub room: Tokens,
}

/// Renders texts for the planner and returns their sizes. The planner never sees the text.
pub trait TextRenderer {
    /// Renders a summary in another size. Returns its tokens, frame included, or `None` if that is impossible.
    fn fit(&mut self, request: &FitRequest<'_>) -> Option<Tokens>;

    /// Makes a marked excerpt of these messages in at most `room` tokens. Returns its tokens.
    fn clip(&mut self, span: Span, room: Tokens) -> Option<Tokens>;
}

/// Token sizes of the messages that the view inserts itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceholderCosts {
    /// The result inserted for a call without a result.
    pub marked_result: Tokens,
    /// The placeholder user message at the start of a list that would otherwise not start with a user message.
    pub note: Tokens,
}

impl PlaceholderCosts {
    /// Computes the sizes with this counter.
    pub fn of(counter: &Counter) -> Self {
        Self { marked_result: counter.message(&marked_result("")), note: counter.message(&note()) }
    }
}

/// One entry of a context, in the order in which it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// A message shown outside its position in the log: a system message at the head, a pinned message, or the user
    /// message that opened the current turn.
    Relocated(Seq),
    /// A message at its position, verbatim.
    Message(Seq),
    /// The summary.
    Summary,
    /// A marked excerpt of messages.
    Excerpt {
        /// The messages.
        span: Span,
        /// Size in tokens.
        tokens: Tokens,
    },
    /// The placeholder user message, for a list that would otherwise not start with a user message.
    Note,
    /// A point at which messages of the log are left out. Calls that are open at this point stay unanswered.
    Seam,
}

/// The summary of a context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChosenSummary {
    /// Index of the summary among the candidates; `None` if the text is only a digest of the gap.
    pub candidate: Option<usize>,
    /// Last message that the summary covers.
    pub through: Seq,
    /// Size in this context, frame and overhead included.
    pub tokens: Tokens,
    /// Whether the summary was shortened for this context.
    pub fitted: bool,
    /// The messages after the summary's coverage whose best lines were added to it for this context.
    pub digested: Option<Span>,
    /// The summary leaves out all messages from this position on, because the context shows them verbatim.
    pub shown: Option<Seq>,
}

/// The plan of a context, without texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// The entries in order. Empty if no valid list fits.
    pub entries: Vec<Entry>,
    /// The summary among the entries, if there is one.
    pub summary: Option<ChosenSummary>,
    /// Whether the messages start inside a tool loop, after the reasoning that opened the loop. In that case the rest
    /// of the loop's reasoning is left out.
    pub strip_reasoning: bool,
    /// The peer whose messages are sent as the assistant's.
    pub assistant: Option<Author>,
    /// What the context contains and leaves out.
    pub report: ContextReport,
}

/// What a context contains and what it leaves out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextReport {
    /// The token budget.
    pub budget: Tokens,
    /// How the budget was spent.
    pub tokens: Spent,
    /// The messages that the summary covers.
    pub covers: Option<Span>,
    /// Whether every message is either covered by the summary or shown verbatim. Skipped messages and strays do not
    /// count: skipped messages are reported separately, and no provider accepts strays.
    pub exhaustive: bool,
    /// Span from the first to the last message that is neither covered nor shown; `None` if there is no such message.
    pub gap: Option<Span>,
    /// Number of messages that are skipped, including all messages of a batch in which one message is flagged `skip`.
    /// No summary covers them.
    pub skipped: u64,
    /// Number of strays among the loaded messages: results without a call, repeated calls. They are never shown.
    pub strays: u64,
    /// Whether messages were left out because they do not fit the budget.
    pub cut: bool,
    /// Whether the summary was shortened for this context.
    pub fitted: bool,
    /// The messages that this context contains only as their best lines in the summary; `None` if there are no such
    /// messages.
    pub digested: Option<Span>,
    /// Why the context is empty; `None` if it is not.
    pub empty: Option<Empty>,
}

/// How the tokens of a context were spent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// System messages at the head.
    pub leading: Tokens,
    /// Pinned messages, and the user message that opened the current turn.
    pub pinned: Tokens,
    /// The summary, its frame included.
    pub summary: Tokens,
    /// All messages that are not counted in another field.
    pub messages: Tokens,
    /// The placeholder that opens a list. Results inserted for calls without a result count as messages.
    pub marks: Tokens,
}

impl Spent {
    /// Returns the sum of all fields.
    pub fn total(&self) -> Tokens {
        [self.leading, self.pinned, self.summary, self.messages, self.marks]
            .iter()
            .fold(0, |sum, part| sum.saturating_add(*part))
    }
}

/// The reason why a context is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Empty {
    /// The session has no messages other than system messages, and no provider accepts a list of only system messages.
    #[error("no messages yet")]
    NoMessages,
    /// System messages and pinned messages alone are larger than the budget.
    #[error("system and pinned messages alone exceed the budget")]
    PinnedOverBudget,
    /// The newest message, with its call batch, is larger than the budget that remains after pinned messages.
    #[error(
        "the newest message, with its tool calls and results, exceeds the budget that remains after pinned messages"
    )]
    NewestOverBudget,
    /// The messages would fit, but not together with the placeholder that makes the list valid.
    #[error("no valid list fits the budget")]
    NoValidList,
}
