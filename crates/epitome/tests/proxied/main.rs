//! Tests proxied conversations through the public interface: each is recognised, and no caller ever gets the messages
//! of another.
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
mod lending;
mod on_postgres;
mod on_sqlite;
mod recognised;
mod sizes;
mod support;
mod too_long;

use epitome_testkit::judges;

/// Tests that need one of the two databases run in the first run already.
#[test]
fn again_on_postgres() {
    epitome_testkit::both_stores::again_on_postgres(&["on_sqlite::", "on_postgres::"]);
}
