//! Settings of the background worker: concurrency, polling, leases, timeouts.

use std::time::Duration;

use crate::retry::Backoff;

/// Concurrency, intervals and timeouts of the background worker. All fields have sensible defaults.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Maximum number of summaries that are written at the same time in one workspace, or by one model. If it is more
    /// than 1, the maximum in total is a third higher, so that one slow workspace or model cannot occupy every worker.
    /// 0 turns the background worker off: other engines must write the summaries.
    pub workers: usize,
    /// Applies if `workers` is 0 and a caller waits for a summary. If true, the caller's own task writes the summary.
    /// If false, the caller waits until another engine has written the summary.
    pub on_demand: bool,
    /// Duration of a slot's lease. A worker that stalls longer loses the slot.
    pub lease: Duration,
    /// How often the lease is renewed while a model works.
    pub renew: Duration,
    /// How often the worker looks for work if no notification wakes it.
    pub poll: Duration,
    /// Timeout of one model call.
    pub timeout: Duration,
    /// How long [`crate::Engine::close`] waits for summaries in progress.
    pub grace: Duration,
    /// How long the worker waits between attempts after failures.
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
