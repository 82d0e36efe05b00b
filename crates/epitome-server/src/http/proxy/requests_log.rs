//! Logs proxied requests in the form in which they are sent, so that their cost can be measured (`--log-requests`).
//!
//! Each request is one line, `{"run", "messages"}`: the conversation, and its message list with the tokens of each
//! message. Fields that the model reads before the list (tools, a system prompt) come first, as separate messages. A
//! message of several blocks becomes several messages. Cache marks are left out, because the model does not read them.
//! Each call of a summarizer is a line of its own, with `"summarizer": true`. Only the file's owner can read the file,
//! because it contains the full conversations.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use epitome::ModelCall;
use epitome::dialect::Body;
use epitome::model::Local;
use epitome::rules::tokens::{Counter, Encoding};
use epitome_http::log_limiter::LogLimiter;
use quick_cache::unsync::Cache;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::prelude::*;
use super::decide::{Decision, ProxyOptions};
use crate::failure::Failure;

/// Maximum size of the write queue, in KiB.
const MAX_QUEUED_KIB: usize = 64 << 10;

/// Longest time that a request waits for space in the queue. After this time, the request is not logged.
const ENQUEUE_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest time that a shutdown waits until the queue is written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of messages whose token counts are cached.
const MAX_CACHED_COUNTS: usize = 100_000;

/// The queue of the log. A separate thread writes the queued entries to the file.
pub(crate) struct RequestsLog {
    entries: Sender<Entry>,
    space: Arc<Semaphore>,
    dropped: LogLimiter,
}

/// A request to log.
struct Entry {
    run: Option<String>,
    dialect: Dialect,
    text: Bytes,
    spent: Vec<ModelCall>,
    /// The space that this entry uses in the queue.
    _permit: OwnedSemaphorePermit,
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
        let (entries, queue) = channel();
        std::thread::Builder::new()
            .name("requests-log".to_owned())
            .spawn(move || write_all(file, &queue))
            .map_err(failed)?;
        Ok(Self { entries, space: Arc::new(Semaphore::new(MAX_QUEUED_KIB)), dropped: LogLimiter::default() })
    }

    /// Queues a request in the form in which it is sent.
    pub(super) async fn write(&self, options: &ProxyOptions, decision: &Decision, text: &Bytes) {
        // A request that is larger than the queue uses the whole space of the queue.
        let kib = u32::try_from((text.len() / 1_024 + 1).min(MAX_QUEUED_KIB)).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.space).acquire_many_owned(kib);
        let Ok(Ok(permit)) = tokio::time::timeout(ENQUEUE_TIMEOUT, permit).await else {
            if let Some(dropped) = self.dropped.record() {
                tracing::warn!(dropped, "requests were not logged: --log-requests writes too slowly");
            }
            return;
        };
        let conversation = decision.conversation.as_ref().map(|conversation| conversation.id.to_string());
        let entry = Entry {
            run: conversation.or_else(|| options.session.clone()),
            dialect: options.dialect,
            text: text.clone(),
            spent: decision.report.spent.clone(),
            _permit: permit,
        };
        // Sending cannot fail, because the thread reads as long as this sender exists.
        let _ = self.entries.send(entry);
    }

    /// Waits until the queue is written. Each entry releases its space when it is written, so then all space is free.
    pub(super) async fn flush(&self) {
        let all = u32::try_from(MAX_QUEUED_KIB).unwrap_or(u32::MAX);
        let space = self.space.acquire_many(all);
        if !matches!(tokio::time::timeout(FLUSH_TIMEOUT, space).await, Ok(Ok(_))) {
            tracing::warn!("the last requests may not be logged: --log-requests writes too slowly");
        }
    }
}

fn write_all(file: File, queue: &Receiver<Entry>) {
    let mut file = BufWriter::new(file);
    let counter = Counter::new(Encoding::default());
    let mut counts = TokenCounts { counter, cached: Cache::new(MAX_CACHED_COUNTS) };
    let failures = LogLimiter::default();
    while let Ok(entry) = queue.recv() {
        let lines = lines(&entry, &mut counts);
        let written = file.write_all(lines.as_bytes()).and_then(|()| file.flush());
        if let Err(error) = written
            && let Some(count) = failures.record()
        {
            tracing::warn!(%error, failures = count, "a request could not be logged (--log-requests)");
        }
    }
}

