//! The state that Honcho's routes share.

use std::ops::Deref;
use std::sync::Arc;

use epitome::rules::tokens::{Counter, Encoding};
use epitome::store::SessionId;
use epitome_http::reply::Kept;
use epitome_http::{HttpState, Problem};
use tokio::sync::OnceCell;

use super::ids::Ids;
use super::out::{Counts, MOST_COUNTS, Scribe};

/// The state that these routes share.
pub struct Honcho {
    http: Arc<HttpState>,
    /// The secret that signs Honcho's tokens, if they are accepted.
    pub(crate) jwt: Option<Vec<u8>>,
    /// Derived from the store's secret on first use.
    ids: OnceCell<Ids>,
    counts: Arc<Counts>,
    /// A cache of contexts.
    pub(crate) kept: Kept<Asked>,
}

/// The parameters of a context, as far as they affect the answer.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    pub(crate) tokens: Option<u64>,
    pub(crate) summary: bool,
    /// Whether a peer is named, for whom the answer has an empty representation.
    pub(crate) target: bool,
}

impl Honcho {
    /// Builds the state. Honcho's tokens are accepted if there is a secret.
    pub fn new(http: Arc<HttpState>, jwt: Option<Vec<u8>>) -> Arc<Self> {
        let (ids, counts, kept) = (OnceCell::new(), Arc::new(Counts::new(MOST_COUNTS)), Kept::default());
        Arc::new(Self { http, jwt, ids, counts, kept })
    }

    pub(crate) async fn ids(&self) -> Result<Ids, Problem> {
        let made = self.ids.get_or_try_init(|| async { self.engine.secret().await.map(Ids::new) });
        Ok(made.await?.clone())
    }

    /// Returns what converts the messages of a session, with this name and id, into Honcho's format.
    pub(crate) async fn scribe(
        &self,
        workspace: &str,
        (session, number): (&str, SessionId),
        encoding: &str,
    ) -> Result<Scribe, Problem> {
        let (mark, counts) = (self.ids().await?.mark(number), Arc::clone(&self.counts));
        let counter = Counter::new(encoding.parse::<Encoding>().unwrap_or_default());
        Ok(Scribe { workspace: workspace.into(), session: session.into(), number, mark, counts, counter })
    }
}

impl Deref for Honcho {
    type Target = Arc<HttpState>;

    fn deref(&self) -> &Arc<HttpState> {
        &self.http
    }
}
