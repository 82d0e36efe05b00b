//! The handle to a format.
//!
//! What is done with one stands where it is done: `registry` finds a format, `reader` reads messages, `restored` gives them back.

use std::fmt;
use std::hash::{Hash, Hasher};

use epitome_core::message::Message;
use serde_json::{Map, Value};

use crate::field::DialectError;
use crate::flags;
use crate::format::Format;

/// A provider's wire format.
///
/// A small handle to its [`Format`], found by name: `"openai".parse()`.
#[derive(Clone, Copy)]
pub struct Dialect(pub(crate) &'static dyn Format);

impl Dialect {
    /// By what it is called in flags and settings.
    pub fn name(self) -> &'static str {
        self.0.about().name
    }

    /// Their names in a sentence: `openai, responses and anthropic`.
    pub fn names(some: &[Self]) -> String {
        let names: Vec<&str> = some.iter().map(|dialect| dialect.name()).collect();
        match names.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            _ => names.concat(),
        }
    }

    /// What it has to say for itself.
    pub fn format(self) -> &'static dyn Format {
        self.0
    }

    /// The fields of a request that carry these messages, ready to be sent.
    ///
    /// The list is one the core's view made: pairs and order are right. `{"messages"}` for chat and for ours,
    /// `{"input"}` for Responses, with `instructions` where they came as such, `{"system", "messages"}` for
    /// Anthropic. A list that only grew at its end is spelled as before, but for its last message.
    pub fn write(self, messages: &[Message]) -> Map<String, Value> {
        self.0.write(messages)
    }

    /// One wire message, flags included, residue not.
    pub(crate) fn understood(self, wire: &Value) -> Result<Message, DialectError> {
        let mut message = self.0.read(wire)?;
        if let Some(fields) = wire.as_object().filter(|_| !self.0.about().is_native) {
            (message.pinned, message.skip) = flags::of(fields)?;
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
