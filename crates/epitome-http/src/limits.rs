//! All limits of the server: how many connections and requests it serves at the same time, how much memory they may
//! use, and how long they may take.
//!
//! The limits are constants and not settings, because operators should not have to tune them. The server is tested with
//! these values. Some tests set lower limits, in order to reach the limits.

use std::time::Duration;

/// The maximum number of requests of one kind, or the maximum amount of memory in KiB, at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLimit {
    /// The maximum for all workspaces together.
    pub total: usize,
    /// The maximum for each workspace.
    pub per_workspace: usize,
}

/// The limits of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connections.
    pub connections: usize,
    /// Maximum number of requests in progress.
    pub requests: PoolLimit,
    /// Maximum number of requests that wait for a summary. Such a request waits as long as a model takes to write the
    /// summary.
    pub summary_waits: PoolLimit,
    /// Maximum number of connections that listen to events.
    pub event_streams: PoolLimit,
    /// Maximum number of proxied requests. Each request counts until its response is sent completely.
    pub proxied_requests: PoolLimit,
    /// Memory for the bodies of proxied requests, in KiB. A body occupies memory until the response begins. If no
    /// memory is free, the proxy forwards the body without reading it.
    pub proxy_memory_kib: usize,
    /// Memory for request bodies, for the values that are parsed from bodies, and for long responses until they are
    /// sent, in KiB.
    pub memory_kib: usize,
    /// Maximum time until the head of a request is received. An idle connection is closed after this time.
    pub header_timeout: Duration,
    /// Maximum time without new data while a body is received.
    pub body_idle_timeout: Duration,
    /// Maximum time until a body is received completely.
    pub body_timeout: Duration,
    /// Maximum time for which a client reads nothing of a response.
    pub write_timeout: Duration,
    /// How long requests in progress may continue after shutdown begins.
    pub shutdown_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4_096,
            requests: PoolLimit { total: 1_024, per_workspace: 256 },
            summary_waits: PoolLimit { total: 256, per_workspace: 64 },
            event_streams: PoolLimit { total: 1_024, per_workspace: 256 },
            proxied_requests: PoolLimit { total: 2_560, per_workspace: 2_048 },
            proxy_memory_kib: 256 << 10,
            memory_kib: 96 << 10,
            header_timeout: Duration::from_secs(30),
            body_idle_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// Sets one limit. `set` has the form `NAME=NUMBER`. A number that is a time is in milliseconds. The name
    /// `NAME_of_one` is the limit per workspace of `NAME`.
    pub fn with(mut self, set: &str) -> Result<Self, String> {
        let (name, number) = set.split_once('=').ok_or("expected NAME=NUMBER, such as requests=2")?;
        let number: u32 = number.parse().map_err(|_| "expected NAME=NUMBER, such as requests=2")?;
        let (count, time) = (number as usize, Duration::from_millis(number.into()));
        match name {
            "connections" => self.connections = count,
            "requests" => self.requests.total = count,
            "requests_of_one" => self.requests.per_workspace = count,
            "waiting" => self.summary_waits.total = count,
            "waiting_of_one" => self.summary_waits.per_workspace = count,
            "listening" => self.event_streams.total = count,
            "listening_of_one" => self.event_streams.per_workspace = count,
            "forwarding" => self.proxied_requests.total = count,
            "forwarding_of_one" => self.proxied_requests.per_workspace = count,
            "passing_kib" => self.proxy_memory_kib = count,
            "memory_kib" => self.memory_kib = count,
            "headers" => self.header_timeout = time,
            "silence" => self.body_idle_timeout = time,
            "body" => self.body_timeout = time,
            "unread" => self.write_timeout = time,
            "grace" => self.shutdown_grace = time,
            _ => return Err(format!("unknown limit `{name}`; `Limits::with` lists the names")),
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_set_by_its_name() {
        let total = Limits::default().with("requests=2").unwrap();
        assert_eq!(
            total,
            Limits { requests: PoolLimit { total: 2, per_workspace: 256 }, ..Limits::default() }
        );
        let per_workspace = Limits::default().with("waiting_of_one=2").unwrap();
        let expected = PoolLimit { total: 256, per_workspace: 2 };
        assert_eq!(per_workspace, Limits { summary_waits: expected, ..Limits::default() });
        let timeout = Limits::default().with("unread=50").unwrap();
        assert_eq!(timeout, Limits { write_timeout: Duration::from_millis(50), ..Limits::default() });
        for wrong in ["requests", "requests=", "requests=-1", "patience=3", "connections_of_one=3"] {
            assert!(Limits::default().with(wrong).is_err(), "{wrong}");
        }
    }
}
