//! Defines threads: conversations that the caller identifies and stores itself.
//!
//! Usually, the condenser itself finds the conversation that a list belongs to. A caller that serves thousands of
//! agents, such as the proxy, has its own index of conversations instead. The caller stores a [`Thread`] for each
//! conversation, evicts idle threads, and restores a thread from its stored state ([`ThreadState`]). The condenser
//! still compares every message of a list with the thread. An error in the caller's index therefore never exposes the
//! messages of another conversation.
//!
//! Such a caller may also lend a model to the condenser: the model that receives the request. For example, a proxy that
//! forwards a request has the client's API key. The proxy may use this key to write summaries, but only while the
//! request is open. When the request ends, the summary in progress is stopped, and the key is no longer stored
//! anywhere. When the list has grown by a tenth, a later request of the conversation starts a new summary. If a
//! condensation is due before then, `local` writes the summary.

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

/// Maximum number of times that a list is compared with a thread. The comparison is repeated if another caller changed
/// the thread in the meantime.
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

    /// Sets the owner of the thread. Cached answers of models for other owners are not reused for this thread, even if
    /// the prompt is the same.
    pub(crate) fn owned_by(self, owner: [u8; 16]) -> Self {
        lock(&self.0).owner = Some(owner);
        self
    }

    /// Returns the length that the list had when it was last condensed; 0 if it was never condensed.
    pub fn condensed_at(&self) -> Seq {
        let conversation = lock(&self.0);
        let state = conversation.list.state();
        if state.rounds == 0 { 0 } else { state.length }
    }
}

impl Condenser {
    /// Returns the condenser's id. A condenser that [`Condenser::lend`] created has the id of the original condenser,
    /// because both count tokens in the same way. All other condensers have different ids.
    pub(crate) fn id(&self) -> u64 {
        self.inner.id
    }

    /// Begins a thread with this list. If `stored` is set, the thread continues from this state.
    pub fn begin_thread(&self, messages: &[Message], stored: Option<&ThreadState>) -> Thread {
        let inner = &self.inner;
        let list = stored.map(|stored| &stored.list);
        let mut new = Conversation::new(messages, list, &inner.rules);
        if let Some(stored) = stored {
            new.restore(stored);
        }
        Thread(Hidden(Arc::new(Mutex::new(new))))
    }

    /// Returns a fork of the thread, if the list and the thread have the same messages up to the last condensation and
    /// different messages after it. Otherwise returns `None`.
    pub fn fork_thread(&self, thread: &Thread, messages: &[Message]) -> Option<Thread> {
        let fork = lock(&thread.0).fork(messages, &self.inner.rules)?;
        Some(Thread(Hidden(Arc::new(Mutex::new(fork)))))
    }

    /// Like [`Condenser::before`], for a list of this thread. Returns `None` if the list does not belong to the thread.
    /// A list that differs from the thread only in its leading system messages belongs to it.
    pub async fn before_in_thread<'a>(&self, thread: &Thread, call: Call<'a>) -> Option<ReadyList<'a>> {
        let inner = &self.inner;
        let call = Call { fixed: inner.fixed(&call), ..call };
        if !inner.rules.enabled {
            return Some(inner.disabled(&call));
        }
        let mut models_failed = false;
        // Another caller may continue the thread while a summary is written. The list is then compared with the thread
        // again.
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
    /// Returns the thread's conversation, if the list belongs to the thread.
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

/// The permission to use a lent model. Dropping this value ends the loan. If the model is writing a summary at that
/// time, the call is stopped and recorded as `dropped`.
#[derive(Debug)]
#[must_use = "the loan ends when this is dropped"]
pub struct ModelLoan {
    _open: watch::Sender<()>,
}

impl Condenser {
    /// Returns a condenser with the same configuration that writes summaries with this model, until the returned
    /// [`ModelLoan`] is dropped. The returned condenser can continue the threads of the original condenser.
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
