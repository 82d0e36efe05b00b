//! Records the usage of a proxied request: the provider's token counts, and what condensing saved according to these
//! counts.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use epitome::dialect::{ReplyOutcome, ReplyUsage};
use epitome::inline::AnsweredRequest;
use epitome::model::TooLong;
use epitome::rules::message::Tokens;
use epitome::settings::Price;
use epitome::store::ProxyUsage;
use epitome::{Turn, Workspace};
use quick_cache::sync::Cache;

use super::super::prelude::*;
use super::MIN_LIMIT;

/// How long counts are collected before they are written, so that many requests become one write.
const FLUSH_DELAY: Duration = Duration::from_secs(1);

/// Maximum number of sums that wait to be written.
const MAX_PENDING: usize = 4_096;

/// Maximum number of conversations whose state is cached.
const MAX_CONVERSATIONS: usize = 8_192;

/// The conversation that a request belongs to, and the sizes of the request.
#[derive(Clone)]
pub(super) struct Conversation {
    pub(super) dialect: Dialect,
    /// The requested model.
    pub(super) model: String,
    /// The caller's id, with a byte for shadow mode. Different callers may use the same name for their conversations.
    pub(super) caller: Arc<[u8]>,
    /// The conversation's name, or the id that the server assigned.
    pub(super) id: Arc<str>,
    pub(super) turn: Turn,
    /// Tokens of the original request (`full`) and of the shortened request (`short`). If the provider has reported
    /// token counts, both numbers are scaled to the provider's counts.
    pub(super) full: Tokens,
    pub(super) short: Tokens,
    /// Whether this request was condensed further, and did not only reuse the previous cut.
    pub(super) newly_condensed: bool,
    /// Whether the request is in shadow mode: it is sent unchanged even if a shorter request was computed.
    pub(super) shadow: bool,
    /// State of the conversation before this request.
    pub(super) before: ConversationState,
}

/// The data to record for one request.
pub(super) struct UsageRecord {
    pub(super) app: Arc<App>,
    pub(super) workspace: Workspace,
    pub(super) conversation: Conversation,
    /// Whether the request was sent a second time.
    pub(super) retried: bool,
    pub(super) price: Option<Price>,
}

/// Cached state of a conversation. The savings depend on this state, because they depend on what the provider's prompt
/// cache would have contained.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ConversationState {
    /// Whether a reply showed that the provider caches prompts.
    cached: bool,
    /// Tokens of the last request: in its original form (`full`) and in its shortened form (`short`).
    full: Tokens,
    short: Tokens,
    /// The savings so far, in tokens and in millionths of the currency.
    pub(super) saved: Tokens,
    pub(super) saved_cost: i64,
}

impl UsageRecord {
    /// Records the result when the response has ended. `complete_body` says whether the response ended completely.
    pub(super) fn close(self, reply: &ReplyOutcome, complete_body: bool) {
        let conversation = &self.conversation;
        let complete = reply.complete && complete_body;
        let counted = reply.usage.filter(|_| complete);
        if let Some(ReplyUsage { input, .. }) = counted {
            let sent = if conversation.shadow { proportional(input, conversation) } else { input };
            conversation.turn.reported(sent);
        }
        let too_long = reply.error.as_ref().and_then(TooLong::from_error);
        if let Some(too_long) = too_long.filter(|_| !conversation.shadow) {
            // The request cannot be repeated, because its response has begun. The next request will be shorter.
            conversation.turn.too_long(too_long.limit.filter(|limit| *limit >= MIN_LIMIT));
        }
        let pending = &self.app.proxy.usage;
        let workspace = self.workspace.name();
        let before = pending.state(workspace, conversation);
        let usage = AnsweredRequest {
            model: &conversation.model,
            shadow: conversation.shadow,
            retried: self.retried,
            complete,
            usage: counted,
            full: conversation.full,
            sent: conversation.short,
            other_cached: before.cached.then_some(
                match (conversation.shadow, conversation.newly_condensed) {
                    (false, _) => before.full,
                    (true, false) => before.short,
                    (true, true) => 0,
                },
            ),
            price: self.price,
        }
        .proxy_usage();
        epitome_http::metrics::record_proxied_tokens(usage.input, usage.saved, conversation.shadow);
        let caches = counted.is_some_and(|counted| counted.cached > 0 || counted.cache_written > 0);
        let after = ConversationState {
            cached: before.cached || caches,
            full: conversation.full,
            short: conversation.short,
            saved: before.saved.saturating_add(usage.saved),
            saved_cost: before.saved_cost.saturating_add(usage.saved_cost),
        };
        pending.states.insert(state_key(workspace, conversation), after);
        if pending.add(workspace, usage, false)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(flush_later(Arc::clone(&self.app)));
        }
    }
}

