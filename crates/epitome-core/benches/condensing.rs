//! What condensing costs: the local summarizer and its parts, a step on a list, a prompt, a verdict.
//!
//! Reading is measured in megabytes a second on one core, over a session of twelve megabytes that goes
//! on: each run takes the next half megabyte. When all was read it begins anew, with nothing kept; far
//! more was read by then than any cache holds.

#![allow(clippy::disallowed_methods, reason = "a bench reads the clock and its arguments")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a bench that cannot go on should stop, loudly"
)]

mod table;
mod talks;

use std::hint::black_box;
use std::time::{Duration, Instant};

use epitome_core::condense::{Decision, List, Policy, Press, RequestFacts, Unchanged};
use epitome_core::inspect::{Finish, Standard, inspect};
use epitome_core::ledger::Ledger;
use epitome_core::local::Extracts;
use epitome_core::message::{Message, Part, Timestamp, Tokens};
use epitome_core::names::names;
use epitome_core::prompt::{Profile, PromptInput, TranscriptEntry, prompt};
use epitome_core::redact::redact;
use epitome_core::slot::Limit;
use epitome_core::tokens::{Counter, Encoding};
use table::{Bench, Claim, times};
use talks::{Kind, Talks};

/// What one run reads at least.
const PORTION: u64 = 512 << 10;

/// The windows and sizes of the two slots every session has.
const SHORT: (usize, Tokens) = (20, 1_000);
const LONG: (usize, Tokens) = (60, 4_000);

/// Steps in one run of `steps`, each with two new messages.
const STEPS: usize = 30;

/// So often the run is repeated at the short list, for as many steps at the long one.
const RUNS: usize = 20;

fn main() {
    let mut bench = Bench::new();
    reading(&mut bench);
    parts(&mut bench);
    memory(&mut bench);
    rendering(&mut bench);
    steps(&mut bench);
    condensing(&mut bench);
    asking(&mut bench);
    bench.finish();
}

/// Enough for all samples; as a test, enough for one.
fn corpus(kind: Kind) -> Vec<Message> {
    Talks::bytes(kind, if times() { 24 * PORTION } else { PORTION / 8 })
}

/// Reads a portion at a time, from the beginning again when all was read.
struct Reader<'a> {
    messages: &'a [Message],
    at: usize,
}

impl<'a> Reader<'a> {
    /// The next portion, whether it begins anew, and its bytes.
    fn portion(&mut self, window: usize) -> (&'a [Message], bool, u64) {
        let anew = self.at == 0 || self.at >= self.messages.len();
        self.at = if anew { 0 } else { self.at };
        let (from, mut bytes) = (self.at, 0);
        while bytes < PORTION && self.at < self.messages.len() {
            let to = self.messages.len().min(self.at + window);
            bytes += self.messages[self.at..to].iter().map(Message::bytes).sum::<u64>();
            self.at = to;
        }
        (&self.messages[from..self.at], anew, bytes)
    }
}

/// Seconds a byte, for each sample.
fn rates<'a>(
    bench: &mut Bench,
    name: &str,
    messages: &'a [Message],
    window: usize,
    mut read: impl FnMut(&'a [Message], bool),
) -> Vec<f64> {
    let mut figures = Vec::new();
    let mut reader = Reader { messages, at: 0 };
    bench.criterion.bench_function(name, |b| {
        b.iter_custom(|iters| {
            let (mut time, mut bytes) = (Duration::ZERO, 0);
            for _ in 0..iters {
                let (portion, anew, more) = reader.portion(window);
                let start = Instant::now();
                read(portion, anew);
                time += start.elapsed();
                bytes += more;
            }
            figures.push(time.as_secs_f64() / bytes as f64);
            time
        });
    });
    figures
}

