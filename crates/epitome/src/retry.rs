//! How long to wait after a failure.
//!
//! Pure: what failed, how often, and a number drawn by lot go in, a time comes out. Who waits, and
//! whether another model is tried first, is the worker's matter.
//!
//! ```
//! use std::time::Duration;
//! use epitome::model::ModelError;
//! use epitome::retry::{Backoff, Failure, after_failure, jitter};
//!
//! let down = Failure::Model(ModelError::no_answer("connection refused"));
//! let wait = |attempts| after_failure(&down, attempts, 1.0, &Backoff::default()).as_secs();
//! assert_eq!([1, 2, 3, 9, 1_000].map(wait), [1, 2, 4, 256, 300]);
//!
//! // Half of it is drawn by lot, so that those who failed together do not come back together.
//! let drawn = after_failure(&down, 3, jitter(), &Backoff::default());
//! assert!(Duration::from_secs(2) <= drawn && drawn <= Duration::from_secs(4));
//! ```

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use epitome_core::inspect::Refusal;

use crate::model::ModelError;
use crate::price::Money;

/// Why a summary was not written. What is displayed may be recorded: it holds no word of the
/// conversation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The model gave none.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// What it gave cannot be kept.
    #[error("the answer was refused: {}", bare(_0))]
    Answer(#[from] Refusal),
    /// Its provider failed too often, and nobody asks it for a while.
    #[error(
        "{provider} failed{} and is left alone for {}; the last time: {last}",
        times(*failures), spoken(*wait)
    )]
    Resting {
        /// Who.
        provider: String,
        /// How often.
        failures: u64,
        /// For how long yet.
        wait: Duration,
        /// How it failed last.
        last: String,
    },
    /// The workspace has spent what it may spend in a day.
    #[error(
        "{spent} of {cap} (summarize.spend_cap_per_day) are spent today, and this may cost {more}; the next day begins \
         in {}",
        spoken(*wait)
    )]
    Spent {
        /// What it may spend.
        cap: Money,
        /// What it has spent.
        spent: Money,
        /// What the summary may cost.
        more: Money,
        /// How long the day goes on.
        wait: Duration,
    },
    /// There is a cap on what may be spent, and nobody knows what the model costs.
    #[error(
        "what `{model}` costs is not known, and summarize.spend_cap_per_day is set; set prices.\"{model}\""
    )]
    Unpriced {
        /// Which model.
        model: String,
    },
    /// What is to be summarized could not be read, or the summary not be kept.
    #[error("{reason}")]
    Store {
        /// What the store said.
        reason: String,
    },
}

impl Failure {
    /// A short word for records and metrics. It never changes.
    ///
    /// ```
    /// use epitome::rules::inspect::Refusal;
    /// use epitome::retry::Failure;
    ///
    /// let failure = Failure::from(Refusal::CutOff);
    /// assert_eq!(failure.kind(), "answer");
    /// assert!(failure.to_string().starts_with("the answer was refused: it was cut off"));
    /// ```
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Model(error) => error.kind(),
            Self::Answer(_) => "answer",
            Self::Resting { .. } => "resting",
            Self::Spent { .. } => "spent",
            Self::Unpriced { .. } => "unpriced",
            Self::Store { .. } => "store",
        }
    }

    /// Whether it counts as an attempt: a model was asked, or waiting alone does not mend it.
    pub fn is_attempt(&self) -> bool {
        // Where the price is unknown nobody was asked, but only a setting can mend it: it is tried less and less often.
        !matches!(self, Self::Resting { .. } | Self::Spent { .. })
    }

    /// For how long it is of no use to try again, where that is known: a provider asked to be left alone, say.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Model(ModelError::Busy { retry_after }) => *retry_after,
            Self::Resting { wait, .. } | Self::Spent { wait, .. } => Some(*wait),
            Self::Model(_) | Self::Answer(_) | Self::Unpriced { .. } | Self::Store { .. } => None,
        }
    }
}

/// What was wrong, without what the model is told to do about it.
fn bare(refusal: &Refusal) -> String {
    let told = refusal.to_string();
    told.split_once("; ").map_or(told.as_str(), |(what, _)| what).to_owned()
}

/// As people say it: hours and minutes, or minutes, or seconds.
fn spoken(wait: Duration) -> String {
    // In whole seconds, rounded up: nobody wants to read milliseconds there.
    let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
    match (seconds / 3_600, seconds.div_ceil(60) % 60, seconds.div_ceil(60)) {
        (0, _, 0 | 1) => format!("{seconds}s"),
        (0, _, minutes) => format!("{minutes}m"),
        (hours, minutes, _) => format!("{hours}h {minutes}m"),
    }
}

fn times(failures: u64) -> String {
    if failures == 1 { String::new() } else { format!(" {failures} times in a row") }
}

