//! Logs proxied requests as they are sent, one line each, so that their cost can be measured (`--log-requests`).
//!
//! A line is `{"run", "messages"}`: the conversation, and its message list with the tokens of each message. Fields that the
//! model reads before the list (tools, a system prompt) come first, as separate messages. A message of several blocks
//! becomes several messages. Cache marks are left out, because the model does not read them. Calls of a summarizer are lines
//! with `"summarizer": true`. The file contains the full conversations, so only its owner can read it.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use epitome::Spent;
use epitome::dialect::Body;
use epitome::model::Local;
use epitome::rules::tokens::{Counter, Encoding};
use epitome_http::seldom::Seldom;
use quick_cache::unsync::Cache;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::prelude::*;
use super::decide::{Asked, Decided};
use crate::failure::Failure;

/// Maximum size of the write queue, in KiB.
const MOST_WAITING: usize = 64 << 10;

/// Longest time that a request waits for space in the queue. Then it is not logged.
const LONGEST: Duration = Duration::from_secs(2);

/// Longest time that a shutdown waits until the queue is written.
const LAST: Duration = Duration::from_secs(60);

/// Maximum number of messages whose token counts are cached.
const MOST_SIZES: usize = 100_000;

/// The log file's queue; a thread writes the file.
pub(crate) struct RequestsLog {
    lines: Sender<Line>,
    room: Arc<Semaphore>,
    missed: Seldom,
}

/// A request to log.
struct Line {
    run: Option<String>,
    dialect: Dialect,
    text: Bytes,
    spent: Vec<Spent>,
    _room: OwnedSemaphorePermit,
}

impl RequestsLog {
    /// Opens the file to append, or creates it so that only this user can read it.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            options.mode(0o600);
        }
        let failed = |error| Failure::Failed(format!("--log-requests {}: {error}", path.display()));
        let file = options.open(path).map_err(failed)?;
        let (lines, waiting) = channel();
        std::thread::Builder::new()
            .name("requests-log".to_owned())
            .spawn(move || write_all(file, &waiting))
            .map_err(failed)?;
        Ok(Self { lines, room: Arc::new(Semaphore::new(MOST_WAITING)), missed: Seldom::default() })
    }

    pub(super) async fn write(&self, asked: &Asked, decided: &Decided, text: &Bytes) {
        // A request that is larger than the queue takes all of it.
        let kib = u32::try_from((text.len() / 1_024 + 1).min(MOST_WAITING)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(kib);
        let Ok(Ok(room)) = tokio::time::timeout(LONGEST, room).await else {
            if let Some(missed) = self.missed.happened() {
                tracing::warn!(missed, "requests were not logged: --log-requests cannot keep up");
            }
            return;
        };
        let line = Line {
            run: decided.known.as_ref().map(|known| known.run.to_string()).or_else(|| asked.session.clone()),
            dialect: asked.dialect,
            text: text.clone(),
            spent: decided.report.spent.clone(),
            _room: room,
        };
        // Cannot fail: the thread reads as long as this sender exists.
        let _ = self.lines.send(line);
    }

    /// Waits until the queue is written: each line releases its permits then.
    pub(super) async fn written(&self) {
        let all = u32::try_from(MOST_WAITING).unwrap_or(u32::MAX);
        let room = self.room.acquire_many(all);
        if !matches!(tokio::time::timeout(LAST, room).await, Ok(Ok(_))) {
            tracing::warn!("the last requests may not be logged: --log-requests cannot keep up");
        }
    }
}

fn write_all(file: File, waiting: &Receiver<Line>) {
    let mut file = BufWriter::new(file);
    let mut sizes = Sizes { counter: Counter::new(Encoding::default()), known: Cache::new(MOST_SIZES) };
    let failed = Seldom::default();
    while let Ok(line) = waiting.recv() {
        let lines = lines(&line, &mut sizes);
        let written = file.write_all(lines.as_bytes()).and_then(|()| file.flush());
        if let Err(error) = written
            && let Some(times) = failed.happened()
        {
            tracing::warn!(%error, times, "a request could not be logged (--log-requests)");
        }
    }
}

