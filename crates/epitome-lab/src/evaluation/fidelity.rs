//! Determines which names and answers later turns of a recording need, and whether a context still contains them.

use std::collections::{BTreeSet, HashMap, HashSet};

use epitome::rules::message::{Message, Role};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::lines::pieces;
use super::meaning::SaidAbout;
use super::names::{contains_name, found_names};
use super::terms::{each_term, each_word, stem};
use super::{answer_text, text_of, values_of};

/// A name is far back if it was last seen more than this number of tokens before the call. The tokens are estimated
/// from the number of characters.
pub const FAR: u64 = 2_000;

/// Maximum number of measured positions in a recording.
const MAX_PLACES: usize = 6;
/// Minimum size of the conversation before a measured position, in tokens. A shorter conversation needs no condensing.
const MIN_SIZE_BEFORE: u64 = 1_000;

/// Number of significant words in a passage.
const PASSAGE_WORDS: usize = 60;
/// Number of significant words from the start of a passage to the start of the next passage. Passages overlap.
const PASSAGE_STEP: usize = 20;
/// Maximum number of words of a scored answer. For longer answers, it is unclear which words must be present.
const MAX_ANSWER_WORDS: usize = 8;
/// Approximate maximum number of evidence messages per question. If there are more, an evenly spread sample is used.
const MAX_EVIDENCE: usize = 40;

/// A recorded conversation, prepared for the measures.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Number of messages at the beginning that are always shown: every list contains these messages.
    pinned: usize,
    texts: Vec<String>,
    /// For each message, the argument values of its tool calls; `None` for a message without tool calls.
    calls: Vec<Option<Vec<String>>>,
    /// For each message, whether it is an assistant message.
    replies: Vec<bool>,
    authors: BTreeSet<String>,
}

/// A name that a call uses and that occurred earlier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The name.
    pub name: String,
    /// Estimated number of tokens between the last message that contains the name and the call.
    pub back: u64,
}

impl Need {
    /// Returns whether the name was last seen more than [`FAR`] tokens before the call.
    pub fn is_far(&self) -> bool {
        self.back > FAR
    }
}

/// Estimates the tokens of a message without a tokenizer: a quarter of its characters, plus four.
fn estimate(text: &str) -> u64 {
    text.chars().count() as u64 / 4 + 4
}

impl Recorded {
    /// Prepares a conversation. The first `pinned` messages are always shown.
    pub fn new(pinned: usize, messages: &[Message]) -> Self {
        let calls = |message: &Message| {
            let values: Vec<String> = message.calls().map(values_of).collect();
            (!values.is_empty()).then_some(values)
        };
        Self {
            pinned,
            texts: messages.iter().map(text_of).collect(),
            calls: messages.iter().map(calls).collect(),
            replies: messages.iter().map(|message| message.role == Role::Assistant).collect(),
            authors: messages
                .iter()
                .filter_map(|message| message.author.as_deref().map(str::to_owned))
                .collect(),
        }
    }

    /// Returns the text of each message.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Returns what the messages before position `at` said about a name, without the messages that are always shown.
    pub fn said_about(&self, name: &str, at: usize) -> SaidAbout {
        let texts = self.texts.get(self.pinned..at).unwrap_or_default();
        SaidAbout::of(name, texts.iter().map(String::as_str))
    }

    /// Estimates the tokens of all messages before position `at`, without the messages that are always shown.
    pub fn size(&self, at: usize) -> u64 {
        self.texts.get(self.pinned..at).unwrap_or_default().iter().map(|text| estimate(text)).sum()
    }

    /// Returns the measured positions: a few evenly spread assistant messages with tool calls that use earlier names. A
    /// position is the number of messages before it.
    pub fn positions(&self) -> Vec<usize> {
        let (mut size, mut at) = (0u64, Vec::new());
        for (place, text) in self.texts.iter().enumerate().skip(self.pinned) {
            let calls = self.calls.get(place).is_some_and(Option::is_some);
            if calls && self.replies.get(place) == Some(&true) && size > MIN_SIZE_BEFORE {
                at.push(place);
            }
            size = size.saturating_add(estimate(text));
        }
        if at.len() > MAX_PLACES {
            let nth = |k: usize| at.get(k * (at.len() - 1) / (MAX_PLACES - 1)).copied();
            at = (0..MAX_PLACES).filter_map(nth).collect();
        }
        at.retain(|place| !self.needs(*place).is_empty());
        at
    }

