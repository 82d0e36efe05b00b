//! A whole request, or a bare list: read once, and written again with a shorter list in it.
//!
//! Whoever condenses is given somebody's request and gives it back with other messages. All the rest of it is none
//! of our business and stays letter for letter: other fields, their order, their numbers. So does every message that
//! is shown as it came. [`pieces`] finds out which are, [`write`] lays the list and [`raw`] cuts texts without parsing them;
//! what a wire takes is the matter of `fit`, as for everything that is sent.

use std::ops::Range;

use epitome_core::message::{Message, Part, Role, Seq, Tokens};
use epitome_core::tokens::Counter;
use epitome_core::view;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::reader::{joined_reply, parsed};
use super::{Dialect, DialectError, blank_if_nothing, field, flags, responses};
use raw::{FLAGS, Members};

mod pieces;
mod raw;
mod turns;
mod write;

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
/// use epitome::core::message::Message;
/// use epitome::dialect::{Body, Dialect, Marks};
///
/// let text = r#"{"model": "m", "temperature": 1.0, "messages": [
///     {"role": "user", "content": "Hello", "x": 1e2, "epitome": {"pinned": true}}, {"role": "assistant", "content": "Hi"}]}"#;
/// let body = Body::read(text, None)?;
/// assert_eq!((body.dialect(), body.model(), body.messages().len()), (Dialect::OpenAi, Some("m"), 2));
/// assert_eq!(body.with(body.messages(), Marks::Kept), text);
///
/// let mut shorter = body.messages().to_vec();
/// shorter[1] = Message::assistant("…");
/// assert_eq!(
///     body.with(&shorter, Marks::Stripped),
///     r#"{"model": "m", "temperature": 1.0, "messages": [{"role": "user", "content": "Hello", "x": 1e2},{"role":"assistant","content":"…"}]}"#
/// );
/// # Ok::<(), epitome::dialect::DialectError>(())
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
    /// use epitome::dialect::Body;
    ///
    /// let wrong = r#"{"messages": [{"role": "user", "content": "Hello"}, {"role": "user"}]}"#;
    /// assert_eq!(Body::read(wrong, None).unwrap_err().to_string(), "messages[1].content: is missing");
    /// ```
    pub fn read(text: &str, dialect: Option<Dialect>) -> Result<Self, DialectError> {
        let first = text.trim_start().chars().next();
        let fields = if first == Some('{') { Some(members(text)?) } else { None };
        if fields.is_none() && first != Some('[') {
            return Err(field::wrong("", &parsed(text)?, "a request or a list of messages"));
        }
        let key = match (&fields, dialect) {
            (_, Some(Dialect::Responses)) => "input",
            (Some(fields), None) if fields.get("messages").is_none() && fields.get("input").is_some() => {
                "input"
            }
            _ => "messages",
        };
        let list = match &fields {
            None => text.trim(),
            Some(fields) => once(fields, key)?.ok_or_else(|| field::missing(key))?,
        };
        let texts = if fields.is_some() && key == "input" && list.starts_with('"') {
            vec![list]
        } else if list.starts_with('[') {
            serde_json::from_str::<Vec<&RawValue>>(list)
                .map_err(|error| super::reader::unreadable(&error))?
                .into_iter()
                .map(RawValue::get)
                .collect()
        } else {
            let allowed = if key == "input" { "a string or a list" } else { "a list" };
            return Err(field::wrong(key, &parsed(list)?, allowed));
        };
        let under = |at: usize| move |error: DialectError| error.under(&format!("{key}[{at}]"));
        let values: Vec<Value> = texts
            .iter()
            .enumerate()
            .map(|(at, text)| parsed(text).map_err(under(at)))
            .collect::<Result<_, _>>()?;
        let dialect = dialect.unwrap_or_else(|| told(fields.as_ref(), key, &values));

        let mut list_of = Reading { dialect, messages: Vec::new(), origins: Vec::new() };
        let head = fields.as_ref().map_or(Ok(None), |fields| head(dialect, fields))?;
        if let Some(head) = &head {
            let name = if dialect == Dialect::Responses { responses::INSTRUCTIONS } else { "system" };
            let value = parsed(head).map_err(|error| error.under(name))?;
            list_of.take(&value, 0..0).map_err(|error| error.renamed(name))?;
        }
        for (at, value) in values.iter().enumerate() {
            list_of.take(value, at..at + 1).map_err(under(at))?;
        }
        let Reading { messages, origins, .. } = list_of.finish();
        let model = fields.as_ref().and_then(|fields| serde_json::from_str(fields.get("model")?).ok());
        let place = |(name, piece): &(String, &str)| (name.clone(), raw::place(text, piece));
        Ok(Self {
            dialect,
            fields: fields.as_ref().map(|fields| fields.0.iter().map(place).collect()),
            list: raw::place(text, list),
            items: texts.iter().map(|piece| raw::place(text, piece)).collect(),
            head,
            messages,
            origins,
            model,
            reference: values.iter().find_map(|value| reference(dialect, value)),
            text: text.to_owned(),
        })
    }

    /// In which dialect it was read.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Byte for byte as it came.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its messages, the system prompt first where that is a field. Each has its place in this list as its `seq`, by
    /// which [`Body::with`] knows it again; what came with it on the wire stays here.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The model it asks for.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// How many tokens it leaves for the answer, where it says so.
    #[must_use]
    pub fn output(&self) -> Option<Tokens> {
        let keys = ["max_completion_tokens", "max_output_tokens", "max_tokens"];
        keys.into_iter().find_map(|key| self.value(key)?.as_u64())
    }

    /// The tokens of what is sent besides the list: tools, and the form that the answer shall have.
    #[must_use]
    pub fn besides(&self, counter: &Counter) -> Tokens {
        let tools = ["tools", "functions"].into_iter().filter_map(|key| match self.value(key)? {
            Value::Array(tools) => Some(tools),
            _ => None,
        });
        let tools: Vec<Value> = tools.flatten().collect();
        let forms = ["response_format", "text", "output_format", "output_config"].into_iter();
        let forms = forms.filter_map(|key| self.value(key).filter(|form| !form.is_null()));
        forms.fold(counter.tools(&tools), |sum, form| sum.saturating_add(counter.text(&form.to_string())))
    }

    /// The name of the field, or the kind of item, that says that part of the history is elsewhere, with the provider or
    /// sealed by it: such a request cannot be condensed from what is here.
    ///
    /// ```
    /// use epitome::dialect::Body;
    ///
    /// let request = r#"{"input": "And now?", "previous_response_id": "resp_1", "conversation": null}"#;
    /// assert_eq!(Body::read(request, None)?.elsewhere(), Some("previous_response_id"));
    /// # Ok::<(), epitome::dialect::DialectError>(())
    /// ```
    #[must_use]
    pub fn elsewhere(&self) -> Option<&'static str> {
        let fields: &[&'static str] = match self.dialect {
            Dialect::Responses => &["previous_response_id", "conversation", "context_management"],
            Dialect::Anthropic => &["context_management"],
            Dialect::OpenAi | Dialect::Ours => &[],
        };
        let given = |name: &&&str| self.field(name).is_some_and(|text| text != "null");
        fields.iter().find(given).copied().or(self.reference)
    }

    /// The same request with these messages in place of its own.
    ///
    /// Messages of its own that say what they said go out as they came, in every letter; those that were changed, that
    /// are new, or that a strict provider would refuse are spelled by us. Whatever else is in the request stays.
    #[must_use]
    pub fn with(&self, messages: &[Message], marks: Marks) -> String {
        write::with(self, messages, marks)
    }

    /// The same request without our own fields, and nothing else changed.
    #[must_use]
    pub fn stripped(&self) -> String {
        let items = self.items.iter().map(|place| (place.clone(), self.dialect));
        let system = (self.dialect == Dialect::Anthropic).then(|| self.place("system")).flatten();
        let mut out = String::with_capacity(self.text.len());
        let mut before = 0;
        let mut places: Vec<(Range<usize>, bool)> = items.map(|(place, _)| (place, true)).collect();
        places.extend(system.map(|place| (place, false)));
        places.sort_by_key(|(place, _)| place.start);
        for (place, is_item) in places {
            let piece = self.text.get(place.clone()).unwrap_or_default();
            out.push_str(self.text.get(before..place.start).unwrap_or_default());
            if is_item {
                out.push_str(&write::stripped(self.dialect, piece));
            } else {
                out.push_str(&write::stripped_blocks(piece));
            }
            before = place.end;
        }
        out.push_str(self.text.get(before..).unwrap_or_default());
        out
    }

    /// Places in [`Body::messages`], from 1, as places in the list of the input, from 1.
    #[must_use]
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

