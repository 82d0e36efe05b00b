//! Decides which messages are summarized next.
//!
//! [`next_step`] returns the span of the next summary, or the reason why no summary is due. Its input is a slot, the
//! slot's state, and the outlines of the messages after the slot's coverage. Spans follow each other in order. Each
//! summary extends the previous summary. No span is skipped: if a summary fails, its span is planned again.
//!
//! The planner reads outlines and never text. The only properties of the model that the planner uses are the sizes in
//! [`PlanInput`].

use crate::cut::{self, Cuts, Press};
use crate::message::{Author, Seq, Span, Tokens};
use crate::outline::{Cut, Outline};
use crate::slot::{CatchUp, Firing, Scope, Slot, SlotState};

/// If more trigger events than this are pending, `catch_up = join` merges them.
const FAR_BEHIND: usize = 10;

/// The input of the planner, in addition to the slot and its state.
#[derive(Debug, Clone, Copy)]
pub struct PlanInput<'a> {
    /// The outlines of the slot's messages after the coverage, oldest first. Covered messages are ignored.
    /// [`Scope::holds`] must return true for every outline: the input for an author's slot contains only messages of
    /// that author.
    pub outlines: &'a [Outline],
    /// What a cut after the last outline separates. This is [`crate::track::Tracker::cut_at_end`] or, for an author's
    /// slot, `own_cut_at_end`. `None` if `outlines` does not contain the newest message of the slot.
    pub end: Option<Cut>,
    /// The model's window minus its output reserve, in tokens; `None` if unknown. Fractions of the window refer to this
    /// number.
    pub room: Option<Tokens>,
    /// Maximum number of message tokens that the model can read at once. The tokens of the prompt and of the prior
    /// summary are not included.
    pub input: Tokens,
    /// The authors' own summaries. They replace messages of these authors. Only slots of the whole session use them.
    pub authors: &'a [AuthorSummary],
}

/// An author's own summary. The summarizer of a session reads this summary instead of the messages that it covers. If
/// the summary covers messages after the planned span, it is not used, because it would describe later events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorSummary {
    /// The author whose messages the summary covers.
    pub author: Author,
    /// Position of the last message that the summary covers.
    pub through: Seq,
    /// Size of the summary in tokens.
    pub tokens: Tokens,
}

/// The next step for a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextStep {
    /// Write the summary that this plan describes, store the summary, and call [`NextStep::settle`].
    Summarize(SummaryPlan),
    /// The trigger event needs no summary. Call [`NextStep::settle`], but store no summary.
    Pass {
        /// Position of the message at which the slot became due.
        firing: Seq,
        /// The reason why no summary is needed.
        why: NoPlan,
    },
    /// No step is due now.
    Nothing(NoPlan),
}

/// The reason why there is nothing to summarize.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoPlan {
    /// No trigger event is pending.
    #[error("not due")]
    NotDue,
    /// An earlier summary covers the messages.
    #[error("an earlier summary already covers the new messages")]
    Covered,
    /// All new messages stay verbatim.
    #[error("all new messages stay verbatim")]
    AllVerbatim,
    /// Every new message is skipped, or is a leading system message that is always shown.
    #[error("nothing to summarize: all new messages are skipped or always shown")]
    NothingToSay,
    /// A call is open or a tool loop is in progress. A later message will create a legal cut.
    #[error("no legal cut yet: a tool call or loop is in progress")]
    NoLegalCut,
}

/// The next summary to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryPlan {
    /// Position of the last message that the prior summary covers; 0 if there is no prior summary. The summarizer reads
    /// the prior summary first.
    pub prior: Seq,
    /// The messages after `prior` that are summarized. The new summary covers `1..=span.through`.
    pub span: Span,
    /// The sources that the summarizer reads for the span, in order. Skipped messages and leading system messages are
    /// not included.
    pub sources: Vec<Source>,
    /// Number of tokens of the sources.
    pub tokens: Tokens,
    /// Number of messages in the span that are skipped.
    pub skipped: u64,
    /// The trigger event that this plan handles: the position of the message at which the slot became due.
    pub firing: Seq,
    /// Whether this plan completes the trigger event. If false, the plan covers only the first part of the event's
    /// messages.
    pub completes: bool,
    /// Number of trigger events that this plan completes together.
    pub joined: usize,
    /// Whether the sources are larger than the model's input and no cut can divide them. If true, the prompt must
    /// shorten the texts of the sources.
    pub oversize: bool,
}

