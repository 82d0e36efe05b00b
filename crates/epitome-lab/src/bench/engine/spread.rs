//! Computes medians and percentiles.

use std::time::Duration;

use serde::Serialize;

/// A distribution of durations, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl Spread {
    /// Computes the median and the percentiles of `times`. All are 0 if `times` is empty.
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |hundredths: usize| {
            let index = times.len().saturating_sub(1) * hundredths / 100;
            times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1_000.0)
        };
        Self { median: at(50), p95: at(95), p99: at(99) }
    }
}

/// Returns the median of `values`; 0 if `values` is empty.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_median_and_the_percentiles() {
        let times = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(Spread::of(times), Spread { median: 50.0, p95: 95.0, p99: 99.0 });
        assert_eq!(Spread::of(Vec::new()), Spread::default());
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }
}
