//! Measures condensers of other projects and Epitome's on the same lists in the same run.
//!
//! The other condensers are written in another language, so each runs in its own process: `PROGRAM NAME FOLDER`. The folder
//! contains the plan and the messages. `bench/peers/README.md` describes the program's output, and that folder contains a
//! program. If a peer fails, the others are still measured.

use std::path::{Path, PathBuf};
use std::time::Duration;

use epitome::dialect::Dialect;
use epitome::rules::message::Message;
use epitome::rules::tokens::{Counter, Encoding};
use epitome::rules::valid::complaints;
use epitome_terminal::show::{Table, grouped};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::server::Trouble;
use crate::bench::engine::{Folder, Progress, Spread, Tell, worked};

mod ours;
mod process;

/// The peers, by their argument for the program and their display name.
const PEERS: [(&str, &str); 3] =
    [("langchain", "LangChain"), ("openhands", "OpenHands"), ("trpc-agent", "tRPC-Agent")];

/// Messages per turn: a question of the user, a tool call, its result, and the reply.
const TURN: u64 = 4;

/// The text that the fake model returns immediately as every summary.
const SUMMARY: &str = "The user asks after orders that have not arrived. The agent looked each of them up: all have left \
    the depot and are with their carriers, and the customers were told so. Nothing was promised beyond that, and no order \
    has been cancelled. Open are the newest orders, which the user asked about last; whoever goes on should look them up \
    before answering, name the carrier, and tell the customer the day.";

/// The plan, and where it runs.
pub(super) struct Sizes {
    pub(super) dir: PathBuf,
    pub(super) plan: Plan,
    /// Timeout for one peer.
    pub(super) patience: Duration,
}

/// The plan, in the format that the peers read.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    /// Lengths of the lists for turns on which nothing is due, in messages.
    lengths: Vec<u64>,
    /// Maximum number of turns per list.
    turns: u64,
    /// A list ends after this many seconds, but not before `fewest` turns.
    seconds: u64,
    fewest: u64,
    /// Length of the session that is played from its beginning, in messages.
    session: u64,
    /// Number of times the session is played, unless this takes longer than some seconds. The median run counts.
    sessions: u64,
    /// The session is condensed at this many tokens.
    trigger: u64,
    /// Number of messages that stay verbatim, if the condenser has such a setting.
    keep: u64,
    /// The response of the fake model.
    summary: &'static str,
}

impl Plan {
    /// Creates a plan with lists of at most `longest` messages and a session of `session` messages.
    pub(super) fn new(longest: u64, session: u64, turns: u64) -> Self {
        let lengths = [100, 1_000, 10_000].into_iter().filter(|length| *length <= longest).collect();
        Self {
            lengths,
            turns,
            seconds: 5,
            fewest: 5,
            session,
            sessions: 5,
            trigger: 4_000,
            keep: 20,
            summary: SUMMARY,
        }
    }

    /// Returns the length of the history: the longest list and the turns after it. The first of these turns only warms up.
    fn messages(&self) -> u64 {
        let longest = self.lengths.iter().max().copied().unwrap_or(0);
        (longest + (self.turns + 1) * TURN).max(self.session)
    }
}

/// A peer's output.
#[derive(Debug, Deserialize)]
struct Answer {
    version: String,
    /// Peak resident memory, in bytes.
    memory: Option<u64>,
    turns: Vec<Looked>,
    session: Session,
}

/// Durations of turns on which nothing was due, in milliseconds.
#[derive(Debug, Deserialize)]
struct Looked {
    messages: u64,
    millis: Vec<f64>,
}

/// Durations of the session's turns, in milliseconds.
#[derive(Debug, Deserialize)]
struct Session {
    millis: Vec<f64>,
    condensed: u64,
}

/// The results of one condenser.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    version: String,
    memory: Option<u64>,
    /// Turns on which nothing was due, by the length of the list.
    turns: Vec<(u64, Spread)>,
    /// Turns of the session.
    session: Spread,
    /// The whole session, in milliseconds.
    whole: f64,
    condensed: u64,
    /// Number of lists that the session would have sent to the model.
    lists: u64,
    /// Number of these lists that a strict provider would refuse.
    refused: u64,
    /// Why the first of them would be refused.
    complaint: Option<String>,
}

