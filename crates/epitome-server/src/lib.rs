//! The program `epitome` as a library: [`run`] runs the whole program. Another program can register its own message
//! format with [`epitome::dialect::register`] and then call [`run`]. That program is then `epitome` with one more
//! format.
//!
//! [`run`] parses the command line, loads the settings, runs the function of the command and returns the exit code. The
//! HTTP server is one of the commands: `epitome serve`.

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

/// If a signal ends the program, the exit code is this number plus the signal's number, as in shells.
const SIGNAL_EXIT_BASE: i32 = 128;

/// Maximum number of threads for blocking work: four for store reads, four for summaries by `local`, four for large
/// bodies, and the rest for large contexts. If all threads are busy, more work waits in a queue. The number is limited
/// because each thread retains some memory.
const MAX_BLOCKING_THREADS: usize = 16;

/// Runs the command that the arguments of this process name. Returns the exit code.
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

/// Restarts `epitome serve` in the same process, with settings that make the allocator return unused memory to the
/// system at once. Other commands are not restarted: they end soon, and they run faster with the default settings.
///
/// The allocator reads its settings from environment variables before any code of this program runs, so only a restart
/// can change the settings. If the environment already sets one of the variables, this function does nothing. The
/// restarted process therefore does not restart again.
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
    // `exec` returns only if it fails. The server then runs without the restart, and uses more memory.
    let _ = restart.args(args).envs(SETTINGS).exec();
}

/// Runs the command in its own task, so that Ctrl-C works even while a write to the output blocks the command.
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
        // From here on, this thread only waits for the command. Meanwhile the thread loads the tokenizer's vocabulary,
        // which is the slowest part of the command.
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

/// Releases leases, removes unfinished files, and exits. Committed data stays. Uncommitted data is lost, as after a
/// crash.
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
