//! Providers' wire formats: pure mappings, used by models, import, contexts and the proxy alike.
//!
//! There are two ways out. [`Dialect::restore`] gives a message back as it came, value for value: what our own form
//! does not hold is kept beside it ([`Message::wire`]). [`Dialect::write`] makes a request of a list that the core's
//! view has made valid ([`epitome_core::view`]): it spells what this one provider accepts, deterministically, and
//! sends nothing of ours along.
//!
//! ```
//! use epitome::dialect::Dialect;
//! use serde_json::json;
//!
//! let request = json!({ "system": "Be brief.", "messages": [
//!     { "role": "user", "content": "Which day?", "x-note": 7 },
//!     { "role": "assistant", "content": [{ "type": "tool_use", "id": "t1", "name": "today", "input": {} }] },
//!     { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1", "content": "Friday" }] },
//! ] });
//! let messages = Dialect::Anthropic.read(&request)?;
//! assert_eq!(serde_json::Value::Object(Dialect::Anthropic.restore_body(&messages)), request);
//!
//! let chat = Dialect::OpenAi.write(&messages);
//! assert_eq!(chat["messages"][0], json!({ "role": "system", "content": "Be brief." }));
//! assert_eq!(chat["messages"][1], json!({ "role": "user", "content": "Which day?" }));
//! assert_eq!(chat["messages"][3], json!({ "role": "tool", "tool_call_id": "t1", "content": "Friday" }));
//! # Ok::<(), epitome::dialect::DialectError>(())
//! ```
//!
//! One file for each dialect; what they share is in `fit` (made to be sent), `media`, `flags`, `field` (complaints
//! that name the place), `residue` and `exact` (given back as it came). Nothing here knows a network, a store or a
//! model's window, and no list is mended: orphans and open calls are the view's matter.

use std::fmt;
use std::str::FromStr;

use epitome_core::message::{Message, Part};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

mod anthropic;
mod exact;
mod field;
mod fit;
mod flags;
mod media;
mod openai;
mod ours;
mod residue;
mod responses;

/// Deeper residues are kept as text: what is stored nests them once more, and readers give up at 128.
const DEEPEST: usize = 64;

