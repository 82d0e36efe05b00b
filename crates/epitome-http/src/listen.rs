//! Connections: so many at once, none that dawdles, and an orderly end.
//!
//! Whoever connects when all places are taken is told so in one breath and let go. Whoever sends no request in time is
//! let go too. When the server is told to end, no new connection is taken, requests under way are answered, and
//! whoever is not done in time is cut off.
//!
//! Whoever asks for much and reads nothing would keep the answer in memory, and its place, for as long as they like. Hyper bounds
//! how long a request may take to come in, `tokio-io-timeout` the way out; an answer that waits to be read is counted as in
//! progress, and an orderly end waits for it.

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
                tracing::warn!(refused, most = bounds.connections, "all connections are taken");
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

/// A stream that fails where nothing of what is written is taken for so long.
pub(crate) struct Stall {
    stream: Pin<Box<TimeoutStream<TcpStream>>>,
    waits: Option<UnderWay>,
    /// What is under way on this connection: whoever waits to be read is.
    count: Arc<AtomicUsize>,
}

/// Something that is under way on a connection, until it is dropped.
pub struct UnderWay(Arc<AtomicUsize>);

/// What is under way on a connection, for whoever answers at length.
#[derive(Clone)]
pub struct OnConnection(pub Arc<AtomicUsize>);

impl UnderWay {
    /// Counts it.
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
    /// Wraps a stream.
    pub(crate) fn new(stream: TcpStream, most: Duration, count: Arc<AtomicUsize>) -> Self {
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(most));
        Self { stream: Box::pin(stream), waits: None, count }
    }

    /// Passes on what became of a write, and counts it while it waits.
    fn counted<T>(&mut self, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &wrote {
            Poll::Ready(Ok(_)) => self.waits = None,
            Poll::Pending if self.waits.is_none() => self.waits = Some(UnderWay::new(&self.count)),
            // What failed ends the connection.
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
        assert_eq!(server.count.load(Ordering::Acquire), 1, "what waits to be read is under way");
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
