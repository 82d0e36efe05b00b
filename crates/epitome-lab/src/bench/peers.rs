//! Measures Epitome's condenser and *peers*, which are condensers of other projects. All condensers get the same
//! messages in the same run.
//!
//! The peers are written in Python, so each peer runs in its own process: `PROGRAM NAME FOLDER`. The folder contains
//! the plan ([`PeerPlan`]) and the messages. `bench/peers/README.md` describes the output that the program must write.
//! `bench/peers/run` is such a program. If a peer fails, the other peers are still measured.

use std::path::{Path, PathBuf};
use std::time::Duration;

use epitome::dialect::Dialect;
use epitome::rules::message::Message;
use epitome::rules::tokens::{Counter, Encoding};
use epitome::rules::valid::complaints;
use epitome_terminal::show::{Table, grouped};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::server::BenchError;
use crate::bench::engine::{Folder, OnProgress, Progress, Spread, agent_message};

mod epitome_condenser;
mod process;

/// For each peer, its name in the program's arguments and its title in the table.
const PEERS: [(&str, &str); 3] =
    [("langchain", "LangChain"), ("openhands", "OpenHands"), ("trpc-agent", "tRPC-Agent")];

/// Number of messages per turn: the user's question, a tool call, the call's result, and the agent's reply.
const TURN: u64 = 4;

/// The text of every summary. A peer's fake model returns this text immediately.
const SUMMARY: &str = "The user wants to know about orders that have not arrived. The agent looked each of them up: all have \
    left the depot and are with their carriers, and the customers were informed. Nothing was promised beyond that, and no \
    order has been cancelled. Open are the newest orders, which the user mentioned last. The next agent should look them up \
    before answering, name the carrier, and inform the customer of the day.";

/// The plan, the folder for the files, and the timeout.
pub(super) struct PeerOptions {
    pub(super) dir: PathBuf,
    pub(super) plan: PeerPlan,
    /// Timeout for one peer.
    pub(super) timeout: Duration,
}

/// The plan: what each condenser plays. The peers read the plan as JSON.
///
/// There are two measurements. In the first measurement, lists of several lengths grow turn by turn and are never
/// condensed. In the second measurement, a session is played from its first message, and its list is condensed.
#[derive(Debug, Serialize)]
pub(super) struct PeerPlan {
    /// Lengths of the lists that are never condensed, in messages.
    lengths: Vec<u64>,
    /// Maximum number of turns per list.
    turns: u64,
    /// A peer stops playing a list after this many seconds, but not before `min_turns` turns.
    seconds: u64,
    #[serde(rename = "fewest")]
    min_turns: u64,
    /// Length of the session, in messages.
    session: u64,
    /// Number of times that the session is played. A peer may stop earlier, after `seconds` seconds. The median run
    /// counts.
    sessions: u64,
    /// The session is condensed when its list has this many tokens.
    trigger: u64,
    /// Number of newest messages that stay verbatim, if the condenser has such a setting.
    keep: u64,
    /// The summary that the fake model returns.
    summary: &'static str,
}

impl PeerPlan {
    /// Creates a plan with lists of at most `longest` messages and a session of `session` messages.
    pub(super) fn new(longest: u64, session: u64, turns: u64) -> Self {
        let lengths = [100, 1_000, 10_000].into_iter().filter(|length| *length <= longest).collect();
        Self {
            lengths,
            turns,
            seconds: 5,
            min_turns: 5,
            session,
            sessions: 5,
            trigger: 4_000,
            keep: 20,
            summary: SUMMARY,
        }
    }

    /// Returns the number of messages that the plan needs: the longest list and the turns that are added to it. The
    /// first of these turns only warms up.
    fn messages(&self) -> u64 {
        let longest = self.lengths.iter().max().copied().unwrap_or(0);
        (longest + (self.turns + 1) * TURN).max(self.session)
    }
}

/// A peer's output, read from JSON.
#[derive(Debug, Deserialize)]
struct PeerOutput {
    version: String,
    /// Peak resident memory, in bytes.
    memory: Option<u64>,
    turns: Vec<IdleTurns>,
    session: SessionTurns,
}

/// Durations of turns that did not condense the list, in milliseconds.
#[derive(Debug, Deserialize)]
struct IdleTurns {
    /// Length of the list before these turns, in messages.
    messages: u64,
    millis: Vec<f64>,
}

/// Durations of the session's turns, in milliseconds.
#[derive(Debug, Deserialize)]
struct SessionTurns {
    millis: Vec<f64>,
    /// Number of times that the session's list was condensed.
    condensed: u64,
}

