//! Authorizes requests and selects their workspace.
//!
//! [`access`] returns only the caller's own workspace. A path cannot name a workspace. Unknown, revoked and expired
//! keys get the same error. If a request names a workspace that its key does not belong to, the error is the same
//! whether this workspace exists or not.
//!
//! A request is authorized before its parameters and its body are read. So an unauthorized caller cannot find out
//! whether its parameters are valid. If one of the headers that this module reads occurs twice, the request is refused,
//! because a proxy in front of the server may have used the other value.
//!
//! If no keys are required, a request without a key must not come from a page of another site. On loopback, its `host`
//! header must also name this machine. Without these checks, any web page could make a browser on this machine send
//! requests to the server.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use epitome::key::{Key, Rights};
use epitome::{Workspace, is_name};

use crate::permits::Permit;
use crate::problem::Problem;
pub use crate::state::Keys;
use crate::state::{HttpState, WithHttp};

/// The name of the default workspace.
const DEFAULT: &str = "default";

/// Header in which a caller names a workspace. A caller whose key belongs to one workspace need not send this header.
pub const WORKSPACE: &str = "x-epitome-workspace";

/// Extractor for routes of the operator. A key that is sent must be an admin key. A request without a key is accepted
/// only if no keys are required.
pub struct Operator;

/// The access of an authorized caller.
pub struct Access {
    /// The only workspace that the caller can use.
    pub workspace: Workspace,
    /// The key's secret, with which the key can be checked again during a long request; `None` if the caller sent no
    /// key.
    secret: Option<String>,
    /// Permit for the request in progress; `None` if it was released.
    permit: Option<Permit>,
}

impl Access {
    /// Releases the permit for a short request. A long request takes a permit of another pool instead.
    pub fn without_permit(mut self) -> Self {
        self.permit = None;
        self
    }
}

impl<S: WithHttp> FromRequestParts<Arc<S>> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<S>) -> Result<Self, Problem> {
        match identify(&parts.headers, app).await?.1 {
            None => Ok(Self),
            Some(key) if key.rights == Rights::Admin => Ok(Self),
            Some(_) => Err(forbidden("an admin key is required here; this key has fewer rights")),
        }
    }
}

/// Request extension with the caller's workspace, set after authorization.
#[derive(Clone)]
pub struct CallerWorkspace(pub Arc<str>);

/// Authorizes a caller that has the required rights, and takes a permit for the request.
pub async fn access(parts: &mut Parts, app: &HttpState, required: Rights) -> Result<Access, Problem> {
    let (secret, key) = identify(&parts.headers, app).await?;
    let name = workspace(&parts.headers, key, required)?;
    let (workspace, permit) = open_workspace(parts, app, name)?;
    Ok(Access { workspace, secret, permit: Some(permit) })
}

/// Returns the workspace of a request, and a permit for the request.
pub fn open_workspace(
    parts: &mut Parts,
    app: &HttpState,
    name: Arc<str>,
) -> Result<(Workspace, Permit), Problem> {
    let permit = app.permits.requests.acquire(&name)?;
    parts.extensions.insert(CallerWorkspace(Arc::clone(&name)));
    Ok((app.engine.workspace(name), permit))
}

/// Returns the name of a request's workspace: the workspace of the key, or the workspace that the header names, or the
/// default workspace. Returns an error if the key and the header contradict each other, or if the key lacks a right.
pub fn workspace(headers: &HeaderMap, key: Option<Key>, required: Rights) -> Result<Arc<str>, Problem> {
    let header = workspace_header(headers)?;
    if let Some(key) = &key
        && key.rights < required
    {
        return Err(forbidden("this key may only read; use a key with write access"));
    }
    match (key.and_then(|key| key.workspace), header) {
        (Some(own), Some(header)) if *own != *header => {
            Err(forbidden("x-epitome-workspace: this key is for another workspace; remove the header"))
        }
        (Some(own), _) => Ok(own),
        (None, Some(header)) => Ok(header.into()),
        (None, None) => Ok(DEFAULT.into()),
    }
}

/// Error text if a required key is missing.
pub const KEY_REQUIRED: &str = "a key is required: send `authorization: Bearer epk_...`";

