//! What was wrong with what was sent: a list of faults, each with its place, in the words the original's callers know.
//!
//! A refusal repeats what was sent, so that it can be found; but no more of it than a line or two, and never so many
//! faults that a refusal is longer than what one reads. Whoever finds a fault knows the value alone: the steps to it are
//! added on the way out.

use std::collections::VecDeque;

use serde::Serialize;
use serde_json::{Value, json};

/// One thing that was wrong, and where. It is written as FastAPI writes it.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fault {
    /// What kind of fault it is, in a word that programs compare.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The same for people.
    msg: String,
    /// The bounds that were passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    ctx: Option<Value>,
    /// Where it stands: names and places, from the outside in.
    loc: VecDeque<Value>,
    /// What stood there, shortened.
    input: Value,
}

/// Why something that was sent is refused: the `detail` of a 422, in which there is always at least one.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Faults {
    found: Vec<Fault>,
    /// How long they are as JSON.
    #[serde(skip)]
    size: usize,
    /// There was one too many.
    #[serde(skip)]
    full: bool,
}

/// More faults than this are not listed: a caller who mends these will see the others.
const MOST: usize = 100;

/// No refusal is longer, in bytes.
const LONGEST: usize = 16 << 10;

impl Faults {
    /// A value is wrong.
    pub(crate) fn new(value: &Value, kind: &'static str, msg: &str) -> Self {
        Self::of(value, kind, msg.to_owned(), None)
    }

    /// The same, with the bounds that were passed.
    pub(crate) fn bound(value: &Value, kind: &'static str, msg: String, ctx: Value) -> Self {
        Self::of(value, kind, msg, Some(ctx))
    }

    fn of(value: &Value, kind: &'static str, msg: String, ctx: Option<Value>) -> Self {
        let input = shortened(value, &mut ROOM.clone()).unwrap_or_default();
        Self { found: vec![Fault { kind, msg, ctx, loc: VecDeque::new(), input }], size: 0, full: false }
    }

    /// It breaks a rule that has no kind of its own.
    pub(crate) fn rule(value: &Value, broken: &str) -> Self {
        Self::bound(value, "value_error", format!("Value error, {broken}"), json!({"error": {}}))
    }

    /// It was left out. What is repeated is what it was left out of.
    pub(crate) fn missing(of: &Value) -> Self {
        Self::new(of, "missing", "Field required")
    }

    /// A `created_at` that is no moment, which its reader does not know: that of a message in a list, or of an upload.
    pub(crate) fn no_moment(message: Option<usize>, given: &str) -> Self {
        let why = "ISO 8601 is wanted, as in 2026-11-15T02:17:11Z";
        let msg = format!("Input should be a valid datetime or date, {why}");
        let faults = Self::bound(&given.into(), "datetime_from_date_parsing", msg, json!({"error": why}));
        let faults = faults.within("created_at");
        message.into_iter().fold(faults, |faults, nr| faults.within(nr).within("messages")).within("body")
    }

    /// The body is no JSON. What was not understood is not repeated: it could be anything.
    pub(crate) fn no_json(body: &[u8], wrong: &serde_json::Error) -> Self {
        let before = body.split_inclusive(|byte| *byte == b'\n').take(wrong.line().saturating_sub(1));
        let place = before.map(<[u8]>::len).sum::<usize>() + wrong.column().saturating_sub(1);
        let told = wrong.to_string();
        let why = told.rsplit_once(" at line ").map_or(told.as_str(), |(why, _)| why);
        let msg = "JSON decode error".to_owned();
        Self::bound(&json!({}), "json_invalid", msg, json!({"error": why})).within(place).within("body")
    }

    /// The same, one step further out.
    pub(crate) fn within(self, step: impl Into<Value>) -> Self {
        let mut all = Self::default();
        all.add(step, self);
        all
    }

    /// Adds what was found in a part, a step further in.
    pub(crate) fn add(&mut self, step: impl Into<Value>, part: Self) {
        if self.full {
            return;
        }
        let step = step.into();
        for mut fault in part.found {
            fault.loc.push_front(step.clone());
            self.size += serde_json::to_string(&fault).map_or(0, |written| written.len());
            // The first is listed in any case: it is far shorter than a refusal may be.
            let last = self.found.len() >= MOST || (!self.found.is_empty() && self.size > LONGEST);
            self.full = self.full || last;
            if !self.full {
                self.found.push(fault);
            }
        }
        self.full = self.full || part.full;
    }

    /// What was read, if nothing was wrong with it.
    pub(crate) fn give<T>(self, read: T) -> Result<T, Self> {
        if self.found.is_empty() { Ok(read) } else { Err(self) }
    }
}

/// About so many bytes of what was sent are repeated with one fault.
const ROOM: usize = 1_000;

/// A value takes about so many bytes besides its words.
const VALUE: usize = 8;

/// A text longer than this is cut, in characters.
const TEXT: usize = 200;

/// As much of a value as there is room for: of the same kind, with its first items and shorter texts. A list of which
/// much is left out is still a list, as whoever reads the refusal expects.
fn shortened(value: &Value, room: &mut usize) -> Option<Value> {
    let left = room.checked_sub(VALUE);
    *room = left.unwrap_or(0);
    left?;
    Some(match value {
        Value::String(text) => {
            let text = clipped(text, TEXT);
            *room = room.saturating_sub(text.len());
            text.into()
        }
        // Items are whole, but for the first.
        Value::Array(items) => {
            let short = |(nr, item)| shortened(item, room).filter(|_| nr == 0 || *room > 0);
            items.iter().enumerate().map_while(short).collect()
        }
        Value::Object(fields) => {
            let short = |(name, value): (&String, &Value)| {
                let name = clipped(name, TEXT);
                *room = room.saturating_sub(name.len());
                Some((name, shortened(value, room)?))
            };
            fields.iter().map_while(short).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    })
}

/// A text of at most so many characters, and a mark where there were more.
pub(crate) fn clipped(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => text.get(..end).unwrap_or_default().to_owned() + "…",
        None => text.to_owned(),
    }
}
