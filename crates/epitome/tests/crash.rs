//! Kills a real process while it writes, many times, and checks that no data is missing.
//!
//! A child appends from several tasks while summaries are written. It records every message whose append returned.
//! Its writer marks in a shared file when a transaction begins and ends, which shows which kills hit a write. After
//! each kill the database must open, every acknowledged message must be stored once and in its position, and all
//! stored data must be consistent (`verify`). Every fourth time two processes share the file, and one of them is
//! killed while the other continues.
//!
//! `cargo test -p epitome --test crash` kills 100 times; `cargo test --release -p epitome --test crash -- 1000`
//! kills as often as its argument says.

#![allow(clippy::print_stdout, reason = "it is a program that says how far it is")]

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use epitome::rules::message::{Message, Part, Timestamp};
use epitome::rules::tokens::{Counter, Encoding};
use epitome::store::{SqliteOptions, StoreFault, WriteStage};
use epitome::{Batch, Engine, Pace, Page, Session};

/// Number of tasks of a child that append concurrently, each to its own session.
const TASKS: usize = 4;

/// Slots that are due so often that there is always a summary to write.
const SETTINGS: &str = r#"{"slot": [
    {"name": "short", "trigger": "messages(5)", "max_tokens": 120},
    {"name": "long", "trigger": "messages(13)", "keep": "messages(3)", "max_tokens": 300}
]}"#;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["child", dir, name] => child(Path::new(dir), name),
        _ => parent(args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(100)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("crash: {what}");
            ExitCode::FAILURE
        }
    }
}

type Outcome<T = ()> = Result<T, String>;

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

// ---- the child

/// Appends until the process is killed.
fn child(dir: &Path, name: &str) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(said)?;
    runtime.block_on(async {
        let pulse = OpenOptions::new().create(true).truncate(false).write(true).open(pulse_path(dir, name));
        let pulse = pulse.map_err(said)?;
        let mark = move |stage| {
            let inside = u8::from(stage == WriteStage::Begun);
            // The page cache outlives the process.
            let _ = pulse.write_all_at(&[inside], 0);
        };
        let options = SqliteOptions { on_write: Some(Arc::new(mark)), ..SqliteOptions::default() };
        // Short, so that this process takes over the leases of the previous one.
        let pace =
            Pace { lease: Duration::from_millis(30), renew: Duration::from_millis(10), ..Pace::default() };
        let engine = Engine::builder().settings(SETTINGS).pace(pace).sqlite(options);
        let engine = engine.open(dir.join("agent.db")).await.map_err(said)?;
        let mut tasks = tokio::task::JoinSet::new();
        // Reading the vocabulary takes longer than most of these processes live.
        let _ = Counter::new(Encoding::default()).text("ready");
        for task in 0..TASKS {
            let (session, acks) = (format!("{name}{task}"), acks_path(dir, name, task));
            tasks.spawn(append_for_ever(engine.session(session), acks));
        }
        println!("ready");
        std::io::stdout().flush().map_err(said)?;
        match tasks.join_next().await {
            Some(Ok(Err(what))) => Err(what),
            _ => Err("a task ended".to_owned()),
        }
    })
}

/// Continues after the last acknowledged message. A message whose response was lost is sent again under its key.
async fn append_for_ever(session: Session, acks: PathBuf) -> Outcome {
    let mut next = last_acknowledged(&acks) + 1;
    let mut acks = OpenOptions::new().create(true).append(true).open(acks).map_err(said)?;
    loop {
        // One to three at a time: atomicity can only be checked with several.
        let until = next + next % 3;
        let batch: Vec<Message> = (next..=until).map(message).collect();
        session.append(Batch::from(batch).key(format!("{next}-{until}"))).await.map_err(said)?;
        acks.write_all(format!("{until}\n").as_bytes()).map_err(said)?;
        next = until + 1;
    }
}

fn message(n: u64) -> Message {
    let text = format!("{n} order {n}071 for Oslo, invoice INV-{n}, was packed on 2026-03-{:02}", n % 28 + 1);
    if n % 2 == 1 { Message::user(text) } else { Message::assistant(text) }
}

