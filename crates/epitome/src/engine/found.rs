//! What a search finds, and where it goes on. How words are found is `crate::search`'s matter.

use std::sync::Arc;

use epitome_core::message::{Message, Seq};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::search::{Query, text_of};
use crate::store::Hit;

/// A search gives no more messages at once than come to about so many bytes: 4 MiB. They are held in memory together, and
/// words that are in every message are easily looked for.
pub const SEARCH_BYTES: u64 = 4 << 20;

/// A message found by its words.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// The session's name.
    pub session: Arc<str>,
    /// The message.
    pub message: Message,
    /// The words around the first match.
    pub excerpt: String,
    /// Where the search goes on after this one.
    pub cursor: HitCursor,
}

impl Found {
    pub(super) fn new(hit: Hit, query: &Query) -> Self {
        let excerpt = query.excerpt(&text_of(&hit.message), EXCERPT);
        let cursor = HitCursor { session: Arc::clone(&hit.session), seq: hit.message.seq };
        Self { session: hit.session, cursor, excerpt, message: hit.message }
    }
}

/// Where a search goes on: after this message of this session. By name, as numbers of the store would tell of others.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HitCursor {
    /// The session's name.
    pub session: Arc<str>,
    /// The message's place in it.
    pub seq: Seq,
}

impl HitCursor {
    /// What to do about a cursor whose session is not there any more: what comes after it cannot be told.
    pub(super) fn lost(&self) -> Error {
        Error::Conflict(format!(
            "session `{}`, where the search stood, is not there any more; search again from the start",
            self.session
        ))
    }
}

/// So many characters are shown on each side of a match.
const EXCERPT: usize = 60;
