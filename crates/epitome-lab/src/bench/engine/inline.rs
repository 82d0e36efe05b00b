//! Measures inline lists: message lists that a [`Condenser`] shortens in memory, without a stored session.
//!
//! Two kinds of turns are measured: turns that do not condense the list, and turns that condense the list. A turn that
//! does not condense the list must always count the tokens of its new message, so this counting is its baseline. The
//! rest of its time is the cost of a long list. The baseline of condensing is counting the whole list with the bare
//! tokenizer.

use std::time::{Duration, Instant};

use epitome::Error;
use epitome::rules::condense::Press;
use epitome::rules::message::Message;
use epitome::{Call, Condenser};
use serde::Serialize;

use super::tokenizer::BareTokenizer;
use super::{OnProgress, Progress, ResultLine, Spread, messages, thousands};

/// Maximum time of a turn that does not condense, minus the time to count its new message. In milliseconds.
const TARGET_TURN_MILLIS: f64 = 0.050;

/// Maximum duration of a turn that condenses, in milliseconds.
const TARGET_CONDENSING_MILLIS: f64 = 100.0;

/// Number of measured turns without condensing, per measured turn that condenses.
const TURNS_PER_CONDENSING: usize = 40;

/// Settings with a trigger that no measured list reaches.
const SETTINGS: &str = r#"{"condense": {"strategy": "amortized", "trigger": "tokens(1000000000)"}}"#;

/// Results for inline lists.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Inline {
    /// Number of messages in a list.
    pub messages: u64,
    /// Turns of a list that was never condensed.
    pub untouched: InlineTurns,
    /// Turns of a list that was condensed before. The caller passes the full history, and half of the history is sent.
    pub condensed: InlineTurns,
    /// Turns of two lists that use the same condenser alternately.
    pub shared: InlineTurns,
    /// Durations of a turn that condenses the list with the built-in extractive summarizer `local`, in milliseconds.
    pub condensing: Spread,
    /// Durations of a turn that condenses a list that is new to the condenser, in milliseconds. This turn also counts
    /// the tokens of every message.
    pub unseen: Spread,
    /// Time to count the tokens of the list with the bare tokenizer, in milliseconds.
    pub counting: Spread,
}

/// Durations of turns that do not condense the list, in milliseconds. Each turn adds one message to the list.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct InlineTurns {
    /// Durations of the condenser's work on a turn.
    pub turn: Spread,
    /// Time to count the tokens of the turn's new message.
    pub counting: Spread,
    /// The median of `turn` minus the median of `counting`; at least 0.
    pub beyond: f64,
}

impl Inline {
    /// Returns the lines of the result table.
    pub fn lines(&self) -> Vec<ResultLine> {
        let of = |kind: &str| format!("turn with a list of {} messages, {kind}", thousands(self.messages));
        let turn = |kind: &str, turns: &InlineTurns| {
            let InlineTurns { turn, counting, beyond } = turns;
            let micros = |millis: f64| millis * 1_000.0;
            let figure = format!(
                "{:.1} µs more than counting the new message ({:.1} µs); p95 {:.1} µs",
                micros(*beyond),
                micros(counting.median),
                micros(turn.p95)
            );
            ResultLine::new(of(kind), figure, "< 50 µs more", Some(*beyond < TARGET_TURN_MILLIS))
        };
        let condensing = |kind: &str, spread: &Spread| {
            let figure = format!(
                "{:.1} ms (p95 {:.1}), {:.1}× the time to count the list ({:.1} ms)",
                spread.median,
                spread.p95,
                spread.median / self.counting.median,
                self.counting.median
            );
            ResultLine::new(of(kind), figure, "< 100 ms", Some(spread.median < TARGET_CONDENSING_MILLIS))
        };
        vec![
            turn("nothing due", &self.untouched),
            turn("nothing due, condensed before", &self.condensed),
            turn("nothing due, two lists share a condenser", &self.shared),
            condensing("condensed with `local`", &self.condensing),
            condensing("condensed with `local`, new list", &self.unseen),
        ]
    }
}

