//! Provides what every HTTP route of Epitome needs. Defines no routes itself.
//!
//! Every request passes these modules in order:
//!
//! ```text
//! listen      connections: limits and timeouts, also for clients that do not read
//! middleware  request id, duration, log line, error responses
//! auth        checks the key, selects the workspace, limits requests  (`access`; extractor: Operator)
//! body        reads the body within limits, then parses JSON          (extractors: Json, JsonBody, TextBody, RawBody)
//! query       parses parameters strictly                              (extractor: Query)
//! a handler of the crate that mounts the routes
//! reply       JSON with an `etag`; cached contexts
//! ```
//!
//! Other modules: `state` is shared by all handlers. `limits` defines the limits, and `permits` enforces them. `problem`
//! renders errors (RFC 9457). `metrics` and `process` make the page for Prometheus. `scrub` removes operator details from
//! error texts. `log_limiter` limits how often a log line is written.
//!
//! This crate contains no paths. Routes with another error format (those of another product) are a [`problem::Mount`]: a
//! path prefix with functions.

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

pub use limits::Limits;
pub use problem::Problem;
pub use state::{HttpState, Keys, WithHttp};
