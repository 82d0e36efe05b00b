//! What counting costs, and what we add to it.
//!
//! The same megabyte of mixed text is counted by the tokenizer alone, by [`Counter::text`] and,
//! as the session it might be, by [`Counter::message`]. The ratio of the three is printed first;
//! criterion's numbers follow.

#![allow(clippy::disallowed_methods, reason = "a bench reads the clock")]
#![allow(missing_docs, reason = "criterion's macros write undocumented functions")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use epitome_core::message::{Content, Message, Part, Role};
use epitome_core::tokens::{Counter, Encoding};

/// Small and good enough; the same corpus in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from.get(self.roll(from.len())).copied().unwrap_or_default()
    }
}

const WORDS: &str = "the build fails because a module that nobody imports was renamed last week and the test \
    which would have caught it is skipped on this platform so please look at configuration first then retry \
    Zürich naïve façade 模型 上下文 トークン 会話 토큰 контекст сообщение 🙂 🚀 isn't we'll they've";
const NAMES: &str = "session message counter outline budget window summary cursor lease engine store planner";

const SYLLABLES: &str =
    "ba ren tok mi sul per ven qua zor ith lam ek dro fin hul ast ny gre pol ux ca shi wod jel";

/// Text of one kind: prose, code, JSON or a log. Every third word is coined, since real text has
/// names in it that no vocabulary holds and no cache has seen.
fn text(dice: &mut Dice, [words, names, syllables]: [&[&str]; 3]) -> String {
    let mut text = String::new();
    let kind = dice.roll(4);
    for line in 0..20 + dice.roll(200) {
        let coined = (0..2 + dice.roll(3)).map(|_| dice.pick(syllables)).collect::<String>();
        let word = if dice.roll(3) == 0 { &coined } else { dice.pick(words) };
        let (name, number) = (dice.pick(names), dice.roll(100_000));
        text += &match kind {
            0 if line % 17 == 16 => format!("{word}.\n\n"),
            0 => format!("{word} "),
            1 => format!("    let {name}_{coined} = self.{name}.get(&{number})?; // {word}\n"),
            2 => format!("{{\"{name}\": {number}, \"note\": \"{word}\"}},"),
            _ => format!("2026-03-04T10:11:12.{number:06}Z INFO epitome::{name}: {word} id={number:x}\n"),
        };
    }
    text
}

fn session() -> Vec<Message> {
    let mut dice = Dice(42);
    let [words, names, syllables] =
        [WORDS, NAMES, SYLLABLES].map(|s| s.split_whitespace().collect::<Vec<_>>());
    let (mut messages, mut bytes) = (Vec::new(), 0);
    while bytes < 1 << 20 {
        let text = text(&mut dice, [&words, &names, &syllables]);
        bytes += text.len();
        messages.push(match messages.len() % 4 {
            0 => Message::user(text),
            1 => Message::assistant(text),
            2 => {
                let arguments = serde_json::json!({ "path": "src/lib.rs", "text": text }).to_string();
                Message::new(Role::Assistant, [Part::call("c1", "write_file", arguments)])
            }
            _ => Message::new(Role::Tool, [Part::result("c1", text)]),
        });
    }
    messages
}

/// The same words without the messages around them.
fn texts(messages: &[Message]) -> Vec<&str> {
    let mut texts = Vec::new();
    for part in messages.iter().flat_map(|message| &message.parts) {
        match part {
            Part::Text { text } => texts.push(text.as_str()),
            Part::ToolCall(call) => texts.extend([call.name.as_str(), &call.arguments]),
            Part::ToolResult(result) => {
                texts.extend(result.content.iter().filter_map(|content| match content {
                    Content::Text { text } => Some(text.as_str()),
                    Content::Media(_) => None,
                }));
            }
            Part::Thinking { .. } | Part::Media(_) => {}
        }
    }
    texts
}

/// One run, after another that is not timed. The tokenizer remembers pieces per thread and per
/// instance, and ours and the bare one are two: without the first run, whoever comes after its
/// own kind would be the faster.
fn timed(count: impl Fn() -> u64) -> Duration {
    black_box(count());
    let start = Instant::now();
    black_box(count());
    start.elapsed()
}

fn counting(c: &mut Criterion) {
    let messages = session();
    let texts = texts(&messages);
    let bytes: usize = texts.iter().map(|text| text.len()).sum();

    for encoding in [Encoding::O200k, Encoding::Cl100k] {
        let Some(raw) = tiktoken::get_encoding(encoding.name()) else { unreachable!("both are compiled in") };
        let counter = Counter::new(encoding);
        let alone = || texts.iter().map(|text| raw.count(text) as u64).sum::<u64>();
        let by_text = || texts.iter().map(|text| counter.text(text)).sum::<u64>();
        let by_message = || messages.iter().map(|message| counter.message(message)).sum::<u64>();
        assert_eq!(alone(), by_text());
        let calls = messages.iter().flat_map(Message::calls).count();
        assert_eq!(alone() + 4 * (messages.len() + calls) as u64, by_message());

        // Turn and turn about, and the best of each: what else the machine does hits all alike.
        let mut best = [Duration::MAX; 3];
        for _ in 0..40 {
            best[0] = best[0].min(timed(alone));
            best[1] = best[1].min(timed(by_text));
            best[2] = best[2].min(timed(by_message));
        }
        let speed = best.map(|time| bytes as f64 / time.as_secs_f64());
        eprintln!(
            "{encoding}: {:.1} MB/s alone; text {:.3}, message {:.3} of that speed",
            speed[0] / 1e6,
            speed[1] / speed[0],
            speed[2] / speed[0],
        );

        let mut group = c.benchmark_group(encoding.name());
        group.throughput(Throughput::Bytes(bytes as u64)).sample_size(20);
        group.bench_function("alone", |b| b.iter(alone));
        group.bench_function("text", |b| b.iter(by_text));
        group.bench_function("message", |b| b.iter(by_message));
        group.finish();
    }
}

criterion_group!(benches, counting);
criterion_main!(benches);
