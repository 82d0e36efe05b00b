//! Decides how each outgoing message is written: as received, or from its parts.
//!
//! The writer adjusts every outgoing message to the format's limits, and compares the result with the received
//! message. If both are the same and the provider accepts the received form, the message is written as
//! received. Otherwise the message is encoded from its parts, and unknown fields of the received message are
//! added.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use epitome_core::message::{CallId, Message, Part, Seq};
use serde_json::{Map, Value, json};

use super::Body;
use crate::fit::Fitter;
use crate::pieces::{self, Piece};
use crate::raw;

/// Consecutive parts of an outgoing message that are written together.
pub(super) struct Run<'a> {
    /// The JSON of the received piece from which the parts were read. `None` if the parts are new.
    pub(super) piece: Option<Cow<'a, str>>,
    /// Whether the run is written byte for byte as in `piece`.
    pub(super) unchanged: bool,
    /// The parts, adjusted to the format's limits.
    pub(super) parts: Vec<Part>,
    /// The type of the run's call or result. `None` if the type is the common type.
    call_type: Option<String>,
}

/// The received message that is being written: its pieces, and the number of pieces already written or skipped.
struct CurrentMessage<'a> {
    seq: Seq,
    pieces: Vec<Piece<'a>>,
    next: usize,
}

/// Writes messages one after the other.
pub(super) struct Writer<'a> {
    pub(super) body: &'a Body,
    fitter: Fitter,
    current: Option<CurrentMessage<'a>>,
    /// The types of calls that have an uncommon type and were written as received. Their results must have the
    /// same type.
    call_types: HashMap<CallId, String>,
    /// Ids of items that were written as received.
    sent_ids: HashSet<String>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(body: &'a Body) -> Self {
        let fitter = Fitter::for_forwarding(body.dialect.0.about().limits);
        Self { body, fitter, current: None, call_types: HashMap::new(), sent_ids: HashSet::new() }
    }

    /// Splits a message into runs. If all parts of a run were read from one received piece, the run is written
    /// as received, if possible.
    pub(super) fn runs(&mut self, message: &Message) -> Vec<Run<'a>> {
        let fitted: Vec<Option<Part>> =
            message.parts.iter().map(|part| self.fitter.part(message.role, part)).collect();
        let mut runs = Vec::new();
        let Some(mut current) = self.pieces_of(message.seq) else {
            flush(&mut fitted.into_iter().flatten().collect(), &mut runs);
            return runs;
        };
        let whole = self.body.message(message.seq).is_some_and(|own| own.parts == message.parts);
        let mut remaining = message.parts.iter().zip(fitted).peekable();
        let mut new = Vec::new();
        while let Some((part, _)) = remaining.peek() {
            let Some(at) = piece_of(&current, part) else {
                new.extend(remaining.next().and_then(|(_, fitted)| fitted));
                continue;
            };
            flush(&mut new, &mut runs);
            // A piece of an unknown type stays before the piece that followed it in the received message.
            // Pieces whose parts were removed are skipped.
            for unknown in current.pieces.get(current.next..at).unwrap_or_default() {
                runs.extend(unread_run(unknown));
            }
            current.next = at + 1;
            let Some(piece) = current.pieces.get(at) else { break };
            let (mut unchanged, mut parts) = (piece.acceptable && self.is_unsent(piece), Vec::new());
            for part in &piece.parts {
                let Some((now, fitted)) = remaining.peek().filter(|(now, _)| is_version_of(piece, part, now))
                else {
                    unchanged = false;
                    continue;
                };
                unchanged &= self.is_unchanged(piece, part, now, fitted.as_ref());
                parts.extend(remaining.next().and_then(|(_, fitted)| fitted));
            }
            if unchanged {
                self.sent_ids.extend(piece.id.clone());
            }
            runs.push(Run {
                piece: Some(piece.text.clone()),
                unchanged,
                parts,
                call_type: piece.call_type.clone(),
            });
        }
        flush(&mut new, &mut runs);
        if whole || !runs.is_empty() {
            let rest = current.pieces.get(current.next..).unwrap_or_default();
            let rest = rest.iter().take_while(|piece| piece.parts.is_empty());
            let rest: Vec<Run<'a>> = rest.filter_map(unread_run).collect();
            current.next += rest.len();
            runs.extend(rest);
        }
        self.current = Some(current);
        // Providers reject a message that ends with reasoning.
        let thinks = |part: &Part| matches!(part, Part::Thinking { .. });
        while runs.pop_if(|run| !run.parts.is_empty() && run.parts.iter().all(thinks)).is_some() {}
        runs.retain(|run| run.unchanged || !run.parts.is_empty());
        runs
    }

    /// Returns the received message with this number, split into pieces.
    fn pieces_of(&mut self, seq: Seq) -> Option<CurrentMessage<'a>> {
        if let Some(current) = self.current.take_if(|current| current.seq == seq) {
            return Some(current);
        }
        let body = self.body;
        let origin = body.origin(seq)?;
        let system = body.system.as_deref().filter(|_| origin.is_system_field());
        let texts = system.into_iter().chain(body.texts(origin.items.clone()));
        // Parses the items again to get their pieces.
        let pieces = texts.filter_map(|text| {
            let value = serde_json::from_str(text).ok()?;
            Some(body.dialect.0.pieces(text, &value))
        });
        let (start, count) = origin.blocks.as_ref().map_or((0, usize::MAX), |run| (run.start, run.len()));
        Some(CurrentMessage { seq, pieces: pieces.flatten().skip(start).take(count).collect(), next: 0 })
    }

    /// Returns whether the outgoing request does not contain the piece's id yet.
    fn is_unsent(&self, piece: &Piece<'_>) -> bool {
        piece.id.as_ref().is_none_or(|id| !self.sent_ids.contains(id))
    }

    /// Returns whether a part may be written as received.
    fn is_unchanged(&self, piece: &Piece<'_>, received: &Part, now: &Part, fitted: Option<&Part>) -> bool {
        if let (Part::ToolResult(received), Part::ToolResult(now)) = (received, now) {
            let call_type = self.call_types.get(&now.call);
            if received.call != now.call || call_type != piece.call_type.as_ref() {
                return false;
            }
            // The result of a tool that the provider defines has its own type. That type cannot contain text,
            // so there is no text to compare.
            if call_type.is_some_and(|name| !self.body.dialect.0.results_contain_text(name)) {
                return true;
            }
        }
        pieces::is_same(piece, received, now)
            && (pieces::can_stay(piece, received, fitted) || self.is_accepted_result(received, fitted))
    }

    /// Returns whether the part is a tool result that the provider accepts as received, including the media in
    /// it.
    fn is_accepted_result(&self, received: &Part, fitted: Option<&Part>) -> bool {
        let (Part::ToolResult(received), Some(Part::ToolResult(fitted))) = (received, fitted) else {
            return false;
        };
        received.call == fitted.call && self.fitter.accepts_received_result(&received.content)
    }

    /// Returns the wire messages that represent a message.
    pub(super) fn wire_messages(&mut self, message: &Message) -> Vec<Cow<'a, str>> {
        let (body, format) = (self.body, self.body.dialect.0);
        let own = body.message(message.seq);
        let list = body.text.get(body.list.clone()).unwrap_or_default();
        if format.about().is_native {
            return self.native(message);
        }
        // If the request contains a string in place of the list, and the message is unchanged, the string is
        // written.
        if list.starts_with('"') && own.is_some_and(|own| own.parts == message.parts) {
            return vec![list.into()];
        }
        let mut runs = self.runs(message);
        let author = self.fitter.author(message);
        // Some formats write each message as one wire message. In these formats, the whole message is either
        // written as received or encoded.
        let is_one = !format.about().reply_is_items;
        if is_one && !(matches!(runs.as_slice(), [run] if run.unchanged) && author == message.author) {
            let piece = runs.iter().find_map(|run| run.piece.clone());
            let mut parts = runs.drain(..).flat_map(|run| run.parts).collect();
            flush(&mut parts, &mut runs);
            runs.iter_mut().for_each(|run| run.piece.clone_from(&piece));
        }
        let mut out = Vec::new();
        for Run { piece, unchanged, parts, call_type } in runs {
            if let (Some(text), true) = (&piece, unchanged) {
                self.record_call_types(&parts, call_type.as_ref());
                out.push(text.clone());
                continue;
            }
            let fitted = Message { author: author.clone(), ..Message::new(message.role, parts) };
            let mut encoded = self.encode(&fitted);
            if let (Some(received), Some(own)) = (&piece, own) {
                for fields in encoded.iter_mut().filter_map(Value::as_object_mut) {
                    format.copy_received_fields(fields, received, own, &fitted);
                }
            }
            out.extend(texts(&encoded, piece.as_deref()));
        }
        out
    }

    /// Records the types of calls that were written as received.
    fn record_call_types(&mut self, parts: &[Part], call_type: Option<&String>) {
        for part in parts {
            if let (Part::ToolCall(call), Some(call_type)) = (part, call_type) {
                self.call_types.insert(call.id.clone(), call_type.clone());
            }
        }
    }

    /// Encodes an adjusted message. Each result gets the type that matches its call.
    fn encode(&self, message: &Message) -> Vec<Value> {
        let format = self.body.dialect.0;
        let call_type = |call: &str| self.call_types.get(&CallId::from(call)).cloned();
        let encoded = format.encode(message).into_iter();
        encoded.map(|value| format.result_in_call_type(&value, &call_type).unwrap_or(value)).collect()
    }

    /// Writes a message in Epitome's own format.
    fn native(&self, message: &Message) -> Vec<Cow<'a, str>> {
        let body = self.body;
        let origin = body.origin(message.seq);
        let Some(received) = origin.and_then(|origin| body.texts(origin.items.clone()).next()) else {
            return texts(&body.dialect.0.encode(message), None);
        };
        if body.message(message.seq) == Some(message) {
            return vec![received.into()];
        }
        let mut fields: Map<String, Value> = serde_json::from_str(received).unwrap_or_default();
        let Message { role, parts, pinned, skip, .. } = message;
        let current = [
            ("role", json!(role)),
            ("parts", json!(parts)),
            ("pinned", json!(pinned)),
            ("skip", json!(skip)),
        ];
        fields.extend(current.map(|(name, value)| (name.to_owned(), value)));
        vec![Value::Object(fields).to_string().into()]
    }
}

