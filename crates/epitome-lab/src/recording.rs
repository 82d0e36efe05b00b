//! Reads recorded conversations from files.
//!
//! A file has one of these forms:
//!
//! - one message per line
//! - one conversation per line: `{"id": …, "messages": […]}` or a whole request
//! - one JSON document: a whole request, a list of messages, or a list of conversations
//!
//! Each conversation becomes its own session. Messages outside a conversation belong to a session that is named like
//! the file. Files are read as a stream, so a large file needs only the memory of its largest line.
//!
//! An entry that cannot be read is returned as [`RecordingItem::Bad`] with its position. Reading continues after this
//! entry. The caller decides what to do with the items.
//!
//! A *wire message* is a message in the format of a provider. Some messages consist of several wire messages.

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

mod values;

use values::{FileValue, FileValues};

/// Maximum number of JSON values that are read to detect a file's dialect.
const MAX_VALUES_FOR_DETECTION: usize = 1_000;

/// A position in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePosition {
    /// The file's name in error messages.
    pub file: Arc<str>,
    /// The line, counted from 1.
    pub line: u64,
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// An entry of a recording, in file order.
#[derive(Debug, PartialEq)]
pub enum RecordingItem {
    /// A session begins. The messages that follow belong to it.
    Session {
        /// The session's name.
        name: String,
        /// The session's metadata.
        metadata: Map<String, Value>,
        /// Position at which the session begins.
        at: FilePosition,
    },
    /// A message of the current session.
    Message {
        /// The message.
        message: Box<Message>,
        /// Position of the message's first wire message.
        at: FilePosition,
        /// The message's wire messages; empty if there is only one.
        wire_texts: WireTexts,
    },
    /// An entry that cannot be read.
    Bad {
        /// What is wrong.
        problem: String,
        /// Position of the entry.
        at: FilePosition,
    },
}

/// JSON texts of the wire messages that form one message; empty if there is only one. If a program was still writing
/// the recording while it was read, the recording may contain only the first of these wire messages.
pub type WireTexts = Vec<String>;

/// A file of conversations.
pub struct Recording {
    values: FileValues<BufReader<CountingFile>>,
    file: Arc<str>,
    /// Session name for messages outside a conversation, and for conversations without a name.
    name: String,
    /// Whether the caller set `name`. If so, `name` is also the prefix of the conversations' own names.
    named: bool,
    /// Whether the file contains only one value. If so, and if the caller set `name`, a conversation's session is
    /// called `name`, and the conversation's own name is not used.
    single: bool,
    /// The dialect that the caller set, if any.
    requested: Option<Dialect>,
    /// Dialect of messages outside a conversation, until a message shows another dialect.
    first: Dialect,
    /// Number of conversations read so far.
    count: u64,
    /// Kind of the entries, detected from the first entry; `None` before the first entry. An entry of the other kind is
    /// an error.
    content: Option<FileContent>,
    /// Reads the messages of the current session; `None` between two sessions.
    reader: Option<SessionReader>,
    ready: VecDeque<RecordingItem>,
}

/// Kind of the entries in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileContent {
    /// Messages outside conversations.
    Messages,
    /// Conversations.
    Conversations,
}

/// Reads the messages of one session.
struct SessionReader {
    dialect: Dialect,
    reader: Reader,
    /// Lines and texts of the wire messages that are not yet part of a complete message.
    pending: VecDeque<(u64, String)>,
}

impl SessionReader {
    fn new(dialect: Dialect) -> Self {
        Self { dialect, reader: dialect.reader(), pending: VecDeque::new() }
    }

    /// Returns a complete message, with the position of its first wire message.
    fn complete(&mut self, read: ReadMessage, file: &Arc<str>) -> RecordingItem {
        let count = read.count.min(self.pending.len());
        let (lines, texts): (Vec<u64>, Vec<String>) = self.pending.drain(..count).unzip();
        let at = FilePosition { file: Arc::clone(file), line: lines.first().copied().unwrap_or(0) };
        let wire_texts = if texts.len() > 1 { texts } else { WireTexts::new() };
        RecordingItem::Message { message: Box::new(read.message), at, wire_texts }
    }
}

