//! What all routes share: the engine, whether callers need keys, and how much may be in progress.
//!
//! It knows no route. A program that mounts routes has a state of its own around it and says where it is ([`WithHttp`]); the
//! extractors of this crate (`gate`, `body`) then work in its handlers.

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
    /// Every caller needs one.
    Required,
    /// Whoever can reach the server may do everything. On loopback only this machine can, and what a browser was
    /// lured into sending is refused by the name it was sent to.
    Off {
        /// Whether it listens on loopback.
        loopback: bool,
    },
}

impl Keys {
    /// For the log.
    pub fn in_a_word(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Off { .. } => "off",
        }
    }
}

/// What all routes share.
pub struct HttpState {
    /// What is served.
    pub engine: Engine,
    /// Whether callers need keys.
    pub keys: Keys,
    /// How much may be in progress, and for how long.
    pub bounds: Bounds,
    /// How much is in progress.
    pub load: Load,
    /// Counts requests that were refused for want of room.
    pub(crate) crowd: Seldom,
    /// Turns true when the server is told to end: long-lived requests end then.
    pub stopping: watch::Receiver<bool>,
}

impl HttpState {
    /// Builds the state of a server.
    pub fn new(engine: Engine, keys: Keys, bounds: Bounds, stopping: watch::Receiver<bool>) -> Arc<Self> {
        let load = Load::new(&bounds);
        Arc::new(Self { engine, keys, bounds, load, crowd: Seldom::default(), stopping })
    }

    /// Returns whether the server was told to end.
    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }
}

/// The state of a group of routes, which has the shared one in it.
pub trait WithHttp: Deref<Target = Arc<HttpState>> + Send + Sync + 'static {}

impl<S: Deref<Target = Arc<HttpState>> + Send + Sync + 'static> WithHttp for S {}
