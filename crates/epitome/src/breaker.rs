//! Leaves a provider alone that keeps failing.
//!
//! Backoff is one slot's matter; a provider that is down is down for all of them, and a thousand sessions that each
//! try once are a storm. So after some failures in a row nobody asks it for a while; then one may try, and the rest
//! go on waiting for what comes of that. A provider that says how long it wants to be left alone is taken at its word.
//!
//! Pure: moments go in, by the store's clock. What is kept here is one engine's; others find out for themselves.

use std::time::Duration;

use epitome_core::message::Timestamp;

use crate::model::ModelError;
use crate::retry::Failure;
use crate::time::{later, millis_between};

/// How often a provider failed in a row, and until when nobody asks it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Breaker {
    failures: u64,
    until: Option<Timestamp>,
    /// How long the longest pause was that was decided on: more is never waited, whatever the clock does.
    longest: Duration,
    /// How it failed last, in words.
    last: String,
}

/// When a provider is left alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// After so many failures in a row.
    pub(crate) after: u64,
    /// For so long.
    pub(crate) pause: Duration,
    /// A provider that asks for more than this is not believed.
    pub(crate) most_asked: Duration,
}

/// Two who look at the clock at once may see so much between them.
const SLACK: Duration = Duration::from_secs(30);

impl Breaker {
    /// Whether it may be asked now. Whoever is told so after a pause is the only one: the others wait for another.
    pub(crate) fn ask(&mut self, provider: &str, limits: &Limits, now: Timestamp) -> Result<(), Failure> {
        let Some(until) = self.until else { return Ok(()) };
        let wait = Duration::from_millis(millis_between(now, until));
        // A clock that was set back would have it wait for ever. A little is nothing: whoever failed looked at the clock
        // when it ended, and whoever asks may have looked before that.
        if wait > Duration::ZERO && wait <= self.longest.saturating_add(SLACK) {
            let (provider, failures, last) = (provider.to_owned(), self.failures, self.last.clone());
            return Err(Failure::Resting { provider, failures, wait, last });
        }
        self.pause(limits.pause, now);
        Ok(())
    }

    /// It answered, whatever the answer is worth.
    pub(crate) fn answered(&mut self) {
        *self = Self::default();
    }

    /// It failed. That a prompt is too long says nothing of the provider.
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

    /// Whoever fails later does not shorten what was asked for earlier.
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

    /// What happens second by second: `f` fails, `a` answers, `?` may it be asked. Answers `y`, or the seconds to wait.
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
            "http://127.0.0.1:1 failed 3 times in a row and is left alone for 60s; the last time: no answer from the \
             model: connection refused"
        );
    }
}