/// Counts the lists that a condenser returns, and the invalid ones.
#[derive(Debug, Default)]
struct Judged {
    lists: u64,
    refused: u64,
    complaint: Option<String>,
}

impl Judged {
    fn judge(&mut self, list: &[Message]) {
        self.lists += 1;
        if let Some(first) = complaints(list).into_iter().next() {
            self.refused += 1;
            self.complaint.get_or_insert(first);
        }
    }
}

impl Measured {
    /// Converts a peer's output, and refuses output that does not match the plan.
    fn of(answer: Answer, judged: Judged, plan: &Plan) -> Result<Self, String> {
        let played: Vec<u64> = answer.turns.iter().map(|looked| looked.messages).collect();
        if played != plan.lengths || answer.session.millis.len() as u64 != plan.session.div_ceil(TURN) {
            return Err("its output does not match the plan".to_owned());
        }
        let mut turns = Vec::new();
        for looked in answer.turns {
            turns.push((looked.messages, spread(&looked.millis)?));
        }
        let Judged { lists, refused, complaint } = judged;
        Ok(Self {
            version: answer.version,
            memory: answer.memory,
            turns,
            session: spread(&answer.session.millis)?,
            whole: answer.session.millis.iter().sum(),
            condensed: answer.session.condensed,
            lists,
            refused,
            complaint,
        })
    }
}

fn spread(millis: &[f64]) -> Result<Spread, String> {
    let times: Result<Vec<Duration>, _> =
        millis.iter().map(|millis| Duration::try_from_secs_f64(millis / 1_000.0)).collect();
    match times {
        Ok(times) if !times.is_empty() => Ok(Spread::of(times)),
        _ => Err("its durations are invalid".to_owned()),
    }
}

/// The results of all condensers.
pub(super) struct Peers {
    session: u64,
    ours: Measured,
    /// In the order of [`PEERS`]; the error if a peer could not be measured.
    theirs: Vec<(&'static str, &'static str, Result<Measured, String>)>,
}

/// Plays the plan with Epitome's condenser and with every peer.
pub(super) async fn peers(program: &Path, sizes: &Sizes, tell: Tell<'_>) -> Result<Peers, Trouble> {
    let folder = Folder::new(&sizes.dir)?;
    let (path, plan) = (folder.path(), &sizes.plan);
    let told = |stage: &'static str, done: usize| {
        tell(Progress { stage, done: done as u64, of: PEERS.len() as u64 + 1 });
    };
    told("epitome", 0);
    let history: Vec<Message> = (0..plan.messages()).map(worked).collect();
    // Epitome runs first, so that nothing else counts toward its memory.
    let ours = ours::played(&history, plan).await?;
    write(path, plan, &history)?;
    let program = std::path::absolute(program)?;
    let mut theirs = Vec::new();
    for (at, (name, title)) in PEERS.into_iter().enumerate() {
        told(title, at + 1);
        // Removes the previous peer's lists, so that they are not read as this peer's.
        let _ = std::fs::remove_file(path.join("lists.jsonl"));
        let measured = match process::asked(&program, name, path, sizes.patience).await? {
            Ok(answer) => judged(path).and_then(|judged| Measured::of(answer, judged, plan)),
            Err(why) => Err(why),
        };
        theirs.push((name, title, measured));
    }
    Ok(Peers { session: plan.session, ours, theirs })
}

/// Writes the peers' input: the plan, and one message per line with its tokens.
fn write(folder: &Path, plan: &Plan, history: &[Message]) -> Result<(), Trouble> {
    let counter = Counter::new(Encoding::O200k);
    let spelled = Dialect::OPENAI.write(history);
    let spelled = spelled.get("messages").and_then(Value::as_array).into_iter().flatten();
    let mut lines = String::new();
    for (message, wire) in history.iter().zip(spelled) {
        let line = json!({ "message": wire, "tokens": counter.message(message) });
        lines.push_str(&line.to_string());
        lines.push('\n');
    }
    std::fs::write(folder.join("history.jsonl"), lines)?;
    std::fs::write(folder.join("plan.json"), json!(plan).to_string())?;
    Ok(())
}

