//! Imitates providers: a real HTTP server on loopback that supports all three wire formats and can be configured to
//! fail.
//!
//! The server stores every request. The behavior for the next request comes from a queue. If the queue is empty, the
//! default behavior applies, which is a good answer unless the test changes it. Clones share one server.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// The token counts in every answer. `INPUT` is the whole prompt, `CACHED` is the part of the prompt that was read
/// from a cache, and `OUTPUT` is the output.
pub const INPUT: u64 = 1_000;
pub const CACHED: u64 = 200;
pub const OUTPUT: u64 = 50;

/// The behavior for a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// Answers with a short summary that contains the number of the last message in the prompt.
    Good,
    /// Answers with this text, and marks the answer as complete.
    Text(String),
    /// Answers with a plausible summary of an agent's work that omits about half of the names, always the same names.
    /// See [`forgetful`].
    Forgets,
    /// Sends a good answer that also contains reasoning, both in a separate field or block and in the text.
    Thinks,
    /// Sends a good answer without token counts.
    Uncounted,
    /// Sends a good answer after this delay.
    Slow(Duration),
    /// Sends a good answer after [`Provider::release`] is called.
    WaitForRelease,
    /// Sends the first half of a good answer, and then no more bytes.
    Stall,
    /// Sends the first half of a good answer, and then closes the connection.
    Cut,
    /// Sends the first half of a good answer in a body that ends correctly.
    Unfinished,
    /// Closes the connection without an answer.
    Close,
    /// Keeps the connection open without an answer.
    Silent,
    /// Sends meaningless bytes.
    Garbage,
    /// Sends a web page with status 200.
    Html,
    /// Sends JSON of another shape with status 200.
    WrongShape,
    /// Sends an error with status 200 in place of the answer.
    ErrorInside,
    /// Sends a body that is longer than the header `Content-Length` says.
    WrongLength,
    /// Sends an answer with an empty text.
    Empty,
    /// Calls a tool instead of writing a summary.
    CallsTool,
    /// Repeats the same text many times.
    Loops,
    /// Sends an answer that a content filter has stopped.
    Declines,
    /// Answers with text that the output limit has cut off.
    Length,
    /// Answers with text that starts with reasoning. The reasoning has no end mark.
    ThinksForEver,
    /// Answers with more text than a client should read.
    Huge,
    /// Redirects to this address.
    Redirect(String),
    /// Answers with status 429, and with this `Retry-After` header if it is not `None`.
    Busy(Option<String>),
    /// Answers with status 429, because the quota is exhausted.
    NoCredit,
    /// Answers with status 401.
    WrongKey,
    /// Answers with status 404, because the model does not exist.
    NoModel,
    /// Answers with status 400, because the prompt is too long, in the provider's wording. `sent` and `limit` are in
    /// tokens.
    TooLong { sent: u64, limit: u64 },
    /// Answers with status 400. Every text field of the error quotes the prompt and all headers.
    Echo,
    /// Answers with status 400 if the request contains this parameter. Otherwise sends a good answer.
    RejectsParameter(&'static str),
    /// Answers with this status and a generic error.
    Status(u16),
    /// Answers with this status, these headers and this body.
    Raw(u16, Vec<(String, String)>, String),
}

/// A request that the server received.
#[derive(Debug, Clone)]
pub struct Request {
    /// The time at which the request was completely received.
    pub at: SystemTime,
    pub path: String,
    /// The headers, as pairs of name and value. The names are in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn streamed(&self) -> bool {
        self.body["stream"] == true
    }

    fn anthropic(&self) -> bool {
        self.path.ends_with("/messages")
    }

    fn responses(&self) -> bool {
        self.path.ends_with("/responses")
    }

    /// Returns the whole prompt as one text.
    pub fn prompt(&self) -> String {
        if self.responses() {
            let texts = ["input", "instructions"].into_iter().filter_map(|key| self.body[key].as_str());
            return texts.collect::<Vec<_>>().join("\n");
        }
        let messages = self.body["messages"].as_array().cloned().unwrap_or_default();
        let texts = messages.iter().filter_map(|message| message["content"].as_str());
        texts.chain(self.body["system"].as_str()).collect::<Vec<_>>().join("\n")
    }

    /// Returns the numbers of the messages in the prompt, from lines such as `[7] user: …`.
    pub fn seqs(&self) -> Vec<u64> {
        let prompt = self.prompt();
        let number = |line: &str| line.strip_prefix('[')?.split_once(']')?.0.parse().ok();
        prompt.lines().filter_map(number).collect()
    }
}

