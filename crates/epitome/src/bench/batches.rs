//! Summaries in the background.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{Line, Progress, Spread, Tell, remove, talk};
use crate::engine::{Engine, Session};
use crate::error::Error;

/// In milliseconds.
const TARGET: f64 = 100.0;

/// A batch of 100 messages until both summaries are committed, by `local` in the background: `short` for messages
/// 1 to 100, in five steps, and `long` for 1 to 60. In milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Batches {
    /// From before the append until both can be read.
    pub millis: Spread,
    /// How many batches, each a new session.
    pub batches: usize,
}

impl Batches {
    pub(super) fn line(&self) -> Line {
        let figure = format!("{:.1} ms (p95 {:.1})", self.millis.median, self.millis.p95);
        Line::new(
            "100 messages until both summaries stand",
            figure,
            "100 ms",
            Some(self.millis.median < TARGET),
        )
    }
}

/// Measures so many batches in a directory.
pub async fn batches(dir: &Path, batches: usize, tell: Tell<'_>) -> Result<Batches, Error> {
    let file = dir.join("batches.db");
    let engine = Engine::builder().open(&file).await?;
    let mut times = Vec::new();
    // The first only warms up.
    for batch in 0..=batches.max(1) as u64 {
        tell(Progress { stage: "summaries", done: batch, of: batches as u64 });
        let session = engine.session(format!("batch {batch}"));
        let messages = talk::many(batch * 100, 100);
        let started = Instant::now();
        session.append(messages).await?;
        tokio::time::timeout(Duration::from_secs(60), both(&engine, &session))
            .await
            .map_err(|_| Error::Model { reason: "no summary within a minute".to_owned() })??;
        if batch > 0 {
            times.push(started.elapsed());
        }
    }
    engine.close().await;
    remove(&file);
    Ok(Batches { millis: Spread::of(times), batches: batches.max(1) })
}

/// Waits until both summaries stand.
async fn both(engine: &Engine, session: &Session) -> Result<(), Error> {
    let mut moved = engine.shared().moved.subscribe();
    loop {
        moved.mark_unchanged();
        let standing = session.summaries().await?;
        let stands = |slot: &str, through| {
            standing.iter().any(|summary| summary.slot == slot && summary.through >= through)
        };
        if stands("short", 100) && stands("long", 60) {
            return Ok(());
        }
        moved.changed().await.map_err(|_| Error::Closed)?;
    }
}
