//! A long agent transcript, condensed without a model, a key or a network.
//!
//! `cargo run --example condense_offline` plays a coding agent's session message by message, as an agent
//! would before each of its calls, and condenses the list whenever it reaches its threshold. It prints
//! each step, and the list at the end. To condense your own file, with one OpenAI message per line:
//! `cargo run --example condense_offline -- session.jsonl`.

#![allow(
    clippy::print_stdout,
    clippy::indexing_slicing,
    dead_code,
    reason = "an example prints; its test runs `show` only; indexing JSON gives null"
)]

use std::fmt::Write;
use std::process::ExitCode;

use epitome_core::condense::{Decision, List, Policy, RequestFacts, Unchanged};
use epitome_core::local::Extracts;
use epitome_core::message::{Content, Message, Part, Role, Timestamp};
use epitome_core::slot::Limit;
use epitome_core::tokens::{Counter, Encoding};
use serde_json::Value;

/// Written for this project: a bug hunt in a marina's billing service.
pub(crate) const TRANSCRIPT: &str = include_str!("../../epitome-testkit/conversations/coding.en.jsonl");

fn main() -> ExitCode {
    let shown = match std::env::args().nth(1) {
        None => show(TRANSCRIPT),
        Some(path) => match std::fs::read_to_string(&path) {
            Ok(transcript) => show(&transcript),
            Err(error) => Err(format!("{path}: {error}").into()),
        },
    };
    match shown {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the example and returns its output.
pub(crate) fn show(transcript: &str) -> Result<String, Box<dyn std::error::Error>> {
    let counter = Counter::new(Encoding::O200k);
    let policy = Policy {
        trigger: "tokens(6000)".parse()?,
        strategy: "amortized(messages(6))".parse()?,
        limit: 1_200,
        ..Policy::default()
    };
    let (history, list) = Default::default();
    let mut agent = Agent { counter, policy, history, list, extracts: None, sent: 0, uncondensed: 0 };
    let mut out = String::from("A coding agent's list is condensed whenever it reaches 6,000 tokens.\n\n");
    for message in read(transcript)? {
        if message.role == Role::Assistant {
            out += &agent.before_model()?;
        }
        agent.history.push(message);
    }
    out += &agent.before_model()?;
    out += &agent.why_not();

    let Agent { counter, history, list, sent, uncondensed, .. } = agent;
    let whole: u64 = history.iter().map(|message| counter.message(message)).sum();
    writeln!(
        out,
        "\n{} messages, {whole} tokens, are now {} messages, {} tokens.\n\
         Over all calls {sent} tokens were sent instead of {uncondensed}.\n\nThe agent continues with:\n",
        history.len(),
        list.shown_len(),
        list.tokens(),
    )?;
    for message in list.shown(&history).iter() {
        writeln!(out, "--- {}", message.role)?;
        writeln!(out, "{}", message_text(message))?;
    }
    Ok(out)
}

/// The state of an agent that condenses its own history.
struct Agent {
    counter: Counter,
    policy: Policy,
    history: Vec<Message>,
    list: List,
    /// What the summarizer extracted from the messages.
    extracts: Option<Extracts>,
    /// Tokens of all calls so far, with and without condensing.
    sent: u64,
    uncondensed: u64,
}

impl Agent {
    /// Before each model call: adds the new messages and decides. Returns a description of what was done, if anything.
    fn before_model(&mut self) -> Result<String, std::fmt::Error> {
        let Self { counter, policy, history, list, extracts: stored, .. } = self;
        list.advance(history, counter);
        let mut report_text = String::new();
        if let Decision::Summarize(plan) =
            list.decide(history, policy, &RequestFacts::at(Timestamp(0)), counter)
        {
            let mut extracts = plan.extracts(history, stored.as_ref());
            let text = extracts.summarize(Limit::Tokens(plan.limit), counter);
            match plan.finish(list, history, &text, counter) {
                Ok(report) => {
                    *stored = Some(extracts);
                    writeln!(report_text, "message {:>3}: {}", history.len(), report.notice)?;
                }
                Err(reason) => writeln!(report_text, "message {:>3}: unchanged; {reason}", history.len())?,
            }
        }
        self.sent += list.tokens();
        self.uncondensed += history.iter().map(|message| counter.message(message)).sum::<u64>();
        Ok(report_text)
    }

    /// Why a list over its threshold was not condensed.
    fn why_not(&self) -> String {
        let Self { counter, policy, history, list, .. } = self;
        match list.decide(history, policy, &RequestFacts::at(Timestamp(0)), counter) {
            Decision::Unchanged(reason) if reason != Unchanged::NotDue => {
                format!("At the end: unchanged; {reason}\n")
            }
            _ => String::new(),
        }
    }
}

/// Returns the text of a message.
fn message_text(message: &Message) -> String {
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

/// Parses one OpenAI chat message per line. The first line may be a header without a role.
fn read(transcript: &str) -> Result<Vec<Message>, Box<dyn std::error::Error>> {
    let mut messages = Vec::new();
    for (line, n) in transcript.trim_start_matches('\u{feff}').lines().zip(1..) {
        if line.trim().is_empty() {
            continue;
        }
        let wrong =
            |what: &dyn std::fmt::Display| format!("line {n}: {what}; one JSON message a line is expected");
        let line: Value = serde_json::from_str(line).map_err(|error| wrong(&error))?;
        let text = text_of(&line["content"]);
        let said = (!text.is_empty()).then(|| Part::text(text.as_str()));
        messages.push(match line["role"].as_str() {
            None if n == 1 && line.is_object() => continue,
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
            Some("user") => Message::user(text),
            Some(role) => return Err(wrong(&format!("unknown role {role}")).into()),
            None => return Err(wrong(&"a message without a role").into()),
        });
    }
    Ok(messages)
}

/// Returns the text of a content, which is one text or a list of parts.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}
