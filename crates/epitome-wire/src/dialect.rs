//! Defines the handle to a format.
//!
//! Other modules implement its operations: `registry` finds a format, `reader` reads messages, `restore`
//! writes them as they were received.

use std::fmt;
use std::hash::{Hash, Hasher};

use epitome_core::message::Message;
use serde_json::{Map, Value};

use crate::field::DialectError;
use crate::flags;
use crate::format::Format;

/// A provider's wire format.
///
/// A small handle to a [`Format`], found by name: `"openai".parse()`.
#[derive(Clone, Copy)]
pub struct Dialect(pub(crate) &'static dyn Format);

impl Dialect {
    /// Returns its name in flags and settings.
    pub fn name(self) -> &'static str {
        self.0.about().name
    }

    /// Returns the names as a phrase: `openai, responses and anthropic`.
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
    /// The list must come from the core's view, so that call pairs and order are valid. The fields are
    /// `{"messages"}` for chat and for Epitome's own format, `{"input"}` for Responses, with `instructions`
    /// if the messages came from that field, and `{"system", "messages"}` for Anthropic. If a list only grew
    /// at its end, it is written as before except for its last message.
    pub fn write(self, messages: &[Message]) -> Map<String, Value> {
        self.0.write(messages)
    }

    /// Reads one wire message with its flags. Data that the message type cannot represent is ignored.
    pub(crate) fn read_message(self, wire: &Value) -> Result<Message, DialectError> {
        let mut message = self.0.read(wire)?;
        if let Some(fields) = wire.as_object().filter(|_| !self.0.about().is_native) {
            (message.pinned, message.skip) = flags::read(fields)?;
        }
        Ok(message)
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
