//! Shared test support for several crates.
//!
//! | module | provides |
//! |---|---|
//! | [`drawing`] | sessions in a one-line notation, `u a(x) r(x)` |
//! | [`cuts`] | where a list is divided for a `keep` |
//! | [`drawn`], [`odd`], [`conversations`] | sessions: generated, malformed, and written by hand with planted facts |
//! | [`judges`], [`validator`] | checks of what providers reject, implemented independently of the code under test |
//! | [`provider`], [`upstream`] | HTTP servers on loopback that imitate a summarizing model and an agent's model |
//! | [`postgres_server`], [`network`] | a PostgreSQL for tests, and a proxy to it that simulates network faults |
//! | [`budget`] | how many cases property tests generate |
//! | [`both_stores`] | a suite of tests on SQLite and on PostgreSQL |
//! | [`planted`] | faults planted in a store, which `verify` must find |
//! | [`prometheus`] | a parser of metrics pages, and Prometheus' naming rules |
//! | [`python`] | programs from PyPI, each in a virtual environment |
//! | [`restored`] | request bodies rebuilt from the messages read from them |
//! | [`scripted`] | a summarizing model that follows a script |
//! | [`signal`] | signals to child processes |
//! | [`Written`] | captures the output of a command without a process |
//!
//! Tests use this crate as a dev-dependency. It is compiled once for all test binaries.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::len_without_is_empty,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    reason = "a test that cannot continue should fail immediately"
)]

pub mod both_stores;
pub mod budget;
pub mod conversations;
pub mod cuts;
pub mod drawing;
pub mod drawn;
pub mod judges;
pub mod network;
pub mod odd;
pub mod planted;
pub mod postgres_server;
pub mod prometheus;
pub mod provider;
pub mod python;
pub mod restored;
pub mod scripted;
pub mod signal;
pub mod upstream;
pub mod validator;
mod written;

pub use written::Written;
