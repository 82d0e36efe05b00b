//! Peers: our authors.

use axum::http::StatusCode;
use axum::response::Response;
use epitome::key::Rights;
use epitome::{AuthorRow, Listed, is_name};
use epitome_http::reply::done;
use serde_json::json;

use super::check::{NewIn, Of, Put};
use super::gate::{Gets, Reads, Writes};
use super::list::{Wanted, noted, page};
use super::out::PeerOut;
use super::refusal::Refusal;
use super::sent::{Body, Pairs};
use super::sessions;

/// The names a filter may ask for.
pub(super) const FIELDS: &[&str] = &["id", "peer_id", "name", "workspace_id", "metadata", "created_at"];

/// Gives a peer, and makes it where there is none.
pub(super) async fn create(Gets(access): Gets, Body(body, _charged): Body) -> Result<Response, Refusal> {
    let NewIn { id, metadata, configuration, .. } = NewIn::read(&body, Of::Peer)?;
    let nothing = metadata.is_none() && configuration.is_none();
    let wanted = if nothing { Rights::Read } else { Rights::Write };
    access.check((None, Some(&id)), wanted).await?;
    if let Some(author) = access.workspace.author(&id).await?.filter(|_| nothing) {
        return Ok(done(StatusCode::OK, &PeerOut::new(access.workspace.name(), &author))?);
    }
    access.check((None, Some(&id)), Rights::Write).await?;
    let written = access.workspace.set_author(&id, metadata, configuration).await?;
    let status = if written.made { StatusCode::CREATED } else { StatusCode::OK };
    Ok(done(status, &PeerOut::new(access.workspace.name(), &written.now))?)
}

/// Changes notes on a peer, who comes to be where there is none.
pub(super) async fn put(Writes(access): Writes, Body(body, _charged): Body) -> Result<Response, Refusal> {
    let Put { metadata, configuration } = Put::read(&body, Some(Of::Peer))?;
    let written = access.workspace.set_author(access.peer(), metadata, configuration).await?;
    Ok(done(StatusCode::OK, &PeerOut::new(access.workspace.name(), &written.now))?)
}

/// The workspace's peers.
pub(super) async fn list(
    Reads(access): Reads,
    pairs: Pairs,
    Body(body, _charged): Body,
) -> Result<Response, Refusal> {
    let wanted = Wanted::read(&pairs, &body, FIELDS)?;
    let (paging, workspace) = (wanted.paging, access.workspace.name().to_owned());
    let listing = wanted.listing(move |row: &AuthorRow, name: &str| match name {
        "workspace_id" => Some(std::borrow::Cow::Owned(workspace.as_str().into())),
        _ => noted(name, ("peer_id", &row.name), &row.metadata, row.created.0),
    });
    let Listed { items, total } = access.workspace.list_authors(listing).await?;
    let items = items.iter().map(|author| PeerOut::new(access.workspace.name(), author)).collect();
    page(&paging, Listed { items, total })
}

/// The sessions a peer belongs to.
pub(super) async fn sessions(
    Reads(access): Reads,
    pairs: Pairs,
    Body(body, _charged): Body,
) -> Result<Response, Refusal> {
    let wanted = Wanted::read(&pairs, &body, sessions::FIELDS)?;
    sessions::listed(&access, wanted, Some(access.peer().to_owned())).await
}

/// What is known of a peer: nothing, as nothing is made up about anybody here.
pub(super) async fn context(Reads(access): Reads, pairs: Pairs) -> Result<Response, Refusal> {
    let peer = access.peer();
    let target = pairs.get("target").filter(|target| !target.is_empty()).unwrap_or(peer);
    if !is_name(target) {
        return Err(Refusal::no_name("target"));
    }
    let told = json!({"peer_id": peer, "target_id": target, "representation": "", "peer_card": null});
    Ok(done(StatusCode::OK, &told)?)
}
