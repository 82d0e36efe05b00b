//! Extracts the input of a native route from a request: the caller's access, the path and query parameters, and the
//! client's `etag`.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::response::Response;
use epitome::key::Rights;
use epitome::{Error, Session};
use epitome_http::auth::{Access, access};
use epitome_http::problem::Problem;
use epitome_http::query::{NoParams, Query};
use epitome_http::reply::IfNoneMatch;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{App, suggest};

/// Response of a route.
pub(crate) type Answer = Result<Response, Problem>;

/// A call by a caller with the right to read.
pub(crate) type Reading<Q = NoParams> = Call<false, Q>;

/// A call by a caller with the right to read and write.
pub(crate) type Writing<Q = NoParams> = Call<true, Q>;

/// An authorized call with its parameters.
pub(crate) struct Call<const WRITES: bool, Q> {
    pub(crate) app: Arc<App>,
    pub(crate) access: Access,
    pub(crate) query: Q,
    pub(crate) if_none_match: IfNoneMatch,
    path: RawPathParams,
}

impl<const WRITES: bool, Q: DeserializeOwned + Send> FromRequestParts<Arc<App>> for Call<WRITES, Q> {
    type Rejection = Problem;

    /// Authorizes the caller first, so that an unauthorized caller learns nothing about the parameters.
    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let access = access(parts, app, if WRITES { Rights::Write } else { Rights::Read }).await?;
        let path = RawPathParams::from_request_parts(parts, app).await;
        let path = path.map_err(|_| Problem::invalid("the path is not valid UTF-8"))?;
        let Query(query) = Query::from_request_parts(parts, app).await?;
        let if_none_match = IfNoneMatch::from_request_parts(parts, app).await?;
        Ok(Self { app: Arc::clone(app), access, query, if_none_match, path })
    }
}

impl<const WRITES: bool, Q> Call<WRITES, Q> {
    /// Returns a parameter of the path; an empty text if the path has no parameter with this name.
    pub(crate) fn path_param(&self, name: &str) -> &str {
        self.path.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }

    /// Returns the session that the path names.
    pub(crate) fn session(&self) -> Session {
        self.access.workspace.session(self.path_param("session"))
    }

    /// Returns a parameter of the path as a number.
    pub(crate) fn path_number<T: std::str::FromStr>(&self, name: &str) -> Result<T, Problem> {
        let expected = || Problem::invalid(format!("{name}: expected a whole number in the path"));
        whole_number(self.path_param(name)).ok_or_else(expected)
    }

    /// Returns the engine's result. If the session does not exist, the error response suggests similar names of
    /// sessions in the same workspace.
    pub(crate) async fn or_suggest<T>(&self, result: Result<T, Error>) -> Result<T, Problem> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => {
                Err(suggest::problem(&self.access.workspace, self.path_param("session"), error).await)
            }
        }
    }

    /// Responds with a value that was read, or with 304 if the client already has this value.
    pub(crate) fn read(&self, value: &impl Serialize) -> Answer {
        self.if_none_match.respond(value)
    }
}

/// Parses a whole number that consists of digits only.
pub(crate) fn whole_number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the maximum number of items on a page; 100 by default.
pub(crate) fn page_limit(requested: Option<u64>) -> Result<usize, Problem> {
    match requested.map(usize::try_from) {
        None => Ok(100),
        Some(Ok(limit @ 1..=500)) => Ok(limit),
        Some(_) => Err(Problem::invalid("limit: 1 to 500 are allowed")),
    }
}
