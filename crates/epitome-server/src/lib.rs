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
mod times;

use std::io::{Write, stderr};
use std::process::ExitCode;

use commands::CommandLine;
use epitome::rules::tokens::{Counter, Encoding};
use epitome_terminal::failure::Failure;
use epitome_terminal::show::Show;
use epitome_terminal::{cleanup, failure, show, suggest};
use settings::Environment;
use signals::{INTERRUPT, Signals};

/// Added to a signal's number for the exit code, as shells do.
const SIGNAL_EXIT_BASE: i32 = 128;

/// Maximum number of threads for blocking work: store reads, summaries by `local` and large bodies (four each), and large
/// contexts. More work waits in a queue. The number is limited because each thread retains some memory.
const MAX_BLOCKING_THREADS: usize = 16;

/// Runs the command that this process's arguments name, and returns the exit code.
pub fn run() -> ExitCode {
    let environment = Environment::of_process();
    let line = commands::parse(std::env::args_os());
    let globals = line.as_ref().map(|line| line.globals.clone()).unwrap_or_default();
    let mut show = Show::process(globals.color, globals.json, &|name| environment.text(name));
    #[cfg(unix)]
    if line.as_ref().is_ok_and(CommandLine::handles_signals) {
        restart_with_memory_release();
    }
    match line {
        Ok(line) => run_command(line, environment, show),
        Err(failure) => ExitCode::from(show.end(&failure, None)),
    }
}

/// Restarts a server as the same process, with an allocator that returns unused memory to the system at once.
///
/// Other commands end before that would matter, and are faster without it. The allocator reads these variables before any
/// code of this program runs, so only a restart can set them. If the environment already sets one of them, nothing changes.
#[cfg(unix)]
fn restart_with_memory_release() {
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
    let mut restart = std::process::Command::new(program);
    args.next().iter().for_each(|name| {
        restart.arg0(name);
    });
    // `exec` returns only if it fails. Then the server runs anyway, and uses more memory.
    let _ = restart.args(args).envs(SETTINGS).exec();
}

/// Runs the command on its own task, so that Ctrl-C works even while the command is blocked writing its output.
fn run_command(line: CommandLine, environment: Environment, mut show: Show) -> ExitCode {
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = match threads.max_blocking_threads(MAX_BLOCKING_THREADS).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let failure = Failure::Failed(format!("cannot start threads: {error}"));
            return ExitCode::from(show.end(&failure, None));
        }
    };
    let (handles_signals, counts_tokens) = (line.handles_signals(), line.counts_tokens());
    let command = runtime.spawn(commands::run(line, environment, show));
    if counts_tokens {
        // This thread only waits from here on, so it loads the tokenizer's vocabulary: the slowest part of the command.
        let _ = Counter::new(Encoding::default());
    }
    let code = runtime.block_on(async {
        tokio::select! {
            code = command => code.unwrap_or(1),
            signal = async { Signals::listen().next().await }, if !handles_signals => end(signal).await,
        }
    });
    runtime.shutdown_background();
    ExitCode::from(code)
}

/// Releases leases, removes unfinished files, and exits. Committed data stays; the rest is lost, as after a crash.
pub(crate) async fn end(signal: i32) -> ! {
    database::abort().await;
    let line = cleanup::run();
    let mut errors = stderr();
    if signal == INTERRUPT {
        // Starts a new line, because the terminal has printed `^C`.
        let _ = writeln!(errors);
    }
    if let Some(line) = line {
        let _ = writeln!(errors, "{line}");
    }
    std::process::exit(SIGNAL_EXIT_BASE + signal)
}
