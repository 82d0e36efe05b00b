//! Limits of the server, in one list: how much may be in progress at once, and how long it may take.
//!
//! They are constants, not settings: operators should not have to tune them, and the server is tested with this combination.
//! Tests set low limits to reach them.

use std::time::Duration;

/// Maximum number at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLimit {
    /// In total.
    pub total: usize,
    /// Per workspace.
    pub per_workspace: usize,
}

/// The limits of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connections.
    pub connections: usize,
    /// Maximum number of requests in progress.
    pub requests: PoolLimit,
    /// Maximum number of requests that wait for a summary, which takes as long as a model does.
    pub summary_waits: PoolLimit,
    /// Maximum number of connections that listen to events.
    pub event_streams: PoolLimit,
    /// Maximum number of proxied requests. Each counts until its response is sent completely.
    pub proxied_requests: PoolLimit,
    /// Memory in KiB for bodies of proxied requests, until the response begins. If no memory is free, a body is forwarded
    /// unread.
    pub proxy_memory_kib: usize,
    /// Memory in KiB for request bodies, for what is parsed from them, and for long responses that are not sent yet.
    pub memory_kib: usize,
    /// Timeout of an idle connection, and for receiving a request's head.
    pub header_timeout: Duration,
    /// Timeout while a body sends nothing.
    pub body_idle_timeout: Duration,
    /// Timeout for a whole body.
    pub body_timeout: Duration,
    /// Timeout while a client reads nothing of a response.
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
    /// Sets one limit, as `NAME=NUMBER`; times are in milliseconds. `NAME_of_one` is the limit per workspace.
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
