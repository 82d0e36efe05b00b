//! The shipped table of models: their windows, output limits and prices.
//!
//! If the table contains a model, the settings `provider` and `model` are enough to configure this model. The table has
//! a date, because its data becomes outdated. Settings take precedence over the table. A window that the provider
//! reports takes precedence over both. A model that is not in the table is allowed: its window and its prices are
//! unknown until the settings contain them.
//!
//! A wrong price is worse than no price. So a name matches a row only if both certainly mean the same model. The name
//! may have another date or `-latest` at its end, and the maker's name at its start. The table contains no models that
//! anyone can run on a server of their own (with Ollama or vLLM), because each such server chooses its own window.

use std::sync::LazyLock;

use epitome_core::message::Tokens;

use crate::price::{Money, Price};

/// When the table was last reviewed.
pub const DATED: &str = "2026-11-15";

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The provider's name for the model, without a date.
    pub model: &'static str,
    /// Maximum tokens of a prompt and its answer together.
    pub window: Tokens,
    /// Maximum tokens of an answer: the part of the window that is reserved for it.
    pub output_reserve: Tokens,
    /// Price per million tokens, in US dollars. `None` if it is unknown.
    pub price: Option<Price>,
}

/// Finds the row of a model by the provider's name of the model.
///
/// ```
/// use epitome::model::table::find;
///
/// let mini = find("gpt-5-mini-2025-08-07").unwrap();
/// assert_eq!((mini.model, mini.window), ("gpt-5-mini", 400_000));
/// assert_eq!(find("openai/gpt-4o").unwrap().price.unwrap().input.to_string(), "2.50");
/// assert_eq!(find("gpt-4o-audio-preview"), None, "another model, at another price");
/// ```
pub fn find(model: &str) -> Option<&'static Entry> {
    let name = MAKERS.iter().find_map(|maker| model.strip_prefix(maker)).unwrap_or(model);
    let exact = |name: &str| TABLE.iter().find(|entry| entry.model == name);
    exact(name).or_else(|| exact(undated(name)?))
}

/// Returns the whole table.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    TABLE.iter()
}

/// Prefixes that routers, which are services in front of several providers, put before a model's own name.
const MAKERS: [&str; 5] = ["openai/", "anthropic/", "google/", "deepseek/", "models/"];

static TABLE: LazyLock<Vec<Entry>> =
    LazyLock::new(|| include_str!("table.txt").lines().filter_map(line).collect());

fn line(line: &'static str) -> Option<Entry> {
    let mut words = line.split_whitespace();
    let model = words.next().filter(|model| !model.starts_with('#'))?;
    let (window, output_reserve) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let mut money = || words.next()?.parse::<f64>().ok().map(Money::from);
    let price = match (money(), money(), money(), money()) {
        (Some(input), Some(output), read, write) => {
            let (cache_read, cache_write) = (read.unwrap_or(input), write.unwrap_or(input));
            Some(Price { input, output, cache_read, cache_write })
        }
        _ => None,
    };
    Some(Entry { model, window, output_reserve, price })
}

/// Returns a name without `-latest` or the date at its end.
fn undated(name: &str) -> Option<&str> {
    if let Some(bare) = name.strip_suffix("-latest") {
        return Some(bare);
    }
    if let Some((bare, date)) = name.rsplit_once(['-', '@'])
        && is_number(date, 8)
    {
        return Some(bare);
    }
    let mut parts = name.rsplitn(4, '-');
    let (day, month, year, bare) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    (is_number(day, 2) && is_number(month, 2) && is_number(year, 4)).then_some(bare)
}

fn is_number(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(model: &str, found: &str) {
        assert_eq!(find(model).map_or("", |entry| entry.model), found, "{model}");
    }

    #[test]
    fn every_row_of_the_table_is_valid() {
        let lines = include_str!("table.txt").lines();
        let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        assert_eq!(lines.len(), all().count());
        for (entry, line) in all().zip(&lines) {
            check(entry.model, entry.model);
            assert!(entry.output_reserve >= 4_096 && entry.output_reserve * 2 <= entry.window, "{entry:?}");
            assert_eq!(entry.price.is_some(), line.split_whitespace().count() > 3, "{line}");
            if let Some(price) = entry.price {
                assert_eq!(line.split_whitespace().count(), 7, "{line}");
                assert!(price.cache_read <= price.input && price.input < price.output, "{line}");
                assert!(price.input <= price.cache_write && price.cache_write < price.output, "{line}");
            }
        }
        let names: std::collections::BTreeSet<&str> = all().map(|entry| entry.model).collect();
        assert_eq!(names.len(), lines.len(), "each once");
        assert!(is_number(&DATED.replace('-', ""), 8));
    }

    #[test]
    fn a_date_latest_or_a_makers_prefix_finds_the_same_model() {
        check("gpt-5-mini-2025-08-07", "gpt-5-mini");
        check("gpt-4o-2024-08-06", "gpt-4o");
        check("claude-sonnet-4-5-20250929", "claude-sonnet-4-5");
        check("claude-sonnet-4-20250514", "claude-sonnet-4");
        check("claude-haiku-4-5@20251001", "claude-haiku-4-5");
        check("claude-3-5-sonnet-latest", "claude-3-5-sonnet");
        check("gpt-5-chat-latest", "gpt-5-chat");
        check("openai/gpt-4o", "gpt-4o");
        check("anthropic/claude-opus-4-6", "claude-opus-4-6");
        check("models/gemini-2.5-flash", "gemini-2.5-flash");
    }

    #[test]
    fn a_similar_name_is_not_the_same_model() {
        for other in [
            "gpt-5-minimal-x",
            "gpt-5-min",
            "gpt-5-pro",
            "gpt-5-codex-mini",
            "gpt-4o-audio",
            "gpt-4o-audio-preview-2024-12-17",
            "gpt-4o-realtime-preview",
            "gpt-4",
            "o3-pro",
            "o3-deep-research-2025-06-26",
            "claude-opus-4-99",
            "claude-opus-4-55",
            "claude-sonnet-4-5-fast",
            "ft:gpt-4o-mini-2024-07-18:acme::abc",
            "openai/gpt-4o:free",
            "somebody/gpt-4o",
            "gpt-5-2025-08",
            "-20250514",
            "2025-08-07",
            "",
        ] {
            check(other, "");
        }
    }

    #[test]
    fn a_dated_model_can_have_its_own_price() {
        check("gpt-4o-2024-05-13", "gpt-4o-2024-05-13");
        let input = |model| find(model).unwrap().price.unwrap().input.to_string();
        assert_eq!((input("gpt-4o-2024-05-13"), input("gpt-4o")), ("5.00".to_owned(), "2.50".to_owned()));
    }
}
