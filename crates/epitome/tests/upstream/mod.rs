//! A stand-in for the model an agent works with: a real HTTP server on loopback that refuses what real ones refuse.
//!
//! It speaks chat completions, Responses and Anthropic's messages, whole answers only. Every request is judged first, by
//! its shape and by its size ([`refuse`]); what passes is answered by a script of tool calls, reasoning and words ([`script`])
//! with what it cost, by a count of its own. A request without tools is a summarizer's, and is answered with a summary. It
//! remembers what it refused, and whether it was sent again. It needs nothing but tokio, serde_json and the core's judges of
//! the three wires, so any test binary or example can take it in with `#[path]`; a server that answers badly is next door, in
//! `tests/provider`.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "each binary uses a part of it, and a stand-in that cannot go on should stop, loudly"
)]

#[path = "../../../epitome-core/tests/core/wire/judges.rs"]
#[allow(dead_code, clippy::panic, reason = "the core's own tests use all of it")]
mod judges;
pub mod refuse;
pub mod script;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use epitome::dialect::Dialect;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use refuse::Refusal;
use script::Script;

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
        }
    }
}

/// The stand-in. It goes with whoever started it.
pub struct Upstream {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    server: AbortHandle,
}

struct State {
    manner: Manner,
    script: Script,
    /// How many requests there were, those of summarizers aside.
    requests: usize,
    /// Since it last grumbled.
    patience: usize,
    refused: Vec<Refusal>,
    refused_bodies: HashSet<String>,
    /// How many requests were refused before, to the letter.
    repeated: usize,
    summaries: usize,
    /// How many requests did not go on where the one before ended.
    anew: usize,
    /// How many lacked a text that must be there.
    lacking: usize,
    /// How many held what is somebody else's.
    foreign: usize,
    /// The texts of the request before, for what a cache would hold of this one.
    before: Vec<String>,
}

impl Upstream {
    pub async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State {
            manner,
            script: Script::default(),
            requests: 0,
            patience: 0,
            refused: Vec::new(),
            refused_bodies: HashSet::new(),
            repeated: 0,
            summaries: 0,
            anew: 0,
            lacking: 0,
            foreign: 0,
            before: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        let server = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                let shared = Arc::clone(&shared);
                connections.spawn(async move { serve(socket, &shared).await });
            }
        });
        Self { address, state, server: server.abort_handle() }
    }

    /// What goes into `base_url`.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
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

async fn serve(mut socket: TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let (path, body) = read(&mut socket, &mut bytes).await?;
        let (status, answer) = state.lock().unwrap().answer(&path, &body);
        let answer = answer.to_string();
        let head = format!(
            "HTTP/1.1 {status} Whatever\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        socket.write_all((head + &answer).as_bytes()).await.ok()?;
    }
}

/// One request; what came after it stays in `bytes`.
async fn read(socket: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<(String, Value)> {
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if socket.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let path = text.split(' ').nth(1)?.to_owned();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"))?;
    let end = head + 4 + length.trim().parse::<usize>().ok()?;
    while bytes.len() < end {
        if socket.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = serde_json::from_slice(&bytes[head + 4..end]).unwrap_or(Value::Null);
    bytes.drain(..end);
    Some((path, body))
}

impl State {
    fn answer(&mut self, path: &str, body: &Value) -> (u16, Value) {
        let dialect = match path {
            "/v1/chat/completions" => Dialect::OpenAi,
            "/v1/responses" => Dialect::Responses,
            "/v1/messages" => Dialect::Anthropic,
            _ => return (404, json!({ "error": { "message": "no such route", "type": "not_found" } })),
        };
        let texts = texts(body);
        let input = self.tokens(&texts);
        let is_summary = body.get("tools").is_none();
        if !is_summary {
            self.requests += 1;
            self.patience += 1;
        }
        let refusal = match refuse::shape(dialect, body) {
            Some(what) => Some(Refusal::Shape(what)),
            None if is_summary => None,
            None => self.too_long(input),
        };
        if let Some(refusal) = refusal {
            if !self.refused_bodies.insert(body.to_string()) {
                self.repeated += 1;
            }
            let answer = refusal.told(dialect);
            self.refused.push(refusal);
            return (400, answer);
        }
        let said = if is_summary {
            self.summaries += 1;
            script::summary(&texts, self.manner.facts)
        } else if let Some(asked) = texts.last().filter(|text| text.starts_with(script::RECALL)) {
            let others = texts.iter().take_while(|text| *text != asked);
            script::recalled(&others.map(String::as_str).collect::<Vec<_>>(), self.manner.facts)
        } else {
            self.script.next()
        };
        let same = texts.iter().zip(&self.before).take_while(|(now, then)| now == then).count();
        let cached = self.tokens(&texts[..same]);
        if !is_summary {
            self.anew += usize::from(same < self.before.len());
            let there = |wanted: &&str| texts.iter().any(|text| text.contains(*wanted));
            self.lacking += usize::from(!self.manner.always.iter().all(there));
            let foreign = |text: &String| self.manner.never.is_some_and(|never| text.contains(never));
            self.foreign += usize::from(texts.iter().any(foreign));
            self.before = texts;
        }
        (200, said.told(dialect, input, cached))
    }

    fn too_long(&mut self, input: u64) -> Option<Refusal> {
        let window = match self.manner.shrinks {
            Some((after, window)) if self.requests > after => window,
            _ => self.manner.window,
        };
        if input > window {
            return Some(Refusal::TooLong { input, window: Some(window) });
        }
        let grumbles = self.manner.grumbles.is_some_and(|after| self.patience > after) && input > window / 3;
        if grumbles {
            self.patience = 0;
        }
        grumbles.then_some(Refusal::TooLong { input, window: None })
    }

    /// Its own count: nobody else's.
    fn tokens(&self, texts: &[String]) -> u64 {
        let plain: u64 = texts.iter().map(|text| 1 + text.len() as u64 / 3).sum();
        (plain as f64 * self.manner.skew) as u64
    }
}

/// Every text of a request, in the order in which a cache would see them.
fn texts(body: &Value) -> Vec<String> {
    let mut out = Vec::new();
    for field in ["tools", "instructions", "system", "messages", "input"] {
        leaves(&body[field], &mut out);
    }
    out
}

fn leaves(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) => out.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| leaves(item, out)),
        Value::Object(fields) => fields.values().for_each(|field| leaves(field, out)),
        _ => {}
    }
}
