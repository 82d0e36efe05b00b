//! Messages: as they are kept, added, found and flagged.

use epitome::Found;
use epitome::rules::message::{Message, Part, Role};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A message as it is kept.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Message)]
pub(crate) struct MessageOut<'a> {
    /// Its place in the session; 0 for what is only in a context (the summary).
    pub(crate) seq: u64,
    #[schema(value_type = crate::http::openapi::Role)]
    pub(crate) role: Role,
    /// Who said it, where that is known beyond the role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) author: Option<&'a str>,
    /// What was said, piece by piece.
    #[schema(value_type = Vec<crate::http::openapi::Part>)]
    pub(crate) parts: &'a [Part],
    /// Always shown word for word.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) pinned: bool,
    /// Never summarized, counted by no trigger.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) skip: bool,
    /// When it was said, in milliseconds since 1970.
    pub(crate) at: i64,
    /// The caller's notes on it.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Option<Object>)]
    pub(crate) metadata: &'a Map<String, Value>,
}

impl<'a> From<&'a Message> for MessageOut<'a> {
    fn from(message: &'a Message) -> Self {
        Self {
            seq: message.seq,
            role: message.role,
            author: message.author.as_deref(),
            parts: &message.parts,
            pinned: message.pinned,
            skip: message.skip,
            at: message.at.0,
            metadata: &message.metadata,
        }
    }
}

/// A message found by its words.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Found)]
pub(crate) struct FoundOut<'a> {
    /// In which session.
    pub(crate) session: &'a str,
    /// The words around the first match.
    pub(crate) excerpt: &'a str,
    pub(crate) message: MessageOut<'a>,
}

impl<'a> From<&'a Found> for FoundOut<'a> {
    fn from(found: &'a Found) -> Self {
        Self { session: &found.session, excerpt: &found.excerpt, message: (&found.message).into() }
    }
}
