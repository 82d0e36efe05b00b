//! Measures background summaries.

use std::path::Path;
use std::time::{Duration, Instant};

use epitome::Error;
use epitome::rules::local::Extracts;
use epitome::rules::message::Message;
use epitome::rules::slot::Slot;
use epitome::rules::tokens::{Counter, Encoding};
use epitome::{Engine, Session};
use serde::Serialize;

use super::{OnProgress, Progress, ResultLine, Spread, messages, remove};

/// Target for the median, in milliseconds.
const TARGET_MILLIS: f64 = 100.0;

/// Time from appending a batch of 100 messages until both summaries are committed, written by `local` in the background:
/// `short` for messages 1 to 100, in five steps, and `long` for 1 to 60. In milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Batches {
    /// From before the append until both summaries can be read.
    pub millis: Spread,
    /// The same summaries written in memory, from messages in memory, without a log, a worker or a lease.
    pub bare: Spread,
    /// Ratio of the two medians.
    pub ratio: f64,
    /// Number of batches, each in a new session.
    pub batches: usize,
}

impl Batches {
    pub(super) fn line(&self) -> ResultLine {
        let Self { millis, bare, ratio, .. } = self;
        let figure = format!(
            "{:.1} ms (p95 {:.1}), {ratio:.1}× writing them in memory ({:.1} ms)",
            millis.median, millis.p95, bare.median
        );
        ResultLine::new(
            "append 100 messages, until both summaries are stored",
            figure,
            "< 100 ms",
            Some(self.millis.median < TARGET_MILLIS),
        )
    }
}

/// Measures this many batches in a directory.
pub async fn batches(dir: &Path, batches: usize, on_progress: OnProgress<'_>) -> Result<Batches, Error> {
    let file = dir.join("batches.db");
    let engine = Engine::builder().open(&file).await?;
    let (mut times, mut bare_times) = (Vec::new(), Vec::new());
    let counter = Counter::new(Encoding::O200k);
    // The first batch only warms up.
    for batch in 0..=batches.max(1) as u64 {
        on_progress(Progress { stage: "summaries", done: batch, of: batches as u64 });
        let session = engine.session(format!("batch {batch}"));
        let messages = messages::short_messages(batch * 100, 100);
        let started = Instant::now();
        std::hint::black_box(write_both(&messages, &counter));
        let bare = started.elapsed();
        let started = Instant::now();
        session.append(messages).await?;
        tokio::time::timeout(Duration::from_secs(60), both_stored(&engine, &session))
            .await
            .map_err(|_| Error::Model { reason: "no summary within a minute".to_owned() })??;
        if batch > 0 {
            times.push(started.elapsed());
            bare_times.push(bare);
        }
    }
    engine.close().await;
    remove(&file);
    let [millis, bare] = [times, bare_times].map(Spread::of);
    Ok(Batches { millis, bare, ratio: millis.median / bare.median, batches: batches.max(1) })
}

/// Writes the summaries of both slots in memory: `short` after every 20 messages, `long` after 60. Returns their bytes.
fn write_both(messages: &[Message], counter: &Counter) -> usize {
    let slot = |window: usize, slot: &Slot| {
        let mut extracts = Extracts::default();
        let mut write = |window: &[Message]| {
            window.iter().for_each(|message| extracts.read(message));
            extracts.summarize(slot.limit, counter).len()
        };
        messages.chunks_exact(window).map(&mut write).sum::<usize>()
    };
    slot(20, &Slot::short()) + slot(60, &Slot::long())
}

/// Waits until both summaries are stored.
async fn both_stored(engine: &Engine, session: &Session) -> Result<(), Error> {
    let mut listener = engine.workspace("default").listen();
    loop {
        let summaries = session.summaries().await?;
        let is_stored = |slot: &str, through| {
            summaries.iter().any(|summary| summary.slot == slot && summary.through >= through)
        };
        if is_stored("short", 100) && is_stored("long", 60) {
            return Ok(());
        }
        listener.changed().await;
    }
}
