//! Sessions: got or made, listed, changed, cloned, deleted.

use std::borrow::Cow;

use axum::http::StatusCode;
use axum::response::Response;
use epitome::key::Rights;
use epitome::{Fork, Listed, Listing, Membership, Notes, Session, SessionInfo};
use epitome_http::reply::done;
use serde_json::{Value, json};

use super::check::{MemberIn, NewIn, Of, Put};
use super::configuration::configure;
use super::filter::Filter;
use super::gate::{Access, Gets, Reads, Writes};
use super::list::{Wanted, noted, page};
use super::out::SessionOut;
use super::refusal::{Refusal, found, not_offered};
use super::sent::{Body, Pairs};
use super::state::Honcho;

/// The names a filter may ask for.
pub(super) const FIELDS: &[&str] =
    &["id", "session_id", "name", "peer_id", "workspace_id", "is_active", "metadata", "created_at"];

/// A session's fields by name. Of its peers only one is known, by whom the list was made.
fn field<'a>(
    info: &'a SessionInfo,
    (workspace, peer): (&str, Option<&str>),
    name: &str,
) -> Option<Cow<'a, Value>> {
    match name {
        "peer_id" => Some(Cow::Owned(peer?.into())),
        "workspace_id" => Some(Cow::Owned(workspace.into())),
        "is_active" => Some(Cow::Owned(true.into())),
        _ => noted(name, ("session_id", &info.name), &info.metadata, info.created.0),
    }
}

/// Who joins, and how.
pub(super) fn joining(members: Vec<(String, MemberIn)>) -> impl Iterator<Item = Membership> {
    members.into_iter().map(|(name, member)| {
        let said = [("observe_me", member.observe_me), ("observe_others", member.observe_others)];
        let named = said.into_iter().filter_map(|(key, said)| Some((key.to_owned(), said?.into())));
        let named: serde_json::Map<String, Value> = named.collect();
        Membership::Join(name.into(), (!named.is_empty()).then_some(named))
    })
}

/// Gives a session, and makes it where there is none. Notes that are sent replace those there, a configuration is laid
/// over what is there, and peers join.
pub(super) async fn create(Gets(access): Gets, Body(body, _charged): Body) -> Result<Response, Refusal> {
    let NewIn { id, metadata, configuration, peers } = NewIn::read(&body, Of::Session)?;
    if body.get("scopes").and_then(Value::as_array).is_some_and(|scopes| !scopes.is_empty()) {
        return Err(not_offered());
    }
    let nothing = metadata.is_none() && configuration.is_none() && peers.is_none();
    let wanted = if nothing { Rights::Read } else { Rights::Write };
    access.check((Some(&id), None), wanted).await?;
    if let Some(info) = found(access.workspace.session(id.as_str()).info().await)?.filter(|_| nothing) {
        return Ok(done(StatusCode::OK, &SessionOut::new(access.workspace.name(), &info))?);
    }
    access.check((Some(&id), None), Rights::Write).await?;
    let members = joining(peers.unwrap_or_default()).collect();
    let notes = Notes { metadata, configure: configuration.map(configure), members };
    let written = access.workspace.session(id).note(notes).await?;
    let status = if written.made { StatusCode::CREATED } else { StatusCode::OK };
    Ok(done(status, &SessionOut::new(access.workspace.name(), &written.now))?)
}

/// Changes notes on a session, which comes to be where there is none.
pub(super) async fn put(Writes(access): Writes, Body(body, _charged): Body) -> Result<Response, Refusal> {
    let Put { metadata, configuration } = Put::read(&body, Some(Of::Session))?;
    let notes = Notes { metadata, configure: configuration.map(configure), ..Notes::default() };
    let written = access.session().note(notes).await?;
    Ok(done(StatusCode::OK, &SessionOut::new(access.workspace.name(), &written.now))?)
}

/// The workspace's sessions.
pub(super) async fn list(
    Reads(access): Reads,
    pairs: Pairs,
    Body(body, _charged): Body,
) -> Result<Response, Refusal> {
    listed(&access, Wanted::read(&pairs, &body, FIELDS)?, None).await
}