/// One source that a summarizer reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Messages, verbatim.
    Messages(Span),
    /// An author's own summary. It replaces all messages of that author that it covers.
    Author(AuthorSummary),
}

impl NextStep {
    /// Advances the slot after the summary is stored. `log` contains the messages of the slot's scope after the trigger
    /// event, at least up to the next trigger event: see [`SlotState::settle`].
    pub fn settle(&self, slot: &Slot, state: &mut SlotState, log: &[Outline], room: Option<Tokens>) {
        match self {
            Self::Summarize(plan) if plan.completes => {
                state.settle(slot, plan.span.through, plan.firing, log, room);
            }
            Self::Summarize(plan) => state.cover(plan.span.through),
            Self::Pass { firing, .. } => state.settle(slot, state.covered, *firing, log, room),
            Self::Nothing(_) => {}
        }
    }
}

/// Returns the plan of the next summary for a slot, or the reason why no summary is needed.
///
/// Call this function in a loop until it returns `Nothing`:
///
/// ```
/// use epitome_testkit::drawing::outlines;
/// use epitome_core::outline::Cut;
/// use epitome_core::plan::{NextStep, PlanInput, next_step};
/// use epitome_core::slot::{Slot, SlotState};
///
/// let slot = Slot { keep: "messages(4)".parse().unwrap(), ..Slot::short() };
/// let log = outlines(&"u a ".repeat(30)).unwrap();
/// let mut state = SlotState::default();
/// for outline in &log {
///     state.advance(&slot, outline, None);
/// }
/// let mut covered = Vec::new();
/// loop {
///     let plan_input = PlanInput { outlines: &log, end: Some(Cut::Legal), room: None, input: 100_000, authors: &[] };
///     let step = next_step(&slot, &state, &plan_input);
///     match &step {
///         NextStep::Summarize(plan) => covered.push(plan.span.through), // write the summary and store it
///         NextStep::Pass { .. } => {}                                  // this trigger event needs no summary
///         NextStep::Nothing(_) => break,
///     }
///     step.settle(&slot, &mut state, &log, None);
/// }
/// assert_eq!(covered, [16, 36, 56]);
/// ```
///
/// This example shows the numbers of a single step:
///
/// ```
/// use epitome_testkit::drawing::outlines;
/// use epitome_core::message::Span;
/// use epitome_core::outline::Cut;
/// use epitome_core::plan::{NextStep, PlanInput, next_step};
/// use epitome_core::slot::{Slot, SlotState};
///
/// // 160 messages are stored, and the short summary covers the messages up to 140.
/// let slot = Slot::short();
/// let log = outlines(&"u a ".repeat(80)).unwrap();
/// let mut state = SlotState::default();
/// for outline in &log {
///     state.advance(&slot, outline, None);
/// }
/// state.settle(&slot, 140, 140, &log, None);
///
/// let plan_input = PlanInput { outlines: &log[140..], end: Some(Cut::Legal), room: None, input: 100_000, authors: &[] };
/// let NextStep::Summarize(plan) = next_step(&slot, &state, &plan_input) else { panic!() };
/// assert_eq!((plan.prior, plan.span), (140, Span::new(141, 160).unwrap()));
/// ```
pub fn next_step(slot: &Slot, state: &SlotState, plan_input: &PlanInput<'_>) -> NextStep {
    let Some(due) = state.due else {
        return NextStep::Nothing(NoPlan::NotDue);
    };
    let end = plan_input.end.unwrap_or(Cut::InCall);
    let covered = plan_input.outlines.partition_point(|outline| outline.seq <= state.covered);
    let plan_input =
        &PlanInput { outlines: plan_input.outlines.get(covered..).unwrap_or_default(), ..*plan_input };
    let (cuts, authors) = match slot.scope {
        Scope::Session => (Cuts::new(plan_input.outlines, end), plan_input.authors),
        Scope::Author(_) => (Cuts::own(plan_input.outlines, end), Default::default()),
    };
    let window = Window::new(cuts, authors);
    let mut chosen = (due, window.end_of_window(slot, &due, plan_input));
    let mut joined = 1;
    if slot.catch_up == CatchUp::Join {
        // Visits the pending trigger events, starting with the first. Stops after the last message in `plan_input`.
        let last = plan_input.outlines.last().map_or(0, |outline| outline.seq);
        let after = |firing: &Firing| state.next_firing(slot, firing, plan_input.outlines, plan_input.room);
        let firings =
            || std::iter::successors(Some(due), |firing| after(firing).filter(|next| next.seq <= last));
        if firings().nth(FAR_BEHIND).is_some() {
            for (at, firing) in firings().enumerate().skip(1) {
                let index = window.end_of_window(slot, &firing, plan_input);
                let further = match (chosen.1, index) {
                    // A trigger event is not merged if its window ends at the same position as the window before it. A
                    // later message may still create a cut for this event.
                    (Ok(before), Ok(index)) => index > before && window.sum(index) <= plan_input.input,
                    (Err(_), Ok(index)) => window.sum(index) <= plan_input.input,
                    (_, Err(why)) => {
                        matches!(why, NoPlan::AllVerbatim | NoPlan::Covered) && chosen.1.is_err()
                    }
                };
                if !further {
                    break;
                }
                chosen = (firing, index);
                joined = at + 1;
            }
        }
    }
    let (firing, index) = chosen;
    let index = match index {
        Ok(index) => index,
        Err(NoPlan::NoLegalCut) => return NextStep::Nothing(NoPlan::NoLegalCut),
        Err(why) => return NextStep::Pass { firing: firing.seq, why },
    };
    let part = window.halve(index, plan_input.input);
    let read = window.read(part);
    let Some(span) = part
        .checked_sub(1)
        .and_then(|last| plan_input.outlines.get(last))
        .and_then(|last| Span::new(state.covered.saturating_add(1), last.seq))
    else {
        return NextStep::Pass { firing: firing.seq, why: NoPlan::Covered };
    };
    // If the passed messages end before the trigger event, the plan covers only the beginning of the event's window.
    let reached =
        plan_input.end.is_some() || plan_input.outlines.last().is_some_and(|last| last.seq >= firing.seq);
    NextStep::Summarize(SummaryPlan {
        prior: state.covered,
        span,
        oversize: read.tokens > plan_input.input,
        sources: read.sources,
        tokens: read.tokens,
        skipped: read.skipped,
        firing: firing.seq,
        completes: part == index && reached,
        joined,
    })
}

