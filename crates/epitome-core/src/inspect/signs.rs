//! Detects texts that are not summaries. Each check looks for a property that good summaries do not have. Some checks
//! look only at the start of a short text. Other checks require the property in most lines or in most words.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::ledger::lists_names;
use crate::pattern::pattern;

/// Returns whether the text has no content: no words, or only a placeholder.
pub(super) fn is_empty(text: &str) -> bool {
    if !text.contains(char::is_alphanumeric) {
        return true;
    }
    let lower = text.trim().to_lowercase();
    let bare = lower.trim_matches(|c: char| !c.is_alphanumeric());
    const ALONE: &str = "n/a|na|none|null|nil|undefined|empty|summary|the summary|your summary here|\
        insert summary here|no summary|no summary available|no summary needed|no content|no events|\
        no messages|no conversation|no changes|nothing|tbd|todo|ok|okay|done|error";
    const OPENINGS: &str = "i see no events|i see no messages|i don't see any|i do not see any|there are no events|\
        there are no messages|there is no conversation|there is nothing to summarize|\
        nothing to summarize|no events to|no messages to|no conversation to|\
        none yet: the conversation starts below|please provide the conversation";
    let short = text.chars().count() <= 240;
    ALONE.split('|').any(|one| one == bare)
        || (short && OPENINGS.split('|').any(|opening| bare.starts_with(opening)))
}

/// Returns whether a text was probably cut off. This is checked if the provider did not report how the reply ended. The
/// signs are an unclosed code fence, and a last word or character that cannot end a sentence.
pub(super) fn is_cut_off(text: &str) -> bool {
    let fences = text.lines().filter(|line| line.trim_start().starts_with("```")).count();
    if fences % 2 == 1 {
        return true;
    }
    let last = text.trim_end().lines().next_back().unwrap_or("");
    if lists_names(last) {
        return false;
    }
    if last.trim_end().ends_with([',', '(', '[', '{', '，', '、', '（']) {
        return true;
    }
    const UNFINISHED: &str = "the|a|an|and|or|but|of|to|with|for|that|which|because|und|oder|der|die|das|mit|dass|et|ou|\
        les|du|y|el|con|que";
    let word = last.split_whitespace().next_back().unwrap_or("");
    last.split_whitespace().count() >= 4 && UNFINISHED.split('|').any(|one| one == word)
}

/// Returns whether the text is mostly repetition, in any script. The running time is linear in the length of the text.
///
/// A list of nearly equal lines is not repetition, because each line differs in at least one word.
pub(super) fn is_repetitive(text: &str) -> bool {
    let words: Vec<u64> = words(text).collect();
    let distinct = words.iter().collect::<HashSet<_>>().len();
    // A small vocabulary is a sign of repetition only in a short text. A long text always repeats its frequent words.
    let few = words.len() >= 8 && (distinct <= 3 || (words.len() <= 64 && distinct * 4 <= words.len()));
    few || repeats_sentences(text) || repeats_rows(&words) || repeats_letters(text)
}

/// Returns whether repeated sentences or lines make up more than 70 % of the text.
fn repeats_sentences(text: &str) -> bool {
    let mut seen = HashSet::new();
    let (mut times, mut repeated, mut all) = (0, 0, 0);
    let lines = text.lines().flat_map(|line| line.split(". ")).flat_map(|line| line.split("! "));
    for sentence in lines.flat_map(|line| line.split(['。', '！', '？', '।'])) {
        let sentence = sentence.trim().trim_end_matches('.');
        all += sentence.len();
        if !sentence.is_empty() && !seen.insert(hash(&sentence.to_lowercase())) {
            times += 1;
            repeated += sentence.len();
        }
    }
    times >= 3 && repeated * 10 > all * 7
}

/// Number of consecutive words that are compared as one row. In a list of nearly equal lines, a row of this length
/// always contains a difference.
const ROW: usize = 32;

/// Minimum number of consecutive repeated rows in a text that counts as repetition.
const LONGEST_ECHO: usize = 60;

