//! The server with PostgreSQL behind it: the tests of `main.rs` once more, but for those that never reach a database
//! (connections, logs, the description).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "a test that cannot go on should stop, loudly"
)]

mod api_again;
mod api_answers;
mod api_condense;
mod api_context;
mod api_events;
mod api_messages;
mod api_models;
mod api_search;
mod api_sessions;
mod api_summaries;
mod basics;
mod crash;
mod ears;
mod fair;
#[path = "home_postgres.rs"]
mod home;
mod honcho;
mod keys;
mod on_postgres;
mod rough;
mod rough_bodies;
mod rough_pages;
mod running;
mod schema;
mod server;
mod talk;
mod tenants;
mod v3_contexts;
mod v3_models;
mod v3_native;
mod v3_rough;
mod v3_tenants;
mod v3_tokens;
mod v3_walk;
mod wire_v3;

use epitome_testkit::{judges, postgres_server, provider, python, signal};

/// A model on loopback that is as slow as it is told to be.

/// What is not tried here never reaches a database, or is tried on both of them there. Whoever adds a file decides.
#[test]
fn whatever_reaches_a_database_is_tried_on_postgres_too() {
    let named = |list: &str| -> std::collections::BTreeSet<String> {
        list.lines().filter_map(|line| line.strip_prefix("mod ")).map(str::to_owned).collect()
    };
    let (there, here) = (named(include_str!("main.rs")), named(include_str!("postgres.rs")));
    let only_there: Vec<&str> = there.difference(&here).map(|name| name.trim_end_matches(';')).collect();
    let never_reach_one = ["logs", "openapi", "pressure", "rough_connections"];
    let (both, other) = (["nodes"], ["on_sqlite"]);
    let mut expected: Vec<&str> = never_reach_one.into_iter().chain(both).chain(other).collect();
    expected.sort_unstable();
    assert_eq!(only_there, expected);
}
