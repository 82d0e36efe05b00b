//! The server as its users meet it: the real binary, a real socket, a real database.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop, loudly")]

mod basics;
mod keys;
mod server;
mod tenants;