/// Reading window after window, as a slot does, and keeping what its summary can hold.
fn reading(bench: &mut Bench) {
    let counter = Counter::new(Encoding::O200k);
    for kind in Kind::ALL {
        let messages = corpus(kind);
        for (window, tokens) in [SHORT, LONG] {
            let name = format!("local: {}, {window} messages to {tokens} tokens", kind.name());
            let mut extracts = Extracts::default();
            let figures = rates(bench, &name, &messages, window, |portion, anew| {
                if anew {
                    extracts = Extracts::default();
                }
                for window in portion.chunks(window) {
                    window.iter().for_each(|message| extracts.read(message));
                    black_box(extracts.summarize(Limit::Tokens(tokens), &counter));
                }
            });
            bench.rate(&name, &figures, Claim::AtLeast(10.0));
        }
    }
}

fn texts(messages: &[Message]) -> impl Iterator<Item = &str> {
    messages.iter().flat_map(|message| &message.parts).filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        _ => None,
    })
}

/// The parts of reading, alone.
fn parts(bench: &mut Bench) {
    for kind in [Kind::Prose, Kind::Coding, Kind::Russian] {
        // Outputs as if they were said, so that the same text goes through all three.
        let messages: Vec<Message> = corpus(kind)
            .iter()
            .map(|message| {
                let said = message.parts.iter().filter_map(|part| match part {
                    Part::Text { text } => Some(text.clone()),
                    Part::ToolResult(result) => serde_json::to_value(result)
                        .ok()
                        .and_then(|value| value["content"][0]["text"].as_str().map(str::to_owned)),
                    Part::ToolCall(call) => Some(call.arguments.clone()),
                    _ => None,
                });
                Message::user(said.collect::<Vec<_>>().join(" "))
            })
            .collect();
        let name = format!("redact alone: {}", kind.name());
        let figures = rates(bench, &name, &messages, 1, |portion, _| {
            texts(portion).for_each(|text| drop(black_box(redact(text))));
        });
        bench.rate(&name, &figures, Claim::Nothing);
        let name = format!("names alone: {}", kind.name());
        let figures = rates(bench, &name, &messages, 1, |portion, _| {
            texts(portion).for_each(|text| drop(black_box(names(text))));
        });
        bench.rate(&name, &figures, Claim::Nothing);
        let name = format!("ledger (with redact and names): {}", kind.name());
        let mut ledger = Ledger::default();
        let figures = rates(bench, &name, &messages, 1, |portion, anew| {
            if anew {
                ledger = Ledger::default();
            }
            portion.iter().for_each(|message| ledger.read(message));
        });
        bench.rate(&name, &figures, Claim::Nothing);
    }
}

/// What is kept between two summaries, as it is stored, must not grow with the session.
fn memory(bench: &mut Bench) {
    let counter = Counter::new(Encoding::O200k);
    let marks: &[usize] = if times() { &[1_000, 10_000, 100_000] } else { &[100, 200] };
    for (window, tokens) in [SHORT, LONG] {
        let mut extracts = Extracts::default();
        let mut talk = Talks::new(Kind::Prose);
        let (mut read, mut sizes) = (0, Vec::new());
        for mark in marks {
            while read < *mark {
                for message in talk.by_ref().take(window) {
                    extracts.read(&message);
                }
                read += window;
                // Every summary keeps; only the last is written, which changes nothing in what is kept.
                extracts.keep_to(tokens);
            }
            let text = extracts.summarize(Limit::Tokens(tokens), &counter);
            assert!(counter.text(&text) <= tokens);
            sizes.push(serde_json::to_vec(&extracts).unwrap().len());
        }
        for (size, mark) in sizes.iter().zip(marks) {
            let name = format!("local: held for {tokens} tokens after {mark} messages");
            bench.text_row(&name, &format!("{:.1} kB", *size as f64 / 1e3), "");
        }
        let grown = *sizes.last().unwrap() as f64 / sizes[0] as f64;
        bench.ratio("  the last to the first", &[grown], 1.1);
    }
}

