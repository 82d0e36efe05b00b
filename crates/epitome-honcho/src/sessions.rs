//! Sessions: get or create, list, change, clone, delete.

use epitome::{Fork, Listing, Membership, Notes, SessionInfo};

use super::check::{NEW_SESSION, NewIn, PUT, Put, body as read};
use super::configuration::{attributes, configure, stored};
use super::prelude::*;

/// The fields of sessions that a filter may use.
pub(super) const FIELDS: Fields = Fields {
    known: &["id", "session_id", "name", "peer_id", "workspace_id", "is_active", "metadata", "created_at"],
    id: &["session_id", "name"],
};

/// Returns which peers join, with their settings.
pub(super) fn joining(members: Map<String, Value>) -> impl Iterator<Item = Membership> {
    members.into_iter().map(|(name, how)| {
        let how = how.as_object().filter(|how| !how.is_empty());
        Membership::Join(name.into(), how.cloned().map(attributes))
    })
}

/// Returns a session, and creates it if it does not exist. Metadata that is sent replaces the stored metadata, a
/// configuration is merged into the stored one, and peers join.
pub(super) async fn create(Gets(access): Gets, Body(body, _charged): Body) -> Answer {
    let NewIn { id, metadata, configuration, peers } = read(&body, NEW_SESSION)?;
    if body.get("scopes").and_then(Value::as_array).is_some_and(|scopes| !scopes.is_empty()) {
        return Err(not_offered());
    }
    let nothing = metadata.is_none() && configuration.is_none() && peers.is_none();
    let wanted = if nothing { Rights::Read } else { Rights::Write };
    access.check((Some(&id), None), wanted).await?;
    if let Some(info) = found(access.workspace.session(id.as_str()).info().await)?.filter(|_| nothing) {
        return done(StatusCode::OK, &out::session(access.workspace.name(), &info));
    }
    access.check((Some(&id), None), Rights::Write).await?;
    let members = joining(peers.unwrap_or_default()).collect();
    let notes = Notes { metadata, attributes: configuration.map(configure), members };
    let written = access.workspace.session(id).note(notes).await?;
    let status = if written.made { StatusCode::CREATED } else { StatusCode::OK };
    done(status, &out::session(access.workspace.name(), &written.now))
}

/// Changes the metadata and the configuration of a session, and creates it if it does not exist.
pub(super) async fn put(May(access): Writes, Body(body, _charged): Body) -> Answer {
    let Put { metadata, configuration } = read(&body, PUT)?;
    let notes = Notes { metadata, attributes: configuration.map(configure), ..Notes::default() };
    let written = access.session().note(notes).await?;
    done(StatusCode::OK, &out::session(access.workspace.name(), &written.now))
}

/// Lists the workspace's sessions.
pub(super) async fn list(May(access): Reads, pairs: Pairs, Body(body, _charged): Body) -> Answer {
    listed(&access, Wanted::read(&pairs, &body, FIELDS)?, None).await
}

/// Returns the one peer whose sessions a filter selects. A session has many peers, but a list is read for at most one
/// of them. Other conditions on peers are refused, because no answer would be right.
fn of_peer(filter: &Filter) -> Result<Option<String>, Problem> {
    match (filter.mentions("peer_id"), filter.must_equal("peer_id")) {
        (0, _) => Ok(None),
        (1, Some(peer)) => Ok(Some(peer.to_owned())),
        _ => Err(unfit(
            "filters: sessions can be filtered by one `peer_id`, for equality: {\"peer_id\": \"ann\"}, alone or with other \
             fields, but not in OR, NOT or a list, and with no other operator",
        )),
    }
}

/// Returns a page of sessions, only those of a peer if one is named.
pub(super) async fn listed(access: &Access, wanted: Wanted, peer: Option<String>) -> Answer {
    let paging = wanted.paging;
    let peer = match (peer, of_peer(&wanted.filter)?) {
        (Some(peer), Some(other)) if peer != other => {
            return Err(unfit("filters: these are one peer's sessions; `peer_id` cannot name another"));
        }
        (peer, asked) => peer.or(asked),
    };
    let (workspace, member) = (access.workspace.name().to_owned(), peer.clone());
    let listing = wanted.listing(move |info: &SessionInfo| {
        let mut shown = out::session(&workspace, info);
        // Only the peer for which the list is read is available here, not all peers of the session.
        if let (Some(fields), Some(peer)) = (shown.as_object_mut(), &peer) {
            fields.insert("peer_id".to_owned(), peer.as_str().into());
        }
        shown
    });
    let listed = access.workspace.list_sessions(member.as_deref(), listing).await?;
    page(&paging, listed.map(|info| out::session(access.workspace.name(), &info)))
}

/// Deletes a session with everything that was made from it. It is no longer visible when this answers.
pub(super) async fn delete(May(access): Writes) -> Answer {
    match access.session().delete().await? {
        true => done(StatusCode::ACCEPTED, &json!({"message": "Session deleted successfully"})),
        false => Err(no_session(access.named("session"), access.workspace.name())),
    }
}

/// Copies a session, up to a message or all of it, under a new name.
pub(super) async fn clone(May(access): Writes, pairs: Pairs) -> Answer {
    let missing = || no_session(access.named("session"), access.workspace.name());
    let (app, session) = (&access.app, access.session());
    let Some(info) = found(session.info().await)? else { return Err(missing()) };
    let ids = app.ids().await?;
    let at = match pairs.get("message_id").filter(|id| !id.is_empty()) {
        None => None,
        Some(id) => {
            let seq = ids.mark(info.id).seq(id).filter(|seq| (1..=info.messages).contains(seq));
            Some(seq.ok_or_else(|| no_message(id))?)
        }
    };
    // The session may be deleted while it is copied.
    let copied = copy(app, &session, &info, ids.fresh(), at).await?.ok_or_else(missing)?;
    done(StatusCode::CREATED, &out::session(access.workspace.name(), &copied.info().await?))
}

async fn copy(
    app: &Honcho,
    session: &Session,
    info: &SessionInfo,
    name: String,
    at: Option<u64>,
) -> Result<Option<Session>, Problem> {
    let metadata = Some(info.metadata.clone());
    if info.messages > 0 {
        let _turn = app.load.forks.acquire().await;
        return found(session.fork(Fork { at, metadata, ..Fork::whole(name) }).await);
    }
    // The session has no messages, so only metadata, configuration and members are copied.
    let mut members = Vec::new();
    loop {
        let next = Listing { skip: members.len() as u64, limit: 1_000, ..Listing::default() };
        let next = session.list_members(next).await?.items;
        if next.is_empty() {
            break;
        }
        let joins = next.into_iter().map(|row| Membership::Join(row.author.name, Some(row.attributes)));
        members.extend(joins);
    }
    let attributes = Some(configure(stored(&info.attributes).into_owned()));
    let copied = session.beside(name);
    copied.note(Notes { metadata, attributes, members }).await?;
    Ok(Some(copied))
}
