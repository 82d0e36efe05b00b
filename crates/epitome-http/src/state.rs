//! State shared by all routes: the engine, whether callers need keys, and the limits.
//!
//! A program that mounts routes wraps this state in its own and implements [`WithHttp`] for it. Then the extractors of this
//! crate (`auth`, `body`) work in its handlers.

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
    /// Any client that reaches the server may do everything. On loopback only this machine can reach it. Requests that
    /// another site's page makes a browser send are refused because of their `host` header.
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
    /// Limits of numbers, memory and time.
    pub limits: Limits,
    /// Permits for what is in progress.
    pub permits: Permits,
    /// Limits how often requests over a limit are logged.
    pub(crate) busy_log: LogLimiter,
    /// Becomes true when the server shuts down: long-lived requests end then.
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

/// The state of a group of routes, which contains the shared state.
pub trait WithHttp: Deref<Target = Arc<HttpState>> + Send + Sync + 'static {}

impl<S: Deref<Target = Arc<HttpState>> + Send + Sync + 'static> WithHttp for S {}
