//! Ranks pieces by how much they contribute for their size.
//!
//! Each piece has a score of its own (is it a statement, an answer, long enough?) and contains words and names. Pieces are
//! selected greedily: the next piece is the one that adds the most value not yet covered, per token. The order of
//! selection is a ranking, so any prefix of it is a good summary of its size.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, OnceLock};

use super::{Extract, Extracts, Kind};
use crate::message::Tokens;
use crate::names;
use crate::num::{exp, ln};
use crate::tokens::Counter;
use crate::words::{each_word, hash, pack, pack_all};

/// Factor by which the value of a word or name shrinks each time that it is covered.
const TOLD: f64 = 0.25;

/// Value of a piece of several words none of which has a value: "Do it for us" is used if there is space, "Okay!" is not.
const ANY: f64 = 0.01;

/// Features of the text of a piece. They are computed once and cached, because a piece is ranked again for every summary
/// that it survives. The cache does not affect equality of pieces.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    holds: OnceLock<Box<Holds>>,
    /// The token count, with the name of its counter.
    tokens: OnceLock<(Arc<str>, Tokens)>,
}

impl PartialEq for Found {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Found {}

/// The features found in a text, by its form alone.
#[derive(Debug, Clone)]
pub(super) struct Holds {
    /// Words and names, each once, sorted by their hashes.
    features: Box<[(u64, Sort)]>,
    capitals: u32,
    pub(super) words: u32,
    size: Tokens,
    signs: Signs,
}

impl Extract {
    pub(super) fn holds(&self) -> &Holds {
        self.found.holds.get_or_init(|| Box::new(Holds::of(self)))
    }

    pub(super) fn tokens(&self, counter: &Counter) -> Tokens {
        counter.text_once(&self.text, &self.found.tokens)
    }
}

impl Holds {
    /// Returns whether the text mentions a time.
    pub(super) fn tells_time(&self) -> bool {
        self.signs.time
    }

