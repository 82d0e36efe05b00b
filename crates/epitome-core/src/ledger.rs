//! Collects the names that a summary must repeat verbatim, and ranks them by how likely they are needed again.
//!
//! A [`Ledger`] reads each message once and records the [`crate::names`] in it: how often and when each name occurred,
//! who used the name, and whether a tool was called with it. A name in a tool call is the most likely to be used again.
//! The size of a ledger is limited: names that are unlikely to be needed are evicted. Names are ranked by these counts
//! alone, so ranking is cheap and gives the same result on every machine.
//!
//! [`crate::local`] appends the names to its summaries. [`crate::inspect`] makes sure that a model's summary contains
//! the names.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::message::{Message, Seq};
use crate::names::{self, NameKind};
use crate::num::ln;
use crate::reading::{Voice, each_text};

/// Prefix of a line of names in a summary. The names are separated by spaces, and the name most likely to be needed
/// comes first. Names that contain spaces are in quotes.
pub const ALSO_MENTIONED: &str = "Also mentioned:";

/// Prefix of a line of names that earlier releases wrote. Stored summaries and stored lists may still contain this
/// prefix.
const EARLIER_PREFIX: &str = "References:";

/// Returns the text after the prefix, if the line is a list of names with one of the two prefixes. Otherwise returns
/// `None`.
fn names_part(line: &str) -> Option<&str> {
    line.strip_prefix(ALSO_MENTIONED).or_else(|| line.strip_prefix(EARLIER_PREFIX))
}

/// Returns whether the line is a list of names.
pub(crate) fn lists_names(line: &str) -> bool {
    names_part(line).is_some()
}

/// Returns a name in the form that a line of names contains. A name with spaces is in quotes. A name with spaces and
/// quotes is between backticks.
pub(crate) fn listed_as(name: &str) -> Cow<'_, str> {
    match name.contains(char::is_whitespace) {
        true if !name.contains('"') => Cow::Owned(format!("\"{name}\"")),
        true => Cow::Owned(format!("`{}`", name.replace('`', "'"))),
        false => Cow::Borrowed(name),
    }
}

/// Maximum length of a line of names, in bytes. Longer lines are hard to read, so further names start a new line.
const LISTED: usize = 900;

/// Returns one or more lines of names. The caller passes each name as returned by [`listed_as`]. If `before` is a line
/// of names, the result begins with the names of `before`, after the current prefix.
pub(crate) fn listing<N: AsRef<str>>(before: &str, names: &[N]) -> String {
    let mut lines =
        names_part(before).map_or_else(|| before.to_owned(), |part| format!("{ALSO_MENTIONED}{part}"));
    let mut began = 0;
    for name in names.iter().map(AsRef::as_ref) {
        let full = lines.len() - began + name.len() >= LISTED;
        if lines.is_empty() || full {
            lines.push_str(if lines.is_empty() { "" } else { "\n" });
            began = lines.len();
            lines.push_str(ALSO_MENTIONED);
        }
        lines.push(' ');
        lines.push_str(name);
    }
    lines
}

/// Returns the names in a line of names, or `None` for any other line.
pub(crate) fn listed(line: &str) -> Option<Vec<&str>> {
    let mut rest = names_part(line)?.trim_start();
    let mut names = Vec::new();
    while !rest.is_empty() {
        let quoted = ['"', '`'].iter().find_map(|quote| rest.strip_prefix(*quote)?.split_once(*quote));
        let (name, left) = quoted.or_else(|| rest.split_once(' ')).unwrap_or((rest, ""));
        names.extend((!name.is_empty()).then_some(name));
        rest = left.trim_start();
    }
    Some(names)
}

/// Number of names that remain in a ledger after names are evicted. Before that, a ledger can contain 25 % more names.
pub const MOST_NAMES: usize = 1_000;

/// Maximum length of a recorded command, in bytes. A longer command is a script, and a script is seldom run again
/// unchanged.
const COMMAND: usize = 80;