/// A summary that is stored, at another size.
fn rendering(bench: &mut Bench) {
    let counter = Counter::new(Encoding::O200k);
    let many = if times() { 6_000 } else { 120 };
    for kind in [Kind::Prose, Kind::Coding] {
        let (mut extracts, mut talk) = (Extracts::default(), Talks::new(kind));
        for _ in 0..many / LONG.0 {
            talk.by_ref().take(LONG.0).for_each(|message| extracts.read(&message));
            extracts.keep_to(LONG.1);
        }
        // As it comes out of a store, with nothing worked out yet.
        let stored = serde_json::to_string(&extracts).unwrap();
        let stored: Extracts = serde_json::from_str(&stored).unwrap();
        for room in [400, 1_000, 1_600, 4_000] {
            let name = format!("local: a stored summary at {room} tokens, {}", kind.name());
            let claim = Claim::Under(Duration::from_millis(2));
            bench.measure(&name, claim, || stored.clone(), |stored| stored.render(room, &counter));
        }
    }
}

/// Four bytes a token: what is measured is the step, and not the count.
fn estimate() -> Counter {
    Counter::custom("bytes / 4", |text| text.len() as u64 / 4)
}

fn step(list: &mut List, messages: &[Message], policy: &Policy, facts: &RequestFacts, counter: &Counter) {
    list.advance(messages, counter);
    let decision = list.decide(messages, policy, facts, counter);
    assert!(matches!(decision, Decision::Unchanged(Unchanged::NotDue)));
    black_box(&decision);
}

