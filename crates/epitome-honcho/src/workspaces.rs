//! Workspaces: got or made, listed, changed, deleted.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use epitome::{Error, Listed, Notes, WorkspaceInfo, WorkspaceRow};
use epitome_http::gate::unauthorized;
use epitome_http::reply::done;
use serde_json::json;

use super::check::{NewIn, Of, Put};
use super::configuration::configure;
use super::gate::{Enters, Named, Writes, enter};
use super::list::{Wanted, noted, page};
use super::out::WorkspaceOut;
use super::refusal::Refusal;
use super::sent::{Body, Pairs};
use super::state::Honcho;

/// Gives a workspace, and makes it where there is none. Every client asks for this first.
pub(super) async fn create(
    State(app): State<Arc<Honcho>>,
    Enters(pass): Enters,
    mut parts: Parts,
    Body(body, _charged): Body,
) -> Result<Response, Refusal> {
    let NewIn { id, metadata, configuration, .. } = NewIn::read(&body, Of::Workspace)?;
    if !pass.opens(&id) {
        return Err(unauthorized("this key does not open that").into());
    }
    let named = Named::workspace(id);
    let access = enter(&mut parts, &app, named, pass.clone())?;
    let nothing = metadata.is_none() && configuration.is_none();
    if let Some(info) = access.workspace.info().await?.filter(|_| nothing) {
        return Ok(done(StatusCode::OK, &WorkspaceOut::from(&info))?);
    }
    if !pass.may_write() {
        return Err(unauthorized("this key may only read").into());
    }
    let notes = Notes { metadata, configure: configuration.map(configure), ..Notes::default() };
    let written = access.workspace.note(notes).await?;
    let status = if written.made { StatusCode::CREATED } else { StatusCode::OK };
    Ok(done(status, &WorkspaceOut::from(&written.now))?)
}

/// Changes notes on a workspace.
pub(super) async fn put(Writes(access): Writes, Body(body, _charged): Body) -> Result<Response, Refusal> {
    let Put { metadata, configuration } = Put::read(&body, Some(Of::Workspace))?;
    let notes = Notes { metadata, configure: configuration.map(configure), ..Notes::default() };
    let written = access.workspace.note(notes).await?;
    Ok(done(StatusCode::OK, &WorkspaceOut::from(&written.now))?)
}

/// The workspaces there are: all of them for whoever runs the server, their own for others. What is for a session or a peer
/// alone opens no notes on a workspace.
pub(super) async fn list(
    State(app): State<Arc<Honcho>>,
    Enters(pass): Enters,
    pairs: Pairs,
    Body(body, _charged): Body,
) -> Result<Response, Refusal> {
    if pass.is_narrow() {
        return Err(unauthorized("this key does not open that").into());
    }
    let wanted = Wanted::read(&pairs, &body, &["id", "workspace_id", "name", "metadata", "created_at"])?;
    let paging = wanted.paging;
    let mut listing = wanted.listing(|row: &WorkspaceRow, name: &str| {
        noted(name, ("workspace_id", &row.name), &row.metadata, row.created.0)
    });
    let listed = match pass.only() {
        None if pass.runs() => app.engine.list_workspaces(listing).await?,
        None => Listed::default(),
        Some(own) => {
            let info = app.engine.workspace(own).info().await?;
            let row = |info: &WorkspaceInfo| WorkspaceRow {
                name: Arc::clone(&info.name),
                metadata: info.metadata.clone(),
                created: info.created,
                ..WorkspaceRow::default()
            };
            let keep = listing.keep.take();
            let mut listed = Listed::default();
            if let Some(info) = info.filter(|info| keep.is_none_or(|keep| keep(&row(info)))) {
                listed.take(info, listing.skip, listing.limit);
            }
            listed
        }
    };
    let Listed { items, total } = &listed;
    page(&paging, Listed { items: items.iter().map(WorkspaceOut::from).collect(), total: *total })
}

/// Deletes a workspace without sessions.
pub(super) async fn delete(Writes(access): Writes) -> Result<Response, Refusal> {
    let name = access.workspace.name();
    match access.workspace.delete().await {
        Ok(true) => Ok(done(StatusCode::ACCEPTED, &json!({"message": "Workspace deleted successfully"}))?),
        Ok(false) => Err(Refusal::not_found(format!("Workspace {name} not found"))),
        Err(Error::Conflict(_)) => {
            let detail = format!("Cannot delete workspace {name}: it has active sessions; delete them first");
            Err(Refusal::told(StatusCode::CONFLICT, "conflict", detail))
        }
        Err(error) => Err(error.into()),
    }
}
