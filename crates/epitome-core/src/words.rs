//! Splits text into words, in any script.
//!
//! In scripts with spaces, a word is a sequence of letters and digits. Words are compared in lower case and without
//! common endings. In scripts without spaces (Chinese, Japanese, Thai and similar), each pair of neighbouring
//! characters counts as a word. Pairs need no dictionary: two texts that have words in common also have pairs in
//! common.

/// Calls `found` with each word and its hash. The hash is `None` for stop words and very short words. For a pair of
/// characters, the word is empty. Returns the approximate number of words. The hashes are the same on every machine.
pub(crate) fn each_word(text: &str, mut found: impl FnMut(&str, Option<u64>)) -> u32 {
    let mut chars = text.char_indices().peekable();
    let mut previous: Option<char> = None;
    let (mut words, mut unspaced) = (0u32, 0u32);
    while let Some((at, c)) = chars.next() {
        if is_unspaced(c) {
            unspaced += 1;
            // Most pairs of hiragana have only a grammatical function, like the stop words of English.
            if let Some(before) = previous.filter(|before| !(is_hiragana(*before) && is_hiragana(c))) {
                found("", Some(hash_chars([before, c])));
            }
            previous = Some(c);
            continue;
        }
        previous = None;
        if !is_alphanumeric(c) {
            continue;
        }
        let mut end = at + c.len_utf8();
        while let Some((next, c)) =
            chars.next_if(|(_, c)| (is_alphanumeric(*c) && !is_unspaced(*c)) || *c == '\'')
        {
            end = next + c.len_utf8();
        }
        let word = text.get(at..end).unwrap_or_default();
        words += 1;
        found(word, content_word(word));
    }
    // In scripts without spaces, about two characters form a word.
    words + unspaced / 2
}

/// Returns the approximate number of words in a text, in any script.
pub(crate) fn count_words(text: &str) -> u32 {
    each_word(text, |_, _| {})
}

/// The same as [`char::is_alphanumeric`], with a fast path for the most frequent scripts.
pub(crate) fn is_alphanumeric(c: char) -> bool {
    match c {
        '\0'..='\u{7F}' => c.is_ascii_alphanumeric(),
        '\u{C0}'..='\u{D6}'
        | '\u{D8}'..='\u{F6}'
        | '\u{F8}'..='\u{2C1}'        // Latin
        | '\u{400}'..='\u{481}'       // Cyrillic
        | '\u{3041}'..='\u{3096}'     // Kana
        | '\u{30A1}'..='\u{30FA}'
        | '\u{4E00}'..='\u{9FFF}'     // Han
        | '\u{AC00}'..='\u{D7A3}' => true, // Hangul
        c => c.is_alphanumeric(),
    }
}

fn is_hiragana(c: char) -> bool {
    matches!(c, '\u{3041}'..='\u{309F}')
}

/// Returns whether the character belongs to a script without spaces between words.
pub(crate) fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{0E00}'..='\u{0EFF}'       // Thai, Lao
        | '\u{1000}'..='\u{109F}'     // Burmese
        | '\u{1780}'..='\u{17FF}'     // Khmer
        | '\u{3040}'..='\u{30FF}'     // Kana
        | '\u{31F0}'..='\u{31FF}'
        | '\u{3400}'..='\u{4DBF}'     // Han
        | '\u{4E00}'..='\u{9FFF}'
        | '\u{F900}'..='\u{FAFF}'
        | '\u{20000}'..='\u{3FFFF}')
}

fn content_word(word: &str) -> Option<u64> {
    if word.is_ascii() {
        let mut lowered = [0u8; 32];
        let bytes = word.as_bytes();
        let buffer = lowered.get_mut(..bytes.len().min(32))?;
        for (to, from) in buffer.iter_mut().zip(bytes) {
            *to = from.to_ascii_lowercase();
        }
        let lowered = std::str::from_utf8(buffer).ok()?;
        if pack(lowered).is_some_and(|packed| PACKED_STOP.binary_search(&packed).is_ok())
            || (lowered.len() < 2 && !lowered.starts_with(|c: char| c.is_ascii_digit()))
        {
            return None;
        }
        return Some(hash(stem(lowered).as_bytes()));
    }
    // Words of other scripts have endings too. Their first six letters are used as the stem.
    let first = || word.chars().flat_map(char::to_lowercase).take(6);
    (first().count() > 2).then(|| hash_chars(first()))
}

