//! Your own model writes the summaries: anything that takes a prompt and returns a text. When it fails, the current
//! summary stays in use; when it fails for long, the built-in `local` writes a fallback summary.
//!
//! Run it with `cargo run --example custom_model`.

#![allow(clippy::print_stdout, dead_code, reason = "an example prints; its test runs `show` only")]

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use epitome::hook::{Condensed, DueMessages, Hook, HookError};
use epitome::model::{Model, ModelError, Reply, SummaryRequest, TokenUsage};
use epitome::rules::inspect::Finish;
use epitome::rules::message::{Message, Tokens};
use epitome::{Engine, Error};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    print!("{}", show().await?);
    Ok(())
}

/// A placeholder for your own client. Its first call fails.
#[derive(Default)]
struct InHouse {
    calls: AtomicUsize,
}

#[async_trait]
impl Model for InHouse {
    fn name(&self) -> &str {
        "in-house-1"
    }

    fn room(&self) -> Option<Tokens> {
        Some(16_000) // its window, less what it needs for an answer
    }

    async fn write(&self, request: &SummaryRequest) -> Result<Reply, ModelError> {
        let prompt = request.prompt(16_000).map_err(|error| ModelError::no_answer(&error.to_string()))?;
        if self.calls.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err(ModelError::Busy { retry_after: None });
        }
        // Here you would send `prompt.system` and `prompt.user` to your model. This one counts the messages.
        let questions = prompt.user.matches(" user: ").count();
        let text = format!(
            "The user asked {questions} questions about deliveries to Oslo; the assistant found each order and its day. \
             Nothing is open up to message {}.",
            request.through
        );
        let usage = TokenUsage { input: prompt.tokens, cached: 0, output: request.counter.text(&text) };
        Ok(Reply { finish: Finish::Complete, usage: Some(usage), ..Reply::complete(text) })
    }
}

/// Passes the messages that are about to be summarized to a memory, and reports the result.
#[derive(Clone, Default)]
struct Memory {
    notes: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl Hook for Memory {
    async fn before(&self, due: &DueMessages) -> Result<Option<String>, HookError> {
        self.note(format!("{} messages are about to leave", due.messages.len()));
        Ok(Some("The customer's name is Ann; include it.".to_owned())) // added to the prompt
    }

    async fn after(&self, done: &Condensed) -> Result<(), HookError> {
        self.note(done.to_string());
        Ok(())
    }
}

impl Memory {
    fn note(&self, text: String) {
        if let Ok(mut notes) = self.notes.lock() {
            notes.push(text);
        }
    }
}

const SETTINGS: &str = r#"{
    "slot": [{"name": "notes", "trigger": "turns(10)", "keep": "turns(2)", "max_tokens": 400}],
    "summarize": {"models": ["in-house"], "stand_in_after": "10m"},
    "prices": {"in-house-1": {"input": 0.25, "output": 2.0}}
}"#;

/// Runs the example and returns its output.
pub(crate) async fn show() -> Result<String, Box<dyn std::error::Error>> {
    let mut out = String::new();
    let memory = Memory::default();
    let engine = Engine::builder()
        .model("in-house", InHouse::default())
        .hook(memory.clone())
        .settings(SETTINGS)
        .workers(0) // this program works itself, to show what happens when
        .memory()
        .await?;
    let session = engine.session("ann");
    for n in 1..=10 {
        session
            .append([
                Message::user(format!(
                    "Where is order {n}071? I live in Oslo, and it was due on Monday the {n}th."
                )),
                Message::assistant(format!(
                    "Order {n}071 left Bergen this morning; parcel PX-{n} arrives tomorrow."
                )),
            ])
            .await?;
    }

    session.work().await?;
    let why = |explained: epitome::Explanation| explained.slots.into_iter().next().map(|slot| slot.why);
    writeln!(out, "after the first call: {}", why(session.explain().await?).unwrap_or_default())?;
    let whole = session.context(8_000).await?.report.exhaustive;
    writeln!(out, "without a summary, a context is exhaustive: {whole}")?;

    // The worker would retry after a second; a request for the summary does not wait for that.
    match session.summarize(epitome::Summarize::slot("notes")).await {
        Ok(done) => writeln!(out, "then: {}", done.summary().map_or("", |summary| summary.text.as_str()))?,
        Err(Error::Model { reason }) => writeln!(out, "still failing: {reason}")?,
        Err(error) => return Err(error.into()),
    }
    for note in memory.notes.lock().map_err(|_| "a hook panicked")?.iter() {
        writeln!(out, "hook: {note}")?;
    }
    for row in session.usage().await? {
        let cost = row.cost.map_or("unknown".to_owned(), |cost| format!("{cost} millionths"));
        let (model, outcome, calls) = (row.model, row.outcome, row.calls);
        writeln!(
            out,
            "usage: {model} {outcome}: {calls} calls, {} + {} tokens, cost {cost}",
            row.input, row.output
        )?;
    }
    engine.close().await;
    Ok(out)
}
