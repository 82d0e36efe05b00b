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
    /// The answer was truncated.
    #[error("it was cut off; write less, so that it comes to an end")]
    CutOff,
    /// More tokens than the limit.
    #[error("it had {tokens} tokens, and at most {limit} are allowed; write less")]
    TooLong {
        /// Its size in tokens.
        tokens: Tokens,
        /// The limit in tokens.
        limit: Tokens,
    },
    /// More characters than the limit, and no position where it can be cut.
    #[error("it had {chars} characters, and at most {limit} are allowed; write less")]
    TooManyChars {
        /// Its size in characters.
        chars: u64,
        /// The limit in characters.
        limit: u64,
    },
    /// Not smaller than the messages it replaces, so it would save nothing.
    #[error("it had {tokens} tokens and should replace {replaces}; write much less")]
    NotSmaller {
        /// Its size in tokens.
        tokens: Tokens,
        /// The size of what it replaces, in tokens.
        replaces: Tokens,
    },
    /// Mostly repetition.
    #[error("it said the same again and again; say each thing once")]
    Loops,
    /// A server's error message.
    #[error("it was an error message instead of a summary")]
    ErrorPage,
    /// The model or its provider declined.
    #[error("it declined; a summary only records what others said")]
    Refused,
    /// The model continued the conversation instead of summarizing it.
    #[error("it continued the conversation or answered it; write about it instead")]
    #[serde(rename = "goes_on")]
    Continues,
    /// The previous summary unchanged, although there are new messages.
    #[error("it was the previous summary again; take in what was said since")]
    SameAsBefore,
}
