//! Conversations that pass through: known again without being named, also after a restart.
//!
//! Whoever forwards requests for others, as the proxy does, sees each conversation as a list that comes in whole, again and
//! again, a little longer each time. An [`Inline`] finds out which it is by rolling hashes (`fingerprint.rs`), hands it to the
//! conversation's own [`Thread`], and keeps what was done to it in the store (`keeping.rs`). So a conversation that was condensed
//! once stays as it was handed out, until the next time, whichever way its requests come.
//!
//! Some thousand conversations are held in memory (`threads.rs`); of those that were let go of, or that another process began,
//! what was done to them is read from the store when they come again. What is in memory is compared message by message before
//! anything is done; what was stored is taken only for a list whose every message up to then is the same. Nothing is ever
//! found for another workspace or another caller. Where nothing is found, the list is condensed anew.

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

/// Whose conversation it is, as far as its list does not tell.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Sets callers apart that share a workspace: a hash of the key they came with, say. It is kept nowhere but as a part of
    /// hashes.
    pub id: &'a [u8],
    /// What they call it, where they do. Two conversations of different names are never taken for one.
    pub session: Option<&'a str>,
    /// In which form their requests are.
    pub wire: &'a str,
}

impl Caller<'_> {
    /// By what a list of theirs is recognised: nothing is ever found for another workspace or another caller.
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

/// What a list became, and by what its conversation is known.
#[derive(Debug)]
#[non_exhaustive]
pub struct Passing<'a> {
    /// The list to be sent.
    pub ready: Ready<'a>,
    /// What its caller calls the conversation; else a number that says nothing. Once it was condensed, that stays over
    /// restarts. A fork has its own.
    pub run: Arc<str>,
    /// Where a model was lent: to be held until the request has ended, and no longer.
    pub lent: Option<Lent>,
}

/// Conversations that pass through a workspace. A handle, cheap to make.
#[derive(Debug, Clone)]
pub struct Inline {
    pub(crate) store: Hidden<Arc<dyn Store>>,
    pub(crate) threads: Hidden<Arc<Threads>>,
    pub(crate) workspace: Arc<str>,
}

impl Inline {
    /// The list to send in place of this one, by the conversation it belongs to.
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

    /// The same, where the caller lends the model that the list is for, under the name it is asked by: it writes the
    /// summaries, until [`Passing::lent`] is dropped.
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

    /// Waits until all that was done to lists so far is in the store. Nobody has to, before a request is sent; a program
    /// that ends does so with [`Engine::close`](crate::Engine::close).
    pub async fn settled(&self) {
        self.threads.settled().await;
    }

    /// A conversation that was not in memory.
    async fn enter<'a>(
        &self,
        condenser: &Condenser,
        chain: &Chain,
        (thread, run): (Thread, Arc<str>),
        call: Call<'a>,
    ) -> Passing<'a> {
        let ready = match condenser.before_in(&thread, call).await {
            Some(ready) => ready,
            // Nobody else has it, so that it is its own list; and one that knows no other is never wrong.
            None => condenser.another().before(call).await,
        };
        let held = self.threads.held(&self.workspace, thread, condenser.id(), run);
        self.passed(chain, &held, ready)
    }

    /// Notes where a conversation is now, and keeps what was done to it.
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

    /// What is in memory of a conversation that this list forks from, or goes on with under other rules.
    fn in_memory(&self, chain: &Chain, found: &threads::Found) -> Option<Document> {
        let kept = found.held.thread.kept();
        let same = kept.standing.rounds > 0
            && found.condensed.is_some()
            && chain.at(kept.standing.seen) == found.condensed;
        let run = if found.goes_on { Arc::clone(&found.held.run) } else { self.threads.run() };
        same.then_some(Document { run, kept })
    }

    /// What was kept of a conversation that this list goes on with. What cannot be read is as good as forgotten.
    async fn stored(&self, chain: &Chain) -> Option<Document> {
        let waiting = self.threads.keeping.find(&self.workspace, chain);
        let stored = match self.store.inline(&self.workspace, chain.hashes.clone()).await {
            Ok(row) => row,
            Err(error) => {
                tracing::warn!(%error, "what was done to a list could not be read; it is done anew");
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
            // The conversation it was went on otherwise, so that this one is a fork.
            document.run = self.threads.run();
        }
        Some(document)
    }

    /// Keeps what was done to a list, while its request goes on.
    fn keep(&self, chain: &Chain, held: &Held) {
        let document = Document { run: Arc::clone(&held.run), kept: held.thread.kept() };
        let length = chain.hashes.len() as u64;
        // Somebody who went on with it meanwhile may have condensed it again, and keeps that.
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

/// Whether a conversation in memory was followed up to the request before this one, so that nothing later can be in the store:
/// the list goes on with it by one reply, and nothing longer that it begins with was condensed. Where there are more, others
/// were asked for while somebody else had it. Overlooked is only a list that was condensed before a restart, or by another
/// process, and is sent once more while a fork of it is one reply behind: it goes out as that fork goes on, which costs the
/// provider's cache and nothing else.
fn followed(found: &threads::Found, chain: &Chain, messages: &[Message]) -> bool {
    let new = messages.get(chain.head.saturating_add(found.shared)..).unwrap_or_default();
    found.goes_on
        && !found.outdated
        && new.iter().filter(|message| message.role == Role::Assistant).count() <= 1
}

/// Whether what was kept was done after what is in memory: to more of the list, or once more to the same part of it.
fn is_later(stored: &Document, found: &threads::Found, chain: &Chain) -> bool {
    let shared = chain.head.saturating_add(found.shared) as u64;
    let (kept, held) = (&stored.kept.standing, found.held.thread.kept().standing);
    kept.seen > shared || !found.goes_on && kept.seen == held.seen && kept.rounds > held.rounds
}
