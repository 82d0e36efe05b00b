//! A coding agent's session, message by message: when summaries are due, what they cover, and the
//! contexts for several budgets. It needs no key, no model and no setup.
//!
//! Run it with `cargo run --example context`.

#![allow(clippy::print_stdout, dead_code, reason = "an example prints; its test runs `show` only")]

use std::fmt::Write;

use epitome_core::context::{Entry, PlaceholderCosts, Request, SessionShape, lay_out};
use epitome_core::context_texts::{ContextTexts, render};
use epitome_core::cut::Cuts;
use epitome_core::local::Extracts;
use epitome_core::message::{Message, Part, Role, Seq, Tokens};
use epitome_core::outline::Outline;
use epitome_core::plan::{NextStep, PlanInput, next_step};
use epitome_core::slot::{Slot, SlotState};
use epitome_core::tokens::{Counter, Encoding};
use epitome_core::track::Tracker;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    print!("{}", show()?);
    Ok(())
}

/// Runs the example and returns its output.
pub(crate) fn show() -> Result<String, Box<dyn std::error::Error>> {
    let mut out = String::new();
    let counter = Counter::new(Encoding::O200k);
    let mut tracker = Tracker::default();
    let (mut log, mut shapes): (Vec<Message>, Vec<Outline>) = Default::default();
    let slots = [Slot::short(), Slot::long()];
    let mut states = [SlotState::default(), SlotState::default()];
    let mut texts: [(Seq, String, Extracts); 2] = Default::default();

    writeln!(out, "A coding agent works through a list of failing tests.\n")?;
    for (n, mut message) in session().into_iter().enumerate() {
        message.seq = n as Seq + 1;
        let shape = tracker.push(&message, &counter);
        log.push(message);
        for (slot, state) in slots.iter().zip(&mut states) {
            state.advance(slot, &shape, None);
        }
        shapes.push(shape);

        // A server does this in the background; the example does it at once.
        for ((slot, state), (through, text, extracts)) in slots.iter().zip(&mut states).zip(&mut texts) {
            let after = shapes.get(usize::try_from(state.covered)?..).unwrap_or_default();
            let end = Some(tracker.cut_at_end());
            let ahead = PlanInput { outlines: after, end, room: None, input: 100_000, authors: &[] };
            let step = next_step(slot, state, &ahead);
            step.settle(slot, state, &shapes, None);
            let NextStep::Summarize(plan) = step else { continue };
            let span = usize::try_from(plan.prior)?..usize::try_from(plan.span.through)?;
            let messages = log.get(span).unwrap_or_default();
            messages.iter().for_each(|message| extracts.read(message));
            *text = extracts.summarize(slot.limit, &counter);
            *through = plan.span.through;
            writeln!(
                out,
                "message {:>3}: {:<5} adds {:<10} {:>6} -> {:>5} tokens, covers 1..={}",
                tracker.head(),
                slot.name,
                plan.span.to_string(),
                plan.tokens,
                counter.text(text),
                plan.span.through,
            )?;
        }
    }

    writeln!(out, "\n{} messages, {} tokens. The contexts:\n", log.len(), tracker.tokens())?;
    writeln!(
        out,
        "{:>7} {:>7} {:>8} {:>9} {:>9}  covers",
        "budget", "used", "summary", "messages", "complete?"
    )?;
    let mut context_texts = ContextTexts::new(&counter, &log);
    for (through, text, extracts) in &texts {
        context_texts = context_texts.with_extracts(*through, text.as_str(), extracts);
    }
    let candidates = context_texts.candidates();
    let scene = SessionShape::whole(Cuts::new(&shapes, tracker.cut_at_end()), &candidates);
    for tokens in [250, 500, 1_000, 2_000, 4_000, 8_000] {
        let request = Request { tokens: Some(tokens), ..Request::default() };
        let layout = lay_out(&request, &scene, &PlaceholderCosts::of(&counter), &mut context_texts)?;
        let messages = render(&layout, &context_texts)?;
        let used: Tokens = messages.iter().map(|message| counter.message(message)).sum();
        let verbatim =
            layout.entries.iter().filter(|entry| matches!(entry, Entry::Message(_) | Entry::Relocated(_)));
        let report = &layout.report;
        writeln!(
            out,
            "{tokens:>7} {used:>7} {:>8} {:>9} {:>9}  {}{}",
            report.tokens.summary,
            verbatim.count(),
            if report.exhaustive { "yes" } else { "no" },
            report.covers.map_or("-".to_owned(), |span| span.to_string()),
            report.gap.map_or(String::new(), |gap| format!(", {gap} left out")),
        )?;
    }

    let request = Request { tokens: Some(500), ..Request::default() };
    let layout = lay_out(&request, &scene, &PlaceholderCosts::of(&counter), &mut context_texts)?;
    writeln!(out, "\nThe context for 500 tokens:\n")?;
    for message in render(&layout, &context_texts)? {
        writeln!(out, "{:<10}{}", message.role.to_string(), text_of(&message).replace('\n', "\n          "))?;
    }
    Ok(out)
}

/// Returns the text of a message.
fn text_of(message: &Message) -> String {
    let parts = message.parts.iter().map(|part| match part {
        Part::Text { text } => text.clone(),
        Part::ToolCall(call) => format!("calls {}({})", call.name, call.arguments),
        Part::ToolResult(result) => result
            .content
            .iter()
            .map(|content| match content {
                epitome_core::message::Content::Text { text } => text.as_str(),
                epitome_core::message::Content::Media(_) => "[media]",
            })
            .collect(),
        Part::Thinking { .. } | Part::Media(_) => String::new(),
    });
    parts.collect::<Vec<_>>().join("\n")
}

/// A session of an agent: a pinned rule, requests, calls, results.
fn session() -> Vec<Message> {
    let mut log = vec![Message::system("You fix the tests of the project `ferry`, one after the other.")];
    let mut rule = Message::user("Never touch src/billing.rs. Start with the timetable tests.");
    rule.pinned = true;
    log.push(rule);
    let modules = ["timetable", "booking", "tides", "harbour", "crew", "fares", "weather", "manifest"];
    for (n, module) in modules.iter().cycle().take(24).enumerate() {
        let line = 40 + n * 7;
        log.push(Message::user(format!("Next: tests/{module}_{n}.rs fails. Why?")));
        log.push(Message::new(
            Role::Assistant,
            [
                Part::text(format!("I will run it and read src/{module}.rs.")),
                Part::call(format!("run{n}"), "run", format!(r#"{{"command":"cargo test {module}_{n}"}}"#)),
                Part::call(format!("read{n}"), "read", format!(r#"{{"path":"src/{module}.rs"}}"#)),
            ],
        ));
        let output = format!(
            "running 3 tests\ntest {module}_{n} ... FAILED\nthread panicked at src/{module}.rs:{line}: \
             expected {} berths, found {}\n{}",
            n + 2,
            n + 1,
            "note: a backtrace can be had\n".repeat(4),
        );
        log.push(Message::new(Role::Tool, [Part::result(format!("run{n}"), output)]));
        let source = "pub fn berths(&self) -> usize {\n    self.slots.len() - 1\n}\n".repeat(8);
        log.push(Message::new(Role::Tool, [Part::result(format!("read{n}"), source)]));
        log.push(Message::assistant(format!(
            "In src/{module}.rs, line {line}, one berth too few is counted. I drop the `- 1`; {module}_{n} passes now."
        )));
    }
    log
}
