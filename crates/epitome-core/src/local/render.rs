//! Renders extracts and names as a text of an exact maximum size.
//!
//! Lines are in order of time, and neighbouring pieces share a line: `[#12-19] Ann: … | Bob: …`. The text ends with the
//! names most likely to be needed again that no line contains. The size of the text is first estimated from the sizes
//! of its pieces, so that rendering is cheap. The whole text is counted last, so that the limit is never exceeded.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use super::{Extract, Extracts, Origin, lines};
use crate::ledger::{ALSO_MENTIONED, listed_as, listing};
use crate::message::Tokens;
use crate::names::each_name;
use crate::num::largest;
use crate::tokens::Counter;
use crate::words::{hash, is_alphanumeric};

/// Maximum distance in the log between two messages whose pieces are on the same line.
const NEAR: u64 = 120;

/// Minimum number of characters of a cut piece. A shorter piece contains nothing useful.
const SHORTEST: usize = 12;

/// Maximum number of names that are tried after the first one that does not fit.
const MISSED: u32 = 24;

/// Every day is shown if the size limit has at least this number of tokens per distinct day. Otherwise a day is shown
/// only with a text that mentions a time.
const DAYS: Tokens = 96;

/// Number of words after which a line ends.
const LINE: u32 = 120;

/// Renders the pieces in at most `room` tokens, the best first: `order` contains their indices. Up to `share` tokens
/// are used for names.
pub(super) fn write(
    all: &Extracts,
    order: &[usize],
    room: Tokens,
    share: Tokens,
    counter: &Counter,
) -> String {
    if room == 0 {
        return String::new();
    }
    let names: Vec<&str> = all.ledger.ranked().collect();
    let mut name_sizes = NameSizes { names: &names, counter, counted: vec![None; names.len()] };
    let for_names = share.min(name_sizes.sum(share));
    let renderer = Renderer::new(all, order, room, counter);
    let for_lines = room.saturating_sub(for_names);
    let mut taken = renderer.fill(order, for_lines);
    let mut lines = renderer.lines(&taken);
    let mut spent = counter.text(&lines);
    // The sum of the pieces' sizes is only an estimate of the text's size. If the text is smaller, more pieces fit.
    let left = for_lines.saturating_sub(spent);
    if left > for_lines / 8 {
        let more = renderer.fill(order, for_lines.saturating_add(left));
        let longer = renderer.lines(&more);
        let size = counter.text(&longer);
        if size <= for_lines {
            (taken, lines, spent) = (more, longer, size);
        }
    }
    // If the text is larger than estimated, the lowest-ranked pieces are removed.
    while spent > room {
        let mut over = spent - room;
        while let Some(last) = taken.pop_if(|_| over > 0) {
            over = over.saturating_sub(renderer.size(last));
        }
        lines = renderer.lines(&taken);
        spent = counter.text(&lines);
    }
    if lines.is_empty() {
        lines = renderer.beginning(order, for_lines);
        spent = counter.text(&lines);
    }
    renderer.with_names(&lines, spent, name_sizes, room)
}

/// Token counts of the names as written in a list. Counting is expensive, so each name is counted once.
struct NameSizes<'a> {
    names: &'a [&'a str],
    counter: &'a Counter,
    counted: Vec<Option<Tokens>>,
}

impl NameSizes<'_> {
    /// Returns the size of all names in tokens. Stops counting when the sum reaches `room`.
    fn sum(&mut self, room: Tokens) -> Tokens {
        let mut sum: Tokens = 4;
        for at in 0..self.names.len() {
            if sum >= room {
                break;
            }
            sum = sum.saturating_add(self.of(at));
        }
        sum
    }

    fn of(&mut self, at: usize) -> Tokens {
        let (Some(name), Some(counted)) = (self.names.get(at), self.counted.get_mut(at)) else { return 0 };
        *counted.get_or_insert_with(|| self.counter.text(&listed_as(name)))
    }
}

/// The pieces that may be used, with their sizes.
struct Renderer<'a> {
    all: &'a Extracts,
    counter: &'a Counter,
    /// For each piece, by its index: the tokens of its text and the tokens of its speaker's name.
    sizes: Vec<(Tokens, Tokens)>,
    /// Tokens of the label that states which messages a line covers.
    label: Tokens,
    /// Whether days are shown at all. False if all pieces are of the same day and no message contains its date.
    days: bool,
    /// Whether every day is shown, because the size limit is large for the number of days: see [`DAYS`].
    every: bool,
}

