//! Ranks pieces by how much they contribute for their size.
//!
//! Each piece has its own score (for example for being a statement or an answer) and contains words and names. Pieces
//! are selected greedily: the next piece is always the piece that adds the most new value per token. The order of
//! selection is a ranking, so any prefix of it is a good summary of its size.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, OnceLock};

use super::{Extract, Extracts, Origin};
use crate::message::Tokens;
use crate::names;
use crate::num::{exp, ln};
use crate::tokens::Counter;
use crate::words::{each_word, hash, pack, pack_all};

/// Factor by which the value of a word or name shrinks each time that a selected piece contains it.
const REPEATED: f64 = 0.25;

/// Value of a piece that has several words, but no word with a value of its own. So "Do it for us" is used if there is
/// space, but "Okay!" is not.
const ANY: f64 = 0.01;

/// Features of the text of a piece. They are computed once and cached, because a piece is ranked again for every later
/// summary. The cache does not affect equality of pieces.
#[derive(Debug, Clone, Default)]
pub(super) struct CachedFeatures {
    features: OnceLock<Box<Features>>,
    /// The token count, with the name of its counter.
    tokens: OnceLock<(Arc<str>, Tokens)>,
}

impl PartialEq for CachedFeatures {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for CachedFeatures {}

/// The features of a text that depend only on its form.
#[derive(Debug, Clone)]
pub(super) struct Features {
    /// Words and names, each once, sorted by their hashes.
    found: Box<[(u64, FeatureKind)]>,
    capitals: u32,
    pub(super) words: u32,
    size: Tokens,
    signs: Signs,
}

impl Extract {
    pub(super) fn features(&self) -> &Features {
        self.cached.features.get_or_init(|| Box::new(Features::of(self)))
    }

    pub(super) fn tokens(&self, counter: &Counter) -> Tokens {
        counter.text_once(&self.text, &self.cached.tokens)
    }
}

impl Features {
    /// Returns whether the text mentions a time.
    pub(super) fn mentions_time(&self) -> bool {
        self.signs.time
    }

    fn of(extract: &Extract) -> Self {
        let text = extract.text.as_str();
        let mut found = Vec::new();
        let mut capitals = 0u32;
        names::each_name(text, extract.origin != Origin::Output, |name| {
            let proper = name.kind == names::NameKind::Proper;
            capitals += u32::from(proper);
            // Different from the hash of a word with the same letters.
            let hash = hash(name.text.as_bytes()) ^ 0x9e37_79b9_7f4a_7c15;
            found.push((hash, if proper { FeatureKind::Capital } else { FeatureKind::Name }));
        });
        let speech = !matches!(extract.origin, Origin::Output | Origin::Call);
        let (mut signs, mut nth) = (Signs::default(), 0);
        let words = each_word(text, |word, hash| {
            found.extend(hash.map(|hash| (hash, FeatureKind::Word)));
            if speech {
                signs.add_word(word, nth);
                nth += 1;
            }
        });
        found.sort_unstable_by_key(|(hash, _)| *hash);
        found.dedup_by_key(|(hash, _)| *hash);
        Self { found: found.into(), capitals, words, size: extract.size(), signs }
    }
}

/// A piece with its score. `features` contains the indices of its words and names in the table of values.
struct ScoredPiece {
    worth: f64,
    any: f64,
    cost: f64,
    features: Vec<u32>,
}

/// Returns the indices of the pieces, best first, up to `until` tokens or `most` pieces. If there is a task, it comes
/// first.
pub(super) fn order(all: &Extracts, until: Tokens, most: usize) -> Vec<usize> {
    let extracts = all.extracts.as_slice();
    let task = all.has_task();
    let (pieces, mut values) = table(extracts, all.tool_share() as f64 / 1_000.0);
    let gain = |at: usize, values: &[f64]| {
        let Some(piece) = pieces.get(at) else { return 0.0 };
        let new = piece.features.iter().filter_map(|f| values.get(usize::try_from(*f).ok()?));
        piece.worth * (new.sum::<f64>() + piece.any) / piece.cost
    };
    let mut taken = Vec::new();
    let mut spent: Tokens = 0;
    let mut take = |at: usize, values: &mut [f64], spent: &mut Tokens| {
        for f in pieces.get(at).map(|piece| piece.features.as_slice()).unwrap_or_default() {
            if let Some(value) = usize::try_from(*f).ok().and_then(|f| values.get_mut(f)) {
                *value *= REPEATED;
            }
        }
        *spent = spent.saturating_add(extracts.get(at).map_or(0, |extract| extract.features().size));
        taken.push(at);
    };
    // The task comes first, up to a sixth of the size, so that there is space for the rest.
    let mut others = Vec::with_capacity(extracts.len());
    for (at, extract) in extracts.iter().enumerate() {
        if task && extract.task && (spent == 0 || spent.saturating_add(extract.features().size) <= until / 6)
        {
            take(at, &mut values, &mut spent);
        } else {
            others.push(at);
        }
    }
    let mut left = most.saturating_sub(extracts.len().saturating_sub(others.len()));
    // Ranks by the added value; for equal values, the earlier piece ranks higher. The value is never negative, so its
    // bits sort in the same order.
    let ranked = |at: usize, values: &[f64]| (gain(at, values).to_bits(), Reverse(at));
    let mut heap: BinaryHeap<(u64, Reverse<usize>)> =
        others.into_iter().map(|at| ranked(at, &values)).collect();
    while let Some((_, Reverse(at))) = heap.pop() {
        if spent >= until || left == 0 {
            break;
        }
        // Pieces selected in the meantime may have reduced the value of this piece. They never increase it.
        let now = ranked(at, &values);
        if heap.peek().is_some_and(|next| now < *next) {
            heap.push(now);
            continue;
        }
        if now.0 == 0 {
            break;
        }
        take(at, &mut values, &mut spent);
        left -= 1;
    }
    taken
}

/// The kind of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FeatureKind {
    Word,
    Name,
    Capital,
}

