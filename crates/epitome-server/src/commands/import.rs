//! `epitome import`: recorded conversations become sessions.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use epitome::Session;
use epitome::dialect::Dialect;

use super::messages::tell_late;
use super::prelude::*;
use crate::database::private_folder;
use crate::leftovers::{self, Leftover};

mod feed;

use feed::{Feed, Gauge, Imported, Source};

const EXAMPLES: &str = "\
Examples:
  epitome import chat.jsonl                        one message a line: the session `chat`
  epitome import request.json --session ann        a whole request, or a list of messages
  epitome import traces/*.jsonl                    a conversation a line: a session each, by its id
  agent-log | epitome import --session ann         from a pipe

Messages of OpenAI's chat and Responses formats, Anthropic's, and what `epitome export` wrote; the
format is found out unless --format names it. Everything is checked before anything is added: lines
that cannot be read are named, and nothing is imported unless --keep-going. Started again, an import
goes on where it was interrupted, and adds what a file has grown by. --json is one object: checked
messages, what was left out, and for each session how many messages were added and known.";

/// Recorded conversations become sessions
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Files to be read; - or none for standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The session; of several, what their names begin with (the file's name)
    #[arg(short, long, value_name = "NAME")]
    session: Option<String>,
    #[arg(long, value_name = "FORMAT", help = format!("{} (detected)", Dialect::names(&Dialect::all())))]
    format: Option<Dialect>,
    /// Leaves out what cannot be read, and imports the rest
    #[arg(long)]
    keep_going: bool,
    /// Adds everything after what a session holds, whatever that is
    #[arg(long)]
    append: bool,
    /// Leaves the summaries to whoever works on the database next
    #[arg(long)]
    no_wait: bool,
}

/// How often it is shown how far it is.
const TICK: Duration = Duration::from_millis(100);

pub(super) async fn run(args: &Args, loaded: &Loaded, show: &mut Show) -> Result<(), Failure> {
    let spool = Spool::of(args).await?;
    // Where there is no database yet, none is made before it is known that there is something to put into it.
    let there = Database::there(loaded).await?;
    let settings = match &there {
        Some(database) => database.workspace.settings().await?,
        None => Arc::new(loaded.settings.clone()),
    };
    let feed = Arc::new(Feed {
        sources: spool.sources.clone(),
        session: spool.session(args),
        dialect: args.format,
        append: args.append,
        limits: settings.limits,
    });
    let left_out = check(&feed, args.keep_going, show).await?;
    let database = match there {
        Some(database) => database,
        None => Database::created(loaded).await?,
    };
    leftovers::say(Some("interrupted: what was added stays, and the same command goes on from there"));
    let sessions = import(feed, &database, left_out, show).await?;
    if !args.no_wait {
        summarize(&database, &sessions, show).await?;
    }
    tell(&sessions, left_out, show)?;
    if !args.no_wait {
        let names = sessions.iter().map(|imported| imported.session.as_str()).collect();
        tell_late(&database.workspace, &names, show).await?;
    }
    database.close().await;
    Ok(())
}

/// Reads everything, says what cannot be, and tells how many pieces that are.
async fn check(feed: &Arc<Feed>, keep_going: bool, show: &mut Show) -> Result<u64, Failure> {
    let checking = Arc::clone(feed);
    let checked = watched("checking", feed, show, move |gauge| checking.check(gauge)).await??;
    for problem in &checked.told {
        show.error(tame(problem))?;
    }
    let more = checked.bad - checked.told.len() as u64;
    if more > 0 {
        show.error(format!("and {} more", count(more, "problem")))?;
    }
    if checked.bad > 0 && !keep_going {
        let bad = count(checked.bad, "problem");
        let told = format!("{bad}: nothing was imported; mend them, or leave them out with --keep-going");
        return Err(Failure::Setting(told));
    }
    match checked.messages {
        0 => Err(Failure::Setting("there are no messages to import".to_owned())),
        _ => Ok(checked.bad),
    }
}

/// Adds what was checked.
async fn import(
    feed: Arc<Feed>,
    database: &Database,
    left_out: u64,
    show: &mut Show,
) -> Result<Vec<Imported>, Failure> {
    let (importing, workspace) = (Arc::clone(&feed), database.workspace.clone());
    let work = move |gauge: &Gauge| importing.import(&workspace, left_out, gauge);
    let (done, result) = watched("importing", &feed, show, work).await?;
    let added: u64 = done.iter().map(|imported| imported.added).sum();
    if result.is_err() && added > 0 {
        let added = count(added, "message");
        show.note(format!("added before that: {added}; the same command goes on from there"))?;
    }
    result.map(|()| done)
}

/// Has what is due in the sessions written.
async fn summarize(database: &Database, sessions: &[Imported], show: &mut Show) -> Result<(), Failure> {
    let progress = show.progress("summarizing", Some(sessions.iter().map(Imported::messages).sum()));
    let mut before = 0;
    for imported in sessions {
        let session = database.workspace.session(imported.session.as_str());
        progress.bar.set_message(tame(&imported.session));
        let look = || async { progress.bar.set_position(before + covered(&session).await) };
        Progress::during(session.work(), 4 * TICK, look).await?;
        before += imported.messages();
        progress.bar.set_position(before);
    }
    Ok(())
}

/// How far all of a session's summaries reach. How far it is, is no reason to fail.
async fn covered(session: &Session) -> u64 {
    let slots = session.explain().await.map(|explained| explained.slots).unwrap_or_default();
    slots.iter().filter(|slot| slot.due.is_some()).map(|slot| slot.covered).min().unwrap_or(0)
}

/// So many sessions are told one by one.
const TOLD: usize = 20;

fn tell(sessions: &[Imported], left_out: u64, show: &mut Show) -> Result<(), Failure> {
    let added: u64 = sessions.iter().map(|imported| imported.added).sum();
    let known: u64 = sessions.iter().map(|imported| imported.known).sum();
    if show.json {
        return show.object(&json!({
            "messages": added + known,
            "added": added,
            "known": known,
            "left_out": left_out,
            "sessions": sessions,
        }));
    }
    for imported in sessions.iter().take(TOLD) {
        let Imported { session, added, known } = imported;
        let known =
            if *known > 0 { format!(", {} known already", count(*known, "message")) } else { String::new() };
        show.line(format!("{}: {} added{known}", tame(session), count(*added, "message")))?;
    }
    if sessions.len() > TOLD {
        let added = count(added, "message");
        show.line(format!("and more: {added} added to {} in all", count(sessions.len() as u64, "session")))?;
    }
    if left_out > 0 {
        show.line(format!("left out: {}", count(left_out, "piece")))?;
    }
    Ok(())
}

/// Does it on a thread of its own, and shows meanwhile how far it is.
async fn watched<T: Send + 'static>(
    what: &str,
    feed: &Feed,
    show: &mut Show,
    work: impl FnOnce(&Gauge) -> T + Send + 'static,
) -> Result<T, Failure> {
    let size = |source: &Source| std::fs::metadata(&source.path).map_or(0, |file| file.len());
    let progress = show.bytes_progress(what, feed.sources.iter().map(size).sum());
    let gauge = Arc::new(Gauge::default());
    let look = || async {
        progress.bar.set_position(gauge.bytes.load(Ordering::Relaxed));
        progress.bar.set_message(count(gauge.messages.load(Ordering::Relaxed), "message"));
    };
    let working = Arc::clone(&gauge);
    let work = tokio::task::spawn_blocking(move || work(&working));
    let done = Progress::during(work, TICK, look).await;
    done.map_err(|_| Failure::Failed("reading failed".to_owned()))
}

/// What comes through pipes, in files: it is read twice. Gone when dropped.
struct Spool {
    /// The folders of those files.
    folders: Vec<(PathBuf, Leftover)>,
    sources: Vec<Source>,
    piped: bool,
}

/// The session of what has no name of its own.
const UNNAMED: &str = "import";

impl Spool {
    async fn of(args: &Args) -> Result<Self, Failure> {
        let is_piped = |file: &Path| file.as_os_str() == "-";
        if args.files.iter().filter(|file| is_piped(file)).count() > 1 {
            return Err(Failure::Misused("standard input (-) is given twice".to_owned()));
        }
        if args.files.is_empty() && io::IsTerminal::is_terminal(&io::stdin()) {
            return Err(Failure::Misused("no file given, and nothing is piped in".to_owned()));
        }
        let stdin = [PathBuf::from("-")];
        let files = if args.files.is_empty() { &stdin } else { args.files.as_slice() };
        let mut spool = Self { folders: Vec::new(), sources: Vec::new(), piped: false };
        for file in files {
            let shown = tame(&file.display().to_string());
            let source = if is_piped(file) {
                spool.piped = true;
                let path = spool.keep(None, "standard input").await?;
                Source { path, shown: "<stdin>".to_owned() }
            } else {
                match std::fs::metadata(file) {
                    Ok(found) if found.is_dir() => {
                        let told = format!("{shown} is a folder; give the files in it");
                        return Err(Failure::Failed(told));
                    }
                    Ok(found) if !found.is_file() => {
                        Source { path: spool.keep(Some(file), &shown).await?, shown }
                    }
                    // What cannot be looked at is told when it is opened.
                    _ => Source { path: file.clone(), shown },
                }
            };
            spool.sources.push(source);
        }
        Ok(spool)
    }

    /// Copies what comes, from standard input where no file is named, and tells where it is: in a folder of its own, so that a
    /// file can keep its name, which is what the session is called after.
    async fn keep(&mut self, file: Option<&Path>, shown: &str) -> Result<PathBuf, Failure> {
        let failed = |error| Failure::Failed(format!("{shown} cannot be kept to be read twice: {error}"));
        let name = format!("epitome-import-{}", leftovers::unforeseen());
        let noted = leftovers::note(&std::env::temp_dir(), name.clone());
        let folder = std::env::temp_dir().join(name);
        private_folder(&folder, false).map_err(failed)?;
        self.folders.push((folder.clone(), noted));
        let own = file.filter(|file| !file.starts_with("/dev") && !file.starts_with("/proc"));
        let path = folder.join(own.and_then(Path::file_name).unwrap_or(UNNAMED.as_ref()));
        let (from, to) = (file.map(Path::to_owned), path.clone());
        let copied = tokio::task::spawn_blocking(move || {
            let mut to = std::fs::File::create_new(&to)?;
            match from {
                Some(from) => io::copy(&mut std::fs::File::open(from)?, &mut to)?,
                None => io::copy(&mut io::stdin().lock(), &mut to)?,
            };
            to.flush()
        });
        match copied.await {
            Ok(copied) => copied.map(|()| path).map_err(failed),
            Err(_) => Err(Failure::Failed(format!("{shown} cannot be read"))),
        }
    }

    /// What came through standard input has no name of its own.
    fn session(&self, args: &Args) -> Option<String> {
        args.session.clone().or_else(|| self.piped.then(|| UNNAMED.to_owned()))
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        for (folder, _) in &self.folders {
            // It is only clutter by now.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
