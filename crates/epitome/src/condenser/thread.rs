//! Conversations that the caller identifies and stores itself.
//!
//! A condenser that gets plain lists identifies their conversations itself. A caller that serves thousands of agents,
//! such as the proxy, has its own index: it stores a [`Thread`] for each conversation, evicts idle threads, and
//! restores them from their stored state ([`Kept`]). The condenser still compares every message of a list with the
//! thread, so that an error in the index never exposes another conversation's messages.
//!
//! Such a caller may also lend the model that a request is for. A proxy that forwards a request has an API key for it,
//! and may use that key to write the summaries, but only while the request is open. When the request ends, the summary
//! in progress is stopped, and nothing retains the key. A later request of the conversation begins again, when the list
//! has grown by a tenth. If a summary is due before then, `local` writes it.

use std::sync::{Arc, Mutex};

use epitome_core::message::{Message, Seq};
use tokio::sync::watch;

use super::conversation::{Conversation, Kept};
use super::ready::Ready;
use super::scribe::Scribe;
use super::{Call, Condenser, Found, Inner, Shared};
use crate::fingerprint::place;
use crate::hidden::Hidden;
use crate::lock::lock;
use crate::model::Model;
use crate::writer::Writer;

/// Maximum number of times that a list is compared with a thread while other callers change it.
const MOST_LOOKS: usize = 3;

/// One conversation, stored by a caller that identifies it. Clones share the same conversation.
#[derive(Debug, Clone, Default)]
pub struct Thread(pub(super) Shared);

impl Thread {
    /// Returns the state to store for [`Condenser::begin`].
    pub fn kept(&self) -> Kept {
        lock(&self.0).kept()
    }

    /// Returns the approximate memory use in bytes.
    pub fn bytes(&self) -> usize {
        lock(&self.0).bytes()
    }

    /// Returns the thread with an owner: answers that models wrote for other owners are not reused for it, even for the
    /// same prompt.
    pub(crate) fn owned_by(self, whose: [u8; 16]) -> Self {
        lock(&self.0).whose = Some(whose);
        self
    }

    /// Returns the length of the list when it was last condensed; 0 if it never was.
    pub fn condensed_at(&self) -> Seq {
        let conversation = lock(&self.0);
        let standing = conversation.list.standing();
        if standing.rounds == 0 { 0 } else { standing.seen }
    }
}

impl Condenser {
    /// Returns the condenser's id. Condensers made by [`Condenser::lend`] have the id of their original, since their
    /// token counts are interchangeable; all others differ.
    pub(crate) fn id(&self) -> u64 {
        self.inner.id
    }

    /// Begins a thread with this list, or continues it from its stored state.
    pub fn begin(&self, messages: &[Message], kept: Option<&Kept>) -> Thread {
        let inner = &self.inner;
        let standing = kept.map(|kept| &kept.standing);
        let mut new = Conversation::begun(messages, standing, &inner.rules);
        if let Some(kept) = kept {
            new.take_up(kept);
        }
        Thread(Hidden(Arc::new(Mutex::new(new))))
    }

    /// Returns a fork of the thread, if the list continues it from its last condensation but ends differently.
    pub fn fork(&self, thread: &Thread, messages: &[Message]) -> Option<Thread> {
        let fork = lock(&thread.0).forked(messages, &self.inner.rules)?;
        Some(Thread(Hidden(Arc::new(Mutex::new(fork)))))
    }

    /// Like [`Condenser::before`], for a list of this thread. Returns `None` if the list does not belong to it. A list
    /// that differs only in its leading system messages does.
    pub async fn before_in<'a>(&self, thread: &Thread, call: Call<'a>) -> Option<Ready<'a>> {
        let inner = &self.inner;
        let call = Call { fixed: inner.fixed(&call), ..call };
        if !inner.rules.enabled {
            return Some(inner.off(&call));
        }
        let mut given_up = false;
        // Another caller may continue the thread while a summary is written. Then the list is matched again.
        for _ in 0..MOST_LOOKS {
            let mut found = Found { given_up, ..inner.in_thread(thread, call.messages)? };
            if let Some(ready) = inner.go_on(&mut found, &call).await {
                return Some(ready);
            }
            given_up = found.given_up;
        }
        None
    }
}

impl Inner {
    /// Matches the list with the thread, if it belongs to it.
    fn in_thread(&self, thread: &Thread, messages: &[Message]) -> Option<Found> {
        let mut conversation = lock(&thread.0);
        let len = conversation.prints.len();
        let goes_on = conversation.prints.are(messages, len, &self.rules.key)
            || conversation.takes_head(messages, &self.rules);
        goes_on.then(|| {
            conversation.place = place(messages);
            Found::of(&thread.0, &conversation, true)
        })
    }
}

/// The permission to use a lent model. When it is dropped, a summary in progress with that model is stopped, and its
/// call is recorded as dropped.
#[derive(Debug)]
#[must_use = "the model is taken back when this is dropped"]
pub struct Lent {
    _open: watch::Sender<()>,
}

impl Condenser {
    /// Returns a condenser for the same conversations with the same configuration, which uses this model for summaries
    /// until the returned [`Lent`] is dropped.
    pub fn lend(&self, name: &str, model: &Arc<dyn Model>) -> (Self, Lent) {
        let inner = &self.inner;
        let writer = Writer::new(name, model);
        let mut rules = inner.rules.clone();
        rules.local = writer.is_local();
        if !rules.local {
            rules.prices = rules.prices_of_same;
        }
        let (open, loan) = watch::channel(());
        let scribe = Arc::new(Scribe { writer, lent: true, ..inner.scribe.as_ref().clone() });
        let lent = Inner { rules, scribe, loan: Some(loan), ..inner.like(inner.id, 1) };
        (Self { inner: Hidden(Arc::new(lent)) }, Lent { _open: open })
    }
}
