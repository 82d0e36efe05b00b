//! The server as its users meet it: the real binary, a real socket, a real database.
//!
//! Whatever goes to the database is tried once more with PostgreSQL, in `postgres.rs`.

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
mod api_suggestions;
mod api_summaries;
mod api_times;
mod basics;
mod crash;
mod event_stream;
mod fair;
mod home;
mod honcho;
mod keys;
mod logs;
mod metrics;
mod nodes;
mod on_postgres;
mod on_sqlite;
mod openapi;
mod pressure;
mod rough;
mod rough_bodies;
mod rough_connections;
mod rough_pages;
mod running;
mod schema;
mod server;
mod talk;
mod tenants;
mod v3_contexts;
mod v3_malformed;
mod v3_models;
mod v3_native;
mod v3_recorded;
mod v3_routes;
mod v3_tenants;
mod v3_tokens;

use epitome_testkit::{judges, postgres_server, provider, python, signal};

/// What never reaches a database is tried once, and so is what names its database itself.
#[test]
fn again_on_postgres() {
    let once = [
        "logs::",
        "openapi::",
        "pressure::",
        "rough_bodies::gzipped_bodies",
        "rough_bodies::a_body_",
        "rough_connections::",
        "rough_pages::many_large_contexts",
        "schema::with_keys",
        "nodes::",
        "on_sqlite::",
        "on_postgres::",
    ];
    epitome_testkit::both_stores::again_on_postgres(&once);
}
