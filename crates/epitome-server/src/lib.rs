//! The program `epitome`: [`run`] is all of it, so that a program with formats of its own
//! ([`epitome::dialect::register`]) can be the same program with one more format.
//!
//! Parse, load, run, exit code: what was typed becomes settings once, then plain functions run. HTTP stands on the same
//! engine.

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

/// What a shell gives for a program ended by a signal.
const SIGNALLED: i32 = 128;

/// So many threads at most do what would keep others waiting: reads of the store, summaries by `local` and large bodies, four
/// each, and large contexts; what is over it waits its turn. Each thread keeps some memory of its own.
const MOST_BLOCKING: usize = 16;

/// Does what the arguments of this process say, and returns its exit code.
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

/// Has a server start once more, as the same process, with an allocator that gives back at once what is not used.
///
/// A command is over before that would matter, and is faster without. The allocator looks for it in the environment before
/// anything of ours runs, so there is no other way to say it; whoever sets it themselves is left alone.
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
    // It comes back only where it failed, and then the server takes more memory than it should.
    let _ = again.args(args).envs(SETTINGS).exec();
}

/// Runs it on a task of its own, so that Ctrl-C is heard even while the command waits for somebody to read
/// what it says.
fn run_command(asked: Asked, world: World, mut show: Show) -> ExitCode {
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = match threads.max_blocking_threads(MOST_BLOCKING).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let failure = Failure::Failed(format!("no threads can be started: {error}"));
            return ExitCode::from(show.end(&failure, None));
        }
    };
    let (ends_itself, counts) = (asked.ends_itself(), asked.counts());
    let command = runtime.spawn(commands::run(asked, world, show));
    if counts {
        // This thread only waits from here on. The vocabulary is read meanwhile, which takes longer than anything else.
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

/// Gives back what is held, removes what is half done, and ends. What was kept is kept, and the rest is as after
/// a crash, never there.
pub(crate) async fn end(signal: i32) -> ! {
    database::give_up().await;
    let line = leftovers::interrupted();
    let mut errors = stderr();
    if signal == INTERRUPT {
        // The terminal wrote `^C` where the line stood.
        let _ = writeln!(errors);
    }
    if let Some(line) = line {
        let _ = writeln!(errors, "{line}");
    }
    std::process::exit(SIGNALLED + signal)
}
