//! Reads wire messages: one after the other, or all messages of a request.
//!
//! The dialect reads each wire message and encodes the result again. The encoded form may differ from the
//! received form. This difference is the residue. It is stored with the message, so that the received form can
//! be restored.

use epitome_core::message::{Message, Role};
use serde_json::{Value, json};

use crate::raw::{self, RawFields};
use crate::{Dialect, DialectError, blank_if_nothing, exact, field, residue};

/// Maximum nesting depth of a residue, in levels. A deeper residue is stored as text. The stored message adds
/// more levels around the residue, and parsers reject JSON with more than 128 levels.
const MAX_DEPTH: usize = 64;

/// Reads wire messages, one after the other. One reply may consist of several wire messages.
///
/// ```
/// use epitome_wire::Dialect;
/// use serde_json::json;
///
/// let mut reader = Dialect::RESPONSES.reader();
/// assert_eq!(reader.push(&json!({ "type": "reasoning", "id": "rs_1", "summary": [] }))?, None);
/// let call = json!({ "type": "function_call", "call_id": "c1", "name": "today", "arguments": "{}" });
/// assert_eq!(reader.push(&call)?, None);
/// let reply = reader.finish().unwrap();
/// assert_eq!((reply.count, reply.message.parts.len()), (2, 2));
/// # Ok::<(), epitome_wire::DialectError>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    dialect: Dialect,
    /// The last message that was read, which the next item may continue. Used only in formats in which a reply
    /// may consist of several items.
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    message: Message,
    /// The wire messages from which the message was read.
    received: Vec<Value>,
    /// For each wire message, its original text if a [`Value`] does not represent the text exactly, else
    /// `None`.
    texts: Vec<Option<String>>,
}

/// A message, and the number of wire messages from which it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadMessage {
    /// The message.
    pub message: Message,
    /// Number of wire messages.
    pub count: usize,
}

impl Dialect {
    /// Creates a reader that reads wire messages one after the other.
    pub fn reader(self) -> Reader {
        Reader { dialect: self, pending: None }
    }

    /// Reads a request body, or a bare list of messages.
    ///
    /// Numbers have the precision of a [`Value`]. To preserve every digit, use [`Dialect::read_text`].
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
        self.read_list(body, &[])
    }

    /// Reads the text of a request body, or of a bare list of messages. Unlike [`Dialect::read`], this function
    /// preserves every digit of every number.
    ///
    /// ```
    /// use epitome_wire::Dialect;
    ///
    /// let list = r#"[{"role":"user","content":"Hello","x":1e2}]"#;
    /// let messages = Dialect::OPENAI.read_text(list)?;
    /// assert_eq!(Dialect::OPENAI.restore_text(&messages), [r#"{"role":"user","content":"Hello","x":1e2}"#]);
    /// # Ok::<(), epitome_wire::DialectError>(())
    /// ```
    pub fn read_text(self, text: &str) -> Result<Vec<Message>, DialectError> {
        let body = parse_json(text)?;
        let field = || RawFields::of(text).get(self.0.about().list_field).unwrap_or_default();
        let list = if body.is_array() { text } else { field() };
        // If `input` is a string, there is no list, and there are no numbers that could lose digits.
        self.read_list(&body, &raw::items(list))
    }

    /// Reads a request body, or a bare list of messages. `texts` are the JSON texts of the list's items; empty
    /// if they are not available.
    fn read_list(self, body: &Value, texts: &[&str]) -> Result<Vec<Message>, DialectError> {
        let about = self.0.about();
        let mut reader = self.reader();
        let mut out = Vec::new();
        let list = match (body, body.get(about.list_field)) {
            (Value::Array(list), _) | (_, Some(Value::Array(list))) => list,
            (Value::Object(_), Some(text @ Value::String(_))) if about.list_may_be_text => {
                std::slice::from_ref(text)
            }
            (Value::Object(_), Some(other)) => {
                return Err(field::wrong_type(about.list_field, other, list_types(self)));
            }
            (Value::Object(_), None) => return Err(field::missing(about.list_field)),
            (other, _) => return Err(field::wrong_type("", other, "a request or a list of messages")),
        };
        if let Some(head) = about.system_field
            && let Some(value) = body.get(head.name).filter(|value| !value.is_null())
            && let Ok(message) = serde_json::from_str(&head.message(&value.to_string()))
        {
            out.extend(reader.read_one(message, None).map_err(|error| error.renamed(head.name))?);
        }
        for (at, wire) in list.iter().enumerate() {
            let text = texts.get(at).filter(|text| !exact::is_exact(text, wire));
            let read = reader.read_one(wire.clone(), text.map(|text| text.trim().to_owned()));
            out.extend(read.map_err(|error| error.under(&format!("{}[{at}]", about.list_field)))?);
        }
        out.extend(reader.finish());
        Ok(out.into_iter().map(|read| read.message).collect())
    }
}

