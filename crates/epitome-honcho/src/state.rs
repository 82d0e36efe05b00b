//! The state that Honcho's routes share.

use std::ops::Deref;
use std::sync::Arc;

use epitome::rules::tokens::{Counter, Encoding};
use epitome::store::SessionId;
use epitome_http::reply::ContextCache;
use epitome_http::{HttpState, Problem};
use tokio::sync::OnceCell;

use super::ids::Ids;
use super::wire::{MessageRenderer, TOKEN_CACHE_ENTRIES, TokenCache};

/// The state that Honcho's routes share.
pub struct Honcho {
    http: Arc<HttpState>,
    /// The secret that signs Honcho's tokens. If it is `None`, no tokens are accepted.
    pub(crate) jwt: Option<Vec<u8>>,
    /// Creates ids of messages and sessions. Derived from the store's secret when it is first used.
    ids: OnceCell<Ids>,
    token_counts: Arc<TokenCache>,
    pub(crate) contexts: ContextCache<ContextParams>,
}

/// The parameters of a context request that affect the response.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ContextParams {
    pub(crate) tokens: Option<u64>,
    pub(crate) summary: bool,
    /// Whether the request names a peer. The response then has an empty representation of this peer.
    pub(crate) target: bool,
}

impl Honcho {
    /// Builds the state. `jwt` is the secret that signs Honcho's tokens. Without a secret, no tokens are accepted.
    pub fn new(http: Arc<HttpState>, jwt: Option<Vec<u8>>) -> Arc<Self> {
        let token_counts = Arc::new(TokenCache::new(TOKEN_CACHE_ENTRIES));
        Arc::new(Self { http, jwt, ids: OnceCell::new(), token_counts, contexts: ContextCache::default() })
    }

    pub(crate) async fn ids(&self) -> Result<Ids, Problem> {
        let ids = self.ids.get_or_try_init(|| async { self.engine.secret().await.map(Ids::new) });
        Ok(ids.await?.clone())
    }

    /// Returns a renderer that converts messages into Honcho's format. The messages are from the session with this name
    /// and id.
    pub(crate) async fn renderer(
        &self,
        workspace: &str,
        (session, session_id): (&str, SessionId),
        encoding: &str,
    ) -> Result<MessageRenderer, Problem> {
        Ok(MessageRenderer {
            workspace: workspace.into(),
            session: session.into(),
            session_id,
            ids: self.ids().await?.prefix(session_id),
            token_counts: Arc::clone(&self.token_counts),
            counter: Counter::new(encoding.parse::<Encoding>().unwrap_or_default()),
        })
    }
}

impl Deref for Honcho {
    type Target = Arc<HttpState>;

    fn deref(&self) -> &Arc<HttpState> {
        &self.http
    }
}
