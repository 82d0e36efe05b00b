//! `epitome serve`: the HTTP API.

use std::net::SocketAddr;
use std::sync::Arc;

use epitome::core::tokens::Counter;
use tokio::sync::watch;

use crate::database::Database;
use crate::failure::Failure;
use crate::http::{self, App, Bounds, Keys};
use crate::log;
use crate::settings::Loaded;
use crate::show::Show;
use crate::signals::Signals;

const EXAMPLES: &str = "\
Examples:
  epitome serve                                 on http://127.0.0.1:7878, no keys needed
  epitome serve --listen 127.0.0.1:0            on any free port; the address is printed

What is stored is what every other command sees: both may be used at once. SIGTERM and Ctrl-C end it in order:
requests under way are answered, summaries under way finished or handed back.";

/// Where it listens unless told otherwise.
pub(crate) const LISTEN: &str = "127.0.0.1:7878";

/// Serves the HTTP API
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = LISTEN)]
    listen: String,
    /// How much is logged on standard error: error, warn, info, debug
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = log::Level::Info, hide_possible_values = true)]
    log_level: log::Level,
    /// In which form: text, json, or auto (text on a terminal)
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = log::Format::Auto, hide_possible_values = true)]
    log_format: log::Format,
    /// Sets one of the server's bounds, for tests
    #[arg(long, value_name = "NAME=NUMBER", hide = true)]
    bound: Vec<String>,
}

pub(super) async fn run(args: &Args, loaded: &Loaded, show: &mut Show) -> Result<(), Failure> {
    let mut signals = Signals::listen();
    let mut bounds = Bounds::default();
    for set in &args.bound {
        bounds = bounds.with(set).map_err(|wrong| Failure::Misused(format!("--bound {set}: {wrong}")))?;
    }
    // The address first: where it cannot be had, nothing else is touched.
    let listener = http::bind(&args.listen).await?;
    let address: SocketAddr =
        listener.local_addr().map_err(|error| Failure::Failed(format!("cannot listen: {error}")))?;
    log::start(args.log_level, args.log_format);
    http::count();
    let keys = if address.ip().is_loopback() { Keys::Off { loopback: true } } else { Keys::Required };
    tracing::info!(%address, keys = keys.in_a_word(), version = env!("CARGO_PKG_VERSION"), "starting");
    let database = tokio::select! {
        database = Database::serving(loaded) => database?,
        _ = signals.next() => return Ok(()),
    };
    let (stop, stopping) = watch::channel(false);
    let app = App::new(database.engine.clone(), keys, bounds, stopping);
    let router = http::router(Arc::clone(&app));
    show.line(format_args!("listening on http://{address}"))?;
    show.flush()?;
    tracing::info!("ready");
    // The first message would wait for the vocabulary to be read.
    let encoding = loaded.settings.encoding;
    tokio::task::spawn_blocking(move || Counter::new(encoding).text("ready"));
    let serving = async {
        http::serve(listener, router, app).await;
        database.close().await;
    };
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        // It ends only when it is told to.
        () = serving.as_mut() => return Ok(()),
        signal = signals.next() => {
            tracing::info!(signal, "stopping");
            stop.send_replace(true);
        }
    }
    tokio::select! {
        () = serving => {}
        // Whoever says it twice means now: what is held is given back, and nothing else is waited for.
        signal = signals.next() => {
            tracing::warn!(signal, "told again; ending at once");
            crate::end(signal).await;
        }
    }
    tracing::info!("stopped");
    Ok(())
}
