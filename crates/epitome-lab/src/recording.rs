//! Reads recorded conversations from files.
//!
//! A file contains one message per line, one conversation per line (`{"id": …, "messages": […]}` or a whole request), or one
//! JSON document: a request, or a list of messages or conversations. Each conversation becomes a session of its own.
//! Messages outside a conversation belong to the file's session. Files are read as a stream, so a file of any length needs
//! only the memory of its largest line.
//!
//! An entry that cannot be read is returned as [`Item::Bad`] with its position, and reading continues after it. The caller
//! decides what to do with the items.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use epitome::dialect::{Dialect, DialectError, ReadMessage, Reader};
use epitome::rules::message::Message;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

mod pieces;

use pieces::{Piece, Pieces as Values};

/// Maximum number of values that are read to detect a file's dialect.
const LOOK: usize = 1_000;

/// A position in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file's name in error messages.
    pub file: Arc<str>,
    /// The line, counted from 1.
    pub line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// An entry of a recording, in file order.
#[derive(Debug, PartialEq)]
pub enum Item {
    /// A session begins. The messages that follow belong to it.
    Session {
        /// The session's name.
        name: String,
        /// The session's metadata.
        metadata: Map<String, Value>,
        /// Position of its beginning.
        at: Place,
    },
    /// A message of the current session.
    Message {
        /// The message.
        message: Box<Message>,
        /// Position of its first wire message.
        at: Place,
        /// The wire messages it was made of, if there are several.
        pieces: Pieces,
    },
    /// An entry that cannot be read.
    Bad {
        /// What is wrong.
        problem: String,
        /// Position of the entry.
        at: Place,
    },
}

/// The wire messages that a message was made of, if there are several. A recording that was read while it was still being
/// written may contain only the first of them.
pub type Pieces = Vec<String>;

/// A file of conversations.
pub struct Recording {
    values: Values<BufReader<Counted>>,
    file: Arc<str>,
    /// Name of the session for messages outside a conversation, and of conversations without a name.
    name: String,
    /// Whether the caller set this name. Then it is also the prefix of the conversations' names.
    named: bool,
    /// Whether the file contains only one value. Then a conversation gets the caller's name without its own name appended.
    single: bool,
    /// The dialect that the caller set, if any.
    asked: Option<Dialect>,
    /// Dialect of messages outside a conversation, until a message shows another dialect.
    first: Dialect,
    /// Number of conversations read so far.
    count: u64,
    /// What the file contains, detected from its first piece. An entry of the other kind is an error.
    kind: Option<Kind>,
    /// Reads the messages of the current session.
    reading: Option<Reading>,
    waiting: VecDeque<Item>,
}

/// What a file contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Messages outside conversations.
    Messages,
    /// Conversations.
    Conversations,
}

/// Reads the messages of one session.
struct Reading {
    dialect: Dialect,
    reader: Reader,
    /// Lines and texts of the wire messages that are not yet part of a complete message.
    held: VecDeque<(u64, String)>,
}

impl Reading {
    fn new(dialect: Dialect) -> Self {
        Self { dialect, reader: dialect.reader(), held: VecDeque::new() }
    }

    /// Returns a complete message. Its position is that of its first wire message.
    fn complete(&mut self, read: ReadMessage, file: &Arc<str>) -> Item {
        let taken = read.count.min(self.held.len());
        let (lines, texts): (Vec<u64>, Vec<String>) = self.held.drain(..taken).unzip();
        let at = Place { file: Arc::clone(file), line: lines.first().copied().unwrap_or(0) };
        let pieces = if texts.len() > 1 { texts } else { Pieces::new() };
        Item::Message { message: Box::new(read.message), at, pieces }
    }
}

