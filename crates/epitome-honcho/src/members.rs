//! Which peers belong to a session, and how.

use axum::response::IntoResponse;
use epitome::{MemberRow, Membership, Notes};

use super::configuration::stored;
use super::peers::FIELDS;
use super::prelude::*;
use super::sessions::joining;

/// Peers join a session, which comes to be where there is none.
pub(super) async fn add(Writes(access): Writes, Body(body, _charged): Body) -> Answer {
    change(&access, joining(check::body(&body, &check::MEMBERS)?).collect()).await
}

/// These are a session's peers from now on, and no others.
pub(super) async fn set(Writes(access): Writes, Body(body, _charged): Body) -> Answer {
    let joining = joining(check::body(&body, &check::MEMBERS)?);
    change(&access, [Membership::LeaveAll].into_iter().chain(joining).collect()).await
}

/// Peers leave a session.
pub(super) async fn remove(Writes(access): Writes, Body(body, _charged): Body) -> Answer {
    let names: Vec<String> = check::body(&body, &check::NAMES)?;
    if found(access.session().stamp().await)?.is_none() {
        return Err(no_session(access.session_name(), access.workspace.name()));
    }
    change(&access, names.into_iter().map(|name| Membership::Leave(name.into())).collect()).await
}

async fn change(access: &Access, members: Vec<Membership>) -> Answer {
    let notes = Notes { members, ..Notes::default() };
    let written = access.session().note(notes).await?;
    done(StatusCode::OK, &out::session(access.workspace.name(), &written.now))
}

/// A session's peers.
pub(super) async fn list(Reads(access): Reads, pairs: Pairs) -> Answer {
    let wanted = Wanted::read(&pairs, &serde_json::Value::Null, FIELDS)?;
    let (paging, workspace) = (wanted.paging, access.workspace.name().to_owned());
    let listing = wanted.listing(move |row: &MemberRow| out::peer(&workspace, &row.author));
    let listed = found(access.session().list_members(listing).await)?.unwrap_or_default();
    page(&paging, listed.map(|member| out::peer(access.workspace.name(), &member.author)))
}

/// How a peer belongs to a session.
pub(super) async fn look(Reads(access): Reads) -> Answer {
    let (session, peer) = (access.session_name(), access.peer());
    let member = found(access.session().member(peer).await)?.flatten();
    let Some(MemberRow { attributes, .. }) = member else {
        return Err(Problem::not_found(format!("Peer {peer} not found in session {session}")));
    };
    let configuration = stored(&attributes);
    let said = |key: &str| configuration.get(key).cloned().unwrap_or_default();
    let told = json!({"observe_me": said("observe_me"), "observe_others": said("observe_others")});
    done(StatusCode::OK, &told)
}

/// Sets how a peer belongs to a session: what is named.
pub(super) async fn put(Writes(access): Writes, Body(body, _charged): Body) -> Answer {
    let how = check::body(&body, &check::MEMBER)?;
    let members = joining(Map::from_iter([(access.peer().to_owned(), how)])).collect();
    access.session().note(Notes { members, ..Notes::default() }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
