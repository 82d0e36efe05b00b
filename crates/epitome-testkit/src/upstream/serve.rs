//! Reads requests from a socket and writes answers to it, with the configured pace and behavior.

use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::state::{Answer, UpstreamState};
use super::{Behavior, Seen};

/// Answers requests until the caller disconnects.
pub async fn serve(mut socket: TcpStream, state: &Mutex<UpstreamState>) -> Option<()> {
    let mut bytes = Vec::new();
    socket.set_nodelay(true).ok()?;
    loop {
        let seen = read(&mut socket, &mut bytes).await?;
        let head_only = seen.method == "HEAD";
        let (answer, act, pace) = {
            let mut state = state.lock().unwrap();
            let act = state.act(&seen);
            let answer = state.answer(&seen, act);
            let pace = state.manner.pace;
            state.keep(seen);
            state.in_progress += 1;
            (answer, act, pace)
        };
        let mut caller = Caller { socket: &mut socket, bytes: &mut bytes };
        let sent = caller.give(&answer, act, pace, head_only).await;
        let mut state = state.lock().unwrap();
        state.in_progress -= 1;
        state.hung_up += usize::from(sent == SendResult::Gone);
        if sent != SendResult::All {
            return None;
        }
    }
}

/// The result of sending an answer.
#[derive(Debug, PartialEq, Eq)]
enum SendResult {
    All,
    /// The connection should be closed.
    Broken,
    /// The caller had disconnected.
    Gone,
}

struct Caller<'a> {
    socket: &'a mut TcpStream,
    /// Bytes that the caller sent after the request.
    bytes: &'a mut Vec<u8>,
}

impl Caller<'_> {
    async fn give(
        &mut self,
        answer: &Answer,
        act: Option<Behavior>,
        (first, between): (Duration, Duration),
        head_only: bool,
    ) -> SendResult {
        if act == Some(Behavior::Silent) {
            return self.wait_for_ever().await;
        }
        if !first.is_zero() && !self.waits(first).await {
            return SendResult::Gone;
        }
        let mut head = format!("HTTP/1.1 {} Whatever\r\n", answer.status);
        for (name, value) in &answer.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if answer.streams {
            head.push_str("transfer-encoding: chunked\r\n\r\n");
        } else {
            let length: usize = answer.pieces.iter().map(Vec::len).sum();
            head.push_str(&format!("content-length: {length}\r\n\r\n"));
        }
        if head_only {
            return self.send(head.as_bytes()).await;
        }
        // An interrupted answer ends after its first half.
        let ends_early = matches!(act, Some(Behavior::Stalls | Behavior::Breaks));
        let whole: Vec<&[u8]> = answer.pieces.iter().map(Vec::as_slice).collect();
        let mut pieces = whole.as_slice();
        let half;
        if ends_early {
            half = whole.first().map(|text| &text[..text.len() / 2]);
            pieces = if answer.streams { &whole[..whole.len() / 2] } else { half.as_slice() };
        }
        let at_once = between.is_zero();
        let mut text = head.into_bytes();
        for (at, piece) in pieces.iter().enumerate() {
            if at > 0 && !at_once && !self.waits(between).await {
                return SendResult::Gone;
            }
            if answer.streams {
                text.extend(format!("{:x}\r\n", piece.len()).into_bytes());
                text.extend_from_slice(piece);
                text.extend(b"\r\n");
            } else {
                text.extend_from_slice(piece);
            }
            if !at_once {
                if self.send(&text).await != SendResult::All {
                    return SendResult::Gone;
                }
                text.clear();
            }
        }
        if answer.streams && !ends_early {
            text.extend(b"0\r\n\r\n");
        }
        if self.send(&text).await != SendResult::All {
            return SendResult::Gone;
        }
        match act {
            Some(Behavior::Stalls) => self.wait_for_ever().await,
            Some(Behavior::Breaks) => SendResult::Broken,
            _ => SendResult::All,
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> SendResult {
        if self.socket.write_all(bytes).await.is_ok() { SendResult::All } else { SendResult::Gone }
    }

    /// Waits for this duration. Returns false if the caller disconnects before the end of the duration.
    async fn waits(&mut self, time: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(time) => true,
            _ = self.wait_for_ever() => false,
        }
    }

    /// Waits until the caller disconnects.
    async fn wait_for_ever(&mut self) -> SendResult {
        loop {
            match self.socket.read_buf(self.bytes).await {
                Ok(0) | Err(_) => return SendResult::Gone,
                Ok(_) => {}
            }
        }
    }
}

/// Reads one request. Bytes after the request stay in `bytes`. `None` if the caller disconnected or the request is
/// invalid.
async fn read(socket: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Seen> {
    let mut from = 0;
    let head = loop {
        if let Some(end) = bytes[from..].windows(4).position(|four| four == b"\r\n\r\n") {
            break from + end;
        }
        from = bytes.len().saturating_sub(3);
        more(socket, bytes).await?;
    };
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let mut lines = text.split("\r\n");
    let mut start = lines.next()?.split(' ');
    let (method, path) = (start.next()?.to_owned(), start.next()?.to_owned());
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
    let mut seen = Seen { method, path, headers: headers.collect(), body: Vec::new() };
    bytes.drain(..head + 4);
    if seen.header("expect").is_some() {
        socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.ok()?;
    }
    if seen.header("transfer-encoding").is_some() {
        seen.body = chunks(socket, bytes).await?;
        return Some(seen);
    }
    let length = seen.header("content-length").map_or(Some(0), |length| length.parse::<usize>().ok())?;
    while bytes.len() < length {
        more(socket, bytes).await?;
    }
    let rest = bytes.split_off(length);
    seen.body = std::mem::replace(bytes, rest);
    Some(seen)
}

/// Reads a body in chunked transfer encoding.
async fn chunks(socket: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = loop {
            match bytes.windows(2).position(|two| two == b"\r\n") {
                Some(end) => break end,
                None => more(socket, bytes).await?,
            }
        };
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..line]).ok()?.trim(), 16).ok()?;
        let end = line + 2 + length;
        while bytes.len() < end + 2 {
            more(socket, bytes).await?;
        }
        body.extend_from_slice(&bytes[line + 2..end]);
        bytes.drain(..end + 2);
        if length == 0 {
            return Some(body);
        }
    }
}

async fn more(socket: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    (socket.read_buf(bytes).await.ok()? > 0).then_some(())
}
