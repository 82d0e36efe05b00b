//! How much there may be at once of everything, and how long it may take: one list, so that it can be seen whole.
//!
//! They are no settings. Nobody should have to know them, and what they come to together is what the server was
//! tried with. Tests set them low, to see what lies behind them.

use std::time::Duration;

/// How many there may be at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// In all.
    pub all: usize,
    /// Of one workspace.
    pub of_one: usize,
}

/// The bounds of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Connections.
    pub connections: usize,
    /// Requests that are worked on.
    pub requests: Places,
    /// Requests that wait for a summary, which takes as long as a model does.
    pub waiting: Places,
    /// Connections that listen to events.
    pub listening: Places,
    /// Requests that are passed on, until all of their answer is.
    pub forwarding: Places,
    /// KiB of their bodies, until the answer begins. What finds no room is passed on unread.
    pub passing_kib: usize,
    /// KiB of bodies that are read and what they become, and of long answers that are not yet sent.
    pub memory_kib: usize,
    /// For so long a connection may say nothing, or take to say what it wants.
    pub headers: Duration,
    /// For so long nothing may come of a body.
    pub silence: Duration,
    /// For so long a body may take in all.
    pub body: Duration,
    /// For so long nobody may read of what is answered.
    pub unread: Duration,
    /// For so long requests under way may go on when the server is told to end.
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
    /// The same with one of them set: `NAME=NUMBER`, times in milliseconds. `NAME_of_one` is what one workspace may have.
    pub fn with(mut self, set: &str) -> Result<Self, String> {
        let (name, number) = set.split_once('=').ok_or("say NAME=NUMBER")?;
        let number: u32 = number.parse().map_err(|_| "say NAME=NUMBER")?;
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
