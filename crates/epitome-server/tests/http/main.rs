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
mod crash;
mod logs;
mod pressure;
mod rough;
mod rough_bodies;
mod rough_connections;
mod running;
mod server;

/// A model on loopback that is as slow as it is told to be.
#[path = "../../../epitome/tests/provider/mod.rs"]
mod provider;
