//! What came of a request that was passed on: what the provider counted, and what was saved by that count.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use epitome::Workspace;
use epitome::dialect::{Dialect, Heard};
use epitome::store::Passed;

use super::super::App;
use super::decide::Known;

/// What was counted is written down this long after: many requests become one write.
const LATER: Duration = Duration::from_secs(1);

/// What is to be counted for one request.
pub(super) struct Account {
    app: Arc<App>,
    workspace: Workspace,
    known: Known,
    retried: bool,
}

impl Account {
    pub(super) fn new(app: &Arc<App>, workspace: Workspace, known: Known, retried: bool) -> Self {
        Self { app: Arc::clone(app), workspace, known, retried }
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.known.dialect
    }

    /// The answer has ended, whole or not.
    pub(super) fn close(self, heard: Heard, whole: bool) {
        let complete = heard.complete && whole;
        let known = &self.known;
        if let Some(counted) = heard.counted.filter(|_| complete) {
            known.turn.reported(counted.input);
        }
        let more = Passed {
            model: known.model.clone(),
            shadow: known.shadow,
            requests: 1,
            shorter: u64::from(known.short < known.full),
            retried: u64::from(self.retried),
            cut_off: u64::from(!complete),
            ..Passed::default()
        };
        self.app.proxy.sums.add(&self.app, self.workspace.name(), &more);
    }
}

/// What was counted and is not written down yet.
#[derive(Default)]
pub(super) struct Sums {
    open: Mutex<HashMap<Key, Passed>>,
}

type Key = (Arc<str>, String, bool);

impl Sums {
    fn open(&self) -> MutexGuard<'_, HashMap<Key, Passed>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, app: &Arc<App>, workspace: &str, more: &Passed) {
        let mut open = self.open();
        let first = open.is_empty();
        open.entry((workspace.into(), more.model.clone(), more.shadow))
            .or_insert_with(|| Passed { model: more.model.clone(), shadow: more.shadow, ..Passed::default() })
            .add(more);
        drop(open);
        if first && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let app = Arc::clone(app);
            runtime.spawn(async move {
                tokio::time::sleep(LATER).await;
                app.proxy.settle(&app).await;
            });
        }
    }

    /// Writes them down.
    pub(super) async fn settle(&self, app: &App) {
        let sums = std::mem::take(&mut *self.open());
        let mut by: HashMap<Arc<str>, Vec<Passed>> = HashMap::new();
        for ((workspace, _, _), more) in sums {
            by.entry(workspace).or_default().push(more);
        }
        for (workspace, more) in by {
            if let Err(error) = app.engine.workspace(workspace).add_passed(more).await {
                tracing::warn!(%error, "what was saved could not be written down, and is not counted");
            }
        }
    }
}
