//! Tests models over a network against a test provider: single calls, and every failure with a whole engine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

#[path = "providers/base_url.rs"]
mod base_url;
#[path = "providers/caller_keys.rs"]
mod caller_keys;
#[path = "providers/calls.rs"]
mod calls;
#[path = "providers/checking.rs"]
mod checking;
#[path = "providers/faults.rs"]
mod faults;
#[path = "providers/support.rs"]
mod support;
#[path = "providers/working.rs"]
mod working;

use epitome_testkit::provider;
