//! Streams a provider's response back to the client without delay, and reads token counts from it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use epitome::condenser::Lent;
use epitome::dialect::Listener;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::super::listen::UnderWay;
use super::super::load::Share;
use super::super::prelude::*;
use super::account::Account;

/// What a request holds while it is open: its permit, the mark on its connection, and the caller's model.
pub(super) type Kept = (Share, Option<UnderWay>, Option<Arc<Lent>>);

/// The body of a response. If it is dropped before its end, the connection to the provider is closed.
pub(super) struct Relay {
    pieces: Body,
    silence: Duration,
    until: Pin<Box<Sleep>>,
    heard: Option<(Listener, Account)>,
    /// Released after the last piece is sent.
    _held: Kept,
}

impl Relay {
    /// Wraps a response. `held` is released only when all of the response is sent.
    pub(super) fn new(
        pieces: Body,
        headers: &HeaderMap,
        silence: Duration,
        account: Option<Account>,
        held: Kept,
    ) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        // A compressed response cannot be read for token counts.
        let plain =
            text(header::CONTENT_ENCODING).is_none_or(|coding| coding.eq_ignore_ascii_case("identity"));
        let kind = text(header::CONTENT_TYPE).filter(|_| plain);
        let heard = account.map(|account| (Listener::new(account.known.dialect, kind), account));
        Self { pieces, silence, until: Box::pin(sleep(silence)), heard, _held: held }
    }

    fn end(&mut self, whole: bool) {
        if let Some((listener, account)) = self.heard.take() {
            account.close(&listener.end(), whole);
        }
    }
}

impl http_body::Body for Relay {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        match Pin::new(&mut this.pieces).poll_frame(context) {
            Poll::Ready(frame) => {
                let end = Instant::now() + this.silence;
                this.until.as_mut().reset(end);
                match &frame {
                    None => this.end(true),
                    Some(Err(_)) => this.end(false),
                    Some(Ok(frame)) => {
                        if let (Some((listener, _)), Some(data)) = (&mut this.heard, frame.data_ref()) {
                            listener.hear(data);
                        }
                        // With a declared length, the body is not polled again after the last piece.
                        if this.pieces.is_end_stream() {
                            this.end(true);
                        }
                    }
                }
                Poll::Ready(frame)
            }
            Poll::Pending => {
                ready!(this.until.as_mut().poll(context));
                this.end(false);
                Poll::Ready(Some(Err(axum::Error::new(io::Error::from(io::ErrorKind::TimedOut)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.pieces.size_hint()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // The client has disconnected, or the response was empty.
        self.end(false);
    }
}