/// A provider's wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI's chat completions, and everybody who speaks it.
    OpenAi,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's messages.
    Anthropic,
    /// Messages as this crate writes them.
    Ours,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::OpenAi, Self::Responses, Self::Anthropic, Self::Ours];

    /// By what it is called in flags and settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Responses => "responses",
            Self::Anthropic => "anthropic",
            Self::Ours => "epitome",
        }
    }

    /// The dialect of one wire message, where its shape tells; `None` where it could be any.
    ///
    /// ```
    /// use epitome::dialect::Dialect;
    /// use serde_json::json;
    ///
    /// let result = json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1" }] });
    /// assert_eq!(Dialect::of(&result), Some(Dialect::Anthropic));
    /// assert_eq!(Dialect::of(&json!({ "role": "user", "content": "Hello" })), None);
    /// ```
    #[must_use]
    pub fn of(message: &Value) -> Option<Self> {
        let fields = message.as_object()?;
        if fields.get("parts").is_some_and(Value::is_array) {
            return Some(Self::Ours);
        }
        let kinds = fields.get("content").and_then(Value::as_array).into_iter().flatten();
        let by_content = kinds.filter_map(|piece| piece.get("type")?.as_str()).find_map(|kind| match kind {
            "input_text" | "output_text" | "input_image" | "input_file" => Some(Self::Responses),
            "image_url" | "input_audio" | "file" | "refusal" => Some(Self::OpenAi),
            "tool_use" | "tool_result" | "thinking" | "redacted_thinking" | "image" | "document" => {
                Some(Self::Anthropic)
            }
            kind if kind.ends_with("tool_use") || kind.ends_with("tool_result") => Some(Self::Anthropic),
            _ => None,
        });
        if by_content.is_some() {
            return by_content;
        }
        if fields.get("type").is_some_and(Value::is_string) {
            return Some(Self::Responses);
        }
        let chat = ["tool_calls", "tool_call_id", "function_call", "reasoning_content"];
        let role = fields.get("role").and_then(Value::as_str);
        let is_chat = chat.iter().any(|key| fields.contains_key(*key))
            || matches!(role, Some("tool" | "function" | "developer"));
        is_chat.then_some(Self::OpenAi)
    }

    /// Reads wire messages, one after the other.
    #[must_use]
    pub fn reader(self) -> Reader {
        Reader { dialect: self, pending: None }
    }

    /// Reads a whole request body, or a bare list of messages.
    ///
    /// Numbers are as exact as a [`Value`] holds them; [`Dialect::read_text`] takes the text itself.
    ///
    /// ```
    /// use epitome::dialect::Dialect;
    /// use serde_json::json;
    ///
    /// let wrong = json!([{ "role": "user", "content": "Hello" }, { "role": "robot", "content": "Hello" }]);
    /// let error = Dialect::OpenAi.read(&wrong).unwrap_err().to_string();
    /// assert!(error.starts_with("messages[1].role: \"robot\" is unknown"));
    /// ```
    pub fn read(self, body: &Value) -> Result<Vec<Message>, DialectError> {
        let (head, list, key) = self.parted(body)?;
        let mut reader = self.reader();
        let mut out = Vec::new();
        for wire in &head {
            out.extend(reader.push(wire).map_err(|error| error.renamed(&self.head_field()))?);
        }
        for (at, wire) in list.iter().enumerate() {
            out.extend(reader.push(wire).map_err(|error| error.under(&format!("{key}[{at}]")))?);
        }
        out.extend(reader.finish());
        Ok(out.into_iter().map(|read| read.message).collect())
    }

    /// As [`Dialect::read`], of the text of a body: every digit of every number is kept.
    ///
    /// ```
    /// use epitome::dialect::Dialect;
    ///
    /// let list = r#"[{"role":"user","content":"Hello","x":1e2}]"#;
    /// let messages = Dialect::OpenAi.read_text(list)?;
    /// assert_eq!(Dialect::OpenAi.restore_text(&messages), [r#"{"role":"user","content":"Hello","x":1e2}"#]);
    /// # Ok::<(), epitome::dialect::DialectError>(())
    /// ```
    pub fn read_text(self, body: &str) -> Result<Vec<Message>, DialectError> {
        let value: Value = parsed(body)?;
        let (head, _, key) = self.parted(&value)?;
        let list = if value.is_array() { Some(body) } else { None };
        let fields: std::collections::HashMap<String, &RawValue>;
        let list = match list {
            Some(list) => list,
            None => {
                fields = serde_json::from_str(body).map_err(|error| unreadable(&error))?;
                fields.get(key).map(|list| list.get()).unwrap_or("[]")
            }
        };
        // An `input` that is a bare string has no list, and no number to lose.
        let Ok(list) = serde_json::from_str::<Vec<&RawValue>>(list) else { return self.read(&value) };
        let mut reader = self.reader();
        let mut out = Vec::new();
        for wire in &head {
            out.extend(reader.push(wire).map_err(|error| error.renamed(&self.head_field()))?);
        }
        for (at, wire) in list.into_iter().enumerate() {
            out.extend(reader.push_text(wire.get()).map_err(|error| error.under(&format!("{key}[{at}]")))?);
        }
        out.extend(reader.finish());
        Ok(out.into_iter().map(|read| read.message).collect())
    }

    /// The fields of a request that carry these messages, ready to be sent.
    ///
    /// The list is one the core's view made: pairs and order are right. `{"messages"}` for chat and for ours,
    /// `{"input"}` for Responses, with `instructions` where they came as such, `{"system", "messages"}` for
    /// Anthropic. A list that only grew at its end is spelled as before, but for its last message.
    #[must_use]
    pub fn write(self, messages: &[Message]) -> Map<String, Value> {
        match self {
            Self::OpenAi => openai::write(messages),
            Self::Responses => {
                let came_so = |message: &Message| {
                    message.role.is_system()
                        && matches!(self.restored(message).values().as_slice(),
                            [Value::Object(item)] if item.contains_key(responses::INSTRUCTIONS))
                };
                responses::write(messages, messages.first().is_some_and(came_so))
            }
            Self::Anthropic => anthropic::write(messages),
            Self::Ours => ours::write(messages, self.name()),
        }
    }

    /// The messages as they came in, where they came in this dialect, and plainly spelled where not.
    ///
    /// Flags are as they are now. A system prompt that was a field of the request is a message of the role `system`
    /// (Anthropic) or an item `{"instructions": …}` (Responses); [`Dialect::restore_body`] puts it where it was.
    ///
    /// ```
    /// use epitome::dialect::Dialect;
    /// use serde_json::json;
    ///
    /// let came = json!([{ "id": 7, "role": "user", "content": [{ "type": "text", "text": "Hello", "new": null }] }]);
    /// let mut messages = Dialect::OpenAi.read(&came)?;
    /// assert_eq!(json!(Dialect::OpenAi.restore(&messages)), came);
    ///
    /// messages[0].pinned = true;
    /// assert_eq!(Dialect::OpenAi.restore(&messages)[0]["epitome"], json!({ "pinned": true }));
    /// # Ok::<(), epitome::dialect::DialectError>(())
    /// ```
    #[must_use]
    pub fn restore(self, messages: &[Message]) -> Vec<Value> {
        messages.iter().flat_map(|message| self.restored(message).values()).collect()
    }

    /// As [`Dialect::restore`], as text: every number is spelled as it was in what [`Reader::push_text`] took in.
    #[must_use]
    pub fn restore_text(self, messages: &[Message]) -> Vec<String> {
        messages.iter().flat_map(|message| self.restored(message).texts()).collect()
    }

    /// The fields of the body that [`Dialect::read`] took in, as they came.
    #[must_use]
    pub fn restore_body(self, messages: &[Message]) -> Map<String, Value> {
        let mut list = self.restore(messages);
        let mut fields = Map::new();
        match self {
            Self::OpenAi | Self::Ours => {}
            Self::Anthropic => {
                let is_system = |wire: &Value| wire.get("role").is_some_and(|role| role == "system");
                let head = list.iter().take_while(|wire| is_system(wire)).count();
                let system: Vec<Value> =
                    list.drain(..head).filter_map(|mut wire| Some(wire.get_mut("content")?.take())).collect();
                fields.extend(joined(system).map(|system| ("system".to_owned(), system)));
            }
            Self::Responses => {
                let first = list.first_mut().and_then(|item| item.get_mut(responses::INSTRUCTIONS));
                if let Some(instructions) = first.map(Value::take) {
                    fields.insert(responses::INSTRUCTIONS.to_owned(), instructions);
                    list.remove(0);
                }
                let input = match list.as_slice() {
                    [text @ Value::String(_)] => text.clone(),
                    _ => Value::Array(list),
                };
                fields.insert("input".to_owned(), input);
                return fields;
            }
        }
        fields.insert("messages".to_owned(), Value::Array(list));
        fields
    }

    /// What stands for the request's own fields, its list, and the name of that.
    fn parted(self, body: &Value) -> Result<(Vec<Value>, Vec<Value>, &'static str), DialectError> {
        let key = if self == Self::Responses { "input" } else { "messages" };
        let fields = match body {
            Value::Array(list) => return Ok((Vec::new(), list.clone(), key)),
            Value::Object(fields) => fields,
            other => return Err(field::wrong("", other, "a request or a list of messages")),
        };
        if self == Self::Responses {
            return responses::parted(fields).map(|(head, list)| (head, list, key));
        }
        let list = match fields.get(key) {
            None => return Err(DialectError::new(key, "is missing")),
            Some(Value::Array(list)) => list.clone(),
            Some(other) => return Err(field::wrong(key, other, "a list")),
        };
        let system = fields.get("system").filter(|system| self == Self::Anthropic && !system.is_null());
        let head = system.map(|system| json!({ "role": "system", "content": system }));
        Ok((head.into_iter().collect(), list, key))
    }

    fn head_field(self) -> String {
        if self == Self::Responses { responses::INSTRUCTIONS } else { "system" }.to_owned()
    }

    /// One wire message, flags included, residue not.
    fn understood(self, wire: &Value) -> Result<Message, DialectError> {
        let mut message = match self {
            Self::OpenAi => openai::read(wire)?,
            Self::Responses => responses::read(wire)?,
            Self::Anthropic => anthropic::read(wire)?,
            Self::Ours => return ours::read(wire),
        };
        if let Some(fields) = wire.as_object() {
            (message.pinned, message.skip) = flags::of(fields)?;
        }
        Ok(message)
    }

    /// One message the plain way, without flags.
    fn spelled(self, message: &Message) -> Vec<Value> {
        match self {
            Self::OpenAi => openai::spell(message),
            Self::Responses => responses::spell(message),
            Self::Anthropic => anthropic::spell(message),
            Self::Ours => ours::spell(message, self.name()),
        }
    }

    fn restored(self, message: &Message) -> Restored {
        let plain = || {
            let mut plain = self.spelled(message);
            self.show(&mut plain, message);
            Restored::Values(plain)
        };
        let residue = message.wire.as_deref().and_then(|wire| wire.get(self.name()));
        let Some(residue) = residue else { return plain() };
        let texts: Option<Vec<String>> = residue
            .get("raw")
            .and_then(Value::as_array)
            .map(|texts| texts.iter().filter_map(Value::as_str).map(str::to_owned).collect());
        let came = match &texts {
            Some(texts) => texts.iter().map(|text| serde_json::from_str(text).ok()).collect(),
            None => residue::apply(&self.spelled(message), residue),
        };
        // Parts may have been changed since, and a residue may be anybody's: what is read again must be the message.
        let Some(mut came) = came.filter(|came: &Vec<Value>| self.reads_as(came, message)) else {
            return plain();
        };
        let before = texts.is_some().then(|| came.clone());
        if !self.show(&mut came, message) {
            return plain();
        }
        match (texts, before) {
            (Some(texts), Some(before)) if before == came => Restored::Texts(texts),
            _ => Restored::Values(came),
        }
    }

    /// Whether these items say what the message says, flags and places aside.
    fn reads_as(self, items: &[Value], message: &Message) -> bool {
        let mut read: Option<Message> = None;
        for item in items {
            let Ok(next) = self.understood(item) else { return false };
            read = Some(match read {
                None => next,
                Some(reply) => joined_reply(reply, next),
            });
        }
        read.is_some_and(|mut read| {
            if self == Self::Responses {
                read.parts = blank_if_nothing(read.parts);
            }
            read.role == message.role
                && read.parts == message.parts
                && read.author == message.author
                && (self != Self::Ours || read.metadata == message.metadata)
        })
    }

    /// Makes the items say the message's flags. False where they cannot.
    fn show(self, items: &mut [Value], message: &Message) -> bool {
        if self == Self::Ours {
            ours::show(items, message);
            return true;
        }
        flags::show(items, message)
    }
}

