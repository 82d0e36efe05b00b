//! The measures against published numbers, and what they say of a model that forgets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop where something is missing"
)]

mod evaluation;
mod forgetting;