/// The names that occurred in a session, with their counts.
///
/// ```
/// use epitome_core::ledger::Ledger;
/// use epitome_core::message::{Message, Part, Role};
///
/// let mut ledger = Ledger::default();
/// ledger.read(&Message::user("The build fails in src/parse.rs since 2026-11-02."));
/// ledger.read(&Message::new(Role::Assistant, [Part::call("c1", "read", r#"{"path":"src/parse.rs"}"#)]));
/// assert_eq!(ledger.ranked().next(), Some("src/parse.rs"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    names: BTreeMap<String, NameStats>,
    /// Position of the message that was read last.
    now: Seq,
}

/// Where and how often a name occurred. It is serialized as an array without field names, to save space: a ledger is
/// stored with every summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "NameRow")]
struct NameStats {
    kind: NameKind,
    count: u32,
    first: Seq,
    last: Seq,
    /// Number of messages that call a tool with the name. The position of the last of these messages is in `last_call`.
    calls: u32,
    last_call: Seq,
    user: bool,
    assistant: bool,
}

type NameRow = (NameKind, u32, Seq, Seq, u32, Seq, bool, bool);

impl From<NameStats> for NameRow {
    fn from(seen: NameStats) -> Self {
        let NameStats { kind, count, first, last, calls, last_call, user, assistant } = seen;
        (kind, count, first, last, calls, last_call, user, assistant)
    }
}

impl NameStats {
    /// Records one more occurrence.
    fn record(&mut self, now: Seq, voice: Voice<'_>) {
        // Counts each message only once, because a list in a message may repeat a name on every line.
        if self.last != now || self.count == 0 {
            self.count = self.count.saturating_add(1);
        }
        self.last = now;
        self.user |= voice == Voice::User;
        self.assistant |= voice == Voice::Assistant;
        if let Voice::Call { .. } = voice {
            if self.last_call != now || self.calls == 0 {
                self.calls = self.calls.saturating_add(1);
            }
            self.last_call = now;
        }
    }
}

