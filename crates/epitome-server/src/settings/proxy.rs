//! The section `[proxy]`: where requests go on to, and whether anything is done to them.

use std::time::Duration;

use epitome::settings::form::{As, Rule, Ruled, Time};
use reqwest::Url;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The section `[proxy]`: how `epitome serve` passes requests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table of settings")]
pub(crate) struct Proxy {
    /// Where /openai/v1/x goes on to: this address and /v1/x.
    #[serde(with = "As::<Ruled<Upstream>>")]
    #[schemars(example = &"http://127.0.0.1:8000")]
    pub(crate) openai_upstream: String,
    /// The same for /anthropic/v1/x.
    #[serde(with = "As::<Ruled<Upstream>>")]
    #[schemars(example = &"https://gateway.example.com/anthropic")]
    pub(crate) anthropic_upstream: String,
    /// Whether the proxy changes nothing and only tells what it would have saved.
    #[schemars(example = true)]
    pub(crate) shadow: bool,
    /// For so long an upstream may say nothing, 100ms to 24h.
    #[serde(with = "As::<Time<100, 86_400_000>>")]
    #[schemars(example = &"2m")]
    pub(crate) timeout: Duration,
}

/// Clients of both providers wait for so long by themselves.
const TIMEOUT: Duration = Duration::from_secs(600);

impl Default for Proxy {
    fn default() -> Self {
        Self {
            openai_upstream: "https://api.openai.com".to_owned(),
            anthropic_upstream: "https://api.anthropic.com".to_owned(),
            shadow: false,
            timeout: TIMEOUT,
        }
    }
}

/// An address without the `/v1` that every path has anyway. Whoever writes it all the same means the same.
struct Upstream;

impl Rule for Upstream {
    fn keep(text: &str) -> Result<String, String> {
        let allowed = "allowed is an address such as https://api.openai.com or http://127.0.0.1:8000";
        // An address may hold a password: it is not repeated.
        let Ok(url) = Url::parse(text) else { return Err(format!("no address; {allowed}")) };
        let plain = url.username().is_empty() && url.password().is_none();
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() || !plain {
            return Err(format!(
                "http:// or https:// and a host is wanted, without a name or password; {allowed}"
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(format!("nothing after `?` or `#` is wanted; {allowed}"));
        }
        let bare = text.trim_end_matches('/');
        Ok(bare.strip_suffix("/v1").unwrap_or(bare).trim_end_matches('/').to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_an_address_with_or_without_its_v1() {
        for (said, meant) in [
            ("https://api.openai.com", "https://api.openai.com"),
            ("https://api.openai.com/v1/", "https://api.openai.com"),
            ("http://127.0.0.1:8000/deep/er", "http://127.0.0.1:8000/deep/er"),
        ] {
            assert_eq!(Upstream::keep(said).unwrap(), meant);
        }
        for wrong in
            ["api.openai.com", "ftp://x", "", "http://", "https://me:secret@x", "http://x?y", "http://x#y"]
        {
            let told = Upstream::keep(wrong).unwrap_err();
            assert!(told.contains("allowed is an address") && !told.contains("secret"), "{wrong}: {told}");
        }
    }
}
