//! Computes the cost of the requests in a log, in plain input tokens, with and without a prompt cache.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::path::Path;

use epitome_lab::evaluation::cost::{Cost as Sum, PromptCache, SentMessage};
use serde_json::Value;

use super::Error;

/// The cost of a log's requests.
#[derive(Debug, Default)]
pub struct Cost {
    /// The sum over all requests.
    pub sum: Sum,
}

impl Cost {
    /// Computes the cost of all requests in a log. Each line is `{"run", "messages"}`; calls of a summarizer also have
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

    /// Returns this cost divided by the other, plain and cached.
    pub fn relative_to(&self, other: &Self) -> (f64, f64) {
        let of = |mine: u64, others: u64| (mine + self.sum.summarizer) as f64 / others as f64;
        (of(self.sum.plain, other.sum.plain), of(self.sum.cached(), other.sum.cached()))
    }
}

fn hash(message: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    message.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Returns the token count in the message, or a quarter of its characters.
fn size(message: &Value) -> u64 {
    let reported = message["tokens"].as_u64().filter(|tokens| *tokens > 0);
    reported.unwrap_or_else(|| (message.to_string().chars().count() as u64).div_ceil(4))
}
