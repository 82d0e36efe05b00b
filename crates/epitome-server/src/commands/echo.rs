//! `epitome bench --echo`: the server that `epitome bench --server` compares contexts with.

use std::sync::Arc;

use epitome::Engine;
use epitome_http::{Bounds, HttpState, Keys};
use tokio::sync::watch;

use super::prelude::*;
use crate::http;

/// Serves until it is killed. Its engine is there and never asked.
pub(super) async fn run(show: &mut Show) -> Result<(), Failure> {
    let listener = http::bind("127.0.0.1:0").await?;
    let failed = |error| Failure::Failed(format!("cannot listen: {error}"));
    let address = listener.local_addr().map_err(failed)?;
    epitome_http::figures::count();
    let (_stop, stopping) = watch::channel(false);
    let engine = Engine::builder().workers(0).memory().await?;
    let app = HttpState::new(engine, Keys::Off { loopback: true }, Bounds::default(), stopping);
    show.line(format_args!("listening on http://{address}"))?;
    show.flush()?;
    epitome_http::listen::serve(listener, http::echo(Arc::clone(&app)), app).await;
    Ok(())
}
