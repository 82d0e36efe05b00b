//! Checks what a caller may set on a workspace or a session, before anything is written.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::error::Error;
use crate::settings::{Patch, Settings};
use crate::shared::Shared;

/// Maximum nesting depth of metadata and attributes. JSON parsers have a depth limit. If a stored value exceeded this
/// limit, the value and the rest of its row could not be read again.
pub(super) const DEEPEST: usize = 100;

/// Returns whether metadata or attributes nest deeper than [`DEEPEST`].
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

/// Rejects metadata or attributes that are too large or too deep. `what` names the field in the error.
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

/// Parses a stored settings document. An empty document sets nothing.
pub(super) fn read_patch(stored: &str) -> Result<Patch, Error> {
    Ok(if stored.is_empty() { Patch::default() } else { Patch::parse(stored)? })
}

/// Rejects settings that may be set for a workspace but not for a session.
pub(super) fn check_session_patch(patch: &Patch) -> Result<(), Error> {
    let cap = patch.entries().get("summarize").and_then(|summarize| summarize.get("spend_cap_per_day"));
    match cap {
        None => Ok(()),
        Some(_) => {
            Err(Error::invalid("summarize.spend_cap_per_day: set it for a workspace, not for a session"))
        }
    }
}

/// Merges a patch into the document `stored`. Returns the new document and the effective settings. The effective
/// settings are the engine's settings, changed first by the document `over` and then by the new document.
pub(super) fn merged(
    engine: &Shared,
    over: &str,
    stored: &str,
    patch: &Patch,
) -> Result<(String, Arc<Settings>), Error> {
    engine.check_tenant_patch(patch)?;
    let document = read_patch(stored)?.merged(patch).document();
    let settings = engine.settings_of(over, &document)?;
    if concerns_models(patch) {
        engine.check_tenant_settings(&settings)?;
        engine.check_prices(&settings)?;
    }
    Ok((document, settings))
}

/// Returns whether the patch chooses models, or contains settings that can be a fraction of a model's window. Only
/// these settings are checked against the engine's models. So an engine that lacks some models of the stored settings
/// accepts all other settings.
fn concerns_models(patch: &Patch) -> bool {
    ["slot", "trigger", "summarize", "condense"].iter().any(|key| patch.entries().contains_key(*key))
}
