//! A long agent transcript, condensed without a model, a key or a network.
//!
//! `cargo run --example condense_offline` plays a coding agent's session message by message, as an agent
//! would before each of its calls, and condenses the list whenever it reaches its threshold. It prints
//! what happened, and the list the agent would go on with. Give it a file of your own, one OpenAI-style
//! message a line, to see that one: `cargo run --example condense_offline -- session.jsonl`.

#![allow(
    clippy::print_stdout,
    clippy::indexing_slicing,
    dead_code,
    reason = "an example shows something; a test runs `show` only; indexing JSON gives null"
)]

use std::fmt::Write;

use epitome_core::condense::{Decision, Facts, List, Policy, Unchanged};
use epitome_core::local::Extracts;
use epitome_core::message::{Content, Message, Part, Role, Timestamp};
use epitome_core::slot::Limit;
use epitome_core::tokens::{Counter, Encoding};
use serde_json::Value;

/// Written for this project: a bug hunt in a marina's billing service.
pub(crate) const TRANSCRIPT: &str = include_str!("../../epitome-core/tests/conversations/coding.en.jsonl");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let own = std::env::args().nth(1).map(std::fs::read_to_string).transpose()?;
    print!("{}", show(own.as_deref().unwrap_or(TRANSCRIPT))?);
    Ok(())
}

/// All that is shown.
pub(crate) fn show(transcript: &str) -> Result<String, Box<dyn std::error::Error>> {
    let counter = Counter::new(Encoding::O200k);
    let policy = Policy {
        trigger: "tokens(6000)".parse()?,
        strategy: "amortized(messages(6))".parse()?,
        limit: 1_200,
        ..Policy::default()
    };
    let (history, list) = Default::default();
    let mut agent = Agent { counter, policy, history, list, kept: None, sent: 0, would: 0 };
    let mut out = String::from("A coding agent's list is condensed whenever it reaches 6,000 tokens.\n\n");
    for message in read(transcript)? {
        if message.role == Role::Assistant {
            out += &agent.before_model()?;
        }
        agent.history.push(message);
    }
    out += &agent.before_model()?;

    let Agent { counter, history, list, sent, would, .. } = agent;
    let whole: u64 = history.iter().map(|message| counter.message(message)).sum();
    writeln!(
        out,
        "\n{} messages, {whole} tokens, are now {} messages, {} tokens.\n\
         Over all calls {sent} tokens were sent instead of {would}.\n\nWhat the agent goes on with:\n",
        history.len(),
        list.shown_len(),
        list.tokens(),
    )?;
    for message in list.shown(&history).iter() {
        writeln!(out, "--- {}", message.role)?;
        writeln!(out, "{}", told(message))?;
    }
    Ok(out)
}

/// What an agent holds that condenses its own history.
struct Agent {
    counter: Counter,
    policy: Policy,
    history: Vec<Message>,
    list: List,
    /// What the summarizer kept of what it read.
    kept: Option<Extracts>,
    /// The tokens of all calls so far, and what they would have been.
    sent: u64,
    would: u64,
}

impl Agent {
    /// Before each call of the model: take in what is new, and decide. Says what was done, if anything.
    fn before_model(&mut self) -> Result<String, Unchanged> {
        let Self { counter, policy, history, list, kept, .. } = self;
        list.advance(history, counter);
        let mut told = String::new();
        if let Decision::Ask(plan) = list.decide(history, policy, &Facts::at(Timestamp(0)), counter) {
            let mut extracts = plan.extracts(history, kept.as_ref());
            let text = extracts.summarize(Limit::Tokens(plan.limit), counter);
            let report = plan.finish(list, history, &text, counter)?;
            told = format!("message {:>3}: {}\n", history.len(), report.notice);
            *kept = Some(extracts);
        }
        self.sent += list.tokens();
        self.would += history.iter().map(|message| counter.message(message)).sum::<u64>();
        Ok(told)
    }
}

/// What was said, in one text.
fn told(message: &Message) -> String {
    let parts = message.parts.iter().map(|part| match part {
        Part::Text { text } => text.clone(),
        Part::ToolCall(call) => format!("calls {} {}", call.name, call.arguments),
        Part::ToolResult(result) => {
            let words = result.content.iter().map(|content| match content {
                Content::Text { text } => text.as_str(),
                Content::Media(_) => "[media]",
            });
            words.collect()
        }
        Part::Thinking { .. } | Part::Media(_) => String::new(),
    });
    parts.collect::<Vec<_>>().join("\n")
}

/// One message a line, as OpenAI's chat has them. A line without a role is a header.
fn read(transcript: &str) -> Result<Vec<Message>, Box<dyn std::error::Error>> {
    let mut messages = Vec::new();
    for (line, n) in transcript.lines().zip(1..) {
        let line: Value = serde_json::from_str(line).map_err(|error| format!("line {n}: {error}"))?;
        let text = line["content"].as_str().unwrap_or_default();
        let said = (!text.is_empty()).then(|| Part::text(text));
        messages.push(match line["role"].as_str() {
            None => continue,
            Some("tool") => Message::tool(line["tool_call_id"].as_str().unwrap_or_default(), text),
            Some("assistant") => {
                let calls = line["tool_calls"].as_array().into_iter().flatten().map(|call| {
                    let field = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    let function = &call["function"];
                    Part::call(field(&call["id"]), field(&function["name"]), field(&function["arguments"]))
                });
                Message::new(Role::Assistant, said.into_iter().chain(calls))
            }
            Some("system" | "developer") => Message::system(text),
            Some(_) => Message::user(text),
        });
    }
    Ok(messages)
}
