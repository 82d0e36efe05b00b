//! Measures how long the engine needs for a context of a long session. The baseline is a context of a short session.

use std::path::Path;
use std::time::{Duration, Instant};

use epitome::Error;
use epitome::rules::message::Seq;
use epitome::{Engine, Session};
use serde::Serialize;

use super::{OnProgress, Progress, ResultLine, Spread, messages, remove, thousands};

/// Budget of the contexts, in tokens.
const BUDGET: u64 = 4_000;

/// Number of messages in the short session.
const SHORT: u64 = 100;

/// Maximum number of messages per append.
const BATCH: u64 = 1_000;

/// Maximum ratio of the long session's median to the short session's median.
const TARGET_RATIO: f64 = 1.5;

/// Maximum median duration for the long session, in milliseconds.
const TARGET_MILLIS: f64 = 0.5;

/// Durations of contexts of 4,000 tokens. Both sessions use the default slots, and the built-in extractive summarizer
/// `local` writes their summaries. Each session has its own database file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SessionContexts {
    /// Number of messages in the long session.
    pub messages: u64,
    /// Durations for the long session.
    pub long: ContextTimes,
    /// Durations for a session of 100 messages.
    pub short: ContextTimes,
    /// Ratio of the long session's median to the short session's median, for repeated requests (`warm`).
    pub warm_ratio: f64,
    /// Ratio of the long session's median to the short session's median, for first requests (`cold`).
    pub cold_ratio: f64,
    /// Durations of the long session's first context after a new summary. Before this request, the worker has already
    /// cached a summary text that fits the budget. A worker does this if the session had earlier context requests.
    pub renewed: Spread,
}

/// Durations of a session's contexts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ContextTimes {
    /// Durations of repeated requests, without a new summary between the requests.
    pub warm: Spread,
    /// Durations of the first request in a process. This request fits the summary's text to the budget, and caches the
    /// text.
    pub cold: Spread,
}

impl SessionContexts {
    pub(super) fn lines(&self) -> [ResultLine; 3] {
        let (long, short) = (&self.long, &self.short);
        let figure = |long: &Spread, ratio: f64, short: &Spread| {
            format!(
                "{:.3} ms (p95 {:.3}), {ratio:.2}× that of {SHORT} messages ({:.3} ms)",
                long.median, long.p95, short.median
            )
        };
        let of =
            |kind: &str| format!("context of 4,000 tokens, {} messages, {kind}", thousands(self.messages));
        [
            ResultLine::new(
                of("repeated"),
                figure(&long.warm, self.warm_ratio, &short.warm),
                "<= 1.50×, < 0.5 ms",
                Some(self.warm_ratio <= TARGET_RATIO && long.warm.median < TARGET_MILLIS),
            ),
            ResultLine::new(
                of("first after a new summary"),
                format!("{:.3} ms (p95 {:.3})", self.renewed.median, self.renewed.p95),
                "< 0.5 ms",
                Some(self.renewed.median < TARGET_MILLIS),
            ),
            ResultLine::new(
                of("first in a process"),
                figure(&long.cold, self.cold_ratio, &short.cold),
                "<= 1.50×, < 0.5 ms",
                Some(self.cold_ratio <= TARGET_RATIO && long.cold.median < TARGET_MILLIS),
            ),
        ]
    }
}

