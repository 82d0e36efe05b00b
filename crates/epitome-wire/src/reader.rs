//! Taking wire messages in, one after the other or a request at a time.
//!
//! Each is read by its dialect, then spelled again the plain way; what that does not say is kept with the message.

use epitome_core::message::{Message, Role};
use serde_json::{Value, json};

use crate::raw::{self, Members};
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
        self.read_list(body, &[])
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
        let field = || Members::of(text).get(self.0.about().list).unwrap_or_default();
        let list = if body.is_array() { text } else { field() };
        // An `input` that is a bare string has no list, and no number to lose.
        self.read_list(&body, &raw::items(list))
    }

    /// Reads a body, or a list of messages; `texts` are those of the list, where they are known.
    fn read_list(self, body: &Value, texts: &[&str]) -> Result<Vec<Message>, DialectError> {
        let about = self.0.about();
        let mut reader = self.reader();
        let mut out = Vec::new();
        let list = match (body, body.get(about.list)) {
            (Value::Array(list), _) | (_, Some(Value::Array(list))) => list,
            (Value::Object(_), Some(text @ Value::String(_))) if about.list_may_be_text => {
                std::slice::from_ref(text)
            }
            (Value::Object(_), Some(other)) => return Err(field::wrong(about.list, other, list_is(self))),
            (Value::Object(_), None) => return Err(field::missing(about.list)),
            (other, _) => return Err(field::wrong("", other, "a request or a list of messages")),
        };
        if let Some(head) = about.head
            && let Some(given) = body.get(head.field).filter(|given| !given.is_null())
            && let Ok(message) = serde_json::from_str(&head.message(&given.to_string()))
        {
            out.extend(reader.take(message, None).map_err(|error| error.renamed(head.field))?);
        }
        for (at, wire) in list.iter().enumerate() {
            let text = texts.get(at).filter(|text| !exact::is_exact(text, wire));
            let read = reader.take(wire.clone(), text.map(|text| text.trim().to_owned()));
            out.extend(read.map_err(|error| error.under(&format!("{}[{at}]", about.list)))?);
        }
        out.extend(reader.finish());
        Ok(out.into_iter().map(|read| read.message).collect())
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
        if let Some(pending) = self.pending.as_mut().filter(|before| goes_on(&before.message, &next.message))
        {
            join_reply(&mut pending.message, next.message);
            pending.came.extend(next.came);
            pending.texts.extend(next.texts);
            return Ok(None);
        }
        Ok(self.pending.replace(next).map(|before| before.read(self.dialect)))
    }
}

impl Pending {
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

/// Adds one more of its items to a reply.
pub(crate) fn join_reply(reply: &mut Message, next: Message) {
    reply.parts.extend(next.parts);
    reply.pinned |= next.pinned;
    reply.skip |= next.skip;
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
