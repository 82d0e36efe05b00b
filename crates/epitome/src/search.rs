//! Full-text search in messages.
//!
//! A [`Query`] is a list of terms. A text matches a query if it contains every term. The order of the terms and upper
//! or lower case do not matter, and a term may be a part of a longer word. So the search works the same in every
//! script, even in Chinese and Thai, which do not mark word boundaries. A store may use an index to find candidates,
//! which are texts that may match. This module decides which candidates match.

use std::collections::BTreeSet;

use epitome_core::message::{Message, Part};

/// Maximum number of terms in a query. The limit bounds the time of a search, which looks for every term in every
/// candidate.
pub const MOST_TERMS: usize = 16;

/// Maximum number of trigrams of a query that are searched in an index. More trigrams would hardly reduce the number of
/// candidates.
const MOST_TRIGRAMS: usize = 64;

/// A parsed query.
///
/// ```
/// use epitome::search::Query;
///
/// let query = Query::parse(r#"parser "line 12""#)?;
/// assert!(query.matches("The Parser fails in line 12."));
/// assert!(!query.matches("The parser fails in line 2, column 12."));
/// assert_eq!(query.excerpt("All is well but the parser.", 8), "… but the parser.");
/// assert_eq!(Query::parse(" ").unwrap_err().to_string(), "query: is empty; it needs at least one word");
/// # Ok::<(), epitome::search::QueryError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The case-folded terms. There is at least one term, and no term is empty.
    terms: Vec<String>,
}

impl Query {
    /// Parses a query: words separated by white space, and `"quoted phrases"`, which count as one term. An unclosed
    /// quote reaches to the end of the text.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        let mut terms: Vec<String> = Vec::new();
        for (at, piece) in text.split('"').enumerate() {
            if at % 2 == 1 {
                terms.push(fold(piece));
            } else {
                terms.extend(piece.split_whitespace().map(fold));
            }
        }
        terms.retain(|term| !term.trim().is_empty());
        if terms.is_empty() {
            return Err(QueryError::Empty);
        }
        if terms.len() > MOST_TERMS {
            return Err(QueryError::TooManyTerms { count: terms.len() });
        }
        Ok(Self { terms })
    }

    /// Returns whether the text contains all terms.
    pub fn matches(&self, text: &str) -> bool {
        let text = fold(text);
        self.terms.iter().all(|term| text.contains(term.as_str()))
    }

    /// Returns one line of the text: the first match and up to `around` characters on either side, with `…` where text
    /// was cut. If no term matches, returns the beginning of the text.
    pub fn excerpt(&self, text: &str, around: usize) -> String {
        let folded = fold(text);
        let found = self.terms.iter().filter_map(|term| Some((folded.find(term.as_str())?, term.len())));
        let (from, len) = found.min().unwrap_or((0, 0));
        let (first, last) = (char_index(text, from), char_index(text, from.saturating_add(len)));
        let start = first.saturating_sub(around);
        let count = last.saturating_sub(start).saturating_add(around);
        let mut rest = text.chars().skip(start);
        let shown: String = rest.by_ref().take(count).collect();
        let mut line: String = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        if start > 0 {
            line.insert_str(0, "… ");
        }
        if rest.any(|c| !c.is_whitespace()) {
            line.push_str(" …");
        }
        line
    }

    /// Returns a query for an FTS5 trigram index whose texts were converted by [`indexed`]. The index returns every
    /// text that matches, and possibly other texts. Returns `None` if all terms are too short for trigrams: then all
    /// texts are candidates.
    pub fn trigrams(&self) -> Option<String> {
        let quoted = self.trigram_chars().into_iter().map(|three| {
            let three = String::from_iter(three);
            format!("\"{}\"", three.replace('"', "\"\""))
        });
        Some(quoted.collect::<Vec<_>>().join(" AND ")).filter(|query| !query.is_empty())
    }

    /// Returns the trigrams of [`Query::trigrams`] as characters, for other kinds of indexes. The list is empty if all
    /// terms are too short for trigrams: then all texts are candidates.
    pub(crate) fn trigram_chars(&self) -> Vec<[char; 3]> {
        let mut threes: Vec<[char; 3]> = Vec::new();
        for term in &self.terms {
            let chars: Vec<char> = term.chars().map(replace_reserved).collect();
            threes.extend(chars.windows(3).filter_map(|three| <[char; 3]>::try_from(three).ok()));
            if let [one, two] = chars[..] {
                threes.extend(pair(one, two));
            }
        }
        threes.sort_unstable();
        threes.dedup();
        threes.truncate(MOST_TRIGRAMS);
        threes
    }
}

