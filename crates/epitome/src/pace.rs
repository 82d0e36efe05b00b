//! How the worker goes about its work: how many at once, how often, how long.

use std::time::Duration;

use crate::retry::Backoff;

/// How the worker goes about it. All have sound defaults.
#[derive(Debug, Clone)]
pub struct Pace {
    /// How many summaries are written at once in one workspace, or by one model; a third more in all, so that nobody else
    /// has to wait for those. 0 for an engine that leaves it to others.
    pub workers: usize,
    /// Whether an engine without workers has a summary that somebody waits for written in their own task. Where not,
    /// they wait for another engine.
    pub on_demand: bool,
    /// For how long a slot is held. Whoever stalls longer loses it.
    pub lease: Duration,
    /// How often the hold is renewed while a model works.
    pub renew: Duration,
    /// How often it looks for work when nobody tells of any.
    pub poll: Duration,
    /// How long one call of a model may take.
    pub time_out: Duration,
    /// How long closing waits for summaries that are being written.
    pub grace: Duration,
    /// How waiting grows after failures.
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
            time_out: Duration::from_secs(120),
            grace: Duration::from_secs(10),
            backoff: Backoff::default(),
        }
    }
}