fn members(text: &str) -> Result<Members<'_>, DialectError> {
    serde_json::from_str(text).map_err(|error| super::reader::unreadable(&error))
}

/// A field that must not be there twice: nobody could tell which one counts.
fn once<'a>(fields: &Members<'a>, name: &str) -> Result<Option<&'a str>, DialectError> {
    let mut found = fields.0.iter().filter(|(key, _)| key == name).map(|(_, text)| *text);
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(DialectError::new(name, "is there twice")),
        (found, None) => Ok(found),
    }
}

/// The system prompt that is a field, as a wire message.
fn head(dialect: Dialect, fields: &Members<'_>) -> Result<Option<String>, DialectError> {
    let given = |name: &str| Ok(once(fields, name)?.filter(|text| *text != "null"));
    Ok(match dialect {
        Dialect::Responses => {
            given(responses::INSTRUCTIONS)?.map(|text| format!("{{\"{}\":{text}}}", responses::INSTRUCTIONS))
        }
        Dialect::Anthropic => {
            given("system")?.map(|text| format!("{{\"role\":\"system\",\"content\":{text}}}"))
        }
        Dialect::OpenAi | Dialect::Ours => None,
    })
}

/// What an item is called that stands for messages which are not here.
fn reference(dialect: Dialect, value: &Value) -> Option<&'static str> {
    let kinds = ["item_reference", "compaction", "compaction_summary"];
    let kind = value.get("type")?.as_str().filter(|_| dialect == Dialect::Responses)?;
    kinds.into_iter().find(|known| *known == kind)
}

