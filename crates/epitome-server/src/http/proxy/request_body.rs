//! Reads request bodies completely if memory is free. Otherwise streams them to the upstream.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::stream::unfold;
use http_body::Frame;
use http_body_util::StreamBody;
use sync_wrapper::SyncStream;
use tokio::time::{Instant, sleep};

use super::super::body::{Stop, next_chunk, read_limited};
use super::super::permits::Permit;
use super::super::prelude::*;
use super::upstream::timed_out;

/// How long a request waits for memory. If no memory becomes free, the request is forwarded unread. Such a request is
/// not shortened, and the provider may refuse it as too long.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(2);

/// A complete body, or the beginning of a body.
pub(super) enum ReceivedBody {
    Complete(BufferedBody),
    Partial {
        /// The bytes that were read.
        first: Bytes,
        rest: Body,
        /// Total length in bytes, if the client declared it.
        length: Option<u64>,
        /// Why the body was not read completely.
        reason: &'static str,
    },
}

/// A body in memory, and the memory reserved for it.
pub(super) struct BufferedBody {
    pub(super) bytes: Bytes,
    memory: Vec<Permit>,
}

impl BufferedBody {
    /// Reduces the reservation to the data that stays in memory until the response begins, which may take long: the
    /// received body, for a second attempt, and the changed body that is sent. `sent` is the size of the changed body
    /// in bytes.
    pub(super) fn shrink_reservation(&mut self, sent: usize, app: &App, workspace: &Arc<str>) {
        self.memory.clear();
        let needed = self.bytes.len().saturating_add(sent);
        self.memory.extend(app.permits.proxy_memory.reserve(workspace, needed));
    }

    /// Releases the body and the memory reserved for it, when no further attempt needs the body.
    pub(super) fn release(&mut self) {
        self.bytes = Bytes::new();
        self.memory.clear();
    }
}

/// Reads a body within `limits.body` and within the memory for proxied bodies.
pub(super) async fn receive(
    mut body: Body,
    app: &App,
    workspace: &Arc<str>,
) -> Result<ReceivedBody, Problem> {
    let limit = usize::try_from(app.engine.settings().limits.body).unwrap_or(usize::MAX);
    let length = http_body::Body::size_hint(&body).exact();
    let part = |first, rest, reason| Ok(ReceivedBody::Partial { first, rest, length, reason });
    if length.is_some_and(|length| length > limit as u64) {
        return part(Bytes::new(), body, "too_large");
    }
    let declared = length.and_then(|length| usize::try_from(length).ok());
    // The body is in memory up to three times: as received, as parsed messages, and as sent.
    let factor = 3;
    let (mut memory, pool) = (Vec::new(), &app.permits.proxy_memory);
    if let Some(declared) = declared {
        match pool.reserve_within(workspace, declared.saturating_mul(factor), MEMORY_TIMEOUT).await {
            Some(permit) => memory.push(permit),
            None => return part(Bytes::new(), body, "no_room"),
        }
    }
    let reserve = |size: usize| {
        let permit = if declared.is_none() { pool.reserve(workspace, size * factor) } else { None };
        let has_memory = declared.is_some() || permit.is_some();
        memory.extend(permit);
        has_memory
    };
    let (bytes, stop) = read_limited(&mut body, limit, declared.unwrap_or(0), &app.limits, reserve).await?;
    match stop {
        None => Ok(ReceivedBody::Complete(BufferedBody { bytes, memory })),
        Some(Stop::TooLarge) => part(bytes, body, "too_large"),
        Some(Stop::OutOfMemory) => part(bytes, body, "no_room"),
    }
}

/// Number of chunks of a body that were forwarded.
pub(super) type UploadProgress = Arc<AtomicU64>;

/// Returns a body that is streamed to the upstream: first the bytes already read, then the rest.
pub(super) fn upload(first: Bytes, rest: Body, silence: Duration) -> (reqwest::Body, UploadProgress) {
    let progress = UploadProgress::default();
    let state = (Some(first).filter(|first| !first.is_empty()), rest, Arc::clone(&progress));
    let chunks = unfold(state, move |(mut first, mut rest, progress)| async move {
        let next = match first.take() {
            Some(first) => Ok(Some(first)),
            None => next_chunk(&mut rest, Instant::now() + silence, silence).await,
        };
        progress.fetch_add(1, Ordering::Relaxed);
        let frame =
            next.map(|data| data.map(Frame::data)).map_err(|problem| io::Error::other(problem.detail));
        Some((frame.transpose()?, (first, rest, progress)))
    });
    // reqwest requires `Sync`. Only the owner polls the stream, so the wrapper is never contended.
    (reqwest::Body::wrap(StreamBody::new(SyncStream::new(chunks))), progress)
}

/// Waits until the response begins. Fails if, for the duration `silence`, no chunk of the request is uploaded and the
/// response does not begin.
pub(super) async fn await_response<T>(
    sending: impl Future<Output = Result<T, Problem>>,
    silence: Duration,
    progress: Option<UploadProgress>,
) -> Result<T, Problem> {
    let mut sending = std::pin::pin!(sending);
    let mut before = None;
    loop {
        tokio::select! {
            response = sending.as_mut() => return response,
            () = sleep(silence) => {
                let now = progress.as_ref().map(|progress| progress.load(Ordering::Relaxed));
                if now == before || now.is_none() {
                    return Err(timed_out());
                }
                before = now;
            }
        }
    }
}
