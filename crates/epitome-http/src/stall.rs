//! A connection whose other side must read what it is sent.
//!
//! Whoever asks for much and reads nothing would otherwise keep the answer in memory, and its place, for as long as
//! they like. Hyper bounds how long a request may take to come in; `tokio-io-timeout` does the same for the way out. What is
//! left here is to count: an answer that waits to be read is in progress, and an orderly end waits for it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_io_timeout::TimeoutStream;

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
