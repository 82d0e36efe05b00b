//! Writes a list in which user and assistant messages alternate, with a separate system prompt, as Anthropic
//! requires.
//!
//! Consecutive messages of the same side (user or assistant) are merged into one message, which is a list of
//! blocks. If the flags of the merged messages differ, each block has its own flags. So the flag `pinned` of
//! one message does not apply to the messages that are merged with it. When the request is read again, the
//! merged message is split.

use std::borrow::Cow;

use epitome_core::message::{CallId, Message, Part, Role};
use serde_json::Value;

use super::flat::{blocks_without_flags, is_new_summary, list, with_flags, with_unread, without_flags};
use super::writer::{Writer, texts};
use super::{Body, Origin, OwnFields, cache_marks};
use crate::fit::{LATER_SYSTEM_PREFIX, opening_message};
use crate::flags;
use crate::raw::{self, FLAGS_FIELD, RawFields, apply_edits};

/// A function that encodes a message part as a block.
type EncodeBlock = fn(&Part) -> Value;

/// The two flags of a message: pinned and skip.
type Flags = (bool, bool);

/// An outgoing block.
#[derive(Default)]
struct Block<'a> {
    text: Cow<'a, str>,
    flags: Flags,
    kind: BlockKind,
    /// Whether the block belongs to a summary that was not in the received request.
    is_summary: bool,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum BlockKind {
    Reasoning,
    Result,
    #[default]
    Other,
}

/// An outgoing wire message under construction.
struct Turn<'a> {
    side: &'static str,
    blocks: Vec<Block<'a>>,
    /// The messages that were merged into this turn.
    messages: Vec<&'a Message>,
}

