//! Finding messages by their words.
//!
//! A [`Query`] is a handful of terms that must all be there, in any order, each as a part of the text and
//! in any case. That is the whole language: it is the same in every script, and nothing has to know where
//! a word ends in Chinese or Thai. Stores may keep an index to have fewer messages to look at, but what is a
//! hit is decided here.

use std::collections::BTreeSet;

use epitome_core::message::{Message, Part};

/// More terms than this are refused: each is looked for in every candidate.
pub const MOST_TERMS: usize = 16;

/// More trigrams than this are not asked of an index: it has few candidates left by then.
const MOST_TRIGRAMS: usize = 64;

/// What is looked for.
///
/// ```
/// use epitome::search::Query;
///
/// let query = Query::parse(r#"parser "line 12""#)?;
/// assert!(query.matches("The Parser fails in line 12."));
/// assert!(!query.matches("The parser fails in line 2, column 12."));
/// assert_eq!(query.excerpt("All is well but the parser.", 8), "… but the parser.");
/// assert_eq!(Query::parse(" ").unwrap_err().to_string(), "query: is empty; give at least one word");
/// # Ok::<(), epitome::search::QueryError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Folded, none empty, at least one.
    terms: Vec<String>,
}

impl Query {
    /// Reads a query: words separated by white space, `"quoted phrases"` as one. A quote that is never
    /// closed reaches to the end.
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
            return Err(QueryError::TooManyTerms { given: terms.len() });
        }
        Ok(Self { terms })
    }

    /// Whether all terms are in the text.
    pub fn matches(&self, text: &str) -> bool {
        let text = fold(text);
        self.terms.iter().all(|term| text.contains(term.as_str()))
    }

    /// One line of the text with the first match in it and up to `around` characters on either side. `…`
    /// says where it was cut. Where nothing matches it is the beginning.
    pub fn excerpt(&self, text: &str, around: usize) -> String {
        let folded = fold(text);
        let found = self.terms.iter().filter_map(|term| Some((folded.find(term.as_str())?, term.len())));
        let (from, len) = found.min().unwrap_or((0, 0));
        let (first, last) = (place(text, from), place(text, from.saturating_add(len)));
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

    /// What an FTS5 index of trigrams over [`indexed`] text is asked for candidates: every text that matches
    /// is among them. `None` where all terms are too short to be asked for, so that all texts are candidates.
    pub fn trigrams(&self) -> Option<String> {
        let quoted = self.threes().into_iter().map(|three| {
            let three = String::from_iter(three);
            format!("\"{}\"", three.replace('"', "\"\""))
        });
        Some(quoted.collect::<Vec<_>>().join(" AND ")).filter(|asked| !asked.is_empty())
    }

    /// The same as characters, for an index of another kind; none where all texts are candidates.
    pub(crate) fn threes(&self) -> Vec<[char; 3]> {
        let mut threes: Vec<[char; 3]> = Vec::new();
        for term in &self.terms {
            let chars: Vec<char> = term.chars().map(tame).collect();
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

/// What of a message can be found: what was said, which tools were called with what, and what they gave
/// back. Neither reasoning nor media.
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

/// A text as an index of trigrams takes it in. Where two characters make a word, each two that stand together
/// are added as a trigram of their own.
pub fn indexed(text: &str) -> String {
    let mut indexed: String = fold(text).chars().map(tame).collect();
    let next = indexed.chars().skip(1);
    let pairs: BTreeSet<[char; 3]> =
        indexed.chars().zip(next).filter_map(|(one, two)| pair(one, two)).collect();
    indexed.extend(pairs.iter().flatten());
    indexed
}

/// Says that the next two characters stand together. It is nobody's letter.
const PAIR: char = '\u{E000}';

/// Whether a character is of a script in which two make a word: Chinese, Japanese, Korean. Words that short are found by
/// the index only there.
///
/// ```
/// assert!("東京の天気".chars().all(epitome::search::is_dense) && !"weather".contains(epitome::search::is_dense));
/// ```
pub fn is_dense(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30FF}' | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}'
        | '\u{AC00}'..='\u{D7A3}' | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{3FFFF}')
}

/// Two characters as a trigram, in scripts whose words are that short.
fn pair(one: char, two: char) -> Option<[char; 3]> {
    (is_dense(one) && is_dense(two)).then_some([PAIR, one, two])
}

/// Case folded character by character, whatever stands around, so that a part of a text folds to a part of
/// the folded text. (The end of a Greek word would otherwise fold in its own way.)
fn fold(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).map(|c| if c == 'ς' { 'σ' } else { c }).collect()
}

/// Tokenizers pass over NULs, or stop at them; and [`PAIR`] is ours.
fn tame(c: char) -> char {
    if matches!(c, '\0' | PAIR) { ' ' } else { c }
}

/// Which character of the text stands at a byte of the folded text.
fn place(text: &str, byte: usize) -> usize {
    let mut at = 0;
    text.chars()
        .take_while(|c| {
            let before = at;
            at += c.to_lowercase().map(char::len_utf8).sum::<usize>();
            before < byte
        })
        .count()
}

/// Why a query was refused. All of these mean: mend the query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// Nothing is looked for.
    #[error("query: is empty; give at least one word")]
    Empty,
    /// Too much is looked for.
    #[error("query: {given} words and phrases; at most {MOST_TERMS} are allowed")]
    TooManyTerms {
        /// How many were given.
        given: usize,
    },
}

#[cfg(test)]
mod tests;
