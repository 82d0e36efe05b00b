//! Conversations that the caller identifies and stores itself.
//!
//! A condenser that gets plain lists identifies their conversations itself. A caller that serves thousands of agents,
//! such as the proxy, has its own index: it stores a [`Thread`] for each conversation, evicts idle threads, and
//! restores them from their stored state ([`ThreadState`]). The condenser still compares every message of a list with
//! the thread, so that an error in the index never exposes another conversation's messages.
//!
//! Such a caller may also lend the model that a request is for. A proxy that forwards a request has an API key for it,
//! and may use that key to write the summaries, but only while the request is open. When the request ends, the summary
//! in progress is stopped, and nothing retains the key. A later request of the conversation starts a new summary, once
//! the list has grown by a tenth. If a summary is due before then, `local` writes it.

use std::sync::{Arc, Mutex};

use epitome_core::message::{Message, Seq};
use tokio::sync::watch;

use super::conversation::{Conversation, ThreadState};
use super::list_summarizer::ListSummarizer;
use super::ready::ReadyList;
use super::{Call, Condenser, CondenserInner, MatchedConversation, SharedConversation};
use crate::fingerprint::list_address;
use crate::hidden::Hidden;
use crate::lock::lock;
use crate::model::Model;
use crate::named_model::NamedModel;

/// Maximum number of times that a list is compared with a thread while other callers change it.
const MAX_ATTEMPTS: usize = 3;

/// One conversation, stored by a caller that identifies it. Clones share the same conversation.
#[derive(Debug, Clone, Default)]
pub struct Thread(pub(super) SharedConversation);

impl Thread {
    /// Returns the state to store for [`Condenser::begin_thread`].
    pub fn state(&self) -> ThreadState {
        lock(&self.0).state()
    }

    /// Returns the approximate memory use in bytes.
    pub fn bytes(&self) -> usize {
        lock(&self.0).bytes()
    }

    /// Returns the thread with an owner: answers that models wrote for other owners are not reused for it, even for the
    /// same prompt.
    pub(crate) fn owned_by(self, owner: [u8; 16]) -> Self {
        lock(&self.0).owner = Some(owner);
        self
    }

    /// Returns the length of the list when it was last condensed; 0 if it never was.
    pub fn condensed_at(&self) -> Seq {
        let conversation = lock(&self.0);
        let state = conversation.list.state();
        if state.rounds == 0 { 0 } else { state.length }
    }
}

impl Condenser {
    /// Returns the condenser's id. Condensers made by [`Condenser::lend`] have the id of their original, since their
    /// token counts are interchangeable; all others differ.
    pub(crate) fn id(&self) -> u64 {
        self.inner.id
    }

    /// Begins a thread with this list, or continues it from its stored state.
    pub fn begin_thread(&self, messages: &[Message], stored: Option<&ThreadState>) -> Thread {
        let inner = &self.inner;
        let list = stored.map(|stored| &stored.list);
        let mut new = Conversation::new(messages, list, &inner.rules);
        if let Some(stored) = stored {
            new.restore(stored);
        }
        Thread(Hidden(Arc::new(Mutex::new(new))))
    }

    /// Returns a fork of the thread, if the list continues it from its last condensation but ends differently.
    pub fn fork_thread(&self, thread: &Thread, messages: &[Message]) -> Option<Thread> {
        let fork = lock(&thread.0).fork(messages, &self.inner.rules)?;
        Some(Thread(Hidden(Arc::new(Mutex::new(fork)))))
    }

    /// Like [`Condenser::before`], for a list of this thread. Returns `None` if the list does not belong to it. A list
    /// that differs only in its leading system messages does.
    pub async fn before_in_thread<'a>(&self, thread: &Thread, call: Call<'a>) -> Option<ReadyList<'a>> {
        let inner = &self.inner;
        let call = Call { fixed: inner.fixed(&call), ..call };
        if !inner.rules.enabled {
            return Some(inner.disabled(&call));
        }
        let mut models_failed = false;
        // Another caller may continue the thread while a summary is written. Then the list is matched again.
        for _ in 0..MAX_ATTEMPTS {
            let mut matched =
                MatchedConversation { models_failed, ..inner.in_thread(thread, call.messages)? };
            if let Some(ready) = inner.run_turn(&mut matched, &call).await {
                return Some(ready);
            }
            models_failed = matched.models_failed;
        }
        None
    }
}

impl CondenserInner {
    /// Matches the list with the thread, if it belongs to it.
    fn in_thread(&self, thread: &Thread, messages: &[Message]) -> Option<MatchedConversation> {
        let mut conversation = lock(&thread.0);
        let len = conversation.fingerprints.len();
        let belongs = conversation.fingerprints.match_fully(messages, len, &self.rules.key)
            || conversation.adopt_system_messages(messages, &self.rules);
        belongs.then(|| {
            conversation.address = list_address(messages);
            MatchedConversation::of(&thread.0, &conversation, true)
        })
    }
}

/// The permission to use a lent model. Dropping it ends the loan: a summary in progress with that model is stopped, and
/// its call is recorded as dropped.
#[derive(Debug)]
#[must_use = "the loan ends when this is dropped"]
pub struct ModelLoan {
    _open: watch::Sender<()>,
}

impl Condenser {
    /// Returns a condenser for the same conversations with the same configuration, which uses this model for summaries
    /// until the returned [`ModelLoan`] is dropped.
    pub fn lend(&self, name: &str, model: &Arc<dyn Model>) -> (Self, ModelLoan) {
        let inner = &self.inner;
        let writer = NamedModel::new(name, model);
        let mut rules = inner.rules.clone();
        rules.local = writer.is_local();
        if !rules.local {
            rules.prices = rules.prices_of_same;
        }
        let (open, loan) = watch::channel(());
        let summarizer = Arc::new(ListSummarizer { writer, lent: true, ..inner.summarizer.as_ref().clone() });
        let lent = CondenserInner { rules, summarizer, loan: Some(loan), ..inner.sibling(inner.id, 1) };
        (Self { inner: Hidden(Arc::new(lent)) }, ModelLoan { _open: open })
    }
}
