//! The proxy as its users meet it: the real binary between real clients and an upstream that refuses what real ones refuse.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "a test that cannot go on should stop, loudly"
)]

mod clients;
mod conversations;
mod drawn;
mod forwarding;
mod hard_cases;
mod long_cases;
mod metrics;
mod run;
mod stage;
mod streams;

#[path = "../cases/mod.rs"]
mod cases;
#[path = "../http/home.rs"]
#[allow(dead_code, reason = "the tests of the HTTP API use all of it")]
mod home;
#[path = "../http/server.rs"]
#[allow(dead_code, reason = "the tests of the HTTP API use all of it")]
mod server;

use epitome_testkit::{drawn as drawn_sessions, judges, python, upstream};