/// What stood at the head of a request: one as it is, several as one list of blocks.
fn joined(mut contents: Vec<Value>) -> Option<Value> {
    if contents.len() < 2 {
        return contents.pop();
    }
    let blocks = contents.into_iter().flat_map(|content| match content {
        Value::Array(blocks) => blocks,
        text => vec![json!({ "type": "text", "text": text })],
    });
    Some(blocks.collect())
}

/// A reply with one more of its items.
fn joined_reply(mut reply: Message, next: Message) -> Message {
    reply.parts.extend(next.parts);
    reply.pinned |= next.pinned;
    reply.skip |= next.skip;
    reply
}

/// A message holds at least one part: an empty text stands where there is nothing to say, and only there.
fn blank_if_nothing(mut parts: Vec<Part>) -> Vec<Part> {
    let is_empty = |part: &Part| matches!(part, Part::Text { text } if text.is_empty());
    if parts.iter().any(|part| !is_empty(part)) {
        parts.retain(|part| !is_empty(part));
    } else {
        parts = vec![Part::text("")];
    }
    parts
}

fn parsed(text: &str) -> Result<Value, DialectError> {
    serde_json::from_str(text).map_err(|error| unreadable(&error))
}

fn unreadable(error: &serde_json::Error) -> DialectError {
    // It says what is wrong and where, never what stands there.
    DialectError::new("", format!("is no JSON: {error}"))
}