    fn of(extract: &Extract) -> Self {
        let text = extract.text.as_str();
        let mut features = Vec::new();
        let mut capitals = 0u32;
        names::each_name(text, extract.kind != Kind::Output, |name| {
            let proper = name.kind == names::Kind::Proper;
            capitals += u32::from(proper);
            // Different from the hash of a word with the same letters.
            let hash = hash(name.text.as_bytes()) ^ 0x9e37_79b9_7f4a_7c15;
            features.push((hash, if proper { Sort::Capital } else { Sort::Name }));
        });
        let speech = !matches!(extract.kind, Kind::Output | Kind::Call);
        let (mut signs, mut nth) = (Signs::default(), 0);
        let words = each_word(text, |word, hash| {
            features.extend(hash.map(|hash| (hash, Sort::Word)));
            if speech {
                signs.see(word, nth);
                nth += 1;
            }
        });
        features.sort_unstable_by_key(|(hash, _)| *hash);
        features.dedup_by_key(|(hash, _)| *hash);
        Self { features: features.into(), capitals, words, size: extract.size(), signs }
    }
}

/// Features of a piece. `holds` contains the indices of its words and names in the table of values.
struct Features {
    worth: f64,
    any: f64,
    cost: f64,
    holds: Vec<u32>,
}

/// Returns the pieces in the order of their rank, up to `until` tokens or `most` pieces. If there is a task, it comes
/// first.
pub(super) fn order(all: &Extracts, until: Tokens, most: usize) -> Vec<usize> {
    let extracts = all.extracts.as_slice();
    let task = all.has_task();
    let (features, mut values) = table(extracts, all.tool_share() as f64 / 1_000.0);
    let gain = |at: usize, values: &[f64]| {
        let Some(piece) = features.get(at) else { return 0.0 };
        let new = piece.holds.iter().filter_map(|f| values.get(usize::try_from(*f).ok()?));
        piece.worth * (new.sum::<f64>() + piece.any) / piece.cost
    };
    let mut taken = Vec::new();
    let mut spent: Tokens = 0;
    let mut take = |at: usize, values: &mut [f64], spent: &mut Tokens| {
        for f in features.get(at).map(|piece| piece.holds.as_slice()).unwrap_or_default() {
            if let Some(value) = usize::try_from(*f).ok().and_then(|f| values.get_mut(f)) {
                *value *= TOLD;
            }
        }
        *spent = spent.saturating_add(extracts.get(at).map_or(0, |extract| extract.holds().size));
        taken.push(at);
    };
    // The task comes first, up to a sixth of the size, so that there is space for the rest.
    let mut others = Vec::with_capacity(extracts.len());
    for (at, extract) in extracts.iter().enumerate() {
        if task && extract.task && (spent == 0 || spent.saturating_add(extract.holds().size) <= until / 6) {
            take(at, &mut values, &mut spent);
        } else {
            others.push(at);
        }
    }
    let mut left = most.saturating_sub(extracts.len().saturating_sub(others.len()));
    // Ranks by the added value. It is never negative, so its bits sort in the same order. For ties the earlier piece wins.
    let ranked = |at: usize, values: &[f64]| (gain(at, values).to_bits(), Reverse(at));
    let mut heap: BinaryHeap<(u64, Reverse<usize>)> =
        others.into_iter().map(|at| ranked(at, &values)).collect();
    while let Some((_, Reverse(at))) = heap.pop() {
        if spent >= until || left == 0 {
            break;
        }
        // The pieces selected since may have reduced the value of this one; they never increase it.
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
enum Sort {
    Word,
    Name,
    Capital,
}

fn table(extracts: &[Extract], tools: f64) -> (Vec<Features>, Vec<f64>) {
    let mut features: Vec<Features> = extracts
        .iter()
        .map(|extract| {
            let holds = extract.holds();
            Features {
                worth: worth(extract, holds, tools),
                any: if holds.words > 1 { ANY } else { 0.0 },
                cost: cost(holds),
                holds: Vec::with_capacity(holds.features.len()),
            }
        })
        .collect();
    // Sorting puts equal features next to each other. This is as fast as a hash table, and no input can be built to cause
    // collisions.
    let mut all: Vec<(u64, u32, Sort)> =
        Vec::with_capacity(features.iter().map(|f| f.holds.capacity()).sum());
    for (extract, at) in extracts.iter().zip(0..) {
        all.extend(extract.holds().features.iter().map(|(hash, sort)| (*hash, at, *sort)));
    }
    all.sort_unstable_by_key(|(hash, ..)| *hash);
    let pool = extracts.len() as f64;
    let mut values = Vec::new();
    for alike in all.chunk_by(|a, b| a.0 == b.0) {
        let place = u32::try_from(values.len()).unwrap_or(u32::MAX);
        for (_, at, _) in alike {
            if let Some(piece) = usize::try_from(*at).ok().and_then(|at| features.get_mut(at)) {
                piece.holds.push(place);
            }
        }
        let count = alike.len() as f64;
        values.push(match alike.first() {
            // Words of medium frequency show the topic; rare and common ones do so less.
            None | Some((_, _, Sort::Word)) => {
                0.5 / 3.0 * ln((pool + 1.0) / (count + 0.5)) * (1.0 + ln(count)).min(2.5)
            }
            Some((_, _, Sort::Name)) => 2.0 * (1.0 + ln(count)).min(3.0),
            Some((_, _, Sort::Capital)) => 1.2,
        });
    }
    (features, values)
}

/// Returns the cost of a piece, which grows a little more slowly than its tokens.
fn cost(holds: &Holds) -> f64 {
    exp(0.85 * ln((holds.size as f64).max(1.0)))
}

/// Returns how informative a piece is by its form and, in English, by a few words. Other languages use the form alone.
fn worth(extract: &Extract, holds: &Holds, tools: f64) -> f64 {
    let text = extract.text.as_str();
    let Holds { words, capitals, signs, .. } = holds;
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
    match extract.kind {
        Kind::Output => score -= 0.9,
        Kind::Call => score -= 0.2,
        Kind::Asked | Kind::Said | Kind::Told => {
            // In a session with many tool calls, spoken texts are rare, and the user's texts state the purpose.
            score += tools * if extract.kind == Kind::Asked { 0.9 } else { 0.3 };
            score += if signs.first_person { 0.38 } else { 0.0 } + if signs.time { 0.87 } else { 0.0 }
                - if signs.greeting { 1.17 } else { 0.0 };
        }
    }
    if extract.kind == Kind::Output && super::pieces::tells_of_errors(text) {
        score += 0.2;
    }
    exp(score)
}

/// Signs shown by a few English words.
#[derive(Debug, Clone, Copy, Default)]
struct Signs {
    first_person: bool,
    time: bool,
    greeting: bool,
}

impl Signs {
    /// Evaluates one more word, the `nth` from 0.
    fn see(&mut self, word: &str, nth: usize) {
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
