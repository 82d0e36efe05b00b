//! Serves connections, with limits, timeouts and an orderly shutdown.
//!
//! If all connections are in use, a new client gets a 503 response and is disconnected. A client that sends no request
//! in time is disconnected too. On shutdown, the server accepts no new connections and continues the requests in
//! progress. It cuts off requests that do not end in time.
//!
//! Without a timeout, a client that does not read its response would occupy memory and a permit forever. So
//! `WriteTimeout`, which uses the crate `tokio-io-timeout`, limits how long a write may wait for the client. The crate
//! `hyper` limits how long a client may take to send the head of a request. A response that is not written completely
//! counts as in progress, so a shutdown waits for it.

use std::borrow::Borrow;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_io_timeout::TimeoutStream;

use crate::limits::Limits;
use crate::log_limiter::LogLimiter;

/// Maximum size of a request's head, in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 100;

/// How long the server waits before it tries again, if the system could not accept a connection. A possible reason is
/// that no file handle is free.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Interval at which the server checks during shutdown whether a connection can be closed.
const IDLE_CHECK: Duration = Duration::from_millis(50);

/// How long the server reads and discards data after an invalid request, so that the client can read the error
/// response.
const LINGER: Duration = Duration::from_secs(1);

/// Response to a client that connects when all connections are in use.
const FULL_RESPONSE: &str = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
content-type: application/problem+json\r\ncontent-length: 125\r\n\r\n\
{\"type\":\"urn:epitome:busy\",\"title\":\"Service Unavailable\",\"status\":503,\"detail\":\"too many connections; try again in a second\"}";

/// Serves connections until `stop` becomes true. Then waits until the requests in progress have ended, for at most
/// `limits.shutdown_grace`.
pub async fn serve(
    listener: impl Borrow<TcpListener>,
    router: Router,
    limits: &Limits,
    stop: watch::Receiver<bool>,
) {
    let (permits, full_log) = (Arc::new(Semaphore::new(limits.connections)), LogLimiter::default());
    // Every connection has a clone of the sender. The receiver returns when all clones are dropped.
    let (connection_open, mut all_closed) = tokio::sync::mpsc::channel::<()>(1);
    let mut stop_signal = stop.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.borrow().accept() => accepted,
            () = wait_for_stop(&mut stop_signal) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                pause(&error).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            if let Some(refused) = full_log.record() {
                let limit = limits.connections;
                tracing::warn!(refused_connections = refused, limit, "all connections are in use");
            }
            tokio::spawn(refuse(stream));
            continue;
        };
        let (router, stop, connection_open) = (router.clone(), stop.clone(), connection_open.clone());
        let limits = limits.clone();
        tokio::spawn(async move {
            connection(stream, router, &limits, stop).await;
            drop((permit, connection_open));
        });
    }
    drop((listener, connection_open));
    if tokio::time::timeout(limits.shutdown_grace, all_closed.recv()).await.is_err() {
        let grace_seconds = limits.shutdown_grace.as_secs_f64();
        tracing::warn!(grace_seconds, "some requests did not end in time and are cut off");
    }
}

/// Waits until `stop` becomes true.
pub async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    // A dropped sender also means that the server shuts down.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn connection(stream: TcpStream, router: Router, limits: &Limits, mut stop: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    let in_progress = Arc::new(AtomicUsize::new(0));
    let stream = WriteTimeout::new(stream, limits.write_timeout, Arc::clone(&in_progress));
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS);
    let router = TowerToHyperService::new(router);
    let count = Arc::clone(&in_progress);
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(ConnectionRequests(Arc::clone(&count)));
        let (counted, response) = (InProgress::new(&count), router.call(request));
        async move {
            let response = response.await;
            drop(counted);
            response
        }
    });
    let mut serving = builder.serve_connection(TokioIo::new(stream), service);
    let ended = tokio::select! {
        ended = &mut serving => Some(ended),
        () = wait_for_stop(&mut stop) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            Pin::new(&mut serving).graceful_shutdown();
            tokio::select! {
                ended = &mut serving => ended,
                // Closes the connection, even if a part of a new request has arrived.
                () = idle(&in_progress) => return,
            }
        }
    };
    // An error ends only this connection. After an invalid request, the server reads what the client still sends. If
    // the server reset the connection instead, the client could not read the error response.
    if ended.is_err_and(|error| error.is_parse()) {
        let mut stream = serving.into_parts().io.into_inner();
        let _ = tokio::time::timeout(LINGER, tokio::io::copy(&mut stream, &mut tokio::io::sink())).await;
    }
}

