//! Defines the reasons why a model's summary is rejected. On a retry, the model reads the text of the reason.

use serde::{Deserialize, Serialize};

use crate::message::Tokens;

/// Reason why a summary was rejected. On a retry, its text is sent to the model after the words "The last answer was
/// refused:".
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// The answer is empty, or contains only a placeholder or only reasoning.
    #[error("it contained no summary")]
    Empty,
    /// The answer was cut off before its end.
    #[error("it was cut off; write less, so that it comes to an end")]
    CutOff,
    /// The answer has more tokens than the limit.
    #[error("it had {tokens} tokens, and at most {limit} are allowed; write less")]
    TooLong {
        /// Size of the answer in tokens.
        tokens: Tokens,
        /// The limit in tokens.
        limit: Tokens,
    },
    /// The answer has more characters than the limit and could not be cut to the limit.
    #[error("it had {chars} characters, and at most {limit} are allowed; write less")]
    TooManyChars {
        /// Size of the answer in characters.
        chars: u64,
        /// The limit in characters.
        limit: u64,
    },
    /// The answer is not smaller than the text that it would replace, so it would save nothing.
    #[error("it had {tokens} tokens and should replace {replaces} tokens; write much less")]
    NotSmaller {
        /// Size of the answer in tokens.
        tokens: Tokens,
        /// Size of the messages and the summary that the answer would replace, in tokens.
        replaces: Tokens,
    },
    /// The answer is mostly repetition.
    #[error("it said the same again and again; say each thing once")]
    Loops,
    /// The answer is a server's error message.
    #[error("it was an error message instead of a summary")]
    ErrorPage,
    /// The model or its provider declined to write a summary.
    #[error("it declined; a summary only records what others said")]
    Refused,
    /// The model continued the conversation instead of summarizing it.
    #[error("it continued the conversation or answered it; write about it instead")]
    #[serde(rename = "goes_on")]
    Continues,
    /// The answer is the unchanged previous summary, although there are new messages.
    #[error("it was the unchanged previous summary; include the new messages")]
    SameAsBefore,
}
