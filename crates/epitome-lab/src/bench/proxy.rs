//! `epitome bench --proxy`: measures the latency that the proxy adds to a request.
//!
//! A provider on loopback responds immediately. Requests go alternately directly to the provider and through this program,
//! started again as a server. Each request is an agent's, of about 100 KB, and continues the previous one by a question and
//! a reply. So the proxy has not seen the request before, but knows its conversation.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use epitome::rules::message::Part;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::server::Trouble;
use super::server::child::Child;
use crate::bench::engine::{Folder, Line, Progress, Spread, Tell, said};

/// Approximate size of the request, in bytes.
const REQUEST: usize = 100_000;

/// Number of generated texts that are joined to one message.
const AT_ONCE: usize = 5;

/// Turns per conversation.
const TURNS: usize = 40;

/// Number of events in a streamed response.
const EVENTS: usize = 20;

/// Targets for the added latency, in milliseconds.
const TARGET: f64 = 1.0;
const TARGET_STREAM: f64 = 2.0;

/// Durations of requests through the proxy and directly, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Proxied {
    /// Size of the request, in bytes.
    bytes: usize,
    /// Until the complete response has arrived.
    direct: Spread,
    proxied: Spread,
    /// Difference of the medians.
    more: f64,
    /// Until the first byte of a streamed response has arrived.
    direct_stream: Spread,
    proxied_stream: Spread,
    more_stream: f64,
    /// Requests that begin a conversation: the proxy counts all of its messages.
    first: Spread,
}

impl Proxied {
    pub(super) fn lines(&self) -> Vec<Line> {
        let figure = |more: f64, through: &Spread, direct: &Spread| {
            format!(
                "{more:.2} ms more: {:.2} (p99 {:.2}), direct {:.2} (p99 {:.2})",
                through.median, through.p99, direct.median, direct.p99
            )
        };
        let whole = figure(self.more, &self.proxied, &self.direct);
        let stream = figure(self.more_stream, &self.proxied_stream, &self.direct_stream);
        let first = format!("{:.2} ms (p99 {:.2})", self.first.median, self.first.p99);
        vec![
            Line::new("proxy, request of 100 KB", whole, "1 ms more", Some(self.more < TARGET)),
            Line::new(
                "proxy, first byte of a stream",
                stream,
                "2 ms more",
                Some(self.more_stream < TARGET_STREAM),
            ),
            Line::new("proxy, first request of a conversation", first, "", None),
        ]
    }
}

/// Measures this many conversations.
pub(super) async fn proxied(
    dir: &std::path::Path,
    conversations: usize,
    tell: Tell<'_>,
) -> Result<Proxied, Trouble> {
    let folder = Folder::new(dir)?;
    let upstream = upstream()?;
    let setting = format!("proxy.openai_upstream=http://{upstream}");
    let server = Child::serve(folder.path(), "proxy.db", &[setting]).await?;
    server.ready().await?;
    let address = server.address;
    let mut times: [Vec<Duration>; 5] = Default::default();
    let mut bytes = 0;
    // The first conversation only warms up.
    for number in 0..=conversations.max(1) {
        tell(Progress { stage: "the proxy", done: number as u64, of: conversations as u64 });
        let measured = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
            runtime.block_on(conversation(number, upstream, address))
        };
        let measured = tokio::task::spawn_blocking(measured).await.map_err(io::Error::other)??;
        bytes = measured.0;
        if number > 0 {
            times.iter_mut().zip(measured.1).for_each(|(all, more)| all.extend(more));
        }
    }
    let [direct, proxied, direct_stream, proxied_stream, first] = times.map(Spread::of);
    Ok(Proxied {
        bytes,
        direct,
        proxied,
        more: proxied.median - direct.median,
        direct_stream,
        proxied_stream,
        more_stream: proxied_stream.median - direct_stream.median,
        first,
    })
}

/// Plays one conversation. Returns the size of its last request, and the durations: direct, proxied, direct streamed,
/// proxied streamed, and the first request.
async fn conversation(
    number: usize,
    upstream: SocketAddr,
    proxy: SocketAddr,
) -> io::Result<(usize, [Vec<Duration>; 5])> {
    let mut times: [Vec<Duration>; 5] = Default::default();
    let [direct, proxied, direct_stream, proxied_stream, first] = &mut times;
    let (mut there, mut here) = (Asker::connect(upstream).await?, Asker::connect(proxy).await?);
    let mut list = history(number);
    let begun = Asker::ask(&mut here, "/openai/v1/chat/completions", &body(&list, false)).await?;
    first.push(begun);
    let mut size = 0;
    for turn in 0..TURNS {
        list.push(json!({"role": "assistant", "content": format!("That is done, as step {turn} says.")}));
        list.push(json!({"role": "user", "content": format!("Then go on with step {}.", turn + 1)}));
        let stream = turn % 2 == 1;
        let request = body(&list, stream);
        size = request.len();
        let (one, two) =
            if stream { (&mut *direct_stream, &mut *proxied_stream) } else { (&mut *direct, &mut *proxied) };
        one.push(there.ask("/v1/chat/completions", &request).await?);
        two.push(here.ask("/openai/v1/chat/completions", &request).await?);
    }
    Ok((size, times))
}

