//! Sessions: get or create, list, change, clone, delete.

use epitome::{Fork, Listing, Membership, SessionInfo, Update};

use super::configuration::{attributes, configure, stored};
use super::prelude::*;
use super::validate::{NEW_SESSION, NewIn, PUT, Put, body as read};

/// The fields of sessions that a filter may use.
pub(super) const FIELDS: FilterFields = FilterFields {
    allowed: &["id", "session_id", "name", "peer_id", "workspace_id", "is_active", "metadata", "created_at"],
    id_aliases: &["session_id", "name"],
};

/// Converts the peers of a request, with their settings, into changes to a session's members.
pub(super) fn joins(members: Map<String, Value>) -> impl Iterator<Item = Membership> {
    members.into_iter().map(|(name, config)| {
        let config = config.as_object().filter(|config| !config.is_empty());
        Membership::Join(name.into(), config.cloned().map(attributes))
    })
}

/// Returns a session. Creates the session if it does not exist. Sent metadata replaces the stored metadata. A sent
/// configuration is merged into the stored configuration. Sent peers become members of the session.
pub(super) async fn create(CanGetOrCreate(access): CanGetOrCreate, Body(body, _memory): Body) -> Answer {
    let NewIn { id, metadata, configuration, peers } = read(&body, NEW_SESSION)?;
    if body.get("scopes").and_then(Value::as_array).is_some_and(|scopes| !scopes.is_empty()) {
        return Err(not_offered());
    }
    let is_read = metadata.is_none() && configuration.is_none() && peers.is_none();
    let required = if is_read { Rights::Read } else { Rights::Write };
    access.require((Some(&id), None), required).await?;
    if let Some(info) = existing(access.workspace.session(id.as_str()).info().await)?.filter(|_| is_read) {
        return json_response(StatusCode::OK, &wire::session(access.workspace.name(), &info));
    }
    access.require((Some(&id), None), Rights::Write).await?;
    let members = joins(peers.unwrap_or_default()).collect();
    let notes = Update { metadata, attributes: configuration.map(configure), members };
    let written = access.workspace.session(id).update(notes).await?;
    let status = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    json_response(status, &wire::session(access.workspace.name(), &written.value))
}

/// Changes the metadata and the configuration of a session. Creates the session if it does not exist.
pub(super) async fn put(Authorized(access): CanWrite, Body(body, _memory): Body) -> Answer {
    let Put { metadata, configuration } = read(&body, PUT)?;
    let notes = Update { metadata, attributes: configuration.map(configure), ..Update::default() };
    let written = access.session().update(notes).await?;
    json_response(StatusCode::OK, &wire::session(access.workspace.name(), &written.value))
}

/// Lists the workspace's sessions.
pub(super) async fn list(
    Authorized(access): CanRead,
    params: QueryParams,
    Body(body, _memory): Body,
) -> Answer {
    listed(&access, ListRequest::parse(&params, &body, FIELDS)?, None).await
}

/// Returns the peer whose sessions a filter selects; `None` if the filter has no condition on peers. The store can list
/// the sessions of one peer, or all sessions. Every other condition on peers is refused, because the answer would be
/// wrong.
fn of_peer(filter: &Filter) -> Result<Option<String>, Problem> {
    match (filter.mentions("peer_id"), filter.must_equal("peer_id")) {
        (0, _) => Ok(None),
        (1, Some(peer)) => Ok(Some(peer.to_owned())),
        _ => Err(unprocessable(
            "filters.peer_id: sessions can be filtered by one peer, as in {\"peer_id\": \"ann\"}; conditions on other \
             fields may be added; do not use this condition in OR, in NOT or with an operator",
        )),
    }
}

/// Returns a page of sessions. If `peer` is set, lists only the sessions of this peer.
pub(super) async fn listed(access: &Access, request: ListRequest, peer: Option<String>) -> Answer {
    let paging = request.paging;
    let peer = match (peer, of_peer(&request.filter)?) {
        (Some(peer), Some(other)) if peer != other => {
            return Err(unprocessable(
                "filters.peer_id: this route lists the sessions of one peer; remove this condition",
            ));
        }
        (peer, filtered) => peer.or(filtered),
    };
    let (workspace, member) = (access.workspace.name().to_owned(), peer.clone());
    let listing = request.listing(move |info: &SessionInfo| {
        let mut shown = wire::session(&workspace, info);
        // The filter sees only the peer whose sessions are listed. The other peers of a session are not read.
        if let (Some(fields), Some(peer)) = (shown.as_object_mut(), &peer) {
            fields.insert("peer_id".to_owned(), peer.as_str().into());
        }
        shown
    });
    let listed = access.workspace.list_sessions(member.as_deref(), listing).await?;
    page_response(&paging, listed.map(|info| wire::session(access.workspace.name(), &info)))
}

/// Deletes a session with all data that was derived from it. When the response is sent, the session is no longer
/// visible.
pub(super) async fn delete(Authorized(access): CanWrite) -> Answer {
    match access.session().delete().await? {
        true => json_response(StatusCode::ACCEPTED, &json!({"message": "Session deleted successfully"})),
        false => Err(session_not_found(access.path_param("session"), access.workspace.name())),
    }
}

/// Copies a session under a new name. Copies all messages, or the messages up to the message `message_id`.
pub(super) async fn clone(Authorized(access): CanWrite, params: QueryParams) -> Answer {
    let missing = || session_not_found(access.path_param("session"), access.workspace.name());
    let (app, session) = (&access.app, access.session());
    let Some(info) = existing(session.info().await)? else { return Err(missing()) };
    let ids = app.ids().await?;
    let at = match params.get("message_id").filter(|id| !id.is_empty()) {
        None => None,
        Some(id) => {
            let seq = ids.prefix(info.id).seq(id).filter(|seq| (1..=info.messages).contains(seq));
            Some(seq.ok_or_else(|| message_not_found(id))?)
        }
    };
    // The session may be deleted while it is copied.
    let copied = copy(app, &session, &info, ids.new_session_name(), at).await?.ok_or_else(missing)?;
    json_response(StatusCode::CREATED, &wire::session(access.workspace.name(), &copied.info().await?))
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
        let _turn = app.permits.forks.acquire().await;
        return existing(session.fork(Fork { at, metadata, ..Fork::whole(name) }).await);
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
    let copied = session.sibling(name);
    copied.update(Update { metadata, attributes, members }).await?;
    Ok(Some(copied))
}
