//! Sessions: listed, looked at, set, forked, deleted.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use epitome::settings::{Patch, Settings};
use epitome::{Fork, ForkKind};
use epitome_http::body::Json;
use epitome_http::gate::{Reads, Writes};
use epitome_http::problem::Problem;
use epitome_http::query::{Nothing, Query};
use epitome_http::reply::{Known, done};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::App;
use super::wire::{ForkIn, ForkKindIn, Page, SessionIn, SessionOut, SessionWhole};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// `next` of the page before.
    after: Option<String>,
    /// At most so many.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
}

/// So many are on a page where nobody says how many.
pub(crate) const PAGE: usize = 100;

/// How many are wanted on a page.
pub(crate) fn limit(asked: Option<u64>) -> Result<usize, Problem> {
    match asked.map(usize::try_from) {
        None => Ok(PAGE),
        Some(Ok(limit @ 1..=500)) => Ok(limit),
        Some(_) => Err(Problem::invalid("limit: 1 to 500 are allowed")),
    }
}

/// The sessions of the workspace, by name.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", params(Paging), responses(
    (status = 200, description = "A page of them", body = Page<SessionOut>),
))]
pub(crate) async fn list(
    Reads(access): Reads,
    Query(page): Query<Paging>,
    known: Known,
) -> Result<Response, Problem> {
    let limit = limit(page.limit)?;
    let found = access.workspace.sessions(page.after.as_deref(), limit + 1).await?;
    let items = found.into_iter().map(SessionOut::from).collect();
    known.read(&Page::new(items, limit, |session: &SessionOut| session.name.clone()))
}

/// A session: its totals, its settings, and where each summary stands.
#[utoipa::path(get, path = "/v1/sessions/{session}", tag = "sessions", params(
    ("session" = String, Path, description = "Its name"),
), responses(
    (status = 200, description = "All that is known of it", body = SessionWhole),
))]
pub(crate) async fn look(
    Reads(access): Reads,
    Path(name): Path<String>,
    _: Query<Nothing>,
    known: Known,
) -> Result<Response, Problem> {
    let session = access.workspace.session(name);
    let settings = told(&*session.settings().await?);
    known.read(&SessionWhole::new(session.explain().await?, settings))
}

/// Sets a session's settings and metadata, both or neither. Makes the session where there is none.
#[utoipa::path(put, path = "/v1/sessions/{session}", tag = "sessions", params(
    ("session" = String, Path, description = "Its name"),
), request_body = SessionIn, responses(
    (status = 200, description = "The session as it is now", body = SessionWhole),
))]
pub(crate) async fn put(
    Writes(access): Writes,
    Path(name): Path<String>,
    _: Query<Nothing>,
    Json(wanted): Json<SessionIn>,
) -> Result<Response, Problem> {
    let session = access.workspace.session(name);
    let patch = wanted.settings.map(patch).transpose()?;
    let settings = told(&*session.put(patch.as_ref(), wanted.metadata).await?);
    done(StatusCode::OK, &SessionWhole::new(session.explain().await?, settings))
}

/// Settings as they are sent.
pub(crate) fn patch(settings: serde_json::Map<String, Value>) -> Result<Patch, Problem> {
    Patch::parse(&Value::Object(settings).to_string())
        .map_err(|wrong| Problem::invalid(format!("settings.{wrong}")))
}

/// Settings as they are told. Where models are asked, and with whose key, is a matter of whoever runs the server.
pub(crate) fn told(settings: &Settings) -> Value {
    let mut told = settings.to_value();
    let models = told.get_mut("models").and_then(Value::as_object_mut);
    for model in models.into_iter().flat_map(|models| models.values_mut()).filter_map(Value::as_object_mut) {
        model.retain(|key, _| !matches!(key.as_str(), "base_url" | "key_env"));
    }
    told
}

/// Deletes a session with all that was made from it.
#[utoipa::path(delete, path = "/v1/sessions/{session}", tag = "sessions", params(
    ("session" = String, Path, description = "Its name"),
), responses(
    (status = 204, description = "It is gone"),
))]
pub(crate) async fn delete(
    Writes(access): Writes,
    Path(name): Path<String>,
    _: Query<Nothing>,
) -> Result<Response, Problem> {
    let session = access.workspace.session(name);
    match session.delete().await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(Problem::not_found(format!("session `{}` not found", session.name()))),
    }
}

/// Makes a new session from a point of this one.
#[utoipa::path(post, path = "/v1/sessions/{session}/fork", tag = "sessions", params(
    ("session" = String, Path, description = "Its name"),
), request_body = ForkIn, responses(
    (status = 201, description = "The new session", body = SessionOut, headers(
        ("location" = String, description = "Where it is"),
    )),
))]
pub(crate) async fn fork(
    State(app): State<Arc<App>>,
    Writes(access): Writes,
    Path(name): Path<String>,
    _: Query<Nothing>,
    Json(wanted): Json<ForkIn>,
) -> Result<Response, Problem> {
    let kind = match wanted.kind {
        ForkKindIn::Whole => ForkKind::Whole,
        ForkKindIn::Condensed => ForkKind::Condensed,
    };
    let fork = Fork { name: wanted.name.into(), at: wanted.at, kind, metadata: None };
    let _turn = app.load.fork().await;
    let made = access.workspace.session(name).fork(fork).await?;
    let mut answer = done(StatusCode::CREATED, &SessionOut::from(made.info().await?))?;
    if let Ok(place) = HeaderValue::from_str(&place(made.name())) {
        answer.headers_mut().insert(header::LOCATION, place);
    }
    Ok(answer)
}

/// What a name may hold in a path as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Where a session is found.
pub(crate) fn place(session: &str) -> String {
    format!("/v1/sessions/{}", utf8_percent_encode(session, PLAIN))
}
