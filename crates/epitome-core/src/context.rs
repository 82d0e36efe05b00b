//! What the agent is given: a whole conversation in so many tokens.
//!
//! [`lay_out`] decides, from outlines and sizes alone, which messages and which summary go into a
//! context; [`crate::view`] then puts the words in. The order in which room is given away is fixed,
//! so the same session and budget always give the same context:
//!
//! 1. the standing orders at the head, and pinned messages;
//! 2. the newest message with its call batch;
//! 3. the user message that opened the turn under way there, so that the request is in sight;
//! 4. the summary, up to its share;
//! 5. the messages after the summary's coverage, all that summary and pinned left;
//! 6. with `fill`, older messages again.
//!
//! What does not fit is left out at a legal cut, and the [`Report`] says so. When there is no
//! room for a valid list at all, the context is empty and the reason is named.

use serde::{Deserialize, Serialize};

use crate::cut::Cuts;
use crate::message::{Author, Seq, Span, Tokens};
use crate::outline::Outline;
use crate::setting::SettingError;
use crate::tokens::Counter;
use crate::trigger::Fraction;
use crate::view::{marked_result, note};

mod choose;
mod desk;
mod lay_out;

pub use lay_out::lay_out;

/// What kind of context is asked for.
///
/// ```
/// use epitome_core::context::Request;
/// let request = Request { tokens: Some(4_000), ..Request::default() };
/// assert_eq!(request.budget(), Ok(4_000));
/// assert_eq!(Request::default().budget(), Ok(100_000));
/// let zero = Request { tokens: Some(0), ..Request::default() };
/// assert_eq!(zero.budget().unwrap_err().to_string(), "tokens: 0; at least 1 is needed");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The budget T. Without one it is `max_tokens`.
    pub tokens: Option<Tokens>,
    /// Whether a summary may be in it.
    pub summary: bool,
    /// Whether a summary too large for its share may be shortened on the spot.
    pub fit: bool,
    /// Whether what is left of the budget is spent on older messages.
    pub fill: bool,
    /// Whether a cut context's start moves in steps of a quarter of T, for prompt caches.
    pub steady: bool,
    /// What happens when the newest message alone is over the budget.
    pub oversize: Oversize,
    /// Whose messages are the assistant's, among peers whose side was never told.
    pub assistant: Option<Author>,
    /// The summary's share of what standing orders and pinned messages leave of T.
    pub share: Fraction,
    /// The same where the context is filled.
    pub filled: Fraction,
    /// The hard limit on T.
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
    /// The budget, or why the request is refused.
    pub fn budget(&self) -> Result<Tokens, SettingError> {
        let (limit, none) = (self.max_tokens, "0; at least 1 is needed");
        match self.tokens {
            _ if self.fill && self.steady => Err(SettingError::new(
                "steady and fill",
                "both are set; filling moves the start with every message, so choose one",
            )),
            _ if limit == 0 => Err(SettingError::new("context.max_tokens", none)),
            Some(0) => Err(SettingError::new("tokens", none)),
            Some(given) if given > limit => {
                let problem = format!("{given}; at most {limit} (context.max_tokens) is allowed");
                Err(SettingError::new("tokens", problem))
            }
            tokens => Ok(tokens.unwrap_or(limit)),
        }
    }
}

/// What happens when the newest message alone is over the budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Oversize {
    /// The context is empty, and says why.
    #[default]
    Empty,
    /// A marked excerpt of it is given.
    Clip,
}

/// A summary that may stand in a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// It stands for its scope's messages `1..=through`.
    pub through: Seq,
    /// Its size as handed out, frame and overhead included: [`crate::view::summary_tokens`]. What must be
    /// rendered to be had at all is larger than any room.
    pub tokens: Tokens,
    /// Whether it can be rendered in any size from what it was made of, as `local`'s can. Cut to size it
    /// tells as much as any other of that size.
    pub elastic: bool,
}

/// The shape of a session at some message: all that laying out a context needs to know.
///
/// [`Scene::whole`] makes it from a session that is at hand. A store that keeps a long one hands in
/// its end and little more, so that the rest need not be read:
///
/// ```
/// use epitome_core::context::{Candidate, Costs, Request, Scene, lay_out};
/// use epitome_core::cut::Cuts;
/// use epitome_testkit::drawing::{NoWords, outlines, word_counter};
/// use epitome_core::outline::Cut;
///
/// let log = outlines(&format!("s u!:5 {}", "u:9 a:9 ".repeat(500))).unwrap();
/// let end = &log[980..];
/// let scene = Scene {
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
/// let layout = lay_out(&request, &scene, &Costs::of(&word_counter()), &mut NoWords).unwrap();
/// assert!(layout.report.exhaustive);
/// ```
///
/// For one author's context, everything in it is that author's: the outlines, cut by
/// [`Cuts::own`], and the summaries of that scope.
#[derive(Debug, Clone)]
pub struct Scene<'a> {
    /// The system and developer messages at the head.
    pub leading: Vec<&'a Outline>,
    /// Pinned messages, whole batches, oldest first; strays not. Those among `recent` too.
    pub pinned: Vec<&'a Outline>,
    /// The newest messages.
    pub recent: Cuts<'a>,
    /// The message that opened the turn `recent` starts in, where it lies before it.
    pub opener: Option<&'a Outline>,
    /// All the scope's messages from this one on are in `recent`.
    pub from: Seq,
    /// The summaries to choose from.
    pub summaries: &'a [Candidate],
    /// How many messages in all are skipped, by whole batches.
    pub skipped: u64,
    /// How many calls are open at the end.
    pub open_calls: u32,
}

