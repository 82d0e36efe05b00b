//! A job takes a seat at a model before it asks it, or stands back: see [`crate::seats`].

use std::time::{Duration, Instant};

use super::job::{Job, Step};
use crate::error::Error;
use crate::lock::lock;
use crate::seats::Asked;
use crate::time::later;
use crate::writer::Writer;

/// A worker that stood back rests for so long: where very many wait for the same model it would else do nothing but take
/// slots and give them back.
const REST: Duration = Duration::from_millis(25);

impl Job<'_> {
    /// Sits down at a model that is about to be asked, and gets up where it sat before; else how long to stand back.
    ///
    /// Whoever has paid for a part of a summary that is only kept as a whole is not held back: it would be paid for again.
    pub(super) fn sit(&self, writer: &Writer, paid: bool) -> Result<(), Duration> {
        let Some(share) = self.share else { return Ok(()) };
        let mut seat = lock(&self.seat);
        let asked = Asked::from(writer);
        if seat.as_ref().is_some_and(|seat| seat.asked == asked) {
            return Ok(());
        }
        *seat = None;
        if !writer.is_local() {
            let most = if paid { usize::MAX } else { share };
            *seat = Some(self.shared.models.seats.take(asked, most, Instant::now())?);
        }
        Ok(())
    }

    /// Gives the slot back untouched, to be looked at again after so long. Nothing failed, so nothing is counted or told.
    pub(super) async fn stand_back(&self, wait: Duration) -> Result<Step, Error> {
        self.end(move |row, standing| row.work.aside = Some(later(standing.now, wait))).await?;
        self.shared.models.seats.put_aside(wait);
        tokio::time::sleep(REST).await;
        Ok(Step::Done)
    }
}