impl Recording {
    /// Opens a file. `shown` is the file's name in error messages. `session` is the session name that the caller set,
    /// if any, and `dialect` the dialect that the caller set, if any. The number of bytes read is added to `read`.
    pub fn open(
        path: &Path,
        shown: &str,
        session: Option<&str>,
        dialect: Option<Dialect>,
        read: &Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let (first, single) = detect(path)?;
        let stem = path.file_stem().map_or_else(|| "import".into(), |stem| stem.to_string_lossy());
        let file = CountingFile { file: File::open(path)?, read: Arc::clone(read) };
        Ok(Self {
            values: FileValues::new(BufReader::with_capacity(1 << 16, file))?,
            file: shown.into(),
            name: session.unwrap_or(&stem).to_owned(),
            named: session.is_some(),
            single,
            requested: dialect,
            first: dialect.unwrap_or(first),
            count: 0,
            content: None,
            reader: None,
            ready: VecDeque::new(),
        })
    }

    fn read_value(&mut self, value: FileValue) {
        let at = FilePosition { file: Arc::clone(&self.file), line: value.line };
        let text = match value.text {
            Ok(text) => text,
            Err(problem) => return self.ready.push_back(RecordingItem::Bad { problem, at }),
        };
        match serde_json::from_str::<Value>(&text) {
            Err(error) => self.ready.push_back(RecordingItem::Bad { problem: not_json(&error), at }),
            // An empty list is ignored.
            Ok(Value::Array(list)) if list.is_empty() => {}
            Ok(value) => match header(&value) {
                Some((name, metadata)) => {
                    self.content = Some(FileContent::Messages);
                    self.begin(Some(name), metadata, at);
                    self.reader = Some(SessionReader::new(self.first));
                }
                None if is_conversation(&value) => {
                    match *self.content.get_or_insert(FileContent::Conversations) {
                        FileContent::Conversations => self.conversation(&value, &text, at),
                        FileContent::Messages => self.misplaced("a conversation among messages", at),
                    }
                }
                None => match *self.content.get_or_insert(FileContent::Messages) {
                    FileContent::Messages => {
                        for (value, text) in messages_of_response(value, text) {
                            self.message(&value, text, &at);
                        }
                    }
                    FileContent::Conversations => self.misplaced("a message among conversations", at),
                },
            },
        }
    }

    fn misplaced(&mut self, entry: &str, at: FilePosition) {
        let problem = format!("{entry}; put messages and conversations in separate files");
        self.ready.push_back(RecordingItem::Bad { problem, at });
    }

    /// Begins a session. A session without its own name gets the name [`Recording::name`]. From the second session on,
    /// a number is appended to this name.
    fn begin(&mut self, name: Option<String>, metadata: Map<String, Value>, at: FilePosition) {
        self.end();
        self.count += 1;
        let name = match name {
            Some(_) if self.named && self.single => self.name.clone(),
            Some(name) if self.named => format!("{}/{name}", self.name),
            Some(name) => name,
            None if self.count == 1 => self.name.clone(),
            None => format!("{}-{}", self.name, self.count),
        };
        self.ready.push_back(RecordingItem::Session { name, metadata, at });
    }

    /// Ends the session, and emits the last message, which the reader has not returned yet.
    fn end(&mut self) {
        if let Some(mut reading) = self.reader.take()
            && let Some(read) = reading.reader.finish()
        {
            let item = reading.complete(read, &self.file);
            self.ready.push_back(item);
        }
    }

    /// Reads a message outside a conversation. Each message may have another dialect, because several programs may
    /// write to one log.
    fn message(&mut self, value: &Value, text: String, at: &FilePosition) {
        let detected = self.requested.or_else(|| Dialect::detect(value));
        let mut reading = match self.reader.take() {
            Some(reading) if detected.is_none_or(|dialect| dialect == reading.dialect) => reading,
            Some(before) => {
                self.reader = Some(before);
                self.end();
                SessionReader::new(detected.unwrap_or(self.first))
            }
            None => {
                let (name, metadata) = (self.name.clone(), Map::new());
                self.ready.push_back(RecordingItem::Session { name, metadata, at: at.clone() });
                SessionReader::new(detected.unwrap_or(self.first))
            }
        };
        let item = push(&mut reading, text, at, self.requested.is_some(), "");
        self.ready.extend(item);
        self.reader = Some(reading);
    }