/// Returns the index of the piece from which this part was read. Only pieces that are not yet written are
/// searched. `None` if the part was read from no such piece.
fn piece_of(current: &CurrentMessage<'_>, part: &Part) -> Option<usize> {
    let mut ahead = current.pieces.iter().enumerate().skip(current.next);
    let exact = ahead
        .clone()
        .find(|(_, piece)| piece.parts.iter().any(|received| pieces::is_same(piece, received, part)));
    let is_source =
        |piece: &Piece<'_>| piece.parts.iter().any(|received| is_version_of(piece, received, part));
    exact.or_else(|| ahead.find(|(_, piece)| is_source(piece))).map(|(at, _)| at)
}

/// Returns whether `current` is the received part, or a changed form of the received part.
fn is_version_of(piece: &Piece<'_>, received: &Part, current: &Part) -> bool {
    let changed = match (received, current) {
        (Part::ToolCall(received), Part::ToolCall(current)) => received.name == current.name,
        (Part::ToolResult(received), Part::ToolResult(current)) => received.call == current.call,
        _ => false,
    };
    changed || pieces::is_same(piece, received, current)
}

/// Returns a run for a piece from which no part was read. `None` if parts were read from the piece, or if
/// providers reject it.
fn unread_run<'a>(piece: &Piece<'a>) -> Option<Run<'a>> {
    let unread = piece.parts.is_empty() && piece.acceptable;
    unread.then(|| Run {
        piece: Some(piece.text.clone()),
        unchanged: true,
        parts: Vec::new(),
        call_type: None,
    })
}

/// Moves the collected new parts into a separate run.
fn flush(new: &mut Vec<Part>, runs: &mut Vec<Run<'_>>) {
    if !new.is_empty() {
        runs.push(Run { piece: None, unchanged: false, parts: std::mem::take(new), call_type: None });
    }
}

/// Returns the encoded values as JSON text. If a single value replaces a received piece, the unknown fields of
/// the piece are added to the value.
pub(super) fn texts<'a>(encoded: &[Value], piece: Option<&str>) -> Vec<Cow<'a, str>> {
    let mut texts: Vec<Cow<'a, str>> = encoded.iter().map(|value| value.to_string().into()).collect();
    if let ([value], Some(piece), [text]) = (encoded, piece, texts.as_mut_slice()) {
        for (key, other) in pieces::unknown_fields(piece, value) {
            *text = raw::append_field(text, &key, other).into();
        }
    }
    texts
}
