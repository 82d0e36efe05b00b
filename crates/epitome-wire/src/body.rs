//! Reads a whole request, or a bare list, and writes it again with a shorter list.
//!
//! A condensing caller receives a client's request and forwards it with other messages. Everything else in
//! the request stays byte for byte: other fields, their order, their numbers. So does every message that is
//! shown unchanged; [`writer`] finds these. [`read`] parses a body. [`write`] writes a flat list, [`turns`] a
//! list of two alternating sides. [`cached`] handles cache marks. What a provider accepts is defined in
//! `fit`, as for all other requests.

use std::ops::Range;

use epitome_core::message::{Message, Seq, Tokens};
use epitome_core::tokens::Counter;
use serde_json::Value;

use crate::{Dialect, DialectError, raw};

mod cached;
mod read;
mod turns;
mod write;
mod writer;

/// Whether Epitome's own fields stay on outgoing messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// They stay, so that a later pass still knows which messages are pinned.
    Kept,
    /// They are removed: strict gateways reject unknown fields.
    Stripped,
}

/// A request, or a bare list of messages, as it was received.
///
/// ```
/// use epitome_core::message::Message;
/// use epitome_wire::{Body, Dialect, Marks};
///
/// let text = r#"{"model": "m", "temperature": 1.0, "messages": [
///     {"role": "user", "content": "Hello", "x": 1e2, "epitome": {"pinned": true}}, {"role": "assistant", "content": "Hi"}]}"#;
/// let body = Body::read(text, None)?;
/// assert_eq!((body.dialect(), body.model(), body.messages().len()), (Dialect::OPENAI, Some("m"), 2));
/// assert_eq!(body.with(body.messages(), Marks::Kept), text);
///
/// let mut shorter = body.messages().to_vec();
/// shorter[1] = Message::assistant("…");
/// assert_eq!(
///     body.with(&shorter, Marks::Stripped),
///     r#"{"model": "m", "temperature": 1.0, "messages": [{"role": "user", "content": "Hello", "x": 1e2},{"role":"assistant","content":"…"}]}"#
/// );
/// # Ok::<(), epitome_wire::DialectError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Body {
    text: String,
    dialect: Dialect,
    /// All fields, including the list's, with their positions; `None` for a bare list.
    fields: Option<Vec<(String, Range<usize>)>>,
    /// Position of the list.
    list: Range<usize>,
    /// Positions of its items.
    items: Vec<Range<usize>>,
    /// The system prompt from a separate field, in the form of a wire message.
    head: Option<String>,
    messages: Vec<Message>,
    /// The origin of each message.
    origins: Vec<Origin>,
    model: Option<String>,
    /// The type of an item that refers to history stored elsewhere.
    reference: Option<&'static str>,
}

/// The part of the body from which a message was read.
#[derive(Debug, Clone, PartialEq)]
struct Origin {
    /// The items of the list; empty for the system prompt from a separate field.
    items: Range<usize>,
    /// The blocks of that item, if it contains several messages.
    blocks: Option<Range<usize>>,
}

impl Origin {
    fn is_head(&self) -> bool {
        self.items.is_empty()
    }
}

impl Body {
    /// Parses a request or a list. If `dialect` is `None`, it is detected from the request's shape.
    ///
    /// ```
    /// use epitome_wire::Body;
    ///
    /// let wrong = r#"{"messages": [{"role": "user", "content": "Hello"}, {"role": "user"}]}"#;
    /// assert_eq!(Body::read(wrong, None).unwrap_err().to_string(), "messages[1].content: is missing");
    /// ```
    pub fn read(text: &str, dialect: Option<Dialect>) -> Result<Self, DialectError> {
        read::body(text, dialect)
    }

    /// Returns the dialect of the request.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Returns the request byte for byte as it was received.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns its messages; the system prompt is first, even if it is a separate field. Each message's `seq`
    /// is its position in this list, by which [`Body::with`] recognises it. Other data of the received JSON
    /// stays in the body.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the requested model.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Returns the maximum number of output tokens, if the request sets it.
    pub fn output(&self) -> Option<Tokens> {
        let keys = ["max_completion_tokens", "max_output_tokens", "max_tokens"];
        keys.into_iter().find_map(|key| self.value(key)?.as_u64())
    }

    /// Counts the tokens sent in addition to the list: tools, and the schema of the answer.
    pub fn besides(&self, counter: &Counter) -> Tokens {
        let tools = ["tools", "functions"].into_iter().filter_map(|key| self.field(key));
        let tools = tools.flat_map(|tools| serde_json::from_str::<Vec<Value>>(tools).unwrap_or_default());
        let tools: Vec<Value> = tools.collect();
        let forms = ["response_format", "text", "output_format", "output_config"].into_iter();
        let forms = forms.filter_map(|key| self.value(key).filter(|form| !form.is_null()));
        forms.fold(counter.tools(&tools), |sum, form| sum.saturating_add(counter.text(&form.to_string())))
    }

