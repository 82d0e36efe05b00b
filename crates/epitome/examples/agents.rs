//! Two agents in one session, each with a summary of its own messages. The session's summarizer reads these summaries
//! instead of the messages that they cover.
//!
//! Run it with `cargo run --example agents`.

#![allow(clippy::print_stdout, dead_code, reason = "an example prints; its test runs `show` only")]

use std::fmt::Write;

use epitome::{ContextRequest, Engine, Message, Summarize};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    print!("{}", show().await?);
    Ok(())
}

/// A slot with a scope covers one author's messages.
const SETTINGS: &str = r#"{"slot": [
    {"name": "short", "trigger": "messages(20)", "max_tokens": 600},
    {"name": "log", "scope": "builder", "trigger": "chars(4000)", "keep": "messages(4)", "max_tokens": 300},
    {"name": "log", "scope": "reviewer", "trigger": "messages(8)", "keep": "messages(4)", "max_chars": 900}
]}"#;

/// Runs the example and returns its output.
pub(crate) async fn show() -> Result<String, Box<dyn std::error::Error>> {
    let mut out = String::new();
    let engine = Engine::builder().settings(SETTINGS).memory().await?;
    let session = engine.session("release");
    session.append(Message::user("Get release 2.4 ready. Never touch src/legacy/.")).await?;

    // Both append to the same log concurrently.
    let (one, two) = (session.clone(), session.clone());
    let builder = tokio::spawn(async move {
        for n in 1..=16 {
            one.append(says(
                "builder",
                format!("Step {n}: built target t{n} from src/part{n}.rs, {n} warnings left."),
            ))
            .await?;
        }
        Ok::<_, epitome::Error>(())
    });
    let reviewer = tokio::spawn(async move {
        for n in 1..=16 {
            two.append(says(
                "reviewer",
                format!("Looked at src/part{n}.rs: line {n}7 needs a test before the release."),
            ))
            .await?;
        }
        Ok::<_, epitome::Error>(())
    });
    builder.await??;
    reviewer.await??;
    session.work().await?;

    // The end of an agent's run is a good time for its summary, even if the trigger has not fired.
    for author in ["builder", "reviewer"] {
        session.summarize(Summarize { scope: Some(author.into()), ..Summarize::default() }).await?;
    }
    for summary in session.summaries().await? {
        let scope = summary.scope.as_deref().unwrap_or("all authors");
        let (slot, tokens, through) = (&summary.slot, summary.tokens, summary.through);
        writeln!(out, "{slot:5} of {scope:11} covers up to message {through}, in {tokens} tokens")?;
    }
    for scope in [None, Some("reviewer")] {
        let context =
            session.context(ContextRequest { scope: scope.map(Into::into), ..1_000.into() }).await?;
        let scope = scope.unwrap_or("all authors");
        let (tokens, exhaustive) = (context.report.tokens.total(), context.report.exhaustive);
        writeln!(out, "\n{scope} in 1,000 tokens: {tokens} used, exhaustive: {exhaustive}")?;
        let text = context.summary.map(|summary| summary.text).unwrap_or_default();
        for line in text.lines().take(4) {
            writeln!(out, "  {}", line.chars().take(110).collect::<String>())?;
        }
    }
    engine.close().await;
    Ok(out)
}

fn says(author: &str, text: String) -> Message {
    Message { author: Some(author.into()), ..Message::assistant(text) }
}