    /// Reads a conversation. Each message is parsed from its original text, so that numbers retain every digit and errors
    /// have a position.
    fn conversation(&mut self, value: &Value, text: &str, at: FilePosition) {
        let dialect = self.requested.unwrap_or_else(|| detect_in_conversation(value));
        let key = list_field(value);
        let (head, fields) = without_messages(value, key, dialect);
        let before = match dialect.read(&head) {
            Ok(messages) => messages,
            Err(error) => {
                let problem = error_text(&error, dialect, self.requested.is_some());
                return self.ready.push_back(RecordingItem::Bad { problem, at });
            }
        };
        self.begin(name_of(value), fields, at.clone());
        let message = |message| RecordingItem::Message {
            message: Box::new(message),
            at: at.clone(),
            wire_texts: WireTexts::new(),
        };
        self.ready.extend(before.into_iter().map(message));
        let mut reading = SessionReader::new(dialect);
        for (n, text) in texts(text, key).into_iter().enumerate() {
            let path = format!("{}[{n}]", key.unwrap_or(""));
            let item = push(&mut reading, text, &at, self.requested.is_some(), &path);
            self.ready.extend(item);
        }
        self.reader = Some(reading);
        self.end();
    }
}

/// Reads one wire message. Returns the message if a message is now complete, or the error if reading failed. `is_set`
/// is whether the caller set the dialect. `path` is the wire message's place in the entry, for errors.
fn push(
    reading: &mut SessionReader,
    text: String,
    at: &FilePosition,
    is_set: bool,
    path: &str,
) -> Option<RecordingItem> {
    match reading.reader.push_text(&text) {
        Ok(complete) => {
            reading.pending.push_back((at.line, text));
            complete.map(|read| reading.complete(read, &at.file))
        }
        Err(error) => {
            let error = if path.is_empty() { error } else { error.under(path) };
            let problem = error_text(&error, reading.dialect, is_set);
            Some(RecordingItem::Bad { problem, at: at.clone() })
        }
    }
}

/// Formats an error. If the caller did not set the dialect, the text contains the detected dialect, because the
/// detection may be wrong.
fn error_text(error: &DialectError, dialect: Dialect, is_set: bool) -> String {
    match is_set {
        true => error.to_string(),
        false => format!("{error} (read as {dialect}; --format sets another format)"),
    }
}

impl Iterator for Recording {
    type Item = io::Result<RecordingItem>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(Ok(item));
            }
            match self.values.next() {
                Some(Ok(value)) => self.read_value(value),
                Some(Err(error)) => return Some(Err(error)),
                None => {
                    self.end();
                    return self.ready.pop_front().map(Ok);
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

/// Returns the messages of a provider's response. Any other value is returned unchanged, as a single message.
fn messages_of_response(value: Value, text: String) -> Vec<(Value, String)> {
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
        Value::Object(object) => !object.contains_key("role") && list_field(value).is_some(),
        _ => false,
    }
}

/// Returns the name of the field that contains a request's messages. `None` if the value itself is the list of
/// messages.
fn list_field(value: &Value) -> Option<&'static str> {
    let object = value.as_object()?;
    let is_list = |key: &str| object.get(key).is_some_and(Value::is_array);
    let is_text = |key: &str| object.get(key).is_some_and(Value::is_string);
    let has_list = |dialect: &Dialect| {
        let (list, may_be_text) =
            (dialect.format().about().list_field, dialect.format().about().list_may_be_text);
        is_list(list) || (may_be_text && is_text(list) && !object.contains_key("type"))
    };
    Dialect::all().into_iter().find(has_list).map(|dialect| dialect.format().about().list_field)
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

/// Key in the session's metadata. Its value is an object with the conversation's fields, but without the messages.
pub const REQUEST: &str = "request";

/// Returns the name of the request field that contains the system prompt. `None` if the dialect has no such field.
pub fn system_prompt_field(dialect: Dialect) -> Option<&'static str> {
    dialect.format().about().system_field.map(|head| head.name)
}