impl Ledger {
    /// Returns the approximate memory use in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let names = self.names.keys().map(|name| size_of::<(String, NameStats)>().saturating_add(name.len()));
        names.fold(0, usize::saturating_add)
    }

    /// Reads one more message. If the message has no `seq`, it gets the position after the last message.
    pub fn read(&mut self, message: &Message) {
        self.now = if message.seq == 0 { self.now.saturating_add(1) } else { message.seq.max(self.now) };
        if message.skip {
            return;
        }
        each_text(message, |voice, text| self.read_text(voice, text));
    }

    pub(crate) fn read_text(&mut self, voice: Voice<'_>, text: &str) {
        let speech = matches!(voice, Voice::User | Voice::Assistant);
        names::each_name(text, speech, |name| self.note(name.text, name.kind, name.sure, voice));
        if let Voice::Call { key: "command", .. } = voice
            && let Some(line) = text.lines().next()
        {
            // A leading `cd folder &&` is removed. The folder is recorded as a separate name.
            let folder = line.strip_prefix("cd ").and_then(|line| line.split_once("&& "));
            let command = folder.map_or(line, |(_, command)| command).trim();
            if command.contains(' ') && command.len() <= COMMAND && !command.contains("<<") {
                self.note(command, NameKind::Command, true, voice);
            }
        }
        if self.names.len() > MOST_NAMES + MOST_NAMES / 4 {
            self.prune(MOST_NAMES);
        }
    }

    fn note(&mut self, text: &str, kind: NameKind, sure: bool, voice: Voice<'_>) {
        let called = matches!(voice, Voice::Call { .. });
        let now = self.now;
        if let Some(seen) = self.names.get_mut(text) {
            seen.record(now, voice);
        } else if sure || called {
            let (count, calls, last_call) = (0, 0, 0);
            let (user, assistant) = (false, false);
            let mut seen =
                NameStats { kind, count, first: now, last: now, calls, last_call, user, assistant };
            seen.record(now, voice);
            self.names.insert(text.to_owned(), seen);
        }
    }

    /// Sets the position of the message that is read next.
    pub(crate) fn at(&mut self, seq: Seq) {
        self.now = self.now.max(seq);
    }

    /// Adds the names from a line of names in a summary. The name most likely to be needed comes first.
    pub(crate) fn read_listed(&mut self, names: &[&str]) {
        let now = self.now;
        for (text, rank) in names.iter().filter(|text| text.len() <= names::LONGEST).zip(0..) {
            let mut kind = NameKind::Code;
            names::each_name(text, true, |name| kind = if name.text == *text { name.kind } else { kind });
            self.note(text, kind, true, Voice::Assistant);
            // The order of the list is the only information about how important a name is.
            if let Some(seen) = self.names.get_mut(*text) {
                seen.last = seen.last.min(now.saturating_sub(4 * rank));
            }
        }
        self.prune(MOST_NAMES);
    }

    /// Removes the names that occur in `text`, because the text is shown verbatim anyway.
    pub(crate) fn hide(&mut self, voice: Voice<'_>, text: &str) {
        let speech = matches!(voice, Voice::User | Voice::Assistant);
        names::each_name(text, speech, |name| {
            self.names.remove(name.text);
        });
    }

    /// Merges a ledger of later messages into this ledger. If both ledgers contain a name, the entry with the later
    /// occurrence is used.
    pub fn join(&mut self, newer: &Self) {
        for (text, seen) in &newer.names {
            let own = self.names.entry(text.clone()).or_insert(*seen);
            if own.last < seen.last {
                *own =
                    NameStats { first: own.first.min(seen.first), count: own.count.max(seen.count), ..*seen };
            }
        }
        self.now = self.now.max(newer.now);
        self.prune(MOST_NAMES);
    }

    /// Returns all names. The name that is most likely to be needed comes first.
    pub fn ranked(&self) -> impl Iterator<Item = &str> {
        let mut ranked: Vec<(f64, &str)> =
            self.names.iter().map(|(text, seen)| (self.worth(text, seen), text.as_str())).collect();
        ranked.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        ranked.into_iter().map(|(_, text)| text)
    }

    /// Returns whether a tool was called with any of the names.
    pub(crate) fn knows_calls(&self) -> bool {
        self.names.values().any(|seen| seen.calls > 0)
    }

    /// Evicts the names least likely to be needed. Names that only appear in tool output are evicted before names used
    /// in a call or by a person.
    fn prune(&mut self, most: usize) {
        if self.names.len() <= most {
            return;
        }
        let used = |seen: &NameStats| match seen {
            NameStats { calls: 1.., .. } => 2.0,
            NameStats { user: true, .. } | NameStats { assistant: true, .. } => 1.0,
            _ => 0.0,
        };
        let names = std::mem::take(&mut self.names);
        let worth = |(text, seen): &(String, NameStats)| self.worth(text, seen) + used(seen);
        let mut names: Vec<(f64, (String, NameStats))> =
            names.into_iter().map(|name| (worth(&name), name)).collect();
        names.sort_by(|a, b| b.0.total_cmp(&a.0));
        names.truncate(most);
        self.names = names.into_iter().map(|(_, name)| name).collect();
    }

    /// Returns the score by which names are ranked: how likely the name is to be needed again, minus a penalty for its
    /// length.
    fn worth(&self, text: &str, seen: &NameStats) -> f64 {
        let since = |then: Seq| ln(1.0 + self.now.saturating_sub(then) as f64);
        // A name that was first used long ago and is still used is central to the work.
        let mut worth = 0.8 * ln(f64::from(seen.count)) - 0.2 * since(seen.last) + 0.1 * since(seen.first);
        if seen.calls > 0 {
            worth += 1.5 + 0.8 * ln(1.0 + f64::from(seen.calls)) - 0.2 * since(seen.last_call);
        }
        if seen.user {
            worth += 0.8;
        }
        if seen.assistant {
            worth += 0.5;
        }
        let printed = !(seen.user || seen.assistant || seen.calls > 0);
        worth += match seen.kind {
            // Most numbers that occur only in tool output are counters.
            NameKind::Number if printed => -1.5,
            // A line number is useful only together with its line, so it ranks low.
            NameKind::Line if printed => -3.0,
            // The next edit of the file changes its line numbers.
            NameKind::Line => -1.0,
            // Commands are long and are seldom run again unchanged.
            NameKind::Command => -1.8,
            _ => 0.0,
        };
        if printed && text.contains(' ') {
            worth -= 1.0;
        }
        // Approximates the number of tokens by the length. The ranking therefore does not depend on the tokenizer.
        worth - 0.75 * ln(2.0 + text.len() as f64 / 4.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Part, Role};

    fn ranked(ledger: &Ledger) -> Vec<&str> {
        ledger.ranked().collect()
    }

    fn place(ledger: &Ledger, name: &str) -> usize {
        ranked(ledger).iter().position(|text| *text == name).unwrap_or(usize::MAX)
    }

    fn call(path: &str) -> Message {
        Message::new(Role::Assistant, [Part::call("c", "read", format!(r#"{{"path":"{path}"}}"#))])
    }

    #[test]
    fn names_in_calls_rank_before_names_in_output() {
        let mut ledger = Ledger::default();
        ledger.read(&Message::tool("c", "src/aa.rs src/bb.rs src/cc.rs"));
        ledger.read(&call("src/cc.rs"));
        assert_eq!(ranked(&ledger)[0], "src/cc.rs");
    }

    #[test]
    fn frequent_and_recent_names_rank_before_rare_and_old_ones() {
        let mut ledger = Ledger::default();
        ledger.read(&Message::tool("c", "old_name"));
        for _ in 0..30 {
            ledger.read(&Message::user("so it goes"));
        }
        ledger.read(&Message::tool("c", "new_name"));
        assert!(place(&ledger, "new_name") < place(&ledger, "old_name"));
        ledger.read(&Message::tool("c", "other_nm often_nm often_nm often_nm"));
        assert!(place(&ledger, "often_nm") < place(&ledger, "other_nm"));
    }

    #[test]
    fn names_by_the_user_rank_before_names_in_output() {
        let mut ledger = Ledger::default();
        ledger.read(&Message::tool("c", "item_a"));
        ledger.read(&Message::user("item_b"));
        ledger.read(&Message::tool("c", "item_c"));
        assert!(place(&ledger, "item_b") < place(&ledger, "item_c"));
    }

    #[test]
    fn commands_are_remembered_whole_and_scripts_are_not() {
        let run = |command: &str| {
            let arguments = serde_json::json!({ "command": command }).to_string();
            Message::new(Role::Assistant, [Part::call("c", "bash", arguments)])
        };
        let mut ledger = Ledger::default();
        ledger.read(&run("cargo test --workspace"));
        ledger.read(&run("cat > a.txt << 'EOF'\nhello\nEOF"));
        let commands: Vec<_> =
            ledger.ranked().filter(|name| ledger.names[*name].kind == NameKind::Command).collect();
        assert_eq!(commands, ["cargo test --workspace"]);
    }

    #[test]
    fn the_ledger_is_bounded_and_useful_names_stay() {
        let mut ledger = Ledger::default();
        ledger.read(&call("src/needed.rs"));
        for n in 0..400 {
            let names: Vec<String> = (0..20).map(|k| format!("junk_{n}_{k}")).collect();
            ledger.read(&Message::tool("c", names.join(" ")));
        }
        assert!(ledger.names.len() <= MOST_NAMES + MOST_NAMES / 4);
        assert!(ranked(&ledger).contains(&"src/needed.rs"));
    }

    #[test]
    fn reading_on_is_the_same_as_reading_all() {
        let messages: Vec<Message> = (0..50).map(|n| call(&format!("src/file_{}.rs", n % 7))).collect();
        let mut whole = Ledger::default();
        messages.iter().for_each(|message| whole.read(message));
        let mut parts = Ledger::default();
        for message in &messages {
            let stored = serde_json::to_string(&parts).unwrap();
            parts = serde_json::from_str(&stored).unwrap();
            parts.read(message);
        }
        assert_eq!(whole, parts);
    }

    #[test]
    fn a_listing_parses_to_the_names_written() {
        assert_eq!(
            listed("Also mentioned: a.rs \"cargo test x\" E7"),
            Some(vec!["a.rs", "cargo test x", "E7"])
        );
        assert_eq!(listed("Also mentioned:"), Some(vec![]));
        assert_eq!(listed("Also mentioned: \"open"), Some(vec!["\"open"]));
        assert_eq!(listed("See Also mentioned: a"), None);
        assert_eq!((listed_as("a b"), listed_as("ab")), ("\"a b\"".into(), "ab".into()));
        let name = "error: \"rate_on\" has no type";
        assert_eq!(listed(&format!("Also mentioned: a {} b", listed_as(name))), Some(vec!["a", name, "b"]));
    }

    #[test]
    fn the_prefix_of_earlier_releases_is_read_and_replaced() {
        assert_eq!(listed("References: a.rs \"cargo test x\" E7"), Some(vec!["a.rs", "cargo test x", "E7"]));
        assert!(lists_names("References:") && lists_names("Also mentioned:") && !lists_names("Also: a"));
        assert_eq!(listing("References: a", &["b"]), "Also mentioned: a b");
    }

    #[test]
    fn a_long_list_of_names_is_written_in_lines_that_can_be_read() {
        let names: Vec<String> = (0..400).map(|n| format!("src/module_{n}.rs")).collect();
        let lines = listing("", &names);
        assert!(lines.lines().count() > 5 && lines.lines().all(|line| line.len() <= LISTED));
        let read: Vec<&str> = lines.lines().flat_map(|line| listed(line).unwrap()).collect();
        assert_eq!(read, names);
        assert_eq!(
            (listing::<&str>("", &[]), listing("", &["a", "b"])),
            (String::new(), "Also mentioned: a b".to_owned())
        );
        // A name longer than a line gets a line of its own.
        let long = "x".repeat(2_000);
        assert_eq!(listing("Also mentioned: c", &["a", &long, "b"]).lines().count(), 3);
    }

    #[test]
    fn numbers_of_lines_come_after_everything_else() {
        let mut ledger = Ledger::default();
        ledger
            .read(&Message::tool("c", "630:def read(table):\nsrc/a_longer_name/of_a_file/somewhere.rs 4096"));
        assert_eq!(ranked(&ledger).last(), Some(&"630"));
        ledger.read(&Message::new(
            Role::Assistant,
            [Part::call("c", "bash", r#"{"command":"sed -n '630,640p' a.py"}"#)],
        ));
        assert!(place(&ledger, "630,640p") < place(&ledger, "630"));
    }

    #[test]
    fn of_many_similar_names_some_stay() {
        let names: Vec<String> = (0..1_300).map(|n| format!("it_{n:05}")).collect();
        let mut ledger = Ledger::default();
        ledger.read(&Message::tool("c", names.join(" ")));
        assert_eq!(ledger.names.len(), MOST_NAMES);
    }

    #[test]
    fn a_list_read_from_a_summary_is_bounded_too() {
        let long = "x".repeat(100_000);
        let many: Vec<String> = (0..3_000).map(|n| format!("it_{n}")).collect();
        let mut read_listed: Vec<&str> = many.iter().map(String::as_str).collect();
        read_listed.push(&long);
        let mut ledger = Ledger::default();
        ledger.read_listed(&read_listed);
        assert_eq!(ledger.names.len(), MOST_NAMES);
        assert!(!ranked(&ledger).contains(&long.as_str()));
    }

    #[test]
    fn a_newer_ledger_overrides_an_older_one() {
        let mut old = Ledger::default();
        old.read(&call("src/aa.rs"));
        let mut new = old.clone();
        new.read(&call("src/bb.rs"));
        new.read(&call("src/bb.rs"));
        old.join(&new);
        assert_eq!(old, new);
    }

    #[test]
    fn a_word_at_the_start_of_a_sentence_counts_once_it_was_recorded() {
        let mut ledger = Ledger::default();
        ledger.read(&Message::user("Maria came."));
        assert!(ledger.names.is_empty());
        ledger.read(&Message::user("I met Maria. Maria left."));
        ledger.read(&Message::user("Maria will be back."));
        assert_eq!(ledger.ranked().next().map(|name| (name, ledger.names[name].count)), Some(("Maria", 2)));
    }
}