impl<'a> Scene<'a> {
    /// The scene of a session, or of one author in it, that is at hand from its first message on.
    /// A shorter run of outlines gives the scene as of an earlier message.
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

/// A summary wanted in another size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit<'a> {
    /// By its place among the candidates; `None` for one of the gaps alone.
    pub summary: Option<usize>,
    /// Messages it does not cover, to be digested with it, in order.
    pub gaps: &'a [Span],
    /// From this message on all are shown beside it, so it need not tell them.
    pub shown: Option<Seq>,
    /// What it may come to.
    pub room: Tokens,
}

/// What the planner asks of whoever holds the words. Sizes come back, never text.
pub trait Words {
    /// Makes a summary of another size: what it came to, frame included; `None` when that cannot be done.
    fn fit(&mut self, wish: &Fit<'_>) -> Option<Tokens>;

    /// Makes a marked excerpt of these messages in `room` tokens: the size it came to.
    fn clip(&mut self, span: Span, room: Tokens) -> Option<Tokens>;
}

/// The sizes of what we write ourselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// The result that a call nobody answered is given.
    pub marked_result: Tokens,
    /// The user message put first where there would be none.
    pub note: Tokens,
}

impl Costs {
    /// Counted with this counter.
    pub fn of(counter: &Counter) -> Self {
        Self { marked_result: counter.message(&marked_result("")), note: counter.message(&note()) }
    }
}

/// One thing in a context, in the order it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// A message that stays, out of its place: a standing order at the head, a pinned one, the one
    /// that opened the turn under way.
    Kept(Seq),
    /// A message in its place, word for word.
    Message(Seq),
    /// The summary.
    Summary,
    /// A marked excerpt of these messages.
    Excerpt {
        /// Which messages.
        span: Span,
        /// Its size.
        tokens: Tokens,
    },
    /// A marked user message, where the list would not start with one.
    Note,
    /// What follows does not continue what came before: calls open here stay unanswered.
    Seam,
}

/// The summary a context holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChosenSummary {
    /// Its place among the candidates; `None` when it is only a digest of the gap.
    pub candidate: Option<usize>,
    /// Up to which message it stands.
    pub through: Seq,
    /// Its size here, frame and overhead included.
    pub tokens: Tokens,
    /// Whether it was shortened on the spot.
    pub fitted: bool,
    /// The messages after its coverage that were digested on the spot.
    pub digested: Option<Span>,
    /// The message from which on it was told nothing, since they are shown.
    pub shown: Option<Seq>,
}

/// A context decided on, without its words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// What is in it, in order. Empty when no valid list fits.
    pub entries: Vec<Entry>,
    /// The summary among the entries.
    pub summary: Option<ChosenSummary>,
    /// Whether the tool loop at the start was entered past its reasoning, which therefore leaves
    /// the view.
    pub strip_reasoning: bool,
    /// The peer whose messages are the assistant's.
    pub assistant: Option<Author>,
    /// What was done, for people and programs.
    pub report: Report,
}

/// What a context holds and what it leaves out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The budget it was made for.
    pub budget: Tokens,
    /// What it was spent on.
    pub tokens: Spent,
    /// The messages the summary stands for.
    pub covers: Option<Span>,
    /// Whether every message is covered by the summary or there word for word. Skipped messages and
    /// strays do not count: the one are told apart, the other no provider takes.
    pub exhaustive: bool,
    /// From the first to the last message that is neither, where there are such.
    pub gap: Option<Span>,
    /// Messages that are skipped, with the batches they stand in: outside coverage.
    pub skipped: u64,
    /// Messages at hand that answer nothing or repeat what is there: never shown.
    pub strays: u64,
    /// Whether the budget cut the list of messages short, or left nothing of it.
    pub cut: bool,
    /// Whether the summary was shortened on the spot.
    pub fitted: bool,
    /// The messages that are in the summary only as their best lines, picked on the spot.
    pub digested: Option<Span>,
    /// Why there is nothing in it.
    pub empty: Option<Empty>,
}

/// Where the tokens of a context went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Standing orders at the head.
    pub leading: Tokens,
    /// Pinned messages, and the user message that opened the turn under way.
    pub pinned: Tokens,
    /// The summary, its frame included.
    pub summary: Tokens,
    /// The other messages.
    pub messages: Tokens,
    /// The note of ours that opens a list. Results for calls nobody answered are among the messages.
    pub marks: Tokens,
}

impl Spent {
    /// All of it.
    pub fn total(&self) -> Tokens {
        [self.leading, self.pinned, self.summary, self.messages, self.marks]
            .iter()
            .fold(0, |sum, part| sum.saturating_add(*part))
    }
}

/// Why a context is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Empty {
    /// Nothing but standing orders was said yet, and no provider takes those alone.
    #[error("no messages yet")]
    NoMessages,
    /// Standing orders and pinned messages alone are larger than the budget.
    #[error("pinned messages alone are over the budget")]
    PinnedOverBudget,
    /// The newest message, with its call batch, is larger than what pinned messages leave.
    #[error("the newest message, with its call batch, is over what pinned messages leave of the budget")]
    NewestOverBudget,
    /// It would fit, but not with what makes the list valid.
    #[error("no valid list fits the budget")]
    NoValidList,
}