async fn flush_later(app: Arc<App>) {
    // Retries with longer waits while the store is busy.
    for wait in [FLUSH_DELAY, 10 * FLUSH_DELAY, 60 * FLUSH_DELAY] {
        tokio::time::sleep(wait).await;
        if app.proxy.usage.flush(&app).await {
            break;
        }
    }
}

/// Estimates the number of tokens that the provider would have counted for the shorter list.
fn proportional(input: Tokens, conversation: &Conversation) -> Tokens {
    let part = u128::from(input) * u128::from(conversation.short) / u128::from(conversation.full.max(1));
    Tokens::try_from(part).unwrap_or(Tokens::MAX)
}

/// Sums that are not written yet, and the cached state of conversations.
pub(super) struct PendingUsage {
    sums: Mutex<HashMap<UsageKey, ProxyUsage>>,
    /// If a conversation is evicted, its reported savings begin at zero again.
    states: Cache<ConversationKey, ConversationState>,
}

impl Default for PendingUsage {
    fn default() -> Self {
        Self { sums: Mutex::default(), states: Cache::new(MAX_CONVERSATIONS) }
    }
}

/// The workspace, the model, and whether the requests are in shadow mode.
type UsageKey = (Arc<str>, String, bool);

/// The workspace, the caller and the conversation.
type ConversationKey = (Arc<str>, Arc<[u8]>, Arc<str>);

fn state_key(workspace: &str, conversation: &Conversation) -> ConversationKey {
    (workspace.into(), Arc::clone(&conversation.caller), Arc::clone(&conversation.id))
}

impl PendingUsage {
    fn sums(&self) -> MutexGuard<'_, HashMap<UsageKey, ProxyUsage>> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state of a conversation after its last request.
    pub(super) fn state(&self, workspace: &str, conversation: &Conversation) -> ConversationState {
        self.states.get(&state_key(workspace, conversation)).unwrap_or_default()
    }

    /// Adds the usage to the sum of its workspace and model. Returns whether no sum was waiting before. `again` says
    /// that an earlier attempt to write this usage failed. Such usage is dropped if [`MAX_PENDING`] sums are waiting.
    fn add(&self, workspace: &str, usage: ProxyUsage, again: bool) -> bool {
        let mut sums = self.sums();
        let (was_empty, has_room) = (sums.is_empty(), sums.len() < MAX_PENDING);
        let key = (workspace.into(), usage.model.clone(), usage.shadow);
        match sums.get_mut(&key) {
            Some(sum) => sum.add(&usage),
            None if has_room || !again => drop(sums.insert(key, usage)),
            None => {}
        }
        was_empty
    }

    /// Writes all sums to the store. Returns false if some sums could not be written. These sums wait for the next
    /// attempt.
    pub(super) async fn flush(&self, app: &App) -> bool {
        let sums = std::mem::take(&mut *self.sums());
        let mut by_workspace: HashMap<Arc<str>, Vec<ProxyUsage>> = HashMap::new();
        for ((workspace, _, _), usage) in sums {
            by_workspace.entry(workspace).or_default().push(usage);
        }
        let mut complete = true;
        for (workspace, rows) in by_workspace {
            let written = app.engine.workspace(Arc::clone(&workspace)).add_passed(rows.clone()).await;
            if let Err(error) = written {
                tracing::warn!(%error, "the proxy's usage could not be written yet");
                for usage in rows {
                    self.add(&workspace, usage, true);
                }
                complete = false;
            }
        }
        complete
    }
}
