//! Dialects, tried from outside: what is written is taken by strict providers, what is read is given back.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on should stop, loudly"
)]

mod bodies;
mod cached;
mod condensed_bodies;
mod drawn_wire;
mod hearing;
mod reading;
mod restoring;
mod writing;
mod written_promises;

use epitome_testkit::{conversations, drawn, judges, odd};

use epitome::dialect::Dialect;
use serde_json::{Map, Value};

use epitome_testkit::budget::config;

/// What the provider says about these fields of a request.
///
/// The core's judge of Anthropic's knows only reasoning that comes first. Replies that reason between their words
/// and calls are taken as they came, and dialects must not reorder them; that none begins later than it did is
/// tried case by case in `writing`.
fn complaints(dialect: Dialect, fields: &Map<String, Value>) -> Vec<String> {
    let body = Value::Object(fields.clone());
    match dialect.name() {
        "openai" => judges::chat::complaints(&body),
        "responses" => judges::responses::complaints(&body),
        "anthropic" => {
            let mut complaints = judges::anthropic::complaints(&body);
            complaints.retain(|complaint| !complaint.contains("thinking must come first"));
            complaints
        }
        _ => Vec::new(),
    }
}
