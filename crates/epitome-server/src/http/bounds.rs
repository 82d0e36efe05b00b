//! How much there may be at once of everything, and how long it may take: one list, so that it can be seen whole.
//!
//! They are no settings. Nobody should have to know them, and what they come to together is what the server was
//! tried with. Tests set them low, to see what lies behind them.

use std::time::Duration;

/// The bounds of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Connections.
    pub(crate) connections: usize,
    /// Requests that are worked on.
    pub(crate) requests: usize,
    /// So many of them may be one workspace's.
    pub(crate) requests_of_one: usize,
    /// Requests that wait for a summary, which takes as long as a model does.
    pub(crate) waiting: usize,
    /// So many of them may be one workspace's.
    pub(crate) waiting_of_one: usize,
    /// Connections that listen to events.
    pub(crate) listening: usize,
    /// So many of them may be one workspace's.
    pub(crate) listening_of_one: usize,
    /// Requests that are passed on, until all of their answer is.
    pub(crate) forwarding: usize,
    /// So many of them may be one workspace's.
    pub(crate) forwarding_of_one: usize,
    /// KiB of their bodies, until the answer begins. What finds no room is passed on unread.
    pub(crate) passing_kib: usize,
    /// KiB of bodies that are read and what they become, and of long answers that are not yet sent.
    pub(crate) memory_kib: usize,
    /// For so long a connection may say nothing, or take to say what it wants.
    pub(crate) headers: Duration,
    /// For so long nothing may come of a body.
    pub(crate) silence: Duration,
    /// For so long a body may take in all.
    pub(crate) body: Duration,
    /// For so long nobody may read of what is answered.
    pub(crate) unread: Duration,
    /// For so long requests under way may go on when the server is told to end.
    pub(crate) grace: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 4_096,
            requests: 1_024,
            requests_of_one: 256,
            waiting: 256,
            waiting_of_one: 64,
            listening: 1_024,
            listening_of_one: 256,
            forwarding: 2_560,
            forwarding_of_one: 2_048,
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
    /// The same with one of them set: `NAME=NUMBER`, times in milliseconds.
    pub(crate) fn with(mut self, set: &str) -> Result<Self, String> {
        let (name, number) = set.split_once('=').ok_or("say NAME=NUMBER")?;
        let number: u32 = number.parse().map_err(|_| "say NAME=NUMBER")?;
        let count = usize::try_from(number).unwrap_or(usize::MAX);
        let time = Duration::from_millis(u64::from(number));
        match name {
            "connections" => self.connections = count,
            "requests" => self.requests = count,
            "requests_of_one" => self.requests_of_one = count,
            "waiting" => self.waiting = count,
            "waiting_of_one" => self.waiting_of_one = count,
            "listening" => self.listening = count,
            "listening_of_one" => self.listening_of_one = count,
            "forwarding" => self.forwarding = count,
            "forwarding_of_one" => self.forwarding_of_one = count,
            "passing_kib" => self.passing_kib = count,
            "memory_kib" => self.memory_kib = count,
            "headers" => self.headers = time,
            "silence" => self.silence = time,
            "body" => self.body = time,
            "unread" => self.unread = time,
            "grace" => self.grace = time,
            _ => return Err(format!("there is no bound `{name}`")),
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
        assert_eq!(few, Bounds { requests: 2, ..Bounds::default() });
        let brief = Bounds::default().with("unread=50").unwrap();
        assert_eq!(brief, Bounds { unread: Duration::from_millis(50), ..Bounds::default() });
        for wrong in ["requests", "requests=", "requests=-1", "patience=3"] {
            assert!(Bounds::default().with(wrong).is_err(), "{wrong}");
        }
    }
}
