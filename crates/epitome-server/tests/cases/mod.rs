//! The hard cases of other systems, A to D, that are the same for the command and for the proxy. A test that includes
//! this module with `#[path]` has its own `crate::run::Runner` (the command or the proxy), and `crate::judges` of the
//! three wire formats.

#![allow(dead_code, reason = "each of them uses a part of it")]

pub(crate) mod cost;
pub(crate) mod meaning;
pub(crate) mod out;
pub(crate) mod progress;
pub(crate) mod valid;

use epitome_testkit::provider;
