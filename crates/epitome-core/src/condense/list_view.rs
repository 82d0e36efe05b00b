//! The view of a condensed list. Each condensation builds a new view, and later messages only extend it.

use std::borrow::Cow;
use std::sync::Arc;

use crate::message::{Message, Tokens};
use crate::tokens::Counter;
use crate::view::Repairer;

/// A view to which messages are added one by one. After each message, the view is a valid list.
#[derive(Debug, Clone, Default)]
pub(super) struct ListView {
    repairer: Repairer,
    /// Number of tokens of the finished messages.
    done: Tokens,
    /// Number of finished messages whose tokens are included in `done`.
    counted: usize,
    /// Number of tokens of the messages that wait for a tool result.
    waiting: Tokens,
    /// Number of messages that wait for a tool result.
    waits: usize,
    /// Approximate memory use of the finished messages, in bytes.
    pub(super) bytes: usize,
}

impl ListView {
    pub(super) fn new(repairer: Repairer, counter: &Counter) -> Self {
        let mut view = Self { repairer, ..Self::default() };
        view.count(counter);
        view
    }

    pub(super) fn push(&mut self, message: Cow<'_, Message>) {
        self.repairer.push_in_place(message);
    }

    /// Counts the messages that were added since the last call. The messages from the oldest open call on wait for a
    /// tool result. They are counted in every call of this function, because their form may still change.
    pub(super) fn count(&mut self, counter: &Counter) {
        let done = self.repairer.done();
        let new = done.get(self.counted..).unwrap_or_default();
        self.done = self.done.saturating_add(counter.messages(new));
        self.bytes = new.iter().fold(self.bytes, |sum, message| sum.saturating_add(message.memory()));
        self.counted = done.len();
        let waiting = self.repairer.waiting();
        (self.waiting, self.waits) = (counter.messages(&waiting), waiting.len());
    }

    pub(super) fn tokens(&self) -> Tokens {
        self.done.saturating_add(self.waiting)
    }

    pub(super) fn len(&self) -> usize {
        self.counted.saturating_add(self.waits)
    }

    /// Returns the same messages as [`ListView::shown`]. The result stays valid after the view is dropped or changed.
    pub(super) fn shared(&self) -> Arc<Vec<Message>> {
        if self.waits == 0 { self.repairer.shared() } else { Arc::new(self.shown().into_owned()) }
    }

    pub(super) fn shown(&self) -> Cow<'_, [Message]> {
        if self.waits == 0 {
            return Cow::Borrowed(self.repairer.done());
        }
        Cow::Owned([self.repairer.done(), &self.repairer.waiting()].concat())
    }
}
