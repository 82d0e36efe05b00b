//! The demo's conversation: an on-call engineer and her agent debug a failing checkout for two days.
//!
//! `story.txt` contains the dialogue. This module generates long tool output, such as log lines, samples and table
//! rows. The generated output is the same in every run. In `story.txt`, a line that starts with `#` is a comment, and a
//! line that starts with two spaces continues the line above. The other lines are:
//!
//! | line | meaning |
//! |---|---|
//! | `@ 2 08:41` | sets the time, here to 08:41 on the second day. Each following message is twenty seconds later |
//! | `Mara: …`, `Mara!: …` | a message from a person. The `!` pins the message |
//! | `Agent: …` | a message from the agent |
//! | `System: …` | a system message |
//! | `> tool name=value … => …` | a tool call of the agent and its result. `¶` separates the result's lines |
//! | `+ tool …` | one more call in the same agent message |
//!
//! Inside a result, a text such as `«log 12 cart 11:20»` is replaced by generated lines: here 12 lines of the kind
//! `log`.

use std::fmt::Write;

use epitome::rules::message::{Message, Part, Role, Timestamp};
use serde_json::{Map, Value};

const PLAY: &str = include_str!("story.txt");

/// 2 March 2026, midnight UTC.
const FIRST_DAY: Timestamp = Timestamp(1_772_409_600_000);

/// Facts from early in the conversation. The last message requests a report that needs these facts.
pub(super) const FACTS: [Fact; 8] = [
    Fact { what: "the rule that must never be lost", words: &["never restart db-2"] },
    Fact { what: "the first order that failed", words: &["ord_58213"] },
    Fact { what: "who switched the flag on, and when", words: &["Jonas", "16:40"] },
    Fact { what: "the duty after a double charge", words: &["within 24 hours", "Priya"] },
    Fact { what: "why it was not the payment provider", words: &["payment is null"] },
    Fact { what: "what was wrong with eu-w-7", words: &["eu-w-7", "1.9 s"] },
    Fact { what: "the line that refused the carts", words: &["merge.ts:118"] },
    Fact { what: "the refund", words: &["re_9K2wXa"] },
];

/// A fact that contexts should retain.
pub(super) struct Fact {
    /// The description in the demo's table.
    pub(super) what: &'static str,
    /// A text contains the fact if the text contains all of these strings.
    pub(super) words: &'static [&'static str],
}

impl Fact {
    /// Returns whether a text contains the fact.
    pub(super) fn is_in(&self, text: &str) -> bool {
        self.words.iter().all(|word| text.contains(word))
    }

    /// Returns the search query for the fact.
    pub(super) fn query(&self) -> String {
        let quoted = self.words.iter().map(|word| match word.contains(' ') {
            true => format!("\"{word}\""),
            false => (*word).to_owned(),
        });
        quoted.collect::<Vec<_>>().join(" ")
    }
}

/// Returns the whole conversation in order.
pub(super) fn messages() -> Vec<Message> {
    let mut stage = Stage { at: FIRST_DAY, ..Stage::default() };
    for line in lines() {
        stage.play(&line);
    }
    stage.answer();
    stage.messages
}

/// Returns the lines of the story, with continuation lines joined.
fn lines() -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in PLAY.lines().filter(|line| !line.starts_with('#')) {
        match (line.strip_prefix("  "), lines.last_mut()) {
            (Some(more), Some(last)) => last.extend([" ", more]),
            _ => lines.push(line.to_owned()),
        }
    }
    lines
}

/// State while the story is parsed.
#[derive(Default)]
struct Stage {
    messages: Vec<Message>,
    at: Timestamp,
    calls: u64,
    /// Call ids and results of the last message's calls, in order.
    results: Vec<(String, String)>,
}

