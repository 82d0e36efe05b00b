//! Writes a list of two alternating sides with a separate system prompt, as Anthropic requires.
//!
//! Neighbouring messages of one side become one message of blocks. If their flags differ, each block carries
//! its own flags, so that a pin does not spread to the other merged messages. When the body is read again,
//! such a message is split.

use std::borrow::Cow;

use epitome_core::message::{CallId, Message, Part, Role};
use serde_json::Value;

use super::write::{flagged, is_new_summary, list, shown, stripped, stripped_blocks};
use super::writer::{Writer, texts};
use super::{Body, Marks, Origin, cached};
use crate::fit::{LATER_ORDER, opener};
use crate::flags;
use crate::raw::{self, FLAGS, Members, replaced};

/// Spells a part as a block.
type Spell = fn(&Part) -> Value;

/// The two flags of a message: pinned and skip.
type Flags = (bool, bool);

/// An outgoing block.
#[derive(Default)]
struct Block<'a> {
    text: Cow<'a, str>,
    flags: Flags,
    kind: Kind,
    /// Whether it belongs to a new summary.
    summary: bool,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Kind {
    Reasoning,
    Result,
    #[default]
    Other,
}

/// An outgoing wire message under construction.
struct Turn<'a> {
    side: &'static str,
    blocks: Vec<Block<'a>>,
    /// The messages merged into it.
    from: Vec<&'a Message>,
}

pub(super) fn with(body: &Body, messages: &[Message], marks: Marks, spell: Spell) -> String {
    let mut writer = Writer::new(body);
    let (mut system, mut orders) = (Vec::<Block<'_>>::new(), Vec::<&Message>::new());
    let mut turns = Vec::<Turn<'_>>::new();
    for message in shown(body, messages) {
        let origin = body.origin(message.seq);
        let spoken = turns.iter().any(|turn| turn.side != "system");
        // A summary can be a system message if the caller requests it.
        let head = message.role.is_system() && (!spoken || origin.is_none_or(Origin::is_head));
        let mut blocks = blocks(&mut writer, message, head, spell);
        if head && body.fields.is_some() {
            system.append(&mut blocks);
            orders.push(message);
            continue;
        }
        if blocks.is_empty() {
            continue;
        }
        let side = match message.role {
            Role::Assistant => "assistant",
            _ if head => "system",
            _ => "user",
        };
        match turns.last_mut() {
            Some(turn) if turn.side == side && !head => turn.join(blocks, message),
            _ => {
                // In a bare list, system messages come before all others.
                let at = turns.iter().take_while(|turn| !head || turn.side == "system").count();
                turns.insert(at, Turn { side, blocks, from: vec![message] });
            }
        }
    }
    // The first message must be the user's.
    let first = turns.iter().take_while(|turn| turn.side == "system").count();
    let lacks_user = turns.get(first).is_none_or(|turn| turn.side == "assistant");
    if lacks_user && !(turns.is_empty() && system.is_empty()) {
        let block = |part: &Part| Block { text: spell(part).to_string().into(), ..Block::default() };
        let blocks = opener().parts.iter().map(block).collect();
        turns.insert(first, Turn { side: "user", blocks, from: Vec::new() });
    }
    if let [.., asked, answered] = turns.as_mut_slice() {
        answered.drop_asides_while_open(asked);
    }
    let blocks = || system.iter().chain(turns.iter().flat_map(|turn| &turn.blocks));
    let summary = blocks().position(|block| block.summary);
    let blocks = system.iter_mut().chain(turns.iter_mut().flat_map(|turn| &mut turn.blocks));
    cached::pass_on(body, &mut blocks.map(|block| &mut block.text).collect::<Vec<_>>(), summary);
    if let Some(last) = turns.last_mut() {
        last.trim();
    }
    let mut texts: Vec<Cow<'_, str>> = turns.into_iter().filter_map(|turn| turn.text(body, marks)).collect();
    let mut short = false;
    for text in system.iter_mut().map(|block| &mut block.text).chain(&mut texts) {
        if let Some(other) = cached::in_order(text, &mut short) {
            *text = other.into();
        }
    }
    put(body, &texts, (!is_own(body, &orders)).then_some(system.as_slice()), marks)
}

/// Returns the request with this list and this system prompt; `None` leaves the original system prompt.
fn put(body: &Body, turns: &[Cow<'_, str>], system: Option<&[Block<'_>]>, marks: Marks) -> String {
    let request = replaced(&body.text, vec![(body.list.clone(), list(body, turns))]);
    let given = body.field("system").unwrap_or("null");
    let text = match system {
        None if marks == Marks::Stripped => stripped_blocks(given),
        None => given.to_owned(),
        Some([]) => "null".to_owned(),
        Some(blocks) => {
            let blocks: Vec<String> = blocks.iter().map(|block| block.marked(marks, None)).collect();
            format!("[{}]", blocks.join(","))
        }
    };
    match text.as_str() {
        text if text == given => request,
        "null" => raw::without(&request, "system").into_owned(),
        text => raw::with(&request, "system", text),
    }
}

/// Returns whether these system messages are exactly those of the request's system field.
fn is_own(body: &Body, orders: &[&Message]) -> bool {
    let own = body.messages.iter().zip(&body.origins).take_while(|(_, origin)| origin.is_head());
    let same = |(own, shown): (&&Message, &&Message)| {
        (own.seq, &own.parts, flags_of(own)) == (shown.seq, &shown.parts, flags_of(shown))
    };
    let own: Vec<&Message> = own.map(|(own, _)| own).collect();
    own.len() == orders.len() && own.iter().zip(orders).all(same)
}

fn flags_of(message: &Message) -> Flags {
    (message.pinned, message.skip)
}

/// Returns the blocks of a message.
fn blocks<'a>(writer: &mut Writer<'a>, message: &Message, head: bool, spell: Spell) -> Vec<Block<'a>> {
    let flags = flags_of(message);
    let later = message.role.is_system() && !head;
    let summary = is_new_summary(writer.body, message);
    let mut out = Vec::new();
    for bit in writer.bits(message) {
        let texts = match bit.was {
            Some(text) if bit.came && !later => vec![text],
            was => {
                let one = |part| if later { noted(part, spell) } else { spell(part) };
                let spelled: Vec<Value> = bit.parts.iter().map(one).collect();
                texts(&spelled, was.filter(|_| !bit.came).as_deref())
            }
        };
        out.extend(texts.into_iter().map(|text| Block { kind: kind(&text), text, flags, summary }));
    }
    out
}

