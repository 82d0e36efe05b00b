//! Its own count of a request, and what a cache would hold of it.
//!
//! A request is counted message by message: its tools first, then its instructions, then the list. A cache holds whole
//! messages, and only beginnings: those of requests that came before and began with the same. It ignores marks for caches.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

/// A beginning smaller than this is not worth a place in a cache, in tokens.
const FLOOR: u64 = 1_024;

/// A request, counted.
#[derive(Debug, Default)]
pub struct Tally {
    /// For each message: the hash of all up to it, and their tokens.
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

    /// All of it, in tokens.
    pub fn input(&self) -> u64 {
        self.prefixes.last().map_or(0, |(_, tokens)| *tokens)
    }

    /// Whether it begins with all of the other.
    pub fn goes_on(&self, before: &Self) -> bool {
        let end = before.prefixes.len();
        end == 0
            || self.prefixes.get(end - 1).map(|(hash, _)| hash)
                == before.prefixes.last().map(|(hash, _)| hash)
    }
}

/// What requests began with so far.
#[derive(Debug, Default)]
pub struct Cache(HashSet<u64>);

impl Cache {
    /// How many tokens of a request are in it, which is then in it whole.
    pub fn read(&mut self, tally: &Tally) -> u64 {
        let held = tally.prefixes.iter().rev().find(|(hash, _)| self.0.contains(hash));
        let held = held.map_or(0, |(_, tokens)| *tokens);
        for (hash, _) in tally.prefixes.iter().rev() {
            if !self.0.insert(*hash) {
                break;
            }
        }
        if held < FLOOR { 0 } else { held }
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

/// Every text of a request, in the order in which a model reads them.
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