/// A message on its way out.
enum Restored {
    Values(Vec<Value>),
    /// As they were written.
    Texts(Vec<String>),
}

impl Restored {
    fn values(self) -> Vec<Value> {
        match self {
            Self::Values(values) => values,
            Self::Texts(texts) => texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect(),
        }
    }

    fn texts(self) -> Vec<String> {
        match self {
            Self::Values(values) => values.iter().map(Value::to_string).collect(),
            Self::Texts(texts) => texts,
        }
    }
}

/// Reads wire messages, one after the other: a reply may be made of several.
///
/// ```
/// use epitome::dialect::Dialect;
/// use serde_json::json;
///
/// let mut reader = Dialect::Responses.reader();
/// assert_eq!(reader.push(&json!({ "type": "reasoning", "id": "rs_1", "summary": [] }))?, None);
/// let call = json!({ "type": "function_call", "call_id": "c1", "name": "today", "arguments": "{}" });
/// assert_eq!(reader.push(&call)?, None);
/// let reply = reader.finish().unwrap();
/// assert_eq!((reply.count, reply.message.parts.len()), (2, 2));
/// # Ok::<(), epitome::dialect::DialectError>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    dialect: Dialect,
    /// What may go on with the next one. Only Responses have replies in several items.
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    message: Message,
    came: Vec<Value>,
    /// The texts they were read of, for those that say more than their values.
    texts: Vec<Option<String>>,
}

