//! A stand-in for the model an agent works with: a real HTTP server on loopback that refuses what real ones refuse.
//!
//! It speaks chat completions, Responses and Anthropic's messages, whole and streamed. Every request is judged first, by its
//! shape and by its size ([`refuse`]); what passes is answered by a script of tool calls, reasoning and words ([`script`],
//! spelled for a stream in `events`) with what it cost, by a count of its own (`tally`). A summarizer's prompt is answered
//! with a summary, and whatever is asked for elsewhere with an echo. It remembers what it was sent, what it refused, and
//! whether that was sent again; it can be told to be slow, to fall silent, to break off or to be rude ([`Act`]). A
//! server that writes bad summaries is [`crate::provider`].

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
use state::State;

/// What it is like.
#[derive(Debug, Clone)]
pub struct Manner {
    /// How many tokens of input it takes, by its own count.
    pub window: u64,
    /// Its count is a third of the bytes, times this.
    pub skew: f64,
    /// After so many requests it takes only so much.
    pub shrinks: Option<(usize, u64)>,
    /// Each time after so many requests it finds one too long that is not, and does not say what it would take.
    pub grumbles: Option<usize>,
    /// What it is asked about in the end, by a name for it: it knows of it what the list says.
    pub facts: &'static [(&'static str, &'static str)],
    /// Texts that must be in every request, word for word.
    pub always: &'static [&'static str],
    /// A text that must be in none: somebody else's.
    pub never: Option<&'static str>,
    /// The key that callers must have, where they must.
    pub key: Option<&'static str>,
    /// How long until the first byte of an answer, and between two events of a stream.
    pub pace: (Duration, Duration),
    /// How many requests it keeps, the newest.
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

/// What becomes of a request, other than to be judged and answered. A caller may ask for it in a header `x-act`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Nothing is said to it, ever.
    Silent,
    /// The answer begins, and then nothing more comes.
    Stalls,
    /// The answer begins, and then the connection is closed.
    Breaks,
    /// Too many requests: to be tried again after so many seconds.
    Busy(u64),
    /// A failure of its own.
    Fails,
    /// A web page with this status, from whatever stands before the provider.
    Page(u16),
    /// It is too long, and that is all it says.
    TooLong,
    /// It is refused, whatever it says.
    Refuses,
}

impl Act {
    /// By its name, as in the header `x-act`.
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

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    /// With its query.
    pub path: String,
    /// Names in lower case, in their order.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Without its query.
    pub fn route(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }

    /// The body, or null where it is no JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// The stand-in. It goes with whoever started it.
pub struct Upstream {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    server: AbortHandle,
}

impl Upstream {
    pub async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::new(manner)));
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

    /// What goes into `base_url`.
    pub fn url(&self) -> String {
        format!("{}/v1", self.origin())
    }

    /// The same without a path: what a proxy is told.
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// This is done with the next request that nothing else is to be done with.
    pub fn then(&self, act: Act) -> &Self {
        self.state().next.push_back(act);
        self
    }

    /// From here on this is done with every request, or nothing out of the ordinary.
    pub fn always(&self, act: impl Into<Option<Act>>) {
        let mut state = self.state();
        state.always = act.into();
        state.next = VecDeque::new();
    }

    /// How long until the first byte of an answer, and between two events of a stream, from here on.
    pub fn pace(&self, first: Duration, between: Duration) {
        self.state().manner.pace = (first, between);
    }

    /// The newest requests, oldest first.
    pub fn seen(&self) -> Vec<Seen> {
        self.state().seen.iter().cloned().collect()
    }

    /// The newest request.
    pub fn last(&self) -> Option<Seen> {
        self.state().seen.back().cloned()
    }

    /// How many requests are being answered, and how many callers were gone before the end of their answer.
    pub fn under_way(&self) -> (usize, usize) {
        let state = self.state();
        (state.under_way, state.hung_up)
    }

    /// All that was refused, in order.
    pub fn refused(&self) -> Vec<Refusal> {
        self.state().refused.clone()
    }

    /// What was refused for anything but its size.
    pub fn misshapen(&self) -> Vec<String> {
        let wrong = |refusal| match refusal {
            Refusal::Shape(what) => Some(what),
            Refusal::TooLong { .. } => None,
        };
        self.refused().into_iter().filter_map(wrong).collect()
    }

    /// How many requests were sent again to the letter after they had been refused.
    pub fn repeated(&self) -> usize {
        self.state().repeated
    }

    /// How many requests there were, and how many of summarizers.
    pub fn requests(&self) -> (usize, usize) {
        let state = self.state();
        (state.requests, state.summaries)
    }

    /// How many requests did not go on where the one before ended: a cache held only a part of them.
    pub fn begun_anew(&self) -> usize {
        self.state().anew
    }

    /// How many requests lacked a text that must be in each.
    pub fn lacking(&self) -> usize {
        self.state().lacking
    }

    /// How many requests held what is somebody else's.
    pub fn foreign(&self) -> usize {
        self.state().foreign
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.server.abort();
    }
}
