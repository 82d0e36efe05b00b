//! Tests agents whose lists are condensed before each call, against an upstream that refuses what real providers
//! refuse.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on should stop, loudly"
)]

mod faults;
mod loops;

#[path = "../../examples/agent_loop.rs"]
mod agent_loop;
