//! A client that says what no decent client would, and what else is needed to be rough.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};

use crate::server::{Answer, Server, connect, read_answer};

/// A connection that is written to and read from by hand.
pub struct Raw(BufReader<TcpStream>);

impl Raw {
    /// Connects, and sends these bytes.
    pub fn send(server: &Server, bytes: &[u8]) -> Self {
        let mut raw = Self(connect(&server.address));
        raw.more(bytes);
        raw
    }

    /// Sends more of them. False where the server does not take any more.
    pub fn more(&mut self, bytes: &[u8]) -> bool {
        self.0.get_mut().write_all(bytes).is_ok()
    }

    /// Nothing more is sent, and it is said so.
    pub fn close_sending(&mut self) {
        self.0.get_mut().shutdown(Shutdown::Write).unwrap();
    }

    /// The next answer.
    #[track_caller]
    pub fn answer(&mut self) -> Answer {
        read_answer(&mut self.0, false).expect("an answer")
    }

    /// The next line.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let _ = self.0.read_line(&mut line);
        line
    }

    /// All that comes until the server closes the connection.
    pub fn rest(&mut self) -> String {
        let mut all = Vec::new();
        let _ = self.0.read_to_end(&mut all);
        String::from_utf8_lossy(&all).into_owned()
    }
}

/// A number of `/proc/PID/status`, in MiB.
fn status_mib(server: &Server, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// The most memory the server ever had.
pub fn peak_mib(server: &Server) -> u64 {
    status_mib(server, "VmHWM")
}