/// The imitated provider.
#[derive(Clone)]
pub struct Provider {
    shared: Arc<ProviderShared>,
}

struct ProviderShared {
    address: SocketAddr,
    state: Mutex<ProviderState>,
    /// Number of open connections.
    open: AtomicUsize,
    /// Whether requests with [`Act::WaitForRelease`] may continue.
    released: watch::Sender<bool>,
}

struct ProviderState {
    queue: VecDeque<Act>,
    /// Behavior for requests for certain models. It takes precedence over the queue and the default.
    of_models: HashMap<String, Act>,
    always: Act,
    requests: Vec<Request>,
    /// The required API key. If it is set, requests are also validated.
    strict: Option<String>,
    server: Option<AbortHandle>,
}

impl Provider {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let state = ProviderState {
            queue: VecDeque::new(),
            of_models: HashMap::new(),
            always: Act::Good,
            requests: Vec::new(),
            strict: None,
            server: None,
        };
        let address = listener.local_addr().unwrap();
        let provider = Self {
            shared: Arc::new(ProviderShared {
                address,
                state: Mutex::new(state),
                open: AtomicUsize::new(0),
                released: watch::Sender::new(false),
            }),
        };
        provider.serve(listener);
        provider
    }

    /// Returns the server's URL for the setting `base_url`.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.shared.address)
    }

    /// Adds a behavior to the end of the queue. Each request uses the first behavior of the queue and removes it.
    pub fn then(&self, act: Act) -> &Self {
        self.state().queue.push_back(act);
        self
    }

    /// Sets the default behavior.
    pub fn always(&self, act: Act) -> &Self {
        self.state().always = act;
        self
    }

    /// Sets the behavior for every request for this model.
    pub fn of_model(&self, model: &str, act: Act) -> &Self {
        self.state().of_models.insert(model.to_owned(), act);
        self
    }

    /// Answers all requests that wait because of [`Act::WaitForRelease`]. Later requests with this behavior do not
    /// wait.
    pub fn release(&self) -> &Self {
        self.shared.released.send_replace(true);
        self
    }

    /// Resets the behavior to good answers.
    pub fn heal(&self) -> &Self {
        let mut state = self.state();
        state.queue.clear();
        state.of_models.clear();
        state.always = Act::Good;
        drop(state);
        self
    }

    /// From now on, rejects requests that a real provider would reject. For example, the API key, the model or the
    /// messages may be missing. Anthropic also requires an output limit.
    pub fn strict(&self, key: &str) -> &Self {
        self.state().strict = Some(key.to_owned());
        self
    }

    pub fn requests(&self) -> Vec<Request> {
        self.state().requests.clone()
    }

    pub fn last(&self) -> Request {
        self.state().requests.last().expect("no request was received").clone()
    }

    /// Returns the number of requests.
    pub fn calls(&self) -> usize {
        self.state().requests.len()
    }

    /// Returns the number of requests for this model.
    pub fn calls_of(&self, model: &str) -> usize {
        self.state().requests.iter().filter(|request| request.body["model"] == model).count()
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Closes every connection and the port.
    pub async fn leave(&self) {
        let server = self.state().server.take();
        if let Some(server) = server {
            server.abort();
            while !server.is_finished() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    /// Listens again on the same port.
    pub async fn come_back(&self) {
        for _ in 0..200 {
            if let Ok(listener) = TcpListener::bind(self.shared.address).await {
                return self.serve(listener);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the port is taken");
    }

    fn serve(&self, listener: TcpListener) {
        // The reference is weak, so that the server ends when the last clone is dropped.
        let shared = Arc::downgrade(&self.shared);
        let server = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let accepted = listener.accept().await;
                while connections.try_join_next().is_some() {}
                let (Ok((socket, _)), Some(shared)) = (accepted, shared.upgrade()) else { return };
                connections.spawn(async move {
                    shared.open.fetch_add(1, Ordering::SeqCst);
                    let _open = Open(Arc::clone(&shared));
                    let mut connection = Connection { socket, shared: &shared };
                    while connection.answer().await.is_some() {}
                });
            }
        });
        self.state().server = Some(server.abort_handle());
    }

    fn state(&self) -> MutexGuard<'_, ProviderState> {
        self.shared.state.lock().unwrap()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        // Open connections also have a reference to `shared`.
        if Arc::strong_count(&self.shared) == 1
            && let Some(server) = self.state().server.take()
        {
            server.abort();
        }
    }
}

