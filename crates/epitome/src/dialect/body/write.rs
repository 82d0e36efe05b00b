//! The list that goes out, and the request around it.
//!
//! Every shown message is fitted, as for any wire, and held against what it came as: what is the same, and taken by
//! the provider, goes out as it came. The rest is spelled, with the fields of it that we do not know.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use epitome_core::message::{CallId, Content, Message, Part, Seq};
use serde_json::{Map, Value, json};

use super::pieces::{self, FUNCTION, Piece};
use super::raw::{self, FLAGS, Members};
use super::{Body, Marks, turns};
use crate::dialect::fit::{Fitter, Wants, is_blank};
use crate::dialect::{Dialect, anthropic, flags, openai, responses};

pub(super) fn with(body: &Body, messages: &[Message], marks: Marks) -> String {
    if body.dialect == Dialect::Anthropic {
        return turns::with(body, messages, marks);
    }
    let mut writer = Writer::new(body);
    let mut texts = Vec::new();
    for message in shown(body, messages) {
        if body.origin(message.seq).is_some_and(super::Origin::is_head) {
            continue;
        }
        let spelled = match body.dialect {
            Dialect::Ours => writer.ours(message),
            Dialect::Responses => writer.items(message),
            _ => writer.chat(message),
        };
        texts.extend(if body.dialect == Dialect::Ours { spelled } else { flagged(spelled, message, marks) });
    }
    body.text.get(..body.list.start).unwrap_or_default().to_owned()
        + &writer.list(&texts)
        + body.text.get(body.list.end..).unwrap_or_default()
}

/// The messages, and beside them those of which nothing was read: the core leaves out what says nothing, and who sent a
/// kind that is new to us has a provider that waits for it.
pub(super) fn shown<'a>(body: &'a Body, messages: &'a [Message]) -> Vec<&'a Message> {
    let own = |seq: Seq| body.messages.get(usize::try_from(seq).ok()?.checked_sub(1)?);
    let says_nothing =
        |message: &&Message| matches!(message.parts.as_slice(), [Part::Text { text }] if text.is_empty());
    let mut out = Vec::with_capacity(messages.len());
    let mut open: HashSet<&CallId> = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        out.push(message);
        open.extend(message.calls().map(|call| &call.id));
        for result in message.results() {
            open.remove(&result.call);
        }
        let next = messages.get(at + 1);
        if message.seq == 0 || next.is_some_and(|next| next.seq == message.seq) {
            continue;
        }
        let silent = (message.seq.saturating_add(1)..).map_while(|seq| own(seq).filter(says_nothing));
        let silent: Vec<&Message> =
            silent.take_while(|silent| next.is_none_or(|next| next.seq != silent.seq)).collect();
        // Where more is left out, this is as old.
        let after = silent.last().map_or(message.seq, |last| last.seq).saturating_add(1);
        let beside = next.map_or_else(|| own(after).is_none(), |next| next.seq == after);
        // Nobody says anything between a call and its answer.
        if beside && (open.is_empty() || silent.iter().all(|silent| is_no_speech(body, silent))) {
            out.extend(silent);
        }
    }
    out
}

/// Whether this is an item of Responses that nobody says, as a permission is.
fn is_no_speech(body: &Body, message: &Message) -> bool {
    let items = body.origin(message.seq).and_then(|origin| body.items.get(origin.items.clone()));
    let mut texts = items.unwrap_or_default().iter().filter_map(|place| body.text.get(place.clone()));
    body.dialect == Dialect::Responses
        && texts.all(|item| Members::of(item).get("type").is_some_and(|kind| kind != "\"message\""))
}

/// Texts in place of others, in order of their places.
pub(super) fn replaced(text: &str, mut edits: Vec<(Range<usize>, String)>) -> String {
    edits.sort_by_key(|(place, _)| place.start);
    let mut out = String::with_capacity(text.len());
    let mut before = 0;
    for (place, new) in edits {
        out.push_str(text.get(before..place.start).unwrap_or_default());
        out.push_str(&new);
        before = place.end;
    }
    out.push_str(text.get(before..).unwrap_or_default());
    out
}

