//! `epitome serve`: the HTTP API.

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::database::Database;
use crate::failure::Failure;
use crate::http::{self, App, Keys};
use crate::settings::Loaded;
use crate::show::Show;

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
}

pub(super) async fn run(args: &Args, loaded: &Loaded, show: &mut Show) -> Result<(), Failure> {
    let listener = TcpListener::bind(&args.listen)
        .await
        .map_err(|error| Failure::Failed(format!("cannot listen on {}: {error}", args.listen)))?;
    let address: SocketAddr =
        listener.local_addr().map_err(|error| Failure::Failed(format!("cannot listen: {error}")))?;
    http::count();
    let database = Database::serving(loaded).await?;
    let (stop, stopping) = watch::channel(false);
    let keys = if address.ip().is_loopback() { Keys::Off { loopback: true } } else { Keys::Required };
    let app = App::new(database.engine.clone(), keys, stopping.clone());
    show.line(format_args!("listening on http://{address}"))?;
    show.flush()?;
    let serving = http::serve(listener, http::router(app), stopping, GRACE);
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        () = serving.as_mut() => {}
        _ = crate::told_to_end() => {
            stop.send_replace(true);
            serving.await;
        }
    }
    database.close().await;
    Ok(())
}

/// For so long requests under way may go on when it is told to end.
const GRACE: std::time::Duration = std::time::Duration::from_secs(10);
