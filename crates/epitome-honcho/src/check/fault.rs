//! What was wrong with what was sent: a list of faults, each with its place, in the words the original's callers know.
//!
//! A refusal repeats what was sent, so that it can be found; but no more of it than a line or two, and never so many
//! faults that a refusal is longer than what one reads. `given.rs` finds them.

use serde::Serialize;
use serde_json::{Value, json};

use super::place::{At, clipped};

/// One thing that was wrong. It is written as FastAPI writes it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Fault {
    /// What kind of fault it is, in a word that programs compare.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Where it stands: names and places, from the outside in.
    loc: Vec<Value>,
    /// The same for people.
    msg: String,
    /// What stood there, shortened.
    input: Value,
    /// The bounds that were passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    ctx: Option<Value>,
}

/// Why something that was sent is refused: the `detail` of a 422. There is always at least one fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    /// A `created_at` that is no moment, which its reader does not know: that of a message in a list, or of an upload.
    pub(crate) fn no_moment(message: Option<usize>, given: &str) -> Self {
        let listed = message.map(|nr| ["messages".into(), nr.into()]).into_iter().flatten();
        let why = "ISO 8601 is wanted, as in 2026-11-15T02:17:11Z";
        Self(vec![Fault {
            kind: "datetime_from_date_parsing",
            loc: std::iter::once("body".into()).chain(listed).chain(["created_at".into()]).collect(),
            msg: format!("Input should be a valid datetime or date, {why}"),
            input: clipped(given, TEXT).into(),
            ctx: Some(json!({"error": why})),
        }])
    }

    /// The body is no JSON. What was not understood is not repeated: nobody knows what it is.
    pub(crate) fn no_json(body: &[u8], wrong: &serde_json::Error) -> Self {
        let before = body.split_inclusive(|byte| *byte == b'\n').take(wrong.line().saturating_sub(1));
        let place = before.map(<[u8]>::len).sum::<usize>() + wrong.column().saturating_sub(1);
        let told = wrong.to_string();
        let why = told.rsplit_once(" at line ").map_or(told.as_str(), |(why, _)| why);
        Self(vec![Fault {
            kind: "json_invalid",
            loc: vec!["body".into(), place.into()],
            msg: "JSON decode error".to_owned(),
            input: json!({}),
            ctx: Some(json!({"error": why})),
        }])
    }
}

/// More faults than this are not told: whoever mends these will see the others.
const MOST: usize = 100;

/// No refusal is longer, in bytes.
const LONGEST: usize = 16 << 10;

/// The faults found so far. Whoever reads goes on after a fault, so that all of them are told at once.
#[derive(Default)]
pub(crate) struct Found {
    faults: Vec<Fault>,
    /// How long they are as JSON.
    size: usize,
    /// There was one too many.
    full: bool,
}

impl Found {
    /// Notes that something is wrong with what stands there.
    pub(crate) fn fault(&mut self, at: &At<'_>, kind: &'static str, msg: impl Into<String>) {
        self.add(at, kind, msg.into(), None);
    }

    /// The same, with the bounds that were passed.
    pub(crate) fn bound(&mut self, at: &At<'_>, kind: &'static str, msg: impl Into<String>, ctx: Value) {
        self.add(at, kind, msg.into(), Some(ctx));
    }

    /// Notes that something breaks a rule that has no kind of its own.
    pub(crate) fn rule(&mut self, at: &At<'_>, broken: &str) {
        self.add(at, "value_error", format!("Value error, {broken}"), Some(json!({"error": {}})));
    }

    /// Notes that what should stand there was left out. What is repeated is what it was left out of.
    pub(crate) fn missing(&mut self, at: &At<'_>) {
        self.add(at, "missing", "Field required".to_owned(), None);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.faults.len()
    }

    /// What was read, if nothing was wrong with it.
    pub(crate) fn give<T>(self, read: T) -> Result<T, Faults> {
        match self.faults.is_empty() {
            true => Ok(read),
            false => Err(Faults(self.faults)),
        }
    }

    fn add(&mut self, at: &At<'_>, kind: &'static str, msg: String, ctx: Option<Value>) {
        if self.full {
            return;
        }
        let mut room = ROOM;
        let input = shortened(at.value, &mut room).unwrap_or_default();
        let fault = Fault { kind, loc: at.loc(), msg, input, ctx };
        self.size += serde_json::to_string(&fault).map_or(0, |written| written.len());
        // The first is told in any case: it is far shorter than a refusal may be.
        self.full = self.faults.len() >= MOST || (!self.faults.is_empty() && self.size > LONGEST);
        if !self.full {
            self.faults.push(fault);
        }
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
