//! Determines whether a name survives together with what was said about it, and how much of a summary is bare lists.
//!
//! A name in a bare list counts as retained for FER, but a reader cannot use it. FEM counts a name only if the words
//! near it in the context include half of the significant words that were near it at one of its places in the
//! conversation. Words of other names count only if they are not the majority, so the names of a list do not support
//! each other.

use std::collections::BTreeSet;

use serde::Serialize;

use super::lines::pieces;
use super::names::{found_names, without_names};
use super::terms::each_term;

/// Number of significant words on each side of a name that were said about it, in the conversation and in a context.
/// The context has more words, because a summary may order them differently.
const WORDS_SAID: usize = 5;
const WORDS_SHOWN: usize = 12;

/// Number of characters on each side of a name in which its words are searched.
const MAX_SIDE_CHARS: usize = 200;

/// Minimum number of names in a bare list.
const LIST_NAMES: usize = 6;

/// The significant words near one occurrence of a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Surroundings {
    all: BTreeSet<String>,
    /// The words that are not part of a name.
    plain: BTreeSet<String>,
}

/// What a conversation said about a name: the words near each of its occurrences.
#[derive(Debug, Clone, Default)]
pub struct SaidAbout(Vec<Surroundings>);

impl SaidAbout {
    /// Collects the words near each occurrence of a name in these texts.
    pub(super) fn of<'t>(name: &str, texts: impl IntoIterator<Item = &'t str>) -> Self {
        let mut said = Vec::new();
        for line in texts.into_iter().flat_map(lines) {
            each_occurrence(line, name, |before, after| said.push(near(before, after, WORDS_SAID)));
        }
        Self(said)
    }

    /// Returns whether these texts repeat what was said about the name, at one of its occurrences.
    pub(super) fn is_repeated_in<'t>(&self, name: &str, texts: impl IntoIterator<Item = &'t str>) -> bool {
        let mut repeated = false;
        for line in texts.into_iter().flat_map(lines) {
            each_occurrence(line, name, |before, after| {
                repeated = repeated || {
                    let shown = near(before, after, WORDS_SHOWN).all;
                    self.0.iter().any(|said| said.is_repeated_by(&shown))
                };
            });
        }
        repeated
    }
}

impl Surroundings {
    fn is_repeated_by(&self, shown: &BTreeSet<String>) -> bool {
        let (said, plain) = (self.all.len(), self.plain.len());
        let common: Vec<&String> = self.all.intersection(shown).collect();
        let common_plain = common.iter().filter(|word| self.plain.contains(**word)).count();
        // Where mostly names were near the name, all of them must be near it again.
        let mostly_names = 2 * plain < said && common.len() == said;
        said == 0 || 2 * common.len() >= said && (2 * common_plain >= common.len() || mostly_names)
    }
}

/// How much of summaries is bare lists of names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ListedChars {
    /// Number of characters of the summaries.
    pub all: u64,
    /// Number of these characters that are in bare lists: in lines with at least six names and few other words.
    pub listed: u64,
}

impl ListedChars {
    /// Adds a summary.
    pub fn add(&mut self, summary: &str) {
        for line in lines(summary) {
            let chars = line.chars().count() as u64;
            let names = found_names(line).len();
            let mut words = 0;
            each_term(&without_names(line), |_| words += 1);
            self.all += chars;
            // Less than one word in six is not a name.
            if names >= LIST_NAMES && 6 * words < names + words {
                self.listed += chars;
            }
        }
    }

    /// Adds the numbers of other summaries.
    pub fn join(&mut self, other: Self) {
        self.all += other.all;
        self.listed += other.listed;
    }

    /// Returns the share of the characters that is in bare lists; `None` without a summary.
    pub fn share(self) -> Option<f64> {
        (self.all > 0).then(|| self.listed as f64 / self.all as f64)
    }
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').flat_map(pieces)
}

/// Calls `found` with the texts before and after each occurrence of a name in a line.
fn each_occurrence(line: &str, name: &str, mut found: impl FnMut(&str, &str)) {
    for (at, _) in line.match_indices(name) {
        let before = line.get(..at).unwrap_or_default();
        let after = line.get(at + name.len()..).unwrap_or_default();
        let start = before.char_indices().rev().nth(MAX_SIDE_CHARS - 1).map_or(0, |(at, _)| at);
        let end = after.char_indices().nth(MAX_SIDE_CHARS).map_or(after.len(), |(at, _)| at);
        found(before.get(start..).unwrap_or_default(), after.get(..end).unwrap_or_default());
    }
}

/// Returns the last `reach` words before a name and the first `reach` words after it.
fn near(before: &str, after: &str, reach: usize) -> Surroundings {
    let words = |before: &str, after: &str| {
        let (mut last, mut first) = (Vec::new(), Vec::new());
        each_term(before, |word| last.push(word.to_owned()));
        each_term(after, |word| first.push(word.to_owned()));
        last.into_iter().rev().take(reach).chain(first.into_iter().take(reach)).collect()
    };
    Surroundings { all: words(before, after), plain: words(&without_names(before), &without_names(after)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_counts_only_with_what_was_said_about_it() {
        let said = SaidAbout::of("src/tides.rs", ["The sunset column in src/tides.rs is wrong since May."]);
        for (context, is_repeated) in [
            ("Fixed: the sunset column of src/tides.rs was wrong.", true),
            ("Also mentioned: src/tides.rs harbour_9 src/berths.rs", false),
            ("The moon in src/tides.rs was bright.", false),
            ("The sunset column was wrong since May.", false),
        ] {
            assert_eq!(said.is_repeated_in("src/tides.rs", [context]), is_repeated, "{context}");
        }
    }

    #[test]
    fn names_do_not_support_each_other_unless_they_were_all_that_was_said() {
        let listing = SaidAbout::of("b.rs", ["fixed a.rs b.rs c.rs today"]);
        assert!(!listing.is_repeated_in("b.rs", ["a.rs b.rs c.rs"]));
        let alone = SaidAbout::of("b.rs", ["b.rs"]);
        assert!(alone.is_repeated_in("b.rs", ["Also mentioned: x b.rs y"]));
    }

    #[test]
    fn a_list_of_names_counts_and_a_sentence_does_not() {
        let list = "Also mentioned: src/a.rs src/b.rs src/c.rs src/d.rs src/e.rs src/f.rs max_size min_size old_size new_size";
        let sentence = "The test in src/a.rs failed again.";
        let mut chars = ListedChars::default();
        chars.add(&format!("{list}\n{sentence}"));
        assert_eq!((chars.all, chars.listed), ((list.len() + sentence.len()) as u64, list.len() as u64));
    }
}