/// Returns about two hundred messages of half a kilobyte each.
fn history(number: usize) -> Vec<Value> {
    let mut list = vec![json!({"role": "system", "content": "You are at work on a long task."})];
    // Every conversation begins differently, so that the proxy distinguishes them.
    list.push(json!({"role": "user", "content": format!("Do the work of day {number}.")}));
    let mut said = (0..).flat_map(|at| said(at).parts).filter_map(|part| match part {
        Part::Text { text } => Some(text),
        _ => None,
    });
    let mut sum = 0;
    while sum < REQUEST {
        let content = said.by_ref().take(AT_ONCE).collect::<Vec<_>>().join(" ");
        sum += content.len() + 40;
        let role = if list.len() % 2 == 1 { "user" } else { "assistant" };
        list.push(json!({"role": role, "content": content}));
    }
    list
}

fn body(list: &[Value], stream: bool) -> String {
    json!({"model": "gpt-4o", "messages": list, "stream": stream}).to_string()
}

/// Starts the provider on its own thread, which ends with the process.
fn upstream() -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    std::thread::Builder::new().name("upstream".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream));
            }
        });
    })?;
    Ok(address)
}

/// Responds immediately to every request on a connection.
async fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let usage = json!({"prompt_tokens": 25_000, "completion_tokens": 20});
    let reply = json!({"role": "assistant", "content": "It is done."});
    let choice = json!({"index": 0, "finish_reason": "stop", "message": reply});
    let whole = json!({"object": "chat.completion", "choices": [choice], "usage": usage}).to_string();
    let whole = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{whole}",
        whole.len()
    );
    let mut read = Vec::new();
    loop {
        read.clear();
        let (head, length) = loop {
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
            if let Some(head) = head_of(&read) {
                break head;
            }
        };
        while read.len() < head + length {
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        }
        if !read.ends_with(b"\"stream\":true}") {
            stream.write_all(whole.as_bytes()).await?;
            continue;
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        for event in 0..EVENTS {
            let data = if event + 1 < EVENTS {
                "data: {\"choices\":[{\"delta\":{\"content\":\" word\"},\"finish_reason\":null}]}\n\n"
                    .to_owned()
            } else {
                format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\ndata: [DONE]\n\n")
            };
            stream.write_all(format!("{:x}\r\n{data}\r\n", data.len()).as_bytes()).await?;
        }
        stream.write_all(b"0\r\n\r\n").await?;
    }
}

/// Returns the size of the response head and of the body. Returns `None` until the complete head has arrived.
fn head_of(read: &[u8]) -> Option<(usize, usize)> {
    let end = read.windows(4).position(|four| four == b"\r\n\r\n")?;
    let text = std::str::from_utf8(read.get(..end)?).ok()?;
    let length = text.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    Some((end + 4, length.unwrap_or(0)))
}

/// A client with one connection.
struct Asker {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Asker {
    async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::new() })
    }

    /// Sends a request. Returns the time until the complete response, or the first byte of a streamed response, has arrived.
    async fn ask(&mut self, path: &str, body: &str) -> io::Result<Duration> {
        let head =
            "HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nauthorization: Bearer sk-none";
        let request = format!("POST {path} {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let asked = Instant::now();
        self.stream.write_all(request.as_bytes()).await?;
        self.read.clear();
        let (head, length) = loop {
            self.more().await?;
            if let Some(head) = head_of(&self.read) {
                break head;
            }
        };
        if !self.read.starts_with(b"HTTP/1.1 200") {
            return Err(io::Error::other(format!("request failed: {}", String::from_utf8_lossy(&self.read))));
        }
        if length > 0 {
            while self.read.len() < head + length {
                self.more().await?;
            }
            return Ok(asked.elapsed());
        }
        while self.read.len() <= head {
            self.more().await?;
        }
        let first = asked.elapsed();
        while !self.read.ends_with(b"\r\n0\r\n\r\n") {
            self.more().await?;
        }
        Ok(first)
    }

    async fn more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::Error::other("a connection was closed")),
            _ => Ok(()),
        }
    }
}
