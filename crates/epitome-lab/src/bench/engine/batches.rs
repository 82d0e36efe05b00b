//! Measures how long workers need to write summaries in the background.

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

/// Maximum median of [`Batches::millis`], in milliseconds.
const TARGET_MILLIS: f64 = 100.0;

/// Time from the append of 100 messages until their summaries are stored, in milliseconds.
///
/// Workers write the summaries in the background, with the built-in extractive summarizer `local`. The slot `short`
/// summarizes messages 1 to 100 in five steps. The slot `long` summarizes messages 1 to 60.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Batches {
    /// Time from the start of the append until both summaries can be read.
    pub millis: Spread,
    /// Time to write the same summaries in memory, without a database, a worker or a lease.
    pub bare: Spread,
    /// The median of `millis` divided by the median of `bare`.
    pub ratio: f64,
    /// Number of batches, each in a new session.
    pub batches: usize,
}

impl Batches {
    pub(super) fn line(&self) -> ResultLine {
        let Self { millis, bare, ratio, .. } = self;
        let figure = format!(
            "{:.1} ms (p95 {:.1}), {ratio:.1}× the time to write them in memory ({:.1} ms)",
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

/// Measures `batches` batches. The database is in the folder `dir`.
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

/// Writes the summaries of both slots in memory: for `short` after every 20 messages, for `long` after every 60
/// messages. Returns the total size of the summaries in bytes.
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

/// Waits until the summary of `short` covers message 100 and the summary of `long` covers message 60.
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
