//! Routes for the operator to create, list and revoke keys.

use axum::extract::Path;
use epitome::key::{NewKey, Rights};

use super::prelude::*;
use super::wire::{CreatedKeyOut, KeyOut};
use crate::times::{Expiry, now};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct KeysQuery {
    /// Lists only keys of this workspace.
    workspace: Option<String>,
    /// The value `next` of the previous page.
    after: Option<String>,
    /// Maximum number of keys.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
}

/// Lists all keys, including revoked keys. Requires an admin key, if the server requires keys.
#[utoipa::path(get, path = "/v1/keys", tag = "keys", params(KeysQuery), responses(
    (status = 200, description = "A page of keys", body = Page<openapi::Key>),
))]
pub(crate) async fn list(
    _: Operator,
    State(app): State<Arc<App>>,
    Query(query): Query<KeysQuery>,
    if_none_match: IfNoneMatch,
) -> Answer {
    let limit = page_limit(query.limit)?;
    let keys = app.engine.keys().list(query.workspace.as_deref(), query.after.as_deref(), limit + 1).await?;
    let now = now();
    let keys = keys.into_iter().map(|key| KeyOut::new(key, now)).collect();
    if_none_match.respond(&Page::new(keys, limit, |key: &KeyOut| key.id().to_owned()))
}

/// A key to create.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyIn {
    workspace: Option<String>,
    rights: Rights,
    #[serde(default)]
    label: String,
    expires: Option<Expiry>,
}

/// Creates a key. Only this response contains the key's secret. Requires an admin key, if the server requires keys.
#[utoipa::path(post, path = "/v1/keys", tag = "keys", request_body = openapi::NewKey, responses(
    (status = 201, description = "The key and its secret", body = openapi::CreatedKey),
))]
pub(crate) async fn create(
    _: Operator,
    State(app): State<Arc<App>>,
    _: Query<NoParams>,
    Json(key): Json<KeyIn>,
) -> Answer {
    let now = now();
    let KeyIn { workspace, rights, label, expires } = key;
    let expires = expires.map(|expiry| expiry.from(now));
    let created = app.engine.keys().create(NewKey { workspace, rights, label, expires }).await?;
    json_response(StatusCode::CREATED, &CreatedKeyOut::new(created, now))
}

/// Revokes a key immediately. Requires an admin key, if the server requires keys.
#[utoipa::path(delete, path = "/v1/keys/{key}", tag = "keys", params(
    ("key" = String, Path, description = "The key's id"),
), responses(
    (status = 204, description = "The key is revoked"),
))]
pub(crate) async fn revoke(
    _: Operator,
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    _: Query<NoParams>,
) -> Answer {
    match app.engine.keys().revoke(&id, None).await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => {
            let id: String = id.chars().take(64).collect();
            Err(Problem::not_found(format!("key `{id}` not found; `GET /v1/keys` lists all keys")))
        }
    }
}
