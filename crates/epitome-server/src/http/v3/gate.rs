//! Who may do what in the workspace that a path names.
//!
//! One of our keys opens its own workspace; a token signed with the secret they share opens what it says, the narrowest
//! claim first. Whoever may not come in gets the same 401, whether what they named exists or not.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use epitome::key::{Key, Rights};
use epitome::{Workspace, is_name};

use super::found;
use super::jwt::Claims;
use super::moment::Moment;
use super::refusal::Refusal;
use crate::http::App;
use crate::http::gate::{Caller, Keys, identify, secret, unauthorized, uninvited};
use crate::http::load::Place;

/// What a caller may see and do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pass {
    rights: Rights,
    /// Only this workspace; all of them where none is named.
    workspace: Option<String>,
    /// Only this session there.
    session: Option<String>,
    /// Only this author there, and what they may read as a member.
    peer: Option<String>,
}

impl Pass {
    /// Of whoever may do everything.
    const ALL: Self = Self { rights: Rights::Admin, workspace: None, session: None, peer: None };

    fn of_key(key: &Key) -> Self {
        let workspace = key.workspace.as_ref().map(ToString::to_string);
        Self { rights: key.rights, workspace, ..Self::ALL }
    }

    fn of_claims(claims: Claims) -> Result<Self, Refusal> {
        let Claims { ad, w, p, s, .. } = claims;
        match (ad, w) {
            (true, _) => Ok(Self::ALL),
            (false, Some(w)) => Ok(Self { rights: Rights::Write, workspace: Some(w), session: s, peer: p }),
            (false, None) => Err(unauthorized("the token opens nothing").into()),
        }
    }

    /// Whether it is for whoever runs the server.
    pub(super) fn runs(&self) -> bool {
        self.rights == Rights::Admin && self.workspace.is_none()
    }

    /// The one workspace it opens, where it is only one.
    pub(super) fn only(&self) -> Option<&str> {
        self.workspace.as_deref()
    }

    /// Whether it opens a workspace at all, and whether things may be made there.
    pub(super) fn opens(&self, workspace: &str) -> bool {
        self.workspace.as_deref().is_none_or(|own| own == workspace)
    }

    /// How far it reaches in its workspace, by what is named there: the narrowest claim holds.
    fn reach(&self, session: Option<&str>, peer: Option<&str>) -> Reach<'_> {
        match (self.session.as_deref(), self.peer.as_deref()) {
            (None, None) => Reach::All,
            (Some(own), _) if session == Some(own) => Reach::All,
            (None, Some(own)) if session.is_none() && peer == Some(own) => Reach::All,
            (None, Some(own)) if session.is_some() => Reach::Member(own),
            _ => Reach::Nothing,
        }
    }

    pub(super) fn may_write(&self) -> bool {
        self.rights >= Rights::Write && self.session.is_none() && self.peer.is_none()
    }
}

/// How far a pass reaches.
enum Reach<'a> {
    /// Whatever its rights allow.
    All,
    /// What this peer may read as a member of the session.
    Member(&'a str),
    Nothing,
}

/// Who the caller is, before it is known what they want.
pub(super) async fn pass(headers: &HeaderMap, app: &App) -> Result<Pass, Refusal> {
    let sent = secret(headers);
    let ours = matches!(&sent, Ok(Some(secret)) if secret.starts_with("epk_"));
    match (&app.v3.jwt, app.keys) {
        // A program that was written for their cloud sends its key there too: whoever is not asked for one may send
        // whatever they like.
        (None, Keys::Off { loopback }) if !ours => {
            return Ok(uninvited(headers, loopback).map(|()| Pass::ALL)?);
        }
        (Some(shared), _) if !ours => {
            if let Some(token) = sent? {
                let claims = Claims::verify(&token, shared, now());
                return Pass::of_claims(claims.map_err(|why| Refusal::from(unauthorized(why)))?);
            }
        }
        _ => {}
    }
    Ok(identify(headers, app).await?.1.as_ref().map_or(Pass::ALL, Pass::of_key))
}

pub(super) fn now() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// A caller who may read what the path names.
pub(super) struct Reads(pub(super) Access);

/// A caller who may change it.
pub(super) struct Writes(pub(super) Access);

