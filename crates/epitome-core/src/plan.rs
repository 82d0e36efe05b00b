//! What to summarize next.
//!
//! Given a slot, where it stands and the shape of what comes after, [`next`] says which span the
//! next summary takes in, or why there is nothing to do. Windows follow each other in order, each
//! built on the summary before, and none is ever passed over: a window that failed is simply the
//! next one again.
//!
//! The planner sees outlines and never text, and knows nothing of models beyond how much they can
//! read at once.

use crate::cut::{self, Cuts, Press};
use crate::message::{Author, Seq, Span, Tokens};
use crate::outline::{Cut, Outline};
use crate::slot::{CatchUp, Firing, Scope, Slot, SlotState};

/// So many windows behind, and `catch_up = join` puts windows together.
const FAR_BEHIND: usize = 10;

/// What the planner is told beyond the slot itself.
#[derive(Debug, Clone, Copy)]
pub struct Ahead<'a> {
    /// The scope's messages after the coverage, oldest first. Those before it are passed over. For an
    /// author's slot, that author's only: those [`Scope::holds`].
    pub outlines: &'a [Outline],
    /// What a cut after the last of them parts: [`crate::track::Tracker::cut_at_end`], or
    /// `own_cut_at_end` for an author's slot; `None` when more messages follow that were not handed
    /// in.
    pub end: Option<Cut>,
    /// The model's window less its output reserve, which `window` fractions are measured by.
    pub room: Option<Tokens>,
    /// How many tokens of messages the model can read at once, prompt and prior summary set aside.
    pub input: Tokens,
    /// For a session's slot: the authors whose own summaries stand for their messages.
    pub authors: &'a [AuthorSummary],
}

/// An author's own summary, which a session's summarizer sees in place of what it covers. One that
/// reaches beyond the window is not used: it would tell what comes later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorSummary {
    /// Whose messages it stands for.
    pub author: Author,
    /// Up to which message.
    pub through: Seq,
    /// Its size.
    pub tokens: Tokens,
}

/// What to do for a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Write a summary of this, store it, then [`Next::settle`].
    Summarize(Plan),
    /// The firing asks for nothing: [`Next::settle`] it without a summary.
    Pass {
        /// Which firing.
        firing: Seq,
        /// Why it asks for nothing.
        why: NoPlan,
    },
    /// Nothing now.
    Nothing(NoPlan),
}

/// Why there is nothing to summarize.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoPlan {
    /// The trigger was not met since the last firing.
    #[error("not due")]
    NotDue,
    /// An earlier summary took it in.
    #[error("its messages are covered already")]
    Covered,
    /// All that is new is to be kept verbatim.
    #[error("all that is new is kept verbatim")]
    AllKept,
    /// All that is new is skipped, or a standing order that always stays.
    #[error("nothing new to summarize: it is all skipped, or always shown")]
    NothingToSay,
    /// A call is open, or a tool loop under way; an append will bring a place to cut.
    #[error("no legal cut yet: a tool call or loop is under way")]
    NoLegalCut,
}

/// The next summary to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The prior summary's coverage, 0 where there is none: it is read first.
    pub prior: Seq,
    /// The messages after it that are taken in. The new summary stands for `1..=span.through`.
    pub span: Span,
    /// What the summarizer reads of the span, in order: skipped messages and the standing orders
    /// at the head are not among it.
    pub sources: Vec<Source>,
    /// The tokens of what it reads.
    pub tokens: Tokens,
    /// Messages inside the span that are skipped.
    pub skipped: u64,
    /// The firing this works on.
    pub firing: Seq,
    /// Whether the firing is worked off with this; otherwise only a first part of its window is.
    pub completes: bool,
    /// How many firings are worked off together.
    pub joined: usize,
    /// Whether what is read is still larger than the model's input, and no cut could divide it: it
    /// has to be shown by its head, its tail and its size.
    pub oversize: bool,
}

/// Something a summarizer reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Messages, word for word.
    Messages(Span),
    /// An author's own summary, in place of all that author's messages it covers.
    Author(AuthorSummary),
}

