//! Reads request bodies: completely if memory is free; otherwise streams them to the upstream.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::stream::unfold;
use http_body::Frame;
use http_body_util::StreamBody;
use sync_wrapper::SyncStream;
use tokio::time::{Instant, sleep};

use super::super::body::{Stop, piece, read};
use super::super::load::Share;
use super::super::prelude::*;
use super::upstream::late;

/// How long a request waits for memory. Without memory it is forwarded unread, so it is not shortened, and the provider may
/// refuse it as too long.
const PATIENCE: Duration = Duration::from_secs(2);

/// A body, or the beginning of one.
pub(super) enum Taken {
    Whole(Whole),
    Part {
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
pub(super) struct Whole {
    pub(super) bytes: Bytes,
    charged: Vec<Share>,
}

impl Whole {
    /// Reduces the reservation to what stays in memory: the body, for a second attempt, and what is sent instead. Responses
    /// may take long to begin.
    pub(super) fn holds_only(&mut self, sent: usize, app: &App, workspace: &Arc<str>) {
        self.charged.clear();
        let held = self.bytes.len().saturating_add(sent);
        self.charged.extend(app.load.passing.take_for(workspace, held));
    }

    /// Releases the body and its memory after it was sent.
    pub(super) fn let_go(&mut self) {
        self.bytes = Bytes::new();
        self.charged.clear();
    }
}

/// Reads a body within `limits.body` and within the memory for proxied bodies.
pub(super) async fn take(mut body: Body, app: &App, workspace: &Arc<str>) -> Result<Taken, Problem> {
    let most = usize::try_from(app.engine.settings().limits.body).unwrap_or(usize::MAX);
    let length = http_body::Body::size_hint(&body).exact();
    let part = |first, rest, reason| Ok(Taken::Part { first, rest, length, reason });
    if length.is_some_and(|length| length > most as u64) {
        return part(Bytes::new(), body, "too_large");
    }
    let told = length.and_then(|length| usize::try_from(length).ok());
    // The body is in memory up to three times: as received, as messages, and as sent.
    let factor = 3;
    let mut charged = Vec::new();
    if let Some(told) = told {
        match app.load.passing.wait_for(workspace, told.saturating_mul(factor), PATIENCE).await {
            Some(share) => charged.push(share),
            None => return part(Bytes::new(), body, "no_room"),
        }
    }
    let room = |size: usize| {
        let more = if told.is_none() { app.load.passing.take_for(workspace, size * factor) } else { None };
        let has_room = told.is_some() || more.is_some();
        charged.extend(more);
        has_room
    };
    let (bytes, stop) = read(&mut body, most, told.unwrap_or(0), &app.bounds, room).await?;
    match stop {
        None => Ok(Taken::Whole(Whole { bytes, charged })),
        Some(Stop::TooLarge) => part(bytes, body, "too_large"),
        Some(Stop::NoRoom) => part(bytes, body, "no_room"),
    }
}

/// Number of pieces of a body that were forwarded.
pub(super) type Progress = Arc<AtomicU64>;

/// Returns a body that is streamed to the upstream: first the bytes already read, then the rest.
pub(super) fn upload(first: Bytes, rest: Body, silence: Duration) -> (reqwest::Body, Progress) {
    let progress = Progress::default();
    let begun = (Some(first).filter(|first| !first.is_empty()), rest, Arc::clone(&progress));
    let pieces = unfold(begun, move |(mut first, mut rest, progress)| async move {
        let next = match first.take() {
            Some(first) => Ok(Some(first)),
            None => piece(&mut rest, Instant::now() + silence, silence).await,
        };
        progress.fetch_add(1, Ordering::Relaxed);
        let frame =
            next.map(|data| data.map(Frame::data)).map_err(|problem| io::Error::other(problem.detail));
        Some((frame.transpose()?, (first, rest, progress)))
    });
    // reqwest requires `Sync`. Only the owner polls the stream, so the wrapper is never contended.
    (reqwest::Body::wrap(StreamBody::new(SyncStream::new(pieces))), progress)
}

/// Waits until the response begins: while the request is still being uploaded, and then for `silence`.
pub(super) async fn while_it_moves<T>(
    sending: impl Future<Output = Result<T, Problem>>,
    silence: Duration,
    progress: Option<Progress>,
) -> Result<T, Problem> {
    let mut sending = std::pin::pin!(sending);
    let mut before = None;
    loop {
        tokio::select! {
            sent = sending.as_mut() => return sent,
            () = sleep(silence) => {
                let now = progress.as_ref().map(|progress| progress.load(Ordering::Relaxed));
                if now == before || now.is_none() {
                    return Err(late());
                }
                before = now;
            }
        }
    }
}
