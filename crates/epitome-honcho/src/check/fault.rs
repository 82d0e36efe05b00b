//! What was wrong with what was sent: a list of faults, each with its place, in the words the original's callers know.
//!
//! A refusal repeats what was sent, so that it can be found; but no more of it than a line or two, and never so many
//! faults that a refusal is longer than what one reads. `shape.rs` finds them.

use serde::Serialize;
use serde_json::{Value, json};

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Wrong {
    /// What kind of fault it is, in a word that programs compare.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The same for people.
    msg: String,
    /// The bounds that were passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    ctx: Option<Value>,
}

impl Wrong {
    pub(crate) fn new(kind: &'static str, msg: &str) -> Self {
        Self { kind, msg: msg.to_owned(), ctx: None }
    }

    /// The same, with the bounds that were passed.
    pub(crate) fn bound(kind: &'static str, msg: String, ctx: Value) -> Self {
        Self { kind, msg, ctx: Some(ctx) }
    }

    /// It breaks a rule that has no kind of its own.
    pub(crate) fn rule(broken: &str) -> Self {
        Self::bound("value_error", format!("Value error, {broken}"), json!({"error": {}}))
    }

    /// It was left out.
    pub(crate) fn missing() -> Self {
        Self::new("missing", "Field required")
    }
}

/// One thing that was wrong, and where. It is written as FastAPI writes it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Fault {
    #[serde(flatten)]
    wrong: Wrong,
    /// Where it stands: names and places, from the outside in.
    loc: Vec<Value>,
    /// What stood there, shortened.
    input: Value,
}

/// Why something that was sent is refused: the `detail` of a 422. There is always at least one fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    /// A `created_at` that is no moment, which its reader does not know: that of a message in a list, or of an upload.
    pub(crate) fn no_moment(message: Option<usize>, given: &str) -> Self {
        let why = "ISO 8601 is wanted, as in 2026-11-15T02:17:11Z";
        let msg = format!("Input should be a valid datetime or date, {why}");
        let listed = message.map(|nr| ["messages".into(), nr.into()]).into_iter().flatten();
        Self(vec![Fault {
            wrong: Wrong::bound("datetime_from_date_parsing", msg, json!({"error": why})),
            loc: std::iter::once("body".into()).chain(listed).chain(["created_at".into()]).collect(),
            input: clipped(given, TEXT).into(),
        }])
    }

    /// The body is no JSON. What was not understood is not repeated: nobody knows what it is.
    pub(crate) fn no_json(body: &[u8], wrong: &serde_json::Error) -> Self {
        let before = body.split_inclusive(|byte| *byte == b'\n').take(wrong.line().saturating_sub(1));
        let place = before.map(<[u8]>::len).sum::<usize>() + wrong.column().saturating_sub(1);
        let told = wrong.to_string();
        let why = told.rsplit_once(" at line ").map_or(told.as_str(), |(why, _)| why);
        let wrong = Wrong::bound("json_invalid", "JSON decode error".to_owned(), json!({"error": why}));
        Self(vec![Fault { wrong, loc: vec!["body".into(), place.into()], input: json!({}) }])
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

    /// Notes what is wrong with what stands there, and gives what is read in its place.
    pub(crate) fn refuse(&mut self, at: &At<'_>, wrong: Wrong) -> Value {
        if self.full {
            return Value::Null;
        }
        let mut room = ROOM;
        let input = shortened(at.value, &mut room).unwrap_or_default();
        let fault = Fault { wrong, loc: at.loc(), input };
        self.size += serde_json::to_string(&fault).map_or(0, |written| written.len());
        // The first is told in any case: it is far shorter than a refusal may be.
        self.full = self.faults.len() >= MOST || (!self.faults.is_empty() && self.size > LONGEST);
        if !self.full {
            self.faults.push(fault);
        }
        Value::Null
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

/// A value and its place. The place is a chain of borrowed steps: it is written out for a fault only.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) value: &'a Value,
    pub(crate) step: Step<'a>,
    pub(crate) within: Option<&'a At<'a>>,
}

/// From something to what is in it.
#[derive(Clone, Copy)]
pub(crate) enum Step<'a> {
    Name(&'a str),
    Nr(usize),
}

impl<'a> From<&'a str> for Step<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name)
    }
}

/// A name in a place is repeated up to so many characters.
const STEP: usize = 100;

impl At<'_> {
    /// Something in it.
    pub(crate) fn inner<'b>(&'b self, step: impl Into<Step<'b>>, value: &'b Value) -> At<'b> {
        At { value, step: step.into(), within: Some(self) }
    }

    /// Its place, from the outside in.
    pub(crate) fn loc(&self) -> Vec<Value> {
        let mut loc: Vec<Value> = std::iter::successors(Some(self), |at| at.within)
            .map(|at| match at.step {
                Step::Name(name) => clipped(name, STEP).into(),
                Step::Nr(nr) => nr.into(),
            })
            .collect();
        loc.reverse();
        loc
    }
}

/// A text of at most so many characters, and a mark where there were more.
pub(crate) fn clipped(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => text.get(..end).unwrap_or_default().to_owned() + "…",
        None => text.to_owned(),
    }
}
