//! Circuit breaker: stops the calls to a provider that fails repeatedly.
//!
//! Backoff delays only the retries of one slot. If a provider is down, a thousand slots would still send a thousand
//! requests. Therefore all slots share the provider's circuit. After a number of failures in a row, the circuit opens,
//! and the provider is not called for a while. After this pause, one caller may call the provider, and all other
//! callers wait for the result. If the provider reports how long to wait (`Retry-After`), the circuit stays open for
//! this time.
//!
//! This module reads no clock. The caller passes the current time of the store's clock. Each engine has its own circuit
//! breakers, and detects failures itself.

use std::time::Duration;

use epitome_core::message::Timestamp;

use crate::model::ModelError;
use crate::retry::Failure;
use crate::time::{later, millis_between};

/// The state of one provider's circuit: how many times in a row the provider failed, and until when it is not called.
#[derive(Debug, Clone, Default)]
pub(crate) struct CircuitBreaker {
    failures: u64,
    open_until: Option<Timestamp>,
    /// The longest pause since the provider last answered. It limits the wait of callers if the clock is set back.
    longest_pause: Duration,
    /// The text of the last error.
    last_error: String,
}

/// When the circuit opens, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BreakerLimits {
    /// Number of failures in a row after which the circuit opens.
    pub(crate) after: u64,
    /// How long the circuit stays open.
    pub(crate) pause: Duration,
    /// Longest pause that a provider can request. A longer requested pause is reduced to this value.
    pub(crate) max_retry_after: Duration,
}

/// Maximum difference between the clock readings of two callers that read the clock at about the same time.
const CLOCK_SLACK: Duration = Duration::from_secs(30);

impl CircuitBreaker {
    /// Returns an error if the provider must not be called now. After a pause, the first caller may call the provider
    /// (half-open circuit). For all other callers, the pause starts again.
    pub(crate) fn try_call(
        &mut self,
        provider: &str,
        limits: &BreakerLimits,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let Some(until) = self.open_until else { return Ok(()) };
        let wait = Duration::from_millis(millis_between(now, until));
        // If the clock was set back, the wait would be too long. Therefore a wait that is longer than the longest pause
        // is ignored. A small excess is allowed: the failed call read the clock when it ended, and this caller may have
        // read the clock earlier.
        if wait > Duration::ZERO && wait <= self.longest_pause.saturating_add(CLOCK_SLACK) {
            let (provider, failures, last) = (provider.to_owned(), self.failures, self.last_error.clone());
            return Err(Failure::CircuitOpen { provider, failures, wait, last });
        }
        self.open(limits.pause, now);
        Ok(())
    }

    /// Closes the circuit: the provider answered, even if the answer is unusable.
    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Counts a failed call. If the prompt was too long, the call does not count as a failure, because the provider
    /// answered.
    pub(crate) fn failed(&mut self, error: &ModelError, limits: &BreakerLimits, now: Timestamp) {
        let requested = match error {
            ModelError::TooLong { .. } => return self.succeeded(),
            ModelError::Busy { retry_after } => *retry_after,
            ModelError::Refused { .. } | ModelError::NoAnswer { .. } => None,
        };
        self.failures = self.failures.saturating_add(1);
        self.last_error = error.to_string();
        let pause = (self.failures >= limits.after).then_some(limits.pause);
        let pause = pause.max(requested.map(|requested| requested.min(limits.max_retry_after)));
        if let Some(pause) = pause {
            self.open(pause, now);
        }
    }

