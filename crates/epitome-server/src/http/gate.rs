//! Who may do what, and in which workspace.
//!
//! A handler that takes a [`Reads`], [`Writes`] or [`Runs`] gets the workspace the caller belongs to and no other:
//! there is no way to name one in a path. A key that is unknown, revoked or expired is refused in the same words, and
//! so is a workspace that is not the key's, whether it exists or not.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use epitome::key::{Key, Rights};
use epitome::{Workspace, is_name};

use super::App;
use super::load::Place;
use super::problem::Problem;

/// The workspace of whoever names none.
const DEFAULT: &str = "default";

/// Names a workspace, where the caller may choose.
pub(crate) const WORKSPACE: &str = "x-epitome-workspace";

/// Whether callers need keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Every caller needs one.
    Required,
    /// Whoever can reach the server may do everything. On loopback only this machine can, and what a browser was
    /// lured into sending is refused by the name it was sent to.
    Off { loopback: bool },
}

impl Keys {
    /// For the log.
    pub(crate) fn in_a_word(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Off { .. } => "off",
        }
    }
}

/// A caller who may read.
pub(crate) struct Reads(pub(crate) Access);

/// A caller who may read and write.
pub(crate) struct Writes(pub(crate) Access);

/// A caller who runs the server.
pub(crate) struct Runs;

/// What a caller may see.
pub(crate) struct Access {
    pub(crate) workspace: Workspace,
    /// By which key, so that whoever stays long can be asked again.
    pub(crate) secret: Option<String>,
    /// Its place among the requests under way.
    place: Option<Place>,
}

impl Access {
    /// For whoever stays: the place among those who are answered and leave is given back.
    pub(crate) fn staying(mut self) -> Self {
        self.place = None;
        self
    }
}

impl FromRequestParts<Arc<App>> for Reads {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        access(parts, app, Rights::Read).await.map(Self)
    }
}

impl FromRequestParts<Arc<App>> for Writes {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        access(parts, app, Rights::Write).await.map(Self)
    }
}

impl FromRequestParts<Arc<App>> for Runs {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        match identify(&parts.headers, app).await?.1 {
            None => Ok(Self),
            Some(key) if key.rights == Rights::Admin => Ok(Self),
            Some(_) => Err(forbidden("an admin key is wanted here")),
        }
    }
}

async fn access(parts: &Parts, app: &App, wanted: Rights) -> Result<Access, Problem> {
    let (secret, key) = identify(&parts.headers, app).await?;
    let named = named(&parts.headers)?;
    if let Some(key) = &key
        && key.rights < wanted
    {
        return Err(forbidden("this key may only read"));
    }
    let name: Arc<str> = match (key.and_then(|key| key.workspace), named) {
        (Some(own), Some(named)) if *own != *named => {
            return Err(forbidden("this key is for another workspace; leave x-epitome-workspace out"));
        }
        (Some(own), _) => own,
        (None, Some(named)) => named.into(),
        (None, None) => DEFAULT.into(),
    };
    let place = app.load.requests.enter(&name)?;
    Ok(Access { workspace: app.engine.workspace(name), secret, place: Some(place) })
}

/// The key that was sent, where there is one; none only where none is needed.
async fn identify(headers: &HeaderMap, app: &App) -> Result<(Option<String>, Option<Key>), Problem> {
    let Some(secret) = secret(headers)? else {
        return match app.keys {
            Keys::Required => Err(unauthorized("a key is wanted: send `authorization: Bearer epk_...`")),
            Keys::Off { loopback: true } if !is_local(headers) => {
                let detail = "the header `host` names neither this machine nor loopback; without keys only \
                              those are answered";
                Err(forbidden(detail))
            }
            Keys::Off { .. } => Ok((None, None)),
        };
    };
    match app.engine.keys().check(&secret).await? {
        Some(key) => Ok((Some(secret), Some(key))),
        None => Err(unauthorized("the key is unknown, revoked or expired")),
    }
}

/// Whether a key still lets its holder read this workspace: for those who stay.
pub(crate) async fn still_reads(app: &App, access: &Access) -> bool {
    match &access.secret {
        None => true,
        Some(secret) => matches!(app.engine.keys().check(secret).await, Ok(Some(_)) | Err(_)),
    }
}

fn secret(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let bearer = value.to_str().ok().and_then(|value| {
        let (scheme, secret) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim().to_owned())
    });
    match bearer {
        Some(secret) => Ok(Some(secret)),
        None => Err(unauthorized("authorization: `Bearer` and a key is wanted")),
    }
}

fn named(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut all = headers.get_all(WORKSPACE).iter();
    let Some(value) = all.next() else { return Ok(None) };
    let name =
        std::str::from_utf8(value.as_bytes()).ok().filter(|name| is_name(name) && all.next().is_none());
    match name {
        Some(name) => Ok(Some(name.to_owned())),
        None => Err(Problem::invalid(
            "x-epitome-workspace: one name is wanted, of 1 to 512 bytes in UTF-8, no control characters",
        )),
    }
}

/// Whether the request was sent to this machine by a name only this machine answers to. A page from elsewhere can have
/// its own name lead here, but it cannot change which name the browser says.
fn is_local(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return true };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn unauthorized(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
}

fn forbidden(detail: &str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "forbidden", detail)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        let local = |host: &'static str| {
            is_local(&HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(host))]))
        };
        for host in
            ["localhost", "LOCALHOST:7878", "127.0.0.1:80", "127.1.2.3", "[::1]:7878", "a.localhost:1"]
        {
            assert!(local(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7878",
            "localhost.evil.example",
            "10.0.0.1:80",
            "[::2]",
            "127.0.0.1.nip.io",
        ] {
            assert!(!local(host), "{host}");
        }
    }
}
