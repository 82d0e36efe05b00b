//! Extracts the significant words of a text and reduces each word to its stem. The result is called a *term*.
//!
//! The rules are for English, because the annotated recordings are in English. Letters outside ASCII are ignored.

/// Frequent words that are not significant, in sorted order.
#[rustfmt::skip]
const COMMON: [&str; 103] = [
    "a", "about", "all", "also", "an", "and", "any", "are", "as", "at", "be", "been", "being", "both", "by",
    "can", "could", "d", "did", "do", "does", "down", "each", "for", "from", "had", "has", "have", "he",
    "her", "here", "him", "his", "how", "i", "if", "in", "into", "is", "it", "its", "just", "ll", "m", "me",
    "more", "most", "my", "no", "not", "o", "of", "on", "only", "or", "other", "our", "out", "over", "own",
    "re", "s", "same", "she", "should", "so", "some", "such", "t", "than", "that", "the", "their", "them",
    "then", "there", "these", "they", "this", "those", "to", "too", "up", "us", "ve", "very", "was", "we",
    "were", "what", "when", "where", "which", "who", "whom", "why", "will", "with", "would", "y", "yes",
    "you", "your",
];

/// Calls `found` with the stem of each significant word, in the order of the text.
pub(super) fn each_term(text: &str, mut found: impl FnMut(&str)) {
    let lowered = text.to_lowercase();
    each_word(&lowered, |word| {
        if word.bytes().any(|byte| byte.is_ascii_digit()) {
            // A word with a digit is not split: `3.5` and `14:30` are single words.
            term(word, &mut found);
        } else {
            word.split(['.', ',', ':', '/', '-']).for_each(|part| term(part, &mut found));
        }
    });
}

fn term(word: &str, found: &mut impl FnMut(&str)) {
    if word.is_empty() || COMMON.binary_search(&word).is_ok() {
        return;
    }
    if word.contains("'s") && !word.starts_with(|c: char| c.is_ascii_digit()) {
        let without = word.replace("'s", "");
        return found_if_any(stem(&without), found);
    }
    found_if_any(stem(word), found);
}

fn found_if_any(word: &str, found: &mut impl FnMut(&str)) {
    if !word.is_empty() {
        found(word);
    }
}

/// Calls `found` with each run of letters, digits and joining characters, for example `o'clock`, `src/main` or `3.5`.
/// The text must be in lower case.
pub(super) fn each_word<'t>(text: &'t str, mut found: impl FnMut(&'t str)) {
    let bytes = text.as_bytes();
    let inside = |at: usize| bytes.get(at).is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let joins = |at: usize| bytes.get(at).is_some_and(|b| b".,:/'-".contains(b)) && inside(at + 1);
    let mut at = 0;
    while at < bytes.len() {
        let from = at;
        while inside(at) || (at > from && joins(at)) {
            at += 1;
        }
        if at > from {
            found(text.get(from..at).unwrap_or_default());
        } else {
            at += 1;
        }
    }
}

/// Returns a word without its grammatical ending, for example `ing`. Removes points and commas around a number.
pub(super) fn stem(word: &str) -> &str {
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        return word.trim_matches(['.', ',']);
    }
    for ending in ["ing", "edly", "ed", "ies", "es", "s", "ly"] {
        if let Some(stem) = word.strip_suffix(ending)
            && stem.len() >= 3
        {
            return stem;
        }
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(text: &str) -> Vec<String> {
        let mut out = Vec::new();
        each_term(text, |term| out.push(term.to_owned()));
        out
    }

    #[test]
    fn common_words_are_sorted() {
        assert!(COMMON.is_sorted());
    }

    #[test]
    fn words_are_cut_to_their_stems_and_figures_stay_whole() {
        assert_eq!(
            terms("The boats' engines were FAILING at 14:30, again."),
            ["boat", "engin", "fail", "14:30", "again"]
        );
        assert_eq!(
            terms("Ann's src/main.rs is 3.5 MB: re-read it"),
            ["ann", "src", "main", "rs", "3.5", "mb", "read"]
        );
        assert_eq!(terms("don't; it's o'clock -- x"), ["don't", "it", "o'clock", "x"]);
        assert_eq!(terms("Ünïcödé 東京"), ["n", "c"]);
    }
}
