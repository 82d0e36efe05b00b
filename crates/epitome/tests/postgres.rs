//! PostgreSQL only: several nodes, a network, and a server that restarts, runs full or refuses connections.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

#[path = "postgres/commits.rs"]
mod commits;
#[path = "postgres/cost.rs"]
mod cost;
#[path = "postgres/nodes.rs"]
mod nodes;
#[path = "postgres/opening.rs"]
mod opening;
#[path = "postgres/outages.rs"]
mod outages;
#[path = "postgres/overload.rs"]
mod overload;
#[path = "postgres/pooler.rs"]
mod pooler;
#[path = "postgres/setup.rs"]
mod setup;
#[path = "store_contract/support.rs"]
mod support;
#[path = "postgres/tls.rs"]
mod tls;
#[path = "postgres/verify.rs"]
mod verify;

use epitome_testkit::{network, planted, postgres_server};
