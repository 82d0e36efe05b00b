//! Decides how each outgoing message is written: as received, or from its parts.
//!
//! Every shown message is fitted to the format and compared with its received form. If it is the same and the
//! provider accepts it, it is written as received. Otherwise it is written from its parts, with its unknown
//! fields.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use epitome_core::message::{CallId, Message, Part, Seq};
use serde_json::{Map, Value, json};

use super::Body;
use crate::fit::Fitter;
use crate::pieces::{self, Piece};
use crate::raw;

/// A run of outgoing message parts.
pub(super) struct Bit<'a> {
    /// The piece it was read from; `None` if it is new.
    pub(super) was: Option<Cow<'a, str>>,
    /// Whether it is written as that piece, byte for byte.
    pub(super) came: bool,
    /// The parts, for a run that is not written as received.
    pub(super) parts: Vec<Part>,
    form: Option<String>,
}

/// The pieces of the current message, and the number of pieces already handled.
struct Opened<'a> {
    seq: Seq,
    pieces: Vec<Piece<'a>>,
    next: usize,
}

/// Writes messages one after the other.
pub(super) struct Writer<'a> {
    pub(super) body: &'a Body,
    fitter: Fitter,
    opened: Option<Opened<'a>>,
    /// Calls of an uncommon type that were written as received: their results must have the same type.
    forms: HashMap<CallId, String>,
    /// Ids of items that were written as received.
    ids: HashSet<String>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(body: &'a Body) -> Self {
        let fitter = Fitter::for_body(body.dialect.0.about().wants);
        Self { body, fitter, opened: None, forms: HashMap::new(), ids: HashSet::new() }
    }

    /// Splits a message into runs of parts. Runs that come from the received message are written as received
    /// if possible.
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
            // Unknown pieces stay next to the pieces they came with. Removed pieces are skipped.
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
        // Providers reject trailing reasoning.
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
        // Parses the items again to get their pieces.
        let pieces = texts.filter_map(|text| {
            let value = serde_json::from_str(text).ok()?;
            Some(body.dialect.0.pieces(text, &value))
        });
        let (from, most) = origin.blocks.as_ref().map_or((0, usize::MAX), |run| (run.start, run.len()));
        Some(Opened { seq, pieces: pieces.flatten().skip(from).take(most).collect(), next: 0 })
    }

    /// Returns whether the piece's id has not been sent before.
    fn is_free(&self, piece: &Piece<'_>) -> bool {
        piece.id.as_ref().is_none_or(|id| !self.ids.contains(id))
    }

    fn goes_as_it_came(&self, piece: &Piece<'_>, came: &Part, shown: &Part, fitted: Option<&Part>) -> bool {
        if let (Part::ToolResult(came), Part::ToolResult(shown)) = (came, shown) {
            let asked = self.forms.get(&shown.call);
            if came.call != shown.call || asked != piece.form.as_ref() {
                return false;
            }
            // The result of a provider's own tool has its own type, which cannot contain text.
            if asked.is_some_and(|form| !self.body.dialect.0.form_has_words(form)) {
                return true;
            }
        }
        pieces::is_same(piece, came, shown)
            && (pieces::is_taken(piece, came, fitted) || self.shows(came, fitted))
    }

    /// Returns whether this is a result with media that is written as received.
    fn shows(&self, came: &Part, fitted: Option<&Part>) -> bool {
        let (Part::ToolResult(came), Some(Part::ToolResult(fitted))) = (came, fitted) else { return false };
        came.call == fitted.call && self.fitter.shows(&came.content)
    }

    /// Returns the wire messages for a message.
    pub(super) fn wires(&mut self, message: &Message) -> Vec<Cow<'a, str>> {
        let (body, format) = (self.body, self.body.dialect.0);
        let own = body.own(message.seq);
        let list = body.text.get(body.list.clone()).unwrap_or_default();
        if format.about().is_native {
            return self.native(message);
        }
        // A request whose input is a string keeps it.
        if list.starts_with('"') && own.is_some_and(|own| own.parts == message.parts) {
            return vec![list.into()];
        }
        let mut bits = self.bits(message);
        let author = self.fitter.author(message);
        // In a format where a message is one wire message, it is either written as received or spelled as a
        // whole.
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

    /// Records the types of calls that were written as received.
    fn sent(&mut self, parts: &[Part], form: Option<&String>) {
        for part in parts {
            if let (Part::ToolCall(call), Some(form)) = (part, form) {
                self.forms.insert(call.id.clone(), form.clone());
            }
        }
    }

    /// Spells a fitted message, with results in the type of their calls.
    fn spelled(&self, message: &Message) -> Vec<Value> {
        let format = self.body.dialect.0;
        let form = |call: &str| self.forms.get(&CallId::from(call)).cloned();
        let spelled = format.spell(message).into_iter();
        spelled.map(|value| format.answer_in_form(&value, &form).unwrap_or(value)).collect()
    }

    /// Writes a message in Epitome's own format.
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

/// Returns the index of the piece that this part came from, among those not yet handled.
fn found(opened: &Opened<'_>, part: &Part) -> Option<usize> {
    let mut ahead = opened.pieces.iter().enumerate().skip(opened.next);
    let exact =
        ahead.clone().find(|(_, piece)| piece.parts.iter().any(|came| pieces::is_same(piece, came, part)));
    let found =
        exact.or_else(|| ahead.find(|(_, piece)| piece.parts.iter().any(|came| belongs(piece, came, part))));
    found.map(|(at, _)| at)
}

/// Returns whether a part is the changed form of a received one.
fn belongs(piece: &Piece<'_>, came: &Part, shown: &Part) -> bool {
    let changed = match (came, shown) {
        (Part::ToolCall(came), Part::ToolCall(shown)) => came.name == shown.name,
        (Part::ToolResult(came), Part::ToolResult(shown)) => came.call == shown.call,
        _ => false,
    };
    changed || pieces::is_same(piece, came, shown)
}

/// Returns a run for a piece from which nothing was read, unless the piece is empty.
fn unread<'a>(piece: &Piece<'a>) -> Option<Bit<'a>> {
    let unread = piece.parts.is_empty() && piece.sound;
    unread.then(|| Bit { was: Some(piece.text.clone()), came: true, parts: Vec::new(), form: None })
}

/// Moves the collected new parts into a run.
fn flush(loose: &mut Vec<Part>, bits: &mut Vec<Bit<'_>>) {
    if !loose.is_empty() {
        bits.push(Bit { was: None, came: false, parts: std::mem::take(loose), form: None });
    }
}

/// Returns the spelled values as text. A single value that replaces one piece keeps the piece's unknown
/// fields.
pub(super) fn texts<'a>(spelled: &[Value], was: Option<&str>) -> Vec<Cow<'a, str>> {
    let mut texts: Vec<Cow<'a, str>> = spelled.iter().map(|value| value.to_string().into()).collect();
    if let ([value], Some(was), [text]) = (spelled, was, texts.as_mut_slice()) {
        for (key, other) in pieces::others(was, value) {
            *text = raw::and(text, &key, other).into();
        }
    }
    texts
}
