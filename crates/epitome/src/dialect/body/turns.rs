//! Anthropic's list: two sides that take turns, and a system prompt beside it.
//!
//! Neighbours of one side become one message of blocks. Where they differ in their flags, each block says its own, so
//! that a pin does not spread to what it was merged with; the body takes such a message apart again when it is read.

use epitome_core::message::{Message, Part, Role};
use serde_json::{Map, Value, json};

use super::raw::{self, FLAGS, Members};
use super::write::{Bit, Writer, flagged, replaced, stripped, texts};
use super::{Body, Marks, Origin};
use crate::dialect::anthropic::{NOTE, is_reasoning, spell_part};
use crate::dialect::fit::opener;
use crate::dialect::{Dialect, flags};

/// The two flags of a message.
type Flags = (bool, bool);

/// A block on its way out.
struct Block {
    text: String,
    flags: Flags,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Reasoning,
    Result,
    Other,
}

/// A wire message in the making.
struct Turn<'a> {
    side: &'static str,
    blocks: Vec<Block>,
    /// The messages in it: which they were, and whether they go out as they came.
    from: Vec<(&'a Message, bool)>,
}

pub(super) fn with(body: &Body, messages: &[Message], marks: Marks) -> String {
    let mut writer = Writer::new(body);
    let (mut system, mut turns) = (Vec::<Block>::new(), Vec::<Turn<'_>>::new());
    for message in messages {
        let origin = body.origin(message.seq);
        let spoken = turns.iter().any(|turn| turn.side != "system");
        // A summary may be a standing order, for who asks for it.
        let head = message.role.is_system() && (!spoken || origin.is_none_or(Origin::is_head));
        let (mut blocks, intact) = blocks(&mut writer, message, head);
        if blocks.is_empty() {
            continue;
        }
        if head && body.fields.is_some() {
            system.append(&mut blocks);
            continue;
        }
        let side = match message.role {
            Role::Assistant => "assistant",
            _ if head => "system",
            _ => "user",
        };
        if !spoken && side == "assistant" {
            turns.push(opening());
        }
        match turns.last_mut() {
            Some(turn) if turn.side == side && !head => turn.join(blocks, message, intact),
            _ => {
                // In a bare list what the system says stands before everything else.
                let at = if head {
                    turns.iter().take_while(|turn| turn.side == "system").count()
                } else {
                    turns.len()
                };
                turns.insert(at, Turn { side, blocks, from: vec![(message, intact)] });
            }
        }
    }
    if turns.iter().all(|turn| turn.side == "system") && !(turns.is_empty() && system.is_empty()) {
        turns.push(opening());
    }
    let last = turns.len().saturating_sub(1);
    let list: Vec<String> =
        turns.into_iter().enumerate().filter_map(|(at, turn)| turn.text(body, marks, at == last)).collect();
    put(body, &list, system, marks)
}

/// The request with this list, and with this system prompt.
fn put(body: &Body, list: &[String], system: Vec<Block>, marks: Marks) -> String {
    let items = body.items.iter().filter_map(|place| body.text.get(place.clone()));
    let mut edits = Vec::new();
    if !(list.len() == body.items.len() && list.iter().map(String::as_str).eq(items)) {
        edits.push((body.list.clone(), format!("[{}]", list.join(","))));
    }
    let place = body.place("system");
    let given = place.clone().and_then(|place| body.text.get(place));
    let system = prompt(given, system, marks);
    match (place, system) {
        (Some(_), None) if given != Some("null") => {
            raw::without(&replaced(&body.text, edits), &|key| key == "system")
        }
        (None, Some(system)) if body.fields.is_some() => {
            raw::and(&replaced(&body.text, edits), "system", &system)
        }
        (Some(place), Some(system)) => {
            if given != Some(system.as_str()) {
                edits.push((place, system));
            }
            replaced(&body.text, edits)
        }
        _ => replaced(&body.text, edits),
    }
}

/// The system prompt: as it came, where it says the same.
fn prompt(given: Option<&str>, mut system: Vec<Block>, marks: Marks) -> Option<String> {
    if system.is_empty() {
        return None;
    }
    if let Some(given) = given.filter(|given| given.starts_with('"'))
        && let [only] = system.as_slice()
        && only.text == format!("{{\"type\":\"text\",\"text\":{given}}}")
        && (marks == Marks::Stripped || only.flags == (false, false))
    {
        return Some(given.to_owned());
    }
    let same = |block: &Block| own_flags(&block.text) == block.flags;
    let came = given.map(raw::items).unwrap_or_default();
    let as_it_came = marks == Marks::Kept || !system.iter().any(|block| raw::may_have_flags(&block.text));
    if as_it_came
        && came.iter().copied().eq(system.iter().map(|block| block.text.as_str()))
        && system.iter().all(same)
    {
        return given.map(str::to_owned);
    }
    let blocks: Vec<String> = system.iter_mut().map(|block| block.marked(marks, None)).collect();
    Some(format!("[{}]", blocks.join(",")))
}

fn opening<'a>() -> Turn<'a> {
    let spelled = opener().parts.iter().map(spell_part).collect::<Vec<_>>();
    let block = |value: &Value| Block { text: value.to_string(), flags: (false, false), kind: Kind::Other };
    Turn { side: "user", blocks: spelled.iter().map(block).collect(), from: Vec::new() }
}

/// The blocks of a message, and whether they are all that it came as.
fn blocks(writer: &mut Writer<'_>, message: &Message, head: bool) -> (Vec<Block>, bool) {
    let flags = (message.pinned, message.skip);
    let own = writer.own(message).is_some_and(|own| own.parts == message.parts && own.role == message.role);
    let (mut out, mut intact) = (Vec::new(), own);
    let later = message.role.is_system() && !head;
    for bit in writer.bits(message) {
        let texts: Vec<String> = match bit {
            Bit::Came { text, .. } if !later => vec![text.into_owned()],
            Bit::Came { parts, .. } => {
                intact = false;
                parts.iter().map(|part| noted(part).to_string()).collect()
            }
            Bit::Fitted { parts, was } => {
                intact = false;
                let spell = |part| if later { noted(part) } else { spell_part(part) };
                let spelled: Vec<Value> = parts.iter().map(spell).collect();
                texts(&spelled, was.as_deref())
            }
        };
        out.extend(texts.into_iter().map(|text| Block { kind: kind(&text), text, flags }));
    }
    (out, intact)
}

/// What the system says later, where there is no place for it.
fn noted(part: &Part) -> Value {
    match part {
        Part::Text { text } => spell_part(&Part::text(format!("{NOTE}{text}"))),
        other => spell_part(other),
    }
}

fn kind(block: &str) -> Kind {
    let named = Members::of(block).get("type").and_then(|kind| serde_json::from_str::<String>(kind).ok());
    match named.as_deref() {
        Some("tool_result") => Kind::Result,
        Some(kind) if is_reasoning(&json!({ "type": kind })) => Kind::Reasoning,
        _ => Kind::Other,
    }
}

fn own_flags(text: &str) -> Flags {
    let flags = Members::of(text).get(FLAGS).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let wrapped = flags.map(|flags| Map::from_iter([(FLAGS.to_owned(), flags)])).unwrap_or_default();
    flags::of(&wrapped).unwrap_or_default()
}

/// Flags as the field that says them; none where there is nothing to say.
fn said((pinned, skip): Flags) -> Option<String> {
    let set = [("pinned", pinned), ("skip", skip)].into_iter().filter(|(_, set)| *set);
    let set: Map<String, Value> = set.map(|(name, _)| (name.to_owned(), Value::Bool(true))).collect();
    (!set.is_empty()).then(|| Value::Object(set).to_string())
}

impl Block {
    /// Its text, with its flags where they are to be kept and the whole message does not say them.
    fn marked(&self, marks: Marks, whole: Option<Flags>) -> String {
        let bare = stripped(Dialect::OpenAi, &self.text);
        match said(self.flags).filter(|_| marks == Marks::Kept && whole.is_none()) {
            Some(flags) => raw::and(&bare, FLAGS, &flags),
            None => bare.into_owned(),
        }
    }
}

impl<'a> Turn<'a> {
    /// One message now. A reply has to begin with the reasoning that either began with.
    fn join(&mut self, mut blocks: Vec<Block>, message: &'a Message, intact: bool) {
        let leading =
            |blocks: &[Block]| blocks.iter().take_while(|block| block.kind == Kind::Reasoning).count();
        let (at, count) = (leading(&self.blocks), leading(&blocks));
        self.blocks.splice(at..at, blocks.drain(..count));
        self.blocks.append(&mut blocks);
        self.from.push((message, intact));
    }

    /// As it is sent; none where nothing of it is left.
    fn text(mut self, body: &Body, marks: Marks, last: bool) -> Option<String> {
        let trimmed = last && self.trim();
        let sorted = self.blocks.is_sorted_by_key(|block| block.kind != Kind::Result);
        // Results come before anything else that the user's side says.
        if self.side == "user" {
            self.blocks.sort_by_key(|block| block.kind != Kind::Result);
        }
        if self.blocks.is_empty() {
            return None;
        }
        if !trimmed
            && (sorted || self.side != "user")
            && let Some(came) = self.came(body)
        {
            return match (marks, self.from.as_slice()) {
                (Marks::Stripped, _) => Some(stripped(Dialect::Anthropic, came).into_owned()),
                (Marks::Kept, [(message, _)]) => flagged(vec![came.to_owned()], message, marks).pop(),
                (Marks::Kept, _) => Some(came.to_owned()),
            };
        }
        let first = self.blocks.first().map(|block| block.flags);
        let alike = first.filter(|first| self.blocks.iter().all(|block| block.flags == *first));
        let blocks: Vec<String> = self.blocks.iter().map(|block| block.marked(marks, alike)).collect();
        let mut text = format!("{{\"role\":\"{}\",\"content\":[{}]}}", self.side, blocks.join(","));
        for (key, other) in self.others(body) {
            text = raw::and(&text, &key, other);
        }
        let whole = alike.and_then(said).filter(|_| marks == Marks::Kept);
        Some(whole.map_or(text.clone(), |flags| raw::and(&text, FLAGS, &flags)))
    }

    /// An answer that is begun for the model may not end in white space. Whether there was any.
    fn trim(&mut self) -> bool {
        let mut any = false;
        while self.side == "assistant"
            && let Some(block) = self.blocks.last_mut()
            && let Ok(Value::Object(mut fields)) = serde_json::from_str::<Value>(&block.text)
            && fields.get("type").is_some_and(|kind| kind == "text")
            && let Some(said) = fields.get("text").and_then(Value::as_str)
            && said.ends_with(char::is_whitespace)
        {
            any = true;
            let short = said.trim_end().to_owned();
            if short.is_empty() {
                self.blocks.pop();
            } else {
                fields.insert("text".to_owned(), Value::String(short));
                block.text = Value::Object(fields).to_string();
            }
        }
        any
    }

    /// The wire message that this is, all of it and nothing else.
    fn came<'b>(&self, body: &'b Body) -> Option<&'b str> {
        let ((first, _), (last, _)) = (self.from.first()?, self.from.last()?);
        let item = |seq: u64| body.origin(seq).map(|origin| origin.items.clone());
        let items = item(first.seq).filter(|items| items.len() == 1)?;
        let mut seqs = first.seq..;
        let mine = self.from.iter().all(|(message, intact)| {
            let same = body.messages.get(usize::try_from(message.seq).unwrap_or(usize::MAX).wrapping_sub(1));
            let flags = |message: &Message| (message.pinned, message.skip);
            *intact
                && seqs.next() == Some(message.seq)
                && item(message.seq).as_ref() == Some(&items)
                && (self.from.len() == 1 || same.is_some_and(|same| flags(same) == flags(message)))
        });
        let around = [first.seq.wrapping_sub(1), last.seq.wrapping_add(1)];
        let alone = around.into_iter().all(|seq| item(seq).as_ref() != Some(&items));
        (mine && alone).then(|| body.text.get(body.items.get(items.start)?.clone())).flatten()
    }

    /// What the wire messages said besides, of each field the first.
    fn others<'b>(&self, body: &'b Body) -> Vec<(String, &'b str)> {
        let mut out: Vec<(String, &str)> = Vec::new();
        for (message, _) in &self.from {
            let Some(origin) = body.origin(message.seq) else { continue };
            if origin.blocks.as_ref().is_some_and(|blocks| blocks.start > 0) {
                continue;
            }
            for place in body.items.get(origin.items.clone()).unwrap_or_default() {
                let members = Members::of(body.text.get(place.clone()).unwrap_or_default());
                let known = |key: &str| matches!(key, "role" | "content" | FLAGS);
                for (key, text) in members.0 {
                    if !known(&key) && out.iter().all(|(other, _)| *other != key) {
                        out.push((key, text));
                    }
                }
            }
        }
        out
    }
}
