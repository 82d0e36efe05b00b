//! What came of a request that was passed on: what the provider counted, and what was saved by that count.

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

/// What was counted is written down this long after: many requests become one write.
const LATER: Duration = Duration::from_secs(1);

/// So many sums wait to be written down at most.
const MOST_OPEN: usize = 4_096;

/// Of so many conversations it is remembered what their last request was.
const MOST_EARLIER: usize = 8_192;

/// The conversation a request belongs to.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) dialect: Dialect,
    /// The model that is asked.
    pub(super) model: String,
    /// Whose it is, and whether in shadow: two may call theirs the same.
    pub(super) whose: Arc<[u8]>,
    pub(super) run: Arc<str>,
    pub(super) turn: Turn,
    /// How large the request would be as it came, and how large the shorter one is: as the provider counts, as far as
    /// that is known.
    pub(super) full: Tokens,
    pub(super) short: Tokens,
    /// Whether it was condensed this time, and not only goes on with what was.
    pub(super) anew: bool,
    /// Whether it is sent as it came all the same.
    pub(super) shadow: bool,
    /// What was saved in it so far.
    pub(super) earlier: Earlier,
}

/// What is to be counted for one request.
pub(super) struct Account {
    pub(super) app: Arc<App>,
    pub(super) workspace: Workspace,
    pub(super) known: Known,
    /// Whether it was sent a second time.
    pub(super) retried: bool,
    pub(super) price: Option<Price>,
}

/// What is remembered of a conversation, to know what a cache would have held of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Earlier {
    /// Whether a reply showed that there is a cache.
    cached: bool,
    /// How large its last request was as it came, and how large it was made.
    full: Tokens,
    short: Tokens,
    /// What was saved so far, in tokens and in millionths.
    pub(super) saved: Tokens,
    pub(super) saved_cost: i64,
}

impl Account {
    /// The answer has ended, whole or not.
    pub(super) fn close(self, heard: &Heard, whole: bool) {
        let known = &self.known;
        let complete = heard.complete && whole;
        let counted = heard.counted.filter(|_| complete);
        if let Some(Counted { input, .. }) = counted {
            known.turn.reported(if known.shadow { in_proportion(input, known) } else { input });
        }
        if let Some(told) = heard.failed.as_ref().and_then(TooLong::told).filter(|_| !known.shadow) {
            // It is too late for this answer, and not for the next.
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
    // Where the store is held up they wait with it.
    for wait in [LATER, 10 * LATER, 60 * LATER] {
        tokio::time::sleep(wait).await;
        if app.proxy.sums.settle(&app).await {
            break;
        }
    }
}

/// What the provider would have counted for the shorter list.
fn in_proportion(input: Tokens, known: &Known) -> Tokens {
    let part = u128::from(input) * u128::from(known.short) / u128::from(known.full.max(1));
    Tokens::try_from(part).unwrap_or(Tokens::MAX)
}

/// What was counted and is not written down yet, and what is remembered of conversations.
pub(super) struct Sums {
    open: Mutex<HashMap<Key, Passed>>,
    /// A conversation that is forgotten is told a smaller saving, once.
    earlier: Cache<Run, Earlier>,
}

impl Default for Sums {
    fn default() -> Self {
        Self { open: Mutex::default(), earlier: Cache::new(MOST_EARLIER) }
    }
}

/// A workspace, a model, and whether in shadow.
type Key = (Arc<str>, String, bool);

/// A workspace, a caller, and a conversation of theirs.
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

    /// Adds to the others of that workspace and model. Returns whether there were none to be written down before. Those that
    /// could not be written down are not added `again` where there are too many.
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

    /// Writes them down. False where some could not be, and wait for another time.
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
                tracing::warn!(%error, "what was saved could not be written down yet");
                for more in more {
                    self.add(&workspace, more, true);
                }
                all = false;
            }
        }
        all
    }
}
