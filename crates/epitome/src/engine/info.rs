//! What a program is told of a session.

use std::sync::Arc;

use epitome_core::message::{Seq, Timestamp, Tokens};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::store::{SessionId, SessionRow};

/// What is known of a session beside its messages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionInfo {
    /// Its name.
    pub name: Arc<str>,
    /// Its number in the store: for the program that embeds the engine, to know a session again that was deleted and made
    /// anew. It is the store's own, counted over all workspaces, so it is to be shown to no tenant, and is not serialized.
    #[serde(skip)]
    pub id: SessionId,
    /// How many messages it holds: the place of the newest.
    pub messages: Seq,
    /// How many turns.
    pub turns: u64,
    /// How many tokens.
    pub tokens: Tokens,
    /// How these are counted.
    pub encoding: String,
    /// How many messages are skipped, by whole call batches.
    pub skipped: u64,
    /// The caller's notes.
    pub metadata: Map<String, Value>,
    /// What other APIs keep of it: one object per API, by its name.
    #[serde(skip)]
    pub attributes: Map<String, Value>,
    /// When it came to be.
    pub created: Timestamp,
    /// When it was last written to.
    pub updated: Timestamp,
}

impl SessionInfo {
    pub(super) fn new(name: Arc<str>, row: SessionRow) -> Self {
        Self {
            name,
            id: row.id,
            messages: row.tracker.head(),
            turns: row.tracker.turns(),
            tokens: row.tracker.tokens(),
            encoding: row.encoding,
            skipped: row.skipped,
            metadata: row.metadata,
            attributes: row.attributes,
            created: row.created,
            updated: row.updated,
        }
    }
}