/// Waits until four checks in a row find no request in progress on a connection. Until then, the last response is
/// written: it is written at once, unless it waits for the client, and a waiting write counts as in progress.
async fn idle(in_progress: &AtomicUsize) {
    let mut idle_checks = 0;
    while idle_checks < 4 {
        tokio::time::sleep(IDLE_CHECK).await;
        idle_checks = if in_progress.load(Ordering::Acquire) == 0 { idle_checks + 1 } else { 0 };
    }
}

async fn refuse(mut stream: TcpStream) {
    let response = async {
        let _ = stream.write_all(FULL_RESPONSE.as_bytes()).await;
        let _ = stream.shutdown().await;
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), response).await;
}

/// Ignores an error of a single connection. After any other error, waits a short time: the system may be out of
/// resources until other connections end.
async fn pause(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if !matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(ACCEPT_RETRY).await;
    }
}

/// A stream on which a write fails if the client reads nothing for the duration of the timeout.
pub(crate) struct WriteTimeout {
    stream: Pin<Box<TimeoutStream<TcpStream>>>,
    /// Set while a write waits for the client.
    pending_write: Option<InProgress>,
    /// Number of requests in progress on this connection. A pending write counts as one more request.
    count: Arc<AtomicUsize>,
}

/// Counts one request as in progress on its connection, until dropped.
pub struct InProgress(Arc<AtomicUsize>);

/// The number of requests in progress on a connection, as a request extension for handlers with long responses.
#[derive(Clone)]
pub struct ConnectionRequests(pub Arc<AtomicUsize>);

impl InProgress {
    /// Increments the count.
    pub fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl WriteTimeout {
    /// Wraps a stream with a write timeout.
    pub(crate) fn new(stream: TcpStream, timeout: Duration, count: Arc<AtomicUsize>) -> Self {
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(timeout));
        Self { stream: Box::pin(stream), pending_write: None, count }
    }

    /// Counts a write as in progress while it is pending. Returns `wrote` unchanged.
    fn count_pending<T>(&mut self, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &wrote {
            Poll::Ready(Ok(_)) => self.pending_write = None,
            Poll::Pending if self.pending_write.is_none() => {
                self.pending_write = Some(InProgress::new(&self.count));
            }
            // After a failed write, the connection ends, so its count is not needed any more.
            Poll::Pending | Poll::Ready(Err(_)) => {}
        }
        wrote
    }
}

impl AsyncRead for WriteTimeout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_read(context, buffer)
    }
}

impl AsyncWrite for WriteTimeout {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = self.stream.as_mut().poll_write(context, bytes);
        self.count_pending(wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = self.stream.as_mut().poll_write_vectored(context, pieces);
        self.count_pending(wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_to_surplus_connections_has_the_right_length() {
        let (head, body) = FULL_RESPONSE.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
    }
}

#[cfg(test)]
mod write_timeout_tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair(timeout: Duration) -> (WriteTimeout, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (WriteTimeout::new(listener.accept().await.unwrap().0, timeout, Arc::default()), client)
    }

    #[tokio::test]
    async fn a_write_fails_if_the_client_does_not_read() {
        let (mut server, client) = pair(Duration::from_millis(100)).await;
        let failed = loop {
            if let Err(failed) = server.write_all(&[0; 1 << 16]).await {
                break failed;
            }
        };
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert_eq!(server.count.load(Ordering::Acquire), 1, "a pending write is in progress");
        drop(client);
    }

    /// The timeout is for one wait, not for the whole response.
    #[tokio::test]
    async fn a_client_that_reads_slowly_gets_the_whole_response() {
        let (mut server, mut client) = pair(Duration::from_secs(20)).await;
        let writing = tokio::spawn(async move { server.write_all(&vec![0; 32 << 20]).await });
        let mut read = 0;
        while read < 32 << 20 {
            let mut some = vec![0; 4 << 20];
            read += client.read(&mut some).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(writing.await.unwrap().is_ok());
    }
}
