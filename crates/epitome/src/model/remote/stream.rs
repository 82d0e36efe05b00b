//! What is gathered of a streamed answer while its events come in.
//!
//! What an event says is known next door, in `openai` and `anthropic`.

use epitome_core::inspect::Finish;
use serde_json::Value;

use super::Answer;
use epitome_wire::Usage;

/// What was heard of an answer so far.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) text: String,
    pub(super) finish: Option<Finish>,
    pub(super) usage: Usage,
    /// It asked for a tool instead of answering.
    pub(super) calls_tool: bool,
    /// It was said that this was all.
    pub(super) ended: bool,
}

/// What to do after an event.
pub(super) enum Then {
    /// Listen on.
    GoOn,
    /// It is said and done.
    End,
    /// The provider says that it failed, and this is what it says.
    Failed(Value),
    /// This is no event of an answer.
    Odd,
}

impl Heard {
    /// The answer, as far as it was heard.
    pub(super) fn answer(self) -> Answer {
        let text = if self.calls_tool { String::new() } else { self.text };
        Answer { text, finish: self.finish.unwrap_or_default(), tally: self.usage.tally(), whole: self.ended }
    }
}
