//! What deciding costs in instructions, which a busy machine does not change.
//!
//! `bench/instructions` runs this under callgrind, once for each scenario. Callgrind counts only
//! inside the functions whose names start with `measured_`; everything else is setup. The number
//! of operations done there is printed, for the script to divide by.
//!
//! Those functions hold no closures: one that was not inlined would bear the function's name too,
//! and callgrind would stop counting at it.

#![allow(clippy::disallowed_methods, reason = "which scenario is an argument")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a bench that cannot go on should stop, loudly"
)]
#![allow(clippy::print_stdout, reason = "the script reads it")]

mod session;

use std::hint::black_box;

use epitome_testkit::drawing::NoWords;

use epitome_core::context::{Candidate, PlaceholderCosts, Request, SessionShape, lay_out};
use epitome_core::cut::Cuts;
use epitome_core::message::{Message, Tokens};
use epitome_core::plan::{NextStep, PlanInput, next_step};
use epitome_core::tokens::{Counter, Encoding};
use epitome_core::track::Tracker;
use session::{Planned, SlotProgress, Tail, Talk, turns};

const TIMES: usize = 20;
const ADDED: usize = 240;

fn main() {
    let asked = std::env::args().nth(1).unwrap_or_default();
    let operations = match asked.as_str() {
        "adding-at-100" => adding(100),
        "adding-at-100000" => adding(100_000),
        "counting-raw" => counting_raw(),
        "counting" => counting(),
        "planning-window" => planning_window(),
        "planning-all" => planning_all(),
        "context-whole" => context_whole(),
        "context-tail" => context_tail(),
        // Cargo's own flags, or nothing.
        flags if flags.is_empty() || flags.starts_with("--") => {
            println!("Counts instructions under callgrind: run bench/instructions.");
            return;
        }
        unknown => panic!("{unknown}: no such scenario"),
    };
    println!("{operations}");
}

fn adding(at: u64) -> usize {
    let Planned { mut tracker, mut short, mut long, .. } = Planned::new(at);
    let new = turns(ADDED);
    measured_adding(&mut tracker, &mut short, &mut long, &new);
    new.len()
}

#[inline(never)]
fn measured_adding(
    tracker: &mut Tracker,
    short: &mut SlotProgress,
    long: &mut SlotProgress,
    new: &[(Message, Tokens)],
) {
    for (message, tokens) in new {
        let outline = tracker.push_sized(message, *tokens);
        short.advance(&outline);
        long.advance(&outline);
        black_box(&outline);
    }
}

/// A kilobyte of prose.
fn kilobyte() -> String {
    let mut text = Talk::new(42).text(40, 1);
    let end = (1_024..).find(|at| text.is_char_boundary(*at)).unwrap();
    text.truncate(end);
    text
}

fn counting_raw() -> usize {
    let raw = tiktoken::get_encoding(Encoding::O200k.name()).unwrap();
    let text = kilobyte();
    // The tokenizer remembers pieces; both ways are counted with a memory that has seen the text.
    black_box(raw.count(&text));
    measured_counting_raw(raw, &text);
    TIMES
}

#[inline(never)]
fn measured_counting_raw(raw: &tiktoken::CoreBpe, text: &str) {
    for _ in 0..TIMES {
        black_box(raw.count(black_box(text)));
    }
}

fn counting() -> usize {
    let counter = Counter::new(Encoding::O200k);
    let text = kilobyte();
    black_box(counter.text(&text));
    measured_counting(&counter, &text);
    TIMES
}

#[inline(never)]
fn measured_counting(counter: &Counter, text: &str) {
    for _ in 0..TIMES {
        black_box(counter.text(black_box(text)));
    }
}

fn planning_window() -> usize {
    let (mut planned, message) = Planned::about_to_fire(1_000);
    assert!(planned.add(&message));
    let ahead = planned.short.ahead(&planned.log, &planned.tracker);
    assert!(matches!(next_step(&planned.short.slot, &planned.short.state, &ahead), NextStep::Summarize(_)));
    measured_planning(&planned.short, &ahead);
    TIMES
}

/// Nothing was ever summarized: windows are joined.
fn planning_all() -> usize {
    let Planned { tracker, short, log, .. } = Planned::new(10_000);
    let mut behind = SlotProgress::new(short.slot);
    for outline in &log {
        behind.advance(outline);
    }
    let ahead = behind.ahead(&log, &tracker);
    let NextStep::Summarize(plan) = next_step(&behind.slot, &behind.state, &ahead) else {
        panic!("all is due")
    };
    assert!(plan.joined > 10);
    measured_planning(&behind, &ahead);
    TIMES
}

#[inline(never)]
fn measured_planning(slot_progress: &SlotProgress, ahead: &PlanInput<'_>) {
    for _ in 0..TIMES {
        black_box(next_step(&slot_progress.slot, &slot_progress.state, black_box(ahead)));
    }
}

fn context_whole() -> usize {
    let planned = Planned::new(10_000);
    measured_context_whole(&planned, &request(), &costs(), &planned.summaries());
    TIMES
}

#[inline(never)]
fn measured_context_whole(
    planned: &Planned,
    request: &Request,
    costs: &PlaceholderCosts,
    summaries: &[Candidate],
) {
    for _ in 0..TIMES {
        let cuts = Cuts::new(&planned.log, planned.tracker.cut_at_end());
        let scene = SessionShape::whole(cuts, summaries);
        let _ = black_box(lay_out(request, black_box(&scene), costs, &mut NoWords));
    }
}

fn context_tail() -> usize {
    let planned = Planned::new(10_000);
    let tail = planned.tail(4_000);
    measured_context_tail(&planned.tracker, &tail, &request(), &costs(), &planned.summaries());
    TIMES
}

#[inline(never)]
fn measured_context_tail(
    tracker: &Tracker,
    tail: &Tail,
    request: &Request,
    costs: &PlaceholderCosts,
    summaries: &[Candidate],
) {
    for _ in 0..TIMES {
        let scene = tail.scene(tracker, summaries);
        let _ = black_box(lay_out(request, black_box(&scene), costs, &mut NoWords));
    }
}

fn request() -> Request {
    Request { tokens: Some(4_000), ..Request::default() }
}

/// As o200k counts them, without loading it.
fn costs() -> PlaceholderCosts {
    PlaceholderCosts { marked_result: 9, note: 7 }
}