/// The messages after the coverage. The next summary is planned from them.
struct Window<'a> {
    cuts: Cuts<'a>,
    authors: &'a [AuthorSummary],
    /// For each index, the number of tokens of the readable messages before the index.
    sums: Vec<Tokens>,
}

/// The sources that a summarizer reads before a position, with their tokens and the number of skipped messages.
#[derive(Default)]
struct Read {
    sources: Vec<Source>,
    tokens: Tokens,
    skipped: u64,
}

impl<'a> Window<'a> {
    fn new(cuts: Cuts<'a>, authors: &'a [AuthorSummary]) -> Self {
        let mut sums = Vec::with_capacity(cuts.outlines().len() + 1);
        let mut sum: Tokens = 0;
        sums.push(sum);
        for (outline, readable) in readable(cuts) {
            if readable {
                // A message of zero tokens counts as one token, so that the sum shows that a readable message exists.
                sum = sum.saturating_add(outline.tokens.max(1));
            }
            sums.push(sum);
        }
        Self { cuts, authors, sums }
    }

    fn sum(&self, index: usize) -> Tokens {
        self.sums.get(index).copied().unwrap_or(Tokens::MAX)
    }

    /// Returns the first index that has a readable message before it.
    fn first(&self) -> usize {
        self.sums.partition_point(|sum| *sum == 0)
    }

