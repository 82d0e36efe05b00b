//! What a caller may set on a workspace or a session, checked before anything is written.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::error::Error;
use crate::settings::{Patch, Settings};
use crate::shared::Shared;

/// Notes nest at most so deep: whoever reads JSON stops somewhere, and what cannot be read again takes all beside it
/// along.
pub(super) const DEEPEST: usize = 100;

/// Whether notes nest deeper than that.
pub(super) fn is_too_deep(notes: &Map<String, Value>) -> bool {
    fn deeper(value: &Value, left: usize) -> bool {
        let inside = |inner: &Value| left.checked_sub(1).is_none_or(|left| deeper(inner, left));
        match value {
            Value::Array(list) => left == 0 || list.iter().any(inside),
            Value::Object(table) => left == 0 || table.values().any(inside),
            _ => false,
        }
    }
    notes.values().any(|value| deeper(value, DEEPEST - 1))
}

pub(super) fn check_metadata(metadata: &Map<String, Value>, settings: &Settings) -> Result<(), Error> {
    check_notes("metadata", metadata, settings)
}

/// Refuses notes that are too large or too deep, by what they are called.
pub(super) fn check_notes(what: &str, notes: &Map<String, Value>, settings: &Settings) -> Result<(), Error> {
    if is_too_deep(notes) {
        return Err(Error::invalid(format!("{what}: nests deeper than {DEEPEST} levels")));
    }
    let bytes = serde_json::to_vec(notes).map_or(u64::MAX, |json| json.len() as u64);
    let most = settings.limits.metadata;
    if bytes > most {
        return Err(Error::invalid(format!("{what}: {bytes} bytes; at most {most} are allowed")));
    }
    Ok(())
}

/// A document as it is stored.
pub(super) fn read_patch(stored: &str) -> Result<Patch, Error> {
    Ok(if stored.is_empty() { Patch::default() } else { Patch::parse(stored)? })
}

/// Refuses what a session cannot say of its workspace.
pub(super) fn check_sessions(patch: &Patch) -> Result<(), Error> {
    let cap = patch.entries().get("summarize").and_then(|summarize| summarize.get("spend_cap_per_day"));
    match cap {
        None => Ok(()),
        Some(_) => {
            Err(Error::invalid("summarize.spend_cap_per_day: is set for a workspace, not for a session"))
        }
    }
}

/// A settings document with a patch laid over it, and the settings that hold then, over those of its workspace.
pub(super) fn merged(
    engine: &Shared,
    over: &str,
    stored: &str,
    patch: &Patch,
) -> Result<(String, Arc<Settings>), Error> {
    engine.check_own(patch)?;
    let document = read_patch(stored)?.merged(patch).document();
    let settings = engine.settings_of(over, &document)?;
    if concerns_models(patch) {
        engine.check(&settings)?;
        engine.check_prices(&settings)?;
    }
    Ok((document, settings))
}

/// Whether it says who writes summaries, or what is measured by their window. Other settings are accepted by an
/// engine that does not have every model the stored ones name.
fn concerns_models(patch: &Patch) -> bool {
    ["slot", "trigger", "summarize", "condense"].iter().any(|key| patch.entries().contains_key(*key))
}
