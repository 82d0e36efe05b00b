//! Defines [`Dialect`], the handle to a format.
//!
//! Other modules implement the operations of [`Dialect`]: `registry` finds a format, `reader` reads messages,
//! and `restore` writes messages as they were received.

use std::fmt;
use std::hash::{Hash, Hasher};

use epitome_core::message::Message;
use serde_json::{Map, Value};

use crate::field::DialectError;
use crate::flags;
use crate::format::Format;

/// A provider's wire format.
///
/// This is a small handle to a [`Format`]. To find a dialect by its name, parse the name: `"openai".parse()`.
#[derive(Clone, Copy)]
pub struct Dialect(pub(crate) &'static dyn Format);

impl Dialect {
    /// Returns the dialect's name in command-line flags and settings.
    pub fn name(self) -> &'static str {
        self.0.about().name
    }

    /// Returns the names of these dialects as a phrase, such as `openai, responses and anthropic`.
    pub fn names(dialects: &[Self]) -> String {
        let names: Vec<&str> = dialects.iter().map(|dialect| dialect.name()).collect();
        match names.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            _ => names.concat(),
        }
    }

    /// Returns the format's implementation.
    pub fn format(self) -> &'static dyn Format {
        self.0
    }

    /// Returns the request fields that contain these messages, ready to send.
    ///
    /// The list must come from [`epitome_core::view`], which makes its order and its pairs of calls and results
    /// valid. The names of the fields are:
    ///
    /// - `messages` in chat completions and in Epitome's own format.
    /// - `input` in Responses. A first message that was received in the field `instructions` is written to this
    ///   field.
    /// - `system` and `messages` in Anthropic's format.
    ///
    /// If a caller appends messages to the list, the earlier messages are written as before. Only the message
    /// that was the last may change, because appended messages may be merged into it.
    pub fn write(self, messages: &[Message]) -> Map<String, Value> {
        self.0.write(messages)
    }

    /// Reads one wire message with its flags. Data that the type [`Message`] cannot represent is ignored.
    pub(crate) fn read_message(self, wire: &Value) -> Result<Message, DialectError> {
        let mut message = self.0.read(wire)?;
        if let Some(fields) = wire.as_object().filter(|_| !self.0.about().is_native) {
            (message.pinned, message.skip) = flags::read(fields)?;
        }
        Ok(message)
    }

    /// Reads one wire message of a caller. Unlike [`Dialect::read_message`], refuses a mistyped flag.
    pub(crate) fn read_new_message(self, wire: &Value) -> Result<Message, DialectError> {
        let message = self.read_message(wire)?;
        match wire.as_object() {
            Some(fields) if !self.0.about().is_native => flags::check(fields).map(|()| message),
            _ => Ok(message),
        }
    }
}

impl PartialEq for Dialect {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Dialect {}

impl Hash for Dialect {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dialect").field(&self.name()).finish()
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
