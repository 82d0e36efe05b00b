//! Reasons why a model's summary is rejected, in a wording that the model reads on a retry.

use serde::{Deserialize, Serialize};

use crate::message::Tokens;

/// Reason why a summary was rejected. The text is sent to the model on a retry: "The last answer was refused:
/// …".
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
        /// Its size in tokens.
        tokens: Tokens,
        /// The limit in tokens.
        limit: Tokens,
    },
    /// The answer has more characters than the limit, and no position where it can be cut.
    #[error("it had {chars} characters, and at most {limit} are allowed; write less")]
    TooManyChars {
        /// Its size in characters.
        chars: u64,
        /// The limit in characters.
        limit: u64,
    },
    /// The answer is not smaller than the messages that it would replace, so it would save nothing.
    #[error("it had {tokens} tokens and should replace {replaces} tokens; write much less")]
    NotSmaller {
        /// Its size in tokens.
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
    #[error("it was the previous summary again; take in what was said since")]
    SameAsBefore,
}
