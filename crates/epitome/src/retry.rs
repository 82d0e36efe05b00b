//! Computes how long to wait after a failure.
//!
//! The inputs are the failure, the number of attempts and a random number; the output is a duration. The worker decides
//! which slot waits, and whether it calls another model first.
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
//! // Half of the wait is random, so that slots that failed at the same time do not retry at the same time.
//! let drawn = after_failure(&down, 3, jitter(), &Backoff::default());
//! assert!(Duration::from_secs(2) <= drawn && drawn <= Duration::from_secs(4));
//! ```

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use epitome_core::inspect::Refusal;

use crate::model::ModelError;
use crate::price::Money;

/// Why a summary was not written. The displayed text contains no text of the conversation, so it may be logged and
/// stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The model returned an error.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The model's answer was rejected by the inspection.
    #[error("the answer was refused: {}", short_reason(_0))]
    Answer(#[from] Refusal),
    /// The circuit of the provider is open: the provider failed several times in a row and is not called for a while.
    #[error(
        "{provider} failed{} and is not called for {}; last error: {last}",
        times(*failures), human_duration(*wait)
    )]
    CircuitOpen {
        /// The provider.
        provider: String,
        /// How many times in a row the provider failed.
        failures: u64,
        /// Time until the provider may be called again.
        wait: Duration,
        /// The provider's last error.
        last: String,
    },
    /// The call could exceed the workspace's spend cap for the day.
    #[error(
        "{spent} of {cap} (summarize.spend_cap_per_day) is spent today, and the call may cost {more}; the cap resets \
         in {}",
        human_duration(*wait)
    )]
    SpendCapReached {
        /// The spend cap.
        cap: Money,
        /// Amount that the workspace has spent today, including the maximum cost of calls in progress.
        spent: Money,
        /// Maximum cost of the call.
        more: Money,
        /// Time until the day ends (UTC), when the cap resets.
        wait: Duration,
    },
    /// A spend cap is set, but the model has no price. Without a price, the cap cannot be enforced.
    #[error("`{model}` has no price, which summarize.spend_cap_per_day needs; set prices.\"{model}\"")]
    Unpriced {
        /// The model.
        model: String,
    },
    /// The messages could not be read, or the summary could not be stored.
    #[error("{reason}")]
    Store {
        /// The store's error.
        reason: String,
    },
}

impl Failure {
    /// Returns a short word for records and metrics. New versions do not change these words.
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
            Self::CircuitOpen { .. } => "resting",
            Self::SpendCapReached { .. } => "spent",
            Self::Unpriced { .. } => "unpriced",
            Self::Store { .. } => "store",
        }
    }

    /// Returns whether the failure counts as an attempt. A failure counts if a model was called, or if waiting alone
    /// cannot fix the failure.
    pub fn is_attempt(&self) -> bool {
        // `Unpriced` counts, although no model was called: only a change of the settings can fix it, and counting it
        // makes the retries less frequent.
        !matches!(self, Self::CircuitOpen { .. } | Self::SpendCapReached { .. })
    }

    /// Returns the minimum wait before a retry, if the failure contains one. For example, a provider reports this wait
    /// with `Retry-After`.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Model(ModelError::Busy { retry_after }) => *retry_after,
            Self::CircuitOpen { wait, .. } | Self::SpendCapReached { wait, .. } => Some(*wait),
            Self::Model(_) | Self::Answer(_) | Self::Unpriced { .. } | Self::Store { .. } => None,
        }
    }
}

/// Returns why the answer was refused. Omits the second part of the message, which is an instruction for the model.
fn short_reason(refusal: &Refusal) -> String {
    let whole = refusal.to_string();
    whole.split_once("; ").map_or(whole.as_str(), |(what, _)| what).to_owned()
}

/// Formats a duration for people: hours and minutes, or minutes, or seconds.
fn human_duration(wait: Duration) -> String {
    // Rounds up to whole seconds, because milliseconds would make the text harder to read.
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

/// Exponential backoff: how the wait between attempts grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Wait after the first failure. It doubles with each further failure.
    pub initial: Duration,
    /// Longest wait.
    pub max: Duration,
    /// Longest wait that a provider can request. A longer requested wait is reduced to this value.
    pub max_retry_after: Duration,
}

impl Default for Backoff {
    /// Returns a backoff that starts with one second and doubles up to five minutes. A provider can request at most one
    /// hour.
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            max: Duration::from_secs(300),
            max_retry_after: Duration::from_secs(3_600),
        }
    }
}