/// Checks the lists that a peer wrote, one per line.
fn judged(folder: &Path) -> Result<Judged, String> {
    use std::io::BufRead;
    let wrong = |what: &dyn std::fmt::Display| format!("its lists cannot be read: {what}");
    let lines = std::fs::File::open(folder.join("lists.jsonl")).map_err(|error| wrong(&error))?;
    let mut judged = Judged::default();
    for line in std::io::BufReader::new(lines).lines() {
        let line = line.map_err(|error| wrong(&error))?;
        judged.judge(&Dialect::OPENAI.read_text(&line).map_err(|error| wrong(&error))?);
    }
    Ok(judged)
}

impl Peers {
    /// Returns the table, with a column for each condenser.
    pub(super) fn table(&self) -> Table {
        let theirs = || self.theirs.iter().map(|(.., measured)| measured.as_ref().ok());
        let mut headings = vec!["what".to_owned(), format!("epitome {}", self.ours.version)];
        headings.extend(self.theirs.iter().map(|(_, title, measured)| match measured {
            Ok(measured) => format!("{title} {}", measured.version),
            Err(_) => (*title).to_owned(),
        }));
        let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
        let mut row = |name: String, figure: &dyn Fn(&Measured) -> String| {
            let cells = theirs().map(|measured| measured.map_or_else(|| "–".to_owned(), figure));
            table.row([name, figure(&self.ours)].into_iter().chain(cells));
        };
        for (at, (messages, ours)) in self.ours.turns.iter().enumerate() {
            row(format!("turn of a list of {} messages, nothing due", grouped(*messages)), &|measured| {
                measured.turns.get(at).map_or_else(String::new, |(_, spread)| beside(spread, ours))
            });
        }
        let session = format!("session of {} messages", grouped(self.session));
        row(format!("turn of a {session}"), &|measured| beside(&measured.session, &self.ours.session));
        row(format!("the whole {session}"), &|measured| times(measured.whole, self.ours.whole));
        row("condensed during it".to_owned(), &|measured| format!("{} times", measured.condensed));
        row("lists that a strict provider refuses".to_owned(), &|measured| {
            format!("{} of {}", measured.refused, grouped(measured.lists))
        });
        row("peak memory of the process".to_owned(), &|measured| match measured.memory {
            Some(bytes) => format!("{} MB", bytes / 1_000_000),
            None => "not reported".to_owned(),
        });
        table
    }

    /// Returns why a peer is missing, and why a provider would refuse a peer's list.
    pub(super) fn notes(&self) -> Vec<String> {
        let note = |(_, title, measured): &(_, &str, Result<Measured, String>)| match measured {
            Err(why) => Some(format!("{title} was not measured: {why}")),
            Ok(Measured { complaint: Some(complaint), .. }) => {
                Some(format!("{title}: a strict provider refuses this list: {complaint}"))
            }
            Ok(_) => None,
        };
        self.theirs.iter().filter_map(note).collect()
    }

    pub(super) fn json(&self) -> Value {
        let mut peers = serde_json::Map::new();
        for (name, _, measured) in &self.theirs {
            let figures = match measured {
                Ok(measured) => json!(measured),
                Err(why) => json!({ "failed": why }),
            };
            peers.insert((*name).to_owned(), figures);
        }
        json!({ "epitome": self.ours, "peers": peers })
    }
}

/// Formats, for example, `2.9 ms (p99 4.2 ms), 320×`: the duration and its ratio to Epitome's.
fn beside(spread: &Spread, ours: &Spread) -> String {
    let text = format!("{} (p99 {})", millis(spread.median), millis(spread.p99));
    if std::ptr::eq(spread, ours) { text } else { format!("{text}, {}", ratio(spread.median, ours.median)) }
}

fn times(taken: f64, ours: f64) -> String {
    if taken.to_bits() == ours.to_bits() {
        return millis(taken);
    }
    format!("{}, {}", millis(taken), ratio(taken, ours))
}

/// Formats a duration in milliseconds, or in microseconds if it is short.
fn millis(millis: f64) -> String {
    match millis {
        short if short < 1.0 => format!("{:.0} µs", short * 1_000.0),
        middle if middle < 100.0 => format!("{middle:.1} ms"),
        long => format!("{} ms", whole(long)),
    }
}

fn ratio(theirs: f64, ours: f64) -> String {
    match theirs / ours {
        small if small < 10.0 => format!("{small:.1}×"),
        large => format!("{}×", whole(large)),
    }
}

/// Formats a rounded number with thousands separators.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded, and never less than zero"
)]
fn whole(number: f64) -> String {
    grouped(number.max(0.0).round() as u64)
}