/// Returns whether more than half of the rows are repeated, or at least [`LONGEST_ECHO`] rows in succession.
fn repeats_rows(words: &[u64]) -> bool {
    let mut seen = HashSet::new();
    let (mut rows, mut again, mut echo, mut longest) = (0usize, 0usize, 0usize, 0usize);
    for row in words.windows(ROW) {
        rows += 1;
        if seen.insert(hash(row)) {
            echo = 0;
        } else {
            again += 1;
            echo += 1;
            longest = longest.max(echo);
        }
    }
    longest >= LONGEST_ECHO || (rows >= 16 && again * 2 > rows)
}

/// Returns whether most of the text consists of long words that repeat the same letters: `hahaha…`.
fn repeats_letters(text: &str) -> bool {
    let mut looping = 0;
    for word in text.split_whitespace().filter(|word| word.len() > 64) {
        let chars: Vec<char> = word.chars().collect();
        let pieces = chars.windows(6);
        let all = pieces.len();
        let distinct: HashSet<&[char]> = pieces.collect();
        if distinct.len() * 4 <= all {
            looping += word.len();
        }
    }
    looping * 2 > text.len()
}

/// Returns the words of a text as hashes. In a script without spaces, each character counts as a word.
fn words(text: &str) -> impl Iterator<Item = u64> {
    text.split_whitespace().flat_map(|word| {
        let dense = word.chars().any(
            |c| matches!(c, '\u{0e00}'..='\u{0eff}' | '\u{3040}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}'),
        );
        if !dense {
            return vec![hash(&word.to_lowercase())];
        }
        word.chars().map(|c| hash(&c)).collect()
    })
}

fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The beginning of an error message. A server or a library may add the prefixes in the first line of the pattern.
static FAILURE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?x) ^ [\#*\[(\ ]* (?: http/1\.1\  )* (?: http\  )* (?: error )* [:\ ]* (?: code\  )* [0-9:\-–\ .]*
        (?: bad\ gateway | gateway\ time-?out | service\ unavailable | internal\ server\ error | too\ many\ requests
        | rate\ limit\ (?: exceeded | reached ) | upstream\ (?: connect\ error | request ) | request\ timed\ out
        | connection\ (?: refused | error | reset ) | model\ overloaded | overloaded_error | an\ error\ occurred
        | error\ generating | failed\ to\ generate | context\ length\ exceeded )",
    )
});

/// Returns whether the text is an error page or an error message of a server or a library.
pub(super) fn is_error_page(text: &str) -> bool {
    let start: String = text.chars().take(2_000).flat_map(char::to_lowercase).collect();
    let start = start.trim_start();
    if start.starts_with("<!doctype") || start.starts_with("<html") || start.starts_with("<?xml") {
        return true;
    }
    if start.starts_with('{') && text.len() <= 8_192 && is_error_body(text) {
        return true;
    }
    if is_stack_trace(text) {
        return true;
    }
    let words = start.split_whitespace().count();
    let fails = FAILURE.is_match(start);
    let served = ["nginx/", "cloudflare", "try again", "retry after", "request id", "request_id"];
    let of_server = served.iter().any(|word| start.contains(word));
    (fails && (words <= 8 || (words <= 40 && of_server))) || (start.starts_with("error:") && words <= 12)
}

/// Returns whether the text is a JSON object that describes a failure.
fn is_error_body(text: &str) -> bool {
    let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(text.trim()) else { return false };
    let failed = fields.get("type").and_then(Value::as_str) == Some("error")
        || fields.get("status").and_then(Value::as_u64).is_some_and(|status| status >= 400);
    let described =
        ["error", "errors"].iter().any(|name| fields.get(*name).is_some_and(|error| !error.is_null()));
    failed || (described && fields.len() <= 4)
}

/// A line of a stack trace.
static FRAME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"^(?:at .*[(:]|File ".*, line |Traceback \(most recent call last\))"#));

fn is_stack_trace(text: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let frames = lines.iter().filter(|line| FRAME.is_match(line)).count();
    let begins = lines.first().is_some_and(|line| line.starts_with("Traceback (most recent call last)"));
    frames >= 2 && (begins || frames * 2 > lines.len())
}

