//! Streams a provider's response back to the client without delay, and reads token counts from it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use epitome::condenser::ModelLoan;
use epitome::dialect::UsageListener;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::super::listen::InProgress;
use super::super::permits::Permit;
use super::super::prelude::*;
use super::account::UsageRecord;

/// The objects that a request needs until its response is sent: its permit, the mark that its connection is in use, and
/// the loan of the caller's model.
pub(super) type RequestPermits = (Permit, Option<InProgress>, Option<Arc<ModelLoan>>);

/// The body of a response. If the body is dropped before its end, the connection to the provider is closed.
pub(super) struct Relay {
    body: Body,
    silence: Duration,
    deadline: Pin<Box<Sleep>>,
    usage: Option<(UsageListener, UsageRecord)>,
    /// Released after the last chunk is sent.
    _permits: RequestPermits,
}

impl Relay {
    /// Wraps a response. `permits` are released only when the whole response is sent.
    pub(super) fn new(
        body: Body,
        headers: &HeaderMap,
        silence: Duration,
        record: Option<UsageRecord>,
        permits: RequestPermits,
    ) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        // The token counts in a compressed response cannot be read.
        let plain =
            text(header::CONTENT_ENCODING).is_none_or(|coding| coding.eq_ignore_ascii_case("identity"));
        let content_type = text(header::CONTENT_TYPE).filter(|_| plain);
        let usage =
            record.map(|record| (UsageListener::new(record.conversation.dialect, content_type), record));
        Self { body, silence, deadline: Box::pin(sleep(silence)), usage, _permits: permits }
    }

    /// Records the usage. Only the first call has an effect.
    fn end(&mut self, complete: bool) {
        if let Some((listener, record)) = self.usage.take() {
            record.close(&listener.finish(), complete);
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
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(frame) => {
                let end = Instant::now() + this.silence;
                this.deadline.as_mut().reset(end);
                match &frame {
                    None => this.end(true),
                    Some(Err(_)) => this.end(false),
                    Some(Ok(frame)) => {
                        if let (Some((listener, _)), Some(data)) = (&mut this.usage, frame.data_ref()) {
                            listener.push(data);
                        }
                        // If the response declares its length, the body is not polled again after the last chunk.
                        if this.body.is_end_stream() {
                            this.end(true);
                        }
                    }
                }
                Poll::Ready(frame)
            }
            Poll::Pending => {
                ready!(this.deadline.as_mut().poll(context));
                this.end(false);
                Poll::Ready(Some(Err(axum::Error::new(io::Error::from(io::ErrorKind::TimedOut)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Records the usage if the client has disconnected, or if the response was empty.
        self.end(false);
    }
}