/// Writes a later system message as a note, because the format has no system messages in the list.
fn noted(part: &Part, spell: Spell) -> Value {
    match part {
        Part::Text { text } => spell(&Part::text(format!("{LATER_ORDER}{text}"))),
        other => spell(other),
    }
}

fn kind(block: &str) -> Kind {
    let named = Members::of(block).get("type").and_then(|kind| serde_json::from_str::<String>(kind).ok());
    match named.as_deref() {
        Some("tool_result") => Kind::Result,
        Some(kind) if kind.ends_with("thinking") => Kind::Reasoning,
        _ => Kind::Other,
    }
}

/// Returns the JSON field for these flags; `None` if no flag is set.
fn said(flags: Flags) -> Option<String> {
    let set = flags::set(flags);
    (!set.is_empty()).then(|| Value::Object(set).to_string())
}

impl Block<'_> {
    /// Returns the block's text, with its flags if they are to be preserved and the message as a whole does
    /// not carry them.
    fn marked(&self, marks: Marks, whole: Option<Flags>) -> String {
        let bare = stripped(Cow::Borrowed(&self.text), false);
        match said(self.flags).filter(|_| marks == Marks::Kept && whole.is_none()) {
            Some(flags) => raw::and(&bare, FLAGS, &flags),
            None => bare.into_owned(),
        }
    }
}