/// Returns the lines for a request; empty if the request cannot be parsed.
fn lines(line: &Line, sizes: &mut Sizes) -> String {
    let Some(messages) = messages(line, sizes) else { return String::new() };
    let run = line.run.clone().unwrap_or_else(|| opening(&messages));
    let mut out = String::new();
    // Leaves out `local`, which costs nothing.
    for spent in line.spent.iter().filter(|spent| spent.model != Local::NAME) {
        let told = json!({
            "run": run, "summarizer": true, "output_tokens": spent.output,
            "messages": [{"role": "user", "tokens": spent.input}],
        });
        out.push_str(&format!("{told}\n"));
    }
    out.push_str(&format!("{}\n", json!({"run": run, "messages": messages})));
    out
}

/// Returns the id of a conversation that has no name: a hash of its first user message.
fn opening(messages: &[Value]) -> String {
    let first = messages.iter().find(|message| message["role"] == "user").map(Value::to_string);
    blake3::hash(first.unwrap_or_default().as_bytes()).to_hex().chars().take(16).collect()
}

fn messages(line: &Line, sizes: &mut Sizes) -> Option<Vec<Value>> {
    let text = std::str::from_utf8(&line.text).ok()?;
    let Value::Object(mut request) = serde_json::from_str(text).ok()? else { return None };
    let mut messages = Vec::new();
    if let Some(tools) = request.shift_remove("tools") {
        messages.push(json!({"role": "tools", "content": tools}));
    }
    for head in Dialect::all().into_iter().filter_map(|dialect| dialect.format().about().head) {
        if let Some(system) = request.shift_remove(head.field) {
            messages.push(json!({"role": "system", "content": system}));
        }
    }
    let list = request.shift_remove(line.dialect.format().about().list)?;
    match list {
        Value::Array(list) => messages.extend(list.into_iter().flat_map(blocks)),
        text => messages.push(json!({"role": "user", "content": text})),
    }
    for message in &mut messages {
        unmarked(message);
        let tokens = sizes.of(line.dialect, message);
        if let Value::Object(fields) = message {
            fields.insert("tokens".to_owned(), tokens.into());
        }
    }
    Some(messages)
}

/// Splits a message of several blocks into messages of one block, because a prompt cache can end within a message.
fn blocks(mut message: Value) -> Vec<Value> {
    let content =
        message.get_mut("content").and_then(Value::as_array_mut).filter(|content| content.len() > 1);
    let Some(content) = content.map(std::mem::take) else { return vec![message] };
    let one = |block| {
        let mut message = message.clone();
        if let Some(fields) = message.as_object_mut() {
            fields.insert("content".to_owned(), json!([block]));
        }
        message
    };
    content.into_iter().map(one).collect()
}

/// Removes cache marks: they move between requests, and the model does not read them.
fn unmarked(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.shift_remove("cache_control");
            fields.values_mut().for_each(unmarked);
        }
        Value::Array(items) => items.iter_mut().for_each(unmarked),
        _ => {}
    }
}

/// Cache of the messages' token counts: most messages are sent again in every request.
struct Sizes {
    counter: Counter,
    known: Cache<blake3::Hash, u64>,
}

impl Sizes {
    fn of(&mut self, dialect: Dialect, message: &Value) -> u64 {
        let text = message.to_string();
        let hash = blake3::hash(text.as_bytes());
        if let Some(size) = self.known.get(&hash) {
            return *size;
        }
        let size = self.count(dialect, message, &text);
        self.known.insert(hash, size);
        size
    }

    /// Counts the tokens of a message. Parses it if possible, so that images are not counted as text.
    fn count(&self, dialect: Dialect, message: &Value, text: &str) -> u64 {
        if message["role"] == "tools" {
            return self.counter.tools(message["content"].as_array().map_or(&[][..], Vec::as_slice));
        }
        let field = dialect.format().about().list;
        let mut request = Map::new();
        request.insert(field.to_owned(), json!([message]));
        let read = Body::read(&Value::Object(request).to_string(), Some(dialect));
        read.map_or_else(
            |_| self.counter.text(text),
            |body| body.messages().iter().map(|message| self.counter.message(message)).sum(),
        )
    }
}
