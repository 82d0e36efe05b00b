//! Sessions: got or made, listed, changed, cloned, deleted.

use epitome::{Fork, Listing, Membership, Notes, SessionInfo};

use super::check::{NEW_SESSION, NewIn, PUT, Put, body as read};
use super::configuration::{attributes, configure, stored};
use super::prelude::*;

/// What a filter may ask of sessions.
pub(super) const FIELDS: Fields = Fields {
    known: &["id", "session_id", "name", "peer_id", "workspace_id", "is_active", "metadata", "created_at"],
    id: &["session_id", "name"],
};

/// Who joins, and how.
pub(super) fn joining(members: Map<String, Value>) -> impl Iterator<Item = Membership> {
    members.into_iter().map(|(name, how)| {
        let how = how.as_object().filter(|how| !how.is_empty());
        Membership::Join(name.into(), how.cloned().map(attributes))
    })
}

/// Gives a session, and makes it where there is none. Notes that are sent replace those there, a configuration is laid
/// over what is there, and peers join.
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

/// Changes notes on a session, which comes to be where there is none.
pub(super) async fn put(May(access): Writes, Body(body, _charged): Body) -> Answer {
    let Put { metadata, configuration } = read(&body, PUT)?;
    let notes = Notes { metadata, attributes: configuration.map(configure), ..Notes::default() };
    let written = access.session().note(notes).await?;
    done(StatusCode::OK, &out::session(access.workspace.name(), &written.now))
}

/// The workspace's sessions.
pub(super) async fn list(May(access): Reads, pairs: Pairs, Body(body, _charged): Body) -> Answer {
    listed(&access, Wanted::read(&pairs, &body, FIELDS)?, None).await
}

/// The one peer whose sessions a filter asks for. A session has many, and a list is read by one of them at most: what else
/// is asked of them is refused, since no answer would be right.
fn of_peer(filter: &Filter) -> Result<Option<String>, Problem> {
    match (filter.mentions("peer_id"), filter.must_equal("peer_id")) {
        (0, _) => Ok(None),
        (1, Some(peer)) => Ok(Some(peer.to_owned())),
        _ => Err(unfit(
            "filters: sessions are found by one `peer_id` at most, which they must have: {\"peer_id\": \"ann\"}, alone or \
             beside other fields, but in no OR, NOT or list, and with no other operator",
        )),
    }
}

/// A page of sessions; only those a peer belongs to, where one is named.
pub(super) async fn listed(access: &Access, wanted: Wanted, peer: Option<String>) -> Answer {
    let paging = wanted.paging;
    let peer = match (peer, of_peer(&wanted.filter)?) {
        (Some(peer), Some(other)) if peer != other => {
            return Err(unfit("filters: these are one peer's sessions; `peer_id` can name nobody else"));
        }
        (peer, asked) => peer.or(asked),
    };
    let (workspace, member) = (access.workspace.name().to_owned(), peer.clone());
    let listing = wanted.listing(move |info: &SessionInfo| {
        let mut shown = out::session(&workspace, info);
        // Of its peers only one is known, by whom the list is made.
        if let (Some(fields), Some(peer)) = (shown.as_object_mut(), &peer) {
            fields.insert("peer_id".to_owned(), peer.as_str().into());
        }
        shown
    });
    let listed = access.workspace.list_sessions(member.as_deref(), listing).await?;
    page(&paging, listed.map(|info| out::session(access.workspace.name(), &info)))
}

/// Deletes a session with all that was made from it. Nobody sees it any more when this answers.
pub(super) async fn delete(May(access): Writes) -> Answer {
    match access.session().delete().await? {
        true => done(StatusCode::ACCEPTED, &json!({"message": "Session deleted successfully"})),
        false => Err(no_session(access.named("session"), access.workspace.name())),
    }
}

/// A copy of a session, up to a message or whole, under a name of its own.
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
    // It may be deleted while it is copied.
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
    // Nothing was said in it yet: there are only notes and members to take over.
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
