//! What the tests of several crates share.
//!
//! | module | provides |
//! |---|---|
//! | [`drawing`] | sessions written in one line, `u a(x) r(x)` |
//! | [`cuts`] | where a list is divided, for a `keep` alone |
//! | [`drawn`], [`odd`], [`conversations`] | sessions: generated, malformed, and written by hand with planted facts |
//! | [`judges`], [`validator`] | what providers refuse, written apart from the code under test |
//! | [`provider`], [`upstream`] | HTTP servers on loopback that imitate a summarizing model and an agent's model |
//! | [`postgres_server`], [`network`] | a PostgreSQL of the tests' own, and a connection to it that breaks on request |
//! | [`budget`] | how many cases are drawn |
//! | [`both_stores`] | a suite of tests on SQLite and on PostgreSQL |
//! | [`planted`] | faults planted in a store, which `verify` must find |
//! | [`python`] | programs from PyPI, each in a virtual environment |
//! | [`restored`] | requests made of messages that were read from one |
//! | [`scripted`] | a summarizing model that works off a script |
//! | [`signal`] | signals to child processes |
//! | [`Written`] | what a command wrote, without a process |
//!
//! Tests use it as a dev-dependency. It is compiled once, however many test binaries use it.

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
    reason = "a test that cannot continue should stop, loudly"
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
pub mod provider;
pub mod python;
pub mod restored;
pub mod scripted;
pub mod signal;
pub mod upstream;
pub mod validator;
mod written;

pub use written::Written;
