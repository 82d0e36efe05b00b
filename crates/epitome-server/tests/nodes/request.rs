//! One request to a node that may not answer.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::server::{Answer, read_answer};

/// Sends one request over a new connection. Fails if no complete answer came within `patience`; then it is unknown whether
/// the request was done.
pub fn send(
    address: SocketAddr,
    (method, path): (&str, &str),
    key: Option<&str>,
    body: Option<&Value>,
    patience: Duration,
) -> Result<Answer, String> {
    let told = |error: std::io::Error| error.to_string();
    let stream = TcpStream::connect_timeout(&address, patience).map_err(told)?;
    stream.set_read_timeout(Some(patience)).map_err(told)?;
    stream.set_write_timeout(Some(patience)).map_err(told)?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    if let Some(key) = key {
        head.push_str(&format!("idempotency-key: {key}\r\n"));
    }
    let body = body.map(Value::to_string);
    if let Some(body) = &body {
        head.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
    }
    let whole = format!("{head}\r\n{}", body.unwrap_or_default());
    let mut stream = BufReader::new(stream);
    stream.get_mut().write_all(whole.as_bytes()).map_err(told)?;
    read_answer(&mut stream, false).ok_or_else(|| "no whole answer".to_owned())
}

/// Sends a request that only reads.
pub fn read(address: SocketAddr, path: &str, patience: Duration) -> Result<Answer, String> {
    send(address, ("GET", path), None, None, patience)
}
