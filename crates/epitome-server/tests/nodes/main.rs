//! Three nodes of the real binary on one PostgreSQL, with injected failures.
//!
//! Each node reaches the database through a network of its own that can be made to fail, and has a provider of its own,
//! which records its calls. Nodes are killed and frozen, the database is restarted and killed, wires are cut
//! and go silent. What must hold is looked at from outside: by clients over HTTP, and in the database afterwards.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "a test that cannot go on should stop, loudly"
)]

mod balancer;
mod chaos;
mod failures;
mod history;
#[path = "../http/home.rs"]
#[allow(dead_code, reason = "the server's own tests use all of it")]
mod home;
mod leases;
mod no_failures;
mod readme;
mod request;
#[path = "../http/server.rs"]
#[allow(dead_code, unused_imports, reason = "the server's own tests use all of it")]
mod server;
mod stage;
mod stale;
#[path = "../readme/typing.rs"]
mod typing;
mod writers;

use epitome_testkit::{network, postgres_server, provider};
