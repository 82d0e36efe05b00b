//! A load balancer in front of the nodes: a request whose node does not answer goes to the next one. It adds an
//! idempotency key to each append, as docs/server.md says, so that an append is stored once.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::server::read_answer;
use crate::stage::LIMIT;

/// How long the balancer waits for a node.
const PATIENCE: Duration = Duration::from_secs(3);

/// Starts a balancer for these nodes. It runs as long as the tests.
pub fn start(nodes: Vec<SocketAddr>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (nodes, count) = (Arc::new(nodes), Arc::new(AtomicUsize::new(0)));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (nodes, count) = (Arc::clone(&nodes), Arc::clone(&count));
            std::thread::spawn(move || pass(stream, &nodes, &count));
        }
    });
    address
}

/// Forwards one request, and returns its answer. Each request begins with another node.
fn pass(client: TcpStream, nodes: &[SocketAddr], count: &AtomicUsize) -> Option<()> {
    let number = count.fetch_add(1, Ordering::SeqCst);
    let mut client = BufReader::new(client);
    let (mut head, length) = read_head(&mut client)?;
    let mut body = vec![0; length];
    client.read_exact(&mut body).ok()?;
    head.push_str("connection: close\r\n");
    if head.starts_with("POST ") {
        head.push_str(&format!("idempotency-key: balancer-{}-{number}\r\n", std::process::id()));
    }
    let whole = [head.as_bytes(), b"\r\n", &body].concat();
    let begun = Instant::now();
    for node in nodes.iter().cycle().skip(number % nodes.len()) {
        match forward(*node, &whole) {
            Some(answer) => return client.get_mut().write_all(&answer).ok(),
            None if begun.elapsed() > LIMIT => return None,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    None
}

/// Returns the answer of a node; none if there is none, or if it is 503.
fn forward(node: SocketAddr, whole: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&node, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(whole).ok()?;
    let answer = read_answer(&mut BufReader::new(stream), false).filter(|answer| answer.status != 503)?;
    let (kind, length) = (answer.header("content-type"), answer.body.len());
    let head = format!("HTTP/1.1 {} Passed on\r\ncontent-type: {kind}\r\n", answer.status);
    let head = format!("{head}content-length: {length}\r\nconnection: close\r\n\r\n");
    Some([head.as_bytes(), &answer.body].concat())
}

/// The lines before the body, and how long that is.
fn read_head(stream: &mut impl BufRead) -> Option<(String, usize)> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if line == "\r\n" {
            return Some((head, length));
        }
        if let Some(("content-length", size)) = line.to_ascii_lowercase().trim().split_once(": ") {
            length = size.parse().ok()?;
        }
        head.push_str(&line);
    }
}