    /// Returns the index at which the window of a trigger event ends. The window consists of the messages to summarize
    /// for this event. It ends at a legal cut near the first message that stays verbatim.
    fn end_of_window(
        &self,
        slot: &Slot,
        firing: &Firing,
        plan_input: &PlanInput<'_>,
    ) -> Result<usize, NoPlan> {
        let fired = self.cuts.outlines().partition_point(|outline| outline.seq <= firing.seq);
        let until = self.cuts.outlines().get(..fired).unwrap_or_default();
        let start = slot.keep.start(until, plan_input.room);
        match (fired, start) {
            (0, _) => return Err(NoPlan::Covered),
            (_, 0) => return Err(NoPlan::AllVerbatim),
            _ if self.sum(start) == 0 => return Err(NoPlan::NothingToSay),
            _ => {}
        }
        // The cut lies after the first readable message, because a summary must cover at least one message.
        let floor = self.first().saturating_sub(1);
        cut::legal_cut(&self.cuts, floor, start, Press::Hard).ok_or(NoPlan::NoLegalCut)
    }

    fn read(&self, index: usize) -> Read {
        let mut read = Read::default();
        let end = index.checked_sub(1).and_then(|last| self.cuts.outlines().get(last));
        let end = end.map_or(0, |outline| outline.seq);
        for (outline, readable) in readable(self.cuts).take(index) {
            let own = self.authors.iter().find(|own| {
                outline.seq <= own.through
                    && own.through <= end
                    && outline.author.as_ref() == Some(&own.author)
            });
            match own {
                _ if outline.leading => {}
                _ if !readable => read.skipped += 1,
                Some(own) => {
                    let included = read.sources.iter().any(|s| matches!(s, Source::Author(a) if a == own));
                    if !included {
                        read.tokens = read.tokens.saturating_add(own.tokens);
                        read.sources.push(Source::Author(own.clone()));
                    }
                }
                None => {
                    read.tokens = read.tokens.saturating_add(outline.tokens);
                    match read.sources.last_mut() {
                        Some(Source::Messages(run)) if outline.seq.checked_sub(1) == Some(run.through) => {
                            run.through = outline.seq;
                        }
                        _ => read.sources.extend(Span::new(outline.seq, outline.seq).map(Source::Messages)),
                    }
                }
            }
        }
        read
    }

    /// Halves a window that is too large for the model's input, until the window fits or cannot be divided. Windows are
    /// divided only at legal cuts.
    fn halve(&self, mut index: usize, input: Tokens) -> usize {
        while self.read(index).tokens > input {
            let half = self.sums.partition_point(|sum| sum.saturating_mul(2) <= self.sum(index));
            let first = self.first();
            let smaller = self
                .cuts
                .last_in(first..half.min(index), Cut::Legal)
                .or_else(|| self.cuts.first_in(half.max(first)..index, Cut::Legal));
            match smaller {
                Some(smaller) => index = smaller,
                None => break,
            }
        }
        index
    }
}

/// Returns each message with a flag that says whether the summarizer may read the message. The flag is false for
/// skipped messages. It is also false for leading system messages, because they are always shown before the summary.
fn readable(cuts: Cuts<'_>) -> impl Iterator<Item = (&Outline, bool)> {
    cuts.batches().flat_map(move |batch| {
        // If one message of a batch is skipped, the whole batch is skipped. Half a batch would be meaningless.
        let skipped = batch.iter().any(|outline| outline.skip);
        batch.iter().map(move |outline| (outline, !skipped && !outline.leading))
    })
}
