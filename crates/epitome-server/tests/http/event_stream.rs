//! A client that listens to a server's events.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::server::{Server, connect};

/// A stream of events.
pub struct EventStream {
    stream: BufReader<TcpStream>,
    unread: String,
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedEvent {
    pub id: Option<u64>,
    pub kind: String,
    pub data: Value,
}

impl EventStream {
    /// Opens the stream. The server listens when this returns.
    pub fn open(server: &Server, query: &str, headers: &[(&str, &str)]) -> Self {
        let mut stream = connect(&server.address);
        let mut head = format!("GET /v1/events{query} HTTP/1.1\r\nhost: {}\r\n", server.address);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.get_mut().write_all(head.as_bytes()).unwrap();
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            lines.push(line.trim().to_ascii_lowercase());
        }
        assert!(lines[0].contains(" 200 "), "{lines:?}");
        for wanted in ["content-type: text/event-stream", "cache-control: no-store"] {
            assert!(lines.iter().any(|line| line == wanted), "{lines:?}");
        }
        let mut events = Self { stream, unread: String::new() };
        assert_eq!(events.block(), ": listening");
        events
    }

    /// Returns the next event; skips keep-alive comments.
    pub fn next(&mut self) -> ReceivedEvent {
        loop {
            let block = self.block();
            let field = |name: &str| {
                block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned))
            };
            if let Some(kind) = field("event") {
                let data = serde_json::from_str(&field("data").unwrap()).unwrap();
                return ReceivedEvent { id: field("id").map(|id| id.parse().unwrap()), kind, data };
            }
        }
    }

    /// Returns the next events.
    pub fn take(&mut self, count: usize) -> Vec<ReceivedEvent> {
        (0..count).map(|_| self.next()).collect()
    }

    /// Returns the next event of this kind.
    pub fn next_of(&mut self, kind: &str) -> ReceivedEvent {
        loop {
            let heard = self.next();
            if heard.kind == kind {
                return heard;
            }
        }
    }

    fn block(&mut self) -> String {
        loop {
            if let Some((block, rest)) = self.unread.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.unread = rest;
                return block;
            }
            let mut size = String::new();
            self.stream.read_line(&mut size).unwrap();
            let size = usize::from_str_radix(size.trim(), 16).expect("the stream ended");
            assert!(size > 0, "the stream ended");
            let mut chunk = vec![0; size + 2];
            self.stream.read_exact(&mut chunk).unwrap();
            self.unread.push_str(std::str::from_utf8(&chunk[..size]).unwrap());
        }
    }
}
