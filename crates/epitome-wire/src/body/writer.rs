//! One message on its way out.
//!
//! Every shown message is fitted, as for any wire, and held against what it came as: what is the same, and taken by
//! the provider, goes out as it came. The rest is spelled, with the fields of it that we do not know.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use epitome_core::message::{CallId, Message, Part, Seq};
use serde_json::{Map, Value, json};

use super::Body;
use crate::fit::Fitter;
use crate::pieces::{self, Piece};
use crate::raw;

/// A run of a message's parts on its way out.
pub(super) struct Bit<'a> {
    /// The piece that it was; none where it is new.
    pub(super) was: Option<Cow<'a, str>>,
    /// Whether it goes out as that piece, in every letter.
    pub(super) came: bool,
    /// What it is otherwise spelled of.
    pub(super) parts: Vec<Part>,
    form: Option<String>,
}

/// The pieces of the message that is under way, and how many of them are behind.
struct Opened<'a> {
    seq: Seq,
    pieces: Vec<Piece<'a>>,
    next: usize,
}

/// Writes one message after the other.
pub(super) struct Writer<'a> {
    pub(super) body: &'a Body,
    fitter: Fitter,
    opened: Option<Opened<'a>>,
    /// Calls that went out as they came and are of an uncommon kind: their answers are of it, too.
    forms: HashMap<CallId, String>,
    /// What items are called that went out as they came.
    ids: HashSet<String>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(body: &'a Body) -> Self {
        let fitter = Fitter::for_body(body.dialect.0.about().wants);
        Self { body, fitter, opened: None, forms: HashMap::new(), ids: HashSet::new() }
    }

    /// A message as runs of parts. Those of its own origin go out as they came where nothing speaks against it.
    pub(super) fn bits(&mut self, message: &Message) -> Vec<Bit<'a>> {
        let fitted: Vec<Option<Part>> =
            message.parts.iter().map(|part| self.fitter.part(message.role, part)).collect();
        let mut bits = Vec::new();
        let Some(mut opened) = self.opened(message.seq) else {
            flush(&mut fitted.into_iter().flatten().collect(), &mut bits);
            return bits;
        };
        let whole = self.body.own(message.seq).is_some_and(|own| own.parts == message.parts);
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
            let (mut came, mut parts) = (piece.sound && self.is_free(piece), Vec::new());
            for part in &piece.parts {
                let Some((now, fitted)) = shown.peek().filter(|(now, _)| belongs(piece, part, now)) else {
                    came = false;
                    continue;
                };
                came &= self.goes_as_it_came(piece, part, now, fitted.as_ref());
                parts.extend(shown.next().and_then(|(_, fitted)| fitted));
            }
            if came {
                self.ids.extend(piece.id.clone());
            }
            bits.push(Bit { was: Some(piece.text.clone()), came, parts, form: piece.form.clone() });
        }
        flush(&mut loose, &mut bits);
        if whole || !bits.is_empty() {
            let rest = opened.pieces.get(opened.next..).unwrap_or_default();
            let rest = rest.iter().take_while(|piece| piece.parts.is_empty());
            let rest: Vec<Bit<'a>> = rest.filter_map(unread).collect();
            opened.next += rest.len();
            bits.extend(rest);
        }
        self.opened = Some(opened);
        // Reasoning that leads to nothing is refused.
        let thinks = |part: &Part| matches!(part, Part::Thinking { .. });
        while bits.pop_if(|bit| !bit.parts.is_empty() && bit.parts.iter().all(thinks)).is_some() {}
        bits.retain(|bit| bit.came || !bit.parts.is_empty());
        bits
    }

    fn opened(&mut self, seq: Seq) -> Option<Opened<'a>> {
        if let Some(opened) = self.opened.take_if(|opened| opened.seq == seq) {
            return Some(opened);
        }
        let body = self.body;
        let origin = body.origin(seq)?;
        let head = body.head.as_deref().filter(|_| origin.is_head());
        let texts = head.into_iter().chain(body.texts(origin.items.clone()));
        // Read again, for their pieces.
        let pieces = texts.filter_map(|text| {
            let value = serde_json::from_str(text).ok()?;
            Some(body.dialect.0.pieces(text, &value))
        });
        let (from, most) = origin.blocks.as_ref().map_or((0, usize::MAX), |run| (run.start, run.len()));
        Some(Opened { seq, pieces: pieces.flatten().skip(from).take(most).collect(), next: 0 })
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
            if asked.is_some_and(|form| !self.body.dialect.0.form_has_words(form)) {
                return true;
            }
        }
        pieces::is_same(piece, came, shown)
            && (pieces::is_taken(piece, came, fitted) || self.shows(came, fitted))
    }

    /// Whether this is an answer with media that goes out as it came.
    fn shows(&self, came: &Part, fitted: Option<&Part>) -> bool {
        let (Part::ToolResult(came), Some(Part::ToolResult(fitted))) = (came, fitted) else { return false };
        came.call == fitted.call && self.fitter.shows(&came.content)
    }

    /// The wire messages that stand for a message.
    pub(super) fn wires(&mut self, message: &Message) -> Vec<Cow<'a, str>> {
        let (body, format) = (self.body, self.body.dialect.0);
        let own = body.own(message.seq);
        let list = body.text.get(body.list.clone()).unwrap_or_default();
        if format.about().is_native {
            return self.native(message);
        }
        // A request that is one string stays one.
        if list.starts_with('"') && own.is_some_and(|own| own.parts == message.parts) {
            return vec![list.into()];
        }
        let mut bits = self.bits(message);
        let author = self.fitter.author(message);
        // A message that is one on the wire too goes out as it came, or is spelled as a whole.
        let is_one = !format.about().reply_is_items;
        if is_one && !(matches!(bits.as_slice(), [bit] if bit.came) && author == message.author) {
            let was = bits.iter().find_map(|bit| bit.was.clone());
            let mut parts = bits.drain(..).flat_map(|bit| bit.parts).collect();
            flush(&mut parts, &mut bits);
            bits.iter_mut().for_each(|bit| bit.was.clone_from(&was));
        }
        let mut out = Vec::new();
        for Bit { was, came, parts, form } in bits {
            if let (Some(text), true) = (&was, came) {
                self.sent(&parts, form.as_ref());
                out.push(text.clone());
                continue;
            }
            let fitted = Message { author: author.clone(), ..Message::new(message.role, parts) };
            let mut spelled = self.spelled(&fitted);
            if let (Some(was), Some(own)) = (&was, own) {
                for fields in spelled.iter_mut().filter_map(Value::as_object_mut) {
                    format.keep_inside(fields, was, own, &fitted);
                }
            }
            out.extend(texts(&spelled, was.as_deref()));
        }
        out
    }

    /// Remembers of which kind the calls are that go out as they came.
    fn sent(&mut self, parts: &[Part], form: Option<&String>) {
        for part in parts {
            if let (Part::ToolCall(call), Some(form)) = (part, form) {
                self.forms.insert(call.id.clone(), form.clone());
            }
        }
    }

    /// A fitted message, its answers in the form of their calls.
    fn spelled(&self, message: &Message) -> Vec<Value> {
        let format = self.body.dialect.0;
        let form = |call: &str| self.forms.get(&CallId::from(call)).cloned();
        let spelled = format.spell(message).into_iter();
        spelled.map(|value| format.answer_in_form(&value, &form).unwrap_or(value)).collect()
    }

    /// A message in our own form.
    fn native(&self, message: &Message) -> Vec<Cow<'a, str>> {
        let body = self.body;
        let origin = body.origin(message.seq);
        let Some(came) = origin.and_then(|origin| body.texts(origin.items.clone()).next()) else {
            return texts(&body.dialect.0.spell(message), None);
        };
        if body.own(message.seq) == Some(message) {
            return vec![came.into()];
        }
        let mut fields: Map<String, Value> = serde_json::from_str(came).unwrap_or_default();
        let Message { role, parts, pinned, skip, .. } = message;
        let now = [
            ("role", json!(role)),
            ("parts", json!(parts)),
            ("pinned", json!(pinned)),
            ("skip", json!(skip)),
        ];
        fields.extend(now.map(|(name, value)| (name.to_owned(), value)));
        vec![Value::Object(fields).to_string().into()]
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
    unread.then(|| Bit { was: Some(piece.text.clone()), came: true, parts: Vec::new(), form: None })
}

/// What is new, to be spelled.
fn flush(loose: &mut Vec<Part>, bits: &mut Vec<Bit<'_>>) {
    if !loose.is_empty() {
        bits.push(Bit { was: None, came: false, parts: std::mem::take(loose), form: None });
    }
}

/// What was spelled, as text; what stands for one piece has the fields of it that we do not know.
pub(super) fn texts<'a>(spelled: &[Value], was: Option<&str>) -> Vec<Cow<'a, str>> {
    let mut texts: Vec<Cow<'a, str>> = spelled.iter().map(|value| value.to_string().into()).collect();
    if let ([value], Some(was), [text]) = (spelled, was, texts.as_mut_slice()) {
        for (key, other) in pieces::others(was, value) {
            *text = raw::and(text, &key, other).into();
        }
    }
    texts
}
