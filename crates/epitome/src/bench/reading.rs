//! Counting and summarizing, against the bare tokenizer on the same texts.

use std::hint::black_box;
use std::time::Instant;

use epitome_core::local::Extracts;
use epitome_core::message::{Message, Tokens};
use epitome_core::slot::Limit;
use epitome_core::tokens::{Counter, Encoding};
use serde::Serialize;

use super::bare::{Bare, texts};
use super::sample::median;
use super::{Line, Progress, Tell, talk};

/// What a summary is written of, and how long it may be: those of the slot `short`.
const WINDOW: usize = 20;
const ROOM: Tokens = 1_000;

/// At least this part of the tokenizer's speed.
const TARGET_COUNTING: f64 = 0.8;

/// The texts of an agent's session, read once by each, in turns. In megabytes a second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reading {
    /// The messages of the session.
    pub messages: u64,
    /// The tokenizer on the texts alone.
    pub bare: f64,
    /// Every message counted, with what surrounds its words.
    pub counting: f64,
    /// The second by the first: the median of the rounds' own ratios.
    pub counting_ratio: f64,
    /// Every message read by `local`, and a summary of 1,000 tokens written after every 20.
    pub summarizing: f64,
    /// The same by the tokenizer's, in the same way.
    pub summarizing_ratio: f64,
}

impl Reading {
    pub(super) fn lines(&self) -> [Line; 2] {
        let figure = |speed: f64, ratio: f64| {
            format!("{speed:.0} MB/s, {ratio:.2} of the bare tokenizer's {:.0} MB/s", self.bare)
        };
        let met = self.counting_ratio >= TARGET_COUNTING;
        [
            Line::new(
                "counting messages",
                figure(self.counting, self.counting_ratio),
                "0.80 of it",
                Some(met),
            ),
            Line::new(
                "summarizing by local, 1,000 tokens after every 20 messages",
                figure(self.summarizing, self.summarizing_ratio),
                "",
                None,
            ),
        ]
    }
}

/// Measures a session of so many messages, so many times.
#[must_use]
pub fn reading(messages: u64, rounds: usize, tell: Tell<'_>) -> Reading {
    let list: Vec<Message> = (0..messages.max(WINDOW as u64)).map(talk::worked).collect();
    let bytes: usize = list.iter().flat_map(texts).map(str::len).sum();
    let (bare, counter) = (Bare::new(), Counter::new(Encoding::O200k));
    let speed = |work: &dyn Fn() -> u64| {
        let started = Instant::now();
        black_box(work());
        bytes as f64 / 1e6 / started.elapsed().as_secs_f64()
    };
    let total = rounds.max(1) as u64;
    let (mut speeds, mut ratios) = ([Vec::new(), Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    // The first round only warms up: both have seen every piece then.
    for round in 0..=total {
        tell(Progress { stage: "counting and summarizing", done: round, of: total });
        let alone = speed(&|| bare.count(&list));
        let counted = speed(&|| list.iter().map(|message| counter.message(message)).sum());
        let summarized = speed(&|| summaries(&list, &counter));
        if round > 0 {
            let [bares, counts, sums] = &mut speeds;
            bares.push(alone);
            counts.push(counted);
            sums.push(summarized);
            let [counting, summarizing] = &mut ratios;
            counting.push(counted / alone);
            summarizing.push(summarized / alone);
        }
    }
    let [bare, counting, summarizing] = speeds.map(median);
    let [counting_ratio, summarizing_ratio] = ratios.map(median);
    let messages = list.len() as u64;
    Reading { messages, bare, counting, counting_ratio, summarizing, summarizing_ratio }
}

/// Reads window after window, as a slot does, and writes a summary after each. Tells their bytes.
fn summaries(list: &[Message], counter: &Counter) -> u64 {
    let mut extracts = Extracts::default();
    list.chunks(WINDOW)
        .map(|window| {
            window.iter().for_each(|message| extracts.read(message));
            extracts.summarize(Limit::Tokens(ROOM), counter).len() as u64
        })
        .sum()
}
