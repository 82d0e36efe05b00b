//! Recorded conversations, read from files.
//!
//! A file holds one message a line, one conversation a line (`{"id": …, "messages": […]}` or a whole request), or one
//! JSON document that is a list of either, or a request. What is a conversation becomes a session of its own; lone
//! messages are those of the session the file is for. Everything is read as a stream: a file of any length takes the
//! memory of its largest line.
//!
//! Nothing is decided here about what becomes of it, and what cannot be read is told with its place and passed over.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use epitome::core::message::Message;
use epitome::dialect::{Dialect, Reader};
use serde_json::{Map, Value};

mod pieces;

use pieces::{Piece, Pieces};

/// So many values are looked at to see which dialect a file is in.
const LOOK: usize = 1_000;

/// Where something stands in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: Arc<str>,
    pub(crate) line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// What a recording holds, in order.
#[derive(Debug, PartialEq)]
pub(crate) enum Item {
    /// A session begins, with notes on it. Messages that follow are its.
    Session { name: String, metadata: Map<String, Value>, at: Place },
    /// A message of the session that began last.
    Message { message: Box<Message>, at: Place },
    /// Something that cannot be read.
    Bad { problem: String, at: Place },
}

/// A file of conversations.
pub(crate) struct Recording {
    pieces: Pieces<BufReader<Counted>>,
    file: Arc<str>,
    /// The name of the session for lone messages, and of others that have none.
    name: String,
    /// Whether that was asked for; then names of conversations begin with it.
    named: bool,
    /// What was asked for, else what lone messages turned out to be in.
    asked: Option<Dialect>,
    found: Dialect,
    /// How many conversations came so far.
    count: u64,
    /// Reads lone messages, once there are any, and the lines of those it still holds.
    reader: Option<(Reader, VecDeque<u64>)>,
    waiting: VecDeque<Item>,
}

impl Recording {
    /// Opens it. `shown` is what the file is called in messages; bytes that were read are added to `read`.
    pub(crate) fn open(
        path: &Path,
        shown: &str,
        session: Option<&str>,
        dialect: Option<Dialect>,
        read: &Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let found = match dialect {
            Some(dialect) => dialect,
            None => detect(path)?,
        };
        let stem = path.file_stem().map_or_else(|| "import".into(), |stem| stem.to_string_lossy());
        let file = Counted { file: File::open(path)?, read: Arc::clone(read) };
        Ok(Self {
            pieces: Pieces::new(BufReader::with_capacity(1 << 16, file))?,
            file: shown.into(),
            name: session.unwrap_or(&stem).to_owned(),
            named: session.is_some(),
            asked: dialect,
            found,
            count: 0,
            reader: None,
            waiting: VecDeque::new(),
        })
    }

    fn take(&mut self, piece: Piece) {
        let at = Place { file: Arc::clone(&self.file), line: piece.line };
        let text = match piece.text {
            Ok(text) => text,
            Err(problem) => return self.waiting.push_back(Item::Bad { problem, at }),
        };
        match serde_json::from_str::<Value>(&text) {
            Err(error) => self.waiting.push_back(Item::Bad { problem: not_json(&error), at }),
            Ok(value) => match header(&value) {
                Some((name, metadata)) => self.begin(Some(name), metadata, at),
                None if is_conversation(&value) => self.conversation(&value, at),
                None => self.lone(&text, at),
            },
        }
    }

    /// A session begins. One that has no name gets a number.
    fn begin(&mut self, name: Option<String>, metadata: Map<String, Value>, at: Place) {
        self.end();
        self.count += 1;
        let name = match (name, self.named) {
            (Some(name), false) => name,
            (Some(name), true) if self.count == 1 && name.is_empty() => self.name.clone(),
            (Some(name), true) => format!("{}/{name}", self.name),
            (None, _) => format!("{}-{}", self.name, self.count),
        };
        self.reader = Some((self.found.reader(), VecDeque::new()));
        self.waiting.push_back(Item::Session { name, metadata, at });
    }

    /// What the reader still holds is complete now.
    fn end(&mut self) {
        if let Some((mut reader, mut lines)) = self.reader.take()
            && let Some(read) = reader.finish()
        {
            self.complete(read, &mut lines);
        }
    }

    /// A message stands where the first of its pieces does.
    fn complete(&mut self, read: epitome::dialect::Read, lines: &mut VecDeque<u64>) {
        let taken = read.count.min(lines.len());
        let line = lines.drain(..taken).next().unwrap_or(0);
        let at = Place { file: Arc::clone(&self.file), line };
        self.waiting.push_back(Item::Message { message: Box::new(read.message), at });
    }

