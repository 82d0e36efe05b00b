//! Binds the server's address, and answers requests until the database is open. The answers say that the process is
//! alive, but not ready.
//!
//! An existing database usually opens at once. Clients that connect before the database is open wait. This module
//! answers their requests only if opening takes longer than [`GRACE_PERIOD`].

use std::io;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use epitome_http::listen::serve;
use epitome_http::{Limits, Problem};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::operations;
use crate::failure::Failure;

/// How long clients wait for the database before this module answers their requests.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 1_024;

/// Timeout for a client to send its request and to read the response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Answers requests, one per connection, until the caller stops polling this future.
pub(crate) async fn answer_until_open(listener: &TcpListener) {
    tokio::time::sleep(GRACE_PERIOD).await;
    let router = Router::new().route("/healthz", get(operations::healthz)).fallback(not_open_yet);
    let (open, stop) = watch::channel(false);
    // Never drops the sender, because that would stop the open connections. Each connection gets its response or ends
    // at its timeout, also after the database is open.
    std::mem::forget(open);
    let limits = Limits {
        connections: MAX_CONNECTIONS,
        header_timeout: CLIENT_TIMEOUT,
        write_timeout: CLIENT_TIMEOUT,
        ..Limits::default()
    };
    serve(listener, router.layer(map_response(close_connection)), &limits, stop).await;
}

async fn not_open_yet() -> Response {
    Problem::busy("the store is not open yet; try again").into_response()
}

/// Closes the connection after the response, so that the real server answers the next request.
async fn close_connection(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Binds the address. The error explains in one line why binding failed.
pub(crate) async fn bind(address: &str) -> Result<TcpListener, Failure> {
    use io::ErrorKind::{AddrInUse, AddrNotAvailable, InvalidInput, PermissionDenied};
    TcpListener::bind(address).await.map_err(|error| {
        let why = match error.kind() {
            InvalidInput => {
                return Failure::Setting(format!(
                    "--listen {address}: {error}; expected ADDRESS:PORT, such as 127.0.0.1:7878"
                ));
            }
            AddrInUse => "another program listens there; stop it, or choose another port".to_owned(),
            PermissionDenied => format!("{error}; ports from 1024 on need no special rights"),
            AddrNotAvailable => format!("{error}; this machine does not have this address"),
            _ => error.to_string(),
        };
        Failure::Failed(format!("cannot listen on {address}: {why}"))
    })
}