impl Stage {
    fn play(&mut self, line: &str) {
        if let Some(call) = line.strip_prefix("+ ") {
            return self.call(call);
        }
        self.answer();
        if let Some(time) = line.strip_prefix("@ ") {
            self.at = timestamp(time).unwrap_or(self.at);
        } else if let Some(call) = line.strip_prefix("> ") {
            let speaks = |message: &Message| message.role == Role::Assistant && message.calls().count() == 0;
            if !self.messages.last().is_some_and(speaks) {
                self.say(Message::new(Role::Assistant, []));
            }
            self.call(call);
        } else if let Some((who, text)) = line.split_once(": ") {
            let (name, pinned) = who.strip_suffix('!').map_or((who, false), |name| (name, true));
            let message = match name {
                "System" => Message::system(text),
                "Agent" => Message::assistant(text),
                _ => Message { author: Some(name.into()), pinned, ..Message::user(text) },
            };
            self.say(message);
        }
    }

    /// Adds a call to the agent's last message. The results are added later, after all calls of this message.
    fn call(&mut self, line: &str) {
        let (call, result) = line.split_once(" => ").unwrap_or((line, ""));
        let (tool, arguments) = call.split_once(' ').unwrap_or((call, ""));
        self.calls += 1;
        let id = format!("call_{:03}", self.calls);
        if let Some(message) = self.messages.last_mut() {
            message.parts.push(Part::call(id.as_str(), tool, object(arguments)));
        }
        let mut bulk = Bulk::new(self.calls);
        let lines = result.split('¶').map(|line| line.strip_prefix(' ').unwrap_or(line));
        let text: Vec<String> = lines.map(|line| bulk.expand(line)).collect();
        self.results.push((id, text.join("\n")));
    }

    fn answer(&mut self) {
        for (id, text) in std::mem::take(&mut self.results) {
            self.say(Message::tool(id, text));
        }
    }

    fn say(&mut self, message: Message) {
        self.at = self.at.plus_seconds(20);
        self.messages.push(Message { at: self.at, ..message });
    }
}

/// Parses a day and a time: `2 08:41` is 08:41 on the second day.
fn timestamp(text: &str) -> Option<Timestamp> {
    let (day, time) = text.split_once(' ')?;
    let (hour, minute) = time.split_once(':')?;
    let days = day.parse::<u64>().ok()?.saturating_sub(1);
    let minutes = hour.parse::<u64>().ok()? * 60 + minute.parse::<u64>().ok()?;
    Some(FIRST_DAY.plus_seconds(days * 86_400 + minutes * 60))
}

/// Converts `name=value name="a value"` to a JSON object.
fn object(arguments: &str) -> String {
    let mut object = Map::new();
    let mut rest = arguments;
    while let Some((name, after)) = rest.split_once('=') {
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(' ').unwrap_or((after, "")),
        };
        object.insert(name.trim().to_owned(), Value::from(value));
        rest = after;
    }
    Value::Object(object).to_string()
}

/// Generates long tool output from the number of the call. The same number always gives the same output.
struct Bulk {
    state: u64,
    /// Offset of the first sample of a time series, in seconds.
    from: u64,
}

