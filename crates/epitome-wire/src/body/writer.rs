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
        let whole = self.body.own(message.seq).is_some_and(|own| own.parts == message.parts);
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
            pieces.extend(read_again(body, body.head.as_deref()?));
        }
        for place in body.items.get(origin.items.clone()).unwrap_or_default() {
            pieces.extend(read_again(body, body.text.get(place.clone())?));
        }
        if let Some(blocks) = &origin.blocks {
            pieces = pieces.into_iter().skip(blocks.start).take(blocks.len()).collect();
        }
        Some(Opened { seq, pieces, next: 0 })
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

    /// Remembers of which kind the calls are that go out as they came.
    fn sent(&mut self, parts: &[Part], form: Option<&String>) {
        for part in parts {
            if let (Part::ToolCall(call), Some(form)) = (part, form) {
                self.forms.insert(call.id.clone(), form.clone());
            }
        }
    }

    /// The wire messages that stand for a message.
    pub(super) fn wires(&mut self, message: &Message) -> Vec<String> {
        match self.body.dialect.0 {
            format if format.about().is_native => self.native(message),
            format if format.about().reply_is_items => self.items(message),
            _ => self.one(message),
        }
    }

    /// A message that is one on the wire too, its answers aside.
    fn one(&mut self, message: &Message) -> Vec<String> {
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
        let fitted = Message { author, ..Message::new(message.role, parts) };
        let mut spelled = self.spelled(&fitted);
        let came: Option<Value> = was.as_deref().and_then(|was| serde_json::from_str(was).ok());
        for value in &mut spelled {
            if let (Some(fields), Some(came), Some(own)) =
                (value.as_object_mut(), &came, self.body.own(message.seq))
            {
                self.body.dialect.0.keep_inside(fields, came, own, &fitted);
            }
        }
        texts(&spelled, was.as_deref())
    }

    /// A message that is several items on the wire.
    fn items(&mut self, message: &Message) -> Vec<String> {
        let mut out = Vec::new();
        for bit in self.bits(message).0 {
            match bit {
                Bit::Came { text, parts, form } => {
                    self.sent(&parts, form.as_ref());
                    out.push(text.into_owned());
                }
                Bit::Fitted { parts, was } => {
                    let spelled = self.spelled(&Message::new(message.role, parts));
                    out.extend(texts(&spelled, was.as_deref()));
                }
            }
        }
        // A request that is one string stays one.
        let string = self.body.text.get(self.body.list.clone()).filter(|list| list.starts_with('"'));
        if let Some(string) = string
            && self.body.own(message.seq).is_some_and(|own| own.parts == message.parts)
        {
            out = vec![string.to_owned()];
        }
        out
    }

    /// A fitted message, its answers in the form of their calls.
    fn spelled(&self, message: &Message) -> Vec<Value> {
        let format = self.body.dialect.0;
        let form = |call: &str| self.forms.get(&CallId::from(call)).cloned();
        let spelled = format.spell(message).into_iter();
        spelled.map(|value| format.answer_in_form(&value, &form).unwrap_or(value)).collect()
    }

    /// A message in our own form.
    fn native(&mut self, message: &Message) -> Vec<String> {
        let Some(mut opened) = self.opened(message.seq) else {
            return self.body.dialect.0.spell(message).iter().map(Value::to_string).collect();
        };
        let came = opened.pieces.pop().map(|piece| piece.text).unwrap_or_default();
        if self.body.own(message.seq) == Some(message) {
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

/// Reads a wire message again, for its pieces.
fn read_again<'a>(body: &Body, text: &'a str) -> Vec<Piece<'a>> {
    serde_json::from_str(text).map_or_else(|_| Vec::new(), |value| body.dialect.0.pieces(text, &value))
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
