//! State shared by all routes: the engine, whether callers need keys, and the limits.
//!
//! A crate with routes defines its own state, which contains this state and implements `Deref` to it. The crate's own
//! state then implements [`WithHttp`], and the extractors of this crate (`auth`, `body`) work in the crate's handlers.

use std::ops::Deref;
use std::sync::Arc;

use epitome::Engine;
use tokio::sync::watch;

use crate::limits::Limits;
use crate::log_limiter::LogLimiter;
use crate::permits::Permits;

/// Whether callers need keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// Every caller needs a key.
    Required,
    /// Any client that can reach the server may do everything. On loopback, only clients on this machine can reach the
    /// server. Web pages of other sites can make a browser on this machine send requests. The server recognises these
    /// requests by their headers and refuses them.
    Off {
        /// Whether the server listens on loopback.
        loopback: bool,
    },
}

impl Keys {
    /// Returns the name for the log: `required` or `off`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Off { .. } => "off",
        }
    }
}

/// State shared by all routes.
pub struct HttpState {
    /// The engine.
    pub engine: Engine,
    /// Whether callers need keys.
    pub keys: Keys,
    /// The limits of the server.
    pub limits: Limits,
    /// Permits for requests in progress and for memory.
    pub permits: Permits,
    /// Limits how often the server logs that it refuses requests over a limit.
    pub(crate) busy_log: LogLimiter,
    /// Becomes true when the server shuts down. Long-lived requests then end.
    pub stopping: watch::Receiver<bool>,
}

impl HttpState {
    /// Builds the state of a server.
    pub fn new(engine: Engine, keys: Keys, limits: Limits, stopping: watch::Receiver<bool>) -> Arc<Self> {
        let permits = Permits::new(&limits);
        Arc::new(Self { engine, keys, limits, permits, busy_log: LogLimiter::default(), stopping })
    }

    /// Returns whether the server is shutting down.
    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }
}

/// The state of a group of routes. It contains the shared state.
pub trait WithHttp: Deref<Target = Arc<HttpState>> + Send + Sync + 'static {}

impl<S: Deref<Target = Arc<HttpState>> + Send + Sync + 'static> WithHttp for S {}
