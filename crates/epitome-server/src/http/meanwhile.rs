//! The address a server listens on, and what is answered there before the database is open: that the process lives, and that
//! it is not ready.
//!
//! A database that is there is open at once, and whoever connects meanwhile waits that little. Only where it takes longer
//! is anything said here.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use epitome_http::listen::serve;
use epitome_http::{Bounds, Problem};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::operations;
use crate::failure::Failure;

/// So long whoever connects waits.
const AT_FIRST: Duration = Duration::from_secs(1);

/// So many are answered at a time.
const AT_ONCE: usize = 1_024;

/// A client who sends no request in this time is let go.
const DAWDLES: Duration = Duration::from_secs(5);

/// Answers, one request for each connection, for as long as it is waited for.
pub(crate) async fn meanwhile(listener: &TcpListener) {
    tokio::time::sleep(AT_FIRST).await;
    let router = Router::new().route("/healthz", get(operations::healthz)).fallback(not_yet);
    let (open, stop) = watch::channel(false);
    // Nothing tells connections to stop when the store is open: those that are there get their answer, or dawdle.
    std::mem::forget(open);
    let bounds = Bounds { connections: AT_ONCE, headers: DAWDLES, unread: DAWDLES, ..Bounds::default() };
    serve(listener, router.layer(map_response(last)), &bounds, stop).await;
}

async fn not_yet() -> Response {
    Problem::busy("the store is not open yet; try again").into_response()
}

/// The connection is closed behind it: others answer the next request.
async fn last(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
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
