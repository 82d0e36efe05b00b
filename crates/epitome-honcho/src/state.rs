//! What Honcho's routes share.

use std::ops::Deref;
use std::sync::Arc;

use epitome::rules::tokens::{Counter, Encoding};
use epitome::store::SessionId;
use epitome_http::reply::Kept;
use epitome_http::{HttpState, Problem};
use tokio::sync::OnceCell;

use super::ids::Ids;
use super::out::{Counts, MOST_COUNTS, Scribe};

/// What these routes share.
pub struct Honcho {
    http: Arc<HttpState>,
    /// By which tokens of theirs are signed, where they are taken.
    pub(crate) jwt: Option<Vec<u8>>,
    /// Made of the store's secret when it is first needed.
    ids: OnceCell<Ids>,
    counts: Arc<Counts>,
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
        let (ids, counts, kept) = (OnceCell::new(), Arc::new(Counts::new(MOST_COUNTS)), Kept::default());
        Arc::new(Self { http, jwt, ids, counts, kept })
    }

    pub(crate) async fn ids(&self) -> Result<Ids, Problem> {
        let made = self.ids.get_or_try_init(|| async { self.engine.secret().await.map(Ids::new) });
        Ok(made.await?.clone())
    }

    /// Whoever puts the messages of a session into their words, by its name and number.
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