fn number(message: &Message) -> Option<u64> {
    match message.parts.first()? {
        Part::Text { text } => text.split(' ').next()?.parse().ok(),
        _ => None,
    }
}

/// Returns the last message whose append returned.
fn last_acknowledged(acks: &Path) -> u64 {
    let text = fs::read_to_string(acks).unwrap_or_default();
    // An incomplete last line does not count as acknowledged.
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.filter_map(|line| line.trim().parse().ok()).max().unwrap_or(0)
}

fn pulse_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("pulse-{name}"))
}

fn acks_path(dir: &Path, name: &str, task: usize) -> PathBuf {
    dir.join(format!("acks-{name}{task}"))
}

// ---- the parent

/// What the test has seen so far.
#[derive(Default)]
struct Tally {
    kills: usize,
    inside: usize,
    messages: u64,
    summaries: u64,
}

/// Number of threads that kill processes concurrently, each with its own files.
const AT_ONCE: usize = 2;

fn parent(wanted: usize) -> Outcome {
    let started = Instant::now();
    println!("\nrunning {wanted} kills");
    let tallies: Outcome<Vec<Tally>> = std::thread::scope(|scope| {
        let each = wanted.div_ceil(AT_ONCE);
        let all: Vec<_> = (1..=AT_ONCE).map(|who| scope.spawn(move || kill_often(each, who))).collect();
        all.into_iter().map(|one| one.join().unwrap_or_else(|_| Err("it panicked".to_owned()))).collect()
    });
    let tallies = tallies?;
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(said)?;
    let planted = runtime.block_on(planted())?;
    println!(
        "{} kills, {} of them inside a write; {} messages and {} summaries were looked through; {planted} planted \
         faults were caught; {:.1} s",
        sum(|tally| tally.kills as u64),
        sum(|tally| tally.inside as u64),
        sum(|tally| tally.messages),
        sum(|tally| tally.summaries),
        started.elapsed().as_secs_f64()
    );
    println!("\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n");
    Ok(())
}

/// Kills at least `wanted` times, and until enough kills hit a write.
fn kill_often(wanted: usize, who: usize) -> Outcome<Tally> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(said)?;
    let mut tally = Tally::default();
    let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ u64::from(std::process::id()) ^ ((who as u64) << 32));
    while tally.kills < wanted || tally.inside * 3 < tally.kills {
        if tally.kills >= wanted * 3 {
            return Err(format!("only {} of {} kills fell inside a write", tally.inside, tally.kills));
        }
        // Sometimes a new file, so that kills hit new files too.
        let dir = tempfile::tempdir().map_err(said)?;
        for _ in 0..10 {
            kill_once(dir.path(), &mut random, &mut tally)?;
            let (messages, summaries) = runtime.block_on(check(dir.path()))?;
            tally.messages += messages;
            tally.summaries += summaries;
        }
        if tally.kills % 50 == 0 {
            println!("{} kills, {} of them inside a write", tally.kills, tally.inside);
        }
    }
    Ok(tally)
}

/// A process that is killed when the handle is dropped.
struct Running(Child);

impl Running {
    fn start(dir: &Path, name: &str) -> Outcome<Self> {
        let itself = std::env::current_exe().map_err(said)?;
        let mut command = Command::new(itself);
        command.args(["child", &dir.to_string_lossy(), name]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = Self(command.spawn().map_err(said)?);
        let stdout = child.0.stdout.take().ok_or("no stdout")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).map_err(said)?;
        if line.trim() == "ready" { Ok(child) } else { Err(format!("the child did not start: {line:?}")) }
    }

