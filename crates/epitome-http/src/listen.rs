//! Connections: so many at once, none that dawdles, and an orderly end.
//!
//! Whoever connects when all places are taken is told so in one breath and let go. Whoever sends no request in time is
//! let go too. When the server is told to end, no new connection is taken, requests under way are answered, and
//! whoever is not done in time is cut off.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::bounds::Bounds;
use crate::stall::{OnConnection, Stall, UnderWay};
use crate::state::HttpState;

/// So many bytes a request's first lines may have.
const MOST_BUFFERED: usize = 64 << 10;

/// So many headers a request may have.
const MOST_HEADERS: usize = 100;

/// Where no more connections can be had for a moment, it is tried again after this.
const OUT_OF_FILES: Duration = Duration::from_millis(100);

/// So often it is looked whether a connection can be closed.
const BREATH: Duration = Duration::from_millis(50);

/// For so long what is sent after something that is no HTTP is read and dropped.
const LINGER: Duration = Duration::from_secs(1);

/// What somebody is told who comes when all places are taken.
const FULL: &str = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
content-type: application/problem+json\r\ncontent-length: 125\r\n\r\n\
{\"type\":\"urn:epitome:busy\",\"title\":\"Service Unavailable\",\"status\":503,\"detail\":\"too many connections; try again in a second\"}";

/// Answers connections until told to stop, then lets those under way finish, for as long as they may take at most.
pub async fn serve(listener: TcpListener, router: Router, app: Arc<HttpState>) {
    let stop = app.stopping.clone();
    let places = Arc::new(Semaphore::new(app.bounds.connections));
    let (held, mut all_gone) = tokio::sync::mpsc::channel::<()>(1);
    let mut told = stop.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = heard(&mut told) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                pause(&error).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            if let Some(refused) = app.crowd.happened() {
                tracing::warn!(refused, most = app.bounds.connections, "all connections are taken");
            }
            tokio::spawn(refuse(stream));
            continue;
        };
        let (router, told, held) = (router.clone(), stop.clone(), held.clone());
        let bounds = app.bounds.clone();
        tokio::spawn(async move {
            connection(stream, router, &bounds, told).await;
            drop((place, held));
        });
    }
    drop((listener, held));
    if tokio::time::timeout(app.bounds.grace, all_gone.recv()).await.is_err() {
        tracing::warn!("some requests were not answered in time, and are cut off");
    }
}

/// Waits until told to stop.
pub async fn heard(stop: &mut watch::Receiver<bool>) {
    // Whoever could have told is gone: that is the end too.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn connection(stream: TcpStream, router: Router, bounds: &Bounds, mut stop: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    let under_way = Arc::new(AtomicUsize::new(0));
    let stream = Stall::new(stream, bounds.unread, Arc::clone(&under_way));
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.headers)
        .max_buf_size(MOST_BUFFERED)
        .max_headers(MOST_HEADERS);
    let router = TowerToHyperService::new(router);
    let count = Arc::clone(&under_way);
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(OnConnection(Arc::clone(&count)));
        let (counted, answer) = (UnderWay::new(&count), router.call(request));
        async move {
            let answer = answer.await;
            drop(counted);
            answer
        }
    });
    let mut serving = builder.serve_connection(TokioIo::new(stream), service);
    let ended = tokio::select! {
        ended = &mut serving => Some(ended),
        () = heard(&mut stop) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            Pin::new(&mut serving).graceful_shutdown();
            tokio::select! {
                ended = &mut serving => ended,
                // Half a request is none.
                () = quiet(&under_way) => return,
            }
        }
    };
    // What goes wrong on a connection is its end, and nobody else's matter. Whoever sent what is no HTTP was told so, and
    // would not come to read it if the connection broke under what they still send.
    if ended.is_err_and(|error| error.is_parse()) {
        let mut stream = serving.into_parts().io.into_inner();
        let _ = tokio::time::timeout(LINGER, tokio::io::copy(&mut stream, &mut tokio::io::sink())).await;
    }
}

/// Waits until nothing is under way on a connection, and has not been for a breath: an answer goes out at once, unless
/// nobody reads it.
async fn quiet(under_way: &AtomicUsize) {
    let mut still = 0;
    while still < 4 {
        tokio::time::sleep(BREATH).await;
        still = if under_way.load(Ordering::Acquire) == 0 { still + 1 } else { 0 };
    }
}

async fn refuse(mut stream: TcpStream) {
    let telling = async {
        let _ = stream.write_all(FULL.as_bytes()).await;
        let _ = stream.shutdown().await;
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), telling).await;
}

/// What a single connection did wrong is nothing; where the system has no more to give, others get time to end.
async fn pause(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if !matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        tracing::warn!(%error, "no connection could be taken");
        tokio::time::sleep(OUT_OF_FILES).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_when_all_places_are_taken_is_as_long_as_it_says() {
        let (head, body) = FULL.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
    }
}
