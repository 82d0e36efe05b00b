//! Workspaces: get or create, list, change, delete.

use axum::extract::State;
use axum::http::request::Parts;
use epitome::{Error, Listed, Listing, Notes};
use epitome_http::gate::{enter, unauthorized};

use super::check::{NEW_WORKSPACE, NewIn, PUT, Put, body as read};
use super::configuration::configure;
use super::prelude::*;

/// The fields of workspaces that a filter may use.
const FIELDS: Fields = Fields {
    known: &["id", "workspace_id", "name", "metadata", "created_at"],
    id: &["workspace_id", "name"],
};

/// Returns a workspace, and creates it if it does not exist. Every client calls this first.
pub(super) async fn create(
    State(app): State<Arc<Honcho>>,
    Enters(pass): Enters,
    mut parts: Parts,
    Body(body, _charged): Body,
) -> Answer {
    let NewIn { id, metadata, configuration, .. } = read(&body, NEW_WORKSPACE)?;
    if !pass.opens(&id) {
        return Err(unauthorized("this key grants no access to that"));
    }
    let (workspace, _place) = enter(&mut parts, &app, id.into())?;
    let nothing = metadata.is_none() && configuration.is_none();
    if let Some(info) = workspace.info().await?.filter(|_| nothing) {
        return done(StatusCode::OK, &out::workspace(&info));
    }
    if !pass.may_write() {
        return Err(unauthorized("this key may only read"));
    }
    let notes = Notes { metadata, attributes: configuration.map(configure), ..Notes::default() };
    let written = workspace.note(notes).await?;
    let status = if written.made { StatusCode::CREATED } else { StatusCode::OK };
    done(status, &out::workspace(&written.now))
}

/// Changes the metadata and the configuration of a workspace.
pub(super) async fn put(May(access): Writes, Body(body, _charged): Body) -> Answer {
    let Put { metadata, configuration } = read(&body, PUT)?;
    let notes = Notes { metadata, attributes: configuration.map(configure), ..Notes::default() };
    let written = access.workspace.note(notes).await?;
    done(StatusCode::OK, &out::workspace(&written.now))
}

/// Lists workspaces: all of them for an operator, only their own for other callers. A token for a session or a peer
/// alone cannot read the metadata of a workspace.
pub(super) async fn list(
    State(app): State<Arc<Honcho>>,
    Enters(pass): Enters,
    pairs: Pairs,
    Body(body, _charged): Body,
) -> Answer {
    if pass.is_narrow() {
        return Err(unauthorized("this key grants no access to that"));
    }
    let wanted = Wanted::read(&pairs, &body, FIELDS)?;
    let paging = wanted.paging;
    let listing = wanted.listing(out::workspace);
    let listed = match pass.workspace {
        None if !pass.runs() => Listed::default(),
        None => app.engine.list_workspaces(listing).await?,
        Some(own) => {
            // With a filter, even one that matches everything, `total` counts the workspace on every page.
            let keep = listing.keep.or_else(|| Some(Box::new(|_| true)));
            app.engine.list_workspaces(Listing { keep, name: Some(own.into()), ..listing }).await?
        }
    };
    page(&paging, listed.map(|row| out::workspace(&row)))
}

/// Deletes a workspace without sessions.
pub(super) async fn delete(May(access): Writes) -> Answer {
    let name = access.workspace.name();
    match access.workspace.delete().await {
        Ok(true) => done(StatusCode::ACCEPTED, &json!({"message": "Workspace deleted successfully"})),
        Ok(false) => Err(Problem::not_found(format!("Workspace {name} not found"))),
        Err(Error::Conflict(_)) => {
            let detail = format!("Cannot delete workspace {name}: it has active sessions; delete them first");
            Err(Problem::new(StatusCode::CONFLICT, "conflict", detail))
        }
        Err(error) => Err(error.into()),
    }
}
