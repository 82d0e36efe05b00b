//! The program `epitome`, as a library: [`run`] is the whole program. So another program can register a format of its own
//! ([`epitome::dialect::register`]) and then be `epitome` with one more format.
//!
//! [`run`] parses the command line, loads the settings, runs a plain function and returns the exit code. The HTTP server
//! uses the same engine.

mod commands;
mod condensing;
mod database;
mod format;
mod http;
mod log;
mod settings;
mod signals;

use std::io::{Write, stderr};
use std::process::ExitCode;

use commands::Asked;
use epitome::rules::tokens::{Counter, Encoding};
use epitome_terminal::failure::Failure;
use epitome_terminal::show::Show;
use epitome_terminal::{failure, leftovers, near, show};
use settings::World;
use signals::{INTERRUPT, Signals};

/// Added to a signal's number for the exit code, as shells do.
const SIGNALLED: i32 = 128;

/// Maximum number of threads for blocking work: store reads, summaries by `local` and large bodies (four each), and large
/// contexts. More work waits in a queue. The number is limited because each thread retains some memory.
const MOST_BLOCKING: usize = 16;

/// Runs the command that this process's arguments name, and returns the exit code.
pub fn run() -> ExitCode {
    let world = World::of_process();
    let asked = commands::parse(std::env::args_os());
    let globals = asked.as_ref().map(|asked| asked.globals.clone()).unwrap_or_default();
    let mut show = Show::process(globals.color, globals.json, &|name| world.text(name));
    #[cfg(unix)]
    if asked.as_ref().is_ok_and(Asked::ends_itself) {
        give_memory_back();
    }
    match asked {
        Ok(asked) => run_command(asked, world, show),
        Err(failure) => ExitCode::from(show.end(&failure, None)),
    }
}

/// Restarts a server as the same process, with an allocator that returns unused memory to the system at once.
///
/// Other commands end before that would matter, and are faster without it. The allocator reads these variables before any
/// code of this program runs, so only a restart can set them. If the environment already sets one of them, nothing changes.
#[cfg(unix)]
fn give_memory_back() {
    use std::os::unix::process::CommandExt;
    const SETTINGS: [(&str, &str); 4] = [
        ("MIMALLOC_PURGE_DELAY", "0"),
        ("MIMALLOC_PURGE_EXTEND_DELAY", "0"),
        ("MIMALLOC_GENERIC_COLLECT", "1000"),
        ("MIMALLOC_ALLOW_THP", "0"),
    ];
    if SETTINGS.iter().any(|(name, _)| std::env::var_os(name).is_some()) {
        return;
    }
    let (Ok(program), mut args) = (std::env::current_exe(), std::env::args_os()) else { return };
    let mut again = std::process::Command::new(program);
    args.next().iter().for_each(|name| {
        again.arg0(name);
    });
    // `exec` returns only if it fails. Then the server runs anyway, and uses more memory.
    let _ = again.args(args).envs(SETTINGS).exec();
}

/// Runs the command on its own task, so that Ctrl-C works even while the command is blocked writing its output.
fn run_command(asked: Asked, world: World, mut show: Show) -> ExitCode {
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = match threads.max_blocking_threads(MOST_BLOCKING).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let failure = Failure::Failed(format!("cannot start threads: {error}"));
            return ExitCode::from(show.end(&failure, None));
        }
    };
    let (ends_itself, counts) = (asked.ends_itself(), asked.counts());
    let command = runtime.spawn(commands::run(asked, world, show));
    if counts {
        // This thread only waits from here on, so it loads the tokenizer's vocabulary: the slowest part of the command.
        let _ = Counter::new(Encoding::default());
    }
    let code = runtime.block_on(async {
        tokio::select! {
            code = command => code.unwrap_or(1),
            signal = async { Signals::listen().next().await }, if !ends_itself => end(signal).await,
        }
    });
    runtime.shutdown_background();
    ExitCode::from(code)
}

/// Releases leases, removes unfinished files, and exits. Committed data stays; the rest is lost, as after a crash.
pub(crate) async fn end(signal: i32) -> ! {
    database::give_up().await;
    let line = leftovers::interrupted();
    let mut errors = stderr();
    if signal == INTERRUPT {
        // Starts a new line, because the terminal has printed `^C`.
        let _ = writeln!(errors);
    }
    if let Some(line) = line {
        let _ = writeln!(errors, "{line}");
    }
    std::process::exit(SIGNALLED + signal)
}