    /// Returns the names that the calls of the message at `at` use and that an earlier message contains, sorted by
    /// name. Leaves out names in the messages that are always shown.
    pub fn needs(&self, at: usize) -> Vec<Need> {
        let head = self.texts.get(..self.pinned.min(at)).unwrap_or_default().join("\n");
        let calls = self.calls.get(at).and_then(Option::as_ref);
        let names: BTreeSet<String> =
            calls.into_iter().flatten().flat_map(|values| found_names(values)).collect();
        let mut names: Vec<String> = names.into_iter().filter(|name| !contains_name(&head, name)).collect();
        let (mut needs, mut back) = (Vec::new(), 0u64);
        for text in self.texts.get(self.pinned..at).unwrap_or_default().iter().rev() {
            if names.is_empty() {
                break;
            }
            // This check is cheap. A text that does not contain the characters of a name cannot contain the name.
            if names.iter().any(|name| text.contains(name.as_str())) {
                let there = found_names(text);
                names.retain(|name| {
                    let found = there.contains(name);
                    if found {
                        needs.push(Need { name: name.clone(), back });
                    }
                    !found
                });
            }
            back = back.saturating_add(estimate(text));
        }
        needs.sort_by(|a, b| a.name.cmp(&b.name));
        needs
    }
}

/// The texts of a context that the measures read, without the messages that are always shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The summary's text; empty without a summary.
    pub summary: String,
    /// The text of each message that is not the summary.
    pub messages: Vec<String>,
}

impl Shown {
    /// Returns whether the context contains a name verbatim.
    pub fn contains(&self, name: &str) -> bool {
        self.units().any(|unit| contains_name(unit, name))
    }

    /// Returns whether the context contains a name together with what was said about it.
    pub fn explains(&self, name: &str, said: &SaidAbout) -> bool {
        let all = std::iter::once(self.summary.as_str()).chain(self.messages.iter().map(String::as_str));
        self.contains(name) && said.is_repeated_in(name, all)
    }

    /// Returns the texts in which passages are searched: each line of the summary, and each message.
    fn units(&self) -> impl Iterator<Item = &str> {
        let lines = self.summary.split('\n').filter(|line| !line.trim().is_empty());
        lines.flat_map(pieces).chain(self.messages.iter().map(String::as_str))
    }
}

/// A question about a recorded conversation, with its answer and the messages that prove it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Question {
    /// The question.
    pub question: String,
    /// The correct answer: a text or a number.
    pub answer: Value,
    /// Positions of the messages that prove the answer, counted from 0.
    #[serde(default)]
    pub evidence: Vec<usize>,
}

/// The questions about one conversation, prepared for scoring contexts.
#[derive(Debug)]
pub struct Questions {
    terms: TermNumbers,
    /// Weight of each term, by the term's number. Rare terms weigh more.
    weights: Vec<f64>,
    rarest: f64,
    items: Vec<PreparedQuestion>,
}

#[derive(Debug)]
struct PreparedQuestion {
    answer: Vec<u32>,
    question: Vec<u32>,
    evidence: Vec<Vec<u32>>,
    /// Whether answers to this question are scored. The answer must be short, and the whole conversation must contain
    /// it.
    scored: bool,
}

/// Maps terms to numbers.
#[derive(Debug, Default)]
struct TermNumbers {
    numbers: HashMap<String, u32>,
}

impl TermNumbers {
    fn number(&mut self, term: &str) -> u32 {
        if let Some(number) = self.numbers.get(term) {
            return *number;
        }
        let number = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        self.numbers.insert(term.to_owned(), number);
        number
    }

    /// Returns the numbers of a text's terms, in order.
    fn list(&mut self, text: &str) -> Vec<u32> {
        let mut out = Vec::new();
        each_term(text, |term| out.push(self.number(term)));
        out
    }

    /// Returns the numbers of a text's terms, sorted, each number once.
    fn set(&mut self, text: &str) -> Vec<u32> {
        let mut set = self.list(text);
        set.sort_unstable();
        set.dedup();
        set
    }
}

impl Questions {
    /// Prepares questions about this conversation.
    pub fn new(recorded: &Recorded, questions: &[Question]) -> Self {
        let mut terms = TermNumbers::default();
        let sets: Vec<Vec<u32>> = recorded.texts.iter().map(|text| terms.set(text)).collect();
        let mut counts: HashMap<u32, u32> = HashMap::new();
        for term in sets.iter().flatten() {
            *counts.entry(*term).or_default() += 1;
        }
        let all = recorded.texts.len() as f64;
        let names: HashSet<u32> = recorded
            .authors
            .iter()
            .flat_map(|name| {
                let lowered = name.to_lowercase().replace('_', " ");
                let mut out = Vec::new();
                each_word(&lowered, |word| out.push(terms.number(stem(&word.replace("'s", "")))));
                out
            })
            .collect();
        let items = questions
            .iter()
            .map(|source| {
                let answer = terms.set(&answer_text(&source.answer));
                let mut question = terms.set(&source.question);
                question.retain(|term| !names.contains(term) && !answer.contains(term));
                let step = if source.evidence.len() > MAX_EVIDENCE {
                    source.evidence.len() / MAX_EVIDENCE
                } else {
                    1
                };
                let evidence = source.evidence.iter().step_by(step.max(1));
                let evidence = evidence.filter_map(|at| sets.get(*at).cloned()).collect();
                let scored = !answer.is_empty() && answer.len() <= MAX_ANSWER_WORDS;
                PreparedQuestion { answer, question, evidence, scored }
            })
            .collect();
        let weight =
            |number: u32| counts.get(&number).map(|count| ((all + 1.0) / (f64::from(*count) + 0.5)).ln());
        let rarest = (all + 1.0).ln();
        let numbers = u32::try_from(terms.numbers.len()).unwrap_or(u32::MAX);
        let weights = (0..numbers).map(|number| weight(number).unwrap_or(rarest)).collect();
        let mut new = Self { terms, weights, rarest, items };
        // A question that the whole conversation does not answer is not scored.
        let passages = new.passages(recorded.texts.iter().map(String::as_str));
        let hits: Vec<bool> = new.items.iter().map(|item| item.scored && passages.answers(item)).collect();
        for (item, hit) in new.items.iter_mut().zip(hits) {
            item.scored = hit;
        }
        new
    }

