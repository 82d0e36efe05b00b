//! Imitates the model that an agent works with: a real HTTP server on loopback that rejects the same requests as real
//! providers.
//!
//! The server supports chat completions, Responses and Anthropic's messages, both as one document and as a stream. It
//! first checks the shape and the size of every request ([`refuse`]). It answers a valid request with the next reply
//! of a script, which consists of tool calls, reasoning and text ([`script`]). The module `events` converts a reply
//! to a stream, and `tally` counts tokens. If a request contains a summarizer's prompt, the answer is a summary. A
//! request for another path is answered with an echo of the request.
//!
//! The server stores the requests that it received and the reasons of its rejections, and counts the rejected
//! requests that were sent again. A test can let the server delay its answers ([`Manner::pace`]), stop answering,
//! disconnect or fail ([`Behavior`]). The module [`crate::provider`] contains a server that can also write bad
//! summaries.

mod events;
pub mod refuse;
pub mod script;
mod serve;
mod state;
mod tally;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

use refuse::Refusal;
use state::UpstreamState;

/// Configuration of the server.
#[derive(Debug, Clone)]
pub struct Manner {
    /// Largest accepted input, in tokens as counted by the server.
    pub window: u64,
    /// Factor for the server's token count. The count is about a third of the bytes, times this factor.
    pub skew: f64,
    /// A number of requests, and a window in tokens. After this number of requests, the window shrinks to this size.
    /// `None` if the window does not change.
    pub shrinks: Option<(usize, u64)>,
    /// The number of requests after which the server rejects a request as too long although it fits the window. The
    /// error then contains no limit, and the server starts to count again. Only a request that fills more than a
    /// third of the window is rejected in this way. `None` if there are no such rejections.
    pub grumbles: Option<usize>,
    /// Facts, as pairs of name and text. If the last text of a request starts with [`script::RECALL`], the answer
    /// contains the facts that the rest of the request still contains.
    pub facts: &'static [(&'static str, &'static str)],
    /// Texts that every request must contain verbatim.
    pub always: &'static [&'static str],
    /// A text that must not be in any request, because it belongs to another conversation.
    pub never: Option<&'static str>,
    /// The API key that callers must send. `None` if no key is required.
    pub key: Option<&'static str>,
    /// The delay before the first byte of an answer, and the delay between two events of a stream.
    pub pace: (Duration, Duration),
    /// Maximum number of stored requests. Older requests are dropped.
    pub keeps: usize,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            window: 16_000,
            skew: 1.0,
            shrinks: None,
            grumbles: None,
            facts: &[],
            always: &[],
            never: None,
            key: None,
            pace: (Duration::ZERO, Duration::ZERO),
            keeps: 1_000,
        }
    }
}

/// A special behavior for a request, instead of a normal answer. A caller may select the behavior with the header
/// `x-act`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behavior {
    /// Never answers.
    Silent,
    /// Sends the beginning of the answer, and then no more bytes.
    Stalls,
    /// Sends the beginning of the answer, and then closes the connection.
    Breaks,
    /// Answers with status 429 and a `Retry-After` header with this number of seconds.
    Busy(u64),
    /// Answers with status 500.
    Fails,
    /// Answers with this status and a web page, as a gateway in front of the provider does.
    Page(u16),
    /// Rejects the request as too long. The error does not contain the limit.
    TooLong,
    /// Rejects the request as invalid, although its content may be valid.
    Refuses,
}

impl Behavior {
    /// Returns the behavior with this name, which comes from the header `x-act`. `None` if the name is unknown.
    fn of(name: &str) -> Option<Self> {
        match name {
            "silent" => Some(Self::Silent),
            "stalls" => Some(Self::Stalls),
            "breaks" => Some(Self::Breaks),
            "busy" => Some(Self::Busy(7)),
            "fails" => Some(Self::Fails),
            "page" => Some(Self::Page(502)),
            "too-long" => Some(Self::TooLong),
            "refuses" => Some(Self::Refuses),
            _ => None,
        }
    }
}

/// A request as it was received.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    /// The path, including the query.
    pub path: String,
    /// The headers in their original order, as pairs of name and value. The names are in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Returns the path without the query.
    pub fn route(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }

    /// Returns the body, or null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// The imitated provider. It stops when it is dropped.
pub struct Upstream {
    address: SocketAddr,
    state: Arc<Mutex<UpstreamState>>,
    server: AbortHandle,
}

impl Upstream {
    pub async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(UpstreamState::new(manner)));
        let shared = Arc::clone(&state);
        let server = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                let shared = Arc::clone(&shared);
                connections.spawn(async move { serve::serve(socket, &shared).await });
            }
        });
        Self { address, state, server: server.abort_handle() }
    }

    /// Returns the server's URL for the setting `base_url`.
    pub fn url(&self) -> String {
        format!("{}/v1", self.origin())
    }

    /// Returns the server's URL without a path, for the upstream setting of a proxy.
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds a behavior to the end of the queue. Each request uses the first behavior of the queue and removes it.
    pub fn then(&self, act: Behavior) -> &Self {
        self.state().next.push_back(act);
        self
    }

    /// Sets the behavior for all further requests, and removes the queue. `None` means normal answers.
    pub fn always(&self, act: impl Into<Option<Behavior>>) {
        let mut state = self.state();
        state.always = act.into();
        state.next = VecDeque::new();
    }

    /// Sets the delay before the first byte of an answer, and the delay between two events of a stream.
    pub fn pace(&self, first: Duration, between: Duration) {
        self.state().manner.pace = (first, between);
    }

    /// Returns the stored requests, oldest first.
    pub fn seen(&self) -> Vec<Seen> {
        self.state().seen.iter().cloned().collect()
    }

    /// Returns the newest request.
    pub fn last(&self) -> Option<Seen> {
        self.state().seen.back().cloned()
    }

    /// Returns two numbers: the requests that are being answered, and the callers that disconnected before the end of
    /// an answer.
    pub fn in_progress(&self) -> (usize, usize) {
        let state = self.state();
        (state.in_progress, state.hung_up)
    }

    /// Returns all rejections, in order.
    pub fn refused(&self) -> Vec<Refusal> {
        self.state().refused.clone()
    }

    /// Returns the reasons of all rejections, except rejections for the size of the request.
    pub fn invalid(&self) -> Vec<String> {
        let wrong = |refusal| match refusal {
            Refusal::Shape(what) => Some(what),
            Refusal::TooLong { .. } => None,
        };
        self.refused().into_iter().filter_map(wrong).collect()
    }

    /// Returns the number of rejected requests that were sent again unchanged.
    pub fn repeated(&self) -> usize {
        self.state().repeated
    }

    /// Returns two numbers: the agent's requests, and the requests from summarizers.
    pub fn requests(&self) -> (usize, usize) {
        let state = self.state();
        (state.requests, state.summaries)
    }

    /// Returns the number of requests that did not begin with the whole previous request. For such a request, a
    /// prompt cache cannot reuse the whole previous request.
    pub fn restarted(&self) -> usize {
        self.state().restarted
    }

    /// Returns the number of requests that did not contain all texts of [`Manner::always`].
    pub fn without_required_text(&self) -> usize {
        self.state().without_required_text
    }

    /// Returns the number of requests that contained the text [`Manner::never`], which belongs to another
    /// conversation.
    pub fn foreign(&self) -> usize {
        self.state().foreign
    }

    fn state(&self) -> MutexGuard<'_, UpstreamState> {
        self.state.lock().unwrap()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.server.abort();
    }
}
