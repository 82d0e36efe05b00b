//! What Honcho's routes share.

use std::ops::Deref;
use std::sync::Arc;

use epitome::SessionInfo;
use epitome_http::kept::Kept;
use epitome_http::{HttpState, WithHttp};
use tokio::sync::OnceCell;

use super::ids::Ids;
use super::out::{Counts, Scribe};
use super::refusal::Refusal;

/// What these routes share.
pub struct Honcho {
    http: Arc<HttpState>,
    /// By which tokens of theirs are signed, where they are taken.
    pub(crate) jwt: Option<Vec<u8>>,
    /// Made of the store's secret when it is first needed.
    ids: OnceCell<Ids>,
    pub(crate) counts: Counts,
    /// Contexts given before.
    pub(crate) kept: Kept<Asked>,
}

/// What a context is asked by, as far as it matters here.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    pub(crate) tokens: Option<u64>,
    pub(crate) summary: bool,
    /// For somebody: of whom nothing is told.
    pub(crate) target: bool,
}

impl Honcho {
    /// Builds the state. Tokens are accepted where there is a secret they are signed with.
    pub fn new(http: Arc<HttpState>, jwt: Option<Vec<u8>>) -> Arc<Self> {
        let (ids, counts, kept) = (OnceCell::new(), Counts::default(), Kept::default());
        Arc::new(Self { http, jwt, ids, counts, kept })
    }

    pub(crate) async fn ids(&self) -> Result<Ids, Refusal> {
        let made = self.ids.get_or_try_init(|| async { self.engine.secret().await.map(Ids::new) });
        Ok(made.await?.clone())
    }

    /// Whoever puts a session's messages into their words.
    pub(crate) async fn scribe<'a>(
        &'a self,
        workspace: &'a str,
        info: &'a SessionInfo,
    ) -> Result<Scribe<'a>, Refusal> {
        let ids = self.ids().await?;
        Ok(Scribe::new((&ids, &self.counts), (workspace, &info.name), info.id, &info.encoding))
    }
}

impl WithHttp for Honcho {
    fn http(&self) -> &Arc<HttpState> {
        &self.http
    }
}

impl Deref for Honcho {
    type Target = HttpState;

    fn deref(&self) -> &HttpState {
        &self.http
    }
}
