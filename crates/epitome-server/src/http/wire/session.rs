//! Sessions: how long they are, where their summaries stand, what they shall be.

use epitome::{Explanation, SessionInfo, SlotExplanation};
use epitome_http::discreet::discreet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::http::openapi::SessionSettings;

/// A session with its slots and settings.
#[derive(Debug, Serialize)]
pub(crate) struct SessionWhole {
    #[serde(flatten)]
    session: SessionInfo,
    slots: Vec<SlotExplanation>,
    settings: Value,
}

impl SessionWhole {
    /// Leaves out what only the operator may see: who works on a slot, and where its models are.
    pub(crate) fn new(Explanation { session, mut slots }: Explanation, settings: Value) -> Self {
        for slot in &mut slots {
            slot.owner = None;
            slot.why = discreet(&slot.why);
            slot.last_error = slot.last_error.as_deref().map(discreet);
        }
        Self { session, slots, settings }
    }
}

/// What a session shall be.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SetSession)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionIn {
    /// Settings of this session alone: what is named is changed, null takes a change back.
    #[schema(value_type = Option<SessionSettings>)]
    pub(crate) settings: Option<Map<String, Value>>,
    /// The caller's notes, in place of those there are; 64 KiB at most.
    #[schema(value_type = Option<Object>)]
    pub(crate) metadata: Option<Map<String, Value>>,
}