/// Returns the secret that the caller sent, and the key with this secret. Both are `None` if the caller sent no secret
/// and no key is required.
pub async fn identify(
    headers: &HeaderMap,
    app: &HttpState,
) -> Result<(Option<String>, Option<Key>), Problem> {
    let secret = bearer_token(headers)?;
    let invalid = "authorization: the key is unknown, revoked or expired; send a valid key";
    let key = check_key(secret.as_deref(), headers, app, [KEY_REQUIRED, invalid]).await?;
    Ok((secret, key))
}

/// Returns the key with this secret; `None` if the caller sent no secret and no key is required. `missing` is the error
/// text for a missing key, and `invalid` is the error text for an invalid key.
pub async fn check_key(
    secret: Option<&str>,
    headers: &HeaderMap,
    app: &HttpState,
    [missing, invalid]: [&str; 2],
) -> Result<Option<Key>, Problem> {
    match (secret, app.keys) {
        (Some(secret), _) => match app.engine.keys().check(secret).await? {
            None => Err(unauthorized(invalid)),
            valid => Ok(valid),
        },
        (None, Keys::Required) => Err(unauthorized(missing)),
        (None, Keys::Off { loopback }) => refuse_cross_site(headers, loopback).map(|()| None),
    }
}

/// Returns whether the key of a long request is still valid. If the key cannot be checked, returns false, because the
/// client can reconnect.
pub async fn key_still_valid(app: &HttpState, access: &Access) -> bool {
    match &access.secret {
        None => true,
        Some(secret) => matches!(app.engine.keys().check(secret).await, Ok(Some(_))),
    }
}

/// Returns the bearer token of a request; `None` if the request has no `authorization` header.
pub fn bearer_token(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let wrong = || unauthorized("authorization: expected `Bearer` and a key, in one header");
    let Some(value) = single_header(headers, header::AUTHORIZATION.as_str(), wrong)? else { return Ok(None) };
    let bearer = value.to_str().ok().and_then(|value| value.split_once(' '));
    let secret = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    secret.map(|(_, secret)| Some(secret.trim().to_owned())).ok_or_else(wrong)
}

/// Returns the value of a header that may occur only once; `None` if the header is missing. Returns the error `wrong`
/// if the header occurs twice.
pub fn single_header<'a, E>(
    headers: &'a HeaderMap,
    name: &str,
    wrong: impl FnOnce() -> E,
) -> Result<Option<&'a HeaderValue>, E> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (value, None) => Ok(value),
        _ => Err(wrong()),
    }
}

fn workspace_header(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let wrong =
        "x-epitome-workspace: expected one name of 1 to 512 bytes in UTF-8, without control characters";
    single_name(headers, WORKSPACE, [wrong, wrong])
}

/// Returns the name in a header that may occur only once; `None` if the header is missing. `repeated` is the error text
/// for a repeated header, and `invalid` is the error text for an invalid name.
pub fn single_name(
    headers: &HeaderMap,
    header: &str,
    [repeated, invalid]: [&str; 2],
) -> Result<Option<String>, Problem> {
    let Some(value) = single_header(headers, header, || Problem::invalid(repeated))? else { return Ok(None) };
    let name = std::str::from_utf8(value.as_bytes()).ok().filter(|name| is_name(name));
    name.map(|name| Some(name.to_owned())).ok_or_else(|| Problem::invalid(invalid))
}

/// Refuses a request that a page of another site may have caused. Call this function only for a request without a key
/// of Epitome.
pub fn refuse_cross_site(headers: &HeaderMap, loopback: bool) -> Result<(), Problem> {
    if loopback && !is_local(headers) {
        return Err(forbidden(
            "the header `host` names neither this machine nor loopback; connect to an address such as 127.0.0.1, or \
             send a key",
        ));
    }
    if !is_same_site(headers) {
        return Err(forbidden("the header `origin` names a page of another site; send a key"));
    }
    Ok(())
}

/// Returns whether the `host` header names this machine. Another site can make its own domain name resolve to this
/// machine (DNS rebinding). But the `host` header then still contains the site's domain name.
fn is_local(headers: &HeaderMap) -> bool {
    let local = |host: &HeaderValue| host.to_str().is_ok_and(is_this_machine);
    // Every browser sends this header, so a request without it is not from a browser.
    single_header(headers, header::HOST.as_str(), || ()).is_ok_and(|host| host.is_none_or(local))
}

/// Returns whether the request has no `origin` header that names another site. Browsers send this header with every
/// request that may change something.
fn is_same_site(headers: &HeaderMap) -> bool {
    headers.get_all(header::ORIGIN).iter().all(|origin| {
        let host = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        host.is_some_and(|(_, host)| is_this_machine(host))
    })
}

