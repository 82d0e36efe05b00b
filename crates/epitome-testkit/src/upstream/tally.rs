//! Counts the tokens of a request, and simulates a prompt cache.
//!
//! Tokens are counted in this order: first the tools of a request, then its instructions, then each message. The
//! cache contains prefixes of earlier requests. Each prefix ends at the end of a message. The cache ignores cache
//! markers.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

/// Smallest prefix that the cache returns, in tokens.
const FLOOR: u64 = 1_024;

/// The token counts of a request.
#[derive(Debug, Default)]
pub struct Tally {
    /// For each message: the hash and the token count of the request up to the end of this message.
    prefixes: Vec<(u64, u64)>,
}

impl Tally {
    pub fn of(body: &Value, skew: f64) -> Self {
        let mut hasher = DefaultHasher::new();
        let mut plain = 0;
        let mut prefixes = Vec::new();
        for field in ["tools", "instructions", "system", "messages", "input"] {
            let value = &body[field];
            let is_list = matches!(field, "messages" | "input") && value.is_array();
            let items = if is_list { value.as_array().unwrap() } else { std::slice::from_ref(value) };
            for item in items.iter().filter(|item| !item.is_null()) {
                take(item, &mut hasher, &mut plain);
                prefixes.push((hasher.finish(), (plain as f64 * skew) as u64));
            }
        }
        Self { prefixes }
    }

    /// Returns the tokens of the whole request.
    pub fn input(&self) -> u64 {
        self.prefixes.last().map_or(0, |(_, tokens)| *tokens)
    }

    /// Returns whether this request begins with the whole request `before`.
    pub fn continues(&self, before: &Self) -> bool {
        let end = before.prefixes.len();
        end == 0
            || self.prefixes.get(end - 1).map(|(hash, _)| hash)
                == before.prefixes.last().map(|(hash, _)| hash)
    }
}

/// The prefixes of all earlier requests.
#[derive(Debug, Default)]
pub struct Cache(HashSet<u64>);

impl Cache {
    /// Returns the number of tokens of a request that are in the cache, and adds the whole request to the cache. The
    /// result is 0 if it would be less than [`FLOOR`].
    pub fn read(&mut self, tally: &Tally) -> u64 {
        let cached = tally.prefixes.iter().rev().find(|(hash, _)| self.0.contains(hash));
        let cached = cached.map_or(0, |(_, tokens)| *tokens);
        for (hash, _) in tally.prefixes.iter().rev() {
            if !self.0.insert(*hash) {
                break;
            }
        }
        if cached < FLOOR { 0 } else { cached }
    }
}

fn take(value: &Value, hasher: &mut DefaultHasher, plain: &mut u64) {
    match value {
        Value::String(text) => {
            *plain += 1 + text.len() as u64 / 3;
            text.hash(hasher);
        }
        Value::Array(items) => {
            items.len().hash(hasher);
            items.iter().for_each(|item| take(item, hasher, plain));
        }
        Value::Object(fields) => {
            for (name, field) in fields.iter().filter(|(name, _)| *name != "cache_control") {
                name.hash(hasher);
                take(field, hasher, plain);
            }
        }
        other => other.to_string().hash(hasher),
    }
}

/// Returns every text of a request, in the order in which a model reads them.
pub fn texts(body: &Value) -> Vec<&str> {
    let mut out = Vec::new();
    for field in ["tools", "instructions", "system", "messages", "input"] {
        leaves(&body[field], &mut out);
    }
    out
}

fn leaves<'a>(value: &'a Value, out: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => out.push(text),
        Value::Array(items) => items.iter().for_each(|item| leaves(item, out)),
        Value::Object(fields) => {
            let read = fields.iter().filter(|(name, _)| *name != "cache_control");
            read.for_each(|(_, field)| leaves(field, out));
        }
        _ => {}
    }
}
