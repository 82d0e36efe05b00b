//! Reads recorded conversations from files.
//!
//! A file contains one message per line, one conversation per line (`{"id": …, "messages": […]}` or a whole request), or one
//! JSON document: a request, or a list of messages or conversations. Each conversation becomes a session of its own.
//! Messages outside a conversation belong to the file's session. Files are read as a stream, so a file of any length needs
//! only the memory of its largest line.
//!
//! An entry that cannot be read is returned as [`RecordingItem::Bad`] with its position, and reading continues after it. The caller
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

mod values;

use values::{FileValue, FileValues};

/// Maximum number of values that are read to detect a file's dialect.
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
        /// Position of its beginning.
        at: FilePosition,
    },
    /// A message of the current session.
    Message {
        /// The message.
        message: Box<Message>,
        /// Position of its first wire message.
        at: FilePosition,
        /// The wire messages it was made of, if there are several.
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

/// The wire messages that a message was made of, if there are several. A recording that was read while it was still being
/// written may contain only the first of them.
pub type WireTexts = Vec<String>;

/// A file of conversations.
pub struct Recording {
    values: FileValues<BufReader<CountingFile>>,
    file: Arc<str>,
    /// Name of the session for messages outside a conversation, and of conversations without a name.
    name: String,
    /// Whether the caller set this name. Then it is also the prefix of the conversations' names.
    named: bool,
    /// Whether the file contains only one value. Then a conversation gets the caller's name without its own name appended.
    single: bool,
    /// The dialect that the caller set, if any.
    requested: Option<Dialect>,
    /// Dialect of messages outside a conversation, until a message shows another dialect.
    first: Dialect,
    /// Number of conversations read so far.
    count: u64,
    /// What the file contains, detected from its first piece. An entry of the other kind is an error.
    content: Option<FileContent>,
    /// Reads the messages of the current session.
    reader: Option<SessionReader>,
    ready: VecDeque<RecordingItem>,
}

/// What a file contains.
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

    /// Returns a complete message. Its position is that of its first wire message.
    fn complete(&mut self, read: ReadMessage, file: &Arc<str>) -> RecordingItem {
        let count = read.count.min(self.pending.len());
        let (lines, texts): (Vec<u64>, Vec<String>) = self.pending.drain(..count).unzip();
        let at = FilePosition { file: Arc::clone(file), line: lines.first().copied().unwrap_or(0) };
        let wire_texts = if texts.len() > 1 { texts } else { WireTexts::new() };
        RecordingItem::Message { message: Box::new(read.message), at, wire_texts }
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
        let problem = format!("{entry}; put it in a file of its own");
        self.ready.push_back(RecordingItem::Bad { problem, at });
    }

    /// Begins a session. A session without a name gets the file's name, and a number from the second one on.
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

    /// Ends the session, and emits the message that the reader has not yet returned.
    fn end(&mut self) {
        if let Some(mut reading) = self.reader.take()
            && let Some(read) = reading.reader.finish()
        {
            let item = reading.complete(read, &self.file);
            self.ready.push_back(item);
        }
    }

    /// Reads a message outside a conversation. The dialect may differ from message to message, because several programs may
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

/// Reads one wire message. Returns the message that is now complete, if any, or the error.
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

/// Formats an error. If the dialect was detected, the text names it, because the detection may be wrong.
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

/// Returns the messages of a provider's response; for any other value, the value itself as a single message.
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

/// Returns the field that contains a request's messages; `None` if the value itself is the list.
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

/// Key in the session's metadata that stores the other fields of the conversation.
pub const REQUEST: &str = "request";

/// Returns the field of a request that contains the system prompt.
pub fn system_prompt_field(dialect: Dialect) -> Option<&'static str> {
    dialect.format().about().system_field.map(|head| head.name)
}

/// Returns the conversation without its messages, to be parsed; and its fields in order, to be stored as metadata. In the
/// stored fields, the messages and the system prompt are null, because they are imported as messages.
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

fn detect_in_conversation(value: &Value) -> Dialect {
    let list = list_field(value).and_then(|key| value.get(key)).unwrap_or(value);
    let detected = list.as_array().and_then(|list| list.iter().find_map(Dialect::detect));
    detected.unwrap_or_else(|| by_fields(value))
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

/// Formats a JSON error. The line number inside a one-line value is left out, because the position already has the file's
/// line.
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
