//! The view of a condensed list: built once for each condensation and then only added to.

use std::borrow::Cow;
use std::sync::Arc;

use crate::message::{Message, Tokens};
use crate::tokens::Counter;
use crate::view::Mender;

/// A view under construction: messages go in one by one, a valid list is there at any time.
#[derive(Debug, Clone, Default)]
pub(super) struct Sheet {
    mender: Mender,
    /// The tokens of what is done, and how many messages of it were counted.
    done: Tokens,
    counted: usize,
    /// The same of what waits for a result.
    waiting: Tokens,
    waits: usize,
    /// About how much memory the messages take that are done.
    pub(super) bytes: usize,
}

impl Sheet {
    pub(super) fn new(mender: Mender, counter: &Counter) -> Self {
        let mut sheet = Self { mender, ..Self::default() };
        sheet.count(counter);
        sheet
    }

    pub(super) fn push(&mut self, message: Cow<'_, Message>) {
        self.mender.take(message);
    }

    /// Brings the count up to date. What waits is counted anew, for its form may still change; it
    /// is the calls open at the end, not the list.
    pub(super) fn count(&mut self, counter: &Counter) {
        let done = self.mender.done();
        let new = done.get(self.counted..).unwrap_or_default();
        self.done = self.done.saturating_add(counter.messages(new));
        self.bytes = new.iter().fold(self.bytes, |sum, message| sum.saturating_add(message.memory()));
        self.counted = done.len();
        let waiting = self.mender.waiting();
        (self.waiting, self.waits) = (counter.messages(&waiting), waiting.len());
    }

    pub(super) fn tokens(&self) -> Tokens {
        self.done.saturating_add(self.waiting)
    }

    pub(super) fn len(&self) -> usize {
        self.counted.saturating_add(self.waits)
    }

    /// The same as [`Sheet::shown`], to be kept.
    pub(super) fn shared(&self) -> Arc<Vec<Message>> {
        if self.waits == 0 { self.mender.shared() } else { Arc::new(self.shown().into_owned()) }
    }

    pub(super) fn shown(&self) -> Cow<'_, [Message]> {
        if self.waits == 0 {
            return Cow::Borrowed(self.mender.done());
        }
        Cow::Owned([self.mender.done(), &self.mender.waiting()].concat())
    }
}
