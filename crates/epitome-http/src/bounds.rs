//! Limits of the server, in one list: how much may be in progress at once, and how long it may take.
//!
//! They are constants, not settings: operators should not have to tune them, and the server is tested with this combination.
//! Tests set low limits to reach them.

use std::time::Duration;

/// Maximum number at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// In total.
    pub all: usize,
    /// Per workspace.
    pub of_one: usize,
}

/// The limits of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of connections.
    pub connections: usize,
    /// Maximum number of requests in progress.
    pub requests: Places,
    /// Maximum number of requests that wait for a summary, which takes as long as a model does.
    pub waiting: Places,
    /// Maximum number of connections that listen to events.
    pub listening: Places,
    /// Maximum number of proxied requests. Each counts until its response is sent completely.
    pub forwarding: Places,
    /// Memory in KiB for bodies of proxied requests, until the response begins. If no memory is free, a body is forwarded
    /// unread.
    pub passing_kib: usize,
    /// Memory in KiB for request bodies, for what is parsed from them, and for long responses that are not sent yet.
    pub memory_kib: usize,
    /// Timeout of an idle connection, and for receiving a request's head.
    pub headers: Duration,
    /// Timeout while a body sends nothing.
    pub silence: Duration,
    /// Timeout for a whole body.
    pub body: Duration,
    /// Timeout while a client reads nothing of a response.
    pub unread: Duration,
    /// How long requests in progress may continue after shutdown begins.
    pub grace: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 4_096,
            requests: Places { all: 1_024, of_one: 256 },
            waiting: Places { all: 256, of_one: 64 },
            listening: Places { all: 1_024, of_one: 256 },
            forwarding: Places { all: 2_560, of_one: 2_048 },
            passing_kib: 256 << 10,
            memory_kib: 96 << 10,
            headers: Duration::from_secs(30),
            silence: Duration::from_secs(10),
            body: Duration::from_secs(60),
            unread: Duration::from_secs(30),
            grace: Duration::from_secs(10),
        }
    }
}

impl Bounds {
    /// Sets one limit: `NAME=NUMBER`, times in milliseconds. `NAME_of_one` is the limit per workspace.
    pub fn with(mut self, set: &str) -> Result<Self, String> {
        let (name, number) = set.split_once('=').ok_or("expected NAME=NUMBER")?;
        let number: u32 = number.parse().map_err(|_| "expected NAME=NUMBER")?;
        let (count, time) = (number as usize, Duration::from_millis(number.into()));
        match name {
            "connections" => self.connections = count,
            "requests" => self.requests.all = count,
            "requests_of_one" => self.requests.of_one = count,
            "waiting" => self.waiting.all = count,
            "waiting_of_one" => self.waiting.of_one = count,
            "listening" => self.listening.all = count,
            "listening_of_one" => self.listening.of_one = count,
            "forwarding" => self.forwarding.all = count,
            "forwarding_of_one" => self.forwarding.of_one = count,
            "passing_kib" => self.passing_kib = count,
            "memory_kib" => self.memory_kib = count,
            "headers" => self.headers = time,
            "silence" => self.silence = time,
            "body" => self.body = time,
            "unread" => self.unread = time,
            "grace" => self.grace = time,
            _ => return Err(format!("there is no limit `{name}`")),
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_set_by_its_name_and_no_other_is() {
        let few = Bounds::default().with("requests=2").unwrap();
        assert_eq!(few, Bounds { requests: Places { all: 2, of_one: 256 }, ..Bounds::default() });
        let fewer = Bounds::default().with("waiting_of_one=2").unwrap();
        assert_eq!(fewer, Bounds { waiting: Places { all: 256, of_one: 2 }, ..Bounds::default() });
        let brief = Bounds::default().with("unread=50").unwrap();
        assert_eq!(brief, Bounds { unread: Duration::from_millis(50), ..Bounds::default() });
        for wrong in ["requests", "requests=", "requests=-1", "patience=3", "connections_of_one=3"] {
            assert!(Bounds::default().with(wrong).is_err(), "{wrong}");
        }
    }
}
