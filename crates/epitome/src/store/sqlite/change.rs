//! Changing a session, with what the writer remembers of it.

use super::super::change::{more, repeat, standing, write};
use super::super::changes::{Changes, Decide, Load, Standing};
use super::super::directory::Membership;
use super::super::rows::{SessionId, SessionKey};
use super::error::Outcome;
use super::lent::Lent;

/// Reads, asks, writes. Gives the session's number; none when nothing was wanted.
pub(super) async fn change(
    ask: &mut Lent<'_>,
    key: &SessionKey,
    load: &Load,
    decide: &Decide,
) -> Outcome<Option<SessionId>> {
    let known = ask.known;
    let standing = match known.take(key, ask.now) {
        Some(remembered) => {
            let this = with_more(ask, remembered, load).await?;
            debug_assert!(same(&this, &standing(ask, key, load, "").await?), "what is known is not so");
            this
        }
        None => standing(ask, key, load, "").await?,
    };
    let changes = decide(&standing);
    let written = match &changes {
        Some(changes) => Some(write_with(ask, key, &standing, changes).await?),
        None => None,
    };
    known.keep(key, standing, changes);
    Ok(written)
}

/// What is remembered of a session, with what else was asked for.
async fn with_more(ask: &mut Lent<'_>, mut standing: Standing, load: &Load) -> Outcome<Standing> {
    if let (Some(asked), Some(session)) = (&load.idempotency, &standing.session) {
        standing.repeat = repeat(ask, session.id, asked, standing.now).await?;
    }
    more(ask, &mut standing, load).await?;
    Ok(standing)
}

/// Whether two readings of a session say the same.
fn same(one: &Standing, two: &Standing) -> bool {
    one.workspace_settings == two.workspace_settings && one.session == two.session && one.slots == two.slots
}

/// Most messages are by somebody who is known to belong to the session.
async fn write_with(
    ask: &mut Lent<'_>,
    key: &SessionKey,
    standing: &Standing,
    changes: &Changes,
) -> Outcome<SessionId> {
    let (known, session) = (ask.known, standing.session.as_ref().map(|session| session.id));
    let is_known = |change: &Membership| match (change, session) {
        (Membership::Join(name, None), Some(id)) => known.is_member(id, name),
        _ => false,
    };
    let joins = changes.members.iter().all(|change| matches!(change, Membership::Join(..)));
    let members: Vec<&Membership> =
        changes.members.iter().filter(|change| !(joins && is_known(change))).collect();
    let id = write(ask, key, standing, changes, &members).await?;
    for change in members {
        match change {
            Membership::Join(name, _) if joins => known.keep_member(id, name),
            _ => known.forget_members(),
        }
    }
    Ok(id)
}