    /// Returns the name of the field, or the type of the item, that refers to history stored at the provider
    /// or encrypted by it. Such a request cannot be condensed, because part of its content is missing here.
    ///
    /// ```
    /// use epitome_wire::Body;
    ///
    /// let request = r#"{"input": "And now?", "previous_response_id": "resp_1", "conversation": null}"#;
    /// assert_eq!(Body::read(request, None)?.elsewhere(), Some("previous_response_id"));
    /// # Ok::<(), epitome_wire::DialectError>(())
    /// ```
    pub fn elsewhere(&self) -> Option<&'static str> {
        let fields = self.dialect.0.about().elsewhere;
        let given = |name: &&&str| self.field(name).is_some_and(|text| text != "null");
        fields.iter().find(given).copied().or(self.reference)
    }

    /// Returns the same request with these messages in place of its own.
    ///
    /// Its own unchanged messages are written byte for byte as received. Messages that are changed, new, or
    /// invalid for a strict provider are written from their parts. Everything else in the request stays.
    pub fn with(&self, messages: &[Message], marks: Marks) -> String {
        match self.dialect.0.about().block {
            Some(block) => turns::with(self, messages, marks, block),
            None => write::rewrite(self, messages, marks),
        }
    }

    /// Returns the same request without Epitome's own fields and otherwise unchanged.
    ///
    /// ```
    /// use epitome_wire::Body;
    ///
    /// let list = r#"[{"role": "user", "epitome": {"pinned": true}, "content": "Hello", "n": 1.0}]"#;
    /// assert_eq!(Body::read(list, None)?.stripped(), r#"[{"role": "user", "content": "Hello", "n": 1.0}]"#);
    /// # Ok::<(), epitome_wire::DialectError>(())
    /// ```
    pub fn stripped(&self) -> String {
        if self.dialect.0.about().is_native || !raw::may_have_flags(&self.text) {
            return self.text.clone();
        }
        let text = |place: &Range<usize>| self.text.get(place.clone()).unwrap_or_default();
        let in_blocks = self.dialect.0.about().block.is_some();
        let item = |place: &Range<usize>| write::stripped(text(place).into(), in_blocks).into_owned();
        let head = self.dialect.0.about().head.filter(|_| in_blocks);
        let head = head.and_then(|head| self.place(head.field));
        let head = head.map(|place| (place.clone(), write::stripped_blocks(text(&place))));
        let items = self.items.iter().map(|place| (place.clone(), item(place)));
        raw::replaced(&self.text, items.chain(head).collect())
    }

    /// Converts positions in [`Body::messages`] to positions in the input's list, both from 1. They differ if
    /// the system prompt is a separate field, or if several items form one reply.
    ///
    /// ```
    /// use epitome_wire::Body;
    ///
    /// let body = Body::read(r#"{"system": "Be brief.", "messages": [{"role": "user", "content": "Hello"}]}"#, None)?;
    /// assert_eq!(body.places([2, 2]), [1, 1]);
    /// # Ok::<(), epitome_wire::DialectError>(())
    /// ```
    pub fn places(&self, covers: [Seq; 2]) -> [u64; 2] {
        let origin = |seq: Seq| self.origin(seq).map(|origin| origin.items.clone());
        let [from, through] = covers;
        let from_item = origin(from).map_or(from, |items| items.start as u64 + 1);
        let through_item = origin(through).map_or(through, |items| items.end as u64);
        [from_item, through_item.max(from_item)]
    }

    fn origin(&self, seq: Seq) -> Option<&Origin> {
        self.origins.get(usize::try_from(seq).ok()?.checked_sub(1)?)
    }

    /// Returns the message as it was read, if the body has one with this number.
    fn own(&self, seq: Seq) -> Option<&Message> {
        self.messages.get(usize::try_from(seq).ok()?.checked_sub(1)?)
    }

    /// Returns the texts of the list's items as received.
    fn texts(&self, items: Range<usize>) -> impl Iterator<Item = &str> {
        let places = self.items.get(items).unwrap_or_default().iter();
        places.filter_map(|place| self.text.get(place.clone()))
    }

    fn place(&self, name: &str) -> Option<Range<usize>> {
        let fields = self.fields.as_ref()?;
        fields.iter().rev().find(|(key, _)| key == name).map(|(_, place)| place.clone())
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.text.get(self.place(name)?)
    }

    fn value(&self, name: &str) -> Option<Value> {
        serde_json::from_str(self.field(name)?).ok()
    }
}