impl Recording {
    /// Opens a file. `shown` is the file's name in error messages. The number of bytes read is added to `read`.
    pub fn open(
        path: &Path,
        shown: &str,
        session: Option<&str>,
        dialect: Option<Dialect>,
        read: &Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let (first, single) = look(path)?;
        let stem = path.file_stem().map_or_else(|| "import".into(), |stem| stem.to_string_lossy());
        let file = Counted { file: File::open(path)?, read: Arc::clone(read) };
        Ok(Self {
            values: Values::new(BufReader::with_capacity(1 << 16, file))?,
            file: shown.into(),
            name: session.unwrap_or(&stem).to_owned(),
            named: session.is_some(),
            single,
            asked: dialect,
            first: dialect.unwrap_or(first),
            count: 0,
            kind: None,
            reading: None,
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
            // An empty list is ignored.
            Ok(Value::Array(list)) if list.is_empty() => {}
            Ok(value) => match header(&value) {
                Some((name, metadata)) => {
                    self.kind = Some(Kind::Messages);
                    self.begin(Some(name), metadata, at);
                    self.reading = Some(Reading::new(self.first));
                }
                None if is_conversation(&value) => match *self.kind.get_or_insert(Kind::Conversations) {
                    Kind::Conversations => self.conversation(&value, &text, at),
                    Kind::Messages => self.misplaced("a conversation among messages", at),
                },
                None => match *self.kind.get_or_insert(Kind::Messages) {
                    Kind::Messages => {
                        for (value, text) in said(value, text) {
                            self.lone(&value, text, &at);
                        }
                    }
                    Kind::Conversations => self.misplaced("a message among conversations", at),
                },
            },
        }
    }

    fn misplaced(&mut self, what: &str, at: Place) {
        let problem = format!("{what}; put it in a file of its own");
        self.waiting.push_back(Item::Bad { problem, at });
    }

    /// Begins a session. A session without a name gets the file's name, and a number from the second one on.
    fn begin(&mut self, name: Option<String>, metadata: Map<String, Value>, at: Place) {
        self.end();
        self.count += 1;
        let name = match name {
            Some(_) if self.named && self.single => self.name.clone(),
            Some(name) if self.named => format!("{}/{name}", self.name),
            Some(name) => name,
            None if self.count == 1 => self.name.clone(),
            None => format!("{}-{}", self.name, self.count),
        };
        self.waiting.push_back(Item::Session { name, metadata, at });
    }

    /// Ends the session, and emits the message that the reader has not yet returned.
    fn end(&mut self) {
        if let Some(mut reading) = self.reading.take()
            && let Some(read) = reading.reader.finish()
        {
            let item = reading.complete(read, &self.file);
            self.waiting.push_back(item);
        }
    }

    /// Reads a message outside a conversation. The dialect may differ from message to message, because several programs may
    /// write to one log.
    fn lone(&mut self, value: &Value, text: String, at: &Place) {
        let told = self.asked.or_else(|| Dialect::detect(value));
        let mut reading = match self.reading.take() {
            Some(reading) if told.is_none_or(|told| told == reading.dialect) => reading,
            Some(before) => {
                self.reading = Some(before);
                self.end();
                Reading::new(told.unwrap_or(self.first))
            }
            None => {
                let (name, metadata) = (self.name.clone(), Map::new());
                self.waiting.push_back(Item::Session { name, metadata, at: at.clone() });
                Reading::new(told.unwrap_or(self.first))
            }
        };
        let item = push(&mut reading, text, at, self.asked.is_some(), "");
        self.waiting.extend(item);
        self.reading = Some(reading);
    }

    /// Reads a conversation. Each message is parsed from its original text, so that numbers retain every digit and errors
    /// have a position.
    fn conversation(&mut self, value: &Value, text: &str, at: Place) {
        let dialect = self.asked.unwrap_or_else(|| of_conversation(value));
        let key = list_of(value);
        let (head, fields) = around(value, key, dialect);
        let before = match dialect.read(&head) {
            Ok(messages) => messages,
            Err(error) => {
                let problem = as_read(&error, dialect, self.asked.is_some());
                return self.waiting.push_back(Item::Bad { problem, at });
            }
        };
        self.begin(name_of(value), fields, at.clone());
        let message =
            |message| Item::Message { message: Box::new(message), at: at.clone(), pieces: Pieces::new() };
        self.waiting.extend(before.into_iter().map(message));
        let mut reading = Reading::new(dialect);
        for (n, text) in texts(text, key).into_iter().enumerate() {
            let place = format!("{}[{n}]", key.unwrap_or(""));
            let item = push(&mut reading, text, &at, self.asked.is_some(), &place);
            self.waiting.extend(item);
        }
        self.reading = Some(reading);
        self.end();
    }
}

/// Reads one wire message. Returns the message that is now complete, if any, or the error.
fn push(reading: &mut Reading, text: String, at: &Place, asked: bool, place: &str) -> Option<Item> {
    match reading.reader.push_text(&text) {
        Ok(complete) => {
            reading.held.push_back((at.line, text));
            complete.map(|read| reading.complete(read, &at.file))
        }
        Err(error) => {
            let error = if place.is_empty() { error } else { error.under(place) };
            let problem = as_read(&error, reading.dialect, asked);
            Some(Item::Bad { problem, at: at.clone() })
        }
    }
}

/// Formats an error. If the dialect was detected, the text names it, because the detection may be wrong.
fn as_read(error: &DialectError, dialect: Dialect, asked: bool) -> String {
    match asked {
        true => error.to_string(),
        false => format!("{error} (read as {dialect}; --format sets another format)"),
    }
}

impl Iterator for Recording {
    type Item = io::Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.waiting.pop_front() {
                return Some(Ok(item));
            }
            match self.values.next() {
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

/// The key in the header line that `epitome export` writes before each session.
pub const HEADER: &str = "epitome";

/// Returns the session's name and metadata if this is a header line.
fn header(value: &Value) -> Option<(String, Map<String, Value>)> {
    let object = value.as_object().filter(|object| object.len() == 1)?;
    let header = object.get(HEADER)?;
    let name = header.get("session")?.as_str()?.to_owned();
    let metadata = header.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    Some((name, metadata))
}

/// Returns the messages of a provider's response; for any other value, the value itself as a single message.
fn said(value: Value, text: String) -> Vec<(Value, String)> {
    let inner = match value.get("object").and_then(Value::as_str) {
        Some("chat.completion") => value.pointer("/choices/0/message").map(|message| vec![message.clone()]),
        Some("response") => value.get("output").and_then(Value::as_array).cloned(),
        _ => None,
    };
    match inner {
        Some(messages) => {
            messages.into_iter().map(|message| (message.clone(), message.to_string())).collect()
        }
        None => vec![(value, text)],
    }
}

fn is_conversation(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.iter().any(Value::is_object),
        Value::Object(object) => !object.contains_key("role") && list_of(value).is_some(),
        _ => false,
    }
}

/// Returns the field that contains a request's messages; `None` if the value itself is the list.
fn list_of(value: &Value) -> Option<&'static str> {
    let object = value.as_object()?;
    let is_list = |key: &str| object.get(key).is_some_and(Value::is_array);
    let is_text = |key: &str| object.get(key).is_some_and(Value::is_string);
    let holds = |dialect: &Dialect| {
        let (list, may_be_text) = (dialect.format().about().list_field, dialect.format().about().list_may_be_text);
        is_list(list) || (may_be_text && is_text(list) && !object.contains_key("type"))
    };
    Dialect::all().into_iter().find(holds).map(|dialect| dialect.format().about().list_field)
}

/// Returns the conversation's name, if it has one.
fn name_of(value: &Value) -> Option<String> {
    let keys = ["id", "session", "session_id", "conversation_id", "name"];
    keys.iter().find_map(|key| match value.get(key)? {
        Value::String(name) if !name.is_empty() => Some(name.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    })
}

/// Key in the session's metadata that stores the other fields of the conversation.
pub const REQUEST: &str = "request";

/// Returns the field of a request that contains the system prompt.
pub fn spoken(dialect: Dialect) -> Option<&'static str> {
    dialect.format().about().system_field.map(|head| head.name)
}

/// Returns the conversation without its messages, to be parsed; and its fields in order, to be stored as metadata. In the
/// stored fields, the messages and the system prompt are null, because they are imported as messages.
fn around(value: &Value, key: Option<&str>, dialect: Dialect) -> (Value, Map<String, Value>) {
    let (Some(object), Some(key)) = (value.as_object(), key) else {
        return (Value::Array(Vec::new()), Map::new());
    };
    let mut head = object.clone();
    if object.get(key).is_some_and(Value::is_array) {
        head.insert(key.to_owned(), Value::Array(Vec::new()));
    }
    let told = |name: &str| name == key || Some(name) == spoken(dialect);
    let fields: Map<String, Value> = object
        .iter()
        .map(|(name, value)| (name.clone(), if told(name) { Value::Null } else { value.clone() }))
        .collect();
    let worth = fields.keys().any(|name| name != key && name != "id");
    let kept = worth.then(|| (REQUEST.to_owned(), Value::Object(fields)));
    (Value::Object(head), kept.into_iter().collect())
}

/// Returns the original JSON text of each message.
fn texts(text: &str, key: Option<&str>) -> Vec<String> {
    let list = match key {
        None => text.to_owned(),
        Some(key) => {
            let fields: HashMap<String, Box<RawValue>> = serde_json::from_str(text).unwrap_or_default();
            fields.get(key).map(|list| list.get().to_owned()).unwrap_or_default()
        }
    };
    let list: Vec<Box<RawValue>> = serde_json::from_str(&list).unwrap_or_default();
    list.into_iter().map(|text| text.get().to_owned()).collect()
}

fn of_conversation(value: &Value) -> Dialect {
    let list = list_of(value).and_then(|key| value.get(key)).unwrap_or(value);
    let told = list.as_array().and_then(|list| list.iter().find_map(Dialect::detect));
    told.unwrap_or_else(|| by_fields(value))
}

/// Detects a conversation's dialect by its other fields, if its messages do not show it.
fn by_fields(conversation: &Value) -> Dialect {
    let has = |field: &str| conversation.get(field).is_some();
    let is = |dialect: &Dialect| {
        let about = dialect.format().about();
        let head = about.system_field.is_some_and(|head| has(head.name));
        has(about.list_field) && (head || about.list_field != Dialect::OPENAI.format().about().list_field)
    };
    Dialect::all().into_iter().find(is).unwrap_or(Dialect::OPENAI)
}

/// Detects the dialect from the first values of a file, and whether the file contains only one value. If no value shows the
/// dialect, the result is OpenAI's: most such messages are the same in all dialects.
fn look(path: &Path) -> io::Result<(Dialect, bool)> {
    let values = Values::new(BufReader::new(File::open(path)?))?;
    let (mut found, mut count) = (None, 0);
    for piece in values.take(LOOK) {
        count += 1;
        let told = piece?.text.ok().and_then(|text| serde_json::from_str(&text).ok());
        found = found.or_else(|| told.as_ref().and_then(Dialect::detect));
        if found.is_some() && count > 1 {
            break;
        }
    }
    Ok((found.unwrap_or(Dialect::OPENAI), count == 1))
}

/// Formats a JSON error. The line number inside a one-line value is left out, because the position already has the file's
/// line.
fn not_json(error: &serde_json::Error) -> String {
    let told = error.to_string();
    let what = told.rsplit_once(" at line ").map_or(told.as_str(), |(what, _)| what);
    if what.contains("surrogate") || what.contains("hex escape") {
        return format!("contains half of a character (a lone \\ud83d) at column {}", error.column());
    }
    if what.contains("recursion limit") {
        return "is nested too deeply; the maximum is 128 levels".to_owned();
    }
    match error.line() {
        0 | 1 => format!("is not JSON: {what} at column {}", error.column()),
        line => format!("is not JSON: {what} at its line {line}, column {}", error.column()),
    }
}

/// A file that counts the bytes read from it.
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl io::Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
