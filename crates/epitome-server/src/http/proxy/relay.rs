//! An answer on its way back: each piece goes on as it comes, and is listened to in passing.

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

/// What belongs to a request as long as it is open: its place, its connection's, and the model it lends.
pub(super) type Kept = (Share, Option<UnderWay>, Option<Arc<Lent>>);

/// The body of an answer. When it is dropped, the connection to the provider is closed, unless it came to its end.
pub(super) struct Relay {
    pieces: Body,
    silence: Duration,
    until: Pin<Box<Sleep>>,
    heard: Option<(Listener, Account)>,
    /// Kept until the last piece is sent.
    _held: Kept,
}

impl Relay {
    /// What is `held` is given back only when all of it is sent.
    pub(super) fn new(
        pieces: Body,
        headers: &HeaderMap,
        silence: Duration,
        account: Option<Account>,
        held: Kept,
    ) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        // What is packed is not understood.
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
                        // Nobody asks again after the last piece of a known length.
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
        // Whoever listened has gone, or the answer was empty.
        self.end(false);
    }
}