/// A wire message without our own fields.
pub(super) fn stripped(dialect: Dialect, item: &str) -> Cow<'_, str> {
    if dialect == Dialect::Ours || !raw::may_have_flags(item) {
        return Cow::Borrowed(item);
    }
    let members = Members::of(item);
    let bare = match members.get("content") {
        Some(content) if dialect == Dialect::Anthropic => {
            Cow::Owned(replaced(item, vec![(raw::place(item, content), stripped_blocks(content))]))
        }
        _ => Cow::Borrowed(item),
    };
    match Members::of(&bare).get(FLAGS) {
        Some(_) => Cow::Owned(raw::without(&bare, &|key| key == FLAGS)),
        None => bare,
    }
}

/// A list of blocks without our own fields; anything else as it is.
pub(super) fn stripped_blocks(content: &str) -> String {
    if !content.starts_with('[') || !raw::may_have_flags(content) {
        return content.to_owned();
    }
    let blocks = raw::items(content).into_iter();
    let flagged = blocks.filter(|block| Members::of(block).get(FLAGS).is_some());
    let edits =
        flagged.map(|block| (raw::place(content, block), raw::without(block, &|key| key == FLAGS))).collect();
    replaced(content, edits)
}

/// The texts that stand for a message, with its flags as they are now, or without any.
pub(super) fn flagged(texts: Vec<String>, message: &Message, marks: Marks) -> Vec<String> {
    if marks == Marks::Stripped {
        // Blocks with flags are never here.
        return texts.into_iter().map(|text| stripped(Dialect::OpenAi, &text).into_owned()).collect();
    }
    let has = |text: &String| raw::may_have_flags(text);
    if !(message.pinned || message.skip || texts.iter().any(has)) {
        return texts;
    }
    let mut values: Vec<Value> =
        texts.iter().map(|text| serde_json::from_str(text).unwrap_or_default()).collect();
    let before = values.clone();
    let _ = flags::show(&mut values, message);
    let shown = texts.into_iter().zip(before).zip(values);
    shown.map(|((text, before), now)| if before == now { text } else { now.to_string() }).collect()
}

/// A run of a message's parts on its way out.
pub(super) enum Bit<'a> {
    /// As it came; with what it would be otherwise.
    Came { text: Cow<'a, str>, parts: Vec<Part>, form: Option<String> },
    /// To be spelled; with the piece that it was.
    Fitted { parts: Vec<Part>, was: Option<Cow<'a, str>> },
}

impl Bit<'_> {
    fn parts(&self) -> &[Part] {
        match self {
            Self::Came { parts, .. } | Self::Fitted { parts, .. } => parts,
        }
    }
}

/// The pieces of the message that is under way, and how many of them are behind.
struct Opened<'a> {
    seq: Seq,
    pieces: Vec<Piece<'a>>,
    next: usize,
}

