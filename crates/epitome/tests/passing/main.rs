//! Conversations that pass through, tried from outside: each is known again, and nobody is ever given another's.
//!
//! All of it is tried twice: here with SQLite, and in `postgres.rs` with PostgreSQL.

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
#[path = "home_sqlite.rs"]
mod home;
mod known_again;
mod lending;
mod on_sqlite;
mod pressing;
mod sizes;
mod support;

use epitome_testkit::judges;
