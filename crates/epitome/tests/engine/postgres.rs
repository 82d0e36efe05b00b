//! The engine and its worker: summaries that appear by themselves, whatever fails, races or dies.
//!
//! The tests of `main.rs` once more, with PostgreSQL.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on should stop, loudly"
)]

mod batches;
mod closing;
mod configured;
mod consistent;
mod counted;
mod directory;
mod drawn_people;
mod drawn_work;
mod expired;
mod failing;
mod forks;
mod hard_cases;
mod health;
#[path = "home_postgres.rs"]
mod home;
mod hooks;
mod keys;
mod numbers;
mod on_postgres;
mod people;
mod races;
mod retries;
mod reviewed;
mod scopes;
mod sizes;
mod slots;
mod slow_models;
mod spending;
mod spending_odd;
mod support;
mod telling;
mod turns;
mod usage;
mod views;

use epitome_testkit::{drawn, postgres_server, provider, validator};

/// A file that was forgotten here would be tried on one of the two only.
#[test]
fn whatever_is_tried_on_sqlite_is_tried_on_postgres() {
    let named = |list: &str| -> std::collections::BTreeSet<String> {
        list.lines().filter(|line| line.starts_with("mod ")).map(str::to_owned).collect()
    };
    let (there, here) = (named(include_str!("main.rs")), named(include_str!("postgres.rs")));
    assert!(there.len() > 30, "{there:?}");
    assert_eq!(there.difference(&here).collect::<Vec<_>>(), ["mod on_sqlite;"]);
}
