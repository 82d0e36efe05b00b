//! Finding the names that must survive word for word.
//!
//! An agent that reads "the file we edited" is lost; one that reads `src/auth/session.rs` goes on.
//! So paths, addresses, ids, identifiers, figures with their unit or label, error messages and the
//! names of people and places are found here, by their shape alone: one pass over the bytes, no
//! dictionary, no model. [`crate::ledger`] remembers them and ranks them.
//!
//! Shape has its limits. People and places are told by their capitals, so in scripts that have none
//! only what is quoted, spelled in katakana or followed by a title is found.

use serde::{Deserialize, Serialize};

mod figures;
mod lists;
mod scan;

/// What is longer, in bytes, is no name.
pub(crate) const LONGEST: usize = 200;

/// What sort of name it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A file or folder.
    Path,
    /// A web or mail address.
    Url,
    /// A name from code: `parse_header`, `http.client`, `TokenGenerator`.
    Code,
    /// An id, a version, a date: letters and digits that stand for one thing.
    Id,
    /// A figure, with its unit or label where it has one.
    Number,
    /// A place in a file: the number of a line that a search found, the range that was read.
    Line,
    /// An error, with what it says.
    Error,
    /// A command that was run.
    Command,
    /// A person, a place, a product.
    Proper,
}

/// A name found in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name<'a> {
    /// Word for word.
    pub text: &'a str,
    /// What sort of name.
    pub kind: Kind,
    /// False where it may be a word that only begins a sentence: worth counting where the name is
    /// known already.
    pub sure: bool,
}

/// The names in a text, in order.
///
/// ```
/// use epitome_core::names::names;
///
/// let found = names("Ann moved src/auth/session.rs to port 8080 on 2026-11-15; it took 3.5 GB.");
/// let texts: Vec<&str> = found.iter().filter(|name| name.sure).map(|name| name.text).collect();
/// assert_eq!(texts, ["src/auth/session.rs", "port 8080", "2026-11-15", "3.5 GB"]);
/// ```
pub fn names(text: &str) -> Vec<Name<'_>> {
    let mut found = Vec::new();
    each_name(text, true, |name| found.push(name));
    found
}

/// Calls `found` with each name. People and places are looked for only in `speech`: what a tool
/// prints is full of capitals.
pub(crate) fn each_name<'a>(text: &'a str, speech: bool, found: impl FnMut(Name<'a>)) {
    scan::Scanner::new(text, speech, found).scan();
}

/// Whether it is the name of a month or of a day of the week.
pub(crate) fn is_of_calendar(word: &str) -> bool {
    let lowered = word.to_lowercase();
    lists::MONTHS.contains(&lowered.as_str()) || lists::DAYS.contains(&lowered.as_str())
}

#[cfg(test)]
mod tests;
