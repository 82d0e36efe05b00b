//! Peers, and their membership in sessions. A peer of Honcho is an author of Epitome.

use axum::response::IntoResponse;
use epitome::{AuthorRow, MemberRow, Membership, Update, is_name};

use super::configuration::{attributes, stored};
use super::prelude::*;
use super::sessions;
use super::sessions::joins;
use super::validate::{NEW_PEER, NewIn, PUT_PEER, Put, body as read};

/// The fields of peers that a filter may use.
pub(super) const FIELDS: FilterFields = FilterFields {
    allowed: &["id", "peer_id", "name", "workspace_id", "metadata", "created_at"],
    id_aliases: &["peer_id", "name"],
};

/// Returns a peer. Creates the peer if it does not exist.
pub(super) async fn create(CanGetOrCreate(access): CanGetOrCreate, Body(body, _memory): Body) -> Answer {
    let NewIn { id, metadata, configuration, .. } = read(&body, NEW_PEER)?;
    let is_read = metadata.is_none() && configuration.is_none();
    let required = if is_read { Rights::Read } else { Rights::Write };
    access.require((None, Some(&id)), required).await?;
    if let Some(author) = access.workspace.author(&id).await?.filter(|_| is_read) {
        return json_response(StatusCode::OK, &wire::peer(access.workspace.name(), &author));
    }
    access.require((None, Some(&id)), Rights::Write).await?;
    let written = access.workspace.set_author(&id, metadata, configuration.map(attributes)).await?;
    let status = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    json_response(status, &wire::peer(access.workspace.name(), &written.value))
}

/// Changes the metadata and the configuration of a peer. Creates the peer if it does not exist.
pub(super) async fn put(Authorized(access): CanWrite, Body(body, _memory): Body) -> Answer {
    let Put { metadata, configuration } = read(&body, PUT_PEER)?;
    let written = access
        .workspace
        .set_author(access.path_param("peer"), metadata, configuration.map(attributes))
        .await?;
    json_response(StatusCode::OK, &wire::peer(access.workspace.name(), &written.value))
}

/// Lists the workspace's peers.
pub(super) async fn list(
    Authorized(access): CanRead,
    params: QueryParams,
    Body(body, _memory): Body,
) -> Answer {
    let request = ListRequest::parse(&params, &body, FIELDS)?;
    let (paging, workspace) = (request.paging, access.workspace.name().to_owned());
    let listing = request.listing(move |row: &AuthorRow| wire::peer(&workspace, row));
    let listed = access.workspace.list_authors(listing).await?;
    page_response(&paging, listed.map(|author| wire::peer(access.workspace.name(), &author)))
}

/// Lists the sessions in which a peer is a member.
pub(super) async fn sessions(
    Authorized(access): CanRead,
    params: QueryParams,
    Body(body, _memory): Body,
) -> Answer {
    let request = ListRequest::parse(&params, &body, sessions::FIELDS)?;
    sessions::listed(&access, request, Some(access.path_param("peer").to_owned())).await
}

/// Returns the context of a peer. This context is always empty, because Epitome derives no facts about people.
pub(super) async fn context(Authorized(access): CanRead, params: QueryParams) -> Answer {
    let peer = access.path_param("peer");
    let target = params.get("target").filter(|target| !target.is_empty()).unwrap_or(peer);
    if !is_name(target) {
        return Err(invalid_name("target"));
    }
    let body = json!({"peer_id": peer, "target_id": target, "representation": "", "peer_card": null});
    json_response(StatusCode::OK, &body)
}

/// Adds peers to a session. Creates the session if it does not exist.
pub(super) async fn add(Authorized(access): CanWrite, Body(body, _memory): Body) -> Answer {
    change(&access, joins(read(&body, validate::members)?).collect()).await
}

/// Replaces the peers of a session.
pub(super) async fn set(Authorized(access): CanWrite, Body(body, _memory): Body) -> Answer {
    let joins = joins(read(&body, validate::members)?);
    change(&access, [Membership::LeaveAll].into_iter().chain(joins).collect()).await
}

/// Removes peers from a session.
pub(super) async fn remove(Authorized(access): CanWrite, Body(body, _memory): Body) -> Answer {
    let names = read(&body, validate::names)?;
    if existing(access.session().stamp().await)?.is_none() {
        return Err(session_not_found(access.path_param("session"), access.workspace.name()));
    }
    change(&access, names.into_iter().map(|name| Membership::Leave(name.into())).collect()).await
}

async fn change(access: &Access, members: Vec<Membership>) -> Answer {
    let notes = Update { members, ..Update::default() };
    let written = access.session().update(notes).await?;
    json_response(StatusCode::OK, &wire::session(access.workspace.name(), &written.value))
}

/// Lists a session's peers.
pub(super) async fn members(Authorized(access): CanRead, params: QueryParams) -> Answer {
    let request = ListRequest::parse(&params, &serde_json::Value::Null, FIELDS)?;
    let (paging, workspace) = (request.paging, access.workspace.name().to_owned());
    let listing = request.listing(move |row: &MemberRow| wire::peer(&workspace, &row.author));
    let listed = existing(access.session().list_members(listing).await)?.unwrap_or_default();
    page_response(&paging, listed.map(|member| wire::peer(access.workspace.name(), &member.author)))
}

/// Returns the settings of a peer's membership in a session.
pub(super) async fn member(Authorized(access): CanRead) -> Answer {
    let (session, peer) = (access.path_param("session"), access.path_param("peer"));
    let member = existing(access.session().member(peer).await)?.flatten();
    let Some(MemberRow { attributes, .. }) = member else {
        return Err(Problem::not_found(format!("Peer {peer} not found in session {session}")));
    };
    let configuration = stored(&attributes);
    let setting = |key: &str| configuration.get(key).cloned().unwrap_or_default();
    let body = json!({"observe_me": setting("observe_me"), "observe_others": setting("observe_others")});
    json_response(StatusCode::OK, &body)
}

/// Changes the settings of a peer's membership in a session. Settings that the request does not contain stay unchanged.
pub(super) async fn put_member(Authorized(access): CanWrite, Body(body, _memory): Body) -> Answer {
    let config = read(&body, validate::member)?;
    let members = joins(Map::from_iter([(access.path_param("peer").to_owned(), config)])).collect();
    access.session().update(Update { members, ..Update::default() }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
