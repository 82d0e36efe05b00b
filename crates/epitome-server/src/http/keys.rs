//! Keys: made, listed, revoked by whoever runs the server.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use epitome::key::{Key, NewKey, Rights};
use epitome::rules::message::Timestamp;
use epitome_http::body::Json;
use epitome_http::gate::Runs;
use epitome_http::problem::Problem;
use epitome_http::query::{Nothing, Query};
use epitome_http::reply::{Known, done};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::openapi;
use super::sessions::limit;
use super::wire::Page;

/// A key to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewKey)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyIn {
    /// The workspace it opens; none for an admin key, and for no other.
    #[schema(min_length = 1, max_length = 512)]
    workspace: Option<String>,
    #[schema(value_type = openapi::Rights)]
    rights: Rights,
    /// What to call it in the list.
    #[serde(default)]
    #[schema(max_length = 200)]
    label: String,
    /// From when on it opens nothing, in milliseconds since 1970.
    expires: Option<i64>,
}

/// A key with its secret, which is never shown again.
#[derive(Serialize)]
struct CreatedOut {
    #[serde(flatten)]
    key: Key,
    /// What is sent as `authorization: Bearer`.
    secret: String,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only those of this workspace.
    workspace: Option<String>,
    /// `next` of the page before.
    after: Option<String>,
    /// At most so many.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
}

/// The keys there are, revoked ones too. An admin key is wanted.
#[utoipa::path(get, path = "/v1/keys", tag = "keys", params(Which), responses(
    (status = 200, description = "A page of them", body = Page<openapi::Key>),
))]
pub(crate) async fn list(
    _: Runs,
    State(app): State<Arc<App>>,
    Query(which): Query<Which>,
    known: Known,
) -> Result<Response, Problem> {
    let limit = limit(which.limit)?;
    let found = app.engine.keys().list(which.workspace.as_deref(), which.after.as_deref(), limit + 1).await?;
    known.read(&Page::new(found, limit, |key| key.id.clone()))
}

/// Makes a key. Its secret is in the answer and nowhere else. An admin key is wanted.
#[utoipa::path(post, path = "/v1/keys", tag = "keys", request_body = KeyIn, responses(
    (status = 201, description = "The key and its secret", body = openapi::CreatedKey),
))]
pub(crate) async fn create(
    _: Runs,
    State(app): State<Arc<App>>,
    _: Query<Nothing>,
    Json(wanted): Json<KeyIn>,
) -> Result<Response, Problem> {
    let KeyIn { workspace, rights, label, expires } = wanted;
    let new = NewKey { workspace, rights, label, expires: expires.map(Timestamp) };
    let created = app.engine.keys().create(new).await?;
    done(StatusCode::CREATED, &CreatedOut { key: created.key, secret: created.secret })
}

/// Revokes a key: it opens nothing from now on. An admin key is wanted.
#[utoipa::path(delete, path = "/v1/keys/{key}", tag = "keys", params(
    ("key" = String, Path, description = "Its id"),
), responses(
    (status = 204, description = "It is revoked"),
))]
pub(crate) async fn revoke(
    _: Runs,
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    _: Query<Nothing>,
) -> Result<Response, Problem> {
    match app.engine.keys().revoke(&id, None).await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(Problem::not_found("there is no such key")),
    }
}
