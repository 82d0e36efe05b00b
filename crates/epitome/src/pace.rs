//! Settings of the background worker: concurrency, polling, leases, timeouts.

use std::time::Duration;

use crate::retry::Backoff;

/// How the background worker works. All fields have sensible defaults.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Maximum number of summaries that are written at once in one workspace, or by one model. In total it is a third
    /// more, so that one slow workspace or model cannot occupy every worker. 0 for an engine that leaves summaries to
    /// other engines.
    pub workers: usize,
    /// Whether an engine without workers writes a summary that a caller waits for in the caller's task. If not, the
    /// caller waits for another engine.
    pub on_demand: bool,
    /// Duration of a slot's lease. A worker that stalls longer loses the slot.
    pub lease: Duration,
    /// How often the lease is renewed while a model works.
    pub renew: Duration,
    /// How often the worker looks for work when it is not woken.
    pub poll: Duration,
    /// How long one model call may take.
    pub timeout: Duration,
    /// How long closing waits for summaries in progress.
    pub grace: Duration,
    /// How the wait between attempts grows after failures.
    pub backoff: Backoff,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            workers: 4,
            on_demand: true,
            lease: Duration::from_secs(30),
            renew: Duration::from_secs(10),
            poll: Duration::from_secs(1),
            timeout: Duration::from_secs(120),
            grace: Duration::from_secs(10),
            backoff: Backoff::default(),
        }
    }
}