struct Open(Arc<ProviderShared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Connection<'a> {
    socket: TcpStream,
    shared: &'a ProviderShared,
}

/// An answer, independent of the wire format.
struct ModelAnswer {
    thinking: Option<&'static str>,
    text: String,
    /// `stop`, `length`, `content_filter` or `tool_calls`.
    finish: &'static str,
    counted: bool,
}

impl ModelAnswer {
    fn good(request: &Request) -> Self {
        Self { thinking: None, text: good(request), finish: "stop", counted: true }
    }
}

/// Returns the answer for a behavior. `None` for a behavior that does not send a whole answer.
fn said(act: &Act, request: &Request) -> Option<ModelAnswer> {
    let good = || ModelAnswer::good(request);
    let says = |text: String| ModelAnswer { text, ..good() };
    Some(match act {
        Act::Good => good(),
        Act::Text(text) => says(text.clone()),
        Act::Forgets => says(forgetful(request)),
        Act::Thinks => {
            let text = format!("<think>What matters most?</think>{}", good().text);
            ModelAnswer { thinking: Some("Let me see. "), text, ..good() }
        }
        Act::Uncounted => ModelAnswer { counted: false, ..good() },
        Act::Empty => says(String::new()),
        Act::CallsTool => ModelAnswer { finish: "tool_calls", ..says("I will look it up.".to_owned()) },
        Act::Loops => says("The parcel has not arrived yet and she was informed. ".repeat(14)),
        Act::Declines => {
            ModelAnswer { finish: "content_filter", ..says("I cannot help with that.".to_owned()) }
        }
        Act::Length => {
            ModelAnswer { finish: "length", ..says("The customers in Oslo requested their".to_owned()) }
        }
        Act::ThinksForEver => {
            let text = format!("<think>{}", "Is it the parcel? Or is it Oslo? ".repeat(20));
            ModelAnswer { finish: "length", ..says(text) }
        }
        Act::Huge => says("All orders of Oslo. ".repeat(250_000)),
        Act::RejectsParameter(name) if request.body.get(name).is_none() => good(),
        _ => return None,
    })
}

