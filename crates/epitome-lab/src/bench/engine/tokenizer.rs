//! The bare tokenizer, the baseline for counting and summarizing. Counting the tokens of a text requires at least one pass
//! of the tokenizer over it.

use epitome::rules::message::{Content, Message, Part};
use tiktoken::CoreBpe;

/// The tokenizer that [`epitome::rules::tokens`] uses, on plain texts. It is a separate instance, because a tokenizer caches
/// pieces, and the engine's cache must not speed up the baseline.
pub(super) struct BareTokenizer(CoreBpe);

impl BareTokenizer {
    pub(super) fn new() -> Self {
        Self(tiktoken::encoding::o200k_base())
    }

    /// Returns the tokens of all texts of these messages, without the overhead per message.
    pub(super) fn count(&self, messages: &[Message]) -> u64 {
        messages.iter().flat_map(texts).map(|text| self.0.count(text) as u64).sum()
    }
}

/// Returns the counted texts of a message: text parts, names and arguments of calls, results.
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