/// Returns how long to wait before the next attempt, after `attempts` failures.
///
/// Half of the wait is fixed. The other half is multiplied by `jitter`, a number from 0 to 1. If the provider sent
/// `Retry-After`, the wait is not shorter than the requested time, unless the requested time is longer than
/// [`Backoff::max_retry_after`].
///
/// ```
/// use std::time::Duration;
/// use epitome::model::ModelError;
/// use epitome::retry::{Backoff, Failure, after_failure};
///
/// let busy = Failure::Model(ModelError::Busy { retry_after: Some(Duration::from_secs(20)) });
/// assert_eq!(after_failure(&busy, 1, 0.0, &Backoff::default()), Duration::from_secs(20));
/// ```
pub fn after_failure(failure: &Failure, attempts: u32, jitter: f64, backoff: &Backoff) -> Duration {
    // More than 31 doublings would overflow a `u32`. 31 doublings of one second are 68 years.
    let doublings = attempts.saturating_sub(1).min(31);
    let step = backoff.initial.saturating_mul(1 << doublings).min(backoff.max);
    let half = step / 2;
    // Written so that NaN counts as 0.
    let share = if jitter > 0.0 { jitter.min(1.0) } else { 0.0 };
    let drawn = half.mul_f64(share);
    let own = step.saturating_sub(half).saturating_add(drawn);
    match failure.retry_after() {
        // The random part is also added to the requested wait. Otherwise callers with the same `Retry-After` would
        // retry at the same time.
        Some(requested) => own.max(requested.min(backoff.max_retry_after).saturating_add(drawn)),
        None => own,
    }
}

/// Returns a random number from 0 to 1 (exclusive), different on each call. Not suitable for secrets.
pub fn jitter() -> f64 {
    // The standard library creates random keys for its hash maps. These keys are random enough to spread waits.
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
    fn the_wait_never_shrinks_with_more_attempts_and_never_exceeds_the_maximum() {
        let backoff = Backoff::default();
        let mut last = Duration::ZERO;
        for attempts in (0..100).chain([u32::MAX - 1, u32::MAX]) {
            let wait = after_failure(&down(), attempts, 0.5, &backoff);
            assert!(last <= wait && wait <= backoff.max, "{attempts}: {wait:?}");
            last = wait;
        }
    }

    #[test]
    fn an_invalid_jitter_keeps_the_wait_in_range() {
        for jitter in [f64::NAN, f64::NEG_INFINITY, -1.0, 0.0, 0.3, 1.0, 7.0, f64::INFINITY] {
            let wait = after_failure(&down(), 2, jitter, &Backoff::default());
            assert!(Duration::from_secs(1) <= wait && wait <= Duration::from_secs(2), "{jitter}: {wait:?}");
        }
    }

    #[test]
    fn the_wait_obeys_retry_after_up_to_a_limit() {
        let wait = |failure: &Failure, attempts| after_failure(failure, attempts, 0.0, &Backoff::default());
        assert_eq!(wait(&busy(45), 1), Duration::from_secs(45));
        assert_eq!(wait(&busy(1_000_000), 1), Duration::from_secs(3_600));
        // Our own backoff may be longer than what the provider requests.
        assert_eq!(wait(&busy(1), 20), Duration::from_secs(150));
    }

    #[test]
    fn the_longest_durations_do_not_overflow() {
        let endless = Backoff { initial: Duration::MAX, max: Duration::MAX, max_retry_after: Duration::MAX };
        let busy: Failure = ModelError::Busy { retry_after: Some(Duration::MAX) }.into();
        assert_eq!(after_failure(&busy, u32::MAX, 1.0, &endless), Duration::MAX);
        let none = Backoff { initial: Duration::ZERO, max: Duration::ZERO, max_retry_after: Duration::ZERO };
        assert_eq!(after_failure(&busy, u32::MAX, 1.0, &none), Duration::ZERO);
    }

    #[test]
    fn jitter_is_between_0_and_1_with_a_mean_near_one_half() {
        let drawn: Vec<f64> = (0..1_000).map(|_| jitter()).collect();
        assert!(drawn.iter().all(|jitter| (0.0..1.0).contains(jitter)));
        let mean = drawn.iter().sum::<f64>() / 1_000.0;
        assert!((0.4..0.6).contains(&mean), "{mean}");
    }
}
