//! Peers, which are Epitome's authors, and their membership in sessions.

use axum::response::IntoResponse;
use epitome::{AuthorRow, MemberRow, Membership, Notes, is_name};

use super::check::{NEW_PEER, NewIn, PUT_PEER, Put, body as read};
use super::configuration::{attributes, stored};
use super::prelude::*;
use super::sessions;
use super::sessions::joining;

/// The fields of peers that a filter may use.
pub(super) const FIELDS: Fields = Fields {
    known: &["id", "peer_id", "name", "workspace_id", "metadata", "created_at"],
    id: &["peer_id", "name"],
};

/// Returns a peer, and creates it if it does not exist.
pub(super) async fn create(Gets(access): Gets, Body(body, _charged): Body) -> Answer {
    let NewIn { id, metadata, configuration, .. } = read(&body, NEW_PEER)?;
    let nothing = metadata.is_none() && configuration.is_none();
    let wanted = if nothing { Rights::Read } else { Rights::Write };
    access.check((None, Some(&id)), wanted).await?;
    if let Some(author) = access.workspace.author(&id).await?.filter(|_| nothing) {
        return done(StatusCode::OK, &out::peer(access.workspace.name(), &author));
    }
    access.check((None, Some(&id)), Rights::Write).await?;
    let written = access.workspace.set_author(&id, metadata, configuration.map(attributes)).await?;
    let status = if written.made { StatusCode::CREATED } else { StatusCode::OK };
    done(status, &out::peer(access.workspace.name(), &written.now))
}

/// Changes the metadata and the configuration of a peer, and creates it if it does not exist.
pub(super) async fn put(May(access): Writes, Body(body, _charged): Body) -> Answer {
    let Put { metadata, configuration } = read(&body, PUT_PEER)?;
    let written =
        access.workspace.set_author(access.named("peer"), metadata, configuration.map(attributes)).await?;
    done(StatusCode::OK, &out::peer(access.workspace.name(), &written.now))
}

/// Lists the workspace's peers.
pub(super) async fn list(May(access): Reads, pairs: Pairs, Body(body, _charged): Body) -> Answer {
    let wanted = Wanted::read(&pairs, &body, FIELDS)?;
    let (paging, workspace) = (wanted.paging, access.workspace.name().to_owned());
    let listing = wanted.listing(move |row: &AuthorRow| out::peer(&workspace, row));
    let listed = access.workspace.list_authors(listing).await?;
    page(&paging, listed.map(|author| out::peer(access.workspace.name(), &author)))
}

/// Lists the sessions in which a peer is a member.
pub(super) async fn sessions(May(access): Reads, pairs: Pairs, Body(body, _charged): Body) -> Answer {
    let wanted = Wanted::read(&pairs, &body, sessions::FIELDS)?;
    sessions::listed(&access, wanted, Some(access.named("peer").to_owned())).await
}

/// Returns the context of a peer, which is empty: Epitome derives nothing about people.
pub(super) async fn context(May(access): Reads, pairs: Pairs) -> Answer {
    let peer = access.named("peer");
    let target = pairs.get("target").filter(|target| !target.is_empty()).unwrap_or(peer);
    if !is_name(target) {
        return Err(no_name("target"));
    }
    let told = json!({"peer_id": peer, "target_id": target, "representation": "", "peer_card": null});
    done(StatusCode::OK, &told)
}

/// Adds peers to a session, and creates the session if it does not exist.
pub(super) async fn add(May(access): Writes, Body(body, _charged): Body) -> Answer {
    change(&access, joining(read(&body, check::members)?).collect()).await
}

/// Replaces the peers of a session.
pub(super) async fn set(May(access): Writes, Body(body, _charged): Body) -> Answer {
    let joining = joining(read(&body, check::members)?);
    change(&access, [Membership::LeaveAll].into_iter().chain(joining).collect()).await
}

/// Removes peers from a session.
pub(super) async fn remove(May(access): Writes, Body(body, _charged): Body) -> Answer {
    let names = read(&body, check::names)?;
    if found(access.session().stamp().await)?.is_none() {
        return Err(no_session(access.named("session"), access.workspace.name()));
    }
    change(&access, names.into_iter().map(|name| Membership::Leave(name.into())).collect()).await
}

async fn change(access: &Access, members: Vec<Membership>) -> Answer {
    let notes = Notes { members, ..Notes::default() };
    let written = access.session().note(notes).await?;
    done(StatusCode::OK, &out::session(access.workspace.name(), &written.now))
}

/// Lists a session's peers.
pub(super) async fn members(May(access): Reads, pairs: Pairs) -> Answer {
    let wanted = Wanted::read(&pairs, &serde_json::Value::Null, FIELDS)?;
    let (paging, workspace) = (wanted.paging, access.workspace.name().to_owned());
    let listing = wanted.listing(move |row: &MemberRow| out::peer(&workspace, &row.author));
    let listed = found(access.session().list_members(listing).await)?.unwrap_or_default();
    page(&paging, listed.map(|member| out::peer(access.workspace.name(), &member.author)))
}

/// Returns the settings of a peer's membership in a session.
pub(super) async fn look(May(access): Reads) -> Answer {
    let (session, peer) = (access.named("session"), access.named("peer"));
    let member = found(access.session().member(peer).await)?.flatten();
    let Some(MemberRow { attributes, .. }) = member else {
        return Err(Problem::not_found(format!("Peer {peer} not found in session {session}")));
    };
    let configuration = stored(&attributes);
    let said = |key: &str| configuration.get(key).cloned().unwrap_or_default();
    let told = json!({"observe_me": said("observe_me"), "observe_others": said("observe_others")});
    done(StatusCode::OK, &told)
}

/// Changes the settings of a peer's membership in a session. Settings that are not sent stay.
pub(super) async fn put_member(May(access): Writes, Body(body, _charged): Body) -> Answer {
    let how = read(&body, check::member)?;
    let members = joining(Map::from_iter([(access.named("peer").to_owned(), how)])).collect();
    access.session().note(Notes { members, ..Notes::default() }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
