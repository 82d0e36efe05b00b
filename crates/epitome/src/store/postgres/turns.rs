//! Changes of one session, one after the other: whoever waits for its row would hold a connection for as long.

use std::hash::{DefaultHasher, Hash, Hasher};

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout_at};

use super::super::rows::SessionKey;
use super::error::{Outcome, Trouble};

/// Sessions share so many turns.
const TURNS: usize = 1_024;

#[derive(Debug)]
pub(super) struct Turns(Vec<Mutex<()>>);

impl Default for Turns {
    fn default() -> Self {
        Self((0..TURNS).map(|_| Mutex::new(())).collect())
    }
}

impl Turns {
    pub(super) async fn wait(&self, key: &SessionKey, until: Instant) -> Outcome<Option<MutexGuard<'_, ()>>> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let at = usize::try_from(hasher.finish() % (TURNS as u64)).unwrap_or(0);
        let Some(turn) = self.0.get(at) else { return Ok(None) };
        let late = |_| Trouble::Lost("who wrote to the same session before has no answer yet".to_owned());
        timeout_at(until, turn.lock()).await.map(Some).map_err(late)
    }
}
