//! Registers formats, and detects the format of a message.
//!
//! The four built-in formats are listed in [`BUILT_IN`]. A program can add its own formats with [`register`],
//! before it reads any message. After that, every command-line flag, setting and route accepts the name of the
//! new format.

use std::str::FromStr;
use std::sync::{PoisonError, RwLock};

use epitome_core::suggest::did_you_mean;
use serde_json::Value;

use crate::field::DialectError;
use crate::format::{Format, FormatHint};
use crate::{Dialect, anthropic, native, openai, responses};

/// The built-in formats, in the order in which they are tried.
const BUILT_IN: [&dyn Format; 4] =
    [&openai::OpenAi, &responses::Responses, &anthropic::Anthropic, &native::Native];

/// Maximum number of added formats.
const MAX_ADDED: usize = 16;

/// Maximum length of a format's name, in bytes.
const MAX_NAME_BYTES: usize = 32;

static ADDED: RwLock<Vec<&'static dyn Format>> = RwLock::new(Vec::new());

/// Reasons why a format cannot be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Another format has the same name, or the same provider and route.
    #[error("a format with this name or endpoint is already registered")]
    Taken,
    /// The name is empty, longer than 32 bytes, or contains characters other than lower-case letters, digits
    /// and `-`.
    #[error("the name must be 1 to 32 lower-case letters, digits and `-`")]
    Name,
    /// 16 formats were added already.
    #[error("16 formats, the maximum, have already been added")]
    TooMany,
}

/// Adds a format for the lifetime of the process. Call this function before a message is read and before a
/// server starts, because a server creates its routes only once.
pub fn register(format: &'static dyn Format) -> Result<Dialect, RegisterError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let name = format.about().name;
    if !(1..=MAX_NAME_BYTES).contains(&name.len()) || !name.bytes().all(plain) {
        return Err(RegisterError::Name);
    }
    let path = |format: &dyn Format| format.about().endpoint.map(|endpoint| endpoint.proxy_path());
    let mut added = ADDED.write().unwrap_or_else(PoisonError::into_inner);
    let own = path(format);
    let taken =
        |other: &&'static dyn Format| other.about().name == name || (own.is_some() && path(*other) == own);
    if BUILT_IN.iter().chain(added.iter()).any(taken) {
        return Err(RegisterError::Taken);
    }
    if added.len() >= MAX_ADDED {
        return Err(RegisterError::TooMany);
    }
    added.push(format);
    Ok(Dialect(format))
}

impl Dialect {
    /// OpenAI's chat completions. Many other servers use this format too.
    pub const OPENAI: Self = Self(&openai::OpenAi);
    /// OpenAI's Responses API.
    pub const RESPONSES: Self = Self(&responses::Responses);
    /// Anthropic's Messages API.
    pub const ANTHROPIC: Self = Self(&anthropic::Anthropic);
    /// Epitome's own format.
    pub const EPITOME: Self = Self(&native::Native);

    /// Returns all registered formats, built-in formats first.
    pub fn all() -> Vec<Self> {
        let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
        BUILT_IN.into_iter().chain(added.iter().copied()).map(Self).collect()
    }

    /// Returns the first format of this provider; `None` if no format has this provider.
    pub fn of_provider(provider: &str) -> Option<Self> {
        let is_of_provider =
            |dialect: &Self| dialect.0.about().endpoint.is_some_and(|endpoint| endpoint.provider == provider);
        Self::all().into_iter().find(is_of_provider)
    }

    /// Detects the dialect of one wire message from its shape. `None` if the shape is possible in several
    /// dialects.
    ///
    /// ```
    /// use epitome_wire::Dialect;
    /// use serde_json::json;
    ///
    /// let result = json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1" }] });
    /// assert_eq!(Dialect::detect(&result), Some(Dialect::ANTHROPIC));
    /// assert_eq!(Dialect::detect(&json!({ "role": "user", "content": "Hello" })), None);
    /// ```
    pub fn detect(message: &Value) -> Option<Self> {
        let fields = message.as_object()?;
        let all = Self::all();
        let hints = all.iter().filter_map(|dialect| Some((dialect.0.message_hint(fields)?, *dialect)));
        let clearest = hints.min_by_key(|(hint, _)| *hint);
        // This object is a wrapper around a message. The wrapper's fields show only whether the wrapper has
        // Epitome's own format.
        if !fields.contains_key("role") && fields.get("message").is_some_and(Value::is_object) {
            return clearest.map(|(_, dialect)| dialect).filter(|dialect| dialect.0.about().is_native);
        }
        if let Some((FormatHint::Shape, dialect)) = clearest {
            return Some(dialect);
        }
        let content = fields.get("content").and_then(Value::as_array).into_iter().flatten();
        let mut types = content.filter_map(|piece| piece.get("type")?.as_str());
        let by_content =
            types.find_map(|kind| all.iter().copied().find(|dialect| dialect.0.owns_content_type(kind)));
        by_content.or(clearest.map(|(_, dialect)| dialect))
    }
}

impl FromStr for Dialect {
    type Err = DialectError;

    fn from_str(name: &str) -> Result<Self, DialectError> {
        let all = Self::all();
        all.iter().copied().find(|dialect| dialect.name() == name).ok_or_else(|| {
            let similar = did_you_mean(name, all.iter().map(|dialect| dialect.name()));
            let problem = format!("{name:?}: no such format; {similar}the formats are {}", Self::names(&all));
            DialectError::new("", problem)
        })
    }
}
