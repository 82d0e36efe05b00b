//! Reads a whole request, or a bare list, and writes it again with a shorter list.
//!
//! A proxy that condenses receives a client's request and forwards it with other messages. Everything else in
//! the request stays byte for byte: other fields, their order, their numbers. So does every unchanged message;
//! [`writer`] finds these. [`read`] parses a body. [`flat`] writes a flat list, [`turns`] a list of two
//! alternating sides. [`cache_marks`] handles cache marks. `fit` defines what a provider accepts, as for all
//! other requests.

use std::ops::Range;

use epitome_core::message::{Message, Seq, Tokens};
use epitome_core::tokens::Counter;
use serde_json::Value;

use crate::{Dialect, DialectError, raw};

mod cache_marks;
mod flat;
mod read;
mod turns;
mod writer;

/// Whether Epitome's own fields (its flags) stay on outgoing messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnFields {
    /// They stay, so that a later condensation still finds the pinned messages.
    Keep,
    /// They are removed, because strict gateways reject unknown fields.
    Strip,
}

/// A request, or a bare list of messages, as it was received.
///
/// ```
/// use epitome_core::message::Message;
/// use epitome_wire::{Body, Dialect, OwnFields};
///
/// let text = r#"{"model": "m", "temperature": 1.0, "messages": [
///     {"role": "user", "content": "Hello", "x": 1e2, "epitome": {"pinned": true}}, {"role": "assistant", "content": "Hi"}]}"#;
/// let body = Body::read(text, None)?;
/// assert_eq!((body.dialect(), body.model(), body.messages().len()), (Dialect::OPENAI, Some("m"), 2));
/// assert_eq!(body.with_messages(body.messages(), OwnFields::Keep), text);
///
/// let mut shorter = body.messages().to_vec();
/// shorter[1] = Message::assistant("…");
/// assert_eq!(
///     body.with_messages(&shorter, OwnFields::Strip),
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
    /// The system prompt from its own field, in the form of a wire message.
    system: Option<String>,
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
    /// The items of the list; empty for the system prompt from its own field.
    items: Range<usize>,
    /// The blocks of the item, if it contains several messages.
    blocks: Option<Range<usize>>,
}

impl Origin {
    fn is_system_field(&self) -> bool {
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

    /// Returns its messages; the system prompt is first, even if it has its own field. Each message's `seq` is
    /// its position in this list, by which [`Body::with_messages`] recognises it. Other data of the received
    /// JSON stays in the body.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the requested model.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Returns the maximum number of output tokens, if the request sets it.
    pub fn max_output(&self) -> Option<Tokens> {
        let keys = ["max_completion_tokens", "max_output_tokens", "max_tokens"];
        keys.into_iter().find_map(|key| self.value(key)?.as_u64())
    }

    /// Counts the tokens that are sent in addition to the messages: the tools, and the schema of the answer.
    pub fn extra_tokens(&self, counter: &Counter) -> Tokens {
        let tools = ["tools", "functions"].into_iter().filter_map(|key| self.field(key));
        let tools = tools.flat_map(|tools| serde_json::from_str::<Vec<Value>>(tools).unwrap_or_default());
        let tools: Vec<Value> = tools.collect();
        let schemas = ["response_format", "text", "output_format", "output_config"].into_iter();
        let schemas = schemas.filter_map(|key| self.value(key).filter(|schema| !schema.is_null()));
        schemas
            .fold(counter.tools(&tools), |sum, schema| sum.saturating_add(counter.text(&schema.to_string())))
    }

    /// Returns the name of the field, or the type of the item, that refers to history stored at the provider
    /// or encrypted by it. Such a request cannot be condensed, because it does not contain its whole history.
    ///
    /// ```
    /// use epitome_wire::Body;
    ///
    /// let request = r#"{"input": "And now?", "previous_response_id": "resp_1", "conversation": null}"#;
    /// assert_eq!(Body::read(request, None)?.remote_history(), Some("previous_response_id"));
    /// # Ok::<(), epitome_wire::DialectError>(())
    /// ```
    pub fn remote_history(&self) -> Option<&'static str> {
        let fields = self.dialect.0.about().remote_history_fields;
        let is_set = |name: &&&str| self.field(name).is_some_and(|text| text != "null");
        fields.iter().find(is_set).copied().or(self.reference)
    }

    /// Returns the same request with these messages in place of its own.
    ///
    /// Its own unchanged messages are written byte for byte as received. Messages that are changed, new, or
    /// invalid for a strict provider are written from their parts. Everything else in the request stays.
    pub fn with_messages(&self, messages: &[Message], own_fields: OwnFields) -> String {
        match self.dialect.0.about().encode_block {
            Some(encode_block) => turns::rewrite(self, messages, own_fields, encode_block),
            None => flat::rewrite(self, messages, own_fields),
        }
    }

    /// Returns the same request without Epitome's own fields and otherwise unchanged.
    ///
    /// ```
    /// use epitome_wire::Body;
    ///
    /// let list = r#"[{"role": "user", "epitome": {"pinned": true}, "content": "Hello", "n": 1.0}]"#;
    /// assert_eq!(Body::read(list, None)?.without_own_fields(), r#"[{"role": "user", "content": "Hello", "n": 1.0}]"#);
    /// # Ok::<(), epitome_wire::DialectError>(())
    /// ```
    pub fn without_own_fields(&self) -> String {
        if self.dialect.0.about().is_native || !raw::may_have_flags(&self.text) {
            return self.text.clone();
        }
        let text = |range: &Range<usize>| self.text.get(range.clone()).unwrap_or_default();
        let in_blocks = self.dialect.0.about().encode_block.is_some();
        let item = |range: &Range<usize>| flat::without_flags(text(range).into(), in_blocks).into_owned();
        let system = self.dialect.0.about().system_field.filter(|_| in_blocks);
        let system = system.and_then(|system| self.field_range(system.name));
        let system = system.map(|range| (range.clone(), flat::blocks_without_flags(text(&range))));
        let items = self.items.iter().map(|range| (range.clone(), item(range)));
        raw::apply_edits(&self.text, items.chain(system).collect())
    }

    /// Converts the positions of the first and last message in [`Body::messages`] to positions in the request's
    /// list. All positions start at 1. They differ if the system prompt has its own field, or if several items
    /// form one reply.
    ///
    /// ```
    /// use epitome_wire::Body;
    ///
    /// let body = Body::read(r#"{"system": "Be brief.", "messages": [{"role": "user", "content": "Hello"}]}"#, None)?;
    /// assert_eq!(body.list_positions([2, 2]), [1, 1]);
    /// # Ok::<(), epitome_wire::DialectError>(())
    /// ```
    pub fn list_positions(&self, covers: [Seq; 2]) -> [u64; 2] {
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
    fn message(&self, seq: Seq) -> Option<&Message> {
        self.messages.get(usize::try_from(seq).ok()?.checked_sub(1)?)
    }

    /// Returns the texts of the list's items as received.
    fn texts(&self, items: Range<usize>) -> impl Iterator<Item = &str> {
        let ranges = self.items.get(items).unwrap_or_default().iter();
        ranges.filter_map(|range| self.text.get(range.clone()))
    }

    /// Returns the position of a field's value. Of duplicates, the last one is used.
    fn field_range(&self, name: &str) -> Option<Range<usize>> {
        let fields = self.fields.as_ref()?;
        fields.iter().rev().find(|(key, _)| key == name).map(|(_, range)| range.clone())
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.text.get(self.field_range(name)?)
    }

    fn value(&self, name: &str) -> Option<Value> {
        serde_json::from_str(self.field(name)?).ok()
    }
}