    /// Sends SIGKILL and waits for the end of the process.
    fn kill(mut self) -> Outcome {
        if let Some(ended) = self.0.try_wait().map_err(said)? {
            return Err(format!("the child ended by itself: {ended}"));
        }
        self.0.kill().map_err(said)?;
        self.0.wait().map_err(said)?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kill_once(dir: &Path, random: &mut Random, tally: &mut Tally) -> Outcome {
    let beside = (tally.kills % 4 == 3).then(|| Running::start(dir, "beside")).transpose()?;
    let child = Running::start(dir, "alone")?;
    std::thread::sleep(Duration::from_micros(random.below(60_000)));
    child.kill()?;
    tally.kills += 1;
    tally.inside += usize::from(was_inside(dir, "alone")?);
    if let Some(beside) = beside {
        // The next process must be able to continue at once, without locks of the killed one.
        let before = fs::metadata(acks_path(dir, "beside", 0)).map_or(0, |file| file.len());
        let patience = Instant::now() + Duration::from_secs(30);
        while fs::metadata(acks_path(dir, "beside", 0)).map_or(0, |file| file.len()) <= before {
            if Instant::now() > patience {
                return Err("the process beside the killed one did not go on".to_owned());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        beside.kill()?;
        tally.kills += 1;
        tally.inside += usize::from(was_inside(dir, "beside")?);
    }
    Ok(())
}

fn was_inside(dir: &Path, name: &str) -> Outcome<bool> {
    let mut byte = [0];
    let read = File::open(pulse_path(dir, name)).map_err(said)?.read_at(&mut byte, 0).map_err(said)?;
    Ok(read == 1 && byte == [1])
}

/// Opens the store with a clock one minute later, when the killed process's leases have expired.
async fn open(dir: &Path) -> Outcome<Engine> {
    let later = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis());
        Timestamp(i64::try_from(now).unwrap_or(i64::MAX) + 60_000)
    };
    let options = SqliteOptions { clock: Arc::new(later), ..SqliteOptions::default() };
    let engine =
        Engine::builder().settings(SETTINGS).workers(0).sqlite(options).open(dir.join("agent.db")).await;
    engine.map_err(|error| format!("the database does not open: {error}"))
}

/// Checks a copy of the files that the killed process left, so that the next process finds them unchanged.
async fn check(dir: &Path) -> Outcome<(u64, u64)> {
    let copy = copied(dir)?;
    look_through(copy.path()).await
}

fn copied(dir: &Path) -> Outcome<tempfile::TempDir> {
    let copy = tempfile::tempdir().map_err(said)?;
    for file in fs::read_dir(dir).map_err(said)? {
        let file = file.map_err(said)?;
        // The log's shared-memory index belonged to processes that have ended; SQLite creates it again.
        if !file.file_name().to_string_lossy().ends_with("-shm") {
            fs::copy(file.path(), copy.path().join(file.file_name())).map_err(said)?;
        }
    }
    Ok(copy)
}

/// Checks that every acknowledged message is stored and that all stored data is consistent: as the process left it,
/// and again after the work continued. Returns the numbers of messages and summaries.
async fn look_through(dir: &Path) -> Outcome<(u64, u64)> {
    let engine = open(dir).await?;
    verify(&engine).await?;
    let sessions = ["alone", "beside"].into_iter().flat_map(|name| (0..TASKS).map(move |task| (name, task)));
    let mut acknowledged = Vec::new();
    for (name, task) in sessions {
        let acks = acks_path(dir, name, task);
        if acks.exists() {
            acknowledged.push((engine.session(format!("{name}{task}")), last_acknowledged(&acks)));
        }
    }
    for (session, acknowledged) in &acknowledged {
        messages(session, *acknowledged).await?;
    }
    engine.work().await.map_err(said)?;
    let (mut all, mut summaries) = (0, 0);
    for (session, acknowledged) in &acknowledged {
        let there = messages(session, *acknowledged).await?;
        if there > 0 {
            coverage(session, there).await?;
            all += there;
            summaries += session.history(None, 1_000).await.map_err(said)?.len() as u64;
        }
    }
    verify(&engine).await?;
    engine.close().await;
    Ok((all, summaries))
}

async fn verify(engine: &Engine) -> Outcome {
    let faults = engine.verify().await.map_err(said)?;
    match faults.first() {
        Some(StoreFault { at, what }) => Err(format!("{at}: {what} ({} faults)", faults.len())),
        None => Ok(()),
    }
}

/// Checks that the log is 1, 2, 3 … without gap or repetition, at least up to the acknowledged message, and that a
/// context of it is complete.
async fn messages(session: &Session, acknowledged: u64) -> Outcome<u64> {
    let name = session.name().to_owned();
    let mut there = 0;
    loop {
        let page = Page { after: Some(there), limit: 1_000, ..Page::default() };
        let messages = match session.messages(page).await {
            Ok(messages) => messages,
            Err(epitome::Error::NotFound { .. }) if acknowledged == 0 => return Ok(0),
            Err(error) => return Err(format!("{name}: {error}")),
        };
        for message in &messages {
            there += 1;
            if message.seq != there || number(message) != Some(there) {
                let (seq, found) = (message.seq, number(message));
                return Err(format!("{name}: message {seq} is number {found:?}, and {there} was expected"));
            }
        }
        if messages.is_empty() {
            break;
        }
    }
    if there < acknowledged {
        return Err(format!("{name}: {acknowledged} messages were acknowledged, and {there} are there"));
    }
    let context = session.context(100_000).await.map_err(said)?;
    if context.report.exhaustive { Ok(there) } else { Err(format!("{name}: a context has a gap")) }
}

/// Checks that no trigger event was lost: the coverage follows from the number of messages alone.
async fn coverage(session: &Session, there: u64) -> Outcome {
    let summaries = session.summaries().await.map_err(said)?;
    let covered = |slot: &str| summaries.iter().find(|s| s.slot == slot).map_or(0, |summary| summary.through);
    let found = (covered("short"), covered("long"));
    let expected = (there - there % 5, (there - there % 13).saturating_sub(3));
    if found != expected {
        let name = session.name();
        return Err(format!("{name}: of {there} messages {found:?} are covered, and not {expected:?}"));
    }
    Ok(())
}

/// Checks the checks: each of these planted faults must be found.
/// Returns whether there is a summary to plant faults in.
fn summarized(dir: &Path) -> Outcome<bool> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let db = rusqlite::Connection::open_with_flags(dir.join("agent.db"), flags).map_err(said)?;
    let sql = "SELECT count(*) FROM slots JOIN sessions ON id = session WHERE sessions.name = 'alone0' \
         AND slots.name = 'short' AND active IS NOT NULL";
    db.query_row(sql, [], |row| Ok(row.get::<_, i64>(0)? > 0)).map_err(said)
}

async fn planted() -> Outcome<usize> {
    let dir = tempfile::tempdir().map_err(said)?;
    let child = Running::start(dir.path(), "alone")?;
    while last_acknowledged(&acks_path(dir.path(), "alone", 0)) < 30 || !summarized(dir.path())? {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill()?;
    check(dir.path()).await?;
    let first = "session = (SELECT id FROM sessions WHERE name = 'alone0')";
    let faults = [
        format!(
            "DELETE FROM messages WHERE {first} AND seq = (SELECT head FROM sessions WHERE name = 'alone0')"
        ),
        format!(
            "UPDATE messages SET body = (SELECT body FROM messages WHERE {first} AND seq = 3) WHERE {first} AND seq = 5"
        ),
        format!("UPDATE slots SET covered = covered - 5 WHERE {first} AND name = 'short'"),
        format!("DELETE FROM slots WHERE {first} AND name = 'long'"),
        format!("UPDATE slots SET active = NULL WHERE {first} AND name = 'short'"),
        format!("UPDATE summaries SET through = through - 5 WHERE {first} AND state = 'standing'"),
    ];
    for fault in &faults {
        let copy = copied(dir.path())?;
        let db = rusqlite::Connection::open(copy.path().join("agent.db")).map_err(said)?;
        let changed = db.execute(fault, []).map_err(said)?;
        drop(db);
        if changed == 0 {
            return Err(format!("nothing was planted by {fault}"));
        }
        if look_through(copy.path()).await.is_ok() {
            return Err(format!("a planted fault was not found: {fault}"));
        }
    }
    let copy = copied(dir.path())?;
    fs::write(acks_path(copy.path(), "alone", 0), "1000000\n").map_err(said)?;
    if look_through(copy.path()).await.is_ok() {
        return Err("a message that was acknowledged and is not there was not missed".to_owned());
    }
    Ok(faults.len() + 1)
}

/// Random numbers for the test, not for secrets.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}
