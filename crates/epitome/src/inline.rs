//! Condenses conversations of requests that are forwarded: recognises them without a name, also after a restart.
//!
//! A program that forwards requests for others, such as the proxy, gets each conversation as a whole list, again and
//! again, a little longer each time. An [`Inline`] identifies the conversation by rolling hashes (`fingerprint.rs`),
//! passes the list to the conversation's [`Thread`], and stores what was done to it (`keeping.rs`). So a condensed list
//! stays the same until its next condensation, no matter which process handles the requests.
//!
//! Some thousand conversations are cached in memory (`threads.rs`). For evicted conversations, and for those that
//! another process began, the state is read from the store when they continue. A cached conversation is compared
//! message by message before anything is done. A stored state is used only for a list whose messages up to that state
//! are all the same. A lookup never returns another workspace's or another caller's conversation. If nothing is found,
//! the list is condensed from the start.

use std::hash::Hasher;
use std::sync::Arc;

use epitome_core::message::{Message, Role};

use crate::condenser::{Call, Condenser, Lent, Ready, Thread};
use crate::fingerprint::Chain;
use crate::hidden::Hidden;
use crate::model::Model;
use crate::store::{InlineRow, Store};

mod keeping;
mod savings;
mod threads;

use keeping::Document;
pub use savings::Answered;
use threads::Held;
pub(crate) use threads::{MOST_THREADS, Threads};

/// The owner of a conversation, as far as its list does not identify it.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Distinguishes callers that share a workspace, for example a hash of their API key. It is stored only as a part
    /// of hashes.
    pub id: &'a [u8],
    /// The caller's name of the conversation, if it has one. Conversations with different names are never treated as
    /// one.
    pub session: Option<&'a str>,
    /// The wire format of the requests.
    pub wire: &'a str,
}

impl Caller<'_> {
    /// Returns the hashes by which a list of this caller is recognised. They differ between workspaces and between
    /// callers.
    pub(crate) fn chain(&self, workspace: &str, messages: &[Message]) -> Chain {
        Chain::of(messages, |seed, head| {
            for text in [workspace, self.wire, self.session.unwrap_or_default()] {
                seed.write_usize(text.len());
                seed.write(text.as_bytes());
            }
            seed.write(self.id);
            seed.write_usize(head);
            seed.write_u8(u8::from(self.session.is_some()));
        })
    }
}

/// The condensed list, and the id of its conversation.
#[derive(Debug)]
#[non_exhaustive]
pub struct Passing<'a> {
    /// The list to send.
    pub ready: Ready<'a>,
    /// The caller's name of the conversation, or else a generated id. Once the conversation was condensed, the id
    /// survives restarts. A fork gets its own id.
    pub run: Arc<str>,
    /// Set if a model was lent: keep it until the request has ended, and no longer.
    pub lent: Option<Lent>,
}

/// The forwarded conversations of a workspace. A handle that is cheap to create.
#[derive(Debug, Clone)]
pub struct Inline {
    pub(crate) store: Hidden<Arc<dyn Store>>,
    pub(crate) threads: Hidden<Arc<Threads>>,
    pub(crate) workspace: Arc<str>,
}