/// Returns the request with these messages in alternating turns.
pub(super) fn rewrite(
    body: &Body,
    messages: &[Message],
    own_fields: OwnFields,
    encode: EncodeBlock,
) -> String {
    let mut writer = Writer::new(body);
    let (mut system, mut system_messages) = (Vec::<Block<'_>>::new(), Vec::<&Message>::new());
    let mut turns = Vec::<Turn<'_>>::new();
    for message in with_unread(body, messages) {
        let origin = body.origin(message.seq);
        let has_turns = turns.iter().any(|turn| turn.side != "system");
        // A summary is a system message if the caller requests this role.
        let in_system =
            message.role.is_system() && (!has_turns || origin.is_none_or(Origin::is_system_field));
        let mut blocks = blocks(&mut writer, message, in_system, encode);
        if in_system && body.fields.is_some() {
            system.append(&mut blocks);
            system_messages.push(message);
            continue;
        }
        if blocks.is_empty() {
            continue;
        }
        let side = match message.role {
            Role::Assistant => "assistant",
            _ if in_system => "system",
            _ => "user",
        };
        match turns.last_mut() {
            Some(turn) if turn.side == side && !in_system => turn.join(blocks, message),
            _ => {
                // In a bare list, system messages come before all other messages.
                let at = turns.iter().take_while(|turn| !in_system || turn.side == "system").count();
                turns.insert(at, Turn { side, blocks, messages: vec![message] });
            }
        }
    }
    // The first message must be a user message.
    let first = turns.iter().take_while(|turn| turn.side == "system").count();
    let lacks_user = turns.get(first).is_none_or(|turn| turn.side == "assistant");
    if lacks_user && !(turns.is_empty() && system.is_empty()) {
        let block = |part: &Part| Block { text: encode(part).to_string().into(), ..Block::default() };
        let blocks = opening_message().parts.iter().map(block).collect();
        turns.insert(first, Turn { side: "user", blocks, messages: Vec::new() });
    }
    if let [.., reply, results] = turns.as_mut_slice() {
        results.keep_only_results_while_open(reply);
    }
    let blocks = || system.iter().chain(turns.iter().flat_map(|turn| &turn.blocks));
    let summary = blocks().position(|block| block.is_summary);
    let blocks = system.iter_mut().chain(turns.iter_mut().flat_map(|turn| &mut turn.blocks));
    cache_marks::move_to_summary(body, &mut blocks.map(|block| &mut block.text).collect::<Vec<_>>(), summary);
    if let Some(last) = turns.last_mut() {
        last.trim();
    }
    let mut texts: Vec<Cow<'_, str>> =
        turns.into_iter().filter_map(|turn| turn.text(body, own_fields)).collect();
    let mut after_short = false;
    for text in system.iter_mut().map(|block| &mut block.text).chain(&mut texts) {
        if let Some(shortened) = cache_marks::shorten_after_short(text, &mut after_short) {
            *text = shortened.into();
        }
    }
    let system = (!is_received_system(body, &system_messages)).then_some(system.as_slice());
    with_turns(body, &texts, system, own_fields)
}

/// Returns the request with these turns as its list, and with this system prompt. If `system` is `None`, the
/// received system prompt stays.
fn with_turns(
    body: &Body,
    turns: &[Cow<'_, str>],
    system: Option<&[Block<'_>]>,
    own_fields: OwnFields,
) -> String {
    let request = apply_edits(&body.text, vec![(body.list.clone(), list(body, turns))]);
    let Some(field) = body.dialect.0.about().system_field else { return request };
    let received = body.field(field.name).unwrap_or("null");
    let text = match system {
        None if own_fields == OwnFields::Strip => blocks_without_flags(received),
        None => received.to_owned(),
        Some([]) => "null".to_owned(),
        Some(blocks) => {
            let blocks: Vec<String> = blocks.iter().map(|block| block.to_json(own_fields, None)).collect();
            format!("[{}]", blocks.join(","))
        }
    };
    match text.as_str() {
        text if text == received => request,
        "null" => raw::remove_field(&request, field.name).into_owned(),
        text => raw::set_field(&request, field.name, text),
    }
}

/// Returns whether these system messages are exactly those of the request's system field.
fn is_received_system(body: &Body, messages: &[&Message]) -> bool {
    let own = body.messages.iter().zip(&body.origins).take_while(|(_, origin)| origin.is_system_field());
    let same = |(own, other): (&&Message, &&Message)| {
        (own.seq, &own.parts, flags_of(own)) == (other.seq, &other.parts, flags_of(other))
    };
    let own: Vec<&Message> = own.map(|(own, _)| own).collect();
    own.len() == messages.len() && own.iter().zip(messages).all(same)
}

fn flags_of(message: &Message) -> Flags {
    (message.pinned, message.skip)
}

/// Returns the blocks of a message. `in_system` says whether they are part of the system prompt.
fn blocks<'a>(
    writer: &mut Writer<'a>,
    message: &Message,
    in_system: bool,
    encode: EncodeBlock,
) -> Vec<Block<'a>> {
    let flags = flags_of(message);
    let as_note = message.role.is_system() && !in_system;
    let is_summary = is_new_summary(writer.body, message);
    let mut out = Vec::new();
    for run in writer.runs(message) {
        let texts = match run.piece {
            Some(text) if run.unchanged && !as_note => vec![text],
            piece => {
                let block = |part| if as_note { note(part, encode) } else { encode(part) };
                let encoded: Vec<Value> = run.parts.iter().map(block).collect();
                texts(&encoded, piece.filter(|_| !run.unchanged).as_deref())
            }
        };
        out.extend(texts.into_iter().map(|text| Block { kind: kind_of(&text), text, flags, is_summary }));
    }
    out
}

/// Writes a part of a system message that comes later in the list. Its text is marked as a note, because the
/// format does not allow system messages in the list.
fn note(part: &Part, encode: EncodeBlock) -> Value {
    match part {
        Part::Text { text } => encode(&Part::text(format!("{LATER_SYSTEM_PREFIX}{text}"))),
        other => encode(other),
    }
}

fn kind_of(block: &str) -> BlockKind {
    let name = RawFields::of(block).get("type").and_then(|kind| serde_json::from_str::<String>(kind).ok());
    match name.as_deref() {
        Some("tool_result") => BlockKind::Result,
        Some(kind) if kind.ends_with("thinking") => BlockKind::Reasoning,
        _ => BlockKind::Other,
    }
}

/// Returns the JSON object that contains these flags. `None` if no flag is set.
fn flags_json(flags: Flags) -> Option<String> {
    let set = flags::to_fields(flags);
    (!set.is_empty()).then(|| Value::Object(set).to_string())
}

impl Block<'_> {
    /// Returns the block's JSON. If all blocks of the turn have the same flags, `of_turn` contains these flags,
    /// and the caller writes them to the turn. Otherwise `of_turn` is `None`, and the block's JSON contains its
    /// own flags. [`OwnFields::Strip`] removes all flags.
    fn to_json(&self, own_fields: OwnFields, of_turn: Option<Flags>) -> String {
        let bare = without_flags(Cow::Borrowed(&self.text), false);
        match flags_json(self.flags).filter(|_| own_fields == OwnFields::Keep && of_turn.is_none()) {
            Some(flags) => raw::append_field(&bare, FLAGS_FIELD, &flags),
            None => bare.into_owned(),
        }
    }
}

impl<'a> Turn<'a> {
    /// Merges a message into this turn. If the message starts with reasoning, this reasoning is moved directly
    /// after the reasoning at the start of the turn, because a reply must start with its reasoning.
    fn join(&mut self, mut blocks: Vec<Block<'a>>, message: &'a Message) {
        let leading = |blocks: &[Block<'_>]| {
            blocks.iter().take_while(|block| block.kind == BlockKind::Reasoning).count()
        };
        let (at, count) = (leading(&self.blocks), leading(&blocks));
        self.blocks.splice(at..at, blocks.drain(..count));
        self.blocks.append(&mut blocks);
        self.messages.push(message);
    }

