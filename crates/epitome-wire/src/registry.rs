//! Which formats there are, and of which one a message is.
//!
//! The four that ship stand in [`BUILT_IN`]. A program may add its own with [`register`] before it reads anything; from then on
//! every flag, setting and route knows it by its name.

use std::str::FromStr;
use std::sync::{PoisonError, RwLock};

use serde_json::Value;

use crate::field::DialectError;
use crate::format::{Format, Sign};
use crate::{Dialect, anthropic, openai, ours, responses};

/// The formats that ship, in the order in which they are tried.
const BUILT_IN: [&dyn Format; 4] =
    [&openai::OpenAi, &responses::Responses, &anthropic::Anthropic, &ours::Ours];

/// The most formats that a program may add.
const MOST_ADDED: usize = 16;

/// The longest name, in bytes.
const LONGEST_NAME: usize = 32;

static ADDED: RwLock<Vec<&'static dyn Format>> = RwLock::new(Vec::new());

/// Why a format was not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// There is one of this name, or of the same route of the same provider.
    #[error("a format of this name or at this address is registered already")]
    Taken,
    /// Its name is empty, longer than 32 bytes, or holds something else than lower case letters, digits and `-`.
    #[error("the name must be 1 to 32 lower case letters, digits and `-`")]
    Name,
    /// There are 16 added formats already.
    #[error("16 formats have been added already")]
    TooMany,
}

/// Adds a format, for as long as the process runs. Call it before anything is read: a server makes its routes once.
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
    /// OpenAI's chat completions, and everybody who speaks it.
    pub const OPENAI: Self = Self(&openai::OpenAi);
    /// OpenAI's Responses.
    pub const RESPONSES: Self = Self(&responses::Responses);
    /// Anthropic's messages.
    pub const ANTHROPIC: Self = Self(&anthropic::Anthropic);
    /// Messages as this crate writes them.
    pub const OURS: Self = Self(&ours::Ours);

    /// All that are registered, those that ship first.
    pub fn all() -> Vec<Self> {
        let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
        BUILT_IN.into_iter().chain(added.iter().copied()).map(Self).collect()
    }

    /// The first format that this provider speaks; none where there is no such provider.
    pub fn of_provider(provider: &str) -> Option<Self> {
        let speaks =
            |dialect: &Self| dialect.0.about().endpoint.is_some_and(|endpoint| endpoint.provider == provider);
        Self::all().into_iter().find(speaks)
    }

    /// The dialect of one wire message, where its shape tells; `None` where it could be any.
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
        // Somebody's wrapper around a message, of which the wrapper tells nothing.
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
