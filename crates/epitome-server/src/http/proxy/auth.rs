//! Authorizes proxied requests and identifies the caller.
//!
//! In a proxied request, the headers `authorization` and `x-api-key` contain the provider's key, and are forwarded. The
//! header `x-epitome-key` contains Epitome's key. Callers with different provider keys never share the state of a
//! conversation, even within one workspace.

use epitome::Workspace;
use epitome::key::Rights;

use super::super::auth::{check_key, single_header, unauthorized, workspace};
use super::super::permits::Permit;
use super::super::prelude::*;

/// Header with Epitome's key.
pub(super) const KEY_HEADER: &str = "x-epitome-key";

/// Prefix of Epitome's keys.
const KEY_PREFIX: &str = "epk_";

/// An authorized caller.
pub(super) struct AuthorizedCaller {
    pub(super) workspace: Workspace,
    /// Identifies the caller: a hash of the provider's key. The key itself is never stored.
    pub(super) id: [u8; 32],
    pub(super) permit: Permit,
}

/// Checks Epitome's key, selects the workspace, and takes a permit.
pub(super) async fn authorize(app: &App, headers: &HeaderMap) -> Result<AuthorizedCaller, Problem> {
    let sent = single_header(headers, KEY_HEADER, || unauthorized("x-epitome-key: expected one key"))?;
    // If the header is not text, it contains no valid key.
    let sent = sent.map(|key| key.to_str().unwrap_or_default().trim());
    let required =
        "a key of this server is required: send `x-epitome-key: epk_...` and the provider's own key";
    let key =
        check_key(sent, headers, app, [required, "x-epitome-key: the key is unknown, revoked or expired"]);
    let key = key.await?;
    let has_our_key = |name| headers.get_all(name).iter().any(|value| is_epitome_key(value.as_bytes()));
    if provider_key_headers().into_iter().any(has_our_key) {
        // Forwarding the header would reveal this server's key to the provider.
        let detail = "the header of the provider's key contains a key of this server, so the request was not \
                      forwarded; send the key of this server in x-epitome-key";
        return Err(unauthorized(detail));
    }
    let name = workspace(headers, key, Rights::Write)?;
    let permit = app.permits.proxied_requests.acquire(&name)?;
    Ok(AuthorizedCaller { workspace: app.engine.workspace(name), id: caller_id(headers), permit })
}

/// Returns the headers that contain providers' keys.
fn provider_key_headers() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    let endpoints = Dialect::all().into_iter().filter_map(|dialect| dialect.format().about().endpoint);
    for name in endpoints.map(|endpoint| endpoint.key.0).chain(["api-key"]) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Whether a header's value contains a key of this server.
fn is_epitome_key(value: &[u8]) -> bool {
    String::from_utf8_lossy(value).split_whitespace().any(|word| word.starts_with(KEY_PREFIX))
}

/// Returns a hash of the provider's keys in the headers.
fn caller_id(headers: &HeaderMap) -> [u8; 32] {
    let mut hash = blake3::Hasher::new();
    for name in provider_key_headers() {
        for value in headers.get_all(name) {
            hash.update(name.as_bytes());
            hash.update(&value.len().to_le_bytes());
            hash.update(value.as_bytes());
        }
    }
    *hash.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn another_provider_key_is_another_caller() {
        let ids = [
            caller_id(&headers(&[])),
            caller_id(&headers(&[("authorization", "Bearer a")])),
            caller_id(&headers(&[("authorization", "Bearer b")])),
            caller_id(&headers(&[("x-api-key", "Bearer a")])),
            caller_id(&headers(&[("authorization", "Bearer a"), ("x-api-key", "k")])),
        ];
        for (at, one) in ids.iter().enumerate() {
            assert!(ids.iter().skip(at + 1).all(|other| one != other));
        }
        assert_eq!(caller_id(&headers(&[("accept", "a")])), caller_id(&headers(&[("accept", "b")])));
    }

    #[test]
    fn epitome_keys_are_recognised_in_provider_headers() {
        assert!(
            is_epitome_key(b"Bearer epk_abc")
                && is_epitome_key(b"epk_abc")
                && is_epitome_key(b"bearer\tepk_abc")
        );
        assert!(!is_epitome_key(b"Bearer sk-epk_abc") && !is_epitome_key(b"") && !is_epitome_key(b"\xff"));
    }
}
