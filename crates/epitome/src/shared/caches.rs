//! What is remembered between two calls. All of it can be forgotten at any time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use epitome_core::slot::Scope;
use epitome_core::tokens::Encoding;

use super::memo::Memo;
use crate::error::Error;
use crate::lock::lock;
use crate::settings::Settings;
use crate::store::{SessionId, SessionKey};

/// So many slots of other engines' are known as such at a time.
const MOST_NOT_OURS: usize = 10_000;

/// For so long a slot of another engine's is not looked at.
const LOOK_AWAY: Duration = Duration::from_secs(60);

/// More settings than this are not remembered as put together.
const MOST_MERGED: usize = 256;

/// More sessions than this are not remembered by their encoding.
const MOST_ENCODINGS: usize = 10_000;

#[derive(Default)]
pub(crate) struct Caches {
    /// Settings put together before, by the two documents they were put together from.
    merged: Mutex<HashMap<(String, String), Arc<Settings>>>,
    /// How sessions were counted when last seen: a guess that is checked in the transaction.
    encodings: Mutex<HashMap<SessionKey, Encoding>>,
    /// Slots that are another engine's, and until when they are not looked at again.
    not_ours: Mutex<HashMap<(SessionId, Scope, String), Instant>>,
    pub(crate) memo: Memo,
}

impl Caches {
    /// The settings of a workspace and a session, put together once.
    pub(super) fn settings(
        &self,
        workspace: &str,
        session: &str,
        merge: impl FnOnce() -> Result<Settings, Error>,
    ) -> Result<Arc<Settings>, Error> {
        let key = (workspace.to_owned(), session.to_owned());
        if let Some(merged) = lock(&self.merged).get(&key) {
            return Ok(Arc::clone(merged));
        }
        let settings = Arc::new(merge()?);
        let mut merged = lock(&self.merged);
        if merged.len() >= MOST_MERGED {
            merged.clear();
        }
        merged.insert(key, Arc::clone(&settings));
        Ok(settings)
    }

    /// Does not look at a slot for a while: it is another engine's. False when there are too many of them to know.
    pub(crate) fn look_away(&self, session: SessionId, scope: &Scope, slot: &str) -> bool {
        let until = Instant::now() + LOOK_AWAY;
        let mut slots = lock(&self.not_ours);
        let knows = slots.len() < MOST_NOT_OURS;
        if knows {
            slots.insert((session, scope.clone(), slot.to_owned()), until);
        }
        knows
    }

    /// The slots that are not looked at now.
    pub(crate) fn not_ours(&self) -> HashSet<(SessionId, Scope, String)> {
        let mut slots = lock(&self.not_ours);
        if !slots.is_empty() {
            let now = Instant::now();
            slots.retain(|_, until| *until > now);
        }
        slots.keys().cloned().collect()
    }

    /// How a session is counted, where that is known to be otherwise than the settings say.
    pub(crate) fn encoding(&self, key: &SessionKey) -> Option<Encoding> {
        lock(&self.encodings).get(key).copied()
    }

    /// Notes how a session is counted, where that is not `usual`.
    pub(crate) fn learn_encoding(&self, key: &SessionKey, encoding: Encoding, usual: Encoding) {
        let mut known = lock(&self.encodings);
        if encoding == usual {
            known.remove(key);
            return;
        }
        if known.len() >= MOST_ENCODINGS {
            known.clear();
        }
        known.insert(key.clone(), encoding);
    }
}
