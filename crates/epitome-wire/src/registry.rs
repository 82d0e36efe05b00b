//! Which formats there are.
//!
//! The four that ship stand in [`BUILT_IN`]. A program may add its own with [`register`] before it reads anything; from then on
//! every flag, setting and route knows it by its name.

use std::fmt;
use std::sync::{PoisonError, RwLock};

use crate::format::Format;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterError {
    /// There is one of this name, or of the same route of the same provider.
    Taken,
    /// Its name is empty, longer than 32 bytes, or holds something else than lower case letters, digits and `-`.
    Name,
    /// There are 16 added formats already.
    TooMany,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Taken => "a format of this name or at this address is registered already",
            Self::Name => "the name must be 1 to 32 lower case letters, digits and `-`",
            Self::TooMany => "16 formats have been added already",
        })
    }
}

impl std::error::Error for RegisterError {}

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

/// All formats, in the order in which they are tried.
pub(crate) fn all() -> Vec<Dialect> {
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    BUILT_IN.into_iter().chain(added.iter().copied()).map(Dialect).collect()
}
