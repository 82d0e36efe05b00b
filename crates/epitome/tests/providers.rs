//! Models over a network, against a stand-in for their providers: the clients alone, and every fault through
//! a whole engine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

#[path = "providers/alone.rs"]
mod alone;
#[path = "providers/checking.rs"]
mod checking;
#[path = "providers/faults.rs"]
mod faults;
#[path = "providers/lent.rs"]
mod lent;
#[path = "providers/own_address.rs"]
mod own_address;
#[path = "providers/support.rs"]
mod support;
#[path = "providers/working.rs"]
mod working;

use epitome_testkit::provider;
