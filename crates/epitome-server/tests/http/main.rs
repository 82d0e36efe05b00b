//! The server as its users meet it: the real binary, a real socket, a real database.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "a test that cannot go on should stop, loudly"
)]

mod basics;
mod keys;
mod rough;
mod rough_bodies;
mod rough_connections;
mod server;
mod tenants;