impl<'a> Turn<'a> {
    /// Merges a message into this one. A reply must begin with the leading reasoning of both.
    fn join(&mut self, mut blocks: Vec<Block<'a>>, message: &'a Message) {
        let leading =
            |blocks: &[Block<'_>]| blocks.iter().take_while(|block| block.kind == Kind::Reasoning).count();
        let (at, count) = (leading(&self.blocks), leading(&blocks));
        self.blocks.splice(at..at, blocks.drain(..count));
        self.blocks.append(&mut blocks);
        self.from.push(message);
    }

    /// Removes other blocks next to results while further results of the same reply are missing. These can
    /// only be blocks of a type unknown here: text from the user would have ended the wait for the results.
    fn drop_asides_while_open(&mut self, asked: &Self) {
        let answered =
            |id: &CallId| self.from.iter().any(|message| message.results().any(|result| result.call == *id));
        let mut calls = asked.from.iter().flat_map(|message| message.calls());
        let begun = self.blocks.iter().any(|block| block.kind == Kind::Result);
        if self.side == "user" && begun && calls.any(|call| !answered(&call.id)) {
            self.blocks.retain(|block| block.kind == Kind::Result);
        }
    }

    /// Returns the text to send; `None` if no block is left.
    fn text(mut self, body: &'a Body, marks: Marks) -> Option<Cow<'a, str>> {
        // Results come before all other blocks of the user's side.
        if self.side == "user" {
            self.blocks.sort_by_key(|block| block.kind != Kind::Result);
        }
        let first = self.blocks.first()?.flags;
        if let Some(came) = self.came(body).map(Cow::Borrowed) {
            return match (marks, self.from.as_slice()) {
                (Marks::Stripped, _) => Some(stripped(came, true)),
                (Marks::Kept, [message]) => flagged(vec![came], message, marks).pop(),
                (Marks::Kept, _) => Some(came),
            };
        }
        let alike = Some(first).filter(|first| self.blocks.iter().all(|block| block.flags == *first));
        let blocks: Vec<String> = self.blocks.iter().map(|block| block.marked(marks, alike)).collect();
        let mut text = format!("{{\"role\":\"{}\",\"content\":[{}]}}", self.side, blocks.join(","));
        for (key, other) in self.others(body) {
            text = raw::and(&text, &key, other);
        }
        if let Some(flags) = alike.and_then(said).filter(|_| marks == Marks::Kept) {
            text = raw::and(&text, FLAGS, &flags);
        }
        Some(text.into())
    }

    /// Trims the last reply: the beginning of an answer that the model shall continue must not end in
    /// whitespace.
    fn trim(&mut self) {
        while self.side == "assistant"
            && let Some(block) = self.blocks.last_mut()
            && let Ok(Value::Object(mut fields)) = serde_json::from_str::<Value>(&block.text)
            && fields.get("type").is_some_and(|kind| kind == "text")
            && let Some(said) = fields.get("text").and_then(Value::as_str)
            && said.ends_with(char::is_whitespace)
        {
            let short = said.trim_end().to_owned();
            if short.is_empty() {
                self.blocks.pop();
            } else {
                fields.insert("text".to_owned(), Value::String(short));
                block.text = Value::Object(fields).to_string().into();
            }
        }
    }

    /// Returns the received wire message if this turn is exactly that message.
    fn came<'b>(&self, body: &'b Body) -> Option<&'b str> {
        let first = self.from.first()?;
        let item = body.texts(body.origin(first.seq)?.items.clone()).next()?;
        let same =
            |message: &&Message| body.own(message.seq).is_some_and(|own| flags_of(own) == flags_of(message));
        if self.from.len() > 1 && !self.from.iter().all(same) {
            return None;
        }
        let came = raw::blocks(Members::of(item).get("content")?, "text");
        came.iter().eq(self.blocks.iter().map(|block| &block.text)).then_some(item)
    }

    /// Returns the other fields of the received wire messages; of duplicate names only the first.
    fn others<'b>(&self, body: &'b Body) -> Vec<(String, &'b str)> {
        let origins = self.from.iter().filter_map(|message| body.origin(message.seq));
        let whole = origins.filter(|origin| origin.blocks.as_ref().is_none_or(|blocks| blocks.start == 0));
        let items = whole.flat_map(|origin| body.texts(origin.items.clone()));
        let mut out: Vec<(String, &str)> = Vec::new();
        for (key, text) in items.flat_map(|item| Members::of(item).0) {
            let known = matches!(key.as_str(), "role" | "content" | FLAGS);
            if !known && out.iter().all(|(other, _)| *other != key) {
                out.push((key, text));
            }
        }
        out
    }
}