impl<'a> Renderer<'a> {
    fn new(all: &'a Extracts, order: &[usize], room: Tokens, counter: &'a Counter) -> Self {
        let label = counter.text("[#1200-1299] ");
        let mut sizes = vec![(0, 0); all.extracts.len()];
        let mut speakers: HashMap<&str, Tokens> = HashMap::new();
        for at in order {
            let (Some(extract), Some(size)) = (all.extracts.get(*at), sizes.get_mut(*at)) else { continue };
            let speaker = speakers.entry(&extract.speaker).or_insert_with_key(|speaker| match *speaker {
                "" => 0,
                speaker => counter.text(&format!(" | {speaker}:")),
            });
            *size = (extract.tokens(counter), *speaker);
        }
        let first = all.extracts.first().map(|extract| &extract.date);
        let days = all.has_dates || all.extracts.iter().any(|extract| Some(&extract.date) != first);
        let distinct: HashSet<&str> =
            order.iter().filter_map(|at| all.extracts.get(*at)?.date.as_deref()).collect();
        let every = days && distinct.len() as Tokens <= room / DAYS;
        Self { all, counter, sizes, label, days, every }
    }

    fn size(&self, at: usize) -> Tokens {
        self.sizes.get(at).map_or(0, |(size, _)| *size)
    }

    fn get(&self, at: usize) -> Option<&'a Extract> {
        self.all.extracts.get(at)
    }

    /// Returns the longest prefix of `order` that fits `room`, and those of the next eight pieces that still fit.
    fn fill(&self, order: &[usize], room: Tokens) -> Vec<usize> {
        let fits = |taken: &[usize]| self.cost(taken) <= room;
        let mut low = largest(order.len(), |many| order.get(..many).is_some_and(fits));
        // In a small budget the estimated label size matters, so the best piece is counted exactly.
        if let (0, Some(first)) = (low, order.get(..1))
            && self.counter.text(&self.lines(first)) <= room
        {
            low = 1;
        }
        let mut taken = order.get(..low).unwrap_or_default().to_vec();
        for at in order.iter().skip(low).take(8) {
            taken.push(*at);
            if !fits(&taken) {
                taken.pop();
            }
        }
        taken
    }

    /// Returns the estimated size of a text with these pieces: the sum of the sizes of its pieces, labels and days.
    fn cost(&self, taken: &[usize]) -> Tokens {
        let mut sum: Tokens = 0;
        self.walk(taken, |join, at, day| {
            let Some(extract) = self.get(at) else { return };
            let speaker = self.sizes.get(at).map_or(0, |(_, speaker)| *speaker);
            let date = day.map_or(0, |day| day.len() as Tokens / 3 + 2);
            let joint = match join {
                Join::Line if extract.origin == Origin::Summary => speaker + 1,
                Join::Line => self.label + speaker,
                Join::Speaker => speaker,
                Join::Same => 1,
            } + date;
            sum = sum.saturating_add(self.size(at)).saturating_add(joint);
        });
        sum
    }

    /// Calls `visit` for each piece in order of time. The arguments are how the piece is joined to the previous piece,
    /// its index, and its day if the day must be shown. A word such as "yesterday" has no meaning without the day.
    fn walk(&self, taken: &[usize], mut visit: impl FnMut(Join, usize, Option<&'a str>)) {
        let mut sorted = taken.to_vec();
        sorted.sort_unstable();
        let mut before: Option<&Extract> = None;
        // The day last shown in the line.
        let mut shown: Option<&str> = None;
        let mut words = 0;
        for at in sorted {
            let Some(extract) = self.get(at) else { continue };
            let own = extract.features().words;
            let join = match before {
                Some(last) if share_line(last, extract) && words < LINE => {
                    if last.speaker == extract.speaker { Join::Same } else { Join::Speaker }
                }
                _ => Join::Line,
            };
            words = if join == Join::Line { own } else { words + own };
            shown = shown.filter(|_| join != Join::Line);
            let day = extract.date.as_deref().filter(|day| {
                self.days && (self.every || extract.features().mentions_time()) && shown != Some(*day)
            });
            shown = day.or(shown);
            visit(join, at, day);
            before = Some(extract);
        }
    }

    fn lines(&self, taken: &[usize]) -> String {
        // A line's label contains its last message, so the lines are collected before they are written.
        let mut lines: Vec<Vec<(Join, &Extract, Option<&str>)>> = Vec::new();
        self.walk(taken, |join, at, day| {
            let Some(extract) = self.get(at) else { return };
            match lines.last_mut() {
                Some(line) if join != Join::Line => line.push((join, extract, day)),
                _ => lines.push(vec![(join, extract, day)]),
            }
        });
        let mut out = String::new();
        for line in lines {
            let (Some((_, first, _)), Some((_, last, _))) = (line.first(), line.last()) else { continue };
            if !out.is_empty() {
                out.push('\n');
            }
            label(&mut out, first, last);
            let mut said = String::new();
            for (join, extract, day) in &line {
                match join {
                    Join::Same if extract.origin == Origin::Output || extract.origin == Origin::Call => {
                        said.push_str("; ");
                    }
                    // Separates a text without final punctuation from the next text.
                    Join::Same => {
                        said.push_str(if said.ends_with(char::is_alphanumeric) { "; " } else { " " });
                    }
                    Join::Line | Join::Speaker => {
                        out.push_str(&lines::escaped(&said));
                        said.clear();
                        if *join == Join::Speaker {
                            out.push_str(" | ");
                        }
                        if !extract.speaker.is_empty() {
                            out.push_str(&extract.speaker);
                            out.push_str(": ");
                        }
                    }
                }
                said.push_str(&extract.text);
                if let Some(day) = day {
                    let _ = write!(said, " ({day})");
                }
            }
            if first.origin == Origin::Summary && first.speaker.is_empty() && lines::is_own_format(&said) {
                // The text was written elsewhere and must not be parsed as a line of this format.
                out.push_str("- ");
            }
            out.push_str(&lines::escaped(&said));
        }
        out
    }

    /// Returns the beginning of the best piece, if no piece fits whole.
    fn beginning(&self, order: &[usize], room: Tokens) -> String {
        let Some(first) = order.first().and_then(|at| self.get(*at)) else { return String::new() };
        let is_summary = first.origin == Origin::Summary;
        let before = if is_summary || first.speaker.is_empty() {
            String::new()
        } else {
            format!("{}: ", first.speaker)
        };
        let cut = |chars: usize| {
            let end = first.text.char_indices().nth(chars).map_or(first.text.len(), |(at, _)| at);
            format!("{before}{}…", first.text.get(..end).unwrap_or_default().trim_end())
        };
        let low = largest(first.text.chars().count(), |chars| self.counter.text(&cut(chars)) <= room);
        if low < SHORTEST { String::new() } else { cut(low) }
    }

    /// Appends the names that the lines do not contain, as many as fit. `spent` is the size of the lines.
    fn with_names(&self, lines: &str, spent: Tokens, sizes: NameSizes<'_>, room: Tokens) -> String {
        let heading = self.counter.text(ALSO_MENTIONED).saturating_add(1);
        let names = missing_names(lines, room.saturating_sub(spent).saturating_sub(heading), sizes);
        let listed: Vec<_> = names.into_iter().map(listed_as).collect();
        let with = |many: usize| match (lines, listed.get(..many).unwrap_or_default()) {
            (lines, []) => lines.to_owned(),
            ("", names) => listing("", names),
            (lines, names) => format!("{lines}\n{}", listing("", names)),
        };
        let all = with(listed.len());
        let mut over = self.counter.text(&all).saturating_sub(room);
        if over == 0 {
            return all;
        }
        // A name takes slightly more tokens in the list than alone. Counting the whole text is expensive. So names are
        // first removed according to their own sizes, and only the result is counted.
        let mut many = listed.len();
        while let Some(last) = many.checked_sub(1).and_then(|last| listed.get(last)).filter(|_| over > 0) {
            over = over.saturating_sub(self.counter.text(&format!(" {last}")));
            many -= 1;
        }
        let fits = |many: usize| Some(with(many)).filter(|text| self.counter.text(text) <= room);
        let mut text = fits(many);
        while text.is_none() && many > 0 {
            many -= 1;
            text = fits(many);
        }
        while text.is_some() && many + 1 < listed.len() {
            let Some(more) = fits(many + 1) else { break };
            (text, many) = (Some(more), many + 1);
        }
        text.unwrap_or_else(|| lines.to_owned())
    }
}

