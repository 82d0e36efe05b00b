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
  epitome import chat.jsonl                        one message per line, as the session `chat`
  epitome import request.json --session ann        a whole request, or a list of messages
  epitome import traces/*.jsonl                    one conversation per line; its id is the name
  agent-log | epitome import --session ann         from a pipe

Accepts messages in OpenAI's chat and Responses formats, in Anthropic's format, and the output of
`epitome export`. By default the format is detected. All lines are checked first: if any line is
invalid, the command reports the line and imports nothing, except with --keep-going. If you run the
same command again, it resumes an interrupted import and adds the new lines of a file.

--json prints one object. `messages`, `added` and `already_stored` count messages, and `left_out`
counts invalid lines. `sessions` has the numbers `added` and `already_stored` of each session.";

/// Imports recorded conversations as sessions
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Files to import; - is standard input [default: standard input]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Session name, or the prefix of several names [default: the file's name]
    #[arg(short, long, value_name = "NAME")]
    session: Option<String>,
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    #[arg(help = format!("Input format: {} [default: detected]", Dialect::names(&Dialect::all())))]
    format: Option<Dialect>,
    /// Skips invalid lines, and imports the rest
    #[arg(long)]
    keep_going: bool,
    /// Appends all messages, without comparing them with stored messages
    #[arg(long)]
    append: bool,
    /// Writes no summaries; a server or a later command writes them
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
    // If the database is missing, it is created only after the check has found messages to import.
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
    cleanup::set_message(Some(
        "interrupted: the messages added so far stay; run the same command to resume the import",
    ));
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

/// Checks all files, and prints the problems. Returns the number of messages and lines that cannot be imported.
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
        let problem = format!(
            "{bad}: nothing was imported; fix the input, or skip the invalid lines with --keep-going"
        );
        return Err(Failure::Setting(problem));
    }
    match checked.messages {
        0 => Err(Failure::Setting("the input contains no messages".to_owned())),
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
        show.note(format!("{added} added before the error; run the same command to resume the import"))?;
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

/// Returns the last message that all due slots have summarized. Ignores errors, because the number is only used to show
/// the progress.
async fn covered(session: &Session) -> u64 {
    let slots = session.explain().await.map(|explained| explained.slots).unwrap_or_default();
    slots.iter().filter(|slot| slot.due.is_some()).map(|slot| slot.covered).min().unwrap_or(0)
}

/// Maximum number of sessions that are printed one by one.
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
        show.line(format!("left out: {}", count(left_out, "invalid line")))?;
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

/// Temporary files with copies of piped input. The copies are needed because an import reads its input twice. Dropping
/// the `Spool` removes the files.
struct Spool {
    /// Folders of the temporary files.
    folders: Vec<(PathBuf, CleanupGuard)>,
    files: Vec<InputFile>,
    piped: bool,
}

/// Session name for standard input.
const UNNAMED: &str = "import";

impl Spool {
    async fn of(args: &Args) -> Result<Self, Failure> {
        let is_piped = |file: &Path| file.as_os_str() == "-";
        if args.files.iter().filter(|file| is_piped(file)).count() > 1 {
            return Err(Failure::Misused("standard input (-) is listed twice; list it only once".to_owned()));
        }
        if args.files.is_empty() && io::IsTerminal::is_terminal(&io::stdin()) {
            return Err(Failure::Misused("no input; give a FILE, or pipe messages in".to_owned()));
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
                        let problem =
                            format!("{shown} is a folder; give the files in it, as in {shown}/*.jsonl");
                        return Err(Failure::Failed(problem));
                    }
                    Ok(found) if !found.is_file() => {
                        InputFile { path: spool.copy(Some(file), &shown).await?, shown }
                    }
                    // If the metadata cannot be read, opening the file later reports the error.
                    _ => InputFile { path: file.clone(), shown },
                }
            };
            spool.files.push(input);
        }
        Ok(spool)
    }

    /// Copies a pipe, or standard input if `file` is None. Returns the path of the copy. Each copy is in a folder of
    /// its own and has the name of the original file, because the session gets this name.
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

    /// Returns the session name from the flag, or a default name for standard input. None means that the session gets
    /// the file's name.
    fn session(&self, args: &Args) -> Option<String> {
        args.session.clone().or_else(|| self.piped.then(|| UNNAMED.to_owned()))
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        for (folder, _) in &self.folders {
            // An error is ignored, because the copy is no longer needed.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
