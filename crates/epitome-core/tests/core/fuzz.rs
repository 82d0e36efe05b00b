//! Fuzzing: no input makes the core panic. Each target runs for `CHECK_FUZZ_SECONDS` (4 or 10) on generated and
//! mutated bytes, and prints the failing input.
//!
//! Stable Rust and no instrumentation: the mutations know the grammars instead.

#![allow(
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    reason = "the harness runs by the clock and the environment; the code under test does not"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use epitome_core::context::{Candidate, Oversize, PlaceholderCosts, Request, SessionShape, lay_out};
use epitome_core::context_texts::{ContextTexts, render};
use epitome_core::cut::{Cuts, Press};
use epitome_core::keep::Keep;
use epitome_core::local::Extracts;
use epitome_core::message::{Limits, Message, Part, Role, Timestamp, ToolCall};
use epitome_core::outline::{Cut, Outline, Totals};
use epitome_core::plan::{AuthorSummary, NextStep, PlanInput, next_step};
use epitome_core::slot::{CatchUp, Scope, Slot, SlotState};
use epitome_core::tokens::{Encoding, Overhead};
use epitome_core::track::Tracker;
use epitome_core::trigger::{Trigger, TriggerFacts, Use};
use epitome_core::view::repair;
use epitome_testkit::cuts::choose;
use epitome_testkit::drawing::{self, word_counter};

use crate::validator::complaints;

mod condensing;