/// Returns the first 80 characters, in lower case.
fn opening(text: &str) -> String {
    text.chars().take(80).flat_map(char::to_lowercase).map(|c| if c == '’' { '\'' } else { c }).collect()
}

/// Returns whether the text is short and opens with a refusal.
pub(super) fn declines(text: &str) -> bool {
    const SORRY: &str = "i'm sorry|i am sorry|sorry, but|sorry, i|i must decline|i apologize|as an ai|\
        as a language model|es tut mir leid|tut mir leid, |je suis désolé|désolé, |lo siento, |desculpe, |\
        抱歉|很抱歉|对不起|申し訳|извините";
    // An agent may write "I cannot reproduce the bug" about its own work. Such an opening counts as a refusal only if
    // the text also refers to the request for a summary.
    const CANNOT: &str = "i cannot|i can't|i can not|i'm unable|i am unable|i'm not able|i am not able|i won't|\
        i will not|unfortunately, i|ich kann|je ne peux pas|no puedo|não posso";
    const OURS: &str = "assist|help|comply|summarize|summary|provide|fulfil|generate|continue with|engage|do that|do this|helfen|\
        zusammenfass|aider|résumer|ayudar|resumir|ajudar";
    let start = opening(text);
    let opens = |openings: &str| openings.split('|').any(|opening| start.starts_with(opening));
    let ours = || OURS.split('|').any(|request| start.contains(request));
    // In scripts without spaces, characters are counted instead of words.
    words(text).count() <= 120 && (opens(SORRY) || (opens(CANNOT) && ours()))
}

/// A line in the format of the prompt's transcript: `[12] user: …`.
static OUR_LINE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^\[[0-9]+\] (?:user|assistant|note|result of|error from|peer)(?:[:(]| \(| calls )")
});

/// A line in the format of any transcript.
static SPEAKER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^[*# ]*(?i-u:(?<user>user|human)|assistant|ai|model)[* ]*:"));

/// Returns whether the text continues the conversation: as the next turn of a transcript, or as an answer to the user.
pub(super) fn continues_conversation(text: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let first = lines.first().copied().unwrap_or_default();
    let speakers: Vec<bool> = lines
        .iter()
        .filter_map(|line| SPEAKER.captures(line))
        .map(|speaker| speaker.name("user").is_some())
        .collect();
    let changes = speakers.windows(2).filter(|two| two.first() != two.last()).count();
    let dialogue = SPEAKER.is_match(first) && changes >= 2 && speakers.len() * 2 > lines.len();
    if dialogue || OUR_LINE.is_match(first) {
        return true;
    }
    const OPENINGS: &str = "sure, i|sure! |sure, let|certainly! |of course! |you're welcome|let me |i'll |\
        great question|good question|how can i help|how can i assist|what would you like|\
        would you like me to|hi there|hello! |hi! |thanks for reaching|thank you for reaching|\
        absolutely! ";
    const OFFERS: &str = "would you like me to|do you want me to|shall i |should i |how can i help|how can i assist|\
        is there anything else i can|what would you like me to";
    let start = opening(text);
    if OPENINGS.split('|').any(|opening| start.starts_with(opening)) {
        return true;
    }
    let last = lines.last().map(|line| line.to_lowercase()).unwrap_or_default();
    let question = last.trim_end_matches(['?', ' ']);
    let sentence =
        question.rfind(['.', '!', '?', ':']).and_then(|at| question.get(at + 1..)).unwrap_or(question);
    last.ends_with('?') && OFFERS.split('|').any(|offer| sentence.trim_start().starts_with(offer))
}

/// Returns whether both texts are equal, ignoring spaces, punctuation, case and the list of names at the end.
pub(super) fn is_same(prior: &str, text: &str) -> bool {
    let plain = |text: &str| -> String {
        let lines = text.lines().filter(|line| !lists_names(line));
        lines.flat_map(str::chars).filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let prior = plain(prior);
    !prior.is_empty() && prior == plain(text)
}
