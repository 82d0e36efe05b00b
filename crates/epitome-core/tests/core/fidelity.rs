//! Measures what survives condensing without a model, on conversations written for the project.
//!
//! The conversations contain planted facts. A context contains a fact if it contains the fact's words.
//! The built-in summarizer works through its slots message by message, as a server would have it.

use std::fmt::Write;

use epitome_core::context::{PlaceholderCosts, Request, SessionShape, lay_out};
use epitome_core::context_texts::{ContextTexts, render};
use epitome_core::cut::Cuts;
use epitome_core::local::Extracts;
use epitome_core::message::{Content, Message, Part, Seq, Tokens};
use epitome_core::outline::Cut;
use epitome_core::plan::{NextStep, PlanInput, next_step};
use epitome_core::slot::{Slot, SlotState};
use epitome_core::tokens::{Counter, Encoding};

use crate::conversations::{self, Conversation};
use crate::drawn::Log;

/// A slot's summary at the end of a conversation.
struct StoredSummary {
    through: Seq,
    text: String,
    extracts: Extracts,
}

/// Plays a conversation's first messages through a slot, as a worker would.
fn play(log: &Log, slot: &Slot, until: usize) -> StoredSummary {
    let mut state = SlotState::default();
    let mut summary = StoredSummary { through: 0, text: String::new(), extracts: Extracts::default() };
    for at in 1..=until {
        state.advance(slot, &log.outlines[at - 1], None);
        loop {
            let outlines = &log.outlines[usize::try_from(state.covered).unwrap()..at];
            let ahead =
                PlanInput { outlines, end: Some(log.end(at)), room: None, input: 100_000, authors: &[] };
            let step = next_step(slot, &state, &ahead);
            step.settle(slot, &mut state, &log.outlines[..at], None);
            let NextStep::Summarize(plan) = step else { break };
            let span = usize::try_from(plan.prior).unwrap()..usize::try_from(plan.span.through).unwrap();
            log.messages[span].iter().filter(|m| !m.role.is_system()).for_each(|m| summary.extracts.read(m));
            summary.text = summary.extracts.summarize(slot.limit, &log.counter);
            summary.through = plan.span.through;
        }
    }
    summary
}

fn context(log: &Log, at: usize, summaries: &[StoredSummary], request: &Request) -> Vec<Message> {
    let mut texts = ContextTexts::new(&log.counter, &log.messages[..at]);
    for StoredSummary { through, text, extracts } in summaries {
        texts = texts.with_extracts(*through, text.as_str(), extracts);
    }
    texts = texts.with_joined();
    let candidates = texts.candidates();
    let session = SessionShape::whole(Cuts::new(&log.outlines[..at], log.end(at)), &candidates);
    let layout = lay_out(request, &session, &PlaceholderCosts::of(&log.counter), &mut texts).unwrap();
    let given = render(&layout, &texts).unwrap();
    assert!(log.tokens(&given) <= request.budget().unwrap());
    given
}

/// Returns all words of a list, except those of the system messages.
fn words(list: &[Message]) -> String {
    let mut out = String::new();
    for part in list.iter().filter(|m| !m.role.is_system()).flat_map(|message| &message.parts) {
        match part {
            Part::Text { text } => out.push_str(text),
            Part::ToolCall(call) => out.push_str(&call.arguments),
            Part::ToolResult(result) => result.content.iter().for_each(|content| {
                if let Content::Text { text } = content {
                    out.push_str(text);
                }
            }),
            Part::Thinking { .. } | Part::Media(_) => {}
        }
        out.push('\n');
    }
    out
}

/// Returns the share of the facts mentioned before a position that a text contains.
fn kept(conversation: &Conversation, at: usize, text: &str) -> f64 {
    let said = || conversation.facts.iter().filter(|fact| fact.said_in < at);
    said().filter(|fact| text.contains(&fact.text)).count() as f64 / said().count() as f64
}

const BUDGETS: [Tokens; 4] = [500, 1_000, 2_000, 4_000];

fn summaries(log: &Log, at: usize) -> Vec<StoredSummary> {
    [Slot::short(), Slot::long()].iter().map(|slot| play(log, slot, at)).filter(|s| s.through > 0).collect()
}

/// Returns, in percent and over positions along the whole conversation, the share of facts in the recent messages alone,
/// and in the recent messages with a local summary.
fn survey(conversation: &Conversation, budget: Tokens, counter: &Counter) -> Option<[f64; 3]> {
    let log = Log::new(conversation.messages.clone(), counter.clone());
    let leading: Tokens = log.outlines.iter().filter(|o| o.leading).map(|o| o.tokens).sum();
    // System messages are always shown.
    let request = Request { tokens: Some(budget + leading), ..Request::default() };
    let alone = Request { summary: false, ..request.clone() };
    let filled = Request { fill: true, ..request.clone() };
    let (mut sums, mut places) = ([0.0; 3], 0.0);
    let far = |at: &usize| log.outlines[*at - 1].before > 2 * budget && log.end(*at) == Cut::Legal;
    for at in (1..=log.len()).step_by(7).chain([log.len()]).filter(far) {
        let summaries = summaries(&log, at);
        for (sum, request) in sums.iter_mut().zip([&alone, &request, &filled]) {
            *sum += 100.0 * kept(conversation, at, &words(&context(&log, at, &summaries, request)));
        }
        places += 1.0;
    }
    (places > 0.0).then(|| sums.map(|sum| sum / places))
}

#[test]
fn a_local_summary_keeps_clearly_more_facts_than_recent_messages_alone() {
    let counter = Counter::new(Encoding::O200k);
    let mut table = String::new();
    let mut gains = Vec::new();
    for conversation in conversations::all() {
        for budget in BUDGETS {
            let Some([alone, steady, filled]) = survey(&conversation, budget, &counter) else { continue };
            gains.push(filled - alone);
            let name = &conversation.name;
            let _ = writeln!(
                table,
                "{name:<12} {budget:>5}: alone {alone:3.0} %, steady {steady:3.0} %, filled {filled:3.0} %"
            );
        }
    }
    let mean = gains.iter().sum::<f64>() / gains.len() as f64;
    let _ = writeln!(table, "{mean:.0} points more on average");
    eprintln!("{table}");
    assert!(gains.iter().all(|gain| *gain >= 5.0) && mean >= 25.0, "\n{table}");
}

#[test]
fn no_summary_repeats_a_secret() {
    let counter = Counter::new(Encoding::O200k);
    let mut secrets = 0;
    for conversation in conversations::all() {
        let log = Log::new(conversation.messages.clone(), counter.clone());
        for StoredSummary { extracts, .. } in summaries(&log, log.len()) {
            let stored = serde_json::to_string(&extracts).unwrap();
            for secret in &conversation.secrets {
                secrets += 1;
                assert!(!stored.contains(secret), "{}", conversation.name);
                assert!(!extracts.render(50_000, &counter).contains(secret));
            }
        }
    }
    assert!(secrets > 0, "there are some to be found");
}
