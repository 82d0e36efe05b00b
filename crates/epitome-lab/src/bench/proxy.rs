//! `epitome bench --proxy`: measures the latency that the proxy adds to a request.
//!
//! A test provider on loopback responds immediately. The proxy is this program, started again as a server. The
//! benchmark sends each request twice: directly to the provider, and through the proxy.
//!
//! A request has about 100 KB. Like an agent's request, each request repeats the previous request and adds a reply and
//! a question. So each request is new to the proxy, but the proxy recognises the conversation.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use epitome::rules::message::Part;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::server::BenchError;
use super::server::child::Child;
use crate::bench::engine::{Folder, OnProgress, Progress, ResultLine, Spread, short_message};

/// Approximate size of the request, in bytes.
const REQUEST_BYTES: usize = 100_000;

/// Number of generated texts that form one message.
const TEXTS_PER_MESSAGE: usize = 5;

/// Number of measured turns per conversation.
const TURNS: usize = 40;

/// Number of events in a streamed response.
const EVENTS: usize = 20;

/// Maximum latency that the proxy may add to a complete response, and to the first byte of a stream, in milliseconds.
const TARGET_MILLIS: f64 = 1.0;
const TARGET_STREAM_MILLIS: f64 = 2.0;

/// Durations of direct requests and of requests through the proxy, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct ProxyLatency {
    /// Size of the last request, in bytes.
    bytes: usize,
    /// Time until the complete response has arrived, for direct requests.
    direct: Spread,
    /// Time until the complete response has arrived, through the proxy.
    proxied: Spread,
    /// The median of `proxied` minus the median of `direct`.
    #[serde(rename = "more")]
    added: f64,
    /// Time until the first byte of a streamed response has arrived, for direct requests.
    direct_stream: Spread,
    /// Time until the first byte of a streamed response has arrived, through the proxy.
    proxied_stream: Spread,
    /// The median of `proxied_stream` minus the median of `direct_stream`.
    #[serde(rename = "more_stream")]
    added_stream: f64,
    /// Durations of the first request of a conversation, through the proxy. For this request, the proxy counts the
    /// tokens of all messages.
    first: Spread,
}

impl ProxyLatency {
    pub(super) fn lines(&self) -> Vec<ResultLine> {
        let figure = |added: f64, proxied: &Spread, direct: &Spread| {
            format!(
                "{added:.2} ms more: {:.2} ms (p99 {:.2}), direct {:.2} ms (p99 {:.2})",
                proxied.median, proxied.p99, direct.median, direct.p99
            )
        };
        let whole = figure(self.added, &self.proxied, &self.direct);
        let stream = figure(self.added_stream, &self.proxied_stream, &self.direct_stream);
        let first = format!("{:.2} ms (p99 {:.2})", self.first.median, self.first.p99);
        vec![
            ResultLine::new(
                "proxy, request of 100 KB",
                whole,
                "< 1 ms more",
                Some(self.added < TARGET_MILLIS),
            ),
            ResultLine::new(
                "proxy, first byte of a stream",
                stream,
                "< 2 ms more",
                Some(self.added_stream < TARGET_STREAM_MILLIS),
            ),
            ResultLine::new("proxy, first request of a conversation", first, "", None),
        ]
    }
}

/// Measures `conversations` conversations. The server's files are in a subfolder of `dir`.
pub(super) async fn measure(
    dir: &std::path::Path,
    conversations: usize,
    on_progress: OnProgress<'_>,
) -> Result<ProxyLatency, BenchError> {
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
        on_progress(Progress { stage: "the proxy", done: number as u64, of: conversations as u64 });
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
    Ok(ProxyLatency {
        bytes,
        direct,
        proxied,
        added: proxied.median - direct.median,
        direct_stream,
        proxied_stream,
        added_stream: proxied_stream.median - direct_stream.median,
        first,
    })
}

