//! The faults of a request. Each fault has a location, and a message in the wording that Honcho's clients expect.
//!
//! A fault repeats the faulty value, so that the caller can find the value in the request. Long values are shortened to
//! a line or two. An error contains a limited number of faults.
//!
//! The code that detects a fault sees only the value, and not the value's location. The calling functions add the
//! location step by step, from the inside out.

use std::collections::VecDeque;

use serde::Serialize;
use serde_json::{Value, json};

/// A fault and its location. The serialized form is the same as in FastAPI, the web framework of Honcho.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fault {
    /// The kind of fault: a word that programs can compare.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The message for people.
    msg: String,
    /// Details for programs, such as the bounds that the value exceeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    ctx: Option<Value>,
    /// The location of the faulty value: names and indexes, from the outside in.
    loc: VecDeque<Value>,
    /// The value at this location, shortened.
    input: Value,
}

/// The faults for which a request is refused. They become the `detail` of a 422 response.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Faults {
    found: Vec<Fault>,
    /// The size of the faults as JSON, in bytes.
    #[serde(skip)]
    size: usize,
    /// Whether a fault was left out.
    #[serde(skip)]
    full: bool,
}

/// Maximum number of faults that an error lists. A caller who fixes these faults sees the others in the next error.
const MAX_FAULTS: usize = 100;

/// Maximum size of the faults of an error as JSON, in bytes.
const MAX_BYTES: usize = 16 << 10;

impl Faults {
    /// Returns a fault of a value.
    pub(crate) fn new(value: &Value, kind: &'static str, msg: &str) -> Self {
        Self::of(value, kind, msg.to_owned(), None)
    }

    /// Returns a fault of a value, with the bounds that it exceeded.
    pub(crate) fn bound(value: &Value, kind: &'static str, msg: String, ctx: Value) -> Self {
        Self::of(value, kind, msg, Some(ctx))
    }

    fn of(value: &Value, kind: &'static str, msg: String, ctx: Option<Value>) -> Self {
        let input = shortened(value, &mut MAX_INPUT_BYTES.clone()).unwrap_or_default();
        Self { found: vec![Fault { kind, msg, ctx, loc: VecDeque::new(), input }], size: 0, full: false }
    }

    /// Returns a fault for a rule that has no kind of its own.
    pub(crate) fn rule(value: &Value, broken: &str) -> Self {
        Self::bound(value, "value_error", format!("Value error, {broken}"), json!({"error": {}}))
    }

    /// Returns a fault for a missing field of this object.
    pub(crate) fn missing(of: &Value) -> Self {
        Self::new(of, "missing", "Field required")
    }

    /// Returns a fault for a text that is not a time. The caller adds the path of the field.
    pub(crate) fn invalid_time(sent: &str) -> Self {
        let why = "ISO 8601 is expected, as in 2026-11-15T02:17:11Z";
        let msg = format!("Input should be a valid datetime or date, {why}");
        Self::bound(&sent.into(), "datetime_from_date_parsing", msg, json!({"error": why}))
    }

    /// Returns a fault for a body that is not JSON. The location of the fault is a position in the body, in bytes. The
    /// fault does not repeat the text at this position, because the text could be anything.
    pub(crate) fn no_json(body: &[u8], error: &serde_json::Error) -> Self {
        let before = body.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1));
        let place = before.map(<[u8]>::len).sum::<usize>() + error.column().saturating_sub(1);
        let text = error.to_string();
        let why = text.rsplit_once(" at line ").map_or(text.as_str(), |(why, _)| why);
        let msg = "JSON decode error".to_owned();
        Self::bound(&json!({}), "json_invalid", msg, json!({"error": why})).within(place).within("body")
    }

    /// Returns the faults with one more step at the start of their paths.
    pub(crate) fn within(self, step: impl Into<Value>) -> Self {
        let mut all = Self::default();
        all.add(step, self);
        all
    }

    /// Adds the faults of a part, with one more step at the start of their paths.
    pub(crate) fn add(&mut self, step: impl Into<Value>, part: Self) {
        if self.full {
            return;
        }
        let step = step.into();
        for mut fault in part.found {
            fault.loc.push_front(step.clone());
            self.size += serde_json::to_string(&fault).map_or(0, |written| written.len());
            // The first fault is always listed: it is far shorter than the maximum.
            let last = self.found.len() >= MAX_FAULTS || (!self.found.is_empty() && self.size > MAX_BYTES);
            self.full = self.full || last;
            if !self.full {
                self.found.push(fault);
            }
        }
        self.full = self.full || part.full;
    }

    /// Returns the value if there are no faults, otherwise the faults.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, Self> {
        if self.found.is_empty() { Ok(value) } else { Err(self) }
    }
}

/// Approximate maximum number of bytes of the request that one fault repeats.
const MAX_INPUT_BYTES: usize = 1_000;

/// Approximate size of a value in bytes, without its text.
const VALUE_BYTES: usize = 8;

/// Maximum length of a text in a fault, in characters. Longer texts are cut.
const MAX_TEXT_CHARS: usize = 200;

/// Returns a shortened copy of a value: with shorter texts, and with as many of the first items as fit into
/// `bytes_left`. Returns `None` if nothing fits. The copy has the same type as the value, because clients that read the
/// error expect this type.
fn shortened(value: &Value, bytes_left: &mut usize) -> Option<Value> {
    let left = bytes_left.checked_sub(VALUE_BYTES);
    *bytes_left = left.unwrap_or(0);
    left?;
    Some(match value {
        Value::String(text) => {
            let text = clipped(text, MAX_TEXT_CHARS);
            *bytes_left = bytes_left.saturating_sub(text.len());
            text.into()
        }
        // Only the first item may be incomplete.
        Value::Array(items) => {
            let short = |(index, item)| shortened(item, bytes_left).filter(|_| index == 0 || *bytes_left > 0);
            items.iter().enumerate().map_while(short).collect()
        }
        Value::Object(fields) => {
            let short = |(name, value): (&String, &Value)| {
                let name = clipped(name, MAX_TEXT_CHARS);
                *bytes_left = bytes_left.saturating_sub(name.len());
                Some((name, shortened(value, bytes_left)?))
            };
            fields.iter().map_while(short).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    })
}

/// Cuts a text to this number of characters, and marks the cut with `…`.
pub(crate) fn clipped(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => text.get(..end).unwrap_or_default().to_owned() + "…",
        None => text.to_owned(),
    }
}