/// Bytes from which values are read one after another. After the last byte, zeros follow.
struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.byte() as usize * 256 + self.byte() as usize) % end.max(1)
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Small numbers mostly, and the ends of the range.
    fn number(&mut self) -> u64 {
        match self.byte() % 8 {
            0 => u64::MAX - u64::from(self.byte()),
            1 => 1 << (self.byte() % 64),
            _ => self.below(300) as u64,
        }
    }

    fn text(&mut self) -> String {
        let len = self.below(40);
        let bytes: Vec<u8> = (0..len).map(|_| self.byte()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn is_empty(&self) -> bool {
        self.0.as_slice().is_empty()
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Runs `target` on mutated seeds until the time is up.
fn fuzz(name: &str, seeds: &[&str], words: &[&str], target: impl Fn(&[u8])) {
    fuzz_for(10, name, seeds, words, target);
}

/// The same for `seconds`, unless `CHECK_FUZZ_SECONDS` is set.
fn fuzz_for(seconds: u64, name: &str, seeds: &[&str], words: &[&str], target: impl Fn(&[u8])) {
    let asked = std::env::var("CHECK_FUZZ_SECONDS").ok();
    let seconds = asked.map_or(seconds, |s| s.parse().expect("a number of seconds"));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut corpus: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut runs = 0u64;
    while Instant::now() < until {
        let mut input = corpus[random.below(corpus.len())].clone();
        for _ in 0..=random.below(6) {
            mutate(&mut input, words, &mut random);
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| target(&input)));
        if outcome.is_err() {
            panic!("{name}, run {runs}: fails on {input:?} = {:?}", String::from_utf8_lossy(&input));
        }
        // A drifting corpus reaches further than the seeds alone.
        if random.below(4) == 0 {
            let at = random.below(200);
            match corpus.get_mut(seeds.len() + at) {
                Some(old) => *old = input,
                None => corpus.push(input),
            }
        }
        runs += 1;
    }
    assert!(runs > 100, "{name}: only {runs} runs in {seconds} s");
    eprintln!("fuzz {name}: {runs} runs in {seconds} s");
}

fn mutate(input: &mut Vec<u8>, words: &[&str], random: &mut Random) {
    let at = random.below(input.len() + 1);
    match random.below(7) {
        0 => input.insert(at, random.next() as u8),
        1 if at < input.len() => drop(input.remove(at)),
        2 if at < input.len() => input[at] = random.next() as u8,
        3 => {
            let word = words[random.below(words.len())].bytes();
            drop(input.splice(at..at, word));
        }
        4 => input.truncate(at.max(1)),
        5 => {
            let more: Vec<u8> = input[at..].to_vec();
            input.extend(more);
            input.truncate(4_000);
        }
        _ => {
            let noise: Vec<u8> = (0..random.below(60)).map(|_| random.next() as u8).collect();
            input.extend(noise);
            input.truncate(4_000);
        }
    }
}

#[test]
fn no_text_panics_a_parser() {
    let seeds = [
        "any(messages(20), tokens(8000))",
        "all(window(0.75), every(300), idle(5), important(10))",
        "economic",
        "turns(3)",
        "s u a*(x=i,y) r(x)~@bob:9 u!+30 |",
        r#"{"role":"user","parts":[{"type":"text","text":"hi"}]}"#,
    ];
    let words = [
        "(",
        ")",
        ",",
        "any",
        "all(",
        "window(",
        "1e9",
        "-1",
        "9999999999999999999999",
        "NaN",
        "_",
        "\u{301}",
        "\0",
        "{",
        "\"",
    ];
    fuzz("parser", &seeds, &words, |input| {
        let text = String::from_utf8_lossy(input);
        if let Ok(trigger) = text.parse::<Trigger>() {
            assert_eq!(trigger.to_string().parse::<Trigger>().as_ref(), Ok(&trigger));
            let totals = Totals {
                messages: 7,
                tokens: u64::MAX,
                since: Some(Timestamp(i64::MAX)),
                ..Totals::default()
            };
            let facts = TriggerFacts::new(&totals, Timestamp(i64::MIN));
            drop((trigger.when(&facts), trigger.reason(&facts)));
            drop(trigger.check(Use::Slot, None));
        }
        if let Ok(keep) = text.parse::<Keep>() {
            assert_eq!(keep.to_string().parse::<Keep>().as_ref(), Ok(&keep));
        }
        drop(text.parse::<Encoding>());
        if let Ok(drawn) = drawing::messages(&text) {
            let again = drawing::draw(&drawn);
            assert_eq!(drawing::draw(&drawing::messages(&again).expect("what we drew")), again);
        }
        if let Ok(message) = serde_json::from_str::<Message>(&text) {
            drop(message.check(&Limits::default()));
        }
    });
}

/// Malformed messages: any part in any role, ids that clash, arguments of any kind.
fn any_messages(bytes: &mut Bytes<'_>) -> Vec<Message> {
    let mut messages = Vec::new();
    while !bytes.is_empty() && messages.len() < 80 {
        let roles = [Role::User, Role::Assistant, Role::Tool, Role::System, Role::Developer, Role::Peer];
        let mut message = Message::new(roles[bytes.below(roles.len())], []);
        message.seq = messages.len() as u64 + 1;
        for _ in 0..bytes.below(4) {
            let id = ["w", "x", "y", "z", ""][bytes.below(5)];
            message.parts.push(match bytes.below(6) {
                0 => Part::text(bytes.text()),
                1 => Part::thinking(bytes.text()),
                2 => Part::ToolCall(ToolCall {
                    id: id.into(),
                    item_id: bytes.flag().then(|| ["x", "y", "i"][bytes.below(3)].into()),
                    name: "f".into(),
                    arguments: [String::new(), "{}".into(), "[1".into(), "7".into(), bytes.text()]
                        [bytes.below(5)]
                    .clone(),
                }),
                _ => Part::result(id, bytes.text()),
            });
        }
        message.pinned = bytes.below(12) == 0;
        message.skip = bytes.below(12) == 0;
        message.author = (bytes.below(4) == 0).then(|| ["ann", "bob", ""][bytes.below(3)].into());
        message.at = Timestamp(i64::from_ne_bytes(bytes.number().to_ne_bytes()));
        messages.push(message);
    }
    messages
}

#[test]
fn no_history_panics_and_a_repaired_list_is_valid() {
    let seeds =
        ["", "a long enough seed that makes some messages", "\u{1}\u{2}\u{3}\u{4}\u{5}\u{6}\u{7}\u{8}"];
    fuzz("cutter", &seeds, &["\0\u{1}", "\u{1}\0\u{2}\0", "x", "\u{7f}\u{7f}"], |input| {
        let messages = any_messages(&mut Bytes(input.iter()));
        let counter = word_counter();
        let mut tracker = Tracker::default();
        let outlines: Vec<Outline> = messages.iter().map(|message| tracker.push(message, &counter)).collect();
        let cuts = Cuts::new(&outlines, tracker.cut_at_end());
        for keep in ["messages(3)", "turns(2)", "tokens(9)"] {
            let _ = choose(&cuts, input.len() % 5, &keep.parse().expect("good"), None, Press::Hard);
        }
        assert_eq!(cuts.batches().map(<[_]>::len).sum::<usize>(), messages.len());
        // The only allowed problem of a repaired list is a missing first user message.
        let repaired = repair(messages);
        let left: Vec<String> = complaints(&repaired).into_iter().filter(|c| !c.contains("user")).collect();
        assert_eq!(left, Vec::<String>::new());
    });
}

/// Inconsistent outlines, as only a broken store would contain.
fn any_outlines(bytes: &mut Bytes<'_>) -> Vec<Outline> {
    let mut outlines = drawing::outlines(&"u ".repeat(bytes.below(40))).expect("good");
    let mut seq = bytes.number() / 2;
    for outline in &mut outlines {
        let cuts = [Cut::InCall, Cut::InLoop, Cut::Legal];
        seq = seq.saturating_add(1 + (bytes.below(9) as u64) / 8);
        outline.seq = seq;
        outline.tokens = bytes.number();
        outline.before = bytes.number();
        outline.turn = bytes.number();
        outline.calls = bytes.number() as u32;
        outline.answers = bytes.number() as u32;
        (outline.cut, outline.own_cut) = (cuts[bytes.below(3)], cuts[bytes.below(3)]);
        (outline.leading, outline.opens_turn) = (bytes.below(9) == 0, bytes.flag());
        (outline.stray, outline.thinking) = (bytes.below(5) == 0, bytes.flag());
        (outline.pinned, outline.skip) = (bytes.below(9) == 0, bytes.below(9) == 0);
        outline.author = (bytes.below(3) == 0).then(|| "ann".into());
        outline.at = Timestamp(i64::from_ne_bytes(bytes.number().to_ne_bytes()));
    }
    outlines
}

fn any_request(bytes: &mut Bytes<'_>) -> Request {
    let mode = bytes.below(3);
    Request {
        tokens: bytes.flag().then(|| bytes.number().clamp(1, 100_000)),
        summary: bytes.flag(),
        fit: bytes.flag(),
        fill: mode == 1,
        steady: mode == 2,
        oversize: if bytes.flag() { Oversize::Clip } else { Oversize::Empty },
        ..Request::default()
    }
}

#[test]
fn no_shape_panics_the_layout_or_the_planner() {
    let seeds =
        ["seed", "another seed, rather longer than the first one, so that there are some messages in it"];
    let slots: Vec<Slot> = ["messages(3)", "all()", "any(idle(9), tokens(40), important(2))", "every(1)"]
        .iter()
        .flat_map(|trigger| {
            let slot = Slot { trigger: trigger.parse().expect("good"), ..Slot::short() };
            let scoped = Slot { scope: Scope::Author("ann".into()), catch_up: CatchUp::Step, ..slot.clone() };
            [slot, scoped]
        })
        .collect();
    fuzz("assembler", &seeds, &["\0\0", "\u{1}\u{1}\u{1}", "\u{7f}", "zzzz"], |input| {
        let mut bytes = Bytes(input.iter());
        let request = any_request(&mut bytes);
        let counter = word_counter().with_overhead(Overhead::default());
        let costs = PlaceholderCosts::of(&counter);

        // Outlines that match their messages, in any state.
        let messages = any_messages(&mut Bytes(input.iter()));
        let mut tracker = Tracker::default();
        let outlines: Vec<Outline> = messages.iter().map(|message| tracker.push(message, &counter)).collect();
        let mut texts =
            ContextTexts::new(&counter, &messages).with_summary(bytes.number() % 90, bytes.text());
        let candidates = texts.candidates();
        let session = SessionShape::whole(Cuts::new(&outlines, tracker.cut_at_end()), &candidates);
        let layout = lay_out(&request, &session, &costs, &mut texts).expect("a good request");
        let given = render(&layout, &texts).expect("all words are at hand");
        let used: u64 = given.iter().map(|message| counter.message(message)).sum();
        assert!(used <= request.budget().expect("good"), "{used} tokens");
        assert_eq!(complaints(&given), Vec::<String>::new());
        let _ = Extracts::of_text(&bytes.text(), 0).render(bytes.number(), &counter);

        // Outlines that match nothing.
        let outlines = any_outlines(&mut bytes);
        let broken = [Candidate { through: bytes.number(), tokens: bytes.number(), elastic: false }];
        let mut session = SessionShape::whole(Cuts::own(&outlines, Cut::InLoop), &broken);
        session.from = bytes.number();
        session.open_calls = bytes.number() as u32;
        let _ = lay_out(&request, &session, &costs, &mut texts);
        let slot = &slots[bytes.below(slots.len())];
        let mut state = SlotState { covered: bytes.number(), ..SlotState::default() };
        for outline in &outlines {
            state.advance(slot, outline, None);
        }
        let authors =
            [AuthorSummary { author: "ann".into(), through: bytes.number(), tokens: bytes.number() }];
        let ahead = PlanInput {
            outlines: &outlines,
            end: bytes.flag().then_some(Cut::Legal),
            room: bytes.flag().then(|| bytes.number()),
            input: bytes.number(),
            authors: &authors,
        };
        match next_step(slot, &state, &ahead) {
            NextStep::Summarize(plan) => state.settle(slot, plan.span.through, plan.firing, &outlines, None),
            NextStep::Pass { firing, .. } => state.settle(slot, 0, firing, &outlines, None),
            NextStep::Nothing(_) => {}
        }
        state.undo(bytes.number(), bytes.number(), Timestamp(0));
    });
}
