//! Condenses conversations of requests that are forwarded: recognises them without a name, also after a restart.
//!
//! A program that forwards requests for others, such as the proxy, gets each conversation as a whole list, again and
//! again, a little longer each time. An [`Inline`] identifies the conversation by the hashes of the list's beginnings
//! (`fingerprint.rs`), passes the list to the conversation's [`Thread`], and stores what was done to it
//! (`write_queue.rs`). So a condensed list stays the same until its next condensation, no matter which process handles
//! the requests.
//!
//! Some thousand conversations are cached in memory (`thread_cache.rs`). For evicted conversations, and for those that
//! another process began, the state is read from the store when they continue. A cached conversation is compared
//! message by message before anything is done. A stored state is used only for a list whose messages up to that state
//! are all the same. A lookup never returns another workspace's or another caller's conversation. If nothing is found,
//! the list is condensed from the start.

use std::hash::Hasher;
use std::sync::Arc;

use epitome_core::message::{Message, Role};

use crate::condenser::{Call, Condenser, ModelLoan, ReadyList, Thread};
use crate::fingerprint::PrefixHashes;
use crate::hidden::Hidden;
use crate::model::Model;
use crate::store::{ProxyStateRow, Store};

mod savings;
mod thread_cache;
mod write_queue;

pub use savings::AnsweredRequest;
use thread_cache::{CacheHit, CachedThread};
pub(crate) use thread_cache::{MAX_THREADS, ThreadCache};
use write_queue::Document;

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
    pub(crate) fn prefix_hashes(&self, workspace: &str, messages: &[Message]) -> PrefixHashes {
        PrefixHashes::of(messages, |seed, head| {
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
pub struct ProxiedList<'a> {
    /// The list to send.
    pub ready: ReadyList<'a>,
    /// The caller's name of the conversation, or else a generated id. Once the conversation was condensed, the id
    /// survives restarts. A fork gets its own id.
    pub conversation_id: Arc<str>,
    /// Set if a model was lent: keep it until the request has ended, and no longer.
    pub loan: Option<ModelLoan>,
}

/// The forwarded conversations of a workspace. A handle that is cheap to create.
#[derive(Debug, Clone)]
pub struct Inline {
    pub(crate) store: Hidden<Arc<dyn Store>>,
    pub(crate) threads: Hidden<Arc<ThreadCache>>,
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
    /// let proxied = workspace.inline().before(&condenser, &caller, Call::of(&list)).await;
    /// assert!(proxied.ready.is_untouched() && proxied.ready.full == proxied.ready.sent);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
    /// ```
    pub async fn before<'a>(
        &self,
        condenser: &Condenser,
        caller: &Caller<'_>,
        call: Call<'a>,
    ) -> ProxiedList<'a> {
        let prefixes = caller.prefix_hashes(&self.workspace, call.messages);
        let name = caller.session.map(Arc::from);
        let hit = self.threads.find(&prefixes);
        let newer = match &hit {
            Some(hit) if is_up_to_date(hit, &prefixes, call.messages) => None,
            Some(hit) => {
                self.stored_document(&prefixes).await.filter(|stored| is_newer(stored, hit, &prefixes))
            }
            None => self.stored_document(&prefixes).await,
        };
        if let Some(hit) = &hit
            && newer.is_none()
            && hit.cached.condenser == condenser.id()
        {
            if let Some(ready) = condenser.before_in_thread(&hit.cached.thread, call).await {
                return self.finish(&prefixes, &hit.cached, ready);
            }
            if let Some(fork) = condenser.fork_thread(&hit.cached.thread, call.messages) {
                let id = name.unwrap_or_else(|| self.threads.new_conversation_id());
                return self.start_thread(condenser, &prefixes, (fork, id), call).await;
            }
        }
        let document = match (newer, &hit) {
            (None, Some(hit)) => match self.cached_document(&prefixes, hit) {
                Some(document) => Some(document),
                None => self.stored_document(&prefixes).await,
            },
            (newer, _) => newer,
        };
        let (state, id) = document.map(|document| (document.state, document.id)).unzip();
        let thread = condenser.begin_thread(call.messages, state.as_ref()).owned_by(prefixes.seed);
        let id = name.or(id).unwrap_or_else(|| self.threads.new_conversation_id());
        self.start_thread(condenser, &prefixes, (thread, id), call).await
    }

    /// Like [`Inline::before`], with the model that the list is for, lent under the name by which it is called. It
    /// writes the summaries until [`ProxiedList::loan`] is dropped.
    pub async fn before_with_model<'a>(
        &self,
        condenser: &Condenser,
        lent: Option<(&str, Arc<dyn Model>)>,
        caller: &Caller<'_>,
        call: Call<'a>,
    ) -> ProxiedList<'a> {
        let Some((name, model)) = lent else { return self.before(condenser, caller, call).await };
        let (condenser, loan) = condenser.lend(name, &model);
        let proxied = self.before(&condenser, caller, call).await;
        ProxiedList { loan: Some(loan), ..proxied }
    }

    /// Waits until all changes so far are in the store. A request need not wait for that before it is sent.
    /// [`Engine::close`](crate::Engine::close) does it when a program ends.
    pub async fn settled(&self) {
        self.threads.settled().await;
    }

    /// Condenses the list of a conversation that was not in memory, and caches the conversation.
    async fn start_thread<'a>(
        &self,
        condenser: &Condenser,
        prefixes: &PrefixHashes,
        (thread, id): (Thread, Arc<str>),
        call: Call<'a>,
    ) -> ProxiedList<'a> {
        let ready = match condenser.before_in_thread(&thread, call).await {
            Some(ready) => ready,
            // Cannot happen: no other caller has this thread. A new condenser without conversations gives a correct
            // result.
            None => condenser.another().before(call).await,
        };
        let cached = self.threads.new_thread(&self.workspace, thread, condenser.id(), id);
        self.finish(prefixes, &cached, ready)
    }

    /// Records the conversation's current list, and stores what was done to it.
    fn finish<'a>(
        &self,
        prefixes: &PrefixHashes,
        cached: &Arc<CachedThread>,
        ready: ReadyList<'a>,
    ) -> ProxiedList<'a> {
        if let Some(last) = prefixes.last() {
            let condensed = prefixes.at(cached.thread.condensed_at());
            self.threads.insert(cached, last, condensed);
            if ready.report.condensed {
                self.threads.condensed(last);
                self.store_state(prefixes, cached);
            }
        }
        ProxiedList { ready, conversation_id: Arc::clone(&cached.conversation_id), loan: None }
    }

    /// Returns the cached state of a conversation that this list forks from, or continues under other settings.
    fn cached_document(&self, prefixes: &PrefixHashes, hit: &CacheHit) -> Option<Document> {
        let state = hit.cached.thread.state();
        let same = state.list.rounds > 0
            && hit.condensed.is_some()
            && prefixes.at(state.list.length) == hit.condensed;
        let id = if hit.continues {
            Arc::clone(&hit.cached.conversation_id)
        } else {
            self.threads.new_conversation_id()
        };
        same.then_some(Document { id, state })
    }

    /// Returns the stored state of a conversation that this list continues. A state that cannot be read is treated as
    /// missing.
    async fn stored_document(&self, prefixes: &PrefixHashes) -> Option<Document> {
        let queued = self.threads.write_queue.find(&self.workspace, prefixes);
        let stored = match self.store.find_proxy_state(&self.workspace, prefixes.hashes.clone()).await {
            Ok(row) => row,
            Err(error) => {
                tracing::warn!(%error, "could not read the stored state of a conversation; its list is condensed from the start");
                None
            }
        };
        let row = match (queued, stored) {
            (Some(queued), Some(stored)) if stored.length > queued.length => stored,
            (Some(queued), _) => queued,
            (None, stored) => stored?,
        };
        let mut document = Document::read(&row.state, row.length.saturating_add(prefixes.head as u64))?;
        if self.threads.has_conversation(&document.id) {
            // The original conversation continued differently, so this one is a fork.
            document.id = self.threads.new_conversation_id();
        }
        Some(document)
    }

    /// Stores what was done to a list, while its request is forwarded.
    fn store_state(&self, prefixes: &PrefixHashes, cached: &CachedThread) {
        let document = Document { id: Arc::clone(&cached.conversation_id), state: cached.thread.state() };
        let length = prefixes.hashes.len() as u64;
        // Another caller may have continued and condensed it in the meantime, and stores that state.
        if document.state.list.length != length.saturating_add(prefixes.head as u64) {
            return;
        }
        let (Some(root), Some(hash), Some(state)) =
            (prefixes.hashes.first().copied(), prefixes.last(), document.write())
        else {
            return;
        };
        self.threads.write_queue.push(
            &self.store,
            &self.workspace,
            ProxyStateRow { root, length, hash, state },
        );
    }
}

/// Returns whether this process handled the conversation's previous request, so that the store cannot contain a newer
/// state: the list continues the cached one by one reply, and no longer beginning of the list was condensed. With more
/// than one new reply, another process handled requests in between.
///
/// One case is missed: a list was condensed before a restart, or by another process, and is sent again while a fork of
/// it is one reply behind. The list is then sent as a continuation of that fork, which only costs a prompt cache miss.
fn is_up_to_date(hit: &CacheHit, prefixes: &PrefixHashes, messages: &[Message]) -> bool {
    let new = messages.get(prefixes.head.saturating_add(hit.shared_len)..).unwrap_or_default();
    hit.continues
        && !hit.store_is_newer
        && new.iter().filter(|message| message.role == Role::Assistant).count() <= 1
}

/// Returns whether the stored state is newer than the one in memory: it covers more of the list, or the same part was
/// condensed again.
fn is_newer(stored: &Document, hit: &CacheHit, prefixes: &PrefixHashes) -> bool {
    let shared = prefixes.head.saturating_add(hit.shared_len) as u64;
    let (stored, cached) = (&stored.state.list, hit.cached.thread.state().list);
    stored.length > shared
        || !hit.continues && stored.length == cached.length && stored.rounds > cached.rounds
}
