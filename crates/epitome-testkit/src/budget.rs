//! Configures the number of cases that property tests generate.
//!
//! Each test sets the number of cases for the CI gate. The environment variable `CHECK_CASES` is a factor for the
//! numbers of all tests. Its default is 1. Use 0.1 for a quick check, and 20 before a release.

use proptest::test_runner::Config;

/// Returns the number of cases to generate: the number for the CI gate, `gate`, times the factor `CHECK_CASES`. The
/// result is at least 1.
pub fn cases(gate: u32) -> u32 {
    let factor = std::env::var("CHECK_CASES").map_or(1.0, |text| {
        let factor: f64 = text.parse().unwrap_or_else(|_| panic!("CHECK_CASES={text}: not a number"));
        assert!((0.0..=1e6).contains(&factor), "CHECK_CASES={text}: not between 0 and a million");
        factor
    });
    ((f64::from(gate) * factor) as u32).max(1)
}

/// Returns a configuration that generates this number of [`cases`] and writes no files.
pub fn config(gate: u32) -> Config {
    Config { cases: cases(gate), failure_persistence: None, ..Config::default() }
}