impl Connection<'_> {
    /// Answers one request. Returns `None` if the connection should be closed.
    async fn answer(&mut self) -> Option<()> {
        let request = self.read().await?;
        let act = {
            let mut state = self.shared.state.lock().unwrap();
            state.requests.push(request.clone());
            let of_model =
                request.body["model"].as_str().and_then(|model| state.of_models.get(model).cloned());
            let next = of_model.or_else(|| state.queue.pop_front());
            let act = next.unwrap_or_else(|| state.always.clone());
            let refused = state.strict.as_deref().and_then(|key| missing(&request, key));
            refused.unwrap_or(act)
        };
        if let Some(said) = said(&act, &request) {
            return self.say(&request, said).await;
        }
        match act {
            Act::Slow(time) => {
                // Stops waiting if the client disconnects.
                tokio::select! {
                    () = tokio::time::sleep(time) => {}
                    _ = self.socket.read_u8() => return None,
                }
                self.say(&request, ModelAnswer::good(&request)).await
            }
            Act::WaitForRelease => {
                let mut released = self.shared.released.subscribe();
                tokio::select! {
                    released = released.wait_for(|released| *released) => drop(released.ok()?),
                    _ = self.socket.read_u8() => return None,
                }
                self.say(&request, ModelAnswer::good(&request)).await
            }
            Act::Stall => {
                self.half(&request, ModelAnswer::good(&request), false).await?;
                self.hold().await
            }
            Act::Cut => {
                self.half(&request, ModelAnswer::good(&request), false).await?;
                None
            }
            Act::Unfinished => self.half(&request, ModelAnswer::good(&request), true).await,
            Act::Close => None,
            Act::Silent => self.hold().await,
            Act::Garbage => self.whole(200, &[], "\u{1}\u{2}]]} what? {{[[").await,
            Act::Html => {
                let page = "<!DOCTYPE html><html><body>Welcome to our router!</body></html>";
                self.whole(200, &[("content-type", "text/html")], page).await
            }
            Act::WrongShape => self.whole(200, &[], r#"{"answer": {"words": ["Ann", "ordered"]}}"#).await,
            Act::WrongLength => {
                let body = body(&request, &ModelAnswer::good(&request));
                let length = body.len() / 2;
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
                );
                self.write(format!("{head}{body}").as_bytes()).await?;
                None
            }
            Act::Redirect(to) => self.whole(307, &[("location", &to)], "").await,
            Act::Raw(status, headers, body) => {
                let headers: Vec<(&str, &str)> =
                    headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                self.whole(status, &headers, &body).await
            }
            refusal => self.refuse(&request, refusal).await,
        }
    }

    /// Answers with the error for this behavior, in the provider's wording.
    async fn refuse(&mut self, request: &Request, act: Act) -> Option<()> {
        match act {
            Act::ErrorInside => self.error(request, 200, "overloaded_error", "Overloaded").await,
            Act::Busy(after) => {
                let headers: Vec<(&str, &str)> =
                    after.iter().map(|after| ("retry-after", after.as_str())).collect();
                let error = error(request, "rate_limit_error", "Slow down.");
                self.whole(429, &headers, &error.to_string()).await
            }
            Act::NoCredit => self.error(request, 429, "insufficient_quota", "You exceeded your quota.").await,
            Act::WrongKey => self.error(request, 401, "authentication_error", "invalid x-api-key").await,
            Act::NoModel if request.anthropic() => {
                self.error(request, 404, "not_found_error", "model: whatever").await
            }
            Act::NoModel => self.error(request, 404, "model_not_found", "The model does not exist.").await,
            Act::TooLong { sent, limit } => {
                let message = if request.anthropic() {
                    format!("prompt is too long: {sent} tokens > {limit} maximum")
                } else {
                    format!(
                        "This model's maximum context length is {limit} tokens. However, your messages \
                         resulted in {sent} tokens. Please reduce the length of the messages."
                    )
                };
                self.error(request, 400, "invalid_request_error", &message).await
            }
            Act::Echo => {
                // A message of the prompt comes first, so that even a short excerpt of the error contains message
                // content.
                let prompt = request.prompt();
                let said = prompt.lines().find(|line| line.starts_with('[')).unwrap_or_default();
                let quoted = format!("{said} {:?} {prompt}", request.headers);
                let body =
                    json!({"error": {"message": quoted, "type": quoted, "code": quoted, "param": quoted}});
                self.whole(400, &[], &body.to_string()).await
            }
            Act::RejectsParameter(name) => {
                let message = format!("Unsupported parameter: '{name}' is not supported with this model.");
                let body =
                    json!({"error": {"message": message, "param": name, "code": "unsupported_parameter"}});
                self.whole(400, &[], &body.to_string()).await
            }
            Act::Status(status) => self.error(request, status, "api_error", "Something went wrong.").await,
            other => panic!("{other:?} is not a refusal"),
        }
    }

    async fn read(&mut self) -> Option<Request> {
        let mut bytes = Vec::new();
        let head = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            if self.socket.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        };
        let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
        let mut lines = text.split("\r\n");
        let path = lines.next()?.split(' ').nth(1)?.to_owned();
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        let headers: Vec<(String, String)> = lines.filter_map(header).collect();
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
        while bytes.len() < head + 4 + length {
            if self.socket.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
        let body = serde_json::from_slice(&bytes[head + 4..]).unwrap_or(Value::Null);
        Some(Request { at: SystemTime::now(), path, headers, body })
    }

    /// Sends the whole answer, as a stream if the request requires a stream.
    async fn say(&mut self, request: &Request, said: ModelAnswer) -> Option<()> {
        if !request.streamed() {
            return self.whole(200, &[], &body(request, &said)).await;
        }
        self.begin_stream().await?;
        for event in events(request, &said) {
            self.piece(&event).await?;
        }
        self.write(b"0\r\n\r\n").await
    }

    /// Sends half of the answer. If `properly` is true, the body ends correctly.
    async fn half(&mut self, request: &Request, said: ModelAnswer, properly: bool) -> Option<()> {
        if !request.streamed() {
            let body = body(request, &said);
            let half = &body[..body.len() / 2];
            if properly {
                return self.whole(200, &[], half).await;
            }
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{half}",
                body.len()
            );
            return self.write(head.as_bytes()).await;
        }
        self.begin_stream().await?;
        let events = events(request, &said);
        for event in &events[..events.len() / 2] {
            self.piece(event).await?;
        }
        if properly { self.write(b"0\r\n\r\n").await } else { Some(()) }
    }

    async fn error(&mut self, request: &Request, status: u16, kind: &str, message: &str) -> Option<()> {
        self.whole(status, &[], &error(request, kind, message).to_string()).await
    }

    async fn whole(&mut self, status: u16, headers: &[(&str, &str)], body: &str) -> Option<()> {
        let mut head = format!("HTTP/1.1 {status} Whatever\r\ncontent-length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            head.push_str("content-type: application/json\r\n");
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        self.write(format!("{head}\r\n{body}").as_bytes()).await
    }

    async fn begin_stream(&mut self) -> Option<()> {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        self.write(head.as_bytes()).await
    }

    /// Sends one chunk in two writes, so that the client may receive only a part of an event at first.
    async fn piece(&mut self, event: &str) -> Option<()> {
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        let (one, two) = chunk.as_bytes().split_at(chunk.len() / 3);
        self.write(one).await?;
        self.write(two).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Option<()> {
        self.socket.write_all(bytes).await.ok()
    }

    /// Waits until the client disconnects.
    async fn hold(&mut self) -> Option<()> {
        let _ = self.socket.read_u8().await;
        None
    }
}

/// Returns a summary that passes inspection and differs for different messages.
pub fn good(request: &Request) -> String {
    let seqs = request.seqs();
    match (seqs.first(), seqs.last()) {
        (Some(first), Some(last)) => format!(
            "Messages {first} to {last}: customers in Oslo inquired where their parcels are; each got a date."
        ),
        _ => "ready".to_owned(),
    }
}

/// Returns the answer of [`Act::Forgets`]. The names come from the arguments of tool calls, newest first, and then
/// from the previous summary. About half of the names are left out. The answer contains one sentence for each other
/// name, and has at most the requested number of words.
pub fn forgetful(request: &Request) -> String {
    const SENTENCES: [&str; 5] = [
        "Then {} was read, and nothing in it had to change.",
        "The agent came to {} and fixed it there.",
        "In {} the tests failed at first; later they passed.",
        "What is in {} was compared with the others.",
        "The user had once mentioned {}; it was looked at twice.",
    ];
    let prompt = request.prompt();
    let words: usize = prompt
        .split_once("at most ")
        .and_then(|(_, rest)| rest.split_once(" words")?.0.parse().ok())
        .unwrap_or(100);
    let block = |tag: &str| {
        let inside = prompt.split_once(&format!("<{tag}>")).map_or("", |(_, rest)| rest);
        inside.split_once(&format!("</{tag}>")).map_or("", |(inside, _)| inside)
    };
    let calls = block("conversation").lines().rev().filter(|line| line.contains("] assistant calls "));
    let mut seen = HashSet::new();
    let names = calls
        .chain(block("previous_summary").lines())
        .flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && !"/_.-".contains(c)))
        .map(|word| word.trim_end_matches(['.', '-', '/']))
        .filter(|word| word.contains(['/', '_']) && seen.insert(*word))
        // The name itself determines whether it is omitted. So all answers omit the same names.
        .filter(|name| {
            name.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte)) / 7 % 2 == 0
        });
    let mut text = "The user wants the agent to read all the harbour's code.".to_owned();
    for (name, sentence) in names.zip(SENTENCES.iter().cycle()) {
        let next = format!(" {}", sentence.replace("{}", name));
        if text.split_whitespace().count() + next.split_whitespace().count() > words {
            break;
        }
        text.push_str(&next);
    }
    text
}

