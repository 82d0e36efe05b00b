//! Provides the parts that all HTTP routes of Epitome share. Defines no routes itself.
//!
//! Every request passes these modules in order:
//!
//! ```text
//! listen      accepts connections, with limits and timeouts
//! middleware  request id, duration, log line, error responses
//! auth        checks the key, selects the workspace, limits requests  (`access`; extractor: Operator)
//! body        reads the body within limits, then parses JSON          (extractors: Json, JsonBody, TextBody, RawBody)
//! query       parses parameters strictly                              (extractor: Query)
//! a handler of the crate that mounts the routes
//! reply       JSON with an `etag`; cached contexts
//! ```
//!
//! Other modules: `state` is the state that all handlers share. `limits` defines the limits, and `permits` enforces
//! them. `problem` renders errors (RFC 9457). `metrics` and `process` render the metrics page for Prometheus. In error
//! texts, `scrub` replaces details that only the operator may see, and `suggest` adds the name that was probably meant.
//! `log_limiter` limits how often a log line is written.
//!
//! This crate contains no paths of routes. The routes of another product can have their own error format. Such a group
//! of routes is a [`problem::Mount`]: a path prefix, and the functions that render errors.

pub mod auth;
pub mod body;
pub mod limits;
pub mod listen;
pub mod log_limiter;
pub mod metrics;
pub mod middleware;
pub mod permits;
pub mod problem;
mod process;
pub mod query;
pub mod reply;
pub mod scrub;
pub mod state;
mod suggest;

pub use limits::Limits;
pub use problem::Problem;
pub use state::{HttpState, Keys, WithHttp};
