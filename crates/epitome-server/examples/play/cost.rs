//! What the requests in a log cost, in tokens of plain input: with and without a cache for their beginnings.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde_json::Value;

use super::Error;

/// What a token costs that was cached, and one that was not and is from here on.
const READ: f64 = 0.1;
const WRITE: f64 = 1.25;
/// What a token of a summary costs.
const OUTPUT: u64 = 5;
/// A beginning smaller than this is not cached.
const FLOOR: u64 = 1_024;

/// What requests come to.
#[derive(Debug, Default)]
pub struct Cost {
    /// Where all input costs the same.
    pub plain: u64,
    /// Where beginnings are cached.
    pub cached: f64,
    /// What was spent on summaries, in both cases.
    pub summaries: u64,
}

impl Cost {
    /// Of all requests in a log, as they stand there: `{"run", "messages"}` a line, and for calls of a summarizer
    /// `"summarizer": true` and `output_tokens`.
    pub fn of(log: &Path) -> Result<Self, Error> {
        let mut cost = Self::default();
        // The request before, by its run: for each message its hash and its size.
        let mut before: HashMap<String, Vec<(u64, u64)>> = HashMap::new();
        for line in BufReader::new(std::fs::File::open(log)?).lines() {
            let request: Value = serde_json::from_str(&line?)?;
            let messages = request["messages"].as_array().ok_or("a line without messages")?;
            let now: Vec<(u64, u64)> =
                messages.iter().map(|message| (hash(message), size(message))).collect();
            let total: u64 = now.iter().map(|(_, size)| size).sum();
            if request["summarizer"] == true {
                cost.summaries += total + OUTPUT * request["output_tokens"].as_u64().unwrap_or(0);
                continue;
            }
            let before = before.entry(request["run"].to_string()).or_default();
            let same = now.iter().zip(before.iter()).take_while(|(now, then)| now == then);
            let shared: u64 = same.map(|((_, size), _)| size).sum();
            let shared = if shared < FLOOR { 0 } else { shared };
            cost.plain += total;
            cost.cached += READ * shared as f64 + WRITE * (total - shared) as f64;
            *before = now;
        }
        Ok(cost)
    }

    /// What it is of the other, plain and cached.
    pub fn beside(&self, other: &Self) -> (f64, f64) {
        let summaries = self.summaries as f64;
        (
            (self.plain as f64 + summaries) / other.plain as f64,
            (self.cached.round() + summaries) / other.cached.round(),
        )
    }
}

fn hash(message: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    message.to_string().hash(&mut hasher);
    hasher.finish()
}

/// What a message says of itself, or a quarter of its letters.
fn size(message: &Value) -> u64 {
    let told = message["tokens"].as_u64().filter(|tokens| *tokens > 0);
    told.unwrap_or_else(|| (message.to_string().chars().count() as u64).div_ceil(4))
}
