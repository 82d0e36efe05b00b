//! Condenses the message lists of forwarded requests. Finds the conversation that a list belongs to, even if the
//! request does not name the conversation, and even after a restart.
//!
//! A program that forwards requests, such as the proxy, receives the whole message list of a conversation with each
//! request. An [`Inline`] handles a list in three steps:
//!
//! 1. It identifies the conversation by hashes of the list (`fingerprint.rs`). For each message, there is a hash of the
//!    list up to this message.
//! 2. It condenses the list in the conversation's [`Thread`].
//! 3. It stores the effect of the condensation (`write_queue.rs`).
//!
//! Therefore a condensed list stays the same until its next condensation, no matter which process handles the requests.
//!
//! A few thousand conversations are cached in memory (`thread_cache.rs`). If a conversation was evicted from the cache,
//! or if another process began it, the state of the conversation is read from the store when the conversation
//! continues. If the conversation is cached, every message of the list is compared with it before the list is
//! condensed. A stored state is used only if all messages up to the stored condensation are the same. A lookup never
//! returns a conversation of another workspace or of another caller. If no conversation is found, the list is condensed
//! from the start.

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

/// The caller of a request. A conversation is identified by its message list and by this value.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Distinguishes callers that share a workspace, for example by a hash of the caller's API key. The id is only an
    /// input of hashes, and is not stored itself.
    pub id: &'a [u8],
    /// The caller's name for the conversation, if there is one. Conversations with different names are never treated as
    /// the same conversation.
    pub session: Option<&'a str>,
    /// The wire format of the requests.
    pub wire: &'a str,
}

impl Caller<'_> {
    /// Returns the hashes by which a list of this caller is recognised. For another workspace or another caller, the
    /// same list has different hashes.
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
    /// The caller's name for the conversation. If there is no name, this is a generated id. After the first
    /// condensation of the conversation, a generated id also stays the same after restarts. A fork gets a new id.
    pub conversation_id: Arc<str>,
    /// Set if the caller lent a model. Drop the loan when the request ends, not earlier and not later.
    pub loan: Option<ModelLoan>,
}

/// Handle to the conversations of a workspace's forwarded requests. It is cheap to create and clone.
#[derive(Debug, Clone)]
pub struct Inline {
    pub(crate) store: Hidden<Arc<dyn Store>>,
    pub(crate) threads: Hidden<Arc<ThreadCache>>,
    pub(crate) workspace: Arc<str>,
}

impl Inline {
    /// Finds the conversation that the list belongs to, condenses the list if a condensation is due, and returns the
    /// list to send.
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

    /// Like [`Inline::before`], but the caller can lend the model that receives the list. `lent` contains the name of
    /// the model and the model. The lent model writes the summaries until [`ProxiedList::loan`] is dropped.
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

    /// Waits until all changes so far are in the store. A request does not need to wait for this. When a program ends,
    /// [`Engine::close`](crate::Engine::close) waits for it.
    pub async fn settled(&self) {
        self.threads.settled().await;
    }

    /// Condenses the list of a conversation that is not cached yet, and caches the conversation.
    async fn start_thread<'a>(
        &self,
        condenser: &Condenser,
        prefixes: &PrefixHashes,
        (thread, id): (Thread, Arc<str>),
        call: Call<'a>,
    ) -> ProxiedList<'a> {
        let ready = match condenser.before_in_thread(&thread, call).await {
            Some(ready) => ready,
            // This cannot happen, because no other caller has this thread. A new condenser without conversations still
            // returns a correct result.
            None => condenser.another().before(call).await,
        };
        let cached = self.threads.new_thread(&self.workspace, thread, condenser.id(), id);
        self.finish(prefixes, &cached, ready)
    }

    /// Caches the conversation under its current list. If the list was condensed, also stores the state of the
    /// conversation.
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

    /// Returns the state of the cached conversation, if this list is a fork of it or continues it with other settings.
    /// Returns `None` if the list does not contain the messages of the conversation's last condensation.
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

    /// Returns the stored state of the conversation that this list continues, if there is one. A state that cannot be
    /// read is treated as missing.
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
            // A cached conversation already has this id, so this conversation is treated as a fork and gets a new id.
            document.id = self.threads.new_conversation_id();
        }
        Some(document)
    }

    /// Stores the state of a conversation in the background, while the request is forwarded.
    fn store_state(&self, prefixes: &PrefixHashes, cached: &CachedThread) {
        let document = Document { id: Arc::clone(&cached.conversation_id), state: cached.thread.state() };
        let length = prefixes.hashes.len() as u64;
        // Another caller may have condensed the conversation in the meantime. That caller stores the newer state.
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

/// Returns whether the cached state is current, so that the store need not be queried. This is the case if this process
/// handled the previous request of the conversation. Then the list continues the cached list with at most one new
/// reply, and the cache has not recorded a condensation of a longer beginning of the list. If the list contains more
/// than one new reply, another process handled requests in between.
///
/// One case is not detected. A list was condensed before a restart or by another process, and is sent again. In the
/// meantime, the cache stored a fork of this list, with one reply less. The list is then treated as a continuation of
/// the fork. This only costs a miss of the provider's prompt cache.
fn is_up_to_date(hit: &CacheHit, prefixes: &PrefixHashes, messages: &[Message]) -> bool {
    let new = messages.get(prefixes.head.saturating_add(hit.shared_len)..).unwrap_or_default();
    hit.continues
        && !hit.store_is_newer
        && new.iter().filter(|message| message.role == Role::Assistant).count() <= 1
}

/// Returns whether the stored state is newer than the cached state. It is newer if it covers more of the list, or if it
/// covers the same part and contains more condensations.
fn is_newer(stored: &Document, hit: &CacheHit, prefixes: &PrefixHashes) -> bool {
    let shared = prefixes.head.saturating_add(hit.shared_len) as u64;
    let (stored, cached) = (&stored.state.list, hit.cached.thread.state().list);
    stored.length > shared
        || !hit.continues && stored.length == cached.length && stored.rounds > cached.rounds
}
