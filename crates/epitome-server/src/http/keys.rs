//! Routes for the operator to create, list and revoke keys.

use axum::extract::Path;
use epitome::key::NewKey;

use super::prelude::*;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only keys of this workspace.
    workspace: Option<String>,
    /// `next` of the previous page.
    after: Option<String>,
    /// Maximum number of keys.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
}

/// Lists all keys, including revoked ones. Needs an admin key, where keys are required.
#[utoipa::path(get, path = "/v1/keys", tag = "keys", params(Which), responses(
    (status = 200, description = "A page of keys", body = Page<openapi::Key>),
))]
pub(crate) async fn list(
    _: Runs,
    State(app): State<Arc<App>>,
    Query(which): Query<Which>,
    known: Known,
) -> Answer {
    let limit = limit(which.limit)?;
    let found = app.engine.keys().list(which.workspace.as_deref(), which.after.as_deref(), limit + 1).await?;
    known.read(&Page::new(found, limit, |key| key.id.clone()))
}

/// Creates a key. Its secret is only in this response. Needs an admin key, where keys are required.
#[utoipa::path(post, path = "/v1/keys", tag = "keys", request_body = openapi::NewKey, responses(
    (status = 201, description = "The key and its secret", body = openapi::CreatedKey),
))]
pub(crate) async fn create(
    _: Runs,
    State(app): State<Arc<App>>,
    _: Query<Nothing>,
    Json(new): Json<NewKey>,
) -> Answer {
    let created = app.engine.keys().create(new).await?;
    done(StatusCode::CREATED, &created)
}

/// Revokes a key immediately. Needs an admin key, where keys are required.
#[utoipa::path(delete, path = "/v1/keys/{key}", tag = "keys", params(
    ("key" = String, Path, description = "The key's id"),
), responses(
    (status = 204, description = "The key is revoked"),
))]
pub(crate) async fn revoke(
    _: Runs,
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    _: Query<Nothing>,
) -> Answer {
    match app.engine.keys().revoke(&id, None).await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(Problem::not_found("there is no such key")),
    }
}