/// Returns the searchable text of a message: its text, the names and arguments of tool calls, and tool results.
/// Reasoning and media are not searchable.
pub fn text_of(message: &Message) -> String {
    let mut texts: Vec<&str> = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text { text } => texts.push(text),
            Part::ToolCall(call) => texts.extend([call.name.as_str(), call.arguments.as_str()]),
            Part::ToolResult(result) => texts.extend(result.texts()),
            Part::Thinking { .. } | Part::Media(_) => {}
        }
    }
    texts.join("\n")
}

/// Returns a text as it is stored in a trigram index. In scripts with words of two characters, the index also needs
/// each pair of adjacent characters. So each pair is added as a trigram that starts with a special mark.
pub fn indexed(text: &str) -> String {
    let mut indexed: String = fold(text).chars().map(replace_reserved).collect();
    let next = indexed.chars().skip(1);
    let pairs: BTreeSet<[char; 3]> =
        indexed.chars().zip(next).filter_map(|(one, two)| pair(one, two)).collect();
    indexed.extend(pairs.iter().flatten());
    indexed
}

/// The first character of a trigram that represents a pair of characters. It is a private-use character, so no script
/// uses it as a letter.
const PAIR: char = '\u{E000}';

/// Returns whether a character belongs to a script with words of two characters: Chinese, Japanese, Korean. The index
/// finds words of two characters only in these scripts.
///
/// ```
/// assert!("東京の天気".chars().all(epitome::search::is_dense) && !"weather".contains(epitome::search::is_dense));
/// ```
pub fn is_dense(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30FF}' | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}'
        | '\u{AC00}'..='\u{D7A3}' | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{3FFFF}')
}

/// Returns the trigram for a pair of characters, if both belong to a script with words of two characters.
fn pair(one: char, two: char) -> Option<[char; 3]> {
    (is_dense(one) && is_dense(two)).then_some([PAIR, one, two])
}

/// Folds the case of each character, independently of its neighbors. So if a text contains a term, the folded text
/// contains the folded term. The Greek letter sigma has a second lower-case form at the end of a word; both forms fold
/// to the same character.
fn fold(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).map(|c| if c == 'ς' { 'σ' } else { c }).collect()
}

/// Replaces characters that must not reach the index: tokenizers skip NULs or stop at them, and [`PAIR`] is reserved.
fn replace_reserved(c: char) -> char {
    if matches!(c, '\0' | PAIR) { ' ' } else { c }
}

/// Returns the index of the character that is at this byte of the folded text.
fn char_index(text: &str, byte: usize) -> usize {
    let mut at = 0;
    text.chars()
        .take_while(|c| {
            let before = at;
            at += c.to_lowercase().map(char::len_utf8).sum::<usize>();
            before < byte
        })
        .count()
}

/// Why a query was refused. The caller must fix the query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The query is empty.
    #[error("query: is empty; it needs at least one word")]
    Empty,
    /// The query has too many terms.
    #[error("query: {count} words and phrases; at most {MOST_TERMS} are allowed")]
    TooManyTerms {
        /// Number of terms in the query.
        count: usize,
    },
}

#[cfg(test)]
mod tests;
