//! Tests of the core's public interface: drawings, scenarios, property tests, hard cases, fuzzing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on should stop, loudly"
)]

mod condensing;
mod condensing_cases;
mod condensing_promises;
mod contexts;
mod cuts;
mod fidelity;
mod fuzz;
mod hard_cases;
mod plans;
mod promises;
mod prompts;
mod tokens_agree;
mod wire;

use epitome_testkit::{conversations, drawn, validator};