/// Measures contexts of a session with `messages` messages, and of a short session. Requests each kind of context
/// `times` times. The databases are in the folder `dir`.
pub async fn contexts(
    dir: &Path,
    messages: u64,
    times: usize,
    on_progress: OnProgress<'_>,
) -> Result<SessionContexts, Error> {
    let (long_file, short_file) = (dir.join("long.db"), dir.join("short.db"));
    let long_engine = Engine::builder().workers(0).open(&long_file).await?;
    let short_engine = Engine::builder().workers(0).open(&short_file).await?;
    let appended = |done| on_progress(Progress { stage: "a long session", done, of: messages });
    let long = summarized(&long_engine, messages, &appended).await?;
    let short = summarized(&short_engine, SHORT, &|_| {}).await?;
    let mut durations: [Vec<_>; 4] = Default::default();
    let [long_cold, long_warm, short_cold, short_warm] = &mut durations;
    for round in 0..times.max(1) {
        if round % 50 == 0 {
            on_progress(Progress { stage: "contexts", done: round as u64, of: times as u64 });
        }
        for (engine, session, cold, warm) in [
            (&long_engine, &long, &mut *long_cold, &mut *long_warm),
            (&short_engine, &short, &mut *short_cold, &mut *short_warm),
        ] {
            // Clears the cache of rendered summaries, so that the next request must render the summary again.
            engine.forget_rendered();
            for durations in [cold, warm] {
                let started = Instant::now();
                let context = session.context(BUDGET).await?;
                durations.push(started.elapsed());
                if !context.report.exhaustive {
                    return Err(Error::Conflict("the measured context is not exhaustive".to_owned()));
                }
            }
        }
    }
    long_engine.close().await;
    let renewed = renewed(&long_file, messages, times.div_ceil(10), on_progress).await?;
    short_engine.close().await;
    remove(&long_file);
    remove(&short_file);
    let [long_cold, long_warm, short_cold, short_warm] = durations.map(Spread::of);
    Ok(SessionContexts {
        messages,
        long: ContextTimes { warm: long_warm, cold: long_cold },
        short: ContextTimes { warm: short_warm, cold: short_cold },
        warm_ratio: long_warm.median / short_warm.median,
        cold_ratio: long_cold.median / short_cold.median,
        renewed,
    })
}

/// Measures contexts of the long session. Before each context, appends 20 messages and waits for a new summary.
async fn renewed(
    file: &Path,
    messages: u64,
    times: usize,
    on_progress: OnProgress<'_>,
) -> Result<Spread, Error> {
    let engine = Engine::open(file).await?;
    let session = engine.session("measured");
    session.context(BUDGET).await?;
    let mut durations = Vec::new();
    for time in 0..times.max(1) as u64 {
        on_progress(Progress { stage: "contexts after new summaries", done: time, of: times as u64 });
        let before = covered(&session).await?;
        session.append(messages::short_messages(messages + time * 20, 20)).await?;
        wait_for_summary(&engine, &session, before).await?;
        let started = Instant::now();
        session.context(BUDGET).await?;
        durations.push(started.elapsed());
    }
    engine.close().await;
    Ok(Spread::of(durations))
}

/// Returns the number of the last message that a summary covers; 0 if the session has no summary.
async fn covered(session: &Session) -> Result<Seq, Error> {
    Ok(session.summaries().await?.iter().map(|summary| summary.through).max().unwrap_or(0))
}

/// Waits until a summary covers messages after `before`, and until no worker is writing. Then waits another 50 ms,
/// because an agent needs at least 50 ms until its next request.
async fn wait_for_summary(engine: &Engine, session: &Session, before: Seq) -> Result<(), Error> {
    let workspace = engine.workspace("default");
    let (mut listener, until) = (workspace.listen(), Instant::now() + Duration::from_secs(10));
    while covered(session).await? <= before && Instant::now() < until {
        listener.changed().await;
    }
    while workspace.queue().await?.working > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(())
}

/// Creates the session `measured` with `messages` messages and their summaries. Calls `on_appended` with the number of
/// messages appended so far.
pub async fn summarized(
    engine: &Engine,
    messages: u64,
    on_appended: &(dyn Fn(u64) + Sync),
) -> Result<Session, Error> {
    let session = engine.session("measured");
    let mut from = 0;
    while from < messages {
        let count = BATCH.min(messages - from);
        session.append(messages::short_messages(from, count)).await?;
        session.work().await?;
        from += count;
        on_appended(from);
    }
    Ok(session)
}
