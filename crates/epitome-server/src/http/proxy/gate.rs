//! Authorizes proxied requests and identifies the caller.
//!
//! `authorization` and `x-api-key` contain the provider's key here, and are forwarded. Epitome's key is in `x-epitome-key`.
//! Callers with different provider keys never share the state of a conversation, even within one workspace.

use epitome::Workspace;
use epitome::key::Rights;

use super::super::gate::{known, one, unauthorized, workspace};
use super::super::load::Share;
use super::super::prelude::*;

/// Header with Epitome's key.
pub(super) const KEY: &str = "x-epitome-key";

/// Prefix of Epitome's keys.
const OURS: &str = "epk_";

/// An authorized caller.
pub(super) struct Entered {
    pub(super) workspace: Workspace,
    /// Identifies the caller: a hash of the provider's key. The key itself is never stored.
    pub(super) id: [u8; 32],
    pub(super) place: Share,
}

pub(super) async fn enter(app: &App, headers: &HeaderMap) -> Result<Entered, Problem> {
    let sent = one(headers, KEY, || unauthorized("x-epitome-key: expected one key"))?;
    // A header that is not text contains no valid key.
    let sent = sent.map(|key| key.to_str().unwrap_or_default().trim());
    let wanted = "a key of this server is required: send `x-epitome-key: epk_...` and the provider's own key";
    let key = known(sent, headers, app, [wanted, "x-epitome-key: the key is unknown, revoked or expired"]);
    let key = key.await?;
    if theirs().iter().any(|name| headers.get_all(*name).iter().any(|value| is_ours(value.as_bytes()))) {
        // Forwarding it would reveal it to the provider.
        let detail = "a key of this server is in the header of the provider's key; not forwarded: send it in x-epitome-key";
        return Err(unauthorized(detail));
    }
    let name = workspace(headers, key, Rights::Write)?;
    let place = app.load.forwarding.enter(&name)?;
    Ok(Entered { workspace: app.engine.workspace(name), id: id(headers), place })
}

/// Returns the headers that contain providers' keys.
fn theirs() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    let endpoints = Dialect::all().into_iter().filter_map(|dialect| dialect.format().about().endpoint);
    for name in endpoints.map(|endpoint| endpoint.key.0).chain(["api-key"]) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn is_ours(value: &[u8]) -> bool {
    String::from_utf8_lossy(value).split_whitespace().any(|word| word.starts_with(OURS))
}

fn id(headers: &HeaderMap) -> [u8; 32] {
    let mut hash = blake3::Hasher::new();
    for name in theirs() {
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
    fn whoever_shows_another_key_is_another_caller() {
        let ids = [
            id(&headers(&[])),
            id(&headers(&[("authorization", "Bearer a")])),
            id(&headers(&[("authorization", "Bearer b")])),
            id(&headers(&[("x-api-key", "Bearer a")])),
            id(&headers(&[("authorization", "Bearer a"), ("x-api-key", "k")])),
        ];
        for (at, one) in ids.iter().enumerate() {
            assert!(ids.iter().skip(at + 1).all(|other| one != other));
        }
        assert_eq!(id(&headers(&[("accept", "a")])), id(&headers(&[("accept", "b")])));
    }

    #[test]
    fn our_keys_are_seen_where_they_do_not_belong() {
        assert!(is_ours(b"Bearer epk_abc") && is_ours(b"epk_abc") && is_ours(b"bearer\tepk_abc"));
        assert!(!is_ours(b"Bearer sk-epk_abc") && !is_ours(b"") && !is_ours(b"\xff"));
    }
}
