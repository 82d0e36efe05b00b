//! Contexts of a long session, against those of a short one.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::{Line, Progress, Spread, Tell, remove, talk};
use crate::engine::{Engine, Session};
use crate::error::Error;

/// What is asked for, in tokens.
const BUDGET: u64 = 4_000;

/// The messages of the short session.
const SHORT: u64 = 100;

/// So many are appended at once.
const BATCH: u64 = 1_000;

/// A long session may take this much longer.
const TARGET_RATIO: f64 = 1.5;

/// And no longer than this, in milliseconds.
const TARGET_MILLIS: f64 = 0.5;

/// Contexts of 4,000 tokens, with the default slots summarized by `local`, each session in its own file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Contexts {
    /// The messages of the long session.
    pub messages: u64,
    /// The long session.
    pub long: OfSession,
    /// A session of 100 messages.
    pub short: OfSession,
    /// The long one's median by the short one's, once asked for before.
    pub warm_ratio: f64,
    /// The same for the first time after a new summary.
    pub cold_ratio: f64,
}

/// How long a session's contexts take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OfSession {
    /// As long as no new summary was written.
    pub warm: Spread,
    /// The first time after a new summary: its text is made to fit the budget then, and remembered.
    pub cold: Spread,
}

impl Contexts {
    pub(super) fn lines(&self) -> [Line; 2] {
        let (long, short) = (&self.long, &self.short);
        let figure = |long: &Spread, ratio: f64, short: &Spread| {
            format!(
                "{:.3} ms (p95 {:.3}), {ratio:.2} of {:.3} ms at {SHORT} messages",
                long.median, long.p95, short.median
            )
        };
        let of =
            |kind: &str| format!("context of 4,000 tokens, {} messages, {kind}", thousands(self.messages));
        [
            Line::new(
                of("asked again"),
                figure(&long.warm, self.warm_ratio, &short.warm),
                "1.50, 0.5 ms",
                Some(self.warm_ratio <= TARGET_RATIO && long.warm.median < TARGET_MILLIS),
            ),
            Line::new(
                of("after a new summary"),
                figure(&long.cold, self.cold_ratio, &short.cold),
                "1.50, 0.5 ms",
                Some(self.cold_ratio <= TARGET_RATIO && long.cold.median < TARGET_MILLIS),
            ),
        ]
    }
}

fn thousands(n: u64) -> String {
    if n % 1_000 == 0 && n > 0 { format!("{},000", n / 1_000) } else { n.to_string() }
}

/// Measures contexts in a directory, so many of each kind.
pub async fn contexts(dir: &Path, messages: u64, times: usize, tell: Tell<'_>) -> Result<Contexts, Error> {
    let (long_file, short_file) = (dir.join("long.db"), dir.join("short.db"));
    let long_engine = Engine::builder().workers(0).open(&long_file).await?;
    let short_engine = Engine::builder().workers(0).open(&short_file).await?;
    let told = |done| tell(Progress { stage: "a long session", done, of: messages });
    let long = fill(&long_engine, messages, &told).await?;
    let short = fill(&short_engine, SHORT, &|_| {}).await?;
    let mut taken: [Vec<_>; 4] = Default::default();
    let [long_cold, long_warm, short_cold, short_warm] = &mut taken;
    for time in 0..times.max(1) {
        if time % 50 == 0 {
            tell(Progress { stage: "contexts", done: time as u64, of: times as u64 });
        }
        for (engine, session, cold, warm) in [
            (&long_engine, &long, &mut *long_cold, &mut *long_warm),
            (&short_engine, &short, &mut *short_cold, &mut *short_warm),
        ] {
            // As it is after a new summary: nothing of it is remembered.
            engine.shared().memo.forget();
            for times in [cold, warm] {
                let started = Instant::now();
                let context = session.context(BUDGET).await?;
                times.push(started.elapsed());
                if !context.report.exhaustive {
                    return Err(Error::Conflict("the measured context is not exhaustive".to_owned()));
                }
            }
        }
    }
    long_engine.close().await;
    short_engine.close().await;
    remove(&long_file);
    remove(&short_file);
    let [long_cold, long_warm, short_cold, short_warm] = taken.map(Spread::of);
    Ok(Contexts {
        messages,
        long: OfSession { warm: long_warm, cold: long_cold },
        short: OfSession { warm: short_warm, cold: short_cold },
        warm_ratio: long_warm.median / short_warm.median,
        cold_ratio: long_cold.median / short_cold.median,
    })
}

/// A session of so many messages, summarized.
async fn fill(engine: &Engine, messages: u64, told: &(dyn Fn(u64) + Sync)) -> Result<Session, Error> {
    let session = engine.session("measured");
    let mut from = 0;
    while from < messages {
        let count = BATCH.min(messages - from);
        session.append(talk::many(from, count)).await?;
        session.work().await?;
        from += count;
        told(from);
    }
    Ok(session)
}
