//! Which peers belong to a session, and how.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use epitome::{Listed, MemberRow, Membership, Notes};
use epitome_http::reply::done;
use serde_json::json;

use super::check;
use super::gate::{Access, Reads, Writes};
use super::list::{Wanted, noted, page};
use super::out::{PeerOut, SessionOut};
use super::peers::FIELDS;
use super::refusal::{Refusal, found};
use super::sent::{Body, Pairs};
use super::sessions::joining;

/// Peers join a session, which comes to be where there is none.
pub(super) async fn add(Writes(access): Writes, Body(body, _charged): Body) -> Result<Response, Refusal> {
    change(&access, joining(check::members(&body)?).collect()).await
}

/// These are a session's peers from now on, and no others.
pub(super) async fn set(Writes(access): Writes, Body(body, _charged): Body) -> Result<Response, Refusal> {
    let joining = joining(check::members(&body)?);
    change(&access, [Membership::LeaveAll].into_iter().chain(joining).collect()).await
}

/// Peers leave a session.
pub(super) async fn remove(Writes(access): Writes, Body(body, _charged): Body) -> Result<Response, Refusal> {
    let names = check::names(&body)?;
    if found(access.session().stamp().await)?.is_none() {
        return Err(Refusal::no_session(access.session_name(), access.workspace.name()));
    }
    change(&access, names.into_iter().map(|name| Membership::Leave(name.into())).collect()).await
}

async fn change(access: &Access, members: Vec<Membership>) -> Result<Response, Refusal> {
    let notes = Notes { members, ..Notes::default() };
    let written = access.session().note(notes).await?;
    Ok(done(StatusCode::OK, &SessionOut::new(access.workspace.name(), &written.now))?)
}

/// A session's peers.
pub(super) async fn list(Reads(access): Reads, pairs: Pairs) -> Result<Response, Refusal> {
    let wanted = Wanted::read(&pairs, &serde_json::Value::Null, FIELDS)?;
    let paging = wanted.paging;
    let listing = wanted.listing(|row: &MemberRow, name: &str| {
        noted(name, ("peer_id", &row.author.name), &row.author.metadata, row.author.created.0)
    });
    let members = found(access.session().list_members(listing).await)?.unwrap_or_default();
    let Listed { items, total } = &members;
    let items = items.iter().map(|member| PeerOut::new(access.workspace.name(), &member.author)).collect();
    page(&paging, Listed { items, total: *total })
}

/// How a peer belongs to a session.
pub(super) async fn look(Reads(access): Reads) -> Result<Response, Refusal> {
    let (session, peer) = (access.session_name(), access.peer());
    let member = found(access.session().member(peer).await)?.flatten();
    let Some(MemberRow { configuration, .. }) = member else {
        return Err(Refusal::not_found(format!("Peer {peer} not found in session {session}")));
    };
    let said = |key: &str| configuration.get(key).cloned().unwrap_or_default();
    let told = json!({"observe_me": said("observe_me"), "observe_others": said("observe_others")});
    Ok(done(StatusCode::OK, &told)?)
}

/// Sets how a peer belongs to a session: what is named.
pub(super) async fn put(Writes(access): Writes, Body(body, _charged): Body) -> Result<Response, Refusal> {
    let members = joining(vec![(access.peer().to_owned(), check::member(&body)?)]).collect();
    access.session().note(Notes { members, ..Notes::default() }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
