//! The engine and its worker: summaries that appear by themselves, whatever fails, races or dies.
//!
//! All of it runs on SQLite and on PostgreSQL.

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
mod home;
mod hooks;
mod keys;
mod numbers;
mod on_postgres;
mod on_sqlite;
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

/// What only one of the two can do is tried in the first run already.
#[test]
fn again_on_postgres() {
    epitome_testkit::both_stores::again_on_postgres(&["on_sqlite::", "on_postgres::"]);
}
