//! A connection whose other side must read what it is sent.
//!
//! Whoever asks for much and reads nothing would otherwise keep the answer in memory, and its place, for as long as
//! they like. Hyper bounds how long a request may take to come in; this is the same for the way out.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// A stream that fails where nothing of what is written is taken for so long.
pub(super) struct Stall {
    stream: TcpStream,
    most: Duration,
    /// Runs while something waits to be taken. Made when that first happens: most are read at once.
    until: Option<Pin<Box<Sleep>>>,
    waits: Option<UnderWay>,
    /// What is under way on this connection: whoever waits to be read is.
    count: Arc<AtomicUsize>,
}

/// Something that is under way on a connection, until it is dropped.
pub(super) struct UnderWay(Arc<AtomicUsize>);

/// What is under way on a connection, for whoever answers at length.
#[derive(Clone)]
pub(super) struct OnConnection(pub(super) Arc<AtomicUsize>);

impl UnderWay {
    pub(super) fn new(count: &Arc<AtomicUsize>) -> Self {
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
    pub(super) fn new(stream: TcpStream, most: Duration, count: Arc<AtomicUsize>) -> Self {
        Self { stream, most, until: None, waits: None, count }
    }

    /// Passes on what became of a write, and sees to it that waiting has an end.
    fn within<T>(&mut self, context: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.waits = None;
            return wrote;
        }
        let end = Instant::now() + self.most;
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(self.most)));
        if self.waits.is_none() {
            self.waits = Some(UnderWay::new(&self.count));
            until.as_mut().reset(end);
        }
        ready!(until.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Stall {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stall {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within(context, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.within(context, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
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
