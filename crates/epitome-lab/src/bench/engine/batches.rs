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

use super::{Line, Progress, Spread, Tell, remove, talk};

/// Target for the median, in milliseconds.
const TARGET: f64 = 100.0;

/// Time from appending a batch of 100 messages until both summaries are committed, written by `local` in the background:
/// `short` for messages 1 to 100, in five steps, and `long` for 1 to 60. In milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Batches {
    /// From before the append until both summaries can be read.
    pub millis: Spread,
    /// The same summaries written in memory, from messages in memory: no log, no worker, no lease, nothing stored.
    pub bare: Spread,
    /// Ratio of the two medians.
    pub ratio: f64,
    /// Number of batches, each in a new session.
    pub batches: usize,
}

impl Batches {
    pub(super) fn line(&self) -> Line {
        let Self { millis, bare, ratio, .. } = self;
        let figure = format!(
            "{:.1} ms (p95 {:.1}), {ratio:.1} times {:.1} ms to write them alone",
            millis.median, millis.p95, bare.median
        );
        Line::new(
            "100 messages until both summaries are stored",
            figure,
            "100 ms",
            Some(self.millis.median < TARGET),
        )
    }
}

/// Measures this many batches in a directory.
pub async fn batches(dir: &Path, batches: usize, tell: Tell<'_>) -> Result<Batches, Error> {
    let file = dir.join("batches.db");
    let engine = Engine::builder().open(&file).await?;
    let (mut times, mut alone) = (Vec::new(), Vec::new());
    let counter = Counter::new(Encoding::O200k);
    // The first batch only warms up.
    for batch in 0..=batches.max(1) as u64 {
        tell(Progress { stage: "summaries", done: batch, of: batches as u64 });
        let session = engine.session(format!("batch {batch}"));
        let messages = talk::many(batch * 100, 100);
        let started = Instant::now();
        std::hint::black_box(written(&messages, &counter));
        let bare = started.elapsed();
        let started = Instant::now();
        session.append(messages).await?;
        tokio::time::timeout(Duration::from_secs(60), both(&engine, &session))
            .await
            .map_err(|_| Error::Model { reason: "no summary within a minute".to_owned() })??;
        if batch > 0 {
            times.push(started.elapsed());
            alone.push(bare);
        }
    }
    engine.close().await;
    remove(&file);
    let [millis, bare] = [times, alone].map(Spread::of);
    Ok(Batches { millis, bare, ratio: millis.median / bare.median, batches: batches.max(1) })
}

/// Writes the summaries of both slots in memory: `short` after every 20 messages, `long` after 60. Returns their bytes.
fn written(messages: &[Message], counter: &Counter) -> usize {
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
async fn both(engine: &Engine, session: &Session) -> Result<(), Error> {
    let mut listener = engine.workspace("default").listen();
    loop {
        let standing = session.summaries().await?;
        let stands = |slot: &str, through| {
            standing.iter().any(|summary| summary.slot == slot && summary.through >= through)
        };
        if stands("short", 100) && stands("long", 60) {
            return Ok(());
        }
        listener.heard().await;
    }
}
