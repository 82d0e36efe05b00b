//! The kit itself: what imitates a network or a database does what tests rely on.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot continue fails; a child prints its address"
)]

mod network;
mod postgres_server;
