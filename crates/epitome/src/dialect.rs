//! Providers' wire formats: pure mappings, used by models, import, contexts and the proxy alike.

use std::fmt;
use std::str::FromStr;

use epitome_core::message::Message;
use serde_json::{Map, Value};

/// A provider's wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI's chat completions, and everybody who speaks it.
    OpenAi,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's messages.
    Anthropic,
    /// Messages as this crate writes them.
    Ours,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::OpenAi, Self::Responses, Self::Anthropic, Self::Ours];

    /// By what it is called in flags and settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Responses => "responses",
            Self::Anthropic => "anthropic",
            Self::Ours => "epitome",
        }
    }

    /// The dialect of one wire message, where its shape tells; `None` where it could be any.
    #[must_use]
    pub fn of(_message: &Value) -> Option<Self> {
        None
    }

    /// Reads wire messages, one after the other.
    #[must_use]
    pub fn reader(self) -> Reader {
        Reader { dialect: self }
    }

    /// Reads a whole request body, or a bare list of messages.
    pub fn read(self, _body: &Value) -> Result<Vec<Message>, DialectError> {
        Ok(Vec::new())
    }

    /// The fields of a request that carry these messages, ready to be sent.
    #[must_use]
    pub fn write(self, _messages: &[Message]) -> Map<String, Value> {
        Map::new()
    }

    /// The messages as they came in, where they came in this dialect, and plainly spelled where not.
    #[must_use]
    pub fn restore(self, _messages: &[Message]) -> Vec<Value> {
        Vec::new()
    }
}

/// Reads wire messages, one after the other: a reply may be made of several.
#[derive(Debug)]
pub struct Reader {
    dialect: Dialect,
}

/// A message, and of how many wire messages it was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    /// The message.
    pub message: Message,
    /// How many wire messages it stands for.
    pub count: usize,
}

impl Reader {
    /// Takes the next one in, and gives what is complete by now.
    pub fn push(&mut self, _wire: &Value) -> Result<Option<Read>, DialectError> {
        let _ = self.dialect;
        Ok(None)
    }

    /// What is left at the end.
    pub fn finish(&mut self) -> Option<Read> {
        None
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Dialect {
    type Err = DialectError;

    fn from_str(name: &str) -> Result<Self, DialectError> {
        let found = Self::ALL.into_iter().find(|dialect| dialect.name() == name);
        found.ok_or_else(|| {
            DialectError(format!(
                "{name:?}: no such format; there are openai, responses, anthropic and epitome"
            ))
        })
    }
}

/// What is wrong with a wire message, and where in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DialectError(String);
