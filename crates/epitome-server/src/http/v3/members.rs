//! Which peers belong to a session, and how.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use epitome::{Listed, MemberRow, Membership, Notes};
use serde_json::json;

use super::check::{MemberIn, MembersIn, NamesIn};
use super::gate::{Access, Reads, Writes};
use super::list::{Wanted, noted, page};
use super::out::{PeerOut, SessionOut};
use super::peers::FIELDS;
use super::refusal::Refusal;
use super::sent::{Body, Pairs};
use super::{found, sessions::joining};
use crate::http::reply::done;

/// Peers join a session, which comes to be where there is none.
pub(super) async fn add(
    Writes(access): Writes,
    Path((_, name)): Path<(String, String)>,
    Body(body, _charged): Body,
) -> Result<Response, Refusal> {
    let MembersIn(members) = MembersIn::read(&body)?;
    change(&access, name, joining(members).collect()).await
}

/// These are a session's peers from now on, and no others.
pub(super) async fn set(
    Writes(access): Writes,
    Path((_, name)): Path<(String, String)>,
    Body(body, _charged): Body,
) -> Result<Response, Refusal> {
    let MembersIn(members) = MembersIn::read(&body)?;
    let members = [Membership::LeaveAll].into_iter().chain(joining(members)).collect();
    change(&access, name, members).await
}

/// Peers leave a session.
pub(super) async fn remove(
    Writes(access): Writes,
    Path((_, name)): Path<(String, String)>,
    Body(body, _charged): Body,
) -> Result<Response, Refusal> {
    let NamesIn(names) = NamesIn::read(&body)?;
    if found(access.workspace.session(name.as_str()).stamp().await)?.is_none() {
        return Err(Refusal::no_session(&name, access.workspace.name()));
    }
    change(&access, name, names.into_iter().map(|name| Membership::Leave(name.into())).collect()).await
}

async fn change(access: &Access, name: String, members: Vec<Membership>) -> Result<Response, Refusal> {
    let notes = Notes { members, ..Notes::default() };
    let written = access.workspace.session(name).note(notes).await?;
    Ok(done(StatusCode::OK, &SessionOut::new(access.workspace.name(), &written.now))?)
}

/// A session's peers.
pub(super) async fn list(
    Reads(access): Reads,
    Path((_, name)): Path<(String, String)>,
    pairs: Pairs,
) -> Result<Response, Refusal> {
    let wanted = Wanted::read(&pairs, &serde_json::Value::Null, FIELDS)?;
    let paging = wanted.paging;
    let listing = wanted.listing(|row: &MemberRow, name: &str| {
        noted(name, ("peer_id", &row.author.name), &row.author.metadata, row.author.created.0)
    });
    let members = found(access.workspace.session(name).list_members(listing).await)?.unwrap_or_default();
    let Listed { items, total } = &members;
    let items = items.iter().map(|member| PeerOut::new(access.workspace.name(), &member.author)).collect();
    page(&paging, Listed { items, total: *total })
}

/// How a peer belongs to a session.
pub(super) async fn look(
    Reads(access): Reads,
    Path((_, session, peer)): Path<(String, String, String)>,
) -> Result<Response, Refusal> {
    let member = found(access.workspace.session(session.as_str()).member(&peer).await)?.flatten();
    let Some(MemberRow { configuration, .. }) = member else {
        return Err(Refusal::not_found(format!("Peer {peer} not found in session {session}")));
    };
    let said = |key: &str| configuration.get(key).cloned().unwrap_or_default();
    let told = json!({"observe_me": said("observe_me"), "observe_others": said("observe_others")});
    Ok(done(StatusCode::OK, &told)?)
}

/// Sets how a peer belongs to a session: what is named.
pub(super) async fn put(
    Writes(access): Writes,
    Path((_, session, peer)): Path<(String, String, String)>,
    Body(body, _charged): Body,
) -> Result<Response, Refusal> {
    let member = MemberIn::read(&body)?;
    let members = joining(vec![(peer, member)]).collect();
    access.workspace.session(session).note(Notes { members, ..Notes::default() }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
