//! The section `[proxy]`: where requests go on to, and whether anything is done to them.

use std::time::Duration;

use epitome::settings::{parse_time, write_time};
use reqwest::Url;
use serde_json::{Map, Value, json};

use super::judge::Wrong;
use super::keys;

/// How `epitome serve` passes requests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    /// Where `/openai/v1/x` goes: to this and `/v1/x`.
    pub(crate) openai_upstream: String,
    /// Where `/anthropic/v1/x` goes.
    pub(crate) anthropic_upstream: String,
    /// Whether nothing is changed, and it is only told what would have been saved.
    pub(crate) shadow: bool,
    /// For so long an upstream may say nothing.
    pub(crate) timeout: Duration,
}

const KEYS: [&str; 4] = ["openai_upstream", "anthropic_upstream", "shadow", "timeout"];

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

impl Proxy {
    /// What the section says, over the defaults; a null is as good as nothing.
    pub(super) fn read(section: Option<Value>) -> Result<Self, Wrong> {
        let mut proxy = Self::default();
        let entries = match section {
            None | Some(Value::Null) => return Ok(proxy),
            Some(Value::Object(entries)) => entries,
            Some(other) => {
                return Err(Wrong::new("proxy", format!("{other} given; allowed is a table of settings")));
            }
        };
        for (key, value) in entries {
            let name = keys::name(&["proxy".to_owned(), key.clone()]);
            proxy.set(&key, &value).map_err(|problem| Wrong::new(name, problem))?;
        }
        Ok(proxy)
    }

    fn set(&mut self, key: &str, value: &Value) -> Result<(), String> {
        if value.is_null() && KEYS.contains(&key) {
            return Ok(());
        }
        match key {
            "openai_upstream" => self.openai_upstream = upstream(value)?,
            "anthropic_upstream" => self.anthropic_upstream = upstream(value)?,
            "shadow" => {
                self.shadow =
                    value.as_bool().ok_or_else(|| format!("{value} given; allowed are true and false"))?;
            }
            "timeout" => self.timeout = time(value)?,
            _ => return Err(format!("no such setting; allowed here are {}", KEYS.join(", "))),
        }
        Ok(())
    }

    /// The same, as a file would say it.
    pub(super) fn entries(&self) -> Map<String, Value> {
        let mut entries = Map::new();
        entries.insert("openai_upstream".to_owned(), json!(self.openai_upstream));
        entries.insert("anthropic_upstream".to_owned(), json!(self.anthropic_upstream));
        entries.insert("shadow".to_owned(), json!(self.shadow));
        entries.insert("timeout".to_owned(), json!(write_time(self.timeout)));
        entries
    }
}

/// An address without the `/v1` that every path has anyway. Whoever writes it all the same means the same.
fn upstream(value: &Value) -> Result<String, String> {
    let text = value.as_str().ok_or_else(|| format!("{value} given; allowed is a text"))?;
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

/// From a tenth of a second to a day.
fn time(value: &Value) -> Result<Duration, String> {
    let read = match value {
        Value::Number(number) => number.as_u64().map(Duration::from_secs),
        Value::String(text) => parse_time(text),
        _ => None,
    };
    let fits = Duration::from_millis(100)..=Duration::from_secs(24 * 3_600);
    read.filter(|time| fits.contains(time)).ok_or_else(|| {
        format!(
            "{value} given; allowed is a time from \"100ms\" to \"24h\" such as \"10m\" or 600 for seconds"
        )
    })
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
            assert_eq!(upstream(&json!(said)).unwrap(), meant);
        }
        for wrong in
            ["api.openai.com", "ftp://x", "", "http://", "https://me:secret@x", "http://x?y", "http://x#y"]
        {
            let told = upstream(&json!(wrong)).unwrap_err();
            assert!(told.contains("allowed is an address") && !told.contains("secret"), "{wrong}: {told}");
        }
        assert!(upstream(&json!(5)).is_err());
    }
}
