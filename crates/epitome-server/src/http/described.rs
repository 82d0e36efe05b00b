//! Shapes that are only there to be described: what may be sent in several forms.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::messages::Format;
use super::wire::{PartShape, RoleName};

/// One message, a list of them, or such a list with what form it is in.
#[derive(ToSchema, Serialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is there to be described")]
pub(crate) enum Messages {
    One(NewMessage),
    Many(Vec<NewMessage>),
    Told(ToldMessages),
}

/// Messages, and in whose form they are.
#[derive(ToSchema, Serialize)]
pub(crate) struct ToldMessages {
    pub(crate) messages: Vec<NewMessage>,
    pub(crate) format: Option<Format>,
}

/// A message to be added.
#[derive(ToSchema, Serialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is there to be described")]
pub(crate) enum NewMessage {
    Chat(ChatMessage),
    Own(OwnMessage),
}

/// As OpenAI and Anthropic have it; more fields of theirs are understood, and those that are not are kept.
#[derive(ToSchema, Serialize)]
pub(crate) struct ChatMessage {
    #[schema(value_type = RoleName)]
    pub(crate) role: String,
    pub(crate) content: String,
}

/// As Epitome keeps it.
#[derive(ToSchema, Serialize)]
pub(crate) struct OwnMessage {
    #[schema(value_type = RoleName)]
    pub(crate) role: String,
    pub(crate) parts: Vec<PartShape>,
    pub(crate) author: Option<String>,
    pub(crate) pinned: Option<bool>,
    pub(crate) skip: Option<bool>,
    /// When it was said, in milliseconds since 1970; now unless told.
    pub(crate) at: Option<i64>,
    #[schema(value_type = Option<Object>)]
    pub(crate) metadata: Option<Map<String, Value>>,
}