/// What the path names, and a place among the requests under way.
pub(super) struct Access {
    pub(super) workspace: Workspace,
    _place: Place,
}

impl FromRequestParts<Arc<App>> for Reads {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        access(parts, app, Rights::Read).await.map(Self)
    }
}

impl FromRequestParts<Arc<App>> for Writes {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        access(parts, app, Rights::Write).await.map(Self)
    }
}

/// A caller who names in the body what is got or made: whether they may is known once that is read.
pub(super) struct Makes {
    pub(super) access: Access,
    pass: Pass,
}

impl FromRequestParts<Arc<App>> for Makes {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        let pass = pass(&parts.headers, app).await?;
        let workspace = Named::read(parts, app).await?.workspace;
        if !pass.opens(&workspace) {
            return Err(closed());
        }
        Ok(Self { access: enter(parts, app, workspace.into())?, pass })
    }
}

impl Makes {
    /// What they may do to a session: clients get every session before they ask anything of it.
    pub(super) async fn session(&self, name: &str) -> Result<Rights, Refusal> {
        match self.pass.reach(Some(name), None) {
            Reach::All => Ok(self.pass.rights),
            Reach::Member(own) if is_member(&self.access.workspace, name, own).await? => Ok(Rights::Read),
            Reach::Member(_) | Reach::Nothing => Err(closed()),
        }
    }

    /// What they may do to a peer.
    pub(super) fn peer(&self, name: &str) -> Result<Rights, Refusal> {
        match self.pass.reach(None, Some(name)) {
            Reach::All => Ok(self.pass.rights),
            Reach::Member(_) | Reach::Nothing => Err(closed()),
        }
    }
}

/// What a path names.
struct Named {
    workspace: String,
    session: Option<String>,
    peer: Option<String>,
}

impl Named {
    async fn read(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        let Ok(params) = RawPathParams::from_request_parts(parts, app).await else {
            return Err(Refusal::not_found("there is no such path: it is not UTF-8"));
        };
        let named =
            |name: &str| params.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned());
        let Some(workspace) = named("workspace").filter(|name| is_name(name)) else {
            return Err(Refusal::not_found("there is no such workspace"));
        };
        let (session, peer) = (named("session"), named("peer"));
        for (what, name) in [("session", &session), ("peer", &peer)] {
            if name.as_deref().is_some_and(|name| !is_name(name)) {
                return Err(Refusal::no_name(what));
            }
        }
        Ok(Self { workspace, session, peer })
    }
}

fn closed() -> Refusal {
    unauthorized("this key does not open that").into()
}

/// A store in trouble is told as such: whoever is refused for good does not come again.
async fn is_member(workspace: &Workspace, session: &str, peer: &str) -> Result<bool, Refusal> {
    Ok(found(workspace.session(session).member(peer).await)?.flatten().is_some())
}

async fn access(parts: &mut Parts, app: &Arc<App>, wanted: Rights) -> Result<Access, Refusal> {
    let pass = pass(&parts.headers, app).await?;
    let Named { workspace, session, peer } = Named::read(parts, app).await?;
    if !pass.opens(&workspace) || pass.rights < wanted {
        return Err(closed());
    }
    match (pass.reach(session.as_deref(), peer.as_deref()), session) {
        (Reach::All, _) => {}
        // A member may read, and nothing else.
        (Reach::Member(own), Some(session)) if wanted == Rights::Read => {
            if !is_member(&app.engine.workspace(workspace.as_str()), &session, own).await? {
                return Err(closed());
            }
        }
        (Reach::Member(_) | Reach::Nothing, _) => return Err(closed()),
    }
    enter(parts, app, workspace.into())
}

/// Takes a place among the requests under way.
pub(super) fn enter(parts: &mut Parts, app: &Arc<App>, name: Arc<str>) -> Result<Access, Refusal> {
    let place = app.load.requests.enter(&name)?;
    parts.extensions.insert(Caller(Arc::clone(&name)));
    Ok(Access { workspace: app.engine.workspace(name), _place: place })
}

/// A caller of a route that names no workspace in its path.
pub(super) struct Enters(pub(super) Pass);

impl FromRequestParts<Arc<App>> for Enters {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        pass(&parts.headers, app).await.map(Self)
    }
}