/// A turn on which nothing is due must cost the same however long the list is.
fn steps(bench: &mut Bench) {
    let counter = estimate();
    let (near, far) = if times() { (100, 100_000) } else { (100, 1_000) };
    let more = 2 + 2 * STEPS * RUNS;
    let history: Vec<Message> = Talks::new(Kind::Prose).take(far + more).collect();
    let policy =
        Policy { trigger: "any(tokens(1000000000), window(0.75))".parse().unwrap(), ..Policy::default() };
    let facts = RequestFacts { room: Some(10_000_000_000), ..RequestFacts::at(Timestamp(0)) };
    for condensed in [false, true] {
        let at = |messages: usize| {
            let mut list = List::default();
            if condensed {
                let first = &history[..50];
                list.advance(first, &counter);
                let forced = RequestFacts { force: Some(Press::Gently), ..facts };
                let Decision::Summarize(plan) = list.decide(first, &policy, &forced, &counter) else {
                    panic!("forced")
                };
                plan.finish(&mut list, first, "They spoke of some things.", &counter).unwrap();
            }
            list.advance(&history[..messages], &counter);
            list
        };
        let (short, long) = (at(near), at(far));
        // Lists stay until all are timed, so that none grows into what another has just given back.
        let run = |list: &List, from: usize, steps: usize, lists: &mut Vec<List>| {
            let mut list = list.clone();
            // A copy has no room to grow; what grows has.
            step(&mut list, &history[..from + 2], &policy, &facts, &counter);
            let mut time = Duration::ZERO;
            for first in (0..steps).step_by(STEPS).map(|nth| from + 2 + 2 * nth) {
                // What was just said is at hand wherever it is, as it is for a caller.
                drop(black_box(history[first..first + 2 * STEPS].to_vec()));
                let start = Instant::now();
                for nth in 1..=STEPS {
                    step(&mut list, &history[..first + 2 * nth], &policy, &facts, &counter);
                }
                time += start.elapsed();
            }
            lists.push(list);
            time
        };
        let which = if condensed { "a summary stands" } else { "nothing condensed" };
        let name = format!("a step that does nothing, at 100,000 against at 100, {which}");
        let (mut nears, mut fars, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        bench.criterion.bench_function(&name, |b| {
            b.iter_custom(|iters| {
                let (mut at_near, mut at_far) = (Duration::ZERO, Duration::ZERO);
                for _ in 0..iters {
                    let mut lists = Vec::new();
                    at_near += (0..RUNS).map(|_| run(&short, near, STEPS, &mut lists)).sum::<Duration>();
                    at_far += run(&long, far, STEPS * RUNS, &mut lists);
                }
                let per_step = |time: Duration| time.as_secs_f64() / (iters as f64 * (STEPS * RUNS) as f64);
                nears.push(per_step(at_near));
                fars.push(per_step(at_far));
                ratios.push(at_far.as_secs_f64() / at_near.as_secs_f64());
                at_far
            });
        });
        bench.row(&format!("a step that does nothing at 100, {which}"), &nears, 1, Claim::Nothing);
        bench.row(&format!("a step that does nothing at 100,000, {which}"), &fars, 1, Claim::Nothing);
        bench.ratio("  ratio", &ratios, 1.5);
    }
}

/// So many tokens of talk, and the list that has taken them in.
fn long_list(kind: Kind, tokens: Tokens, counter: &Counter) -> (Vec<Message>, List) {
    let mut sum = 0;
    let enough = |message: &Message| {
        let more = sum < tokens;
        sum += counter.message(message);
        more
    };
    let history: Vec<Message> = (1..)
        .zip(Talks::new(kind).take_while(enough))
        .map(|(seq, message)| Message { seq, ..message })
        .collect();
    let mut list = List::default();
    list.advance(&history, counter);
    (history, list)
}

/// A whole condensation by the local summarizer.
fn condensing(bench: &mut Bench) {
    let counter = Counter::new(Encoding::O200k);
    let tokens = if times() { 100_000 } else { 20_000 };
    let policy = Policy { trigger: "tokens(4000)".parse().unwrap(), ..Policy::default() };
    for kind in [Kind::Prose, Kind::Coding] {
        let (history, list) = long_list(kind, tokens, &counter);
        let name = format!("condensing {tokens} tokens by local, {}", kind.name());
        bench.measure(
            &name,
            Claim::Nothing,
            || list.clone(),
            |list| {
                let decision = list.decide(&history, &policy, &RequestFacts::at(Timestamp(0)), &counter);
                let Decision::Summarize(plan) = decision else { panic!("due") };
                let mut extracts = plan.extracts(&history, None);
                let text = extracts.summarize(Limit::Tokens(plan.limit), &counter);
                plan.finish(list, &history, &text, &counter).unwrap()
            },
        );
    }
}

/// What a model is asked, and what becomes of its answer.
fn asking(bench: &mut Bench) {
    let counter = Counter::new(Encoding::O200k);
    let tokens = 20_000;
    for kind in [Kind::Prose, Kind::Coding] {
        let (history, _) = long_list(kind, tokens, &counter);
        let mut extracts = Extracts::default();
        Talks::new(kind).take(240).for_each(|message| extracts.read(&message));
        let summary = extracts.summarize(Limit::Tokens(4_000), &counter);
        let ranked: Vec<&str> = extracts.ledger().ranked().take(40).collect();
        let standard = Standard {
            limit: Limit::Tokens(4_100),
            replaces: 60_000,
            prior: None,
            names: &ranked,
            counter: &counter,
            redact: true,
        };
        let judge = |reply: &str| inspect(reply, Finish::Complete, &standard);
        let verdict = judge(&summary);
        assert!(verdict.is_ok(), "{verdict:?}");
        let name = format!("inspecting {} tokens, {}", counter.text(&summary), kind.name());
        bench.measure(&name, Claim::Nothing, || (), |()| judge(&summary));

        let said: Vec<TranscriptEntry<'_>> = history.iter().map(TranscriptEntry::Message).collect();
        let template = Profile::Coding.template();
        for (room, which) in [(4 * tokens, "all of it"), (tokens / 2, "into half the room")] {
            let mut input = PromptInput::new(&template, &said, Limit::Tokens(1_000), room, &counter);
            input.previous = Some(&summary[..summary.floor_char_boundary(2_000)]);
            let name = format!("prompt of {tokens} tokens, {}, {which}", kind.name());
            bench.measure(&name, Claim::Nothing, || (), |()| prompt(&input).unwrap());
        }
    }
}
