//! Authorizes requests to the workspace that a path names.
//!
//! An Epitome key grants access to its own workspace. A token signed with the shared secret grants access to what it
//! claims, the narrowest claim first. A caller without access gets the same 401, whether the named thing exists or not.
//!
//! If such a secret is configured, every caller needs a token or a key, on any address: the secret means that tokens
//! are required, as in Honcho. The native routes depend on `server.require_keys` alone.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use epitome::key::{Key, Rights};
use epitome::{Session, Workspace, is_name};
use epitome_http::Problem;
use epitome_http::gate::{Keys, WANTED, enter, identify, secret, unauthorized, uninvited};
use epitome_http::load::Share;

use super::jwt::Claims;
use super::moment::Moment;
use super::refusal::{found, no_name};
use super::state::Honcho;

/// What a caller may see and do.
#[derive(Debug)]
pub(super) struct Pass {
    rights: Rights,
    /// The only workspace; `None` for all.
    pub(super) workspace: Option<String>,
    /// The only session in the workspace, if set.
    session: Option<String>,
    /// The only author in the workspace, if set, with read access to the author's sessions.
    peer: Option<String>,
}

impl Pass {
    /// Access to everything.
    const ALL: Self = Self { rights: Rights::Admin, workspace: None, session: None, peer: None };

    fn of_key(key: &Key) -> Self {
        let workspace = key.workspace.as_ref().map(ToString::to_string);
        Self { rights: key.rights, workspace, ..Self::ALL }
    }

    fn of_claims(claims: Claims) -> Result<Self, Problem> {
        let Claims { ad, w, p, s, .. } = claims;
        match (ad, w) {
            (true, _) => Ok(Self::ALL),
            (false, Some(w)) => Ok(Self { rights: Rights::Write, workspace: Some(w), session: s, peer: p }),
            (false, None) => Err(unauthorized("the token grants no access")),
        }
    }

    /// Returns whether the caller operates the server.
    pub(super) fn runs(&self) -> bool {
        self.rights == Rights::Admin && self.workspace.is_none()
    }

    /// Returns whether access is limited to a session or a peer of a workspace.
    pub(super) fn is_narrow(&self) -> bool {
        self.session.is_some() || self.peer.is_some()
    }

    /// Returns whether it grants access to a workspace, or to something in it.
    pub(super) fn opens(&self, workspace: &str) -> bool {
        self.workspace.as_deref().is_none_or(|own| own == workspace)
    }

    /// Returns whether the caller may create a workspace, or change one as a whole.
    pub(super) fn may_write(&self) -> bool {
        self.rights >= Rights::Write && !self.is_narrow()
    }

    /// Refuses a caller without this right.
    async fn check(&self, workspace: &Workspace, about: About<'_>, wanted: Rights) -> Result<(), Problem> {
        let (session, peer) = about;
        let refused = || unauthorized("this key grants no access to that");
        if !self.opens(workspace.name()) || self.rights < wanted {
            return Err(refused());
        }
        match (&self.session, &self.peer) {
            (None, None) => Ok(()),
            (Some(own), _) if session == Some(own) => Ok(()),
            (None, Some(own)) if peer == Some(own) && session.is_none() => Ok(()),
            // A member may only read.
            (None, Some(own)) if wanted == Rights::Read => {
                let session = workspace.session(session.ok_or_else(refused)?);
                // A store error is returned as such, because a client does not repeat a request that got a 401.
                let member = found(session.member(own).await)?.flatten();
                member.map(drop).ok_or_else(refused)
            }
            _ => Err(refused()),
        }
    }
}

/// The session and the peer that a request is about.
type About<'a> = (Option<&'a str>, Option<&'a str>);

