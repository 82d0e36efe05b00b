//! What deciding costs: following a log, planning, cutting, laying out.
//!
//! Criterion does the timing, and its own figures come first. The table at the end sets the median
//! of the same samples, and the best of them, beside what we claim. Where the claim is a ratio, both
//! sides take turns inside one measurement, so that whatever else the machine does hits both alike.
//!
//! Sizes are estimated, except where counting is what is measured: deciding never sees text.

#![allow(clippy::disallowed_methods, reason = "a bench reads the clock and its arguments")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a bench that cannot go on should stop, loudly"
)]
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

mod session;
mod table;

use std::hint::black_box;
use std::time::Duration;

use epitome_testkit::drawing::NoWords;

use epitome_core::context::{Candidate, Layout, PlaceholderCosts, Request, SessionShape, lay_out};
use epitome_core::context_texts::{ContextTexts, render};
use epitome_core::cut::{Cuts, Press};
use epitome_core::keep::Keep;
use epitome_core::local::Extracts;
use epitome_core::message::{Message, Tokens};
use epitome_core::outline::{Cut, Outline};
use epitome_core::plan::{NextStep, PlanInput, next_step};
use epitome_core::slot::{CatchUp, Slot};
use epitome_core::tokens::{Counter, Encoding};
use epitome_core::track::Tracker;
use epitome_testkit::cuts::choose;
use session::{Planned, SlotProgress, Tail, Talk, size, sized, turns};
use table::{Bench, Claim, batches, timed};

/// How many messages are added in one run of `adding`.
const ADDED: usize = 60;

fn main() {
    let mut bench = Bench::new();
    adding(&mut bench);
    from_scratch(&mut bench);
    one_more(&mut bench);
    with_words(&mut bench);
    bench.finish();
}

