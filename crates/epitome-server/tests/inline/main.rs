//! The hard cases of other systems, A to D, with the binary: `epitome condense` in all three formats. The output must
//! pass the checks of strict providers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on should stop, loudly"
)]

mod cost;
mod meaning;
mod progress;
mod run;
mod valid;

#[path = "../cases/mod.rs"]
mod cases;

use epitome_testkit::judges;
