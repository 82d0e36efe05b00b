//! What is PostgreSQL's own: many nodes, a network in between, a server that restarts, fills up or has enough of us.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

#[path = "postgres/commits.rs"]
mod commits;
#[path = "postgres/faults.rs"]
mod faults;
#[path = "postgres/helping.rs"]
mod helping;
#[path = "postgres/opening.rs"]
mod opening;
#[path = "postgres/outages.rs"]
mod outages;
#[path = "postgres/overload.rs"]
mod overload;
#[path = "postgres/pooled.rs"]
mod pooled;
#[path = "postgres/secure.rs"]
mod secure;
#[path = "postgres/sharing.rs"]
mod sharing;
#[path = "postgres/small.rs"]
mod small;
#[path = "store_contract/support.rs"]
mod support;

use epitome_testkit::{network, planted, postgres_server};
