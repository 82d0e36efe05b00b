//! Authorizes requests to Honcho's routes.
//!
//! An Epitome key grants access to the key's own workspace. A token of Honcho must be signed with the configured
//! secret. A token with the claim `ad` grants access to everything. Any other token grants access to the narrowest
//! resource that it names: a session, otherwise a peer, otherwise a workspace. A caller without access to a resource
//! gets a 401 response. The response is the same whether the resource exists or not.
//!
//! If a secret for tokens is configured, Honcho's routes require a token or a key on every address. The reason is that
//! Honcho also requires tokens if it has a secret. For the native routes, only the setting `server.require_keys`
//! decides whether keys are required.

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
    /// The only workspace that the caller may use; `None` for all workspaces.
    pub(super) workspace: Option<String>,
    /// The only session that the caller may use; `None` if the caller is not limited to one session.
    session: Option<String>,
    /// The only peer that the caller may use; `None` if the caller is not limited to one peer. The caller may also read
    /// the sessions of this peer.
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

    /// Returns whether the caller has the rights of the server's operator.
    pub(super) fn is_operator(&self) -> bool {
        self.rights == Rights::Admin && self.workspace.is_none()
    }

    /// Returns whether access is limited to a session or a peer of a workspace.
    pub(super) fn is_limited(&self) -> bool {
        self.session.is_some() || self.peer.is_some()
    }

    /// Returns whether the caller may use a workspace or a part of the workspace.
    pub(super) fn allows(&self, workspace: &str) -> bool {
        self.workspace.as_deref().is_none_or(|own| own == workspace)
    }

    /// Returns whether the caller may create a workspace, or change a workspace as a whole.
    pub(super) fn can_change_workspace(&self) -> bool {
        self.rights >= Rights::Write && !self.is_limited()
    }

    /// Returns an error unless the caller has the right `required` for the target.
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
            // A caller that is limited to a peer may read the sessions of which the peer is a member.
            (None, Some(own)) if required == Rights::Read => {
                let session = workspace.session(session.ok_or_else(refused)?);
                // An error of the store is not reported as a 401, because a client does not retry after a 401.
                let member = existing(session.member(own).await)?.flatten();
                member.map(drop).ok_or_else(refused)
            }
            _ => Err(refused()),
        }
    }
}

/// The session and the peer that a request names.
type Target<'a> = (Option<&'a str>, Option<&'a str>);

/// Returns the error for a caller without access. The error does not show whether the requested resource exists.
pub(super) fn no_access() -> Problem {
    unauthorized(
        "this key does not allow this request; use a key for this workspace, session or peer, with the required right",
    )
}

/// Returns what the caller may read and change. The code that calls this function checks the required right.
pub(super) async fn authorize(headers: &HeaderMap, app: &Honcho) -> Result<Grant, Problem> {
    let token = bearer_token(headers);
    let is_own_key = matches!(&token, Ok(Some(secret)) if secret.starts_with("epk_"));
    match (&app.jwt, app.keys) {
        // A program that was written for Honcho's cloud service always sends a key. If this server requires no key, it
        // ignores every key that is not one of Epitome's own.
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

/// An authorized request: the resources that its path names, and its permit.
pub(super) struct Access {
    pub(super) app: Arc<Honcho>,
    pub(super) workspace: Workspace,
    path: RawPathParams,
    grant: Grant,
    _permit: Permit,
}

impl Access {
    /// Returns the path parameter of this name, or an empty text if the path has no such parameter.
    pub(super) fn path_param(&self, name: &str) -> &str {
        path_param(&self.path, name).unwrap_or_default()
    }

    /// Returns the session that the path names.
    pub(super) fn session(&self) -> Session {
        self.workspace.session(self.path_param("session"))
    }

    /// Returns an error unless the caller has the right `required` for this session and this peer of the workspace.
    pub(super) async fn require(&self, target: Target<'_>, required: Rights) -> Result<(), Problem> {
        self.grant.require(&self.workspace, target, required).await
    }
}

/// Extractor that requires the right to read the resources that the path names. If `WRITE` is true, it requires the
/// right to change them.
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

/// Extractor for routes that get or create the resource that the body names. It requires any access to the workspace.
/// The route itself checks the required right, because this right depends on the body.
pub(super) struct CanGetOrCreate(pub(super) Access);

impl FromRequestParts<Arc<Honcho>> for CanGetOrCreate {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<Honcho>) -> Result<Self, Problem> {
        access(parts, app, None).await.map(Self)
    }
}

/// Authorizes a caller who has the right `required` for the resources that the path names. If `required` is `None`, any
/// access to the workspace is sufficient.
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

/// Extractor for routes whose path names no workspace.
pub(super) struct AnyCaller(pub(super) Grant);

impl FromRequestParts<Arc<Honcho>> for AnyCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<Honcho>) -> Result<Self, Problem> {
        authorize(&parts.headers, app).await.map(Self)
    }
}
