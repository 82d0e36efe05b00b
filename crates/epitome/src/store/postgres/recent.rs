//! Windows that were read lately, so that the next one need only read what was said since.
//!
//! Messages never change but for their flags and notes, and whatever else a window holds changes with the session's revision. So as
//! long as that is the same, a window of a session that grew is the last one with the new messages at its end.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use epitome_core::message::{Message, Part, Seq};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;

use super::super::tail::{Tail, at_end, shown};
use super::super::{Reach, SessionId, SessionKey, Standing, SummaryRow, Window};

/// So many messages may have been said since.
pub(super) const MOST_NEW: usize = 256;

/// Windows of more text than this are not kept.
const LARGEST: usize = 1 << 20;

/// And all of them together have no more than this.
const MOST: usize = 64 << 20;

/// What a window was made of.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) id: SessionId,
    pub(super) head: Seq,
    revision: i64,
    reach: Reach,
    leading: Vec<Outline>,
    pinned: Vec<Outline>,
    opener: Option<Outline>,
    tail: Vec<Outline>,
    from: Seq,
    /// Who opened the turns of the tail's messages.
    openers: BTreeMap<Seq, Seq>,
    summaries: Vec<SummaryRow>,
    words: BTreeMap<Seq, Message>,
    bytes: usize,
}

/// A message that was said since: its shape, who opened its turn, its words.
pub(super) type New = (Outline, Seq, Message);

impl Held {
    /// Of a window that was read as a whole.
    pub(super) fn of(
        window: &Window,
        revision: i64,
        reach: Reach,
        openers: BTreeMap<Seq, Seq>,
    ) -> Option<Self> {
        let session = window.standing.session.as_ref()?;
        let mut held = Self {
            id: session.id,
            head: session.tracker.head(),
            revision,
            reach,
            leading: window.leading.clone(),
            pinned: window.pinned.clone(),
            opener: window.opener.clone(),
            tail: window.tail.clone(),
            from: window.from,
            openers,
            summaries: window.summaries.clone(),
            words: window.words.iter().map(|message| (message.seq, message.clone())).collect(),
            bytes: 0,
        };
        held.bytes = held.size();
        (held.bytes <= LARGEST).then_some(held)
    }

    /// About how much memory it takes.
    fn size(&self) -> usize {
        let text = |part: &Part| match part {
            Part::Text { text } => text.len(),
            // Media and the like are large, and seldom asked for again: whoever shows them reads them.
            _ => 4_096,
        };
        let words: usize = self.words.values().flat_map(|message| &message.parts).map(text).sum();
        let notes: usize = self.words.values().map(|message| message.metadata.len() * 256).sum();
        let wire = self.words.values().filter(|message| message.wire.is_some()).count() * 1_024;
        let summaries: usize = self.summaries.iter().map(|row| row.text.len()).sum();
        words + notes + wire + summaries + self.tail.len() * 256
    }

    /// The window of the session as it stands now; nothing where that cannot be told from what is held and what was said
    /// since.
    pub(super) fn grown(
        &self,
        standing: Standing,
        revision: i64,
        reach: Reach,
        new: Vec<New>,
    ) -> Option<(Window, Self)> {
        let session = standing.session.as_ref()?;
        let same = session.id == self.id
            && revision == self.revision
            && (reach.tokens, reach.deep) == (self.reach.tokens, self.reach.deep);
        let head = session.tracker.head();
        let all = new.iter().map(|(outline, _, _)| outline.seq).eq(self.head.saturating_add(1)..=head);
        // What is flagged or leads changes more than the end.
        let plain = new.iter().all(|(outline, _, _)| !outline.pinned && !outline.skip && !outline.leading);
        // A call batch that is pinned may go on.
        let joins = new.first().is_some_and(|(outline, _, _)| outline.cut < Cut::InLoop);
        if !same || !all || !plain || (joins && !self.pinned.is_empty()) {
            return None;
        }
        let mut openers = self.openers.clone();
        let mut words = self.words.clone();
        let mut outlines = Vec::with_capacity(new.len());
        for (outline, opener, message) in new {
            openers.insert(outline.seq, opener);
            words.insert(outline.seq, message);
            outlines.push(outline);
        }
        let first_uncovered = self.summaries.iter().map(|row| row.through.saturating_add(1)).min();
        let floor = if reach.deep { None } else { first_uncovered };
        let mut tail = Tail::new(false, reach.tokens, floor, &self.pinned);
        let mut whole = true;
        for outline in outlines.iter().rev().chain(self.tail.iter().rev()) {
            whole = tail.take(outline.clone());
            if !whole {
                break;
            }
        }
        let (tail, from) = tail.done();
        // Where all of it is taken it begins where it began: there was enough with less.
        let from = if whole { self.from } else { from };
        let opener = self.opener(&tail, from, &openers)?;
        let covered = self.summaries.iter().map(|row| row.through).max().filter(|_| !reach.deep).unwrap_or(0);
        let ahead = self.leading.iter().chain(&self.pinned).chain(&opener);
        let seqs: Vec<Seq> = shown(false, ahead, &tail, covered).into_keys().collect();
        let words: Option<Vec<Message>> = seqs.iter().map(|seq| words.remove(seq)).collect();
        let (end, open_calls) = at_end(&session.tracker, &Scope::Session);
        let window = Window {
            leading: self.leading.clone(),
            pinned: self.pinned.clone(),
            opener,
            from,
            end,
            open_calls,
            skipped: session.skipped,
            summaries: self.summaries.clone(),
            words: words?,
            tail,
            standing,
        };
        openers.retain(|seq, _| *seq >= from);
        let held = Self::of(&window, revision, reach, openers)?;
        Some((window, held))
    }

    /// The message that opened the turn the tail starts in, where it lies before it; `None` where it is not known.
    fn opener(&self, tail: &[Outline], from: Seq, openers: &BTreeMap<Seq, Seq>) -> Option<Option<Outline>> {
        let Some(first) = tail.first().filter(|first| first.turn > 0 && !first.opens_turn && from > 1) else {
            return Some(None);
        };
        let seq = *openers.get(&first.seq)?;
        if seq == 0 {
            return Some(None);
        }
        let known = self.tail.iter().chain(&self.opener).find(|outline| outline.seq == seq)?;
        Some(Some(known.clone()).filter(|opener| opener.turn == first.turn && opener.seq < from))
    }
}

/// Windows that were read lately.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    held: HashMap<SessionKey, Arc<Held>>,
    bytes: usize,
}

impl Recent {
    pub(super) fn get(&self, key: &SessionKey) -> Option<Arc<Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).held.get(key).cloned()
    }

    pub(super) fn put(&self, key: &SessionKey, held: Held) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.bytes > MOST {
            *inner = Inner::default();
        }
        inner.bytes = inner.bytes.saturating_add(held.bytes);
        if let Some(before) = inner.held.insert(key.clone(), Arc::new(held)) {
            inner.bytes = inner.bytes.saturating_sub(before.bytes);
        }
    }
}
