//! Provides what every HTTP route of Epitome needs. Defines no routes itself.
//!
//! Every request passes these modules in order:
//!
//! ```text
//! listen    connections: limits and timeouts, also for clients that do not read
//! around    middleware: request id, duration, log line, error responses
//! gate      checks the key, selects the workspace, limits requests  (`access`; extractor: Runs)
//! body      reads the body within limits, then parses JSON          (extractors: Json, Sent, Text, Raw)
//! query     parses parameters strictly                              (extractor: Query)
//! a handler of the crate that mounts the routes
//! reply     JSON with an `etag`; cached contexts
//! ```
//!
//! Other modules: `state` is shared by all handlers. `bounds` defines the limits, and `load` counts what is in progress.
//! `problem` renders errors (RFC 9457). `figures` has the metrics. `discreet` removes operator details from error texts.
//! `seldom` limits how often a log line is written.
//!
//! This crate contains no paths. Routes with another error format (those of another product) are a [`problem::Mount`]: a
//! path prefix with functions.

pub mod around;
pub mod body;
pub mod bounds;
pub mod discreet;
pub mod figures;
pub mod gate;
pub mod listen;
pub mod load;
pub mod problem;
pub mod query;
pub mod reply;
pub mod seldom;
pub mod state;

pub use bounds::Bounds;
pub use problem::Problem;
pub use state::{HttpState, Keys, WithHttp};
