//! Registers formats, and detects the format of a message.
//!
//! The four built-in formats are listed in [`BUILT_IN`]. A program can add its own with [`register`] before
//! it reads anything. From then on every flag, setting and route accepts the new name.

use std::str::FromStr;
use std::sync::{PoisonError, RwLock};

use serde_json::Value;

use crate::field::DialectError;
use crate::format::{Format, Sign};
use crate::{Dialect, anthropic, openai, ours, responses};

/// The built-in formats, in the order in which they are tried.
const BUILT_IN: [&dyn Format; 4] =
    [&openai::OpenAi, &responses::Responses, &anthropic::Anthropic, &ours::Ours];

/// Maximum number of added formats.
const MOST_ADDED: usize = 16;

/// Maximum length of a name, in bytes.
const LONGEST_NAME: usize = 32;

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

/// Adds a format for the lifetime of the process. Call it before anything is read, because a server creates
/// its routes only once.
pub fn register(format: &'static dyn Format) -> Result<Dialect, RegisterError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let name = format.about().name;
    if !(1..=LONGEST_NAME).contains(&name.len()) || !name.bytes().all(plain) {
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
    if added.len() >= MOST_ADDED {
        return Err(RegisterError::TooMany);
    }
    added.push(format);
    Ok(Dialect(format))
}

impl Dialect {
    /// OpenAI's chat completions, also used by many other servers.
    pub const OPENAI: Self = Self(&openai::OpenAi);
    /// OpenAI's Responses API.
    pub const RESPONSES: Self = Self(&responses::Responses);
    /// Anthropic's Messages API.
    pub const ANTHROPIC: Self = Self(&anthropic::Anthropic);
    /// Epitome's own format.
    pub const OURS: Self = Self(&ours::Ours);

    /// Returns all registered formats, built-in formats first.
    pub fn all() -> Vec<Self> {
        let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
        BUILT_IN.into_iter().chain(added.iter().copied()).map(Self).collect()
    }

    /// Returns the first format of this provider; `None` if no format has this provider.
    pub fn of_provider(provider: &str) -> Option<Self> {
        let speaks =
            |dialect: &Self| dialect.0.about().endpoint.is_some_and(|endpoint| endpoint.provider == provider);
        Self::all().into_iter().find(speaks)
    }

    /// Detects the dialect of one wire message from its shape; `None` if it could be any.
    ///
    /// ```
    /// use epitome_wire::Dialect;
    /// use serde_json::json;
    ///
    /// let result = json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1" }] });
    /// assert_eq!(Dialect::of(&result), Some(Dialect::ANTHROPIC));
    /// assert_eq!(Dialect::of(&json!({ "role": "user", "content": "Hello" })), None);
    /// ```
    pub fn of(message: &Value) -> Option<Self> {
        let fields = message.as_object()?;
        let all = Self::all();
        let shown = all.iter().filter_map(|dialect| Some((dialect.0.sign(fields)?, *dialect)));
        let clearest = shown.min_by_key(|(sign, _)| *sign);
        // A wrapper object around a message. Its fields say nothing about the format.
        if !fields.contains_key("role") && fields.get("message").is_some_and(Value::is_object) {
            return clearest.map(|(_, dialect)| dialect).filter(|dialect| dialect.0.about().is_native);
        }
        if let Some((Sign::Shape, dialect)) = clearest {
            return Some(dialect);
        }
        let pieces = fields.get("content").and_then(Value::as_array).into_iter().flatten();
        let mut kinds = pieces.filter_map(|piece| piece.get("type")?.as_str());
        let by_piece = kinds.find_map(|kind| all.iter().copied().find(|dialect| dialect.0.has_piece(kind)));
        by_piece.or(clearest.map(|(_, dialect)| dialect))
    }
}

impl FromStr for Dialect {
    type Err = DialectError;

    fn from_str(name: &str) -> Result<Self, DialectError> {
        let all = Self::all();
        all.iter().copied().find(|dialect| dialect.name() == name).ok_or_else(|| {
            DialectError::new("", format!("{name:?}: no such format; there are {}", Self::names(&all)))
        })
    }
}
