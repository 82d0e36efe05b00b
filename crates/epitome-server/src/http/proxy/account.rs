//! Records the result of a proxied request: what the provider counted, and what was saved by that count.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use epitome::dialect::{Counted, Heard};
use epitome::inline::Answered;
use epitome::model::TooLong;
use epitome::rules::message::Tokens;
use epitome::settings::Price;
use epitome::store::Passed;
use epitome::{Turn, Workspace};
use quick_cache::sync::Cache;

use super::super::prelude::*;
use super::LEAST_LIMIT;

/// How long counts are collected before they are written, so that many requests become one write.
const LATER: Duration = Duration::from_secs(1);

/// Maximum number of sums that wait to be written.
const MOST_OPEN: usize = 4_096;

/// Maximum number of conversations whose last request is cached.
const MOST_EARLIER: usize = 8_192;

/// The conversation a request belongs to.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) dialect: Dialect,
    /// The requested model.
    pub(super) model: String,
    /// The caller, and whether in shadow mode: different callers may use the same name for a conversation.
    pub(super) whose: Arc<[u8]>,
    pub(super) run: Arc<str>,
    pub(super) turn: Turn,
    /// Tokens of the original request, and of the shorter one; scaled to the provider's counts if there were any.
    pub(super) full: Tokens,
    pub(super) short: Tokens,
    /// Whether this request was condensed further, and did not only reuse the previous cut.
    pub(super) anew: bool,
    /// Whether the request is sent unchanged anyway.
    pub(super) shadow: bool,
    /// State of the conversation before this request.
    pub(super) earlier: Earlier,
}

/// What to record for one request.
pub(super) struct Account {
    pub(super) app: Arc<App>,
    pub(super) workspace: Workspace,
    pub(super) known: Known,
    /// Whether the request was sent a second time.
    pub(super) retried: bool,
    pub(super) price: Option<Price>,
}

/// Cached state of a conversation, to compute what the provider's prompt cache would have contained.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Earlier {
    /// Whether a reply showed that the provider caches prompts.
    cached: bool,
    /// Tokens of the last request, original and as shortened.
    full: Tokens,
    short: Tokens,
    /// What was saved so far, in tokens and in millionths of the currency.
    pub(super) saved: Tokens,
    pub(super) saved_cost: i64,
}

impl Account {
    /// Records the result when the response has ended, completely or not.
    pub(super) fn close(self, heard: &Heard, whole: bool) {
        let known = &self.known;
        let complete = heard.complete && whole;
        let counted = heard.counted.filter(|_| complete);
        if let Some(Counted { input, .. }) = counted {
            known.turn.reported(if known.shadow { in_proportion(input, known) } else { input });
        }
        if let Some(told) = heard.failed.as_ref().and_then(TooLong::told).filter(|_| !known.shadow) {
            // Too late for this response, but the next request will be shorter.
            known.turn.too_long(told.limit.filter(|limit| *limit >= LEAST_LIMIT));
        }
        let sums = &self.app.proxy.sums;
        let name = self.workspace.name();
        let earlier = sums.earlier(name, known);
        let more = Answered {
            model: &known.model,
            shadow: known.shadow,
            retried: self.retried,
            complete,
            counted,
            full: known.full,
            sent: known.short,
            before: earlier.cached.then_some(match (known.shadow, known.anew) {
                (false, _) => earlier.full,
                (true, false) => earlier.short,
                (true, true) => 0,
            }),
            price: self.price,
        }
        .passed();
        let shows = counted.is_some_and(|counted| counted.cached > 0 || counted.written > 0);
        let now = Earlier {
            cached: earlier.cached || shows,
            full: known.full,
            short: known.short,
            saved: earlier.saved.saturating_add(more.saved),
            saved_cost: earlier.saved_cost.saturating_add(more.saved_cost),
        };
        sums.earlier.insert(run(name, known), now);
        if sums.add(name, more, false)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(settle_later(Arc::clone(&self.app)));
        }
    }
}

async fn settle_later(app: Arc<App>) {
    // Retries with longer waits while the store is busy.
    for wait in [LATER, 10 * LATER, 60 * LATER] {
        tokio::time::sleep(wait).await;
        if app.proxy.sums.settle(&app).await {
            break;
        }
    }
}

/// Estimates what the provider would have counted for the shorter list.
fn in_proportion(input: Tokens, known: &Known) -> Tokens {
    let part = u128::from(input) * u128::from(known.short) / u128::from(known.full.max(1));
    Tokens::try_from(part).unwrap_or(Tokens::MAX)
}

/// Counts that are not written yet, and the cached state of conversations.
pub(super) struct Sums {
    open: Mutex<HashMap<Key, Passed>>,
    /// If a conversation is evicted, its reported savings start at zero again.
    earlier: Cache<Run, Earlier>,
}

impl Default for Sums {
    fn default() -> Self {
        Self { open: Mutex::default(), earlier: Cache::new(MOST_EARLIER) }
    }
}

/// Workspace, model, and whether in shadow mode.
type Key = (Arc<str>, String, bool);

/// Workspace, caller, and conversation.
type Run = (Arc<str>, Arc<[u8]>, Arc<str>);

fn run(workspace: &str, known: &Known) -> Run {
    (workspace.into(), Arc::clone(&known.whose), Arc::clone(&known.run))
}

impl Sums {
    fn open(&self) -> MutexGuard<'_, HashMap<Key, Passed>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn earlier(&self, workspace: &str, known: &Known) -> Earlier {
        self.earlier.get(&run(workspace, known)).unwrap_or_default()
    }

    /// Adds to the sum of the workspace and model. Returns whether no sum was waiting before. `again` marks sums that could
    /// not be written: they are dropped if too many are waiting.
    fn add(&self, workspace: &str, more: Passed, again: bool) -> bool {
        let mut open = self.open();
        let (first, room) = (open.is_empty(), open.len() < MOST_OPEN);
        let key = (workspace.into(), more.model.clone(), more.shadow);
        match open.get_mut(&key) {
            Some(there) => there.add(&more),
            None if room || !again => drop(open.insert(key, more)),
            None => {}
        }
        first
    }

    /// Writes all sums to the store. Returns false if some could not be written; these wait for the next attempt.
    pub(super) async fn settle(&self, app: &App) -> bool {
        let sums = std::mem::take(&mut *self.open());
        let mut by: HashMap<Arc<str>, Vec<Passed>> = HashMap::new();
        for ((workspace, _, _), more) in sums {
            by.entry(workspace).or_default().push(more);
        }
        let mut all = true;
        for (workspace, more) in by {
            let written = app.engine.workspace(Arc::clone(&workspace)).add_passed(more.clone()).await;
            if let Err(error) = written {
                tracing::warn!(%error, "the proxy's usage could not be written yet");
                for more in more {
                    self.add(&workspace, more, true);
                }
                all = false;
            }
        }
        all
    }
}
