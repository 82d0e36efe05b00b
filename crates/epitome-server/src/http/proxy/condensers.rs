//! A condenser for each workspace and model, made once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use epitome::settings::{Patch, Settings};
use epitome::{Condenser, Error, Workspace};
use serde_json::json;

/// So many are kept; models are named by callers, and may be many.
const MOST: usize = 1_024;

/// The condensers there are.
#[derive(Default)]
pub(super) struct Condensers {
    made: Mutex<HashMap<Key, Made>>,
}

type Key = (Arc<str>, String, bool);

struct Made {
    /// By which settings: where they are others now, so is the condenser.
    settings: Arc<Settings>,
    condenser: Condenser,
}

impl Condensers {
    fn made(&self) -> MutexGuard<'_, HashMap<Key, Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one for requests of this workspace, with these settings, to this model.
    pub(super) async fn of(
        &self,
        workspace: &Workspace,
        settings: Arc<Settings>,
        model: &str,
        shadow: bool,
    ) -> Result<Condenser, Error> {
        let key: Key = (workspace.name().into(), model.to_owned(), shadow);
        if let Some(made) = self.made().get(&key).filter(|made| Arc::ptr_eq(&made.settings, &settings)) {
            return Ok(made.condenser.clone());
        }
        let mut builder = workspace.condenser().await?;
        // No request waits for a summary here, and what is only looked at costs nothing.
        let condense = if shadow { json!({"wait": false, "model": "local"}) } else { json!({"wait": false}) };
        builder = builder.settings(Patch::from_value(json!({"condense": condense})).map_err(Error::from)?);
        if !model.is_empty() {
            builder = builder.for_model(model);
        }
        let condenser = builder.conversations(1).build()?;
        let mut made = self.made();
        // Somebody else may have made it meanwhile; conversations are known by the one that was kept.
        if let Some(made) = made.get(&key).filter(|made| Arc::ptr_eq(&made.settings, &settings)) {
            return Ok(made.condenser.clone());
        }
        if made.len() >= MOST {
            made.clear();
        }
        made.insert(key, Made { settings, condenser: condenser.clone() });
        Ok(condenser)
    }
}