/// Returns the names that the lines do not contain, the most likely needed first, as many as fit `left` tokens.
fn missing_names<'a>(lines: &str, mut left: Tokens, mut sizes: NameSizes<'a>) -> Vec<&'a str> {
    let mut contained: HashSet<u64> = HashSet::new();
    each_name(lines, true, |name| {
        parts(name.text, |part| {
            contained.insert(hash(part.as_bytes()));
        });
    });
    // Error messages and commands are long; a few of them are enough.
    let mut for_long = left / 5;
    let mut chosen: Vec<(&str, Tokens)> = Vec::new();
    let mut places: HashMap<u64, usize> = HashMap::new();
    let mut missed = 0;
    for (at, name) in sizes.names.iter().copied().enumerate() {
        let long = name.contains(char::is_whitespace);
        if contained.contains(&hash(name.as_bytes())) || (long && lines.contains(name)) {
            continue;
        }
        let cost = sizes.of(at);
        if cost > left || (long && cost > for_long) {
            missed += u32::from(cost > left);
            // Stops early: the following names are hardly shorter and less likely to be needed.
            if left < 2 || missed > MISSED {
                break;
            }
            continue;
        }
        left -= cost;
        for_long -= if long { cost } else { 0 };
        // A longer name replaces the shorter names that it contains and takes the first of their positions. The
        // position matters, because the last names in the list may still be removed.
        let mut place = chosen.len();
        parts(name, |part| {
            let part_hash = hash(part.as_bytes());
            contained.insert(part_hash);
            if let Some((at, (shorter, cost))) =
                places.remove(&part_hash).and_then(|at| Some((at, chosen.get_mut(at)?)))
            {
                left = left.saturating_add(*cost);
                *shorter = "";
                place = place.min(at);
            }
        });
        places.insert(hash(name.as_bytes()), place);
        match chosen.get_mut(place) {
            Some(shorter) => *shorter = (name, cost),
            None => chosen.push((name, cost)),
        }
    }
    chosen.into_iter().map(|(name, _)| name).filter(|name| !name.is_empty()).collect()
}

