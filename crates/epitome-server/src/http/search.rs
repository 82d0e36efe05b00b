//! Messages by their words, summarized or not.

use axum::extract::Path;
use axum::response::Response;
use epitome::{Found, HitCursor};
use serde::Deserialize;
use utoipa::IntoParams;

use super::gate::Reads;
use super::problem::Problem;
use super::query::Query;
use super::reply::Known;
use super::sessions::limit;
use super::wire::{FoundOut, Page};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Words {
    /// All of these words, in any order, each also as part of a longer word; `"in quotes"` as one.
    #[param(min_length = 1, max_length = 1000)]
    q: String,
    /// `next` of the page before.
    after: Option<String>,
    /// At most so many.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WordsBeneath {
    /// All of these words, in any order, each also as part of a longer word; `"in quotes"` as one.
    #[param(min_length = 1, max_length = 1000)]
    q: String,
    /// Only beneath this summary.
    #[param(minimum = 1)]
    summary: Option<i64>,
    /// `next` of the page before.
    after: Option<String>,
    /// At most so many.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
}

/// Messages of one session by their words, newest first.
#[utoipa::path(get, path = "/v1/sessions/{session}/search", tag = "search", params(
    ("session" = String, Path, description = "The session's name"),
    WordsBeneath,
), responses(
    (status = 200, description = "A page of them", body = Page<FoundOut>),
))]
pub(crate) async fn in_session(
    Reads(access): Reads,
    Path(name): Path<String>,
    Query(words): Query<WordsBeneath>,
    known: Known,
) -> Result<Response, Problem> {
    let (limit, after) = (limit(words.limit)?, words.after.as_deref().map(place).transpose()?);
    let session = access.workspace.session(name);
    page(&session.search(&words.q, words.summary, after, limit + 1).await?, limit, &known)
}

/// Messages of all the workspace's sessions by their words, newest session first.
#[utoipa::path(get, path = "/v1/search", tag = "search", params(Words), responses(
    (status = 200, description = "A page of them", body = Page<FoundOut>),
))]
pub(crate) async fn everywhere(
    Reads(access): Reads,
    Query(words): Query<Words>,
    known: Known,
) -> Result<Response, Problem> {
    let (limit, after) = (limit(words.limit)?, words.after.as_deref().map(place).transpose()?);
    page(&access.workspace.search(&words.q, after, limit + 1).await?, limit, &known)
}

fn page(found: &[Found], limit: usize, known: &Known) -> Result<Response, Problem> {
    let shown = found.get(..limit).unwrap_or(found);
    let next = shown.last().filter(|_| found.len() > limit).map(|found| cursor(&found.cursor));
    known.read(&Page { items: shown.iter().map(FoundOut::from).collect(), next })
}

/// Where a search goes on: after this message of that session.
fn cursor(cursor: &HitCursor) -> String {
    format!("{}.{}", cursor.seq, cursor.session)
}

fn place(after: &str) -> Result<HitCursor, Problem> {
    let place = after.split_once('.').and_then(|(seq, session)| {
        let seq = seq.parse().ok()?;
        epitome::is_name(session).then(|| HitCursor { session: session.into(), seq })
    });
    place.ok_or_else(|| Problem::invalid("after: is not what a page gave as `next`"))
}