/// Returns two values. The first is the conversation without its messages; the caller reads the system prompt from it.
/// The second is the session's metadata, which stores the conversation's fields in order. In these fields, the messages
/// and the system prompt are null, because they are imported as messages.
fn without_messages(value: &Value, key: Option<&str>, dialect: Dialect) -> (Value, Map<String, Value>) {
    let (Some(object), Some(key)) = (value.as_object(), key) else {
        return (Value::Array(Vec::new()), Map::new());
    };
    let mut head = object.clone();
    if object.get(key).is_some_and(Value::is_array) {
        head.insert(key.to_owned(), Value::Array(Vec::new()));
    }
    let is_imported = |name: &str| name == key || Some(name) == system_prompt_field(dialect);
    let fields: Map<String, Value> = object
        .iter()
        .map(|(name, value)| (name.clone(), if is_imported(name) { Value::Null } else { value.clone() }))
        .collect();
    let has_others = fields.keys().any(|name| name != key && name != "id");
    let metadata = has_others.then(|| (REQUEST.to_owned(), Value::Object(fields)));
    (Value::Object(head), metadata.into_iter().collect())
}

/// Returns the original JSON text of each message of a conversation.
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

fn detect_in_conversation(value: &Value) -> Dialect {
    let list = list_field(value).and_then(|key| value.get(key)).unwrap_or(value);
    let detected = list.as_array().and_then(|list| list.iter().find_map(Dialect::detect));
    detected.unwrap_or_else(|| by_fields(value))
}

/// Detects a conversation's dialect from the names of its fields. This is used if the messages do not show the dialect.
fn by_fields(conversation: &Value) -> Dialect {
    let has = |field: &str| conversation.get(field).is_some();
    let is = |dialect: &Dialect| {
        let about = dialect.format().about();
        let head = about.system_field.is_some_and(|head| has(head.name));
        has(about.list_field) && (head || about.list_field != Dialect::OPENAI.format().about().list_field)
    };
    Dialect::all().into_iter().find(is).unwrap_or(Dialect::OPENAI)
}

/// Detects the dialect from the first values of a file, and whether the file contains only one value. If no value shows
/// the dialect, returns OpenAI's dialect. Most messages that do not show a dialect are the same in all dialects.
fn detect(path: &Path) -> io::Result<(Dialect, bool)> {
    let values = FileValues::new(BufReader::new(File::open(path)?))?;
    let (mut found, mut count) = (None, 0);
    for value in values.take(MAX_VALUES_FOR_DETECTION) {
        count += 1;
        let value: Option<Value> = value?.text.ok().and_then(|text| serde_json::from_str(&text).ok());
        found = found.or_else(|| value.as_ref().and_then(Dialect::detect));
        if found.is_some() && count > 1 {
            break;
        }
    }
    Ok((found.unwrap_or(Dialect::OPENAI), count == 1))
}

/// Formats a JSON error. If the value has only one line, the text contains no line number, because the position of the
/// entry already contains the line in the file.
fn not_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let problem = text.rsplit_once(" at line ").map_or(text.as_str(), |(problem, _)| problem);
    if problem.contains("surrogate") || problem.contains("hex escape") {
        return format!("contains half of a character (a lone \\ud83d) at column {}", error.column());
    }
    if problem.contains("recursion limit") {
        return "is nested too deeply; the maximum is 128 levels".to_owned();
    }
    match error.line() {
        0 | 1 => format!("is not JSON: {problem} at column {}", error.column()),
        line => format!("is not JSON: {problem} at its line {line}, column {}", error.column()),
    }
}

/// A file that counts the bytes read from it.
struct CountingFile {
    file: File,
    read: Arc<AtomicU64>,
}

impl io::Read for CountingFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
