//! Shared test support for several crates.
//!
//! | module | provides |
//! |---|---|
//! | [`drawing`] | a one-line notation for sessions, such as `u a(x) r(x)` |
//! | [`cuts`] | the position at which condensing divides a list, for a `keep` setting |
//! | [`drawn`] | generated sessions |
//! | [`odd`] | generated sessions that are made malformed |
//! | [`conversations`] | conversations written by hand, with planted facts |
//! | [`judges`], [`validator`] | checks for requests that providers reject, independent of the code under test |
//! | [`provider`] | an HTTP server on loopback that imitates a model that writes summaries |
//! | [`upstream`] | an HTTP server on loopback that imitates the model of an agent |
//! | [`postgres_server`] | a PostgreSQL server for tests |
//! | [`network`] | a proxy between a test and PostgreSQL that simulates network faults |
//! | [`budget`] | the number of cases that property tests generate |
//! | [`both_stores`] | functions that run the same tests on SQLite and on PostgreSQL |
//! | [`planted`] | SQL that plants faults in a store, which `verify` must find |
//! | [`prometheus`] | a parser for metrics pages, and checks of Prometheus' naming rules |
//! | [`python`] | installation of programs from PyPI, each in its own virtual environment |
//! | [`restored`] | request bodies, rebuilt from the messages that were read from them |
//! | [`scripted`] | a model that writes summaries and follows a script |
//! | [`signal`] | a function that sends signals to child processes |
//! | [`OutputBuffer`] | a buffer that captures the output of a command without a process |
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
mod output_buffer;
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

pub use output_buffer::OutputBuffer;