/// Writes one message after the other.
pub(super) struct Writer<'a> {
    body: &'a Body,
    pub(super) fitter: Fitter,
    opened: Option<Opened<'a>>,
    /// Calls that went out as they came and are of an uncommon kind: their answers are of it, too.
    forms: HashMap<CallId, String>,
    /// What items are called that went out as they came.
    ids: HashSet<String>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(body: &'a Body) -> Self {
        let wants = match body.dialect {
            Dialect::Responses => responses::wants(),
            Dialect::Anthropic => anthropic::wants(),
            // Who sends reasoning here has a server that wants it back.
            Dialect::OpenAi | Dialect::Ours => Wants { reasoning: |_, _| true, ..openai::wants() },
        };
        Self { body, fitter: Fitter::new(wants), opened: None, forms: HashMap::new(), ids: HashSet::new() }
    }

    /// The list itself, as it came where nothing in it changed.
    fn list(&self, texts: &[String]) -> String {
        let came = self.body.text.get(self.body.list.clone()).unwrap_or_default();
        let items = || self.body.items.iter().filter_map(|place| self.body.text.get(place.clone()));
        if texts.len() == self.body.items.len() && texts.iter().map(String::as_str).eq(items()) {
            return came.to_owned();
        }
        format!("[{}]", texts.join(","))
    }

    /// A message as runs of parts. Those of its own origin go out as they came where nothing speaks against it.
    /// With them, whether they are all that the message came as.
    pub(super) fn bits(&mut self, message: &Message) -> (Vec<Bit<'a>>, bool) {
        let fitted: Vec<Option<Part>> =
            message.parts.iter().map(|part| self.fitter.part(message.role, part)).collect();
        let Some(mut opened) = self.opened(message.seq) else {
            let parts: Vec<Part> = fitted.into_iter().flatten().collect();
            return (
                if parts.is_empty() { Vec::new() } else { vec![Bit::Fitted { parts, was: None }] },
                false,
            );
        };
        let whole = self.own(message).is_some_and(|own| own.parts == message.parts);
        let mut bits = Vec::new();
        let mut shown = message.parts.iter().zip(fitted).peekable();
        let mut loose = Vec::new();
        while let Some((part, _)) = shown.peek() {
            let Some(at) = found(&opened, part) else {
                loose.extend(shown.next().and_then(|(_, fitted)| fitted));
                continue;
            };
            flush(&mut loose, &mut bits);
            // What nobody here knows stays beside what it came with; what was left out is passed over.
            for unknown in opened.pieces.get(opened.next..at).unwrap_or_default() {
                bits.extend(unread(unknown));
            }
            opened.next = at + 1;
            let Some(piece) = opened.pieces.get(at) else { break };
            let (mut same, mut mine) = (piece.sound && self.is_free(piece), Vec::new());
            let mut came = piece.parts.iter();
            for came in came.by_ref() {
                let Some((part, fitted)) = shown.peek().filter(|(part, _)| belongs(piece, came, part)) else {
                    same = false;
                    continue;
                };
                same &= self.goes_as_it_came(piece, came, part, fitted.as_ref());
                mine.extend(shown.next().and_then(|(_, fitted)| fitted));
            }
            bits.push(if same {
                self.ids.extend(piece.id.clone());
                Bit::Came { text: piece.text.clone(), parts: mine, form: piece.form.clone() }
            } else {
                Bit::Fitted { parts: mine, was: Some(piece.text.clone()) }
            });
        }
        flush(&mut loose, &mut bits);
        if whole || !bits.is_empty() {
            let rest = opened.pieces.get(opened.next..).unwrap_or_default();
            let rest = rest.iter().take_while(|piece| piece.parts.is_empty());
            let rest: Vec<Bit<'a>> = rest.filter_map(unread).collect();
            opened.next += rest.len();
            bits.extend(rest);
        }
        let count = opened.pieces.len();
        self.opened = Some(opened);
        // Reasoning that leads to nothing is refused.
        let only_thinks = |bit: &Bit<'_>| {
            !bit.parts().is_empty() && bit.parts().iter().all(|part| matches!(part, Part::Thinking { .. }))
        };
        while bits.pop_if(|bit| only_thinks(bit)).is_some() {}
        bits.retain(|bit| !matches!(bit, Bit::Fitted { parts, .. } if parts.is_empty()));
        let came = bits.iter().filter(|bit| matches!(bit, Bit::Came { .. })).count();
        let intact = whole && came == count && came == bits.len();
        (bits, intact)
    }

    fn opened(&mut self, seq: Seq) -> Option<Opened<'a>> {
        if let Some(opened) = self.opened.take_if(|opened| opened.seq == seq) {
            return Some(opened);
        }
        let body = self.body;
        let origin = body.origin(seq)?;
        let mut pieces = Vec::new();
        if origin.is_head() {
            pieces.extend(pieces::of(body.dialect, body.head.as_deref()?));
        }
        for place in body.items.get(origin.items.clone()).unwrap_or_default() {
            pieces.extend(pieces::of(body.dialect, body.text.get(place.clone())?));
        }
        if let Some(blocks) = &origin.blocks {
            pieces = pieces.into_iter().skip(blocks.start).take(blocks.len()).collect();
        }
        Some(Opened { seq, pieces, next: 0 })
    }

    /// The message as it was read, where this is one of the body's.
    pub(super) fn own(&self, message: &Message) -> Option<&'a Message> {
        self.body.messages.get(usize::try_from(message.seq).ok()?.checked_sub(1)?)
    }

    /// Whether what it is called was not sent before.
    fn is_free(&self, piece: &Piece<'_>) -> bool {
        piece.id.as_ref().is_none_or(|id| !self.ids.contains(id))
    }

    fn goes_as_it_came(&self, piece: &Piece<'_>, came: &Part, shown: &Part, fitted: Option<&Part>) -> bool {
        if let (Part::ToolResult(came), Part::ToolResult(shown)) = (came, shown) {
            let asked = self.forms.get(&shown.call);
            if came.call != shown.call || asked != piece.form.as_ref() {
                return false;
            }
            // What a tool of the provider's gave has a form of its own, in which words have no place.
            if asked.is_some_and(|form| !matches!(form.as_str(), FUNCTION | "custom_tool_call")) {
                return true;
            }
        }
        pieces::is_same(piece, came, shown)
            && (pieces::is_taken(piece, came, fitted) || self.shows(came, fitted))
    }

    /// Whether this is an answer with media that the provider takes in one: where we write a list ourselves, answers are
    /// words, but whoever sent this has a provider that reads it.
    fn shows(&self, came: &Part, fitted: Option<&Part>) -> bool {
        let (Part::ToolResult(came), Some(Part::ToolResult(fitted))) = (came, fitted) else { return false };
        let shown = |piece: &Content| match piece {
            Content::Text { text } => !is_blank(text),
            Content::Media(media) => self.fitter.carries(media),
        };
        self.body.dialect == Dialect::Responses && came.call == fitted.call && came.content.iter().all(shown)
    }

    /// Remembers of which kind the calls are that go out as they came.
    fn sent(&mut self, parts: &[Part], form: Option<&String>) {
        for part in parts {
            if let (Part::ToolCall(call), Some(form)) = (part, form) {
                self.forms.insert(call.id.clone(), form.clone());
            }
        }
    }

    /// A message of chat.
    fn chat(&mut self, message: &Message) -> Vec<String> {
        let (bits, _) = self.bits(message);
        let author = self.fitter.author(message);
        if let [Bit::Came { text, parts, form }] = bits.as_slice()
            && author == message.author
        {
            self.sent(parts, form.as_ref());
            return vec![text.clone().into_owned()];
        }
        let was = bits.iter().find_map(|bit| match bit {
            Bit::Came { text, .. } => Some(text.clone()),
            Bit::Fitted { was, .. } => was.clone(),
        });
        let parts: Vec<Part> = bits.iter().flat_map(Bit::parts).cloned().collect();
        if parts.is_empty() {
            return Vec::new();
        }
        let mut spelled = openai::spell(&Message { author, ..Message::new(message.role, parts) });
        for value in &mut spelled {
            self.as_asked(value, "tool_call_id");
        }
        texts(&spelled, was.as_deref())
    }

    /// The items of a message of Responses.
    fn items(&mut self, message: &Message) -> Vec<String> {
        let mut out = Vec::new();
        for bit in self.bits(message).0 {
            match bit {
                Bit::Came { text, parts, form } => {
                    self.sent(&parts, form.as_ref());
                    out.push(text.into_owned());
                }
                Bit::Fitted { parts, was } => {
                    let mut spelled = responses::spell(&Message::new(message.role, parts));
                    for value in &mut spelled {
                        self.as_asked(value, "call_id");
                    }
                    out.extend(texts(&spelled, was.as_deref()));
                }
            }
        }
        // A request that is one string stays one.
        let string = self.body.text.get(self.body.list.clone()).filter(|list| list.starts_with('"'));
        if let Some(string) = string
            && self.own(message).is_some_and(|own| own.parts == message.parts)
        {
            out = vec![string.to_owned()];
        }
        out
    }

    /// An answer spelled by us, in the form of its call.
    fn as_asked(&self, value: &mut Value, key: &str) {
        let answers = value.get("role").is_some_and(|role| role == "tool")
            || value.get("type").is_some_and(|kind| kind == "function_call_output");
        let call = value.get(key).and_then(Value::as_str).filter(|_| answers).map(CallId::from);
        let Some((call, form)) = call.and_then(|call| self.forms.get_key_value(&call)) else { return };
        if form == FUNCTION {
            *value = json!({ "role": FUNCTION, "name": &**call, "content": value.get("content") });
        } else {
            *value = json!({
                "type": format!("{form}_output"), "call_id": &**call, "output": value.get("output"),
            });
        }
    }

    /// A message in our own form.
    fn ours(&mut self, message: &Message) -> Vec<String> {
        let Some(mut opened) = self.opened(message.seq) else {
            return Dialect::Ours.spelled(message).iter().map(Value::to_string).collect();
        };
        let came = opened.pieces.pop().map(|piece| piece.text).unwrap_or_default();
        if self.own(message) == Some(message) {
            return vec![came.into_owned()];
        }
        let mut fields: Map<String, Value> = serde_json::from_str(&came).unwrap_or_default();
        fields.insert("role".to_owned(), json!(message.role));
        fields.insert("parts".to_owned(), json!(message.parts));
        fields.insert("pinned".to_owned(), message.pinned.into());
        fields.insert("skip".to_owned(), message.skip.into());
        vec![Value::Object(fields).to_string()]
    }
}