/// Adding a message must cost the same however long the session is.
fn adding(bench: &mut Bench) {
    let new = turns(ADDED);
    let [near, far] = [100, 100_000].map(Planned::new);
    let add = |(tracker, short, long): &mut (Tracker, SlotProgress, SlotProgress)| {
        for (message, tokens) in &new {
            let outline = tracker.push_sized(message, *tokens);
            short.advance(&outline);
            long.advance(&outline);
            black_box(&outline);
        }
    };
    let states = |planned: &Planned| (planned.tracker.clone(), planned.short.clone(), planned.long.clone());
    let name = "adding a message, at 100,000 against at 100";
    let (mut fars, mut nears, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    bench.criterion.bench_function(name, |b| {
        b.iter_custom(|iters| {
            let (mut at_near, mut at_far) = (Duration::ZERO, Duration::ZERO);
            for batch in batches(iters) {
                at_near += timed(batch, || states(&near), add);
                at_far += timed(batch, || states(&far), add);
            }
            let per_message = |time: Duration| time.as_secs_f64() / (iters as f64 * ADDED as f64);
            nears.push(per_message(at_near));
            fars.push(per_message(at_far));
            ratios.push(at_far.as_secs_f64() / at_near.as_secs_f64());
            at_far
        });
    });
    bench.row("adding a message at 100", &nears, 1, Claim::Nothing);
    bench.row("adding a message at 100,000", &fars, 1, Claim::Nothing);
    bench.ratio("  ratio", &ratios, 1.5);
}

/// A session of 10,000 messages of which nothing was ever planned.
fn from_scratch(bench: &mut Bench) {
    let messages: Vec<(Message, Tokens)> = Talk::new(42).take(10_000).map(sized).collect();
    let track = || {
        let mut tracker = Tracker::default();
        let log = messages.iter().map(|(m, tokens)| tracker.push_sized(m, *tokens)).collect::<Vec<_>>();
        (tracker, log)
    };
    bench.measure("10,000: tracking all", Claim::Nothing, || (), |()| track());

    let (tracker, log) = track();
    let [mut short, mut long] = [Slot::short(), Slot::long()].map(SlotProgress::new);
    for outline in &log {
        short.advance(outline);
        long.advance(outline);
    }
    let mut stepping = short.clone();
    stepping.slot.catch_up = CatchUp::Step;
    let plan = |slot_progress: &SlotProgress| {
        next_step(&slot_progress.slot, &slot_progress.state, &slot_progress.ahead(&log, &tracker))
    };
    let (NextStep::Summarize(joined), NextStep::Summarize(single)) = (plan(&short), plan(&stepping)) else {
        panic!("everything is due");
    };
    assert!(joined.joined > 10 && single.joined == 1);
    bench.measure("10,000: planning, step", Claim::Nothing, || (), |()| plan(&stepping));
    bench.measure("10,000: planning, join", Claim::Nothing, || (), |()| plan(&short));
    bench.measure(
        "10,000: all windows in turn, 60 ahead",
        Claim::Nothing,
        || stepping.clone(),
        |slot_progress| all_windows(slot_progress, &log),
    );

    let cuts = Cuts::new(&log, tracker.cut_at_end());
    let keep = Keep::Tokens(20_000);
    let cut = || choose(&cuts, 0, &keep, None, Press::Gently);
    assert!(cut().is_ok());
    bench.measure("10,000: choosing a cut", Claim::Nothing, || (), |()| cut());

    // Summaries near the head are the everyday case; with none at all the whole log is missing.
    let planned = Planned::new(10_000);
    let near_head = planned.summaries();
    let costs = PlaceholderCosts::of(&Counter::new(Encoding::O200k));
    let context = |budget, summaries: &[Candidate]| {
        let scene = SessionShape::whole(cuts, summaries);
        let layout = laid_out(budget, &scene, &costs);
        assert!(!layout.entries.is_empty());
        layout
    };
    for (budget, name) in [(4_000, "4,000"), (100_000, "100,000")] {
        for (summaries, which) in [(&near_head[..], "two summaries"), (&[], "no summary")] {
            let name = format!("10,000: a context of {name}, {which}");
            bench.measure(&name, Claim::Nothing, || (), |()| context(budget, summaries));
        }
    }
    let millisecond = Claim::Under(Duration::from_millis(1));
    bench.measure(
        "10,000: short and long, cut, context of 4,000",
        millisecond,
        || (),
        |()| (plan(&short), plan(&long), cut(), context(4_000, &[])),
    );
    bench.measure(
        "10,000: short and long, cut, context of 100,000",
        millisecond,
        || (),
        |()| (plan(&short), plan(&long), cut(), context(100_000, &[])),
    );
    bench.measure(
        "10,000: the same, and tracking",
        Claim::Nothing,
        || (),
        |()| (track(), plan(&short), plan(&long), cut(), context(100_000, &[])),
    );
}

/// Every window of a slot, one after the other, the way a store hands them in.
fn all_windows(slot_progress: &mut SlotProgress, log: &[Outline]) -> usize {
    let mut summaries = 0;
    loop {
        let from = usize::try_from(slot_progress.state.covered).unwrap();
        let to = log.len().min(from + 60);
        let end = log.get(to).map_or(Cut::Legal, |outline| outline.cut);
        let ahead = PlanInput {
            outlines: &log[from..to],
            end: Some(end),
            room: None,
            input: session::INPUT,
            authors: &[],
        };
        let (covered, firing) = match next_step(&slot_progress.slot, &slot_progress.state, &ahead) {
            NextStep::Summarize(plan) => (plan.span.through, plan.firing),
            NextStep::Pass { firing, .. } => (slot_progress.state.covered, firing),
            NextStep::Nothing(_) => return summaries,
        };
        slot_progress.state.settle(&slot_progress.slot, covered, firing, ahead.outlines, None);
        summaries += 1;
    }
}

/// One more message on a session of 10,000, the short summary due with it.
fn one_more(bench: &mut Bench) {
    let (before, message) = Planned::about_to_fire(10_000);
    let tokens = size(&message);
    let tail = before.tail(4_000);
    let summaries = before.summaries();
    let costs = PlaceholderCosts::of(&Counter::new(Encoding::O200k));
    let window = usize::try_from(before.short.state.covered).unwrap();
    let window = window - (before.log.len() - tail.recent.len());

    let states = || (before.tracker.clone(), before.short.clone(), before.long.clone(), tail.clone());
    let add = |(tracker, short, long, tail): &mut (Tracker, SlotProgress, SlotProgress, Tail)| {
        let outline = tracker.push_sized(&message, tokens);
        let fired = short.advance(&outline);
        long.advance(&outline);
        tail.recent.push(outline);
        fired
    };
    let plan = |tracker: &Tracker, short: &SlotProgress, tail: &Tail| {
        next_step(&short.slot, &short.state, &short.ahead(&tail.recent, tracker))
    };
    let context = |tracker: &Tracker, tail: &Tail| laid_out(4_000, &tail.scene(tracker, &summaries), &costs);

    let mut after = states();
    assert!(add(&mut after));
    let (tracker, short, _, longer) = &after;
    let NextStep::Summarize(planned) = plan(tracker, short, longer) else { panic!("the window is whole") };
    let layout = context(tracker, longer);
    println!(
        "one more: message {}, of {} tokens; {} outlines in the tail, the window starts at {window} and \
         holds {}; {} entries in the context, {} tokens",
        tracker.head(),
        tokens,
        longer.recent.len(),
        planned.span.len(),
        layout.entries.len(),
        layout.report.tokens.total(),
    );

    let five = Claim::Under(Duration::from_micros(5));
    bench.measure("one more: tracking it, short and long", Claim::Nothing, states, add);
    bench.measure("one more: planning the window", Claim::Nothing, || (), |()| plan(tracker, short, longer));
    bench.measure(
        "one more: a context of 4,000 from the tail",
        Claim::Nothing,
        || (),
        |()| context(tracker, longer),
    );
    bench.measure("one more: all of it", five, states, |all| {
        let fired = add(all);
        let (tracker, short, _, tail) = all;
        (fired, plan(tracker, short, tail), context(tracker, tail))
    });
}

/// For information: what words cost beside the deciding.
fn with_words(bench: &mut Bench) {
    let counter = Counter::new(Encoding::O200k);
    let mut talk = Talk::new(42);
    let messages: Vec<Message> =
        (1..).zip(talk.by_ref().take(400)).map(|(seq, message)| Message { seq, ..message }).collect();
    let summary = |talk: &mut Talk, tokens: Tokens| {
        let mut text = String::new();
        while counter.text(&text) < tokens {
            text += &talk.text(1, 3);
            text.push('\n');
        }
        text
    };
    let (detailed, brief) = (summary(&mut talk, 4_000), summary(&mut talk, 900));

    let mut tracker = Tracker::default();
    let log: Vec<Outline> = messages.iter().map(|message| tracker.push(message, &counter)).collect();
    let texts = ContextTexts::new(&counter, &messages).with_summary(380, brief).with_summary(360, &*detailed);
    let candidates = texts.candidates();
    let scene = SessionShape::whole(Cuts::new(&log, tracker.cut_at_end()), &candidates);
    let request = Request { tokens: Some(4_000), ..Request::default() };
    let costs = PlaceholderCosts::of(&counter);
    let lay = |texts: &mut ContextTexts<'_>| lay_out(&request, &scene, &costs, texts).unwrap();
    let mut used = texts.clone();
    let layout = lay(&mut used);
    assert!(layout.report.tokens.total() > 2_000);

    bench.measure("words: rendering a context of 4,000", Claim::Nothing, || (), |()| render(&layout, &used));
    bench.measure(
        "words: shortening 4,000 tokens to 1,600",
        Claim::Nothing,
        || (),
        |()| Extracts::of_text(&detailed, 0).render(1_600, &counter),
    );
    bench.measure(
        "words: laying that context out, one summary shortened",
        Claim::Nothing,
        || texts.clone(),
        |texts| lay(texts),
    );
    bench.measure_many(
        "words: counting and tracking a message",
        messages.len(),
        || (),
        |()| {
            let mut tracker = Tracker::default();
            messages.iter().for_each(|message| {
                black_box(tracker.push(message, &counter));
            });
            tracker
        },
    );
}

fn laid_out(budget: Tokens, scene: &SessionShape<'_>, costs: &PlaceholderCosts) -> Layout {
    let request = Request { tokens: Some(budget), ..Request::default() };
    lay_out(&request, scene, costs, &mut NoWords).unwrap()
}
