//! Peers: our authors.

use epitome::{AuthorRow, is_name};

use super::check::{NEW_PEER, NewIn, PUT_PEER, Put, body as read};
use super::configuration::attributes;
use super::prelude::*;
use super::sessions;

/// What a filter may ask of peers.
pub(super) const FIELDS: Fields = Fields {
    known: &["id", "peer_id", "name", "workspace_id", "metadata", "created_at"],
    id: &["peer_id", "name"],
};

/// Gives a peer, and makes it where there is none.
pub(super) async fn create(Gets(access): Gets, Body(body, _charged): Body) -> Answer {
    let NewIn { id, metadata, configuration, .. } = read(&body, &NEW_PEER)?;
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

/// Changes notes on a peer, who comes to be where there is none.
pub(super) async fn put(Writes(access): Writes, Body(body, _charged): Body) -> Answer {
    let Put { metadata, configuration } = read(&body, &PUT_PEER)?;
    let written = access.workspace.set_author(access.peer(), metadata, configuration.map(attributes)).await?;
    done(StatusCode::OK, &out::peer(access.workspace.name(), &written.now))
}

/// The workspace's peers.
pub(super) async fn list(Reads(access): Reads, pairs: Pairs, Body(body, _charged): Body) -> Answer {
    let wanted = Wanted::read(&pairs, &body, FIELDS)?;
    let (paging, workspace) = (wanted.paging, access.workspace.name().to_owned());
    let listing = wanted.listing(move |row: &AuthorRow| out::peer(&workspace, row));
    let listed = access.workspace.list_authors(listing).await?;
    page(&paging, listed.map(|author| out::peer(access.workspace.name(), &author)))
}

/// The sessions a peer belongs to.
pub(super) async fn sessions(Reads(access): Reads, pairs: Pairs, Body(body, _charged): Body) -> Answer {
    let wanted = Wanted::read(&pairs, &body, sessions::FIELDS)?;
    sessions::listed(&access, wanted, Some(access.peer().to_owned())).await
}

/// What is known of a peer: nothing, as nothing is made up about anybody here.
pub(super) async fn context(Reads(access): Reads, pairs: Pairs) -> Answer {
    let peer = access.peer();
    let target = pairs.get("target").filter(|target| !target.is_empty()).unwrap_or(peer);
    if !is_name(target) {
        return Err(no_name("target"));
    }
    let told = json!({"peer_id": peer, "target_id": target, "representation": "", "peer_card": null});
    done(StatusCode::OK, &told)
}
