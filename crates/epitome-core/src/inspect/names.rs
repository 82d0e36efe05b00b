//! Determines the names that a summary should contain, and adds the missing names to the summary.

use super::{Inspected, Standard, clean};
use crate::ledger::{Ledger, listed_as, listing, lists_names};
use crate::message::Tokens;
use crate::slot::Limit;
use crate::tokens::Counter;

/// Largest assumed difference, in tokens, between the count of a whole text and the sum of the counts of its parts.
const SLACK: Tokens = 8;

/// Returns the names of a ledger that a summary of this size should contain. The name that is most likely to be needed
/// comes first.
///
/// The number of names depends on the smaller of `limit` and `replaces`. If tools were used, the names may fill half of
/// a small limit, and a fifth of a limit of 4,000 tokens. If no tool was used, the names may fill a tenth of the limit.
/// The result also contains names that the summary already contains, so few names are added to a good summary.
/// [`crate::prompt::max_words`] reserves tokens for the names.
///
/// ```
/// use epitome_core::inspect::names_due;
/// use epitome_core::ledger::Ledger;
/// use epitome_core::message::{Message, Part, Role};
/// use epitome_core::slot::Limit;
/// use epitome_core::tokens::{Counter, Encoding};
///
/// let mut ledger = Ledger::default();
/// ledger.read(&Message::new(Role::Assistant, [Part::call("c1", "read", r#"{"path":"src/parse.rs"}"#)]));
/// ledger.read(&Message::tool("c1", "use crate::token_kind; fn next_token() {}"));
/// let counter = Counter::new(Encoding::O200k);
/// let due = |limit| names_due(&ledger, Limit::Tokens(limit), 2_000, &counter);
/// assert_eq!(due(10), ["src/parse.rs"]);
/// assert_eq!(due(1_000), ["src/parse.rs", "next_token", "token_kind"]);
/// ```
pub fn names_due<'a>(ledger: &'a Ledger, limit: Limit, replaces: Tokens, counter: &Counter) -> Vec<&'a str> {
    let room = match limit {
        Limit::Tokens(limit) => share(ledger, limit.min(replaces), 300),
        // A token has about four characters.
        Limit::Chars(limit) => share(ledger, limit.min(replaces.saturating_mul(4)), 1_200),
    };
    let mut due: Vec<&str> = Vec::new();
    let mut sum: u64 = 0;
    for name in ledger.ranked() {
        if due.iter().any(|longer| contains_name(longer, name)) {
            continue;
        }
        let listed = format!(" {}", listed_as(name));
        sum = sum.saturating_add(match limit {
            Limit::Tokens(_) => counter.text(&listed),
            Limit::Chars(_) => listed.chars().count() as u64,
        });
        if sum > room {
            break;
        }
        due.push(name);
    }
    due
}

/// Returns how many of `room` tokens or characters the names of a summary may use. In a session with tools, the share
/// is large, because later calls need the names again. The share is smaller for a larger limit, because names with a
/// low rank are less useful. Without tools, the statements of people matter more than a list of dates and numbers.
fn share(ledger: &Ledger, room: u64, some: u64) -> u64 {
    match ledger.knows_calls() {
        true => (room / 2).min(some.saturating_add(room / 8)),
        false => room / 10,
    }
}

/// Returns the text, followed by the missing names that fit the limit.
pub(super) fn complete(text: String, tokens: Tokens, cut: bool, standard: &Standard<'_>) -> Inspected {
    let most = match standard.limit {
        Limit::Tokens(limit) => limit.min(standard.replaces.saturating_sub(1)),
        Limit::Chars(_) => standard.replaces.saturating_sub(1),
    };
    let (head, listed, tail) = open(&text);
    let line =
        |names: &[&str]| listing(listed, &names.iter().map(|name| listed_as(name)).collect::<Vec<_>>());
    let put = |names: &[&str]| format!("{head}{}{tail}", line(names));
    let fits = |whole: &str| {
        standard.counter.text(whole) <= most
            && match standard.limit {
                Limit::Chars(limit) => whole.chars().count() as u64 <= limit,
                Limit::Tokens(_) => true,
            }
    };
    let mut sum = tokens.saturating_add(4);
    let mut added: Vec<&str> = Vec::new();
    for name in standard.names.iter().map(|name| name.trim()) {
        if sum > most.saturating_add(SLACK) {
            break;
        }
        let odd = name.is_empty() || name.contains(|c: char| c.is_control() || c == '"');
        if odd || contains_name(&text, name) || added.contains(&name) {
            continue;
        }
        let next = sum.saturating_add(standard.counter.text(&format!(" {}", listed_as(name))));
        added.push(name);
        // Counts the whole text only if the estimate is close to the limit.
        let close = next.saturating_add(SLACK) > most || matches!(standard.limit, Limit::Chars(_));
        if close && !fits(&put(&added)) {
            added.pop();
        } else {
            sum = next;
        }
    }
    // A name is left out if it is a secret or a tag, or if it looks like a secret together with the other names. This
    // is rare. Therefore names are tested one by one only if the test of all names together fails.
    let is_clean = |names: &[&str]| {
        let line = line(names);
        clean(line.clone(), standard) == line
    };
    if !is_clean(&added) {
        let mut clean_names: Vec<&str> = Vec::new();
        for name in added {
            clean_names.push(name);
            if !is_clean(&clean_names) {
                clean_names.pop();
            }
        }
        added = clean_names;
    }
    while !added.is_empty() && !fits(&put(&added)) {
        added.pop();
    }
    let whole = put(&added);
    // If adding names would make a good summary fail the checks, no name is added.
    if added.is_empty()
        || super::check_content(&whole, None).is_err()
        || clean(whole.clone(), standard) != whole
    {
        return Inspected { text, tokens, added: Vec::new(), cut };
    }
    let tokens = standard.counter.text(&whole);
    Inspected { tokens, added: added.into_iter().map(str::to_owned).collect(), text: whole, cut }
}

