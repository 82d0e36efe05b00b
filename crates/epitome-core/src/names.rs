//! Finds names that a summary must preserve verbatim.
//!
//! An agent that reads "the file we edited" cannot continue. An agent that reads `src/auth/session.rs` can continue.
//! This module finds paths, URLs, ids, identifiers, numbers with a unit or label, error messages, and names of people
//! and places. It recognises names by their shape, in one pass over the bytes, with a few short word lists and without
//! a model. [`crate::ledger`] stores and ranks the names.
//!
//! People and places are recognised by capital letters. In scripts without capital letters, a name is found only if it
//! is in quotation marks, is written in katakana, or is followed by a title.

use serde::{Deserialize, Serialize};

mod figures;
mod lists;
mod scan;

/// Maximum length of a name, in bytes. Longer text is not a name.
pub(crate) const LONGEST: usize = 200;

/// The kind of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NameKind {
    /// A file or folder.
    Path,
    /// A web or mail address.
    Url,
    /// A name from code: `parse_header`, `http.client`, `TokenGenerator`.
    Code,
    /// An id, a version or a date: letters and digits that identify a single thing.
    Id,
    /// A number, with its unit or label if it has one.
    Number,
    /// A position in a file: the line number of a search result, or a range of lines that was read.
    Line,
    /// An error with its message.
    Error,
    /// A command that was run.
    Command,
    /// A person, a place or a product.
    Proper,
}

/// A name found in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name<'a> {
    /// The name exactly as written in the text.
    pub text: &'a str,
    /// The kind of the name.
    pub kind: NameKind,
    /// False if the text may also consist of ordinary words, for example at the start of a sentence. The ledger records
    /// such a text only if the ledger already contains it, or if a tool is called with it.
    pub sure: bool,
}

/// Returns the names in a text, in order.
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

/// Calls `found` with each name. `speech` is false for tool output. Tool output contains many capitalised words that
/// are not names. Therefore people and places are searched only if `speech` is true.
pub(crate) fn each_name<'a>(text: &'a str, speech: bool, found: impl FnMut(Name<'a>)) {
    scan::Scanner::new(text, speech, found).scan();
}

/// Returns whether the word is the name of a month or of a day of the week.
pub(crate) fn is_of_calendar(word: &str) -> bool {
    let lowered = word.to_lowercase();
    lists::MONTHS.contains(&lowered.as_str()) || lists::DAYS.contains(&lowered.as_str())
}

#[cfg(test)]
mod tests;
