//! Builds a condensed list before it is accepted.
//!
//! A [`Draft`] depends only on a [`ListState`] and the caller's messages. Epitome can therefore rebuild the same draft
//! after a restart, byte for byte.

use std::borrow::Cow;

use super::list::{List, ListState};
use super::list_view::ListView;
use super::mask::ToolNames;
use crate::message::{Message, Seq};
use crate::outline::{Cut, Outline};
use crate::tokens::Counter;
use crate::view::{self, Repairer};

impl List {
    /// Rebuilds a condensed list from its stored state. The rebuilt list shows the same messages as the original.
    pub fn resume(messages: &[Message], state: &ListState, counter: &Counter) -> Self {
        let mut list = Self::default();
        let first = |n: Seq| messages.get(..usize::try_from(n).unwrap_or(usize::MAX)).unwrap_or(messages);
        list.advance(first(state.searched), counter);
        if state.rounds > 0 {
            // If the round count is not zero, `advance` treats the following messages as messages that were added to a
            // condensed list. The view is built below.
            list.state.rounds = state.rounds;
            list.advance(first(state.length), counter);
            let draft = Draft::new(&list, messages, state.clone(), counter);
            list.adopt(draft);
        }
        list.advance(messages, counter);
        list
    }

    /// Replaces the list's state with the draft, and restarts the totals.
    pub(super) fn adopt(&mut self, draft: Draft) {
        let Draft { state, front, tail, view, .. } = draft;
        (self.front, self.tail) = (front, tail);
        self.totals.restart(state.at);
        self.state = state;
        self.view = Some(view);
    }
}

/// A condensed list that is not yet accepted.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) state: ListState,
    pub(super) front: Vec<Outline>,
    pub(super) tail: Vec<Outline>,
    pub(super) view: ListView,
    /// The tool outputs masked in the draft.
    pub(super) masked: Masked,
}

/// Counts the tool outputs that a draft masks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Masked {
    /// Number of tool outputs that were not masked before this draft.
    pub(super) fresh: u64,
    pub(super) run: Option<[Seq; 2]>,
}

impl Draft {
    /// Builds the condensed list for this state.
    pub(super) fn new(list: &List, messages: &[Message], mut state: ListState, counter: &Counter) -> Self {
        let all = || list.front.iter().chain(&list.tail);
        let mut front: Vec<Outline> =
            all().filter(|o| state.front.binary_search(&o.seq).is_ok()).cloned().collect();
        let mut tail: Vec<Outline> = all().filter(|o| o.seq > state.from).cloned().collect();
        let mut repairer = Repairer::default();

        let leading = front.iter().take_while(|outline| outline.leading).count();
        for outline in front.iter().take(leading) {
            list.frames
                .message(messages, outline.seq)
                .into_iter()
                .for_each(|message| repairer.push_in_place(message));
        }
        let opens = repairer.done().len();
        let mut before = 0;
        for (at, outline) in front.iter_mut().enumerate() {
            // A message stays in place, with its reasoning, only if all messages before it are still in the list.
            let in_place = outline.seq == at as Seq + 1;
            if outline.seq != before + 1 {
                repairer.seam();
                // A message that is separated from its batch becomes a batch of its own.
                outline.cut = Cut::Legal;
            }
            before = outline.seq;
            let Some(message) = list.frames.message(messages, outline.seq).filter(|_| at >= leading) else {
                continue;
            };
            if in_place { repairer.push_in_place(message) } else { repairer.push_moved(message) }
        }
        repairer.seam();
        if let Some(summary) = &state.summary {
            repairer.push(summary.message());
        }
        // If no user message separates the front from the tail, the tail looks like the continuation of a tool loop
        // whose reasoning is missing. In that case, the remaining reasoning of the loop is removed too.
        let user_between = state.summary.as_ref().is_some_and(|summary| !summary.system);
        let gap = front.len() as Seq != state.from;
        let last = repairer.done().iter().rfind(|message| !message.role.is_system());
        let continues_loop = !user_between && gap && last.is_some_and(|message| !message.role.is_user());
        if state.stripped || continues_loop {
            repairer.strip_reasoning = true;
        }

        let masked = push_tail(list, messages, &state, &mut tail, &mut repairer, counter);
        let first = repairer.done().get(opens..).unwrap_or_default().iter().find(|m| !m.role.is_system());
        let opened = first.is_some_and(|message| message.role.is_user());
        // `note` says whether a placeholder user message opens the list. A stored value is reused, so that the start of
        // the list does not change. If the list does not start with a user message, the value becomes true, because
        // providers reject such a list.
        let note = state.note.get_or_insert(!opened);
        *note |= !opened;
        if *note {
            repairer.insert(opens, view::note());
        }
        Self { state, front, tail, view: ListView::new(repairer, counter), masked }
    }
}

/// Adds all messages after the summary to the view, and masks old tool outputs.
fn push_tail(
    list: &List,
    messages: &[Message],
    state: &ListState,
    tail: &mut [Outline],
    repairer: &mut Repairer,
    counter: &Counter,
) -> Masked {
    let mut names = ToolNames::default();
    let mut masked = Masked::default();
    let masks = tail.first().is_some_and(|outline| outline.seq <= state.masked);
    let pinned = list.cuts(if masks { &*tail } else { &[] }).flagged(|outline| outline.pinned);
    let pinned: Vec<Seq> = pinned.map(|outline| outline.seq).collect();
    for outline in tail {
        let Some(message) = list.frames.message(messages, outline.seq) else { continue };
        if outline.seq > state.masked {
            repairer.push_in_place(message);
            continue;
        }
        names.learn(&message);
        let stays = pinned.binary_search(&outline.seq).is_ok();
        match names.masked(&message, counter).filter(|_| !stays) {
            Some((short, outputs)) => {
                outline.tokens = counter.message(&short);
                if outline.seq > list.state.masked {
                    masked.fresh += outputs;
                    masked.run = Some([masked.run.map_or(outline.seq, |[first, _]| first), outline.seq]);
                }
                repairer.push_in_place(Cow::Owned(short));
            }
            None => repairer.push_in_place(message),
        }
    }
    masked
}