    /// Removes all blocks except tool results if a call of the reply has no result yet. The removed blocks have
    /// unknown types. They are not text from the user: before such text, [`epitome_core::view`] adds a
    /// placeholder result for each call without a result.
    fn keep_only_results_while_open(&mut self, reply: &Self) {
        let has_result = |id: &CallId| {
            self.messages.iter().any(|message| message.results().any(|result| result.call == *id))
        };
        let mut calls = reply.messages.iter().flat_map(|message| message.calls());
        let has_results = self.blocks.iter().any(|block| block.kind == BlockKind::Result);
        if self.side == "user" && has_results && calls.any(|call| !has_result(&call.id)) {
            self.blocks.retain(|block| block.kind == BlockKind::Result);
        }
    }

    /// Returns the turn's JSON. `None` if no block is left.
    fn text(mut self, body: &'a Body, own_fields: OwnFields) -> Option<Cow<'a, str>> {
        // In a user message, tool results come before all other blocks.
        if self.side == "user" {
            self.blocks.sort_by_key(|block| block.kind != BlockKind::Result);
        }
        let first = self.blocks.first()?.flags;
        if let Some(received) = self.received(body).map(Cow::Borrowed) {
            return match (own_fields, self.messages.as_slice()) {
                (OwnFields::Strip, _) => Some(without_flags(received, true)),
                (OwnFields::Keep, [message]) => with_flags(vec![received], message, own_fields).pop(),
                (OwnFields::Keep, _) => Some(received),
            };
        }
        let of_turn = Some(first).filter(|first| self.blocks.iter().all(|block| block.flags == *first));
        let blocks: Vec<String> =
            self.blocks.iter().map(|block| block.to_json(own_fields, of_turn)).collect();
        let mut text = format!("{{\"role\":\"{}\",\"content\":[{}]}}", self.side, blocks.join(","));
        for (key, other) in self.other_fields(body) {
            text = raw::append_field(&text, &key, other);
        }
        if let Some(flags) = of_turn.and_then(flags_json).filter(|_| own_fields == OwnFields::Keep) {
            text = raw::append_field(&text, FLAGS_FIELD, &flags);
        }
        Some(text.into())
    }

    /// Removes whitespace at the end of this turn if the turn is a reply. The provider rejects a request whose
    /// last message is a reply that ends in whitespace.
    fn trim(&mut self) {
        while self.side == "assistant"
            && let Some(block) = self.blocks.last_mut()
            && let Ok(Value::Object(mut fields)) = serde_json::from_str::<Value>(&block.text)
            && fields.get("type").is_some_and(|kind| kind == "text")
            && let Some(text) = fields.get("text").and_then(Value::as_str)
            && text.ends_with(char::is_whitespace)
        {
            let short = text.trim_end().to_owned();
            if short.is_empty() {
                self.blocks.pop();
            } else {
                fields.insert("text".to_owned(), Value::String(short));
                block.text = Value::Object(fields).to_string().into();
            }
        }
    }

    /// Returns the received wire message if this turn is exactly that message.
    fn received<'b>(&self, body: &'b Body) -> Option<&'b str> {
        let first = self.messages.first()?;
        let item = body.texts(body.origin(first.seq)?.items.clone()).next()?;
        let same = |message: &&Message| {
            body.message(message.seq).is_some_and(|own| flags_of(own) == flags_of(message))
        };
        if self.messages.len() > 1 && !self.messages.iter().all(same) {
            return None;
        }
        let blocks = raw::blocks(RawFields::of(item).get("content")?, "text");
        blocks.iter().eq(self.blocks.iter().map(|block| &block.text)).then_some(item)
    }

    /// Returns all fields of the received wire messages except the role, the content and Epitome's flags. If a
    /// name occurs several times, only the first field is returned.
    fn other_fields<'b>(&self, body: &'b Body) -> Vec<(String, &'b str)> {
        let origins = self.messages.iter().filter_map(|message| body.origin(message.seq));
        let whole = origins.filter(|origin| origin.blocks.as_ref().is_none_or(|blocks| blocks.start == 0));
        let items = whole.flat_map(|origin| body.texts(origin.items.clone()));
        let mut out: Vec<(String, &str)> = Vec::new();
        for (key, text) in items.flat_map(|item| RawFields::of(item).0) {
            let written = matches!(key.as_str(), "role" | "content" | FLAGS_FIELD);
            if !written && out.iter().all(|(other, _)| *other != key) {
                out.push((key, text));
            }
        }
        out
    }
}
