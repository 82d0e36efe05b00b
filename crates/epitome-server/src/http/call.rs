//! A call of one of the native routes: who calls, what the path and the query say, and what the client has already.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::response::Response;
use epitome::Session;
use epitome::key::Rights;
use epitome_http::gate::{Access, access};
use epitome_http::problem::Problem;
use epitome_http::query::{Nothing, Query};
use epitome_http::reply::Known;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::App;

/// What a route answers.
pub(crate) type Answer = Result<Response, Problem>;

/// A call of somebody who may read.
pub(crate) type Reading<Q = Nothing> = Call<false, Q>;

/// A call of somebody who may read and write.
pub(crate) type Writing<Q = Nothing> = Call<true, Q>;

/// A call that was let in, with its parameters.
pub(crate) struct Call<const WRITES: bool, Q> {
    pub(crate) app: Arc<App>,
    pub(crate) access: Access,
    pub(crate) query: Q,
    pub(crate) known: Known,
    path: RawPathParams,
}

impl<const WRITES: bool, Q: DeserializeOwned + Send> FromRequestParts<Arc<App>> for Call<WRITES, Q> {
    type Rejection = Problem;

    /// The gate comes first: whoever may not come in learns nothing of their parameters.
    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let access = access(parts, app, if WRITES { Rights::Write } else { Rights::Read }).await?;
        let path = RawPathParams::from_request_parts(parts, app).await;
        let path = path.map_err(|_| Problem::invalid("the path is not UTF-8, or no name of anything"))?;
        let Query(query) = Query::from_request_parts(parts, app).await?;
        let known = Known::from_request_parts(parts, app).await?;
        Ok(Self { app: Arc::clone(app), access, query, known, path })
    }
}

impl<const WRITES: bool, Q> Call<WRITES, Q> {
    /// What the path has under a name.
    pub(crate) fn named(&self, name: &str) -> &str {
        self.path.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }

    /// The session that the path names.
    pub(crate) fn session(&self) -> Session {
        self.access.workspace.session(self.named("session"))
    }

    /// A number in the path.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T, Problem> {
        whole(self.named(name)).ok_or_else(|| Problem::invalid(format!("{name}: a whole number is wanted")))
    }

    /// Answers with what was read: the whole of it, or that it is what the client has.
    pub(crate) fn read(&self, value: &impl Serialize) -> Answer {
        self.known.read(value)
    }
}

/// A whole number, in digits alone.
pub(crate) fn whole<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// How many are wanted on a page; 100 where nobody says how many.
pub(crate) fn limit(asked: Option<u64>) -> Result<usize, Problem> {
    match asked.map(usize::try_from) {
        None => Ok(100),
        Some(Ok(limit @ 1..=500)) => Ok(limit),
        Some(_) => Err(Problem::invalid("limit: 1 to 500 are allowed")),
    }
}