/// Returns what the caller may access, before the requested right is checked.
pub(super) async fn pass(headers: &HeaderMap, app: &Honcho) -> Result<Pass, Problem> {
    let sent = secret(headers);
    let ours = matches!(&sent, Ok(Some(secret)) if secret.starts_with("epk_"));
    match (&app.jwt, app.keys) {
        // A program that was written for Honcho's cloud always sends a key. Where no key is required, any key but
        // Epitome's is ignored.
        (None, Keys::Off { loopback }) if !ours => {
            return uninvited(headers, loopback).map(|()| Pass::ALL);
        }
        (Some(shared), _) if !ours => {
            let token = sent?.ok_or_else(|| unauthorized(WANTED))?;
            let claims = Claims::verify(&token, shared, now());
            return Pass::of_claims(claims.map_err(unauthorized)?);
        }
        _ => {}
    }
    Ok(identify(headers, app).await?.1.as_ref().map_or(Pass::ALL, Pass::of_key))
}

pub(super) fn now() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// What the path names, and a permit for a running request.
pub(super) struct Access {
    pub(super) app: Arc<Honcho>,
    pub(super) workspace: Workspace,
    path: RawPathParams,
    pass: Pass,
    _place: Share,
}

impl Access {
    /// Returns the path parameter of this name; empty on a path without it.
    pub(super) fn named(&self, name: &str) -> &str {
        named(&self.path, name).unwrap_or_default()
    }

    /// Returns the session that the path names.
    pub(super) fn session(&self) -> Session {
        self.workspace.session(self.named("session"))
    }

    /// Refuses a caller who may not read, or not write, this session or this peer of the workspace.
    pub(super) async fn check(&self, about: About<'_>, wanted: Rights) -> Result<(), Problem> {
        self.pass.check(&self.workspace, about, wanted).await
    }
}

/// A caller who may read what the path names, or change it.
pub(super) struct May<const WRITE: bool>(pub(super) Access);

pub(super) type Reads = May<false>;
pub(super) type Writes = May<true>;

impl<const WRITE: bool> FromRequestParts<Arc<Honcho>> for May<WRITE> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<Honcho>) -> Result<Self, Problem> {
        let wanted = if WRITE { Rights::Write } else { Rights::Read };
        access(parts, app, Some(wanted)).await.map(Self)
    }
}

/// A caller who may get or create what the body names. Which right that needs depends on the body.
pub(super) struct Gets(pub(super) Access);

impl FromRequestParts<Arc<Honcho>> for Gets {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<Honcho>) -> Result<Self, Problem> {
        access(parts, app, None).await.map(Self)
    }
}

/// Authorizes a caller who has the right `wanted` on what the path names. `None` accepts any access to its workspace,
/// because the right depends on the body.
async fn access(parts: &mut Parts, app: &Arc<Honcho>, wanted: Option<Rights>) -> Result<Access, Problem> {
    let pass = pass(&parts.headers, app).await?;
    let Ok(path) = RawPathParams::from_request_parts(parts, app).await else {
        return Err(Problem::not_found("invalid path: it is not UTF-8"));
    };
    let Some(name) = named(&path, "workspace").filter(|name| is_name(name)) else {
        return Err(Problem::not_found("there is no such workspace"));
    };
    for what in ["session", "peer"] {
        if named(&path, what).is_some_and(|name| !is_name(name)) {
            return Err(no_name(what));
        }
    }
    let about = (named(&path, "session"), named(&path, "peer"));
    match wanted {
        Some(wanted) => pass.check(&app.engine.workspace(name), about, wanted).await?,
        None if pass.opens(name) => {}
        None => return Err(unauthorized("this key grants no access to that")),
    }
    let (workspace, place) = enter(parts, app, name.into())?;
    Ok(Access { app: Arc::clone(app), workspace, path, pass, _place: place })
}

fn named<'a>(path: &'a RawPathParams, name: &str) -> Option<&'a str> {
    path.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// A caller of a route that names no workspace in its path.
pub(super) struct Enters(pub(super) Pass);

impl FromRequestParts<Arc<Honcho>> for Enters {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<Honcho>) -> Result<Self, Problem> {
        pass(&parts.headers, app).await.map(Self)
    }
}
