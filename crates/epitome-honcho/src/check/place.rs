//! One value that was sent, and where it stands.

use serde_json::Value;

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
