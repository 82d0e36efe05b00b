//! The condensed list before it is accepted.
//!
//! A [`Draft`] is built from a [`Standing`] and the caller's messages, so that it can be rebuilt after a restart, byte
//! for byte.

use std::borrow::Cow;

use super::list::{List, Standing};
use super::mask::Names;
use super::sheet::Sheet;
use crate::message::{Message, Seq};
use crate::outline::{Cut, Outline};
use crate::tokens::Counter;
use crate::view::{self, Mender};

impl List {
    /// Rebuilds a list that was condensed before from its stored state. It shows the same messages as the original
    /// list.
    pub fn resume(messages: &[Message], standing: &Standing, counter: &Counter) -> Self {
        let mut list = Self::default();
        let first = |n: Seq| messages.get(..usize::try_from(n).unwrap_or(usize::MAX)).unwrap_or(messages);
        list.advance(first(standing.looked), counter);
        if standing.rounds > 0 {
            // A nonzero round count marks the following messages as added to a condensed list. The view is built below.
            list.standing.rounds = standing.rounds;
            list.advance(first(standing.seen), counter);
            let draft = Draft::new(&list, messages, standing.clone(), counter);
            list.adopt(draft);
        }
        list.advance(messages, counter);
        list
    }

    /// Replaces the list's state with the draft, and restarts the totals.
    pub(super) fn adopt(&mut self, draft: Draft) {
        let Draft { standing, front, tail, sheet, .. } = draft;
        (self.front, self.tail) = (front, tail);
        self.totals.restart(standing.at);
        self.standing = standing;
        self.sheet = Some(sheet);
    }
}

/// A condensed list that is not yet accepted.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) standing: Standing,
    pub(super) front: Vec<Outline>,
    pub(super) tail: Vec<Outline>,
    pub(super) sheet: Sheet,
    /// The tool outputs masked in the draft.
    pub(super) masked: Masked,
}

/// Counts the tool outputs that were masked.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Masked {
    /// Number of outputs masked now that were not masked before.
    pub(super) fresh: u64,
    pub(super) run: Option<[Seq; 2]>,
}

impl Draft {
    /// Builds the list that results from this state.
    pub(super) fn new(list: &List, messages: &[Message], mut standing: Standing, counter: &Counter) -> Self {
        let all = || list.front.iter().chain(&list.tail);
        let mut front: Vec<Outline> =
            all().filter(|o| standing.kept.binary_search(&o.seq).is_ok()).cloned().collect();
        let mut tail: Vec<Outline> = all().filter(|o| o.seq > standing.from).cloned().collect();
        let mut mender = Mender::default();

        let leading = front.iter().take_while(|outline| outline.leading).count();
        for outline in front.iter().take(leading) {
            list.frames.piece(messages, outline.seq).into_iter().for_each(|message| mender.take(message));
        }
        let opens = mender.done().len();
        let mut before = 0;
        for (at, outline) in front.iter_mut().enumerate() {
            // A message keeps its place, and its reasoning, only if no message before it has left.
            let in_place = outline.seq == at as Seq + 1;
            if outline.seq != before + 1 {
                mender.seam();
                // A message taken out of its batch forms a batch of its own.
                outline.cut = Cut::Legal;
            }
            before = outline.seq;
            let Some(message) = list.frames.piece(messages, outline.seq).filter(|_| at >= leading) else {
                continue;
            };
            if in_place { mender.take(message) } else { mender.keep(message) }
        }
        mender.seam();
        if let Some(summary) = &standing.summary {
            mender.push(summary.message());
        }
        // If no user message separates the front from the tail, the tail looks like the continuation of a tool loop
        // whose reasoning is missing. Then the rest of the loop's reasoning leaves as well.
        let parted = standing.summary.as_ref().is_some_and(|summary| !summary.system);
        let gap = front.len() as Seq != standing.from;
        let last = mender.done().iter().rfind(|message| !message.role.is_system());
        let goes_on = !parted && gap && last.is_some_and(|message| !message.role.is_user());
        if standing.stripped || goes_on {
            mender.stripping = true;
        }

        let masked = lay_tail(list, messages, &standing, &mut tail, &mut mender, counter);
        let first = mender.done().get(opens..).unwrap_or_default().iter().find(|m| !m.role.is_system());
        let opened = first.is_some_and(|message| message.role.is_user());
        // The stored decision is reused, so the list stays the same. It is overridden if no user message opens the
        // list, because providers reject such a list.
        let note = standing.note.get_or_insert(!opened);
        *note |= !opened;
        if *note {
            mender.put(opens, view::note());
        }
        Self { standing, front, tail, sheet: Sheet::new(mender, counter), masked }
    }
}

/// Adds everything after the summary, with old tool outputs masked.
fn lay_tail(
    list: &List,
    messages: &[Message],
    standing: &Standing,
    tail: &mut [Outline],
    mender: &mut Mender,
    counter: &Counter,
) -> Masked {
    let mut names = Names::default();
    let mut masked = Masked::default();
    let masks = tail.first().is_some_and(|outline| outline.seq <= standing.masked);
    let pinned = list.cuts(if masks { &*tail } else { &[] }).flagged(|outline| outline.pinned);
    let pinned: Vec<Seq> = pinned.map(|outline| outline.seq).collect();
    for outline in tail {
        let Some(message) = list.frames.piece(messages, outline.seq) else { continue };
        if outline.seq > standing.masked {
            mender.take(message);
            continue;
        }
        names.learn(&message);
        let stays = pinned.binary_search(&outline.seq).is_ok();
        match names.masked(&message, counter).filter(|_| !stays) {
            Some((short, outputs)) => {
                outline.tokens = counter.message(&short);
                if outline.seq > list.standing.masked {
                    masked.fresh += outputs;
                    masked.run = Some([masked.run.map_or(outline.seq, |[first, _]| first), outline.seq]);
                }
                mender.take(Cow::Owned(short));
            }
            None => mender.take(message),
        }
    }
    masked
}
