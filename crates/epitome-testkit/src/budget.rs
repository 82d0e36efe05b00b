//! Configures how many cases property tests generate.
//!
//! Each test sets the number for the CI gate. `CHECK_CASES` is a factor for all of them: 0.1 for a quick check, 20
//! before a release.

use proptest::test_runner::Config;

/// Returns the number of cases to generate, where the CI gate generates `gate`; at least one.
pub fn cases(gate: u32) -> u32 {
    let factor = std::env::var("CHECK_CASES").map_or(1.0, |text| {
        let factor: f64 = text.parse().unwrap_or_else(|_| panic!("CHECK_CASES={text}: not a number"));
        assert!((0.0..=1e6).contains(&factor), "CHECK_CASES={text}: not between 0 and a million");
        factor
    });
    ((f64::from(gate) * factor) as u32).max(1)
}

/// Returns a configuration that generates [`cases`] and writes no files.
pub fn config(gate: u32) -> Config {
    Config { cases: cases(gate), failure_persistence: None, ..Config::default() }
}
