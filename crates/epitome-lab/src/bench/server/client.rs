//! Clients that send requests as fast as the server responds.
//!
//! The clients share the machine with the measured server, so they do as little work as possible. All clients run on
//! one thread. Each client reuses one connection. A client parses only the status and the length of a response.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Function that returns a client's next request. The arguments are the client's number and the request's number, both
/// counted from 0. Returns `None` when the client is done.
pub(super) type RequestSource = Arc<dyn Fn(usize, u64) -> Option<Vec<u8>> + Send + Sync>;

/// Results of one round of requests.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Responses per second for all clients together.
    pub(super) rate: f64,
    /// Duration of each request.
    pub(super) times: Vec<Duration>,
}

/// Runs `clients` concurrent clients until all clients are done. The measured time starts when all clients are
/// connected.
pub(super) async fn round(address: SocketAddr, clients: usize, requests: RequestSource) -> io::Result<Round> {
    let all = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(run_all(address, clients, requests))
    };
    tokio::task::spawn_blocking(all).await?
}

async fn run_all(address: SocketAddr, clients: usize, requests: RequestSource) -> io::Result<Round> {
    let mut connected = Vec::new();
    for _ in 0..clients {
        connected.push(Client::connect(address).await?);
    }
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for (number, mut client) in connected.into_iter().enumerate() {
        let requests = Arc::clone(&requests);
        tasks.spawn(async move {
            let mut times = Vec::new();
            while let Some(request) = requests(number, times.len() as u64) {
                let sent = Instant::now();
                client.send(&request).await?;
                times.push(sent.elapsed());
            }
            Ok::<_, io::Error>(times)
        });
    }
    let mut times = Vec::new();
    while let Some(done) = tasks.join_next().await {
        times.extend(done??);
    }
    Ok(Round { rate: times.len() as f64 / started.elapsed().as_secs_f64(), times })
}

/// Returns a `GET` request.
pub(super) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
}

/// Returns a `POST` request with a JSON body.
pub(super) fn post(path: &str, body: &str) -> Vec<u8> {
    let head = "HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
    format!("POST {path} {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// An HTTP client with one connection.
pub(super) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(64 << 10) })
    }

    /// Sends one request. Returns the response body. Returns an error if the status is not from 200 to 299.
    pub(super) async fn send(&mut self, request: &[u8]) -> io::Result<&[u8]> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let head = loop {
            self.read_more().await?;
            if let Some(head) = Head::of(&self.buffer)? {
                break head;
            }
        };
        while self.buffer.len() < head.size + head.body {
            self.read_more().await?;
        }
        let body = self.buffer.get(head.size..).unwrap_or_default();
        if !(200..300).contains(&head.status) {
            let body = String::from_utf8_lossy(body);
            return Err(io::Error::other(format!(
                "the server responded with status {}: {body}",
                head.status
            )));
        }
        Ok(body)
    }

    async fn read_more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::Error::other("the server closed a connection")),
            _ => Ok(()),
        }
    }
}

/// The parsed head of a response.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// Size of the head, in bytes.
    size: usize,
    /// Size of the body, in bytes.
    body: usize,
}

impl Head {
    /// Parses the head of a response. Returns `None` until the complete head has arrived.
    fn of(read: &[u8]) -> io::Result<Option<Self>> {
        let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
        let text = std::str::from_utf8(read.get(..end).unwrap_or_default()).unwrap_or_default();
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let length = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        match (status, length) {
            (Some(status), Some(body)) => Ok(Some(Self { status, size: end + 4, body })),
            _ => Err(io::Error::other("the server's response has no status or no content-length")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_head_has_a_status_and_a_length() {
        let head = |text: &str| Head::of(text.as_bytes());
        let whole = "HTTP/1.1 201 Created\r\nContent-Length: 12\r\nx: y\r\n\r\n{\"from\":1}  ";
        assert_eq!(head(whole).unwrap(), Some(Head { status: 201, size: 50, body: 12 }));
        assert_eq!(head("HTTP/1.1 201 Created\r\nContent-Le").unwrap(), None);
        assert!(head("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
    }
}
