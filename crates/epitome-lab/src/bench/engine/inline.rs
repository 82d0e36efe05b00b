//! Measures inline lists: a turn on which nothing is due, and a turn that condenses.
//!
//! The baseline of a turn is counting its new message, which is always necessary. The difference is the cost caused by the
//! length of the list. The baseline of condensing is counting the whole list with the bare tokenizer. The caller measures
//! the command
//! `epitome condense`.

use std::time::{Duration, Instant};

use epitome::Error;
use epitome::rules::condense::Press;
use epitome::rules::message::Message;
use epitome::{Call, Condenser};
use serde::Serialize;

use super::bare::Bare;
use super::{Line, Progress, Spread, Tell, talk, thousands};

/// Maximum cost of a turn beyond counting its new message, in milliseconds.
const TARGET_TURN: f64 = 0.050;

/// Maximum duration of condensing, in milliseconds.
const TARGET_CONDENSING: f64 = 100.0;

/// Measured turns without condensing for each turn that condenses.
const TURNS_A_PASS: usize = 40;

/// Settings with a trigger that never fires.
const SETTINGS: &str = r#"{"condense": {"strategy": "amortized", "trigger": "tokens(1000000000)"}}"#;

/// Results for inline lists.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Inline {
    /// Messages in a list.
    pub messages: u64,
    /// Turns of a list that was never condensed.
    pub untouched: Turns,
    /// Turns of a list that was condensed before: the caller passes the full history, and half of it is sent.
    pub condensed: Turns,
    /// Turns of two lists that alternate in one condenser.
    pub shared: Turns,
    /// A turn that condenses with `local`, in milliseconds.
    pub condensing: Spread,
    /// The same with a list that the condenser has never seen, so all messages are counted as well.
    pub unseen: Spread,
    /// Only counting the list with the bare tokenizer.
    pub counting: Spread,
}

/// Durations of turns on which nothing is due, each with one new message, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Turns {
    /// The whole turn.
    pub turn: Spread,
    /// Only counting its new message.
    pub counting: Spread,
    /// Difference of the two medians.
    pub beyond: f64,
}

impl Inline {
    /// Returns the lines of the result table.
    pub fn lines(&self) -> Vec<Line> {
        let of = |kind: &str| format!("turn of a list of {} messages, {kind}", thousands(self.messages));
        let turn = |kind: &str, turns: &Turns| {
            let Turns { turn, counting, beyond } = turns;
            let micros = |millis: f64| millis * 1_000.0;
            let figure = format!(
                "{:.1} µs over {:.1} µs for its message (p95 {:.1})",
                micros(*beyond),
                micros(counting.median),
                micros(turn.p95)
            );
            Line::new(of(kind), figure, "50 µs over", Some(*beyond < TARGET_TURN))
        };
        let condensing = |kind: &str, spread: &Spread| {
            let figure = format!(
                "{:.1} ms (p95 {:.1}), {:.1} times {:.1} ms to count it",
                spread.median,
                spread.p95,
                spread.median / self.counting.median,
                self.counting.median
            );
            Line::new(of(kind), figure, "100 ms", Some(spread.median < TARGET_CONDENSING))
        };
        vec![
            turn("nothing due", &self.untouched),
            turn("nothing due, condensed before", &self.condensed),
            turn("nothing due, one condenser for two", &self.shared),
            condensing("condensed by local", &self.condensing),
            condensing("condensed by local, never seen before", &self.unseen),
        ]
    }
}

/// Measures `turns` turns of lists with `messages` messages.
pub async fn inline(messages: u64, turns: usize, tell: Tell<'_>) -> Result<Inline, Error> {
    let turns = turns.max(2);
    let told = |done: usize| tell(Progress { stage: "inline lists", done: done as u64, of: 5 });
    told(0);
    let untouched = of_lists(1, messages, turns, false).await?;
    told(1);
    let condensed = of_lists(1, messages, turns, true).await?;
    told(2);
    let shared = of_lists(2, messages, turns, false).await?;
    told(3);
    let passes = (turns / TURNS_A_PASS).max(1);
    let history = talk::many(0, messages.max(20));
    let (mut condensing, mut unseen, mut counting) = (Vec::new(), Vec::new(), Vec::new());
    let bare = Bare::new();
    for pass in 0..=passes {
        let (known, fresh) = (condenser()?, condenser()?);
        known.before_model(&history).await;
        let (seen, new) = (pass_of(&known, &history).await?, pass_of(&fresh, &history).await?);
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
    told(5);
    let [condensing, unseen, counting] = [condensing, unseen, counting].map(Spread::of);
    Ok(Inline { messages: history.len() as u64, untouched, condensed, shared, condensing, unseen, counting })
}

fn condenser() -> Result<Condenser, Error> {
    Condenser::builder().window(2_000_000_000).settings(SETTINGS).build()
}

/// Measures one forced condensation of a list.
async fn pass_of(condenser: &Condenser, history: &[Message]) -> Result<Duration, Error> {
    let started = Instant::now();
    let ready = condenser.before(Call { force: Some(Press::Gently), ..Call::of(history) }).await;
    let taken = started.elapsed();
    if ready.report.condensed {
        Ok(taken)
    } else {
        Err(Error::Conflict(format!("the measured list was not condensed: {}", ready.report.reason)))
    }
}

/// Measures turns of `lists` lists that alternate in one condenser. Each turn adds one message.
async fn of_lists(lists: u64, messages: u64, turns: usize, condensed: bool) -> Result<Turns, Error> {
    let condenser = condenser()?;
    let mut histories: Vec<Vec<Message>> =
        (0..lists).map(|list| talk::many(list * 1_000_003, messages.max(20))).collect();
    for history in &histories {
        condenser.before_model(history).await;
        if condensed {
            pass_of(&condenser, history).await?;
        }
    }
    let (mut taken, mut counted) = (Vec::new(), Vec::new());
    for turn in 0..turns as u64 {
        for history in &mut histories {
            let message = talk::said(turn + 500_000_000);
            let started = Instant::now();
            let tokens = condenser.counter().message(&message);
            counted.push(started.elapsed());
            std::hint::black_box(tokens);
            history.push(message);
            let started = Instant::now();
            let ready = condenser.before_model(history).await;
            taken.push(started.elapsed());
            if ready.report.condensed {
                return Err(Error::Conflict("a measured turn condensed its list".to_owned()));
            }
        }
    }
    let [turn, counting] = [taken, counted].map(Spread::of);
    Ok(Turns { turn, counting, beyond: (turn.median - counting.median).max(0.0) })
}