/// Splits a text into three parts: the text before its last line of names, this line, and the text after this line. If
/// the text contains no line of names, an empty line of names is assumed at the end of the text.
fn open(text: &str) -> (String, &str, &str) {
    let mut at = 0;
    let mut found = None;
    for line in text.split_inclusive('\n') {
        if lists_names(line) {
            found = Some((at, at + line.trim_end().len()));
        }
        at += line.len();
    }
    let Some((from, to)) = found else { return (format!("{text}\n"), "", "") };
    let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default();
    (part(0..from).to_owned(), part(from..to), part(to..text.len()))
}

/// Returns whether the text contains this name as a separate word.
fn contains_name(text: &str, name: &str) -> bool {
    if name.is_empty() {
        return true;
    }
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        let before = text.get(..at).and_then(|head| head.chars().next_back());
        let after = text.get(at + name.len()..).and_then(|tail| tail.chars().next());
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::{Finish, inspect};
    use crate::message::{Message, Part, Role};
    use crate::tokens::Encoding;

    const PROSE: &str =
        "The user asked for a list of all berths. The assistant looked at one after the other.";

    /// A ledger of a session that uses tools, whose results contain this number of names.
    fn worked(names: usize) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.read(&Message::new(Role::Assistant, [Part::call("c", "look", r#"{"at":"src/quay.rs"}"#)]));
        for n in 0..names {
            ledger.read(&Message::tool("c", format!("berth_{n} is free")));
        }
        ledger
    }

    /// The tokens of the names that are due.
    fn listed(ledger: &Ledger, limit: Limit, replaces: Tokens) -> Tokens {
        let counter = Counter::new(Encoding::O200k);
        let names = names_due(ledger, limit, replaces, &counter);
        names.iter().map(|name| counter.text(&format!(" {}", listed_as(name)))).sum()
    }

    #[test]
    fn a_larger_summary_must_hold_more_names_and_a_small_one_does_not_become_a_list() {
        let ledger = worked(900);
        for (limit, most) in [(30, 15), (200, 100), (1_000, 425), (4_000, 800)] {
            let tokens = listed(&ledger, Limit::Tokens(limit), 100_000);
            assert!(tokens <= most && tokens + 8 > most, "{tokens} of {limit}");
        }
        assert!(
            listed(&ledger, Limit::Tokens(4_000), 300) <= 150,
            "`replaces` counts if it is less than the limit"
        );
        let chars = names_due(&ledger, Limit::Chars(300), 100_000, &Counter::new(Encoding::O200k));
        let chars: usize = chars.iter().map(|name| 1 + name.chars().count()).sum();
        assert!(chars <= 150 && chars > 135, "{chars}");
    }

    #[test]
    fn where_people_talk_fewer_are_due() {
        let mut ledger = Ledger::default();
        for n in 0..200 {
            ledger.read(&Message::user(format!("Then we met Maria{n} Olsen on 2026-11-02.")));
        }
        let tokens = listed(&ledger, Limit::Tokens(1_000), 100_000);
        assert!(tokens <= 100 && tokens > 80, "{tokens}");
    }

    #[test]
    fn a_name_inside_another_is_not_due_twice() {
        let mut ledger = Ledger::default();
        for _ in 0..3 {
            let call = Part::call("c", "read", r#"{"path":"src/quay.rs"}"#);
            ledger.read(&Message::new(Role::Assistant, [call]));
        }
        ledger.read(&Message::tool("c", "quay.rs berth_1"));
        let counter = Counter::new(Encoding::O200k);
        let due = names_due(&ledger, Limit::Tokens(1_000), 10_000, &counter);
        assert_eq!(due, ["src/quay.rs", "berth_1"]);
    }

    #[test]
    fn hundreds_of_names_are_added_up_to_the_limit_and_not_over_it() {
        let ledger = worked(900);
        let counter = Counter::new(Encoding::O200k);
        let names: Vec<&str> = ledger.ranked().collect();
        for limit in [24, 25, 26, 200, 1_000, 2_500] {
            let standard = Standard {
                limit: Limit::Tokens(limit),
                replaces: 100_000,
                prior: None,
                names: &names,
                counter: &counter,
                redact: true,
            };
            let kept = inspect(PROSE, Finish::Complete, &standard).unwrap();
            assert!(kept.tokens <= limit && kept.tokens + 8 > limit, "{} of {limit}", kept.tokens);
            assert!(
                kept.text.starts_with(PROSE) && kept.added.iter().all(|name| contains_name(&kept.text, name))
            );
            assert!(kept.text.lines().all(|line| line.len() <= 900), "lines that can be read");
        }
    }
}