/// How a piece is joined to the piece before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Join {
    /// Starts a new line.
    Line,
    /// Continues the line with another speaker.
    Speaker,
    /// Continues the line with the same speaker.
    Same,
}

/// Returns whether two neighbouring pieces are put on the same line.
fn share_line(last: &Extract, next: &Extract) -> bool {
    if last.origin == Origin::Summary || next.origin == Origin::Summary {
        return last.origin == next.origin && last.line == next.line && last.speaker == next.speaker;
    }
    next.seq.saturating_sub(last.seq) <= NEAR
}

/// Writes a label such as `[#12-19] `, or nothing if it is unknown which messages the line covers.
fn label(out: &mut String, first: &Extract, last: &Extract) {
    if first.origin == Origin::Summary {
        return;
    }
    let _ = write!(out, "[#{}", first.seq);
    if last.seq != first.seq {
        let _ = write!(out, "-{}", last.seq);
    }
    out.push_str("] ");
}

/// Calls `found` with a name and with every part of it between word boundaries: `b/c.rs` and `c.rs` in `a/b/c.rs`.
fn parts<'a>(name: &'a str, mut found: impl FnMut(&'a str)) {
    let inside = |c: char| is_alphanumeric(c) || c == '_';
    // Only the last few parts matter, and a plain word has no parts.
    if name.chars().all(inside) {
        return found(name);
    }
    let mut starts: Vec<usize> = Vec::with_capacity(8);
    let mut ends: Vec<usize> = Vec::with_capacity(8);
    let mut before = false;
    for (at, c) in name.char_indices() {
        let now = inside(c);
        if now && !before {
            starts.push(at);
        }
        if !now && before {
            ends.push(at);
        }
        before = now;
    }
    if before {
        ends.push(name.len());
    }
    found(name);
    for start in starts.iter().rev().take(8) {
        for end in ends.iter().rev().take(8).filter(|end| *end > start) {
            if let Some(part) = name.get(*start..*end) {
                found(part);
            }
        }
    }
}

impl Extracts {
    /// Returns the maximum number of tokens for names in a rendered text. In a session with tools it is large, because
    /// calls need the names again. In a conversation among people it is small, because their statements matter more.
    /// With a larger `room` the share falls, because a long list of names adds little.
    pub(super) fn share_of_names(&self, room: Tokens) -> Tokens {
        // Even the smallest text contains a few sentences about the topic of the session.
        let most = 900u64.saturating_add(room / 4).min(room.saturating_sub(64.min(room / 2)));
        self.share(room, 820).min(most)
    }

    /// Returns the maximum number of tokens for names in a text that is stored and read by people. It is never more
    /// than about half of `room`.
    pub(super) fn balanced_share(&self, room: Tokens) -> Tokens {
        self.share(room, 470).min(150u64.saturating_add(room / 10 * 3))
    }

    /// Returns 3 % of `room`, plus up to `for_tools` thousandths of `room`. The more the session works with tools, the
    /// more of these thousandths are added: see [`Self::tool_share`].
    fn share(&self, room: Tokens, for_tools: u64) -> Tokens {
        let share = 30 + for_tools * self.tool_share() / 1_000;
        room / 1_000 * share + room % 1_000 * share / 1_000
    }

    /// Returns how much of the session is work with tools, in thousandths. The result is 1,000 if at least 60 % of the
    /// messages are tool calls or results. If only a summary of the session was read, the result is estimated from the
    /// names that the summary lists.
    pub(super) fn tool_share(&self) -> u64 {
        self.tools
            .saturating_mul(1_000)
            .checked_div(self.messages.saturating_mul(600) / 1_000)
            // Inverts the formula of `balanced_share`.
            .unwrap_or_else(|| self.listed.unwrap_or(0).saturating_sub(30).saturating_mul(1_000) / 470)
            .min(1_000)
    }
}
