//! The echo server: a server without engine work, as the baseline of the HTTP benchmarks.
//!
//! The echo server handles connections and runs middleware like the real server. So the time difference between the two
//! servers is the work of the engine and the serialization of the engine's result.

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::http::header;
use axum::routing::{get, post};
use bytes::Bytes;
use epitome::Engine;
use epitome_http::middleware::wrap;
use epitome_http::{HttpState, Keys, Limits, listen, metrics};
use epitome_terminal::failure::Failure;
use epitome_terminal::show::Show;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Maximum size of a response, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// `epitome bench --echo`: serves requests until the process is killed. [`HttpState`] needs an engine, but no request
/// uses this engine.
pub(super) async fn run(show: &mut Show) -> Result<(), Failure> {
    let failed = |error| Failure::Failed(format!("cannot listen: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    metrics::install();
    let (_stop, stopping) = watch::channel(false);
    let engine = Engine::builder().workers(0).memory().await?;
    let app = HttpState::new(engine, Keys::Off { loopback: true }, Limits::default(), stopping);
    show.line(format_args!("listening on http://{address}"))?;
    show.flush()?;
    let (limits, stop) = (app.limits.clone(), app.stopping.clone());
    listen::serve(listener, router(app), &limits, stop).await;
    Ok(())
}

/// `POST /` returns the request body; `GET /SIZE` returns `SIZE` bytes.
fn router(app: Arc<HttpState>) -> Router {
    let json = |body: Bytes| ([(header::CONTENT_TYPE, "application/json")], body);
    let all: Bytes = vec![b' '; MAX_BYTES].into();
    let send = move |Path(size): Path<usize>| {
        let body = all.slice(..size.min(MAX_BYTES));
        async move { json(body) }
    };
    let echo = move |body: Bytes| async move { json(body) };
    let router = Router::new().route("/", post(echo)).route("/{size}", get(send));
    wrap(router, Router::new(), app, &[])
}
