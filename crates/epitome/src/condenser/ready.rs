//! What a caller gets before its call, and what it may say after it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use epitome_core::condense::Standing;
use epitome_core::message::{Message, Tokens};
use epitome_core::trigger::Fraction;

use super::Shared;
use super::report::{Report, Spent};
use crate::lock::lock;

/// The list to be sent, and what was done to it. It reads as the list.
///
/// Let go of it before the next turn: what is still held then has to be copied.
#[derive(Debug)]
pub struct Ready<'a> {
    pub(super) shown: Shown<'a>,
    /// What was done, also where that is nothing.
    pub report: Report,
    /// The size of the whole request had nothing ever been condensed, as the provider would count it as far as that is
    /// known. Where condensing is off nobody counts, and this is what comes besides the list.
    pub full: Tokens,
    /// The same of the request that is sent.
    pub sent: Tokens,
    pub(super) turn: Turn,
}

#[derive(Debug)]
pub(super) enum Shown<'a> {
    Own(&'a [Message]),
    Condensed(Arc<Vec<Message>>),
}

impl Deref for Ready<'_> {
    type Target = [Message];

    fn deref(&self) -> &[Message] {
        match &self.shown {
            Shown::Own(messages) => messages,
            Shown::Condensed(messages) => messages,
        }
    }
}

impl Ready<'_> {
    /// Whether it is the caller's own list, untouched.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        matches!(self.shown, Shown::Own(_))
    }

    /// The turn it is for, to say what became of it.
    #[must_use]
    pub fn turn(&self) -> Turn {
        self.turn.clone()
    }

    /// The list itself, to be kept.
    #[must_use]
    pub fn into_messages(self) -> Vec<Message> {
        match self.shown {
            Shown::Own(messages) => messages.to_vec(),
            Shown::Condensed(messages) => Arc::unwrap_or_clone(messages),
        }
    }
}

/// One turn, for what its caller learns of it later. Cheap to keep.
#[derive(Clone, Default)]
pub struct Turn {
    pub(super) conversation: Shared,
    pub(super) counted: Tokens,
    pub(super) rounds: u64,
    pub(super) worth: Option<Fraction>,
}

impl Turn {
    /// The provider counted so many tokens of input, cached ones included. From then on its count decides when the list is
    /// due, and whether condensing helps: after two passes that did not, no more are made.
    pub fn reported(&self, input: Tokens) {
        if let Some(worth) = self.worth {
            lock(&self.conversation).reported(self, input, worth);
        }
    }

    /// The provider found the list too long, and takes at most `limit` tokens of input where it says so. The next list of
    /// this conversation is made to fit.
    pub fn too_long(&self, limit: Option<Tokens>) {
        lock(&self.conversation).too_long(limit);
    }

    /// Waits until what is being written for this conversation is there, and takes what that cost: no report tells it
    /// again.
    pub async fn settled(&self) -> Vec<Spent> {
        let ended = lock(&self.conversation).under_way();
        if let Some(mut ended) = ended {
            while ended.changed().await.is_ok() {}
        }
        lock(&self.conversation).paid()
    }

    /// All that must be kept for [`Condenser::resume`](super::Condenser::resume), without a word of the history but the summary.
    #[must_use]
    pub fn standing(&self) -> Standing {
        lock(&self.conversation).list.standing().clone()
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("counted", &self.counted).field("rounds", &self.rounds).finish()
    }
}
