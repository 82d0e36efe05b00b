//! Why an answer was refused, as the model is told when it is asked again.

use serde::{Deserialize, Serialize};

use crate::message::Tokens;

/// Why a summary was refused. What is displayed can be said to the model: "The last answer was
/// refused: …".
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// Nothing was said, or only a placeholder, or only reasoning.
    #[error("it held no summary")]
    Empty,
    /// It ends before its end.
    #[error("it was cut off; write less, so that it comes to an end")]
    CutOff,
    /// More than was asked for.
    #[error("it had {tokens} tokens, and at most {limit} are allowed; write less")]
    TooLong {
        /// How large it is.
        tokens: Tokens,
        /// How large it may be.
        limit: Tokens,
    },
    /// More characters than were asked for, and no room to cut them.
    #[error("it had {chars} characters, and at most {limit} are allowed; write less")]
    TooManyChars {
        /// How many it has.
        chars: u64,
        /// How many it may have.
        limit: u64,
    },
    /// No smaller than what it stands for, so nothing would be gained.
    #[error("it had {tokens} tokens and should replace {replaces}; write much less")]
    NotSmaller {
        /// How large it is.
        tokens: Tokens,
        /// How large what it replaces is.
        replaces: Tokens,
    },
    /// Mostly the same again and again.
    #[error("it said the same again and again; say each thing once")]
    Loops,
    /// What a server says when it is unwell.
    #[error("it was an error message instead of a summary")]
    ErrorPage,
    /// The model would not, or its provider would not let it.
    #[error("it declined; a summary only records what others said")]
    Refused,
    /// It took part in the conversation.
    #[error("it went on with the conversation or answered it; write about it instead")]
    GoesOn,
    /// What stood before, although more was said since.
    #[error("it was the previous summary again; take in what was said since")]
    SameAsBefore,
}