impl Reader {
    /// Reads the next wire message, and returns the message that is now complete. `None` if no message is
    /// complete yet. An invalid wire message does not change the reader.
    pub fn push(&mut self, wire: &Value) -> Result<Option<ReadMessage>, DialectError> {
        self.read_one(wire.clone(), None)
    }

    /// Reads the next wire message from its JSON text. If a [`Value`] would lose a digit or a duplicate key,
    /// the text is stored with the message. Returns the same message as [`Reader::push`].
    pub fn push_text(&mut self, wire: &str) -> Result<Option<ReadMessage>, DialectError> {
        let value = parse_json(wire)?;
        let text = (!exact::is_exact(wire, &value)).then(|| wire.trim().to_owned());
        self.read_one(value, text)
    }

    /// Returns the last message. Call it after the last wire message. `None` if all messages were already
    /// returned.
    pub fn finish(&mut self) -> Option<ReadMessage> {
        self.pending.take().map(|pending| pending.read(self.dialect))
    }

    fn read_one(&mut self, wire: Value, text: Option<String>) -> Result<Option<ReadMessage>, DialectError> {
        let message = self.dialect.read_new_message(&wire)?;
        let next = Pending { message, received: vec![wire], texts: vec![text] };
        if !self.dialect.0.about().reply_is_items {
            return Ok(Some(next.read(self.dialect)));
        }
        if let Some(pending) =
            self.pending.as_mut().filter(|before| continues_reply(&before.message, &next.message))
        {
            join_reply(&mut pending.message, next.message);
            pending.received.extend(next.received);
            pending.texts.extend(next.texts);
            return Ok(None);
        }
        Ok(self.pending.replace(next).map(|before| before.read(self.dialect)))
    }
}

impl Pending {
    /// Returns the message with its residue.
    fn read(self, dialect: Dialect) -> ReadMessage {
        let Self { mut message, received, texts } = self;
        if dialect.0.about().reply_is_items {
            message.parts = blank_if_nothing(message.parts);
        }
        let as_text = |texts: Vec<Option<String>>| {
            let texts = texts
                .into_iter()
                .zip(&received)
                .map(|(text, value)| text.unwrap_or_else(|| value.to_string()));
            json!({ "raw": texts.collect::<Vec<_>>() })
        };
        let residue = if texts.iter().any(Option::is_some) {
            Some(as_text(texts))
        } else {
            let residue = residue::diff(&dialect.0.encode(&message), &received);
            residue.map(|edit| if residue::depth(&edit) > MAX_DEPTH { as_text(texts) } else { edit })
        };
        if let Some(residue) = residue {
            let wire = message.wire.get_or_insert_with(|| Box::new(json!({})));
            if let Some(wire) = wire.as_object_mut() {
                wire.insert(dialect.name().to_owned(), residue);
            }
        }
        ReadMessage { message, count: received.len() }
    }
}

/// Returns whether an item continues the reply before it.
pub(crate) fn continues_reply(reply: &Message, next: &Message) -> bool {
    reply.role == Role::Assistant && next.role == Role::Assistant
}

/// Adds one more item to a reply.
pub(crate) fn join_reply(reply: &mut Message, next: Message) {
    reply.parts.extend(next.parts);
    reply.pinned |= next.pinned;
    reply.skip |= next.skip;
}

/// Names the allowed JSON types of a request's list, for errors.
pub(crate) fn list_types(dialect: Dialect) -> &'static str {
    if dialect.0.about().list_may_be_text { "a string or a list" } else { "a list" }
}

/// Parses JSON.
pub(crate) fn parse_json(text: &str) -> Result<Value, DialectError> {
    serde_json::from_str(text).map_err(|error| invalid_json(&error))
}

pub(crate) fn invalid_json(error: &serde_json::Error) -> DialectError {
    // The error of `serde_json` contains the problem and its position, but not the text.
    DialectError::new("", format!("is not valid JSON: {error}"))
}