fn stem(word: &str) -> &str {
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        return word;
    }
    let word = word.strip_suffix("'s").unwrap_or(word);
    for end in ["ing", "edly", "ed", "ies", "ly"] {
        if let Some(stem) = word.strip_suffix(end)
            && stem.len() >= 3
        {
            return stem;
        }
    }
    // Removes `es` from `boxes` and `wishes`, but only `s` from `lakes`.
    let hissing = word.strip_suffix("es").filter(|stem| stem.ends_with(['s', 'x', 'z', 'h']));
    hissing
        .or(word.strip_suffix('s').filter(|stem| !stem.ends_with('s')))
        .filter(|s| s.len() >= 3)
        .unwrap_or(word)
}

/// FNV-1a: fast for short inputs, and the same on every machine.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().copied().fold(FIRST_HASH, step)
}

const FIRST_HASH: u64 = 0xcbf2_9ce4_8422_2325;

fn step(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
}

fn hash_chars(chars: impl IntoIterator<Item = char>) -> u64 {
    chars.into_iter().fold(FIRST_HASH, |hash, c| c.encode_utf8(&mut [0; 4]).bytes().fold(hash, step))
}

/// Packs an ASCII word into one number, in lower case. The numbers have the same order as the words. Returns `None` if
/// the word is not ASCII or is longer than every word in the lists. A search in a list of numbers is much faster than a
/// search in a list of words.
pub(crate) fn pack(word: &str) -> Option<u128> {
    (word.len() <= LONGEST_LISTED && word.is_ascii()).then(|| pack_bytes(word.as_bytes()))
}

const LONGEST_LISTED: usize = 12;

const fn pack_bytes(word: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let mut at = 0;
    #[expect(clippy::indexing_slicing, reason = "the loop condition checks both")]
    while at < LONGEST_LISTED && at < word.len() {
        bytes[at] = word[at];
        at += 1;
    }
    bytes.make_ascii_lowercase();
    u128::from_be_bytes(bytes)
}

/// Packs a sorted list of words.
pub(crate) const fn pack_all<const N: usize>(words: [&str; N]) -> [u128; N] {
    let mut packed = [0; N];
    let mut at = 0;
    while at < N {
        #[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
        {
            packed[at] = pack_bytes(words[at].as_bytes());
        }
        at += 1;
    }
    packed
}

static PACKED_STOP: [u128; 115] = pack_all(STOP);

/// English stop words, sorted. Other languages need no list, because a word that occurs in every line gets a low weight
/// anyway.
#[rustfmt::skip]
const STOP: [&str; 115] = [
    "a", "about", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been", "being",
    "both", "but", "by", "can", "could", "d", "did", "do", "does", "don't", "down", "each", "for", "from",
    "get", "go", "had", "has", "have", "he", "her", "here", "him", "his", "how", "i", "i'm", "if", "in",
    "into", "is", "it", "it's", "its", "just", "like", "ll", "m", "me", "more", "most", "my", "no", "not",
    "o", "of", "oh", "ok", "okay", "on", "only", "or", "other", "our", "out", "over", "own", "re", "s",
    "same", "she", "should", "so", "some", "such", "t", "than", "that", "that's", "the", "their", "them",
    "then", "there", "these", "they", "this", "those", "to", "too", "up", "us", "ve", "very", "was", "we",
    "were", "what", "when", "where", "which", "who", "whom", "why", "will", "with", "would", "y", "yes",
    "you", "your",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_digits_are_what_unicode_says() {
        for c in '\0'..=char::MAX {
            assert_eq!(is_alphanumeric(c), c.is_alphanumeric(), "{c:?}");
        }
    }

    fn shared(a: &str, b: &str) -> usize {
        let of = |text: &str| {
            let mut out = std::collections::BTreeSet::new();
            each_word(text, |_, hash| out.extend(hash));
            out
        };
        of(a).intersection(&of(b)).count()
    }

    #[test]
    fn the_stop_list_is_sorted() {
        assert!(STOP.is_sorted());
    }

    #[test]
    fn forms_of_a_word_are_one_word() {
        assert_eq!(shared("She paints the lakes.", "He painted a lake"), 2);
        assert_eq!(shared("the of and", "the of and"), 0);
        assert_eq!(shared("Москва красивая", "в Москве красиво"), 1);
    }

    #[test]
    fn scripts_without_spaces_share_pairs() {
        assert_eq!(shared("東京に行きました", "明日東京へ"), 1);
        assert_eq!(count_words("東京に行きました"), 4);
        assert_eq!(count_words("It's a long way, isn't it"), 6);
    }

    #[test]
    fn long_words_and_odd_ones_are_taken_as_they_come() {
        let long = "x".repeat(1_000);
        assert_eq!(shared(&long, &long), 1);
        assert_eq!(shared("''''", "''''"), 0);
    }
}
