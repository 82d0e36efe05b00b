//! Conversations that their caller tells apart itself, and keeps.
//!
//! A condenser that is handed lists finds out by itself whose they are. Whoever serves thousands of agents, as the proxy does,
//! has an index of its own: it holds a [`Thread`] for each conversation, lets go of those that are long quiet, and takes them up
//! again from what it [kept](Kept). Whether a list goes on with a thread is looked at here all the same, message by message, so
//! that an index that is wrong shows nobody another's words.
//!
//! Such a caller may also lend the model that a request is for. Whoever sends a request through has a key for it, and with that
//! key it may write the summaries too, but only while the request is open: what is being written then ends, and nothing that
//! holds the key is left. A later request of the conversation begins again, when it has grown by a tenth; what is due before it
//! is there, `local` writes.

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

/// So often a list is looked for in a thread that others go on with at the same time.
const MOST_LOOKS: usize = 3;

/// One conversation, held by whoever knows which it is. Clones are one.
#[derive(Debug, Clone, Default)]
pub struct Thread(pub(super) Shared);

impl Thread {
    /// All that must be kept for [`Condenser::begin`].
    pub fn kept(&self) -> Kept {
        lock(&self.0).kept()
    }

    /// About how many bytes of memory it holds.
    pub fn bytes(&self) -> usize {
        lock(&self.0).bytes()
    }

    /// The same, for nobody but this caller: what models wrote for others is not recalled for it, even where they asked
    /// the same.
    pub(crate) fn owned_by(self, whose: [u8; 16]) -> Self {
        lock(&self.0).whose = Some(whose);
        self
    }

    /// How long its list was when it was last condensed; 0 where it never was.
    pub fn condensed_at(&self) -> Seq {
        let conversation = lock(&self.0);
        let standing = conversation.list.standing();
        if standing.rounds == 0 { 0 } else { standing.seen }
    }
}

impl Condenser {
    /// A number that is another for every condenser but those that [`Condenser::lend`] made of it: what one of them counted
    /// holds for the others.
    pub(crate) fn id(&self) -> u64 {
        self.inner.id
    }

    /// A conversation of the caller's own, from its beginning or from what was kept of it.
    pub fn begin(&self, messages: &[Message], kept: Option<&Kept>) -> Thread {
        let inner = &self.inner;
        let standing = kept.map(|kept| &kept.standing);
        let mut new = Conversation::begun(messages, standing, &inner.rules);
        if let Some(kept) = kept {
            new.take_up(kept);
        }
        Thread(Hidden(Arc::new(Mutex::new(new))))
    }

    /// The same conversation with another end, where the list goes on from where the thread was last condensed.
    pub fn fork(&self, thread: &Thread, messages: &[Message]) -> Option<Thread> {
        let fork = lock(&thread.0).forked(messages, &self.inner.rules)?;
        Some(Thread(Hidden(Arc::new(Mutex::new(fork)))))
    }

    /// As [`Condenser::before`], for a list of this thread; nothing where it is not. A list whose standing orders alone
    /// are others is.
    pub async fn before_in<'a>(&self, thread: &Thread, call: Call<'a>) -> Option<Ready<'a>> {
        let inner = &self.inner;
        let call = Call { fixed: inner.fixed(&call), ..call };
        if !inner.rules.enabled {
            return Some(inner.off(&call));
        }
        let mut given_up = false;
        // Somebody else may go on with it while a summary is written; then it is another's, or the list goes on with that.
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
    /// The thread as what the list was found to belong to, if it does.
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

/// While it is held, the model that was lent may be used. When it is dropped, whoever still has a summary written by that
/// model is stopped, and what was sent for it is recorded as a call that was dropped.
#[derive(Debug)]
#[must_use = "the model is taken back when this is dropped"]
pub struct Lent {
    _open: watch::Sender<()>,
}

impl Condenser {
    /// One that works in the same way on the same conversations, with this model to write their summaries as long as what
    /// comes with it is held.
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
