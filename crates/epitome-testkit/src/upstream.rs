//! Imitates the model that an agent works with: a real HTTP server on loopback that rejects what real providers reject.
//!
//! It supports chat completions, Responses and Anthropic's messages, whole and streamed. Every request is checked
//! first, for its shape and its size ([`refuse`]). A valid request is answered by a script of tool calls, reasoning and
//! text ([`script`], converted to a stream in `events`) with token counts by its own tokenizer (`tally`). A
//! summarizer's prompt is answered with a summary, and requests for other paths with an echo. The server records the
//! requests it received, the ones it rejected, and whether those were sent again. It can be configured to be slow, to
//! go silent, to disconnect or to fail ([`Behavior`]). A server that writes bad summaries is [`crate::provider`].

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
    /// Largest accepted input, in tokens by its own count.
    pub window: u64,
    /// Factor of its token count, which is a third of the bytes times this factor.
    pub skew: f64,
    /// After this many requests (first number), the window shrinks to this many tokens (second number).
    pub shrinks: Option<(usize, u64)>,
    /// Whenever this many requests have passed, one that is not too long is rejected as too long, without a limit in
    /// the error.
    pub grumbles: Option<usize>,
    /// Facts that it is questioned about at the end, each with a name: it answers from what the list contains.
    pub facts: &'static [(&'static str, &'static str)],
    /// Texts that every request must contain verbatim.
    pub always: &'static [&'static str],
    /// A text that no request may contain, because it belongs to another conversation.
    pub never: Option<&'static str>,
    /// The API key that callers must send, if any.
    pub key: Option<&'static str>,
    /// Delay until the first byte of an answer, and between two events of a stream.
    pub pace: (Duration, Duration),
    /// Number of requests to store; older ones are dropped.
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

/// Behavior for a request instead of checking and answering it. A caller may select it with the header `x-act`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behavior {
    /// Never answers.
    Silent,
    /// Sends the beginning of the answer, and then nothing more.
    Stalls,
    /// Sends the beginning of the answer, and then closes the connection.
    Breaks,
    /// Status 429, with a `Retry-After` of this many seconds.
    Busy(u64),
    /// Status 500.
    Fails,
    /// A web page with this status, as from a gateway in front of the provider.
    Page(u16),
    /// Rejects the request as too long, without details.
    TooLong,
    /// Rejects the request, independent of its content.
    Refuses,
}

impl Behavior {
    /// Returns the act with this name, as in the header `x-act`.
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
    /// Including the query.
    pub path: String,
    /// Names in lower case, in their original order.
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

    /// Returns the value for `base_url`.
    pub fn url(&self) -> String {
        format!("{}/v1", self.origin())
    }

    /// Returns the address without a path, as a proxy's upstream setting.
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the behavior for the next request after those already queued.
    pub fn then(&self, act: Behavior) -> &Self {
        self.state().next.push_back(act);
        self
    }

    /// Sets the behavior for all further requests; `None` for normal answers.
    pub fn always(&self, act: impl Into<Option<Behavior>>) {
        let mut state = self.state();
        state.always = act.into();
        state.next = VecDeque::new();
    }

    /// Sets the delay until the first byte of an answer, and between two events of a stream.
    pub fn pace(&self, first: Duration, between: Duration) {
        self.state().manner.pace = (first, between);
    }

    /// Returns the newest requests, oldest first.
    pub fn seen(&self) -> Vec<Seen> {
        self.state().seen.iter().cloned().collect()
    }

    /// Returns the newest request.
    pub fn last(&self) -> Option<Seen> {
        self.state().seen.back().cloned()
    }

    /// Returns the number of requests being answered, and of callers that disconnected before the end of their answer.
    pub fn in_progress(&self) -> (usize, usize) {
        let state = self.state();
        (state.in_progress, state.hung_up)
    }

    /// Returns all rejections, in order.
    pub fn refused(&self) -> Vec<Refusal> {
        self.state().refused.clone()
    }

    /// Returns the rejections for reasons other than size.
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

    /// Returns the number of requests, and how many of them were from summarizers.
    pub fn requests(&self) -> (usize, usize) {
        let state = self.state();
        (state.requests, state.summaries)
    }

    /// Returns the number of requests that did not continue the previous one, so that a cache contained only a part of
    /// them.
    pub fn restarted(&self) -> usize {
        self.state().restarted
    }

    /// Returns the number of requests without a text that each must contain.
    pub fn without_required_text(&self) -> usize {
        self.state().without_required_text
    }

    /// Returns the number of requests that contained another conversation's text.
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
