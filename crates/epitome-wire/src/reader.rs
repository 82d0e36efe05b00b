//! Taking wire messages in, one after the other or a request at a time.
//!
//! Each is read by its dialect, then spelled again the plain way; what that does not say is kept with the message.

use std::collections::HashMap;

use epitome_core::message::{Message, Role};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::{Dialect, DialectError, blank_if_nothing, exact, field, residue};

/// Deeper residues are kept as text: what is stored nests them once more, and readers give up at 128.
const DEEPEST: usize = 64;

/// Reads wire messages, one after the other: a reply may be made of several.
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
    /// What may go on with the next one, in formats whose replies are several items.
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

impl Dialect {
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
    /// use epitome_wire::Dialect;
    /// use serde_json::json;
    ///
    /// let wrong = json!([{ "role": "user", "content": "Hello" }, { "role": "robot", "content": "Hello" }]);
    /// let error = Dialect::OPENAI.read(&wrong).unwrap_err().to_string();
    /// assert!(error.starts_with("messages[1].role: \"robot\" is unknown"));
    /// ```
    pub fn read(self, body: &Value) -> Result<Vec<Message>, DialectError> {
        let Parted { head, list, key } = parted(self, body)?;
        collect(self, head.as_ref(), list.iter(), key, Reader::push)
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
    pub fn read_text(self, text: &str) -> Result<Vec<Message>, DialectError> {
        let body = parsed(text)?;
        let Parted { head, key, .. } = parted(self, &body)?;
        let list = if body.is_array() {
            serde_json::from_str::<Vec<&RawValue>>(text).ok()
        } else {
            let fields: HashMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
            fields.get(key).and_then(|list| serde_json::from_str(list.get()).ok())
        };
        match list {
            Some(list) => collect(self, head.as_ref(), list.into_iter(), key, |reader, wire| {
                reader.push_text(wire.get())
            }),
            // An `input` that is a bare string has no list, and no number to lose.
            None => self.read(&body),
        }
    }
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
        if !self.dialect.0.about().reply_is_items {
            return Ok(Some(next.read(self.dialect)));
        }
        Ok(match self.pending.take() {
            Some(pending) if goes_on(&pending.message, &next.message) => {
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
        if dialect.0.about().reply_is_items {
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
            let residue = residue::diff(&dialect.0.spell(&message), &came);
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

/// Whether an item continues the reply before it.
pub(crate) fn goes_on(reply: &Message, next: &Message) -> bool {
    reply.role == Role::Assistant && next.role == Role::Assistant
}

/// A reply with one more of its items.
pub(crate) fn joined_reply(mut reply: Message, next: Message) -> Message {
    reply.parts.extend(next.parts);
    reply.pinned |= next.pinned;
    reply.skip |= next.skip;
    reply
}

fn collect<T>(
    dialect: Dialect,
    head: Option<&Value>,
    list: impl Iterator<Item = T>,
    key: &str,
    push: impl Fn(&mut Reader, T) -> Result<Option<Read>, DialectError>,
) -> Result<Vec<Message>, DialectError> {
    let mut reader = dialect.reader();
    let mut out = Vec::new();
    if let Some(head) = head {
        let field = dialect.0.about().head.map_or("", |head| head.field);
        out.extend(reader.push(head).map_err(|error| error.renamed(field))?);
    }
    for (at, wire) in list.enumerate() {
        let read = push(&mut reader, wire).map_err(|error| error.under(&format!("{key}[{at}]")))?;
        out.extend(read);
    }
    out.extend(reader.finish());
    Ok(out.into_iter().map(|read| read.message).collect())
}

/// A request, taken apart.
struct Parted<'a> {
    /// What stands for the system prompt, where that is a field of the request.
    head: Option<Value>,
    list: &'a [Value],
    /// What the list is called.
    key: &'static str,
}

fn parted(dialect: Dialect, body: &Value) -> Result<Parted<'_>, DialectError> {
    let key = dialect.0.about().list;
    let fields = match body {
        Value::Array(list) => return Ok(Parted { head: None, list, key }),
        Value::Object(fields) => fields,
        other => return Err(field::wrong("", other, "a request or a list of messages")),
    };
    let list = match fields.get(key) {
        None => return Err(field::missing(key)),
        Some(Value::Array(list)) => list,
        Some(text @ Value::String(_)) if dialect.0.about().list_may_be_text => std::slice::from_ref(text),
        Some(other) => return Err(field::wrong(key, other, list_is(dialect))),
    };
    let head = dialect.0.about().head.and_then(|head| {
        let given = fields.get(head.field).filter(|found| !found.is_null())?;
        serde_json::from_str(&head.message(&given.to_string())).ok()
    });
    Ok(Parted { head, list, key })
}

/// What the list of a request may be.
pub(crate) fn list_is(dialect: Dialect) -> &'static str {
    if dialect.0.about().list_may_be_text { "a string or a list" } else { "a list" }
}

pub(crate) fn parsed(text: &str) -> Result<Value, DialectError> {
    serde_json::from_str(text).map_err(|error| unreadable(&error))
}

pub(crate) fn unreadable(error: &serde_json::Error) -> DialectError {
    // It says what is wrong and where, never what stands there.
    DialectError::new("", format!("is no JSON: {error}"))
}