/// A message, and of how many wire messages it was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    /// The message.
    pub message: Message,
    /// How many wire messages it stands for.
    pub count: usize,
}

impl Reader {
    /// Takes the next one in, and gives what is complete by now. One that is refused changes nothing.
    pub fn push(&mut self, wire: &Value) -> Result<Option<Read>, DialectError> {
        self.take(wire.clone(), None)
    }

    /// As [`Reader::push`], of the text of one wire message: where a [`Value`] would lose a digit of a number or a
    /// key that is there twice, the text itself is kept.
    pub fn push_text(&mut self, wire: &str) -> Result<Option<Read>, DialectError> {
        let value = parsed(wire)?;
        let text = (!exact::is_exact(wire, &value)).then(|| wire.trim().to_owned());
        self.take(value, text)
    }

    /// What is left at the end.
    pub fn finish(&mut self) -> Option<Read> {
        self.pending.take().map(|pending| pending.read(self.dialect))
    }

    fn take(&mut self, wire: Value, text: Option<String>) -> Result<Option<Read>, DialectError> {
        let message = self.dialect.understood(&wire)?;
        let next = Pending { message, came: vec![wire], texts: vec![text] };
        if self.dialect != Dialect::Responses {
            return Ok(Some(next.read(self.dialect)));
        }
        Ok(match self.pending.take() {
            Some(pending) if responses::goes_on(&pending.message, &next.message) => {
                self.pending = Some(pending.and(next));
                None
            }
            before => {
                self.pending = Some(next);
                before.map(|before| before.read(self.dialect))
            }
        })
    }
}

impl Pending {
    fn and(mut self, next: Self) -> Self {
        self.message = joined_reply(self.message, next.message);
        self.came.extend(next.came);
        self.texts.extend(next.texts);
        self
    }

    /// The message, with what its plain spelling does not say.
    fn read(self, dialect: Dialect) -> Read {
        let Self { mut message, came, texts } = self;
        if dialect == Dialect::Responses {
            message.parts = blank_if_nothing(message.parts);
        }
        let whole = |texts: Vec<Option<String>>| {
            let whole =
                texts.into_iter().zip(&came).map(|(text, value)| text.unwrap_or_else(|| value.to_string()));
            json!({ "raw": whole.collect::<Vec<_>>() })
        };
        let residue = if texts.iter().any(Option::is_some) {
            Some(whole(texts))
        } else {
            let residue = residue::diff(&dialect.spelled(&message), &came);
            residue.map(|found| if residue::depth(&found) > DEEPEST { whole(texts) } else { found })
        };
        if let Some(residue) = residue {
            let wire = message.wire.get_or_insert_with(|| Box::new(json!({})));
            if let Some(wire) = wire.as_object_mut() {
                wire.insert(dialect.name().to_owned(), residue);
            }
        }
        Read { message, count: came.len() }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Dialect {
    type Err = DialectError;

    fn from_str(name: &str) -> Result<Self, DialectError> {
        let found = Self::ALL.into_iter().find(|dialect| dialect.name() == name);
        found.ok_or_else(|| {
            let there_are = "no such format; there are openai, responses, anthropic and epitome";
            DialectError::new("", format!("{name:?}: {there_are}"))
        })
    }
}

/// What is wrong with a wire message, and where in it: one line that repeats nothing of what was said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}{}{what}", if place.is_empty() { "" } else { ": " })]
pub struct DialectError {
    /// As in `messages[3].content[1].type`; empty where it is the whole.
    place: String,
    what: String,
}

impl DialectError {
    fn new(place: &str, what: impl Into<String>) -> Self {
        Self { place: place.to_owned(), what: what.into() }
    }

    /// The same, seen from further out.
    fn under(self, outer: &str) -> Self {
        let dot = if self.place.is_empty() || self.place.starts_with('[') { "" } else { "." };
        Self { place: format!("{outer}{dot}{}", self.place), what: self.what }
    }

    /// The same, where the outermost field has another name on the wire.
    fn renamed(self, field: &str) -> Self {
        let inner = self.place.find(['.', '[']).and_then(|end| self.place.get(end..)).unwrap_or_default();
        Self { place: format!("{field}{inner}"), what: self.what }
    }
}
