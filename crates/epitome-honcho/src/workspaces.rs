//! Workspaces: get or create, list, change, delete.

use axum::extract::State;
use axum::http::request::Parts;
use epitome::{Error, ListPage, Listing, Update};
use epitome_http::auth::{open_workspace, unauthorized};

use super::configuration::configure;
use super::prelude::*;
use super::validate::{NEW_WORKSPACE, NewIn, PUT, Put, body as read};

/// The fields of workspaces that a filter may use.
const FIELDS: FilterFields = FilterFields {
    allowed: &["id", "workspace_id", "name", "metadata", "created_at"],
    id_aliases: &["workspace_id", "name"],
};

/// Returns a workspace. Creates the workspace if it does not exist. Every client of Honcho calls this route first.
pub(super) async fn create(
    State(app): State<Arc<Honcho>>,
    AnyCaller(grant): AnyCaller,
    mut parts: Parts,
    Body(body, _memory): Body,
) -> Answer {
    let NewIn { id, metadata, configuration, .. } = read(&body, NEW_WORKSPACE)?;
    if !grant.allows(&id) {
        return Err(no_access());
    }
    let (workspace, _permit) = open_workspace(&mut parts, &app, id.into())?;
    let is_read = metadata.is_none() && configuration.is_none();
    if let Some(info) = workspace.info().await?.filter(|_| is_read) {
        return json_response(StatusCode::OK, &wire::workspace(&info));
    }
    if !grant.can_change_workspace() {
        return Err(unauthorized("this key may only read this workspace; use a key that may write"));
    }
    let notes = Update { metadata, attributes: configuration.map(configure), ..Update::default() };
    let written = workspace.update(notes).await?;
    let status = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    json_response(status, &wire::workspace(&written.value))
}

/// Changes the metadata and the configuration of a workspace.
pub(super) async fn put(Authorized(access): CanWrite, Body(body, _memory): Body) -> Answer {
    let Put { metadata, configuration } = read(&body, PUT)?;
    let notes = Update { metadata, attributes: configuration.map(configure), ..Update::default() };
    let written = access.workspace.update(notes).await?;
    json_response(StatusCode::OK, &wire::workspace(&written.value))
}

/// Lists workspaces. The operator sees all workspaces. Other callers see only their own workspace. A caller that is
/// limited to a session or a peer is refused, because it may not read the metadata of a workspace.
pub(super) async fn list(
    State(app): State<Arc<Honcho>>,
    AnyCaller(grant): AnyCaller,
    params: QueryParams,
    Body(body, _memory): Body,
) -> Answer {
    if grant.is_limited() {
        return Err(no_access());
    }
    let request = ListRequest::parse(&params, &body, FIELDS)?;
    let paging = request.paging;
    let listing = request.listing(wire::workspace);
    let listed = match grant.workspace {
        None if !grant.is_operator() => ListPage::default(),
        None => app.engine.list_workspaces(listing).await?,
        Some(own) => {
            // The store computes a correct `total` for a name only if there is a filter. So a filter that matches every
            // workspace is set if the request has no filter.
            let filter = listing.filter.or_else(|| Some(Box::new(|_| true)));
            app.engine.list_workspaces(Listing { filter, name: Some(own.into()), ..listing }).await?
        }
    };
    page_response(&paging, listed.map(|row| wire::workspace(&row)))
}

/// Deletes a workspace that has no sessions.
pub(super) async fn delete(Authorized(access): CanWrite) -> Answer {
    let name = access.workspace.name();
    match access.workspace.delete().await {
        Ok(true) => {
            json_response(StatusCode::ACCEPTED, &json!({"message": "Workspace deleted successfully"}))
        }
        Ok(false) => Err(Problem::not_found(format!("Workspace {name} not found"))),
        Err(Error::Conflict(_)) => {
            let detail = format!("Cannot delete workspace {name}: it has active sessions; delete them first");
            Err(Problem::new(StatusCode::CONFLICT, "conflict", detail))
        }
        Err(error) => Err(error.into()),
    }
}
