//! The next list as it would be, before it is accepted.
//!
//! A [`Draft`] is built from a [`Standing`] and the caller's messages, so it can be built again after a restart, byte
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
    /// A list that was condensed before, from what stood then. It shows what it would have shown
    /// had it never been put away.
    pub fn resume(messages: &[Message], standing: &Standing, counter: &Counter) -> Self {
        let mut list = Self::default();
        let first = |n: Seq| messages.get(..usize::try_from(n).unwrap_or(usize::MAX)).unwrap_or(messages);
        list.advance(first(standing.looked), counter);
        if standing.rounds > 0 {
            // Marks what follows as added to a condensed list; the view itself is built once, below.
            list.standing.rounds = standing.rounds;
            list.advance(first(standing.seen), counter);
            let draft = Draft::new(&list, messages, standing.clone(), counter);
            list.adopt(draft);
        }
        list.advance(messages, counter);
        list
    }

    /// Makes a draft the truth. Counting starts anew.
    pub(super) fn adopt(&mut self, draft: Draft) {
        let Draft { standing, front, tail, sheet, .. } = draft;
        (self.front, self.tail) = (front, tail);
        self.totals.restart(standing.at);
        self.standing = standing;
        self.sheet = Some(sheet);
    }
}

/// A list as it would be, not yet accepted.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) standing: Standing,
    pub(super) front: Vec<Outline>,
    pub(super) tail: Vec<Outline>,
    pub(super) sheet: Sheet,
    /// The outputs masked in it: how many, and the first and last message with one.
    pub(super) masked: Masked,
}

/// Tool outputs that were masked.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Masked {
    /// Those beyond where masking had reached before.
    pub(super) fresh: u64,
    pub(super) run: Option<[Seq; 2]>,
}

impl Draft {
    /// The list with this done to it.
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
            // What stands where it stood from the beginning on is in its place.
            let in_place = outline.seq == at as Seq + 1;
            if outline.seq != before + 1 {
                mender.seam();
                // Taken out of its batch, it is one of its own.
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
        // Where nothing of the user's parts it from what was left out before it, the tail would seem
        // to go on with a loop whose reasoning is not there.
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
        // It was decided once, and a store may tell otherwise: without a user's word it is refused.
        let note = standing.note.get_or_insert(!opened);
        *note |= !opened;
        if *note {
            mender.put(opens, view::note());
        }
        Self { standing, front, tail, sheet: Sheet::new(mender, counter), masked }
    }
}

/// Puts in everything after the summary, old tool outputs masked.
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