/// Returns whether a host, with or without a port, can only be this machine.
fn is_this_machine(host: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let bare = host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(bare, _)| bare);
    let inner = bare.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Ok(address) = inner.unwrap_or(bare).parse::<IpAddr>() {
        return address.is_loopback() && address.is_ipv6() == inner.is_some();
    }
    let name = bare.to_ascii_lowercase();
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    plain && (name == "localhost" || name.ends_with(".localhost"))
}

/// Returns the error for a missing or invalid key.
pub fn unauthorized(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
}

fn forbidden(detail: &str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "forbidden", detail)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn headers(name: &HeaderName, values: &[&[u8]]) -> HeaderMap {
        let value = |value: &&[u8]| (name.clone(), HeaderValue::from_bytes(value).unwrap());
        values.iter().map(value).fold(HeaderMap::new(), |mut all, (name, value)| {
            all.append(name, value);
            all
        })
    }

    #[test]
    fn only_names_of_this_machine_are_local() {
        let local = |host: &str| is_local(&headers(&header::HOST, &[host.as_bytes()]));
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
            "0.0.0.0:7878",
            "[::2]",
            "[::1].evil.example",
            "127.0.0.1.nip.io",
            "evil.example@localhost",
            "localhost@evil.example",
            "löcalhost",
            "",
            "localhost/evil.example",
            "evil.example/.localhost",
            "a@b.localhost",
            "::1",
            "[127.0.0.1]",
            "localhost:",
            "localhost:http",
        ] {
            assert!(!local(host), "{host}");
        }
        assert!(is_local(&HeaderMap::new()));
        assert!(!is_local(&headers(&header::HOST, &[b"localhost", b"evil.example"])));
        assert!(!is_local(&headers(&header::HOST, &[b"\xff"])));
    }

    #[test]
    fn pages_of_other_sites_are_recognised_by_their_origin() {
        let same_site = |origins: &[&[u8]]| is_same_site(&headers(&header::ORIGIN, origins));
        assert!(same_site(&[]) && same_site(&[b"http://localhost:3000"]) && same_site(&[b"https://[::1]"]));
        for origin in
            ["null", "https://evil.example", "http://localhost.evil.example", "localhost", "", "\u{e9}"]
        {
            assert!(!same_site(&[origin.as_bytes()]), "{origin}");
        }
        assert!(!same_site(&[b"http://localhost", b"https://evil.example"]));
    }

    #[test]
    fn exactly_one_bearer_token_is_accepted() {
        let read = |values: &[&[u8]]| {
            bearer_token(&headers(&header::AUTHORIZATION, values)).map_err(|wrong| wrong.status)
        };
        assert_eq!(read(&[]), Ok(None));
        for value in ["Bearer epk_1", "bearer epk_1", "BEARER   epk_1", "Bearer epk_1\t"] {
            assert_eq!(read(&[value.as_bytes()]), Ok(Some("epk_1".to_owned())), "{value}");
        }
        for value in ["", "epk_1", "Bearer", "Bearer\tepk_1", "Basic epk_1", "Bearer: epk_1", "Bearer \u{e9}"]
        {
            assert_eq!(read(&[value.as_bytes()]), Err(StatusCode::UNAUTHORIZED), "{value}");
        }
        assert_eq!(read(&[b"Bearer epk_1", b"Bearer epk_2"]), Err(StatusCode::UNAUTHORIZED));
        assert_eq!(read(&[b"Bearer epk_1", b"Bearer epk_1"]), Err(StatusCode::UNAUTHORIZED));
    }

    #[test]
    fn at_most_one_workspace_header_is_accepted() {
        let name = HeaderName::from_static(WORKSPACE);
        let read = |values: &[&[u8]]| workspace_header(&headers(&name, values)).map_err(|wrong| wrong.status);
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["\u{e9}t\u{e9}".as_bytes()]), Ok(Some("\u{e9}t\u{e9}".to_owned())));
        for wrong in [[b"".as_slice()].as_slice(), &[b"\xff"], &[b"a\tb"], &[b"a", b"a"], &[b"a", b"b"]] {
            assert_eq!(read(wrong), Err(StatusCode::BAD_REQUEST), "{wrong:?}");
        }
    }
}
