//! Authorizes requests to the workspace that a path names.
//!
//! An Epitome key grants access to its own workspace. A token signed with the shared secret grants access to what it
//! claims, the narrowest claim first. A caller without access gets the same 401, whether the named thing exists or not.
//!
//! If such a secret is configured, every caller needs a token or a key, on any address. As in Honcho, the secret means
//! that tokens are required. The native routes depend on `server.require_keys` alone.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use epitome::key::{Key, Rights};
use epitome::{Session, Workspace, is_name};
use epitome_http::Problem;
use epitome_http::auth::{
    KEY_REQUIRED, Keys, bearer_token, identify, open_workspace, refuse_cross_site, unauthorized,
};
use epitome_http::permits::Permit;

use super::error::{existing, invalid_name};
use super::iso_time::IsoTime;
use super::jwt::Claims;
use super::state::Honcho;

/// What a caller may read and change.
#[derive(Debug)]
pub(super) struct Grant {
    rights: Rights,
    /// The only workspace; `None` for all.
    pub(super) workspace: Option<String>,
    /// The only session in the workspace, if set.
    session: Option<String>,
    /// The only author in the workspace, if set, with read access to the author's sessions.
    peer: Option<String>,
}

impl Grant {
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
            (false, None) => {
                Err(unauthorized("the token grants no access: it has neither the claim `ad` nor `w`"))
            }
        }
    }

    /// Returns whether the caller operates the server.
    pub(super) fn is_operator(&self) -> bool {
        self.rights == Rights::Admin && self.workspace.is_none()
    }

    /// Returns whether access is limited to a session or a peer of a workspace.
    pub(super) fn is_limited(&self) -> bool {
        self.session.is_some() || self.peer.is_some()
    }

    /// Returns whether it grants access to a workspace, or to something in it.
    pub(super) fn allows(&self, workspace: &str) -> bool {
        self.workspace.as_deref().is_none_or(|own| own == workspace)
    }

    /// Returns whether the caller may create a workspace, or change one as a whole.
    pub(super) fn can_change_workspace(&self) -> bool {
        self.rights >= Rights::Write && !self.is_limited()
    }

    /// Refuses a caller without this right.
    async fn require(
        &self,
        workspace: &Workspace,
        target: Target<'_>,
        required: Rights,
    ) -> Result<(), Problem> {
        let (session, peer) = target;
        let refused = no_access;
        if !self.allows(workspace.name()) || self.rights < required {
            return Err(refused());
        }
        match (&self.session, &self.peer) {
            (None, None) => Ok(()),
            (Some(own), _) if session == Some(own) => Ok(()),
            (None, Some(own)) if peer == Some(own) && session.is_none() => Ok(()),
            // A member may only read.
            (None, Some(own)) if required == Rights::Read => {
                let session = workspace.session(session.ok_or_else(refused)?);
                // A store error is returned as such, because a client does not repeat a request that got a 401.
                let member = existing(session.member(own).await)?.flatten();
                member.map(drop).ok_or_else(refused)
            }
            _ => Err(refused()),
        }
    }
}

/// The session and the peer that a request is about.
type Target<'a> = (Option<&'a str>, Option<&'a str>);

/// Error of every caller without access, whether the named thing exists or not.
pub(super) fn no_access() -> Problem {
    unauthorized(
        "this key does not allow this; use a key for this workspace, session or peer, with the needed right",
    )
}

/// Returns what the caller may access. The caller of this function checks the required right.
pub(super) async fn authorize(headers: &HeaderMap, app: &Honcho) -> Result<Grant, Problem> {
    let token = bearer_token(headers);
    let is_own_key = matches!(&token, Ok(Some(secret)) if secret.starts_with("epk_"));
    match (&app.jwt, app.keys) {
        // A program that was written for Honcho's cloud always sends a key. Where no key is required, any key but
        // Epitome's is ignored.
        (None, Keys::Off { loopback }) if !is_own_key => {
            return refuse_cross_site(headers, loopback).map(|()| Grant::ALL);
        }
        (Some(shared), _) if !is_own_key => {
            let token = token?.ok_or_else(|| unauthorized(KEY_REQUIRED))?;
            let claims = Claims::verify(&token, shared, now());
            return Grant::of_claims(claims.map_err(unauthorized)?);
        }
        _ => {}
    }
    Ok(identify(headers, app).await?.1.as_ref().map_or(Grant::ALL, Grant::of_key))
}

