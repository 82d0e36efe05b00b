//! Serves connections, with limits, timeouts and an orderly shutdown.
//!
//! At the connection limit, a new client gets a 503 response and is disconnected. A client that sends no request in time is
//! disconnected too. On shutdown, the server accepts no new connections, answers requests in progress, and cuts off those
//! that do not end in time.
//!
//! A client that requests much and reads nothing could hold the response in memory, and its permit, without end. Hyper
//! limits how long a request may take to arrive; `tokio-io-timeout` limits how long a response may wait to be read. A
//! response that waits to be read counts as in progress, so a shutdown waits for it.

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

use crate::bounds::Bounds;
use crate::seldom::Seldom;

/// Maximum size of a request's head, in bytes.
const MOST_BUFFERED: usize = 64 << 10;

/// Maximum number of headers of a request.
const MOST_HEADERS: usize = 100;

/// How long to wait after the system could not accept a connection, for lack of file handles for example.
const OUT_OF_FILES: Duration = Duration::from_millis(100);

/// How often to check whether a connection can be closed during shutdown.
const BREATH: Duration = Duration::from_millis(50);

/// How long to read and discard what a client sends after an invalid request, so that it can read the error.
const LINGER: Duration = Duration::from_secs(1);

/// Response to a client that connects when all connections are in use.
const FULL: &str = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
content-type: application/problem+json\r\ncontent-length: 125\r\n\r\n\
{\"type\":\"urn:epitome:busy\",\"title\":\"Service Unavailable\",\"status\":503,\"detail\":\"too many connections; try again in a second\"}";

/// Serves connections until `stop` is sent. Then lets requests in progress finish, within the grace period.
pub async fn serve(
    listener: impl Borrow<TcpListener>,
    router: Router,
    bounds: &Bounds,
    stop: watch::Receiver<bool>,
) {
    let (places, crowd) = (Arc::new(Semaphore::new(bounds.connections)), Seldom::default());
    let (held, mut all_gone) = tokio::sync::mpsc::channel::<()>(1);
    let mut told = stop.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.borrow().accept() => accepted,
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
            if let Some(refused) = crowd.happened() {
                tracing::warn!(refused, most = bounds.connections, "all connections are in use");
            }
            tokio::spawn(refuse(stream));
            continue;
        };
        let (router, told, held) = (router.clone(), stop.clone(), held.clone());
        let bounds = bounds.clone();
        tokio::spawn(async move {
            connection(stream, router, &bounds, told).await;
            drop((place, held));
        });
    }
    drop((listener, held));
    if tokio::time::timeout(bounds.grace, all_gone.recv()).await.is_err() {
        tracing::warn!("some requests did not end in time and are cut off");
    }
}

/// Waits until `stop` is sent.
pub async fn heard(stop: &mut watch::Receiver<bool>) {
    // A dropped sender means shutdown too.
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
                // Closes the connection, also if a request has arrived only in part.
                () = quiet(&under_way) => return,
            }
        }
    };
    // An error ends only this connection. After an invalid request, reads the rest: if the connection were reset while the
    // client still sends, the client could not read the error response.
    if ended.is_err_and(|error| error.is_parse()) {
        let mut stream = serving.into_parts().io.into_inner();
        let _ = tokio::time::timeout(LINGER, tokio::io::copy(&mut stream, &mut tokio::io::sink())).await;
    }
}

/// Waits until a connection has had nothing in progress for four checks. A response is written at once, unless the client
/// does not read.
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

/// Ignores errors of a single connection. If the system is out of resources, waits for other connections to end.
async fn pause(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if !matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(OUT_OF_FILES).await;
    }
}

/// A stream that fails if the client reads nothing for the timeout.
pub(crate) struct Stall {
    stream: Pin<Box<TimeoutStream<TcpStream>>>,
    waits: Option<UnderWay>,
    /// Number of requests in progress on this connection. A response that waits to be read counts.
    count: Arc<AtomicUsize>,
}

/// Counts one request as in progress on its connection, until dropped.
pub struct UnderWay(Arc<AtomicUsize>);

/// The number of requests in progress on a connection, as a request extension for handlers with long responses.
#[derive(Clone)]
pub struct OnConnection(pub Arc<AtomicUsize>);

impl UnderWay {
    /// Increments the count.
    pub fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Stall {
    /// Wraps a stream with a write timeout.
    pub(crate) fn new(stream: TcpStream, most: Duration, count: Arc<AtomicUsize>) -> Self {
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(most));
        Self { stream: Box::pin(stream), waits: None, count }
    }

    /// Returns the result of a write. While the write waits, it counts as in progress.
    fn counted<T>(&mut self, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &wrote {
            Poll::Ready(Ok(_)) => self.waits = None,
            Poll::Pending if self.waits.is_none() => self.waits = Some(UnderWay::new(&self.count)),
            // A failed write ends the connection.
            Poll::Pending | Poll::Ready(Err(_)) => {}
        }
        wrote
    }
}

impl AsyncRead for Stall {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_read(context, buffer)
    }
}

impl AsyncWrite for Stall {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = self.stream.as_mut().poll_write(context, bytes);
        self.counted(wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = self.stream.as_mut().poll_write_vectored(context, pieces);
        self.counted(wrote)
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
    fn what_is_told_when_all_places_are_taken_is_as_long_as_it_says() {
        let (head, body) = FULL.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
    }
}

#[cfg(test)]
mod stall_tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair(most: Duration) -> (Stall, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Stall::new(listener.accept().await.unwrap().0, most, Arc::default()), client)
    }

    #[tokio::test]
    async fn whoever_does_not_read_is_not_waited_for_for_ever() {
        let (mut server, client) = pair(Duration::from_millis(100)).await;
        let failed = loop {
            if let Err(failed) = server.write_all(&[0; 1 << 16]).await {
                break failed;
            }
        };
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert_eq!(server.count.load(Ordering::Acquire), 1, "what waits to be read is in progress");
        drop(client);
    }

    /// Each of the waits is shorter than the most; together they are longer.
    #[tokio::test]
    async fn whoever_reads_slowly_is_waited_for() {
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