    fn passages<'t>(&mut self, units: impl Iterator<Item = &'t str>) -> PassageIndex {
        let mut passages = PassageIndex::default();
        for unit in units {
            let list = self.terms.list(unit);
            let starts = (list.len() + PASSAGE_STEP).saturating_sub(PASSAGE_WORDS).max(1);
            for from in (0..starts).step_by(PASSAGE_STEP).filter(|_| !list.is_empty()) {
                passages.add(list.get(from..(from + PASSAGE_WORDS).min(list.len())).unwrap_or_default());
            }
        }
        passages
    }

    /// Scores a context, and returns two lists. The first list has one value for each scored question: 1 if the context
    /// contains the answer, otherwise 0. The second list has one value for each question with evidence: the share of
    /// the evidence that the context contains.
    pub fn score(&mut self, shown: &Shown) -> (Vec<f64>, Vec<f64>) {
        let passages = self.passages(shown.units());
        let answered = self.items.iter().filter(|item| item.scored);
        let answers = answered.map(|item| if passages.answers(item) { 1.0 } else { 0.0 }).collect();
        let evidence_share = |item: &PreparedQuestion| {
            let shares: Vec<f64> = item
                .evidence
                .iter()
                .filter_map(|evidence| passages.evidence_share(evidence, |term| self.weight(term)))
                .collect();
            (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
        };
        (answers, self.items.iter().filter_map(evidence_share).collect())
    }

    fn weight(&self, term: u32) -> f64 {
        usize::try_from(term).ok().and_then(|term| self.weights.get(term)).copied().unwrap_or(self.rarest)
    }
}

/// Index that maps each term to the passages that contain the term.
#[derive(Default)]
struct PassageIndex {
    count: u32,
    passages: HashMap<u32, Vec<u32>>,
}

impl PassageIndex {
    fn add(&mut self, terms: &[u32]) {
        for term in terms {
            let passages = self.passages.entry(*term).or_default();
            if passages.last() != Some(&self.count) {
                passages.push(self.count);
            }
        }
        self.count += 1;
    }

    fn of(&self, term: u32) -> &[u32] {
        self.passages.get(&term).map_or(&[], Vec::as_slice)
    }

    /// Returns whether one passage contains three quarters of the answer's terms and at least one term of the question.
    fn answers(&self, item: &PreparedQuestion) -> bool {
        let near: HashSet<u32> = item.question.iter().flat_map(|term| self.of(*term)).copied().collect();
        let mut counts: HashMap<u32, usize> = HashMap::new();
        for window in item.answer.iter().flat_map(|term| self.of(*term)) {
            *counts.entry(*window).or_default() += 1;
        }
        let enough = 0.75 * item.answer.len() as f64;
        counts.iter().any(|(window, count)| {
            *count as f64 >= enough && (item.question.is_empty() || near.contains(window))
        })
    }

    /// Returns the share of the evidence's terms that the best passage contains, by weight. `None` if the evidence has
    /// no terms.
    fn evidence_share(&self, evidence: &[u32], weight: impl Fn(u32) -> f64) -> Option<f64> {
        let total: f64 = evidence.iter().map(|term| weight(*term)).sum();
        if total <= 0.0 {
            return None;
        }
        let mut sums: HashMap<u32, f64> = HashMap::new();
        for term in evidence {
            for window in self.of(*term) {
                *sums.entry(*window).or_default() += weight(*term);
            }
        }
        let best = sums.values().copied().fold(0.0, f64::max);
        Some((best / total).min(1.0))
    }
}

/// Computes the mean of values and the mean's standard error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// Number of values.
    pub count: u64,
    sum: f64,
    squares: f64,
}

impl Mean {
    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.count = self.count.saturating_add(1);
        self.sum += value;
        self.squares += value * value;
    }

    /// Adds the values of another mean.
    pub fn join(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// Returns the mean; `None` without values.
    pub fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// Returns the standard error of the mean; `None` with fewer than two values.
    pub fn error(&self) -> Option<f64> {
        let mean = self.value().filter(|_| self.count > 1)?;
        let count = self.count as f64;
        let variance = ((self.squares / count - mean * mean) * count / (count - 1.0)).max(0.0);
        Some((variance / count).sqrt())
    }
}
