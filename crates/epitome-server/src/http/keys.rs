//! Keys: made, listed, revoked by whoever runs the server.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use epitome::key::{Key, NewKey, Rights};
use epitome::rules::message::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::body::Json;
use super::gate::Runs;
use super::problem::Problem;
use super::query::{Nothing, Query};
use super::reply::{Known, done};
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
    rights: RightsName,
    /// What to call it in the list.
    #[serde(default)]
    #[schema(max_length = 200)]
    label: String,
    /// From when on it opens nothing, in milliseconds since 1970.
    expires: Option<i64>,
}

/// What a key may do.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, ToSchema)]
#[schema(as = Rights)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RightsName {
    /// Read one workspace.
    Read,
    /// Read and write one workspace.
    Write,
    /// Run the server.
    Admin,
}

/// A key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Key)]
pub(crate) struct KeyOut {
    id: String,
    workspace: Option<String>,
    rights: RightsName,
    label: String,
    created: i64,
    expires: Option<i64>,
    revoked: Option<i64>,
}

/// A key with its secret, which is never shown again.
#[derive(Serialize, ToSchema)]
#[schema(as = CreatedKey)]
pub(crate) struct CreatedOut {
    #[serde(flatten)]
    key: KeyOut,
    /// What is sent as `authorization: Bearer`.
    secret: String,
}

impl From<Key> for KeyOut {
    fn from(key: Key) -> Self {
        let rights = match key.rights {
            Rights::Read => RightsName::Read,
            Rights::Write => RightsName::Write,
            Rights::Admin => RightsName::Admin,
        };
        Self {
            id: key.id,
            workspace: key.workspace.map(|name| name.to_string()),
            rights,
            label: key.label,
            created: key.created.0,
            expires: key.expires.map(|at| at.0),
            revoked: key.revoked.map(|at| at.0),
        }
    }
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
    (status = 200, description = "A page of them", body = Page<KeyOut>),
))]
pub(crate) async fn list(
    _: Runs,
    State(app): State<Arc<App>>,
    Query(which): Query<Which>,
    known: Known,
) -> Result<Response, Problem> {
    let limit = limit(which.limit)?;
    let found = app.engine.keys().list(which.workspace.as_deref(), which.after.as_deref(), limit + 1).await?;
    let items = found.into_iter().map(KeyOut::from).collect();
    known.read(&Page::new(items, limit, |key: &KeyOut| key.id.clone()))
}

/// Makes a key. Its secret is in the answer and nowhere else. An admin key is wanted.
#[utoipa::path(post, path = "/v1/keys", tag = "keys", request_body = KeyIn, responses(
    (status = 201, description = "The key and its secret", body = CreatedOut),
))]
pub(crate) async fn create(
    _: Runs,
    State(app): State<Arc<App>>,
    _: Query<Nothing>,
    Json(wanted): Json<KeyIn>,
) -> Result<Response, Problem> {
    let rights = match wanted.rights {
        RightsName::Read => Rights::Read,
        RightsName::Write => Rights::Write,
        RightsName::Admin => Rights::Admin,
    };
    let expires = wanted.expires.map(Timestamp);
    let new = NewKey { workspace: wanted.workspace, rights, label: wanted.label, expires };
    let created = app.engine.keys().create(new).await?;
    done(StatusCode::CREATED, &CreatedOut { key: created.key.into(), secret: created.secret })
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