/// Returns the current time.
pub(super) fn now() -> IsoTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    IsoTime(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// What the path names, and a permit for a running request.
pub(super) struct Access {
    pub(super) app: Arc<Honcho>,
    pub(super) workspace: Workspace,
    path: RawPathParams,
    grant: Grant,
    _permit: Permit,
}

impl Access {
    /// Returns the path parameter of this name; empty on a path without it.
    pub(super) fn path_param(&self, name: &str) -> &str {
        path_param(&self.path, name).unwrap_or_default()
    }

    /// Returns the session that the path names.
    pub(super) fn session(&self) -> Session {
        self.workspace.session(self.path_param("session"))
    }

    /// Refuses a caller who may not read, or not write, this session or this peer of the workspace.
    pub(super) async fn require(&self, target: Target<'_>, required: Rights) -> Result<(), Problem> {
        self.grant.require(&self.workspace, target, required).await
    }
}

/// A caller who may read what the path names, or change it.
pub(super) struct Authorized<const WRITE: bool>(pub(super) Access);

pub(super) type CanRead = Authorized<false>;
pub(super) type CanWrite = Authorized<true>;

impl<const WRITE: bool> FromRequestParts<Arc<Honcho>> for Authorized<WRITE> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<Honcho>) -> Result<Self, Problem> {
        let required = if WRITE { Rights::Write } else { Rights::Read };
        access(parts, app, Some(required)).await.map(Self)
    }
}

/// A caller who may get or create what the body names. The required right depends on the body.
pub(super) struct CanGetOrCreate(pub(super) Access);

impl FromRequestParts<Arc<Honcho>> for CanGetOrCreate {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<Honcho>) -> Result<Self, Problem> {
        access(parts, app, None).await.map(Self)
    }
}

/// Authorizes a caller who has the right `required` on what the path names. `None` accepts any access to its workspace,
/// because the right depends on the body.
async fn access(parts: &mut Parts, app: &Arc<Honcho>, required: Option<Rights>) -> Result<Access, Problem> {
    let grant = authorize(&parts.headers, app).await?;
    let Ok(path) = RawPathParams::from_request_parts(parts, app).await else {
        return Err(Problem::not_found("the path is not UTF-8; percent-encode names as UTF-8"));
    };
    let Some(name) = path_param(&path, "workspace").filter(|name| is_name(name)) else {
        return Err(Problem::not_found("workspace: a name has 1 to 512 bytes and no control characters"));
    };
    for param in ["session", "peer"] {
        if path_param(&path, param).is_some_and(|name| !is_name(name)) {
            return Err(invalid_name(param));
        }
    }
    let target = (path_param(&path, "session"), path_param(&path, "peer"));
    match required {
        Some(required) => grant.require(&app.engine.workspace(name), target, required).await?,
        None if grant.allows(name) => {}
        None => return Err(no_access()),
    }
    let (workspace, permit) = open_workspace(parts, app, name.into())?;
    Ok(Access { app: Arc::clone(app), workspace, path, grant, _permit: permit })
}

fn path_param<'a>(path: &'a RawPathParams, name: &str) -> Option<&'a str> {
    path.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// A caller of a route that names no workspace in its path.
pub(super) struct AnyCaller(pub(super) Grant);

impl FromRequestParts<Arc<Honcho>> for AnyCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<Honcho>) -> Result<Self, Problem> {
        authorize(&parts.headers, app).await.map(Self)
    }
}