fn table(extracts: &[Extract], tools: f64) -> (Vec<ScoredPiece>, Vec<f64>) {
    let mut pieces: Vec<ScoredPiece> = extracts
        .iter()
        .map(|extract| {
            let features = extract.features();
            ScoredPiece {
                worth: worth(extract, features, tools),
                any: if features.words > 1 { ANY } else { 0.0 },
                cost: cost(features),
                features: Vec::with_capacity(features.found.len()),
            }
        })
        .collect();
    // Sorting puts equal features next to each other. This is as fast as a hash table, and no input can be built to
    // cause collisions.
    let mut all: Vec<(u64, u32, FeatureKind)> =
        Vec::with_capacity(pieces.iter().map(|piece| piece.features.capacity()).sum());
    for (extract, at) in extracts.iter().zip(0..) {
        all.extend(extract.features().found.iter().map(|(hash, kind)| (*hash, at, *kind)));
    }
    all.sort_unstable_by_key(|(hash, ..)| *hash);
    let pool = extracts.len() as f64;
    let mut values = Vec::new();
    for alike in all.chunk_by(|a, b| a.0 == b.0) {
        let place = u32::try_from(values.len()).unwrap_or(u32::MAX);
        for (_, at, _) in alike {
            if let Some(piece) = usize::try_from(*at).ok().and_then(|at| pieces.get_mut(at)) {
                piece.features.push(place);
            }
        }
        let count = alike.len() as f64;
        values.push(match alike.first() {
            // Words of medium frequency indicate the topic better than rare or common words.
            None | Some((_, _, FeatureKind::Word)) => {
                0.5 / 3.0 * ln((pool + 1.0) / (count + 0.5)) * (1.0 + ln(count)).min(2.5)
            }
            Some((_, _, FeatureKind::Name)) => 2.0 * (1.0 + ln(count)).min(3.0),
            Some((_, _, FeatureKind::Capital)) => 1.2,
        });
    }
    (pieces, values)
}

/// Returns the cost of a piece, which grows a little more slowly than its tokens.
fn cost(features: &Features) -> f64 {
    exp(0.85 * ln((features.size as f64).max(1.0)))
}

/// Returns how informative a piece is by its form and, in English, by a few words. Other languages use the form alone.
fn worth(extract: &Extract, features: &Features, tools: f64) -> f64 {
    let text = extract.text.as_str();
    let Features { words, capitals, signs, .. } = features;
    let (words, capitals) = (*words, *capitals);
    let mut score = 1.63 * f64::from(words.min(6)) / 6.0 + 0.014 * f64::from(words.min(40));
    score += 0.22 * f64::from(capitals.min(3));
    if text.ends_with(['?', '？', '؟']) {
        score -= 0.64;
    }
    if extract.answers {
        score += 0.84;
    }
    if extract.of_many {
        score -= 0.28;
    }
    match extract.origin {
        Origin::Output => score -= 0.9,
        Origin::Call => score -= 0.2,
        Origin::User | Origin::Assistant | Origin::Summary => {
            // In a session with many tool calls, texts that are not tool output are rare, and the user's texts state
            // the purpose.
            score += tools * if extract.origin == Origin::User { 0.9 } else { 0.3 };
            score += if signs.first_person { 0.38 } else { 0.0 } + if signs.time { 0.87 } else { 0.0 }
                - if signs.greeting { 1.17 } else { 0.0 };
        }
    }
    if extract.origin == Origin::Output && super::pieces::is_about_error(text) {
        score += 0.2;
    }
    exp(score)
}

/// Properties of a piece that a few English words indicate.
#[derive(Debug, Clone, Copy, Default)]
struct Signs {
    first_person: bool,
    time: bool,
    greeting: bool,
}

impl Signs {
    /// Evaluates one more word, the `nth` from 0.
    fn add_word(&mut self, word: &str, nth: usize) {
        self.first_person |=
            matches!(word, "I" | "I'm" | "I've" | "I'll" | "my" | "My" | "we" | "We" | "our");
        let Some(lowered) = pack(word) else { return };
        self.time |= PACKED_TIMES.binary_search(&lowered).is_ok();
        self.greeting |= nth == 0 && PACKED_GREETINGS.binary_search(&lowered).is_ok();
    }
}

#[rustfmt::skip]
const TIMES: [&str; 34] = [
    "ago", "april", "august", "deadline", "december", "evening", "february", "friday", "january", "july",
    "june", "last", "march", "monday", "month", "months", "morning", "november", "october", "saturday",
    "september", "summer", "sunday", "thursday", "today", "tomorrow", "tonight", "tuesday", "wednesday",
    "week", "weekend", "weeks", "year", "yesterday",
];

#[rustfmt::skip]
const GREETINGS: [&str; 22] = [
    "absolutely", "awesome", "bye", "congrats", "cool", "glad", "good", "great", "hello", "hey", "hi",
    "nice", "okay", "sounds", "sure", "thank", "thanks", "that's", "welcome", "wow", "yeah", "yes",
];

static PACKED_TIMES: [u128; 34] = pack_all(TIMES);
static PACKED_GREETINGS: [u128; 22] = pack_all(GREETINGS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted() {
        assert!(TIMES.is_sorted() && GREETINGS.is_sorted());
    }
}