impl Bulk {
    fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, from: seed * 47 }
    }

    /// Returns a pseudo-random number below `most` (xorshift).
    fn below(&mut self, most: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % most.max(1)
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        let at = self.below(of.len() as u64);
        usize::try_from(at).ok().and_then(|at| of.get(at)).copied().unwrap_or_default()
    }

    fn hex(&mut self, digits: usize) -> String {
        format!("{:012x}", self.below(1 << 48)).chars().take(digits).collect()
    }

    /// Replaces `«…»` in a line of a result with generated lines.
    fn expand(&mut self, line: &str) -> String {
        let Some((before, rest)) = line.split_once('«') else { return line.to_owned() };
        let (order, after) = rest.split_once('»').unwrap_or((rest, ""));
        let mut words = order.splitn(3, ' ');
        let kind = words.next().unwrap_or_default();
        let count: u64 = words.next().and_then(|count| count.parse().ok()).unwrap_or(0);
        let about = words.next().unwrap_or_default();
        let lines: Vec<String> = (0..count).map(|n| self.line(kind, n, about)).collect();
        format!("{before}{}{after}", lines.join("\n"))
    }

    fn line(&mut self, kind: &str, n: u64, about: &str) -> String {
        let (one, two) = about.split_once(' ').unwrap_or((about, ""));
        let (node, millis) = (self.below(12) + 1, self.below(1_000));
        match kind {
            "log" => {
                let clock = clock(two, n * 7 + self.below(7));
                let what = self.pick(&["items", "address", "shipping", "totals", "confirm"]);
                let (pod, cart, took) = (self.hex(5), self.hex(6), self.below(220) + 8);
                let request = self.hex(8);
                format!(
                    "{clock}.{millis:03}Z {one} pod={one}-{pod} INFO POST /v1/carts/c_{cart}/{what} ok {took}ms \
                     req={request}"
                )
            }
            "series" => {
                let (value, unit) = two.split_once(' ').unwrap_or((two, ""));
                let around: f64 = value.parse().unwrap_or(0.0);
                let off = i32::try_from(self.below(2_000)).unwrap_or(0) - 1_000;
                let sample = around * (1.0 + f64::from(off) / 20_000.0);
                let name = if n == 0 { format!("{one} in {unit}, every 10 min\n") } else { String::new() };
                format!("{name}[{}, {sample:.4}]", 1_772_438_400 + self.from + n * 600)
            }
            "rows" => self.row(one, n, millis, node),
            "files" => {
                let stem =
                    self.pick(&["address", "shipping", "totals", "discount", "guest", "lines", "session"]);
                format!(
                    "{one}/{stem}-{}.ts:{}:  const cart = await load(id)",
                    self.hex(3),
                    self.below(300) + 1
                )
            }
            "tests" => {
                let what = self.pick(&["merges", "keeps", "refuses", "saves", "restores", "prices", "locks"]);
                let whom =
                    self.pick(&["two devices", "an empty cart", "a guest", "many lines", "a late save"]);
                format!("✓ {one}: {what} {whom}, case {} ({} ms)", n + 1, self.below(40) + 1)
            }
            "code" => self.code(n),
            "nodes" => format!("eu-w-{} {about}, healthy after {} s", n + 1, self.below(20) + 9),
            "retries" => {
                let (order, trace) = (58_300 + n * 3 + self.below(3), self.hex(6));
                format!(
                    "{}.{millis:03}Z WARN retry STALE_CART order=ord_{order} trace=tr_{trace}",
                    clock(one, n * 47)
                )
            }
            "trace" => {
                let step = self.pick(&[
                    "cart.load",
                    "cart.lock",
                    "cart.merge",
                    "stock.reserve",
                    "db.query",
                    "redis.get",
                ]);
                format!("{one} +{:>4} ms {step} {} ms", n * 23 + self.below(20), self.below(18) + 1)
            }
            "kernel" => {
                let what = self.pick(&[
                    "nvme0: I/O 12 QID 3 timeout",
                    "TCP: request_sock_TCP",
                    "perf: interrupt took too long",
                ]);
                format!("[{}.{millis:06}] {one} {what} ({})", 1_000 + n * 911, self.hex(4))
            }
            "clocks" => {
                let skew = if n == 6 { one } else { "0.0" };
                format!("eu-w-{}: {skew} s against this host (± 0.00{} s)", n + 1, self.below(3) + 1)
            }
            _ => String::new(),
        }
    }

    fn row(&mut self, table: &str, n: u64, millis: u64, node: u64) -> String {
        let (id, total, version) = (self.hex(6), 900 + self.below(18_000), self.below(40) + 2);
        let (hour, minute, second) = (self.below(24), self.below(60), self.below(60));
        match table {
            "orders" => format!("ord_{} | null", 57_900 + n * 21 + self.below(21)),
            "minutes" => format!("2026-03-02 {:02}:{minute:02} | {}", 6 + n / 6, self.below(5) + 1),
            _ => format!(
                "c_{id} | {version} | {total} | {hour:02}:{minute:02}:{second:02}.{millis:03} | eu-w-{node}"
            ),
        }
    }

    fn code(&mut self, n: u64) -> String {
        let nouns =
            ["cart", "line", "price", "guest", "stock", "order", "address", "total", "voucher", "tax"];
        let (one, two, three) = (self.pick(&nouns), self.pick(&nouns), self.pick(&nouns));
        let verb = self.pick(&["load", "check", "merge", "count", "send", "keep", "find", "sort"]);
        let (from, at) = (self.below(400) + 40, self.below(3) * 2);
        let line = match self.below(4) {
            0 => format!("if ({one} === {two}) return {verb}({three})"),
            1 => format!("for (const {one} of {two}) {verb}({one}, {three})"),
            2 => format!("// The {one} is there before the {two}; {verb} the {three} last."),
            _ => format!("const {one} = await {verb}({two}, {three})"),
        };
        format!("{:>4} {}{line}", from + n, " ".repeat(usize::try_from(at).unwrap_or(0)))
    }
}

