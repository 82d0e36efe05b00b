//! The names a summary should hold, added where they are missing.

use super::{Inspected, Standard, clean};
use crate::ledger::{REFERENCES, listed_as};
use crate::message::Tokens;
use crate::slot::Limit;

/// Pieces counted apart come to no more than this beside the count of the whole.
const SLACK: Tokens = 8;

/// The text, and after it those names that it lacks and that fit.
pub(super) fn complete(text: String, tokens: Tokens, cut: bool, standard: &Standard<'_>) -> Inspected {
    let most = match standard.limit {
        Limit::Tokens(limit) => limit.min(standard.replaces.saturating_sub(1)),
        Limit::Chars(_) => standard.replaces.saturating_sub(1),
    };
    let (head, mut listed, tail) = open(&text);
    let put = |listed: &str| format!("{head}{REFERENCES}{listed}{tail}");
    let mut sum = tokens.saturating_add(4);
    let mut added: Vec<String> = Vec::new();
    for name in standard.names.iter().map(|name| name.trim()) {
        if sum.saturating_sub(SLACK) > most {
            break;
        }
        let here = holds(&text, name) || added.iter().any(|one| one == name);
        if name.is_empty() || here || name.contains(|c: char| c.is_control() || c == '"') {
            continue;
        }
        let longer = format!("{listed} {}", listed_as(name));
        let next =
            sum.saturating_add(standard.counter.text(&longer).saturating_sub(standard.counter.text(&listed)));
        let chars_fit = match standard.limit {
            Limit::Chars(limit) => put(&longer).chars().count() as u64 <= limit,
            Limit::Tokens(_) => true,
        };
        // Counted as a whole only where it is close.
        let exact =
            if next.saturating_add(SLACK) <= most { next } else { standard.counter.text(&put(&longer)) };
        // A name that is a secret or a tag stays out, and one that reads as a secret beside the others.
        let line = format!("{REFERENCES}{longer}");
        if chars_fit && exact <= most && clean(line.clone(), standard) == line {
            sum = exact;
            listed = longer;
            added.push(name.to_owned());
        }
    }
    if added.is_empty() {
        return Inspected { text, tokens, added, cut };
    }
    let whole = put(&listed);
    let counted = standard.counter.text(&whole);
    // Names must not make a bad summary of a good one; then they all give way.
    if counted > most || super::judge(&whole, None).is_err() || clean(whole.clone(), standard) != whole {
        return Inspected { text, tokens, added: Vec::new(), cut };
    }
    Inspected { text: whole, tokens: counted, added, cut }
}

/// What stands before the names, the names, and what stands after them. A text that lists none yet
/// gets a line for them at its end.
fn open(text: &str) -> (String, String, &str) {
    let mut at = 0;
    let mut found = None;
    for line in text.split_inclusive('\n') {
        if line.starts_with(REFERENCES) {
            found = Some((at, at + line.trim_end().len()));
        }
        at += line.len();
    }
    match found {
        Some((from, to)) => {
            let head = text.get(..from).unwrap_or("").to_owned();
            let names = text.get(from + REFERENCES.len()..to).unwrap_or("").to_owned();
            (head, names, text.get(to..).unwrap_or(""))
        }
        None => (format!("{text}\n"), String::new(), ""),
    }
}

/// Whether the text says this name as a word of its own.
fn holds(text: &str, name: &str) -> bool {
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