/// The dialect of a body, by its shape.
fn told(fields: Option<&Members<'_>>, key: &str, values: &[Value]) -> Dialect {
    if let Some(fields) = fields {
        if key == "input" {
            return Dialect::Responses;
        }
        let tools = fields.get("tools").map(raw::items).unwrap_or_default();
        let schema = |tool: &&str| Members::of(tool).get("input_schema").is_some();
        if fields.get("system").is_some()
            || fields.get("anthropic_version").is_some()
            || tools.iter().any(schema)
        {
            return Dialect::Anthropic;
        }
    }
    values.iter().find_map(Dialect::of).unwrap_or(Dialect::OpenAi)
}

/// Messages in the making.
struct Reading {
    dialect: Dialect,
    messages: Vec<Message>,
    origins: Vec<Origin>,
}

impl Reading {
    fn take(&mut self, wire: &Value, items: Range<usize>) -> Result<(), DialectError> {
        let message = self.dialect.understood(wire)?;
        if self.dialect == Dialect::Anthropic
            && let Some(groups) = groups(&message, wire)?
        {
            for (blocks, wire) in groups {
                let message = self.dialect.understood(&wire)?;
                self.push(message, Origin { items: items.clone(), blocks: Some(blocks) });
            }
            return Ok(());
        }
        if self.dialect == Dialect::Responses
            && let (Some(reply), Some(origin)) = (self.messages.last_mut(), self.origins.last_mut())
            && responses::goes_on(reply, &message)
        {
            *reply = joined_reply(std::mem::replace(reply, Message::user("")), message);
            origin.items.end = items.end;
            return Ok(());
        }
        self.push(message, Origin { items, blocks: None });
        Ok(())
    }

    fn push(&mut self, message: Message, origin: Origin) {
        self.messages.push(message);
        self.origins.push(origin);
    }

    fn finish(mut self) -> Self {
        for (message, seq) in self.messages.iter_mut().zip(1..) {
            message.seq = seq;
            if self.dialect == Dialect::Responses {
                message.parts = blank_if_nothing(std::mem::take(&mut message.parts));
            }
        }
        self
    }
}

/// The messages that were merged into this one of Anthropic's, each with its blocks and as it would stand alone: a
/// summary of ours, and runs of blocks with flags of their own. None where it is one message.
#[expect(clippy::type_complexity, reason = "said once")]
fn groups(message: &Message, wire: &Value) -> Result<Option<Vec<(Range<usize>, Value)>>, DialectError> {
    let (Some(fields), Some(blocks)) = (wire.as_object(), wire.get("content").and_then(Value::as_array))
    else {
        return Ok(None);
    };
    if message.role == Role::Tool && blocks.iter().all(|block| block.get(FLAGS).is_none()) {
        return Ok(None);
    }
    let whole = flags::of(fields)?;
    let mut groups: Vec<(Range<usize>, (bool, bool), bool)> = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        let own = block.as_object().map_or(Ok((false, false)), flags::of);
        let own = own.map_err(|error| error.under(&format!("content[{at}]")))?;
        let marks = (whole.0 || own.0, whole.1 || own.1);
        let text = block.get("text").and_then(Value::as_str).filter(|text| text.starts_with('<'));
        let summary = text.is_some_and(|text| {
            let alone = Message { parts: vec![Part::text(text)], ..Message::new(message.role, []) };
            view::recognise(&alone).is_some()
        });
        match groups.last_mut() {
            Some((run, flags, was)) if *flags == marks && !*was && !summary => run.end = at + 1,
            _ => groups.push((at..at + 1, marks, summary)),
        }
    }
    if groups.len() < 2 && groups.iter().all(|(_, flags, _)| *flags == whole) {
        return Ok(None);
    }
    let groups = groups.into_iter().map(|(run, (pinned, skip), _)| {
        let said = blocks.get(run.clone()).unwrap_or_default();
        let mut alone = Map::new();
        alone.insert("role".to_owned(), fields.get("role").cloned().unwrap_or_default());
        alone.insert("content".to_owned(), Value::Array(said.to_vec()));
        alone.insert(FLAGS.to_owned(), json!({ "pinned": pinned, "skip": skip }));
        (run, Value::Object(alone))
    });
    Ok(Some(groups.collect()))
}