/// Formats a timestamp of a log line. The time is `seconds` after `from`, which is a time `hh:mm` on the first day.
fn clock(from: &str, seconds: u64) -> String {
    let mut text = String::new();
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    let (hour, minute) = from.split_once(':').unwrap_or(("0", "0"));
    let start = hour.parse::<u64>().unwrap_or(0) * 60 + minute.parse::<u64>().unwrap_or(0) + minutes;
    // Writing to a string cannot fail.
    let _ = write!(text, "2026-03-02T{:02}:{:02}:{seconds:02}", start / 60 % 24, start % 60);
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use epitome::rules::message::CallId;
    use epitome::rules::tokens::{Counter, Encoding};
    use epitome::search::text_of;

    use super::*;

    #[test]
    fn every_call_has_its_result_before_the_next_message() {
        let mut open: HashSet<CallId> = HashSet::new();
        for message in messages() {
            message.check(&epitome::rules::message::Limits::default()).unwrap();
            for result in message.results() {
                assert!(open.remove(&result.call), "{} answers nothing", result.call);
            }
            assert!(message.role == Role::Tool || open.is_empty(), "{open:?} before {}", text_of(&message));
            for call in message.calls() {
                assert!(
                    serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok(),
                    "{}",
                    call.arguments
                );
                assert!(open.insert(call.id.clone()), "{} twice", call.id);
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn it_is_as_long_as_a_long_conversation_and_the_same_every_time() {
        let messages = messages();
        let counter = Counter::new(Encoding::O200k);
        let tokens: u64 = messages.iter().map(|message| counter.message(message)).sum();
        assert!((300..=450).contains(&messages.len()), "{}", messages.len());
        assert!((40_000..=80_000).contains(&tokens), "{tokens}");
        assert!(messages.iter().any(|message| message.calls().count() >= 3), "no calls at the same time");
        assert!(messages.is_sorted_by_key(|message| message.at));
        assert_eq!(messages, super::messages());
    }

    #[test]
    fn one_rule_is_pinned_and_the_last_message_asks() {
        let messages = messages();
        let pinned: Vec<String> = messages.iter().filter(|message| message.pinned).map(text_of).collect();
        assert_eq!(pinned.len(), 1);
        assert!(pinned[0].contains("never restart db-2"), "{pinned:?}");
        assert_eq!(messages.last().map(|message| message.role), Some(Role::User));
    }

    #[test]
    fn the_requested_facts_are_old_and_not_repeated() {
        let texts: Vec<String> = messages().iter().map(text_of).collect();
        let recent = texts.len() - 12;
        for fact in &FACTS {
            let said = texts.iter().position(|text| fact.is_in(text));
            assert!(said.is_some_and(|at| at < texts.len() * 2 / 3), "{}: {said:?}", fact.what);
            assert!(!texts[recent..].iter().any(|text| fact.is_in(text)), "{} was said lately", fact.what);
        }
    }

    #[test]
    fn no_notation_is_left_in_the_messages() {
        for message in messages() {
            let text = text_of(&message);
            assert!(!text.is_empty() && !text.contains(['«', '»', '¶']), "{text}");
        }
        assert!(PLAY.lines().all(|line| line.chars().count() <= 110));
    }
}