fn error(request: &Request, kind: &str, message: &str) -> Value {
    if request.anthropic() {
        return json!({"type": "error", "error": {"type": kind, "message": message}});
    }
    json!({"error": {"message": message, "type": kind, "code": kind, "param": null}})
}

/// Returns the rejection that a real provider would send for this request. `None` if the request is valid.
fn missing(request: &Request, key: &str) -> Option<Act> {
    let anthropic = request.anthropic();
    let sent_key = if anthropic {
        request.header("x-api-key").map(str::to_owned)
    } else {
        request.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned)
    };
    if sent_key.as_deref() != Some(key) {
        return Some(Act::WrongKey);
    }
    let body = &request.body;
    if request.responses() {
        let text = |key: &str| body[key].as_str().is_some_and(|text| !text.is_empty());
        let well = text("model")
            && text("input")
            && body["max_output_tokens"].as_u64().is_some_and(|most| most >= 16);
        return (!well || body["store"] != false).then_some(Act::Status(400));
    }
    let content = |message: &Value| {
        let role = message["role"].as_str().unwrap_or("");
        let roles: &[&str] =
            if anthropic { &["user", "assistant"] } else { &["system", "user", "assistant"] };
        roles.contains(&role) && message["content"].as_str().is_some_and(|text| !text.is_empty())
    };
    let limit = |name: &str| body.get(name).is_none_or(|limit| limit.as_u64().is_some_and(|limit| limit > 0));
    let well = body["model"].as_str().is_some_and(|model| !model.is_empty())
        && body["messages"].as_array().is_some_and(|all| !all.is_empty() && all.iter().all(content))
        && ["max_tokens", "max_completion_tokens"].into_iter().all(limit)
        && !(body.get("max_tokens").is_some() && body.get("max_completion_tokens").is_some())
        && (request.path == "/v1/chat/completions" || request.path == "/v1/messages")
        && request.header("content-type") == Some("application/json")
        && (!anthropic
            || (body.get("max_tokens").is_some() && request.header("anthropic-version").is_some()))
        && (anthropic || body.get("stream_options").is_none() || request.streamed());
    if well { None } else { Some(Act::Status(400)) }
}