impl Inline {
    /// Returns the list to send in place of this one, condensed as a part of the conversation it belongs to.
    ///
    /// ```
    /// # async fn try_it() -> Result<(), epitome::Error> {
    /// use epitome::Message;
    /// use epitome::inline::Caller;
    /// use epitome::{Call, Engine};
    ///
    /// let workspace = Engine::memory().await?.workspace("home");
    /// let condenser = workspace.condenser().await?.for_model("gpt-5-mini").build()?;
    /// let caller = Caller { id: b"a hash of their key", session: None, wire: "openai" };
    /// let list = [Message::user("Which berths are free?")];
    /// let passing = workspace.inline().before(&condenser, &caller, Call::of(&list)).await;
    /// assert!(passing.ready.is_untouched() && passing.ready.full == passing.ready.sent);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
    /// ```
    pub async fn before<'a>(
        &self,
        condenser: &Condenser,
        caller: &Caller<'_>,
        call: Call<'a>,
    ) -> Passing<'a> {
        let chain = caller.chain(&self.workspace, call.messages);
        let name = caller.session.map(Arc::from);
        let found = self.threads.find(&chain);
        let later = match &found {
            Some(found) if followed(found, &chain, call.messages) => None,
            Some(found) => self.stored(&chain).await.filter(|stored| is_later(stored, found, &chain)),
            None => self.stored(&chain).await,
        };
        if let Some(found) = &found
            && later.is_none()
            && found.held.condenser == condenser.id()
        {
            if let Some(ready) = condenser.before_in(&found.held.thread, call).await {
                return self.passed(&chain, &found.held, ready);
            }
            if let Some(fork) = condenser.fork(&found.held.thread, call.messages) {
                let run = name.unwrap_or_else(|| self.threads.run());
                return self.enter(condenser, &chain, (fork, run), call).await;
            }
        }
        let document = match (later, &found) {
            (None, Some(found)) => match self.in_memory(&chain, found) {
                Some(document) => Some(document),
                None => self.stored(&chain).await,
            },
            (later, _) => later,
        };
        let (kept, run) = document.map(|document| (document.kept, document.run)).unzip();
        let thread = condenser.begin(call.messages, kept.as_ref()).owned_by(chain.seed);
        let run = name.or(run).unwrap_or_else(|| self.threads.run());
        self.enter(condenser, &chain, (thread, run), call).await
    }

    /// Like [`Inline::before`], with the model that the list is for, lent under the name by which it is called. It
    /// writes the summaries until [`Passing::lent`] is dropped.
    pub async fn before_with<'a>(
        &self,
        condenser: &Condenser,
        lent: Option<(&str, Arc<dyn Model>)>,
        caller: &Caller<'_>,
        call: Call<'a>,
    ) -> Passing<'a> {
        let Some((name, model)) = lent else { return self.before(condenser, caller, call).await };
        let (condenser, lent) = condenser.lend(name, &model);
        let passing = self.before(&condenser, caller, call).await;
        Passing { lent: Some(lent), ..passing }
    }

    /// Waits until all changes so far are in the store. A request need not wait for that before it is sent.
    /// [`Engine::close`](crate::Engine::close) does it when a program ends.
    pub async fn settled(&self) {
        self.threads.settled().await;
    }

    /// Condenses the list of a conversation that was not in memory.
    async fn enter<'a>(
        &self,
        condenser: &Condenser,
        chain: &Chain,
        (thread, run): (Thread, Arc<str>),
        call: Call<'a>,
    ) -> Passing<'a> {
        let ready = match condenser.before_in(&thread, call).await {
            Some(ready) => ready,
            // Cannot happen: no other caller has this thread. A new condenser without conversations gives a correct result.
            None => condenser.another().before(call).await,
        };
        let held = self.threads.held(&self.workspace, thread, condenser.id(), run);
        self.passed(chain, &held, ready)
    }

    /// Records the conversation's current list, and stores what was done to it.
    fn passed<'a>(&self, chain: &Chain, held: &Arc<Held>, ready: Ready<'a>) -> Passing<'a> {
        if let Some(last) = chain.last() {
            let condensed = chain.at(held.thread.condensed_at());
            self.threads.file(held, last, condensed);
            if ready.report.condensed {
                self.threads.condensed(last);
                self.keep(chain, held);
            }
        }
        Passing { ready, run: Arc::clone(&held.run), lent: None }
    }

    /// Returns the cached state of a conversation that this list forks from, or continues under other settings.
    fn in_memory(&self, chain: &Chain, found: &threads::Found) -> Option<Document> {
        let kept = found.held.thread.kept();
        let same = kept.standing.rounds > 0
            && found.condensed.is_some()
            && chain.at(kept.standing.seen) == found.condensed;
        let run = if found.goes_on { Arc::clone(&found.held.run) } else { self.threads.run() };
        same.then_some(Document { run, kept })
    }

    /// Returns the stored state of a conversation that this list continues. A state that cannot be read is treated as
    /// missing.
    async fn stored(&self, chain: &Chain) -> Option<Document> {
        let waiting = self.threads.keeping.find(&self.workspace, chain);
        let stored = match self.store.inline(&self.workspace, chain.hashes.clone()).await {
            Ok(row) => row,
            Err(error) => {
                tracing::warn!(%error, "could not read the stored state of a conversation; its list is condensed from the start");
                None
            }
        };
        let row = match (waiting, stored) {
            (Some(waiting), Some(stored)) if stored.length > waiting.length => stored,
            (Some(waiting), _) => waiting,
            (None, stored) => stored?,
        };
        let mut document = Document::read(&row.kept, row.length.saturating_add(chain.head as u64))?;
        if self.threads.has_run(&document.run) {
            // The original conversation continued differently, so this one is a fork.
            document.run = self.threads.run();
        }
        Some(document)
    }

    /// Stores what was done to a list, while its request is forwarded.
    fn keep(&self, chain: &Chain, held: &Held) {
        let document = Document { run: Arc::clone(&held.run), kept: held.thread.kept() };
        let length = chain.hashes.len() as u64;
        // Another caller may have continued and condensed it in the meantime, and stores that state.
        if document.kept.standing.seen != length.saturating_add(chain.head as u64) {
            return;
        }
        let (Some(root), Some(hash), Some(kept)) =
            (chain.hashes.first().copied(), chain.last(), document.write())
        else {
            return;
        };
        self.threads.keeping.keep(&self.store, &self.workspace, InlineRow { root, length, hash, kept });
    }
}

/// Returns whether a cached conversation was followed up to the previous request, so that the store cannot contain a
/// later state: the list continues it by one reply, and no longer list that it begins with was condensed. With more
/// than one new reply, another process handled requests in between.
///
/// One case is missed: a list that was condensed before a restart, or by another process, is sent again while a fork of
/// it is one reply behind. It is then sent as a continuation of that fork, which costs a prompt cache miss and nothing
/// else.
fn followed(found: &threads::Found, chain: &Chain, messages: &[Message]) -> bool {
    let new = messages.get(chain.head.saturating_add(found.shared)..).unwrap_or_default();
    found.goes_on
        && !found.outdated
        && new.iter().filter(|message| message.role == Role::Assistant).count() <= 1
}

/// Returns whether the stored state is newer than the one in memory: it covers more of the list, or the same part was
/// condensed again.
fn is_later(stored: &Document, found: &threads::Found, chain: &Chain) -> bool {
    let shared = chain.head.saturating_add(found.shared) as u64;
    let (kept, held) = (&stored.kept.standing, found.held.thread.kept().standing);
    kept.seen > shared || !found.goes_on && kept.seen == held.seen && kept.rounds > held.rounds
}
