//! Conversations that pass through, tried from outside: each is known again, and nobody is ever given another's.
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

mod bounded;
mod drawn_agents;
#[path = "home_postgres.rs"]
mod home;
mod known_again;
mod lending;
mod on_postgres;
mod pressing;
mod sizes;
mod support;

use epitome_testkit::{judges, postgres_server};

/// A file that was forgotten here would be tried on one of the two only.
#[test]
fn whatever_is_tried_on_sqlite_is_tried_on_postgres() {
    let named = |list: &str| -> std::collections::BTreeSet<String> {
        list.lines().filter(|line| line.starts_with("mod ")).map(str::to_owned).collect()
    };
    let (there, here) = (named(include_str!("main.rs")), named(include_str!("postgres.rs")));
    assert!(there.len() > 7, "{there:?}");
    assert_eq!(there.difference(&here).collect::<Vec<_>>(), ["mod on_sqlite;"]);
}
