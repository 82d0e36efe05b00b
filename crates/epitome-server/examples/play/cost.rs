//! What the requests in a log cost, in tokens of plain input: with and without a cache for their beginnings.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::path::Path;

use epitome_lab::evaluation::cost::{Cost as Sum, PromptCache, SentMessage};
use serde_json::Value;

use super::Error;

/// What requests come to.
#[derive(Debug, Default)]
pub struct Cost {
    /// All of them.
    pub sum: Sum,
}

impl Cost {
    /// Of all requests in a log, as they stand there: `{"run", "messages"}` a line, and for calls of a summarizer
    /// `"summarizer": true` and `output_tokens`.
    pub fn of(log: &Path) -> Result<Self, Error> {
        let mut sum = Sum::default();
        let mut runs: HashMap<String, PromptCache> = HashMap::new();
        for line in BufReader::new(std::fs::File::open(log)?).lines() {
            let request: Value = serde_json::from_str(&line?)?;
            let messages = request["messages"].as_array().ok_or("a line without messages")?;
            if request["summarizer"] == true {
                sum.summarized(
                    messages.iter().map(size).sum(),
                    request["output_tokens"].as_u64().unwrap_or(0),
                );
                continue;
            }
            let list: Vec<SentMessage> = messages
                .iter()
                .map(|message| SentMessage { hash: hash(message), tokens: size(message) })
                .collect();
            runs.entry(request["run"].to_string()).or_default().send(&mut sum, &list);
        }
        Ok(Self { sum })
    }

    /// What it is of the other, plain and cached.
    pub fn beside(&self, other: &Self) -> (f64, f64) {
        let of = |mine: u64, others: u64| (mine + self.sum.summarizer) as f64 / others as f64;
        (of(self.sum.plain, other.sum.plain), of(self.sum.cached(), other.sum.cached()))
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
