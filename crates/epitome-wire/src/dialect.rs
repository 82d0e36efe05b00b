//! The handle to a format, and everything that can be done with one.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use epitome_core::message::Message;
use serde_json::{Map, Value};

use crate::format::{Format, Sign};
use crate::reader::{self, Reader};
use crate::{anthropic, flags, openai, ours, registry, responses, restored};

/// A provider's wire format.
///
/// A small handle to its [`Format`], found by name: `"openai".parse()`.
#[derive(Clone, Copy)]
pub struct Dialect(pub(crate) &'static dyn Format);

impl Dialect {
    /// OpenAI's chat completions, and everybody who speaks it.
    pub const OPENAI: Self = Self(&openai::OpenAi);
    /// OpenAI's Responses.
    pub const RESPONSES: Self = Self(&responses::Responses);
    /// Anthropic's messages.
    pub const ANTHROPIC: Self = Self(&anthropic::Anthropic);
    /// Messages as this crate writes them.
    pub const OURS: Self = Self(&ours::Ours);

    /// All that are registered, those that ship first.
    #[must_use]
    pub fn all() -> Vec<Self> {
        registry::all()
    }

    /// By what it is called in flags and settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.about().name
    }

    /// Their names in a sentence: `openai, responses and anthropic`.
    #[must_use]
    pub fn names(some: &[Self]) -> String {
        let names: Vec<&str> = some.iter().map(|dialect| dialect.name()).collect();
        match names.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            _ => names.concat(),
        }
    }

    /// The first format that this provider speaks; none where there is no such provider.
    #[must_use]
    pub fn of_provider(provider: &str) -> Option<Self> {
        let speaks =
            |dialect: &Self| dialect.0.about().endpoint.is_some_and(|endpoint| endpoint.provider == provider);
        registry::all().into_iter().find(speaks)
    }

    /// What it has to say for itself.
    #[must_use]
    pub fn format(self) -> &'static dyn Format {
        self.0
    }

    /// The dialect of one wire message, where its shape tells; `None` where it could be any.
    ///
    /// ```
    /// use epitome_wire::Dialect;
    /// use serde_json::json;
    ///
    /// let result = json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1" }] });
    /// assert_eq!(Dialect::of(&result), Some(Dialect::ANTHROPIC));
    /// assert_eq!(Dialect::of(&json!({ "role": "user", "content": "Hello" })), None);
    /// ```
    #[must_use]
    pub fn of(message: &Value) -> Option<Self> {
        let fields = message.as_object()?;
        let all = registry::all();
        let shown = all.iter().filter_map(|dialect| Some((dialect.0.sign(fields)?, *dialect)));
        let clearest = shown.min_by_key(|(sign, _)| *sign);
        // Somebody's wrapper around a message, of which the wrapper tells nothing.
        if !fields.contains_key("role") && fields.get("message").is_some_and(Value::is_object) {
            return clearest.map(|(_, dialect)| dialect).filter(|dialect| dialect.0.about().is_native);
        }
        if let Some((Sign::Shape, dialect)) = clearest {
            return Some(dialect);
        }
        let pieces = fields.get("content").and_then(Value::as_array).into_iter().flatten();
        let mut kinds = pieces.filter_map(|piece| piece.get("type")?.as_str());
        let by_piece = kinds.find_map(|kind| all.iter().copied().find(|dialect| dialect.0.has_piece(kind)));
        by_piece.or(clearest.map(|(_, dialect)| dialect))
    }

    /// The dialect of a conversation whose messages tell nothing, by its other fields.
    #[must_use]
    pub fn of_fields(conversation: &Value) -> Self {
        let has = |field: &str| conversation.get(field).is_some();
        let is = |dialect: &Self| {
            let list = dialect.0.about().list;
            let head = dialect.0.about().head.is_some_and(|head| has(head.field));
            has(list) && (head || list != Self::OPENAI.0.about().list)
        };
        registry::all().into_iter().find(is).unwrap_or(Self::OPENAI)
    }

    /// Reads wire messages, one after the other.
    #[must_use]
    pub fn reader(self) -> Reader {
        Reader::new(self)
    }

    /// Reads a whole request body, or a bare list of messages.
    ///
    /// Numbers are as exact as a [`Value`] holds them; [`Dialect::read_text`] takes the text itself.
    ///
    /// ```
    /// use epitome_wire::Dialect;
    /// use serde_json::json;
    ///
    /// let wrong = json!([{ "role": "user", "content": "Hello" }, { "role": "robot", "content": "Hello" }]);
    /// let error = Dialect::OPENAI.read(&wrong).unwrap_err().to_string();
    /// assert!(error.starts_with("messages[1].role: \"robot\" is unknown"));
    /// ```
    pub fn read(self, body: &Value) -> Result<Vec<Message>, DialectError> {
        reader::read(self, body)
    }

    /// As [`Dialect::read`], of the text of a body: every digit of every number is kept.
    ///
    /// ```
    /// use epitome_wire::Dialect;
    ///
    /// let list = r#"[{"role":"user","content":"Hello","x":1e2}]"#;
    /// let messages = Dialect::OPENAI.read_text(list)?;
    /// assert_eq!(Dialect::OPENAI.restore_text(&messages), [r#"{"role":"user","content":"Hello","x":1e2}"#]);
    /// # Ok::<(), epitome_wire::DialectError>(())
    /// ```
    pub fn read_text(self, body: &str) -> Result<Vec<Message>, DialectError> {
        reader::read_text(self, body)
    }

    /// The fields of a request that carry these messages, ready to be sent.
    ///
    /// The list is one the core's view made: pairs and order are right. `{"messages"}` for chat and for ours,
    /// `{"input"}` for Responses, with `instructions` where they came as such, `{"system", "messages"}` for
    /// Anthropic. A list that only grew at its end is spelled as before, but for its last message.
    #[must_use]
    pub fn write(self, messages: &[Message]) -> Map<String, Value> {
        self.0.write(messages)
    }

    /// The messages as they came in, where they came in this dialect, and plainly spelled where not.
    ///
    /// Flags are as they are now. A system prompt that was a field of the request is a message of the role `system`
    /// (Anthropic) or an item `{"instructions": …}` (Responses); [`Dialect::restore_body`] puts it where it was.
    ///
    /// ```
    /// use epitome_wire::Dialect;
    /// use serde_json::json;
    ///
    /// let came = json!([{ "id": 7, "role": "user", "content": [{ "type": "text", "text": "Hello", "new": null }] }]);
    /// let mut messages = Dialect::OPENAI.read(&came)?;
    /// assert_eq!(json!(Dialect::OPENAI.restore(&messages)), came);
    ///
    /// messages[0].pinned = true;
    /// assert_eq!(Dialect::OPENAI.restore(&messages)[0]["epitome"], json!({ "pinned": true }));
    /// # Ok::<(), epitome_wire::DialectError>(())
    /// ```
    #[must_use]
    pub fn restore(self, messages: &[Message]) -> Vec<Value> {
        messages.iter().flat_map(|message| restored::of(self, message).values()).collect()
    }

    /// As [`Dialect::restore`], as text: every number is spelled as it was in what [`Reader::push_text`] took in.
    #[must_use]
    pub fn restore_text(self, messages: &[Message]) -> Vec<String> {
        messages.iter().flat_map(|message| restored::of(self, message).texts()).collect()
    }

    /// The fields of the body that [`Dialect::read`] took in, as they came.
    #[must_use]
    pub fn restore_body(self, messages: &[Message]) -> Map<String, Value> {
        self.0.restore_body(self.restore(messages))
    }

    /// One wire message, flags included, residue not.
    pub(crate) fn understood(self, wire: &Value) -> Result<Message, DialectError> {
        let mut message = self.0.read(wire)?;
        if let Some(fields) = wire.as_object().filter(|_| !self.0.about().is_native) {
            (message.pinned, message.skip) = flags::of(fields)?;
        }
        Ok(message)
    }
}

impl PartialEq for Dialect {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Dialect {}

impl Hash for Dialect {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dialect").field(&self.name()).finish()
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
        let all = Self::all();
        all.iter().copied().find(|dialect| dialect.name() == name).ok_or_else(|| {
            DialectError::new("", format!("{name:?}: no such format; there are {}", Self::names(&all)))
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
    /// What is wrong, and where in the message.
    #[must_use]
    pub fn new(place: &str, what: impl Into<String>) -> Self {
        Self { place: place.to_owned(), what: what.into() }
    }

    /// The same, seen from further out: `messages[3]` around `role`.
    #[must_use]
    pub fn under(self, outer: &str) -> Self {
        let dot = if self.place.is_empty() || self.place.starts_with('[') { "" } else { "." };
        Self { place: format!("{outer}{dot}{}", self.place), what: self.what }
    }

    /// The same, where the outermost field has another name on the wire.
    pub(crate) fn renamed(self, field: &str) -> Self {
        let inner = self.place.find(['.', '[']).and_then(|end| self.place.get(end..)).unwrap_or_default();
        Self { place: format!("{field}{inner}"), what: self.what }
    }
}
