//! Other people's condensers on the same lists, beside ours in the same run.
//!
//! They are programs in another language, so each is played by a process of its own: `PROGRAM NAME FOLDER`, where the
//! folder holds what is to be played. What such a program answers is described in `bench/peers/README.md`, beside the
//! one that comes with this repository. Whatever becomes of a peer, the others are measured.

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

/// Who is asked, by the name the program knows and the one people do.
const PEERS: [(&str, &str); 3] =
    [("langchain", "LangChain"), ("openhands", "OpenHands"), ("trpc-agent", "tRPC-Agent")];

/// The messages of a turn: the user asks, the model calls a tool, gets its result, and answers.
const TURN: u64 = 4;

/// What every model that writes summaries answers at once.
const SUMMARY: &str = "The user asks after orders that have not arrived. The agent looked each of them up: all have left \
    the depot and are with their carriers, and the customers were told so. Nothing was promised beyond that, and no order \
    has been cancelled. Open are the newest orders, which the user asked about last; whoever goes on should look them up \
    before answering, name the carrier, and tell the customer the day.";

/// What is played, and where.
pub(super) struct Sizes {
    pub(super) dir: PathBuf,
    pub(super) plan: Plan,
    /// For so long one peer may take.
    pub(super) patience: Duration,
}

/// What is played, as the peers read it.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    /// Lists of so many messages are looked at, and nothing is due.
    lengths: Vec<u64>,
    /// Each for so many turns,
    turns: u64,
    /// or for so many seconds, but for so many turns at least.
    seconds: u64,
    fewest: u64,
    /// A session of so many messages is played from its beginning,
    session: u64,
    /// so many times, as long as that is a matter of seconds, of which the middle one counts;
    sessions: u64,
    /// it is condensed at so many tokens,
    trigger: u64,
    /// and so many messages are kept then, where that can be said.
    keep: u64,
    /// What a model answers.
    summary: &'static str,
}

impl Plan {
    /// Lists of at most so many messages, and a session of so many.
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

    /// The messages of the history: the longest list and the turns that follow it, the first of which only warms up.
    fn messages(&self) -> u64 {
        let longest = self.lengths.iter().max().copied().unwrap_or(0);
        (longest + (self.turns + 1) * TURN).max(self.session)
    }
}

/// What somebody answers who played it.
#[derive(Debug, Deserialize)]
struct Answer {
    version: String,
    /// The most that was resident, in bytes.
    memory: Option<u64>,
    turns: Vec<Looked>,
    session: Session,
}

/// Turns of a list on which nothing was due, in milliseconds.
#[derive(Debug, Deserialize)]
struct Looked {
    messages: u64,
    millis: Vec<f64>,
}

/// Turns of the session, in milliseconds.
#[derive(Debug, Deserialize)]
struct Session {
    millis: Vec<f64>,
    condensed: u64,
}

/// What was measured of one of them.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    version: String,
    memory: Option<u64>,
    /// By the messages of the list.
    turns: Vec<(u64, Spread)>,
    /// A turn of the session.
    session: Spread,
    /// All of it, in milliseconds.
    whole: f64,
    condensed: u64,
    /// Lists that the model would have been sent in the session.
    lists: u64,
    /// How many of them a strict provider would refuse.
    refused: u64,
    /// Why, of the first.
    complaint: Option<String>,
}

/// Lists as they are handed out, looked at.
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
    /// Refuses what cannot be the answer to this plan.
    fn of(answer: Answer, judged: Judged, plan: &Plan) -> Result<Self, String> {
        let played: Vec<u64> = answer.turns.iter().map(|looked| looked.messages).collect();
        if played != plan.lengths || answer.session.millis.len() as u64 != plan.session.div_ceil(TURN) {
            return Err("it played something else than it was asked to".to_owned());
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
        _ => Err("it told times that are none".to_owned()),
    }
}

/// Everybody's figures.
pub(super) struct Peers {
    session: u64,
    ours: Measured,
    /// In the order of [`PEERS`]; why not, where one could not be measured.
    theirs: Vec<(&'static str, &'static str, Result<Measured, String>)>,
}

/// Plays the plan through ours and through whatever the program knows.
pub(super) async fn peers(program: &Path, sizes: &Sizes, tell: Tell<'_>) -> Result<Peers, Trouble> {
    let folder = Folder::new(&sizes.dir)?;
    let (path, plan) = (folder.path(), &sizes.plan);
    let told = |stage: &'static str, done: usize| {
        tell(Progress { stage, done: done as u64, of: PEERS.len() as u64 + 1 });
    };
    told("epitome", 0);
    let history: Vec<Message> = (0..plan.messages()).map(worked).collect();
    // Ours first, before anything else takes memory.
    let ours = ours::played(&history, plan).await?;
    write(path, plan, &history)?;
    let program = std::path::absolute(program)?;
    let mut theirs = Vec::new();
    for (at, (name, title)) in PEERS.into_iter().enumerate() {
        told(title, at + 1);
        // Each writes its own, if it comes to that.
        let _ = std::fs::remove_file(path.join("lists.jsonl"));
        let measured = match process::asked(&program, name, path, sizes.patience).await? {
            Ok(answer) => judged(path).and_then(|judged| Measured::of(answer, judged, plan)),
            Err(why) => Err(why),
        };
        theirs.push((name, title, measured));
    }
    Ok(Peers { session: plan.session, ours, theirs })
}

/// What the peers read: the plan, and a message a line with its tokens.
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

/// The lists that a peer wrote down, a line each.
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
    /// A column each.
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
        row("condensed in it".to_owned(), &|measured| format!("{} times", measured.condensed));
        row("lists a strict provider refuses".to_owned(), &|measured| {
            format!("{} of {}", measured.refused, grouped(measured.lists))
        });
        row("memory of the process, at most".to_owned(), &|measured| match measured.memory {
            Some(bytes) => format!("{} MB", bytes / 1_000_000),
            None => "not told".to_owned(),
        });
        table
    }

    /// Why somebody is missing, and what a provider would say of somebody's lists.
    pub(super) fn notes(&self) -> Vec<String> {
        let note = |(_, title, measured): &(_, &str, Result<Measured, String>)| match measured {
            Err(why) => Some(format!("{title} was not measured: {why}")),
            Ok(Measured { complaint: Some(complaint), .. }) => {
                Some(format!("{title}, of the first list that is refused: {complaint}"))
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

/// `2.9 ms (p99 4.2), 320 times ours`.
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

/// What takes microseconds is told in them.
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

/// With its thousands apart.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded, and never below nothing"
)]
fn whole(number: f64) -> String {
    grouped(number.max(0.0).round() as u64)
}