/// The results of one condenser.
#[derive(Debug, Serialize)]
pub(super) struct PeerResult {
    version: String,
    /// Peak resident memory, in bytes; `None` if it is not reported.
    memory: Option<u64>,
    /// For each length of a list, the durations of turns that did not condense the list.
    turns: Vec<(u64, Spread)>,
    /// Durations of the session's turns.
    session: Spread,
    /// Duration of the whole session, in milliseconds.
    whole: f64,
    /// Number of times that the session's list was condensed.
    condensed: u64,
    /// Number of lists that the session would have sent to the model.
    lists: u64,
    /// Number of these lists that a strict provider rejects.
    #[serde(rename = "refused")]
    rejected: u64,
    /// Why a strict provider rejects the first rejected list; `None` if no list is rejected.
    #[serde(rename = "complaint")]
    first_error: Option<String>,
}

/// Counts the lists that a condenser returns, and the lists that a strict provider rejects.
#[derive(Debug, Default)]
struct ListCheck {
    lists: u64,
    rejected: u64,
    first_error: Option<String>,
}

impl ListCheck {
    fn add(&mut self, list: &[Message]) {
        self.lists += 1;
        if let Some(first) = complaints(list).into_iter().next() {
            self.rejected += 1;
            self.first_error.get_or_insert(first);
        }
    }
}

