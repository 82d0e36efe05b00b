//! Circuit breaker: stops calling a provider that keeps failing.
//!
//! Backoff belongs to one slot. A provider that is down is down for all slots, and one attempt from each of a thousand
//! sessions is a storm of requests. So after a number of failures in a row the circuit opens, and the provider is not called
//! for a while. Then one caller may try, and all others wait for the result. A provider that reports how long to wait
//! (`Retry-After`) is obeyed.
//!
//! Pure: the caller passes in the time, by the store's clock. The state belongs to one engine; other engines detect the
//! failures themselves.

use std::time::Duration;

use epitome_core::message::Timestamp;

use crate::model::ModelError;
use crate::retry::Failure;
use crate::time::{later, millis_between};

/// The state of one provider's circuit: how many times in a row it failed, and until when it is not called.
#[derive(Debug, Clone, Default)]
pub(crate) struct Breaker {
    failures: u64,
    until: Option<Timestamp>,
    /// The longest pause decided so far. No caller waits longer than this, even if the clock is set back.
    longest: Duration,
    /// The text of the last error.
    last: String,
}

/// When the circuit opens, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Number of failures in a row after which the circuit opens.
    pub(crate) after: u64,
    /// How long the circuit stays open.
    pub(crate) pause: Duration,
    /// Longest pause that a provider can request; longer ones are cut to this.
    pub(crate) most_asked: Duration,
}

/// Maximum difference between the clock readings of two callers that read the clock at about the same time.
const SLACK: Duration = Duration::from_secs(30);

impl Breaker {
    /// Returns whether the provider may be called now. After a pause only the first caller may; the others get a new pause.
    pub(crate) fn ask(&mut self, provider: &str, limits: &Limits, now: Timestamp) -> Result<(), Failure> {
        let Some(until) = self.until else { return Ok(()) };
        let wait = Duration::from_millis(millis_between(now, until));
        // After a clock was set back the wait would never end, so a wait longer than the longest pause is ignored. A small
        // excess is allowed: the failing call read the clock at its end, and this caller may have read it earlier.
        if wait > Duration::ZERO && wait <= self.longest.saturating_add(SLACK) {
            let (provider, failures, last) = (provider.to_owned(), self.failures, self.last.clone());
            return Err(Failure::Resting { provider, failures, wait, last });
        }
        self.pause(limits.pause, now);
        Ok(())
    }

    /// Closes the circuit: the provider answered, even if the answer is unusable.
    pub(crate) fn answered(&mut self) {
        *self = Self::default();
    }

    /// Counts a failed call. A prompt that is too long is an answer: it proves that the provider works.
    pub(crate) fn failed(&mut self, error: &ModelError, limits: &Limits, now: Timestamp) {
        let asked = match error {
            ModelError::TooLong { .. } => return self.answered(),
            ModelError::Busy { retry_after } => *retry_after,
            ModelError::Refused { .. } | ModelError::NoAnswer { .. } => None,
        };
        self.failures = self.failures.saturating_add(1);
        self.last = error.to_string();
        let pause = (self.failures >= limits.after).then_some(limits.pause);
        let pause = pause.max(asked.map(|asked| asked.min(limits.most_asked)));
        if let Some(pause) = pause {
            self.pause(pause, now);
        }
    }

    /// Opens the circuit. A later failure does not shorten a pause that is already set.
    fn pause(&mut self, pause: Duration, now: Timestamp) {
        self.longest = self.longest.max(pause);
        self.until = self.until.max(Some(later(now, pause)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { after: 3, pause: Duration::from_secs(60), most_asked: Duration::from_secs(3_600) };

    fn down() -> ModelError {
        ModelError::no_answer("connection refused")
    }

    /// Runs steps, each at a second: `f` fails, `a` answers, `?` checks. Expects for each check `y` or the seconds to wait.
    #[track_caller]
    fn check(steps: &[(u64, char)], answers: &str) {
        let start = Timestamp(1_800_000_000_000);
        let (mut breaker, mut told) = (Breaker::default(), Vec::new());
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
                'a' => breaker.answered(),
                _ => told.push(match breaker.ask("p", &LIMITS, now) {
                    Ok(()) => "y".to_owned(),
                    Err(failure) => failure.retry_after().unwrap_or_default().as_secs().to_string(),
                }),
            }
        }
        assert_eq!(told.join(" "), answers);
    }

    #[test]
    fn a_provider_that_fails_often_in_a_row_is_left_alone_for_a_while() {
        check(&[(0, 'f'), (0, 'f'), (0, '?'), (0, 'f'), (1, '?'), (59, '?')], "y 59 1");
    }

    #[test]
    fn whoever_looked_at_the_clock_a_moment_before_waits_too() {
        check(&[(5, 'f'), (5, 'f'), (5, 'f'), (4, '?'), (5, '?')], "61 60");
    }

    #[test]
    fn then_one_may_try_and_the_others_wait() {
        check(
            &[(0, 'f'), (0, 'f'), (0, 'f'), (60, '?'), (61, '?'), (62, 'a'), (62, '?'), (62, '?')],
            "y 59 y y",
        );
    }

    #[test]
    fn a_try_that_fails_begins_the_pause_anew() {
        check(&[(0, 'f'), (0, 'f'), (0, 'f'), (60, '?'), (70, 'f'), (71, '?')], "y 59");
    }

    #[test]
    fn a_try_that_nobody_ended_does_not_block_for_ever() {
        check(&[(0, 'f'), (0, 'f'), (0, 'f'), (60, '?'), (120, '?')], "y y");
    }

    #[test]
    fn an_answer_in_between_starts_the_count_anew() {
        check(&[(0, 'f'), (0, 'f'), (0, 'a'), (0, 'f'), (0, 'f'), (0, '?')], "y");
        check(&[(0, 'f'), (0, 'f'), (0, 'l'), (0, 'f'), (0, 'f'), (0, '?')], "y");
    }

    #[test]
    fn a_provider_that_names_a_time_is_left_alone_by_all_until_then() {
        check(&[(0, 'b'), (5, '?'), (20, '?')], "15 y");
    }

    #[test]
    fn a_provider_that_asks_for_a_week_is_not_believed() {
        let mut breaker = Breaker::default();
        let week = ModelError::Busy { retry_after: Some(Duration::from_secs(7 * 24 * 3_600)) };
        breaker.failed(&week, &LIMITS, Timestamp(0));
        let wait = breaker.ask("p", &LIMITS, Timestamp(0)).unwrap_err().retry_after();
        assert_eq!(wait, Some(LIMITS.most_asked));
    }

    #[test]
    fn whoever_fails_later_does_not_shorten_the_pause_and_a_clock_set_back_does_not_lengthen_it() {
        check(&[(0, 'b'), (1, 'f'), (2, '?')], "18");
        let mut breaker = Breaker::default();
        let late = Timestamp(10_000_000);
        (0..3).for_each(|_| breaker.failed(&down(), &LIMITS, late));
        assert!(breaker.ask("p", &LIMITS, late).is_err());
        assert!(breaker.ask("p", &LIMITS, Timestamp(0)).is_ok());
    }

    #[test]
    fn what_it_failed_with_is_told() {
        let mut breaker = Breaker::default();
        let now = Timestamp(0);
        (0..3).for_each(|_| breaker.failed(&down(), &LIMITS, now));
        let told = breaker.ask("http://127.0.0.1:1", &LIMITS, now).unwrap_err().to_string();
        assert_eq!(
            told,
            "http://127.0.0.1:1 failed 3 times in a row and is not called for 60s; last error: no answer from the \
             model: connection refused"
        );
    }
}