/// Returns the lines for a request; empty if the request cannot be parsed.
fn lines(entry: &Entry, counts: &mut TokenCounts) -> String {
    let Some(messages) = messages(entry, counts) else { return String::new() };
    let run = entry.run.clone().unwrap_or_else(|| conversation_hash(&messages));
    let mut out = String::new();
    // Leaves out calls of `local`, which cost nothing.
    for spent in entry.spent.iter().filter(|spent| spent.model != Local::NAME) {
        let line = json!({
            "run": run, "summarizer": true, "output_tokens": spent.output,
            "messages": [{"role": "user", "tokens": spent.input}],
        });
        out.push_str(&format!("{line}\n"));
    }
    out.push_str(&format!("{}\n", json!({"run": run, "messages": messages})));
    out
}

/// Returns the id of a conversation that has no name: a hash of its first user message.
fn conversation_hash(messages: &[Value]) -> String {
    let first = messages.iter().find(|message| message["role"] == "user").map(Value::to_string);
    blake3::hash(first.unwrap_or_default().as_bytes()).to_hex().chars().take(16).collect()
}

fn messages(entry: &Entry, counts: &mut TokenCounts) -> Option<Vec<Value>> {
    let text = std::str::from_utf8(&entry.text).ok()?;
    let Value::Object(mut request) = serde_json::from_str(text).ok()? else { return None };
    let mut messages = Vec::new();
    if let Some(tools) = request.shift_remove("tools") {
        messages.push(json!({"role": "tools", "content": tools}));
    }
    for head in Dialect::all().into_iter().filter_map(|dialect| dialect.format().about().system_field) {
        if let Some(system) = request.shift_remove(head.name) {
            messages.push(json!({"role": "system", "content": system}));
        }
    }
    let list = request.shift_remove(entry.dialect.format().about().list_field)?;
    match list {
        Value::Array(list) => messages.extend(list.into_iter().flat_map(split_blocks)),
        text => messages.push(json!({"role": "user", "content": text})),
    }
    for message in &mut messages {
        remove_cache_marks(message);
        let tokens = counts.get(entry.dialect, message);
        if let Value::Object(fields) = message {
            fields.insert("tokens".to_owned(), tokens.into());
        }
    }
    Some(messages)
}

/// Splits a message of several blocks into messages of one block, because a prompt cache can end within a message.
fn split_blocks(mut message: Value) -> Vec<Value> {
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

/// Removes cache marks, because they move between requests, and the model does not read them.
fn remove_cache_marks(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.shift_remove("cache_control");
            fields.values_mut().for_each(remove_cache_marks);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_cache_marks),
        _ => {}
    }
}

/// Cache of the messages' token counts. Most messages are sent again in every request, so their counts are reused.
struct TokenCounts {
    counter: Counter,
    cached: Cache<blake3::Hash, u64>,
}

impl TokenCounts {
    fn get(&mut self, dialect: Dialect, message: &Value) -> u64 {
        let text = message.to_string();
        let hash = blake3::hash(text.as_bytes());
        if let Some(count) = self.cached.get(&hash) {
            return *count;
        }
        let count = self.count(dialect, message, &text);
        self.cached.insert(hash, count);
        count
    }

    /// Counts the tokens of a message. Parses the message if possible, so that images are not counted as text.
    fn count(&self, dialect: Dialect, message: &Value, text: &str) -> u64 {
        if message["role"] == "tools" {
            return self.counter.tools(message["content"].as_array().map_or(&[][..], Vec::as_slice));
        }
        let field = dialect.format().about().list_field;
        let mut request = Map::new();
        request.insert(field.to_owned(), json!([message]));
        let read = Body::read(&Value::Object(request).to_string(), Some(dialect));
        read.map_or_else(
            |_| self.counter.text(text),
            |body| body.messages().iter().map(|message| self.counter.message(message)).sum(),
        )
    }
}