/// Plays one conversation. Returns the size of its last request in bytes, and five lists of durations: `direct`,
/// `proxied`, `direct_stream`, `proxied_stream` and `first`, as in [`ProxyLatency`].
async fn conversation(
    number: usize,
    upstream: SocketAddr,
    proxy: SocketAddr,
) -> io::Result<(usize, [Vec<Duration>; 5])> {
    let mut times: [Vec<Duration>; 5] = Default::default();
    let [direct, proxied, direct_stream, proxied_stream, first] = &mut times;
    let (mut to_provider, mut to_proxy) =
        (ProviderClient::connect(upstream).await?, ProviderClient::connect(proxy).await?);
    let mut list = history(number);
    first.push(to_proxy.send("/openai/v1/chat/completions", &body(&list, false)).await?);
    let mut size = 0;
    for turn in 0..TURNS {
        list.push(json!({"role": "assistant", "content": format!("That is done, as step {turn} says.")}));
        list.push(json!({"role": "user", "content": format!("Then continue with step {}.", turn + 1)}));
        let stream = turn % 2 == 1;
        let request = body(&list, stream);
        size = request.len();
        let (one, two) =
            if stream { (&mut *direct_stream, &mut *proxied_stream) } else { (&mut *direct, &mut *proxied) };
        one.push(to_provider.send("/v1/chat/completions", &request).await?);
        two.push(to_proxy.send("/openai/v1/chat/completions", &request).await?);
    }
    Ok((size, times))
}

/// Returns the messages at the beginning of a conversation: about two hundred messages of half a kilobyte each.
fn history(number: usize) -> Vec<Value> {
    let mut list = vec![json!({"role": "system", "content": "You are at work on a long task."})];
    // Every conversation begins differently, so that the proxy distinguishes the conversations.
    list.push(json!({"role": "user", "content": format!("Do the work of day {number}.")}));
    let mut texts = (0..).flat_map(|at| short_message(at).parts).filter_map(|part| match part {
        Part::Text { text } => Some(text),
        _ => None,
    });
    let mut sum = 0;
    while sum < REQUEST_BYTES {
        let content = texts.by_ref().take(TEXTS_PER_MESSAGE).collect::<Vec<_>>().join(" ");
        sum += content.len() + 40;
        let role = if list.len() % 2 == 1 { "user" } else { "assistant" };
        list.push(json!({"role": role, "content": content}));
    }
    list
}

fn body(list: &[Value], stream: bool) -> String {
    json!({"model": "gpt-4o", "messages": list, "stream": stream}).to_string()
}

/// Starts the test provider on its own thread, and returns its address. The thread ends with the process.
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

/// Serves one connection of the test provider: responds immediately to every request.
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

/// Returns the sizes of an HTTP message's head and body, in bytes. Returns `None` until the complete head has arrived.
fn head_of(read: &[u8]) -> Option<(usize, usize)> {
    let end = read.windows(4).position(|four| four == b"\r\n\r\n")?;
    let text = std::str::from_utf8(read.get(..end)?).ok()?;
    let length = text.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    Some((end + 4, length.unwrap_or(0)))
}

/// An HTTP client with one connection, to the provider or to the proxy.
struct ProviderClient {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl ProviderClient {
    async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Sends a request. Returns the time until the complete response has arrived. For a streamed response, returns the
    /// time until the first byte of the body has arrived.
    async fn send(&mut self, path: &str, body: &str) -> io::Result<Duration> {
        let head =
            "HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nauthorization: Bearer sk-none";
        let request = format!("POST {path} {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let sent = Instant::now();
        self.stream.write_all(request.as_bytes()).await?;
        self.buffer.clear();
        let (head, length) = loop {
            self.read_more().await?;
            if let Some(head) = head_of(&self.buffer) {
                break head;
            }
        };
        if !self.buffer.starts_with(b"HTTP/1.1 200") {
            return Err(io::Error::other(format!(
                "request failed: {}",
                String::from_utf8_lossy(&self.buffer)
            )));
        }
        if length > 0 {
            while self.buffer.len() < head + length {
                self.read_more().await?;
            }
            return Ok(sent.elapsed());
        }
        while self.buffer.len() <= head {
            self.read_more().await?;
        }
        let first = sent.elapsed();
        while !self.buffer.ends_with(b"\r\n0\r\n\r\n") {
            self.read_more().await?;
        }
        Ok(first)
    }

    async fn read_more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::Error::other("a connection was closed")),
            _ => Ok(()),
        }
    }
}
