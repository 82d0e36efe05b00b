//! The hard cases of other systems, A to D, as far as they are the same whatever a request goes through: the command, or the
//! proxy. Whoever takes this in with `#[path]` has a `crate::run::Place` that says which,
//! and `crate::judges` of the three wires.

#![allow(dead_code, reason = "each of them uses a part of it")]

pub(crate) mod cost;
pub(crate) mod meaning;
pub(crate) mod out;
pub(crate) mod progress;
pub(crate) mod valid;

use epitome_testkit::provider;