impl Next {
    /// Moves the slot on, once what was to be written stands. `log` holds the scope's messages after
    /// the firing, at least up to the next one: see [`SlotState::settle`].
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

/// The next summary for a slot, or why there is none.
///
/// Worked off in a loop, until there is nothing:
///
/// ```
/// use epitome_testkit::drawing::outlines;
/// use epitome_core::outline::Cut;
/// use epitome_core::plan::{next, Ahead, Next};
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
///     let ahead = Ahead { outlines: &log, end: Some(Cut::Legal), room: None, input: 100_000, authors: &[] };
///     let step = next(&slot, &state, &ahead);
///     match &step {
///         Next::Summarize(plan) => covered.push(plan.span.through), // have it written, and store it
///         Next::Pass { .. } => {}                                  // this firing asks for nothing
///         Next::Nothing(_) => break,
///     }
///     step.settle(&slot, &mut state, &log, None);
/// }
/// assert_eq!(covered, [16, 36, 56]);
/// ```
///
/// The numbers of one step:
///
/// ```
/// use epitome_testkit::drawing::outlines;
/// use epitome_core::message::Span;
/// use epitome_core::outline::Cut;
/// use epitome_core::plan::{next, Ahead, Next};
/// use epitome_core::slot::{Slot, SlotState};
///
/// // Message 160 with the defaults: the short summary stands through 140.
/// let slot = Slot::short();
/// let log = outlines(&"u a ".repeat(80)).unwrap();
/// let mut state = SlotState::default();
/// for outline in &log {
///     state.advance(&slot, outline, None);
/// }
/// state.settle(&slot, 140, 140, &log, None);
///
/// let ahead = Ahead { outlines: &log[140..], end: Some(Cut::Legal), room: None, input: 100_000, authors: &[] };
/// let Next::Summarize(plan) = next(&slot, &state, &ahead) else { panic!() };
/// assert_eq!((plan.prior, plan.span), (140, Span::new(141, 160).unwrap()));
/// ```
pub fn next(slot: &Slot, state: &SlotState, ahead: &Ahead<'_>) -> Next {
    let Some(due) = state.due else {
        return Next::Nothing(NoPlan::NotDue);
    };
    let end = ahead.end.unwrap_or(Cut::InCall);
    let covered = ahead.outlines.partition_point(|outline| outline.seq <= state.covered);
    let ahead = &Ahead { outlines: ahead.outlines.get(covered..).unwrap_or_default(), ..*ahead };
    let (cuts, authors) = match slot.scope {
        Scope::Session => (Cuts::new(ahead.outlines, end), ahead.authors),
        Scope::Author(_) => (Cuts::own(ahead.outlines, end), Default::default()),
    };
    let window = Window::new(cuts, authors);
    let mut chosen = (due, window.place(slot, &due, ahead));
    let mut joined = 1;
    if slot.catch_up == CatchUp::Join {
        // Firings that are due, the first of them first, as far as the messages at hand reach.
        let last = ahead.outlines.last().map_or(0, |outline| outline.seq);
        let after = |firing: &Firing| state.next_firing(slot, firing, ahead.outlines, ahead.room);
        let firings =
            || std::iter::successors(Some(due), |firing| after(firing).filter(|next| next.seq <= last));
        if firings().nth(FAR_BEHIND).is_some() {
            for (at, firing) in firings().enumerate().skip(1) {
                let place = window.place(slot, &firing, ahead);
                let further = match (chosen.1, place) {
                    // A firing whose window reaches no further keeps its turn: a cut may come yet.
                    (Ok(before), Ok(place)) => place > before && window.sum(place) <= ahead.input,
                    (Err(_), Ok(place)) => window.sum(place) <= ahead.input,
                    (_, Err(why)) => matches!(why, NoPlan::AllKept | NoPlan::Covered) && chosen.1.is_err(),
                };
                if !further {
                    break;
                }
                chosen = (firing, place);
                joined = at + 1;
            }
        }
    }
    let (firing, place) = chosen;
    let place = match place {
        Ok(place) => place,
        Err(NoPlan::NoLegalCut) => return Next::Nothing(NoPlan::NoLegalCut),
        Err(why) => return Next::Pass { firing: firing.seq, why },
    };
    let part = window.halve(place, ahead.input);
    let read = window.read(part);
    let Some(span) = part
        .checked_sub(1)
        .and_then(|last| ahead.outlines.get(last))
        .and_then(|last| Span::new(state.covered.saturating_add(1), last.seq))
    else {
        return Next::Pass { firing: firing.seq, why: NoPlan::Covered };
    };
    // Where the messages at hand end before the firing does, this is only the beginning of its window.
    let reached = ahead.end.is_some() || ahead.outlines.last().is_some_and(|last| last.seq >= firing.seq);
    Next::Summarize(Plan {
        prior: state.covered,
        span,
        oversize: read.tokens > ahead.input,
        sources: read.sources,
        tokens: read.tokens,
        skipped: read.skipped,
        firing: firing.seq,
        completes: part == place && reached,
        joined,
    })
}

/// What lies ahead of the coverage.
struct Window<'a> {
    cuts: Cuts<'a>,
    authors: &'a [AuthorSummary],
    /// For each place, the tokens of the messages before it that may be read.
    sums: Vec<Tokens>,
}

