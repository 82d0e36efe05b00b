//! `epitome import`: imports recorded conversations as sessions.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use epitome::Session;
use epitome::dialect::Dialect;

use super::messages::report_overdue;
use super::prelude::*;
use crate::cleanup::{self, CleanupGuard};
use crate::database::private_folder;
use crate::format::parse_flag;

mod passes;

use passes::{ImportPlan, Imported, InputFile, PassProgress};

const EXAMPLES: &str = "\
Examples:
  epitome import chat.jsonl                        one message per line: the session `chat`
  epitome import request.json --session ann        a whole request, or a list of messages
  epitome import traces/*.jsonl                    one conversation per line, each named by its id
  agent-log | epitome import --session ann         from a pipe

Accepts messages in OpenAI's chat and Responses formats, in Anthropic's, and the output of `epitome
export`; the format is detected unless --format names it. Everything is checked before anything is
added: unreadable lines are reported, and then nothing is imported unless --keep-going. The same
command, run again, resumes an interrupted import and adds what a file has grown by. --json is one
object: the number of messages, how many pieces were left out, and for each session how many
messages were added and how many it had before (already_stored).";

/// Imports recorded conversations as sessions
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Files to import; - or none for standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Session name (the file's name); of several sessions, their prefix
    #[arg(short, long, value_name = "NAME")]
    session: Option<String>,
    #[arg(long, value_name = "FORMAT", value_parser = format, help = format!("{} (detected)", Dialect::names(&Dialect::all())))]
    format: Option<Dialect>,
    /// Skips what cannot be read, and imports the rest
    #[arg(long)]
    keep_going: bool,
    /// Appends everything, without comparing it with the session's messages
    #[arg(long)]
    append: bool,
    /// Leaves the summaries to the next process that works on the database
    #[arg(long)]
    no_wait: bool,
}

fn format(name: &str) -> Result<Dialect, String> {
    parse_flag(name, &Dialect::all())
}

/// How often the progress is shown.
const TICK: Duration = Duration::from_millis(100);

pub(super) async fn run(args: &Args, loaded: &Loaded, show: &mut Show) -> Result<(), Failure> {
    let spool = Spool::of(args).await?;
    // A missing database is created only after the check has found messages to import.
    let existing = Database::open_if_exists(loaded).await?;
    let settings = match &existing {
        Some(database) => database.workspace.settings().await?,
        None => Arc::new(loaded.settings.clone()),
    };
    let plan = Arc::new(ImportPlan {
        files: spool.files.clone(),
        session: spool.session(args),
        dialect: args.format,
        append: args.append,
        limits: settings.limits,
    });
    let left_out = check(&plan, args.keep_going, show).await?;
    let database = match existing {
        Some(database) => database,
        None => Database::open_or_create(loaded).await?,
    };
    cleanup::set_message(Some("interrupted: the messages added so far stay; the same command resumes"));
    let sessions = import(plan, &database, left_out, show).await?;
    if !args.no_wait {
        summarize(&database, &sessions, show).await?;
    }
    report(&sessions, left_out, show)?;
    if !args.no_wait {
        let names = sessions.iter().map(|imported| imported.session.as_str()).collect();
        report_overdue(&database.workspace, &names, show).await?;
    }
    database.close().await;
    Ok(())
}

/// Reads everything, reports what cannot be read, and returns how many pieces that are.
async fn check(plan: &Arc<ImportPlan>, keep_going: bool, show: &mut Show) -> Result<u64, Failure> {
    let checking = Arc::clone(plan);
    let checked = with_progress("checking", plan, show, move |pass| checking.check(pass)).await??;
    for problem in &checked.problems {
        show.error(printable(problem))?;
    }
    let more = checked.bad - checked.problems.len() as u64;
    if more > 0 {
        show.error(format!("and {} more", count(more, "problem")))?;
    }
    if checked.bad > 0 && !keep_going {
        let bad = count(checked.bad, "problem");
        let problem = format!("{bad}: nothing was imported; fix the input, or skip these with --keep-going");
        return Err(Failure::Setting(problem));
    }
    match checked.messages {
        0 => Err(Failure::Setting("there are no messages to import".to_owned())),
        _ => Ok(checked.bad),
    }
}

/// Adds the checked messages.
async fn import(
    plan: Arc<ImportPlan>,
    database: &Database,
    left_out: u64,
    show: &mut Show,
) -> Result<Vec<Imported>, Failure> {
    let (importing, workspace) = (Arc::clone(&plan), database.workspace.clone());
    let work = move |pass: &PassProgress| importing.import(&workspace, left_out, pass);
    let (done, result) = with_progress("importing", &plan, show, work).await?;
    let added: u64 = done.iter().map(|imported| imported.added).sum();
    if result.is_err() && added > 0 {
        let added = count(added, "message");
        show.note(format!("added before that: {added}; the same command resumes"))?;
    }
    result.map(|()| done)
}

/// Writes the summaries that are due in the imported sessions.
async fn summarize(database: &Database, sessions: &[Imported], show: &mut Show) -> Result<(), Failure> {
    let progress = show.progress("summarizing", Some(sessions.iter().map(Imported::messages).sum()));
    let mut before = 0;
    for imported in sessions {
        let session = database.workspace.session(imported.session.as_str());
        progress.bar.set_message(printable(&imported.session));
        let update = || async { progress.bar.set_position(before + covered(&session).await) };
        Progress::during(session.work(), 4 * TICK, update).await?;
        before += imported.messages();
        progress.bar.set_position(before);
    }
    Ok(())
}

/// Returns the message up to which all due slots are summarized. Errors are ignored: this is only for the progress.
async fn covered(session: &Session) -> u64 {
    let slots = session.explain().await.map(|explained| explained.slots).unwrap_or_default();
    slots.iter().filter(|slot| slot.due.is_some()).map(|slot| slot.covered).min().unwrap_or(0)
}

/// Maximum number of sessions that are reported one by one.
const MAX_LISTED: usize = 20;

fn report(sessions: &[Imported], left_out: u64, show: &mut Show) -> Result<(), Failure> {
    let added: u64 = sessions.iter().map(|imported| imported.added).sum();
    let already_stored: u64 = sessions.iter().map(|imported| imported.already_stored).sum();
    if show.json {
        return show.object(&json!({
            "messages": added + already_stored,
            "added": added,
            "already_stored": already_stored,
            "known": already_stored,
            "left_out": left_out,
            "sessions": sessions,
        }));
    }
    for imported in sessions.iter().take(MAX_LISTED) {
        let Imported { session, added, already_stored } = imported;
        let before = match already_stored {
            0 => String::new(),
            some => format!(", {} already stored", count(*some, "message")),
        };
        show.line(format!("{}: {} added{before}", printable(session), count(*added, "message")))?;
    }
    if sessions.len() > MAX_LISTED {
        let added = count(added, "message");
        show.line(format!(
            "and more: {added} added to {} in total",
            count(sessions.len() as u64, "session")
        ))?;
    }
    if left_out > 0 {
        show.line(format!("left out: {}", count(left_out, "piece")))?;
    }
    Ok(())
}

/// Runs the work on its own thread and shows the progress.
async fn with_progress<T: Send + 'static>(
    what: &str,
    plan: &ImportPlan,
    show: &mut Show,
    work: impl FnOnce(&PassProgress) -> T + Send + 'static,
) -> Result<T, Failure> {
    let size = |file: &InputFile| std::fs::metadata(&file.path).map_or(0, |file| file.len());
    let progress = show.bytes_progress(what, plan.files.iter().map(size).sum());
    let pass = Arc::new(PassProgress::default());
    let update = || async {
        progress.bar.set_position(pass.bytes.load(Ordering::Relaxed));
        progress.bar.set_message(count(pass.messages.load(Ordering::Relaxed), "message"));
    };
    let working = Arc::clone(&pass);
    let work = tokio::task::spawn_blocking(move || work(&working));
    let done = Progress::during(work, TICK, update).await;
    done.map_err(|_| Failure::Failed("reading failed".to_owned()))
}

/// Copies of piped input in temporary files, because the input is read twice. Removed when dropped.
struct Spool {
    /// Folders of the temporary files.
    folders: Vec<(PathBuf, CleanupGuard)>,
    files: Vec<InputFile>,
    piped: bool,
}

/// Session name for input that has no name.
const UNNAMED: &str = "import";

impl Spool {
    async fn of(args: &Args) -> Result<Self, Failure> {
        let is_piped = |file: &Path| file.as_os_str() == "-";
        if args.files.iter().filter(|file| is_piped(file)).count() > 1 {
            return Err(Failure::Misused("standard input (-) is named twice".to_owned()));
        }
        if args.files.is_empty() && io::IsTerminal::is_terminal(&io::stdin()) {
            return Err(Failure::Misused("no input: name a file, or pipe it in".to_owned()));
        }
        let stdin = [PathBuf::from("-")];
        let files = if args.files.is_empty() { &stdin } else { args.files.as_slice() };
        let mut spool = Self { folders: Vec::new(), files: Vec::new(), piped: false };
        for file in files {
            let shown = printable(&file.display().to_string());
            let input = if is_piped(file) {
                spool.piped = true;
                let path = spool.copy(None, "standard input").await?;
                InputFile { path, shown: "<stdin>".to_owned() }
            } else {
                match std::fs::metadata(file) {
                    Ok(found) if found.is_dir() => {
                        let problem = format!("{shown} is a folder; name the files in it");
                        return Err(Failure::Failed(problem));
                    }
                    Ok(found) if !found.is_file() => {
                        InputFile { path: spool.copy(Some(file), &shown).await?, shown }
                    }
                    // If the file cannot be examined, opening it will report the error.
                    _ => InputFile { path: file.clone(), shown },
                }
            };
            spool.files.push(input);
        }
        Ok(spool)
    }

    /// Copies a pipe, or standard input if no file is named, and returns the path of the copy. Each copy is in its own
    /// folder, so that it keeps the file's name: the session is named after it.
    async fn copy(&mut self, file: Option<&Path>, shown: &str) -> Result<PathBuf, Failure> {
        let failed = |error| Failure::Failed(format!("cannot copy {shown} to a temporary file: {error}"));
        let name = format!("epitome-import-{}", cleanup::random_suffix());
        let noted = cleanup::register(&std::env::temp_dir(), name.clone());
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

    /// Returns the session name to use. Standard input has no name, so it gets a default.
    fn session(&self, args: &Args) -> Option<String> {
        args.session.clone().or_else(|| self.piped.then(|| UNNAMED.to_owned()))
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        for (folder, _) in &self.folders {
            // An error is ignored: the copy is not used any more.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