fn stop_reason(finish: &str) -> &str {
    match finish {
        "stop" => "end_turn",
        "length" => "max_tokens",
        "content_filter" => "refusal",
        _ => "tool_use",
    }
}

fn usage(anthropic: bool) -> Value {
    if anthropic {
        return json!({"input_tokens": INPUT - CACHED, "cache_read_input_tokens": CACHED,
            "cache_creation_input_tokens": 0, "output_tokens": OUTPUT});
    }
    json!({"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT,
        "prompt_tokens_details": {"cached_tokens": CACHED}})
}

/// Returns the whole answer as JSON text.
fn body(request: &Request, said: &ModelAnswer) -> String {
    let model = &request.body["model"];
    let usage = if said.counted { usage(request.anthropic()) } else { Value::Null };
    if request.anthropic() {
        let mut blocks = Vec::new();
        blocks.extend(
            said.thinking.map(|words| json!({"type": "thinking", "thinking": words, "signature": "x"})),
        );
        blocks.push(json!({"type": "text", "text": said.text}));
        if said.finish == "tool_calls" {
            blocks.push(json!({"type": "tool_use", "id": "x", "name": "look", "input": {}}));
        }
        return json!({"id": "msg_1", "type": "message", "role": "assistant", "model": model,
            "content": blocks,
            "stop_reason": stop_reason(said.finish), "stop_sequence": null, "usage": usage})
        .to_string();
    }
    if request.responses() {
        return response(request, said).to_string();
    }
    let filtered = said.finish == "content_filter";
    let message = json!({
        "role": "assistant",
        "content": if filtered { Value::Null } else { json!(said.text) },
        "refusal": if filtered { json!(said.text) } else { Value::Null },
        "reasoning_content": said.thinking,
    });
    json!({"id": "chatcmpl-1", "object": "chat.completion", "model": model, "usage": usage,
        "choices": [{"index": 0, "message": message, "finish_reason": said.finish}]})
    .to_string()
}

