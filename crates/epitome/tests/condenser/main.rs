//! Tests the condenser through its public interface: its promises to an agent, and the behaviour of providers, models
//! and other agents.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a test that cannot go on should stop, loudly"
)]

mod background;
mod costs;
mod defaults;
mod economic;
mod failing;
mod hooks;
mod odd_input;
mod promises;
mod provider_count;
mod reviewed;
mod sharing;
mod support;

use epitome_testkit::{drawn, judges};