impl PeerResult {
    /// Converts a peer's output to a result. Returns an error if the output does not match the plan.
    fn of(output: PeerOutput, checked: ListCheck, plan: &PeerPlan) -> Result<Self, String> {
        let lengths: Vec<u64> = output.turns.iter().map(|turns| turns.messages).collect();
        if lengths != plan.lengths || output.session.millis.len() as u64 != plan.session.div_ceil(TURN) {
            return Err("its output does not match the plan".to_owned());
        }
        let mut turns = Vec::new();
        for list in output.turns {
            turns.push((list.messages, spread(&list.millis)?));
        }
        let ListCheck { lists, rejected, first_error } = checked;
        Ok(Self {
            version: output.version,
            memory: output.memory,
            turns,
            session: spread(&output.session.millis)?,
            whole: output.session.millis.iter().sum(),
            condensed: output.session.condensed,
            lists,
            rejected,
            first_error,
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
pub(super) struct PeerResults {
    session: u64,
    epitome: PeerResult,
    /// Name, title and result of each peer, in the order of [`PEERS`]. If a peer could not be measured, its result is
    /// the error text.
    peers: Vec<(&'static str, &'static str, Result<PeerResult, String>)>,
}

/// Plays the plan with Epitome's condenser and with every peer.
pub(super) async fn measure(
    program: &Path,
    options: &PeerOptions,
    on_progress: OnProgress<'_>,
) -> Result<PeerResults, BenchError> {
    let folder = Folder::new(&options.dir)?;
    let (path, plan) = (folder.path(), &options.plan);
    let step = |stage: &'static str, done: usize| {
        on_progress(Progress { stage, done: done as u64, of: PEERS.len() as u64 + 1 });
    };
    step("epitome", 0);
    let history: Vec<Message> = (0..plan.messages()).map(agent_message).collect();
    // Epitome's condenser runs first, so that its peak memory does not include memory of later steps.
    let epitome = epitome_condenser::measure(&history, plan).await?;
    write(path, plan, &history)?;
    let program = std::path::absolute(program)?;
    let mut peers = Vec::new();
    for (at, (name, title)) in PEERS.into_iter().enumerate() {
        step(title, at + 1);
        // Removes the previous peer's lists, so that they are not read as lists of this peer.
        let _ = std::fs::remove_file(path.join("lists.jsonl"));
        let measured = match process::run(&program, name, path, options.timeout).await? {
            Ok(output) => check_lists(path).and_then(|checked| PeerResult::of(output, checked, plan)),
            Err(error) => Err(error),
        };
        peers.push((name, title, measured));
    }
    Ok(PeerResults { session: plan.session, epitome, peers })
}

/// Writes the peers' input to `folder`: the plan, and a file with one message and its token count per line.
fn write(folder: &Path, plan: &PeerPlan, history: &[Message]) -> Result<(), BenchError> {
    let counter = Counter::new(Encoding::O200k);
    let request = Dialect::OPENAI.write(history);
    let encoded = request.get("messages").and_then(Value::as_array).into_iter().flatten();
    let mut lines = String::new();
    for (message, wire) in history.iter().zip(encoded) {
        let line = json!({ "message": wire, "tokens": counter.message(message) });
        lines.push_str(&line.to_string());
        lines.push('\n');
    }
    std::fs::write(folder.join("history.jsonl"), lines)?;
    std::fs::write(folder.join("plan.json"), json!(plan).to_string())?;
    Ok(())
}

/// Counts the lists that a peer wrote to `lists.jsonl`, and checks whether a strict provider accepts each list.
fn check_lists(folder: &Path) -> Result<ListCheck, String> {
    use std::io::BufRead;
    let unreadable = |problem: &dyn std::fmt::Display| format!("its lists cannot be read: {problem}");
    let lines = std::fs::File::open(folder.join("lists.jsonl")).map_err(|error| unreadable(&error))?;
    let mut checked = ListCheck::default();
    for line in std::io::BufReader::new(lines).lines() {
        let line = line.map_err(|error| unreadable(&error))?;
        checked.add(&Dialect::OPENAI.read_text(&line).map_err(|error| unreadable(&error))?);
    }
    Ok(checked)
}

impl PeerResults {
    /// Returns the result table, with a column for each condenser.
    pub(super) fn table(&self) -> Table {
        let peers = || self.peers.iter().map(|(.., measured)| measured.as_ref().ok());
        let mut headings = vec!["benchmark".to_owned(), format!("epitome {}", self.epitome.version)];
        headings.extend(self.peers.iter().map(|(_, title, measured)| match measured {
            Ok(measured) => format!("{title} {}", measured.version),
            Err(_) => (*title).to_owned(),
        }));
        let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
        let mut row = |name: String, figure: &dyn Fn(&PeerResult) -> String| {
            let cells = peers().map(|measured| measured.map_or_else(|| "–".to_owned(), figure));
            table.row([name, figure(&self.epitome)].into_iter().chain(cells));
        };
        for (at, (messages, epitome)) in self.epitome.turns.iter().enumerate() {
            row(format!("turn with a list of {} messages, nothing due", grouped(*messages)), &|measured| {
                measured.turns.get(at).map_or_else(String::new, |(_, spread)| compared(spread, epitome))
            });
        }
        let session = format!("session of {} messages", grouped(self.session));
        row(format!("turn of a {session}"), &|measured| compared(&measured.session, &self.epitome.session));
        row(format!("all turns of a {session}"), &|measured| {
            compared_total(measured.whole, self.epitome.whole)
        });
        row("condensations in that session".to_owned(), &|measured| measured.condensed.to_string());
        row("lists that a strict provider rejects".to_owned(), &|measured| {
            format!("{} of {}", measured.rejected, grouped(measured.lists))
        });
        row("peak memory of the process".to_owned(), &|measured| match measured.memory {
            Some(bytes) => format!("{} MB", bytes / 1_000_000),
            None => "not reported".to_owned(),
        });
        table
    }

    /// Returns the notes below the table. A note says why a peer was not measured, or why a strict provider rejects a
    /// peer's list.
    pub(super) fn notes(&self) -> Vec<String> {
        let note = |(_, title, measured): &(_, &str, Result<PeerResult, String>)| match measured {
            Err(error) => Some(format!("{title} was not measured: {error}")),
            Ok(PeerResult { first_error: Some(error), .. }) => {
                Some(format!("{title}: a strict provider rejects one of its lists: {error}"))
            }
            Ok(_) => None,
        };
        self.peers.iter().filter_map(note).collect()
    }

    pub(super) fn json(&self) -> Value {
        let mut peers = serde_json::Map::new();
        for (name, _, measured) in &self.peers {
            let figures = match measured {
                Ok(measured) => json!(measured),
                Err(error) => json!({ "failed": error }),
            };
            peers.insert((*name).to_owned(), figures);
        }
        json!({ "epitome": self.epitome, "peers": peers })
    }
}

/// Formats a peer's duration and its ratio to Epitome's duration, for example `2.9 ms (p99 4.2 ms), 320×`. Formats
/// Epitome's own duration without a ratio.
fn compared(spread: &Spread, epitome: &Spread) -> String {
    let text = format!("{} (p99 {})", millis(spread.median), millis(spread.p99));
    if std::ptr::eq(spread, epitome) {
        text
    } else {
        format!("{text}, {}", ratio(spread.median, epitome.median))
    }
}

fn compared_total(total: f64, epitome: f64) -> String {
    if total.to_bits() == epitome.to_bits() {
        return millis(total);
    }
    format!("{}, {}", millis(total), ratio(total, epitome))
}

/// Formats a duration in milliseconds. A duration under a millisecond is formatted in microseconds.
fn millis(millis: f64) -> String {
    match millis {
        short if short < 1.0 => format!("{:.0} µs", short * 1_000.0),
        middle if middle < 100.0 => format!("{middle:.1} ms"),
        long => format!("{} ms", rounded(long)),
    }
}

fn ratio(peer: f64, epitome: f64) -> String {
    match peer / epitome {
        small if small < 10.0 => format!("{small:.1}×"),
        large => format!("{}×", rounded(large)),
    }
}

/// Formats a rounded number with thousands separators.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded, and never less than zero"
)]
fn rounded(number: f64) -> String {
    grouped(number.max(0.0).round() as u64)
}
