//! Measures the speed of counting tokens and of summarizing. The baseline is the bare tokenizer on the same texts.

use std::hint::black_box;
use std::time::{Duration, Instant};

use epitome::rules::local::Extracts;
use epitome::rules::message::{Message, Tokens};
use epitome::rules::slot::Limit;
use epitome::rules::tokens::{Counter, Encoding};
use serde::Serialize;

use super::spread::median;
use super::tokenizer::{BareTokenizer, texts};
use super::{OnProgress, Progress, ResultLine, Spread, messages};

/// Number of messages per summary, and maximum size of a summary in tokens. These are the defaults of the slot `short`.
const WINDOW: usize = 20;
const LIMIT: Tokens = 1_000;

/// Minimum speed of counting, as a share of the bare tokenizer's speed.
const TARGET_RATIO: f64 = 0.8;

/// Speed of counting and summarizing the messages of an agent's session. Speeds are in megabytes of text per second.
/// Each round computes the ratios, and each ratio here is the median of all rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LocalSpeed {
    /// Number of messages in the session.
    pub messages: u64,
    /// Speed of the bare tokenizer on the messages' texts.
    pub bare: f64,
    /// Speed of counting the tokens of every message, including the tokens that each message adds to its texts.
    pub counting: f64,
    /// Speed of counting divided by the bare tokenizer's speed.
    pub counting_ratio: f64,
    /// Speed at which the built-in extractive summarizer `local` reads the messages.
    pub reading: f64,
    /// Speed of reading divided by the bare tokenizer's speed.
    pub reading_ratio: f64,
    /// Time in which `local` writes a summary of at most 1,000 tokens, in milliseconds. A summary is written after
    /// every 20 messages.
    pub writing: Spread,
    /// Time in which the bare tokenizer counts one of these summaries, in milliseconds.
    pub written: Spread,
    /// Time to write the summaries divided by the time to count the summaries.
    pub writing_ratio: f64,
}

impl LocalSpeed {
    pub(super) fn lines(&self) -> [ResultLine; 3] {
        let figure = |speed: f64, ratio: f64| {
            format!("{speed:.0} MB/s, {ratio:.2}× the speed of the bare tokenizer ({:.0} MB/s)", self.bare)
        };
        let Self { writing, written, writing_ratio, .. } = self;
        let written = format!(
            "{:.2} ms (p95 {:.2}), {writing_ratio:.0}× the time to count the summary ({:.3} ms)",
            writing.median, writing.p95, written.median
        );
        let met = self.counting_ratio >= TARGET_RATIO;
        [
            ResultLine::new(
                "counting messages",
                figure(self.counting, self.counting_ratio),
                ">= 0.80×",
                Some(met),
            ),
            ResultLine::new(
                "summarizing with `local`: reading",
                figure(self.reading, self.reading_ratio),
                "",
                None,
            ),
            ResultLine::new("summarizing with `local`: writing 1,000 tokens", written, "", None),
        ]
    }
}

/// Measures a session of `messages` messages in `rounds` rounds.
pub fn local_speed(messages: u64, rounds: usize, on_progress: OnProgress<'_>) -> LocalSpeed {
    let list: Vec<Message> = (0..messages.max(WINDOW as u64)).map(messages::agent_message).collect();
    let bytes: usize = list.iter().flat_map(texts).map(str::len).sum();
    let (bare, counter) = (BareTokenizer::new(), Counter::new(Encoding::O200k));
    let total = rounds.max(1) as u64;
    let (mut speeds, mut ratios) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    let (mut writing, mut written) = (Vec::new(), Vec::new());
    // The first round only fills the tokenizers' caches.
    for round in 0..=total {
        on_progress(Progress { stage: "counting and summarizing", done: round, of: total });
        let bare_time = timed(|| bare.count(&list));
        let counted = timed(|| list.iter().map(|message| counter.message(message)).sum());
        let summaries = Summaries::of(&list, &counter, &bare);
        if round > 0 {
            let seconds = [bare_time, counted, summaries.read].map(|duration| duration.as_secs_f64());
            for (speeds, seconds) in speeds.iter_mut().zip(seconds) {
                speeds.push(bytes as f64 / 1e6 / seconds);
            }
            let [bare, counted, read] = seconds;
            let [write, count] = [&summaries.write, &summaries.count]
                .map(|times| times.iter().sum::<Duration>().as_secs_f64());
            for (ratios, ratio) in ratios.iter_mut().zip([bare / counted, bare / read, write / count]) {
                ratios.push(ratio);
            }
            writing.extend(summaries.write);
            written.extend(summaries.count);
        }
    }
    let [bare, counting, reading] = speeds.map(median);
    let [counting_ratio, reading_ratio, writing_ratio] = ratios.map(median);
    let [writing, written] = [writing, written].map(Spread::of);
    let messages = list.len() as u64;
    LocalSpeed {
        messages,
        bare,
        counting,
        counting_ratio,
        reading,
        reading_ratio,
        writing,
        written,
        writing_ratio,
    }
}

fn timed(work: impl FnOnce() -> u64) -> Duration {
    let started = Instant::now();
    black_box(work());
    started.elapsed()
}

/// Durations of summarizing a session in windows of [`WINDOW`] messages. A summary is written after each window.
struct Summaries {
    /// Total time for reading all messages.
    read: Duration,
    /// For each summary, the time to write the summary (`write`) and the time to count its tokens (`count`).
    write: Vec<Duration>,
    count: Vec<Duration>,
}

impl Summaries {
    fn of(list: &[Message], counter: &Counter, bare: &BareTokenizer) -> Self {
        let mut extracts = Extracts::default();
        let mut all = Self { read: Duration::ZERO, write: Vec::new(), count: Vec::new() };
        for window in list.chunks(WINDOW) {
            let started = Instant::now();
            window.iter().for_each(|message| extracts.read(message));
            all.read += started.elapsed();
            let started = Instant::now();
            let text = extracts.summarize(Limit::Tokens(LIMIT), counter);
            all.write.push(started.elapsed());
            let text = [Message::user(text)];
            all.count.push(timed(|| bare.count(&text)));
        }
        all
    }
}
