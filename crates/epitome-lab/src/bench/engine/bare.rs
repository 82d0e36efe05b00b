//! The tokenizer alone, to hold counting and summarizing against: nobody who must know how long a text is gets by with
//! less than reading it once.

use epitome::rules::message::{Content, Message, Part};
use tiktoken::CoreBpe;

/// The tokenizer that [`epitome::rules::tokens`] counts with, on bare texts. An instance of its own: it remembers pieces,
/// and what ours has seen must not help it.
pub(super) struct Bare(CoreBpe);

impl Bare {
    pub(super) fn new() -> Self {
        Self(tiktoken::encoding::o200k_base())
    }

    /// The tokens of all texts of these messages; nothing for what surrounds them.
    pub(super) fn count(&self, messages: &[Message]) -> u64 {
        messages.iter().flat_map(texts).map(|text| self.0.count(text) as u64).sum()
    }
}

/// What is counted of a message: words, names and arguments of calls, results.
pub(super) fn texts(message: &Message) -> impl Iterator<Item = &str> {
    message.parts.iter().flat_map(|part| -> Vec<&str> {
        match part {
            Part::Text { text } => vec![text],
            Part::ToolCall(call) => vec![&call.name, &call.arguments],
            Part::ToolResult(result) => result
                .content
                .iter()
                .filter_map(|content| match content {
                    Content::Text { text } => Some(text.as_str()),
                    Content::Media(_) => None,
                })
                .collect(),
            Part::Thinking { .. } | Part::Media(_) => Vec::new(),
        }
    })
}
