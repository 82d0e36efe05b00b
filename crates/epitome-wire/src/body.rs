//! Reads a whole request, or a bare list of messages, and writes it again with other messages.
//!
//! The proxy receives a client's request, condenses the messages, and forwards the request. The rest of the
//! request stays byte for byte as received: the other fields, their order and the spelling of their numbers.
//! Each unchanged message also stays byte for byte.
//!
//! - [`read`] parses a request.
//! - [`writer`] decides whether a message is written as received or is encoded.
//! - [`flat`] writes a flat list, in which messages of one role may follow each other.
//! - [`turns`] writes a list in which user and assistant messages alternate.
//! - [`cache_marks`] moves the cache marks of removed messages to the summary.
//!
//! As for all other requests, the module `fit` defines what a provider accepts.

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

/// Whether Epitome's own fields, which contain its flags, stay in outgoing messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnFields {
    /// The fields stay, so that a later condensation still finds the pinned messages.
    Keep,
    /// The fields are removed, because strict gateways reject unknown fields.
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
    /// All fields of the request, including the list, with the byte range of each value. `None` for a bare
    /// list.
    fields: Option<Vec<(String, Range<usize>)>>,
    /// The byte range of the list in `text`.
    list: Range<usize>,
    /// The byte ranges of the list's items in `text`.
    items: Vec<Range<usize>>,
    /// The system prompt from the request's system field, as a wire message. `None` if there is no such field.
    system: Option<String>,
    messages: Vec<Message>,
    /// The origin of each message in `messages`.
    origins: Vec<Origin>,
    model: Option<String>,
    /// The type of the first item that refers to history stored at the provider. `None` if there is no such
    /// item.
    reference: Option<&'static str>,
}

/// The part of the body from which a message was read.
#[derive(Debug, Clone, PartialEq)]
struct Origin {
    /// The indexes of the list's items. Empty for the system prompt from the request's system field.
    items: Range<usize>,
    /// The indexes of the message's blocks, if the item contains several messages. `None` if it contains only
    /// one.
    blocks: Option<Range<usize>>,
}

impl Origin {
    fn is_system_field(&self) -> bool {
        self.items.is_empty()
    }
}

impl Body {
    /// Parses a request or a bare list of messages. If `dialect` is `None`, the dialect is detected from the
    /// shape of the request.
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

    /// Returns the messages of the request. A system prompt that has its own request field is the first
    /// message. The `seq` of each message is its position in this list, from 1; [`Body::with_messages`]
    /// recognises a message by its `seq`. Data of the received JSON that a message cannot represent stays in
    /// the body.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the name of the requested model. `None` if the request contains no name.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Returns the maximum number of output tokens. `None` if the request does not set a maximum.
    pub fn max_output(&self) -> Option<Tokens> {
        let keys = ["max_completion_tokens", "max_output_tokens", "max_tokens"];
        keys.into_iter().find_map(|key| self.value(key)?.as_u64())
    }

    /// Counts the tokens of the tools and of the answer's schema, which are sent in addition to the messages.
    pub fn extra_tokens(&self, counter: &Counter) -> Tokens {
        let tools = ["tools", "functions"].into_iter().filter_map(|key| self.field(key));
        let tools = tools.flat_map(|tools| serde_json::from_str::<Vec<Value>>(tools).unwrap_or_default());
        let tools: Vec<Value> = tools.collect();
        let schemas = ["response_format", "text", "output_format", "output_config"].into_iter();
        let schemas = schemas.filter_map(|key| self.value(key).filter(|schema| !schema.is_null()));
        schemas
            .fold(counter.tools(&tools), |sum, schema| sum.saturating_add(counter.text(&schema.to_string())))
    }

    /// Returns the name of the request field, or the type of the list item, that refers to history which the
    /// provider stores or has encrypted. A request with such a field or item cannot be condensed, because the
    /// request does not contain its whole history. `None` if there is no such field or item.
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

    /// Returns the same request with these messages instead of the received messages.
    ///
    /// Received messages that are unchanged are written byte for byte as received. Messages that are changed,
    /// new or invalid for a strict provider are encoded from their parts. The rest of the request does not
    /// change.
    pub fn with_messages(&self, messages: &[Message], own_fields: OwnFields) -> String {
        match self.dialect.0.about().encode_block {
            Some(encode_block) => turns::rewrite(self, messages, own_fields, encode_block),
            None => flat::rewrite(self, messages, own_fields),
        }
    }

    /// Returns the same request without Epitome's own fields. The rest of the request does not change.
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

    /// Converts a range of messages to a range of items in the request's list. `covers` contains the positions
    /// of the first and the last message of the range in [`Body::messages`]. All positions start at 1. A
    /// message's position in the request's list may differ, because the system prompt may have its own request
    /// field, and because several items may form one reply.
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

    /// Returns the received message with this number. `None` if the body has no such message.
    fn message(&self, seq: Seq) -> Option<&Message> {
        self.messages.get(usize::try_from(seq).ok()?.checked_sub(1)?)
    }

    /// Returns the received texts of these items of the list.
    fn texts(&self, items: Range<usize>) -> impl Iterator<Item = &str> {
        let ranges = self.items.get(items).unwrap_or_default().iter();
        ranges.filter_map(|range| self.text.get(range.clone()))
    }

    /// Returns the byte range of a field's value. If the field occurs several times, the last value is used.
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
