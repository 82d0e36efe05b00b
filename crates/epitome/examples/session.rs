//! A session in a file: the program appends messages, the worker writes summaries in the background, and a context
//! returns the conversation within a token budget. It needs no key, no server and no setup.
//!
//! Run it with `cargo run --example session`, or with a file of your own: `cargo run --example session -- agent.db`.

#![allow(clippy::print_stdout, dead_code, reason = "an example prints; its test runs `show` only")]

use std::fmt::Write;
use std::path::Path;

use epitome::rules::message::{Message, Part, Role, Timestamp};
use epitome::{Engine, Summarize};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("epitome-session-{}", std::process::id()));
    let path = std::env::args_os().nth(1).map_or_else(|| folder.join("agent.db"), Into::into);
    if path.starts_with(&folder) {
        std::fs::create_dir_all(&folder)?;
    }
    let shown = show(&path).await;
    if path.starts_with(&folder) {
        std::fs::remove_dir_all(&folder)?;
    }
    print!("{}", shown?);
    Ok(())
}

/// Runs the example and returns its output.
pub(crate) async fn show(path: &Path) -> Result<String, Box<dyn std::error::Error>> {
    let mut out = String::new();
    let engine = Engine::open(path).await?;
    let session = engine.session("ticket-4711");

    // An agent works on a ticket. Each append is one durable transaction, and waits for no model.
    session.append(at(0, [Message::system("You are the support agent of a bicycle shop.")])).await?;
    for n in 1..=112 {
        let turn = [
            Message::user(format!(
                "Question {n}: where is order {n}071? It was paid on 2026-03-{:02}.",
                n % 28 + 1
            )),
            Message::new(
                Role::Assistant,
                [Part::call(format!("call-{n}"), "find_order", format!(r#"{{"order": "{n}071"}}"#))],
            ),
            Message::tool(
                format!("call-{n}"),
                format!("order {n}071: packed in Oslo, parcel PX-{n}, due on Monday"),
            ),
            Message::assistant(format!("Order {n}071 is on its way as parcel PX-{n} and arrives on Monday.")),
        ];
        session.append(at(n, turn)).await?;
    }

    // The worker does this in the background. A program need not wait; the example waits for the summaries.
    session.work().await?;
    for summary in session.summaries().await? {
        writeln!(
            out,
            "{:5} covers messages 1-{}: {} tokens, written by {}, {} → {} messages ({} % less)",
            summary.slot,
            summary.through,
            summary.tokens,
            summary.model,
            summary.original_count,
            summary.compressed_count,
            summary.compression_ratio
        )?;
    }
    writeln!(out, "\nbudget    used  messages  summary of  exhaustive")?;
    for budget in [500, 1_000, 4_000, 16_000] {
        let context = session.context(budget).await?;
        let covers = context.report.covers.map_or("-".to_owned(), |span| format!("1-{}", span.through));
        let (used, messages) = (context.report.tokens.total(), context.messages.len());
        writeln!(out, "{budget:6} {used:7} {messages:9} {covers:>11}  {}", context.report.exhaustive)?;
    }

    // Summarized messages can be searched and shown, and a summary can be undone.
    let found = session.search("\"PX-7,\" Oslo", None, None, 3).await?;
    for hit in &found {
        writeln!(out, "\nmessage {}: {}", hit.message.seq, hit.excerpt)?;
    }
    let forced =
        session.summarize(Summarize { focus: Some("parcels".into()), ..Summarize::slot("short") }).await?;
    if let Some(summary) = forced.summary() {
        let before = session.undo(summary.id).await?;
        let reaches = before.map_or(0, |summary| summary.through);
        writeln!(out, "\nundone: the short summary covers up to message {reaches} again")?;
    }
    engine.close().await;

    // Everything is stored for the next process.
    let engine = Engine::open(path).await?;
    let info = engine.session("ticket-4711").info().await?;
    writeln!(out, "reopened: {} messages, {} turns, {} tokens", info.messages, info.turns, info.tokens)?;
    engine.close().await;
    Ok(out)
}

/// Sets a timestamp, so that the output is the same every day. Without one, the time of the append is used.
fn at<const N: usize>(n: u64, messages: [Message; N]) -> [Message; N] {
    let march = Timestamp(1_772_442_000_000);
    messages.map(|message| Message { at: march.plus_seconds(n * 3_600), ..message })
}
