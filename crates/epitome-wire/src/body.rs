//! A whole request, or a bare list: read once, and written again with a shorter list in it.
//!
//! Whoever condenses is given somebody's request and gives it back with other messages. All the rest of it is none
//! of our business and stays letter for letter: other fields, their order, their numbers. So does every message that
//! is shown as it came: [`writer`] finds out which are. [`read`] takes a body in, [`write`] lays a flat list and
//! [`turns`] one of two sides that take turns, [`cached`] sees to marks for a cache. What a provider takes is
//! the matter of `fit`, as for all that is sent.

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

/// Whether our own fields are left on messages that go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// Yes, so that a later pass still knows what is pinned.
    Kept,
    /// No: strict gateways refuse a field they do not know.
    Stripped,
}

/// A request, or a bare list of messages, as it came.
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
    /// The other fields, the list's own included, by their places; none where it is a bare list.
    fields: Option<Vec<(String, Range<usize>)>>,
    /// Where the list is.
    list: Range<usize>,
    /// Where its items are.
    items: Vec<Range<usize>>,
    /// The system prompt that is a field, as the wire message it stands for.
    head: Option<String>,
    messages: Vec<Message>,
    /// Of what each message was made.
    origins: Vec<Origin>,
    model: Option<String>,
    /// The item that stands for history that is elsewhere.
    reference: Option<&'static str>,
}

/// Of what a message was made.
#[derive(Debug, Clone, PartialEq)]
struct Origin {
    /// The items of the list; none where it is the head.
    items: Range<usize>,
    /// The blocks of that item, where several messages were made of it.
    blocks: Option<Range<usize>>,
}

impl Origin {
    fn is_head(&self) -> bool {
        self.items.is_empty()
    }
}

impl Body {
    /// Reads it. `dialect` is told from its shape where none is given.
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

    /// In which dialect it was read.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Byte for byte as it came.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its messages, the system prompt first where that is a field. Each has its place in this list as its `seq`, by
    /// which [`Body::with`] knows it again; what came with it on the wire stays here.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The model it asks for.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// How many tokens it leaves for the answer, where it says so.
    pub fn output(&self) -> Option<Tokens> {
        let keys = ["max_completion_tokens", "max_output_tokens", "max_tokens"];
        keys.into_iter().find_map(|key| self.value(key)?.as_u64())
    }

    /// The tokens of what is sent besides the list: tools, and the form that the answer shall have.
    pub fn besides(&self, counter: &Counter) -> Tokens {
        let tools = ["tools", "functions"].into_iter().filter_map(|key| self.field(key));
        let tools = tools.flat_map(|tools| serde_json::from_str::<Vec<Value>>(tools).unwrap_or_default());
        let tools: Vec<Value> = tools.collect();
        let forms = ["response_format", "text", "output_format", "output_config"].into_iter();
        let forms = forms.filter_map(|key| self.value(key).filter(|form| !form.is_null()));
        forms.fold(counter.tools(&tools), |sum, form| sum.saturating_add(counter.text(&form.to_string())))
    }

    /// The name of the field, or the kind of item, that says that part of the history is elsewhere, with the provider or
    /// sealed by it: such a request cannot be condensed from what is here.
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

    /// The same request with these messages in place of its own.
    ///
    /// Messages of its own that say what they said go out as they came, in every letter; those that were changed, that
    /// are new, or that a strict provider would refuse are spelled by us. Whatever else is in the request stays.
    pub fn with(&self, messages: &[Message], marks: Marks) -> String {
        match self.dialect.0.about().block {
            Some(block) => turns::with(self, messages, marks, block),
            None => write::rewrite(self, messages, marks),
        }
    }

    /// The same request without our own fields, and nothing else changed.
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

    /// Places in [`Body::messages`], from 1, as places in the list of the input, from 1. The two differ where the system
    /// prompt is a field, and where several items are one reply.
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

    /// The message as it was read, where the body has one of this number.
    fn own(&self, seq: Seq) -> Option<&Message> {
        self.messages.get(usize::try_from(seq).ok()?.checked_sub(1)?)
    }

    /// The items of the list, as they came.
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
