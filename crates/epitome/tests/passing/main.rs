//! Conversations that pass through, tried from outside: each is known again, and nobody is ever given another's.
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

mod bounded;
mod drawn_agents;
mod home;
mod known_again;
mod lending;
mod on_postgres;
mod on_sqlite;
mod pressing;
mod sizes;
mod support;

use epitome_testkit::judges;

/// What only one of the two can do is tried in the first run already.
#[test]
fn again_on_postgres() {
    epitome_testkit::both_stores::again_on_postgres(&["on_sqlite::", "on_postgres::"]);
}