/// The piece that this part came in, among those that are not behind.
fn found(opened: &Opened<'_>, part: &Part) -> Option<usize> {
    let mut ahead = opened.pieces.iter().enumerate().skip(opened.next);
    let exact =
        ahead.clone().find(|(_, piece)| piece.parts.iter().any(|came| pieces::is_same(piece, came, part)));
    let found =
        exact.or_else(|| ahead.find(|(_, piece)| piece.parts.iter().any(|came| belongs(piece, came, part))));
    found.map(|(at, _)| at)
}

/// Whether a part is what became of this one.
fn belongs(piece: &Piece<'_>, came: &Part, shown: &Part) -> bool {
    let changed = match (came, shown) {
        (Part::ToolCall(came), Part::ToolCall(shown)) => came.name == shown.name,
        (Part::ToolResult(came), Part::ToolResult(shown)) => came.call == shown.call,
        _ => false,
    };
    changed || pieces::is_same(piece, came, shown)
}

/// A piece of which nothing was read, unless it says nothing at all.
fn unread<'a>(piece: &Piece<'a>) -> Option<Bit<'a>> {
    let unread = piece.parts.is_empty() && piece.sound;
    unread.then(|| Bit::Came { text: piece.text.clone(), parts: Vec::new(), form: None })
}

fn flush<'a>(loose: &mut Vec<Part>, bits: &mut Vec<Bit<'a>>) {
    if !loose.is_empty() {
        bits.push(Bit::Fitted { parts: std::mem::take(loose), was: None });
    }
}

/// What was spelled, as text; what stands for one piece has the fields of it that we do not know.
pub(super) fn texts(spelled: &[Value], was: Option<&str>) -> Vec<String> {
    let mut texts: Vec<String> = spelled.iter().map(Value::to_string).collect();
    if let ([value], Some(was), [text]) = (spelled, was, texts.as_mut_slice()) {
        for (key, other) in pieces::others(was, value) {
            *text = raw::and(text, &key, other);
        }
    }
    texts
}