/// Returns the whole answer in the Responses format.
fn response(request: &Request, said: &ModelAnswer) -> Value {
    let usage = json!({"input_tokens": INPUT, "input_tokens_details": {"cached_tokens": CACHED},
        "output_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT});
    let (status, reason) = match said.finish {
        "length" => ("incomplete", json!({"reason": "max_output_tokens"})),
        "content_filter" => ("incomplete", json!({"reason": "content_filter"})),
        _ => ("completed", Value::Null),
    };
    let mut output = Vec::new();
    output.extend(said.thinking.map(|words| {
        json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": words}]})
    }));
    if said.finish == "tool_calls" {
        output.push(json!({"type": "function_call", "call_id": "x", "name": "look", "arguments": "{}"}));
    }
    let text = json!({"type": "output_text", "text": said.text, "annotations": []});
    output.push(
        json!({"type": "message", "id": "msg_1", "role": "assistant", "status": status, "content": [text]}),
    );
    json!({"id": "resp_1", "object": "response", "model": request.body["model"], "status": status, "error": null,
        "incomplete_details": reason, "output": output, "usage": if said.counted { usage } else { Value::Null }})
}

/// Returns the answer as the events of a stream.
fn events(request: &Request, said: &ModelAnswer) -> Vec<String> {
    // Each event contains a few words. A long text is sent in at most about 40 events.
    let chars: Vec<char> = said.text.chars().collect();
    let texts = chars.chunks(16.max(chars.len() / 40)).map(|few| few.iter().collect::<String>());
    if request.anthropic() {
        let mut released = json!({});
        if said.counted {
            released = usage(true);
            released["output_tokens"] = json!(1);
        }
        let mut all = vec![json!({"type": "message_start", "message": {"id": "msg_1", "usage": released}})];
        all.push(json!({"type": "ping"}));
        if let Some(words) = said.thinking {
            let delta = json!({"type": "thinking_delta", "thinking": words});
            all.push(json!({"type": "content_block_delta", "index": 0, "delta": delta}));
        }
        all.push(
            json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        );
        all.extend(texts.map(|text| {
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": text}})
        }));
        all.push(json!({"type": "content_block_stop", "index": 1}));
        let counted = if said.counted { json!({"output_tokens": OUTPUT}) } else { Value::Null };
        let reason = stop_reason(said.finish);
        all.push(json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": counted}));
        all.push(json!({"type": "message_stop"}));
        let named = |event: Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
        return all.into_iter().map(named).collect();
    }
    if request.responses() {
        let mut all =
            vec![json!({"type": "response.created", "response": {"status": "in_progress", "error": null}})];
        all.extend(texts.map(|text| json!({"type": "response.output_text.delta", "delta": text})));
        let last = if said.finish == "stop" { "response.completed" } else { "response.incomplete" };
        all.push(json!({"type": last, "response": response(request, said)}));
        let named = |event: Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
        return all.into_iter().map(named).collect();
    }
    let choice = |delta: Value, finish: Value| {
        json!({"object": "chat.completion.chunk", "usage": null,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    };
    let mut all = vec![choice(json!({"role": "assistant", "content": ""}), Value::Null)];
    all.extend(said.thinking.map(|words| choice(json!({"reasoning_content": words}), Value::Null)));
    let key = if said.finish == "content_filter" { "refusal" } else { "content" };
    all.extend(texts.map(|text| choice(json!({key: text}), Value::Null)));
    all.push(choice(json!({}), json!(said.finish)));
    let requested = request.body["stream_options"]["include_usage"] == true;
    if said.counted && requested {
        all.push(json!({"object": "chat.completion.chunk", "choices": [], "usage": usage(false)}));
    }
    let mut lines: Vec<String> = all.into_iter().map(|event| format!("data: {event}\n\n")).collect();
    lines.push("data: [DONE]\n\n".to_owned());
    lines
}