/// How waiting grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure; it doubles with each one more.
    pub first: Duration,
    /// It grows no longer than this.
    pub most: Duration,
    /// A provider that asks for more than this is not believed.
    pub most_asked: Duration,
}

impl Default for Backoff {
    /// One second, doubling to five minutes; a provider may ask for an hour.
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            most: Duration::from_secs(300),
            most_asked: Duration::from_secs(3_600),
        }
    }
}

/// How long to wait before the next attempt, after so many have failed.
///
/// Half of the time is fixed, half is the share `jitter` of it, which is between 0 and 1. What a
/// provider asks for with `Retry-After` is the least that is waited.
///
/// ```
/// use std::time::Duration;
/// use epitome::model::ModelError;
/// use epitome::retry::{Backoff, Failure, after_failure};
///
/// let busy = Failure::Model(ModelError::Busy { retry_after: Some(Duration::from_secs(20)) });
/// assert_eq!(after_failure(&busy, 1, 0.0, &Backoff::default()), Duration::from_secs(20));
/// ```
pub fn after_failure(failure: &Failure, attempts: u32, jitter: f64, limits: &Backoff) -> Duration {
    // So many doublings make 68 years of a second; more would not fit.
    let doublings = attempts.saturating_sub(1).min(31);
    let step = limits.first.saturating_mul(1 << doublings).min(limits.most);
    let half = step / 2;
    // Written so that NaN counts for nothing.
    let share = if jitter > 0.0 { jitter.min(1.0) } else { 0.0 };
    let drawn = half.mul_f64(share);
    let own = step.saturating_sub(half).saturating_add(drawn);
    match failure.retry_after() {
        // Whoever was told the same time is still spread a little.
        Some(asked) => own.max(asked.min(limits.most_asked).saturating_add(drawn)),
        None => own,
    }
}

/// A number from 0 up to but not including 1, another one each time. Not for secrets.
pub fn jitter() -> f64 {
    // The standard library draws the keys of its hash maps by lot: enough to spread waits with.
    let drawn = RandomState::new().hash_one(()) >> 11;
    drawn as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn down() -> Failure {
        ModelError::no_answer("down").into()
    }

    fn busy(seconds: u64) -> Failure {
        ModelError::Busy { retry_after: Some(Duration::from_secs(seconds)) }.into()
    }

    #[test]
    fn it_never_shrinks_with_more_attempts_and_never_passes_its_limit() {
        let limits = Backoff::default();
        let mut last = Duration::ZERO;
        for attempts in (0..100).chain([u32::MAX - 1, u32::MAX]) {
            let wait = after_failure(&down(), attempts, 0.5, &limits);
            assert!(last <= wait && wait <= limits.most, "{attempts}: {wait:?}");
            last = wait;
        }
    }

    #[test]
    fn no_lot_brings_it_out_of_its_range() {
        for lot in [f64::NAN, f64::NEG_INFINITY, -1.0, 0.0, 0.3, 1.0, 7.0, f64::INFINITY] {
            let wait = after_failure(&down(), 2, lot, &Backoff::default());
            assert!(Duration::from_secs(1) <= wait && wait <= Duration::from_secs(2), "{lot}: {wait:?}");
        }
    }

    #[test]
    fn a_provider_is_waited_for_but_not_for_ever() {
        let wait = |failure: &Failure, attempts| after_failure(failure, attempts, 0.0, &Backoff::default());
        assert_eq!(wait(&busy(45), 1), Duration::from_secs(45));
        assert_eq!(wait(&busy(1_000_000), 1), Duration::from_secs(3_600));
        // Our own patience may be longer than what it asks for.
        assert_eq!(wait(&busy(1), 20), Duration::from_secs(150));
    }

    #[test]
    fn times_without_end_do_not_overflow() {
        let limits = Backoff { first: Duration::MAX, most: Duration::MAX, most_asked: Duration::MAX };
        let endless: Failure = ModelError::Busy { retry_after: Some(Duration::MAX) }.into();
        assert_eq!(after_failure(&endless, u32::MAX, 1.0, &limits), Duration::MAX);
        let none = Backoff { first: Duration::ZERO, most: Duration::ZERO, most_asked: Duration::ZERO };
        assert_eq!(after_failure(&endless, u32::MAX, 1.0, &none), Duration::ZERO);
    }

    #[test]
    fn lots_are_in_range_and_differ() {
        let lots: Vec<f64> = (0..1_000).map(|_| jitter()).collect();
        assert!(lots.iter().all(|lot| (0.0..1.0).contains(lot)));
        let mean = lots.iter().sum::<f64>() / 1_000.0;
        assert!((0.4..0.6).contains(&mean), "{mean}");
    }
}