    /// Opens the circuit. A later failure does not shorten a pause that is already set.
    fn open(&mut self, pause: Duration, now: Timestamp) {
        self.longest_pause = self.longest_pause.max(pause);
        self.open_until = self.open_until.max(Some(later(now, pause)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BreakerLimits = BreakerLimits {
        after: 3,
        pause: Duration::from_secs(60),
        max_retry_after: Duration::from_secs(3_600),
    };

    fn down() -> ModelError {
        ModelError::no_answer("connection refused")
    }

    /// Runs steps, each at a second: `f` fails, `a` answers, `?` checks. Expects for each check `y` or the seconds to
    /// wait.
    #[track_caller]
    fn check(steps: &[(u64, char)], answers: &str) {
        let start = Timestamp(1_800_000_000_000);
        let (mut breaker, mut answered) = (CircuitBreaker::default(), Vec::new());
        for (second, step) in steps {
            let now = start.plus_seconds(*second);
            match step {
                'f' => breaker.failed(&down(), &LIMITS, now),
                'b' => breaker.failed(
                    &ModelError::Busy { retry_after: Some(Duration::from_secs(20)) },
                    &LIMITS,
                    now,
                ),
                'l' => breaker.failed(&ModelError::TooLong { sent: 9, limit: None }, &LIMITS, now),
                'a' => breaker.succeeded(),
                _ => answered.push(match breaker.try_call("p", &LIMITS, now) {
                    Ok(()) => "y".to_owned(),
                    Err(failure) => failure.retry_after().unwrap_or_default().as_secs().to_string(),
                }),
            }
        }
        assert_eq!(answered.join(" "), answers);
    }

    #[test]
    fn after_several_failures_in_a_row_the_provider_is_not_called_for_a_while() {
        check(&[(0, 'f'), (0, 'f'), (0, '?'), (0, 'f'), (1, '?'), (59, '?')], "y 59 1");
    }

    #[test]
    fn a_caller_that_read_the_clock_slightly_earlier_waits_too() {
        check(&[(5, 'f'), (5, 'f'), (5, 'f'), (4, '?'), (5, '?')], "61 60");
    }

    #[test]
    fn after_the_pause_one_caller_may_try_and_the_others_wait() {
        check(
            &[(0, 'f'), (0, 'f'), (0, 'f'), (60, '?'), (61, '?'), (62, 'a'), (62, '?'), (62, '?')],
            "y 59 y y",
        );
    }

    #[test]
    fn a_failed_try_starts_the_pause_again() {
        check(&[(0, 'f'), (0, 'f'), (0, 'f'), (60, '?'), (70, 'f'), (71, '?')], "y 59");
    }

    #[test]
    fn a_try_without_a_result_does_not_block_forever() {
        check(&[(0, 'f'), (0, 'f'), (0, 'f'), (60, '?'), (120, '?')], "y y");
    }

    #[test]
    fn an_answer_resets_the_count_of_failures() {
        check(&[(0, 'f'), (0, 'f'), (0, 'a'), (0, 'f'), (0, 'f'), (0, '?')], "y");
        check(&[(0, 'f'), (0, 'f'), (0, 'l'), (0, 'f'), (0, 'f'), (0, '?')], "y");
    }

    #[test]
    fn a_retry_after_of_the_provider_applies_to_all_callers() {
        check(&[(0, 'b'), (5, '?'), (20, '?')], "15 y");
    }

    #[test]
    fn a_retry_after_of_a_week_is_cut_to_the_limit() {
        let mut breaker = CircuitBreaker::default();
        let week = ModelError::Busy { retry_after: Some(Duration::from_secs(7 * 24 * 3_600)) };
        breaker.failed(&week, &LIMITS, Timestamp(0));
        let wait = breaker.try_call("p", &LIMITS, Timestamp(0)).unwrap_err().retry_after();
        assert_eq!(wait, Some(LIMITS.max_retry_after));
    }

    #[test]
    fn a_later_failure_does_not_shorten_the_pause_and_a_clock_set_back_does_not_lengthen_it() {
        check(&[(0, 'b'), (1, 'f'), (2, '?')], "18");
        let mut breaker = CircuitBreaker::default();
        let late = Timestamp(10_000_000);
        (0..3).for_each(|_| breaker.failed(&down(), &LIMITS, late));
        assert!(breaker.try_call("p", &LIMITS, late).is_err());
        assert!(breaker.try_call("p", &LIMITS, Timestamp(0)).is_ok());
    }

    #[test]
    fn the_error_names_the_provider_and_its_last_error() {
        let mut breaker = CircuitBreaker::default();
        let now = Timestamp(0);
        (0..3).for_each(|_| breaker.failed(&down(), &LIMITS, now));
        let shown = breaker.try_call("http://127.0.0.1:1", &LIMITS, now).unwrap_err().to_string();
        assert_eq!(
            shown,
            "http://127.0.0.1:1 failed 3 times in a row and is not called for 60s; last error: no answer from the \
             model: connection refused"
        );
    }
}
