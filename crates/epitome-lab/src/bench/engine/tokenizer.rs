//! The bare tokenizer: the baseline for counting and summarizing. To count the tokens of a text, a tokenizer must read
//! the text at least once.

use epitome::rules::message::{Content, Message, Part};
use tiktoken::CoreBpe;

/// The same tokenizer as in [`epitome::rules::tokens`], without the engine's code around it. This is a separate
/// instance, because a tokenizer caches pieces of text, and the engine's cache must not speed up the baseline.
pub(super) struct BareTokenizer(CoreBpe);

impl BareTokenizer {
    pub(super) fn new() -> Self {
        Self(tiktoken::encoding::o200k_base())
    }

    /// Returns the number of tokens in all texts of these messages, without the tokens that each message adds.
    pub(super) fn count(&self, messages: &[Message]) -> u64 {
        messages.iter().flat_map(texts).map(|text| self.0.count(text) as u64).sum()
    }
}

/// Returns the texts of a message that are counted: text parts, tool names, tool arguments, and texts of tool results.
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