/// Measures inline lists of `messages` messages. Measures `turns` turns per list that do not condense the list.
pub async fn inline(messages: u64, turns: usize, on_progress: OnProgress<'_>) -> Result<Inline, Error> {
    let turns = turns.max(2);
    let step = |done: usize| on_progress(Progress { stage: "inline lists", done: done as u64, of: 5 });
    step(0);
    let untouched = measure_turns(1, messages, turns, false).await?;
    step(1);
    let condensed = measure_turns(1, messages, turns, true).await?;
    step(2);
    let shared = measure_turns(2, messages, turns, false).await?;
    step(3);
    let passes = (turns / TURNS_PER_CONDENSING).max(1);
    let history = messages::short_messages(0, messages.max(20));
    let (mut condensing, mut unseen, mut counting) = (Vec::new(), Vec::new(), Vec::new());
    let bare = BareTokenizer::new();
    for pass in 0..=passes {
        let (warm, cold) = (condenser()?, condenser()?);
        warm.before_model(&history).await;
        let (seen, new) =
            (measure_condensing(&warm, &history).await?, measure_condensing(&cold, &history).await?);
        let started = Instant::now();
        std::hint::black_box(bare.count(&history));
        let counted = started.elapsed();
        // The first pass only warms up.
        if pass > 0 {
            condensing.push(seen);
            unseen.push(new);
            counting.push(counted);
        }
    }
    step(5);
    let [condensing, unseen, counting] = [condensing, unseen, counting].map(Spread::of);
    Ok(Inline { messages: history.len() as u64, untouched, condensed, shared, condensing, unseen, counting })
}

fn condenser() -> Result<Condenser, Error> {
    Condenser::builder().window(2_000_000_000).settings(SETTINGS).build()
}

/// Condenses a list, although its trigger is not reached. Returns the duration.
async fn measure_condensing(condenser: &Condenser, history: &[Message]) -> Result<Duration, Error> {
    let started = Instant::now();
    let ready = condenser.before(Call { force: Some(Press::Gently), ..Call::of(history) }).await;
    let duration = started.elapsed();
    if ready.report.condensed {
        Ok(duration)
    } else {
        Err(Error::Conflict(format!("the measured list was not condensed: {}", ready.report.reason)))
    }
}

/// Measures turns that do not condense their list. One condenser serves `lists` lists alternately, and each turn adds
/// one message to a list. If `condensed` is set, each list is condensed once before the measured turns.
async fn measure_turns(
    lists: u64,
    messages: u64,
    turns: usize,
    condensed: bool,
) -> Result<InlineTurns, Error> {
    let condenser = condenser()?;
    let mut histories: Vec<Vec<Message>> =
        (0..lists).map(|list| messages::short_messages(list * 1_000_003, messages.max(20))).collect();
    for history in &histories {
        condenser.before_model(history).await;
        if condensed {
            measure_condensing(&condenser, history).await?;
        }
    }
    let (mut durations, mut counted) = (Vec::new(), Vec::new());
    for turn in 0..turns as u64 {
        for history in &mut histories {
            let message = messages::short_message(turn + 500_000_000);
            let started = Instant::now();
            let tokens = condenser.counter().message(&message);
            counted.push(started.elapsed());
            std::hint::black_box(tokens);
            history.push(message);
            let started = Instant::now();
            let ready = condenser.before_model(history).await;
            durations.push(started.elapsed());
            if ready.report.condensed {
                return Err(Error::Conflict("a measured turn condensed its list".to_owned()));
            }
        }
    }
    let [turn, counting] = [durations, counted].map(Spread::of);
    Ok(InlineTurns { turn, counting, beyond: (turn.median - counting.median).max(0.0) })
}
