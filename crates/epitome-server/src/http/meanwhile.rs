//! The address a server listens on, and what is answered there before the database is open: that the process lives, and that
//! it is not ready.
//!
//! A database that is there is open at once, and whoever connects meanwhile waits that little. Only where it takes longer
//! is anything said here.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use epitome_http::problem::Problem;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::operations;
use crate::failure::Failure;

/// So long whoever connects waits.
const AT_FIRST: Duration = Duration::from_secs(1);

/// So many are answered at a time; others wait.
const AT_ONCE: usize = 64;

/// Whoever sends no request in this time is let go.
const DAWDLES: Duration = Duration::from_secs(5);

/// Answers, one request for each connection, for as long as it is waited for.
pub(crate) async fn meanwhile(listener: &TcpListener) -> Infallible {
    tokio::time::sleep(AT_FIRST).await;
    let router = Router::new().route("/healthz", get(operations::healthz)).fallback(not_yet);
    let places = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { continue };
        let Ok((stream, _)) = listener.accept().await else {
            // Where the system has no more to give, others get time to end.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let router = router.clone();
        tokio::spawn(async move {
            let _ = tokio::time::timeout(DAWDLES, answer(stream, router)).await;
            drop(place);
        });
    }
}

async fn not_yet() -> Response {
    Problem::busy("the store is not open yet; try again").into_response()
}

async fn answer(stream: TcpStream, router: Router) {
    let answering = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(DAWDLES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // What goes wrong on a connection is its end, and nobody else's matter.
    let _ = answering.await;
}

/// Listens there, or says in one line why not.
pub(crate) async fn bind(address: &str) -> Result<TcpListener, Failure> {
    use io::ErrorKind::{AddrInUse, AddrNotAvailable, InvalidInput, PermissionDenied};
    TcpListener::bind(address).await.map_err(|error| {
        let why = match error.kind() {
            InvalidInput => {
                return Failure::Setting(format!(
                    "--listen {address}: {error}; say ADDRESS:PORT, such as 127.0.0.1:7878"
                ));
            }
            AddrInUse => "another program listens there; end it, or choose another port".to_owned(),
            PermissionDenied => format!("{error}; ports from 1024 on are free for everybody"),
            AddrNotAvailable => format!("{error}; it is no address of this machine"),
            _ => error.to_string(),
        };
        Failure::Failed(format!("cannot listen on {address}: {why}"))
    })
}