/// What a summarizer would read of the messages before some place.
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
                // A message without a token is one to read all the same.
                sum = sum.saturating_add(outline.tokens.max(1));
            }
            sums.push(sum);
        }
        Self { cuts, authors, sums }
    }

    fn sum(&self, place: usize) -> Tokens {
        self.sums.get(place).copied().unwrap_or(Tokens::MAX)
    }

    /// The first place with something to read before it.
    fn first(&self) -> usize {
        self.sums.partition_point(|sum| *sum == 0)
    }

    /// Where the window of a firing ends.
    fn place(&self, slot: &Slot, firing: &Firing, ahead: &Ahead<'_>) -> Result<usize, NoPlan> {
        let fired = self.cuts.outlines().partition_point(|outline| outline.seq <= firing.seq);
        let until = self.cuts.outlines().get(..fired).unwrap_or_default();
        let wanted = slot.keep.place(until, ahead.room);
        match (fired, wanted) {
            (0, _) => return Err(NoPlan::Covered),
            (_, 0) => return Err(NoPlan::AllKept),
            _ if self.sum(wanted) == 0 => return Err(NoPlan::NothingToSay),
            _ => {}
        }
        // Never before the first message that is read: a summary of nothing is none.
        let floor = self.first().saturating_sub(1);
        cut::near(&self.cuts, floor, wanted, Press::Hard).ok_or(NoPlan::NoLegalCut)
    }

    fn read(&self, place: usize) -> Read {
        let mut read = Read::default();
        let end = place.checked_sub(1).and_then(|last| self.cuts.outlines().get(last));
        let end = end.map_or(0, |outline| outline.seq);
        for (outline, readable) in readable(self.cuts).take(place) {
            let own = self.authors.iter().find(|own| {
                outline.seq <= own.through
                    && own.through <= end
                    && outline.author.as_ref() == Some(&own.author)
            });
            match own {
                _ if outline.leading => {}
                _ if !readable => read.skipped += 1,
                Some(own) => {
                    let told = read.sources.iter().any(|s| matches!(s, Source::Author(a) if a == own));
                    if !told {
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

    /// Halves what is too large to be read at once, at legal cuts, until it fits or cannot be
    /// divided any more.
    fn halve(&self, mut place: usize, input: Tokens) -> usize {
        while self.read(place).tokens > input {
            let half = self.sums.partition_point(|sum| sum.saturating_mul(2) <= self.sum(place));
            let first = self.first();
            let smaller = self
                .cuts
                .last_in(first..half.min(place), Cut::Legal)
                .or_else(|| self.cuts.first_in(half.max(first)..place, Cut::Legal));
            match smaller {
                Some(smaller) => place = smaller,
                None => break,
            }
        }
        place
    }
}

/// Each message, and whether it enters a summary at all: not when it is skipped, nor when it always
/// stands before the summary.
fn readable(cuts: Cuts<'_>) -> impl Iterator<Item = (&Outline, bool)> {
    cuts.batches().flat_map(move |batch| {
        // `skip` holds for a whole batch: half of one would make no sense to anybody.
        let skipped = batch.iter().any(|outline| outline.skip);
        batch.iter().map(move |outline| (outline, !skipped && !outline.leading))
    })
}