/// The one peer whose sessions a filter asks for. A session has many, and a list is read by one of them at most: what else
/// is asked of them is refused, since no answer would be right.
fn of_peer(filter: &Filter) -> Result<Option<String>, Refusal> {
    match (filter.mentions("peer_id"), filter.must_equal("peer_id")) {
        (0, _) => Ok(None),
        (1, Some(peer)) => Ok(Some(peer.to_owned())),
        _ => Err(Refusal::unfit(
            "filters: sessions are found by one `peer_id` at most, which they must have: {\"peer_id\": \"ann\"}, alone or \
             beside other fields, but in no OR, NOT or list, and with no other operator",
        )),
    }
}

/// A page of sessions; only those a peer belongs to, where one is named.
pub(super) async fn listed(
    access: &Access,
    wanted: Wanted,
    peer: Option<String>,
) -> Result<Response, Refusal> {
    let paging = wanted.paging;
    let peer = match (peer, of_peer(&wanted.filter)?) {
        (Some(peer), Some(other)) if peer != other => {
            return Err(Refusal::unfit(
                "filters: these are one peer's sessions; `peer_id` can name nobody else",
            ));
        }
        (peer, asked) => peer.or(asked),
    };
    let (workspace, member) = (access.workspace.name().to_owned(), peer.clone());
    let listing = wanted
        .listing(move |info: &SessionInfo, name: &str| field(info, (&workspace, peer.as_deref()), name));
    let Listed { items, total } = access.workspace.list_sessions(member.as_deref(), listing).await?;
    let items = items.iter().map(|info| SessionOut::new(access.workspace.name(), info)).collect();
    page(&paging, Listed { items, total })
}

/// Deletes a session with all that was made from it. Nobody sees it any more when this answers.
pub(super) async fn delete(Writes(access): Writes) -> Result<Response, Refusal> {
    match access.session().delete().await? {
        true => Ok(done(StatusCode::ACCEPTED, &json!({"message": "Session deleted successfully"}))?),
        false => Err(Refusal::no_session(access.session_name(), access.workspace.name())),
    }
}

/// A copy of a session, up to a message or whole, under a name of its own.
pub(super) async fn clone(Writes(access): Writes, pairs: Pairs) -> Result<Response, Refusal> {
    let missing = || Refusal::no_session(access.session_name(), access.workspace.name());
    let (app, session) = (&access.app, access.session());
    let Some(info) = found(session.info().await)? else { return Err(missing()) };
    let ids = app.ids().await?;
    let at = match pairs.get("message_id").filter(|id| !id.is_empty()) {
        None => None,
        Some(id) => {
            let seq = ids.mark(info.id).seq(id).filter(|seq| (1..=info.messages).contains(seq));
            Some(seq.ok_or_else(|| Refusal::no_message(id))?)
        }
    };
    // It may be deleted while it is copied.
    let copied = copy(app, &session, &info, ids.fresh(), at).await?.ok_or_else(missing)?;
    Ok(done(StatusCode::CREATED, &SessionOut::new(access.workspace.name(), &copied.info().await?))?)
}

async fn copy(
    app: &Honcho,
    session: &Session,
    info: &SessionInfo,
    name: String,
    at: Option<u64>,
) -> Result<Option<Session>, Refusal> {
    let metadata = Some(info.metadata.clone());
    if info.messages > 0 {
        let _turn = app.load.fork().await;
        return found(session.fork(Fork { at, metadata, ..Fork::whole(name) }).await);
    }
    // Nothing was said in it yet: there are only notes and members to take over.
    let mut members = Vec::new();
    loop {
        let next = Listing { skip: members.len() as u64, limit: 1_000, ..Listing::default() };
        let next = session.list_members(next).await?.items;
        if next.is_empty() {
            break;
        }
        let joins = next.into_iter().map(|row| Membership::Join(row.author.name, Some(row.configuration)));
        members.extend(joins);
    }
    let configure = Some(configure(info.configuration.clone()));
    let copied = session.beside(name);
    copied.note(Notes { metadata, configure, members }).await?;
    Ok(Some(copied))
}
