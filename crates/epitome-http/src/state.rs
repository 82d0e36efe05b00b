//! State shared by all routes: the engine, whether callers need keys, and the limits.
//!
//! A program that mounts routes wraps this state in its own and implements [`WithHttp`] for it. Then the extractors of this
//! crate (`gate`, `body`) work in its handlers.

use std::ops::Deref;
use std::sync::Arc;

use epitome::Engine;
use tokio::sync::watch;

use crate::bounds::Bounds;
use crate::load::Load;
use crate::seldom::Seldom;

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
    /// Returns the word for the log.
    pub fn in_a_word(self) -> &'static str {
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
    pub bounds: Bounds,
    /// What is in progress.
    pub load: Load,
    /// Limits how often refused requests are logged.
    pub(crate) crowd: Seldom,
    /// Becomes true when the server shuts down: long-lived requests end then.
    pub stopping: watch::Receiver<bool>,
}

impl HttpState {
    /// Builds the state of a server.
    pub fn new(engine: Engine, keys: Keys, bounds: Bounds, stopping: watch::Receiver<bool>) -> Arc<Self> {
        let load = Load::new(&bounds);
        Arc::new(Self { engine, keys, bounds, load, crowd: Seldom::default(), stopping })
    }

    /// Returns whether the server is shutting down.
    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }
}

/// The state of a group of routes, which contains the shared state.
pub trait WithHttp: Deref<Target = Arc<HttpState>> + Send + Sync + 'static {}

impl<S: Deref<Target = Arc<HttpState>> + Send + Sync + 'static> WithHttp for S {}
