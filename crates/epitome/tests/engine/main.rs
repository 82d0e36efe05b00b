//! The engine and its worker: background summaries despite failures, races and crashes.
//!
//! All tests run on SQLite and on PostgreSQL.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on should stop, loudly"
)]

mod attributes;
mod batches;
mod closing;
mod consistent;
mod directory;
mod events;
mod expired_leases;
mod failing;
mod fairness;
mod forks;
mod hard_cases;
mod health;
mod hooks;
mod keys;
mod logs;
mod manual_summaries;
mod metrics;
mod on_postgres;
mod on_sqlite;
mod races;
mod random_members;
mod random_sessions;
mod regressions;
mod retries;
mod scopes;
mod size_limits;
mod slots;
mod slow_models;
mod spending;
mod spending_edge_cases;
mod summary_ids;
mod support;
mod test_store;
mod usage;
mod views;

use epitome_testkit::{drawn, postgres_server, provider, validator};

/// What only one of the two can do is tried in the first run already.
#[test]
fn again_on_postgres() {
    epitome_testkit::both_stores::again_on_postgres(&["on_sqlite::", "on_postgres::"]);
}