    fn lone(&mut self, text: &str, at: Place) {
        if self.reader.is_none() {
            let name = self.name.clone();
            self.waiting.push_back(Item::Session { name, metadata: Map::new(), at: at.clone() });
        }
        let (mut reader, mut lines) =
            self.reader.take().unwrap_or_else(|| (self.found.reader(), VecDeque::new()));
        match reader.push_text(text) {
            Ok(complete) => {
                lines.push_back(at.line);
                if let Some(read) = complete {
                    self.complete(read, &mut lines);
                }
            }
            Err(error) => self.waiting.push_back(Item::Bad { problem: self.as_read(&error), at }),
        }
        self.reader = Some((reader, lines));
    }

    fn conversation(&mut self, value: &Value, at: Place) {
        let dialect = self.asked.unwrap_or_else(|| of_conversation(value));
        match dialect.read(value) {
            Ok(messages) => {
                self.begin(name_of(value), Map::new(), at.clone());
                for message in messages {
                    self.waiting.push_back(Item::Message { message: Box::new(message), at: at.clone() });
                }
            }
            Err(error) => self.waiting.push_back(Item::Bad { problem: self.as_read(&error), at }),
        }
    }

    /// A guess may have been wrong, so it is told.
    fn as_read(&self, error: &epitome::dialect::DialectError) -> String {
        match self.asked {
            Some(_) => error.to_string(),
            None => format!("{error} (read as {}; --format says otherwise)", self.found),
        }
    }
}

impl Iterator for Recording {
    type Item = io::Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.waiting.pop_front() {
                return Some(Ok(item));
            }
            match self.pieces.next() {
                Some(Ok(piece)) => self.take(piece),
                Some(Err(error)) => return Some(Err(error)),
                None => {
                    self.end();
                    return self.waiting.pop_front().map(Ok);
                }
            }
        }
    }
}

/// The first line of what `epitome export` writes.
pub(crate) const HEADER: &str = "epitome";

/// The session's name and notes, where this is such a line.
fn header(value: &Value) -> Option<(String, Map<String, Value>)> {
    let object = value.as_object().filter(|object| object.len() == 1)?;
    let header = object.get(HEADER)?;
    let name = header.get("session")?.as_str()?.to_owned();
    let metadata = header.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    Some((name, metadata))
}

fn is_conversation(value: &Value) -> bool {
    match value {
        Value::Array(_) => true,
        Value::Object(object) => {
            let list = |key: &str| object.get(key).is_some_and(Value::is_array);
            !object.contains_key("role") && (list("messages") || list("input"))
        }
        _ => false,
    }
}

/// What it is called, where it says.
fn name_of(value: &Value) -> Option<String> {
    let named =
        ["id", "session", "session_id", "conversation_id", "name"].iter().find_map(|key| value.get(key))?;
    match named {
        Value::String(name) if !name.is_empty() => Some(name.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn of_conversation(value: &Value) -> Dialect {
    let list = ["messages", "input"].iter().find_map(|key| value.get(key)).unwrap_or(value);
    let told = list.as_array().and_then(|list| list.iter().find_map(Dialect::of));
    told.unwrap_or_else(|| {
        let has = |key: &str| value.get(key).is_some();
        match () {
            () if has("input") => Dialect::Responses,
            () if has("system") => Dialect::Anthropic,
            () => Dialect::OpenAi,
        }
    })
}

/// The dialect of lone messages, where their beginning tells; most that tell nothing are the same in all.
fn detect(path: &Path) -> io::Result<Dialect> {
    let pieces = Pieces::new(BufReader::new(File::open(path)?))?;
    for piece in pieces.take(LOOK) {
        let told = piece?.text.ok().and_then(|text| serde_json::from_str(&text).ok());
        if let Some(dialect) = told.as_ref().and_then(Dialect::of) {
            return Ok(dialect);
        }
    }
    Ok(Dialect::OpenAi)
}

/// Without the place inside the line where that is all there is: the file's line is told already.
fn not_json(error: &serde_json::Error) -> String {
    let told = error.to_string();
    let what = told.rsplit_once(" at line ").map_or(told.as_str(), |(what, _)| what);
    match error.line() {
        0 | 1 => format!("is not JSON: {what} at column {}", error.column()),
        line => format!("is not JSON: {what} at its line {line}, column {}", error.column()),
    }
}

/// A file that tells how much of it was read.
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
