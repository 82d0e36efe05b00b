//! What every HTTP route of Epitome needs, and no route.
//!
//! A request goes through the same rooms every time:
//!
//! ```text
//! listen    connections: a limit, and time-outs, also for clients that do not read
//! around    an id, a time, a line in the log; problems put into words
//! gate      whose key is it, which workspace, is there room         (`access`; extractor: Runs)
//! body      read within limits, then as JSON                        (extractors: Json, Sent, Text, Raw)
//! query     parameters, read strictly                               (extractor: Query)
//! a handler of whoever mounts routes
//! reply     JSON, with an entity tag; contexts given before
//! ```
//!
//! Beside them: `state` is what all of them share, `bounds` and `load` how much may be in progress and how much is, `problem`
//! RFC 9457, `figures` what Prometheus reads, `discreet` and `seldom` what is not to be told, or not so often.
//!
//! Nothing here knows a path. Routes whose problems look different (those of another product, say) are a
//! [`problem::Mount`]: a path prefix, and functions.

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
