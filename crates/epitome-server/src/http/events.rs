//! What happens in a workspace, as it happens: server-sent events.
//!
//! Every event has a number. Whoever lost the connection says which was the last one they saw, and gets those after
//! it; where some of those are not kept any more, that is said too, and never passed over.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use epitome::Listener;
use epitome::event::Event;
use epitome_http::discreet::discreet;
use epitome_http::gate::{Access, Reads, still_reads};
use epitome_http::listen::heard;
use epitome_http::load::Place;
use epitome_http::problem::Problem;
use epitome_http::query::Query;
use http_body::Frame;
use http_body_util::StreamBody;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::App;

/// So many events are read at a time.
const AT_ONCE: usize = 200;

/// Where nothing happens, something is said all the same, so that both sides know the other is there.
const BEAT: Duration = Duration::from_secs(15);

/// However much happens, it is looked at no more often than this.
const BREATH: Duration = Duration::from_millis(20);

/// So often a key is asked whether it still opens anything.
const ASK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct From {
    /// Those after the event of this number; 0 for all that are kept. The header `Last-Event-ID` goes before it. From
    /// now on unless told.
    after: Option<u64>,
    /// Only those of this session.
    session: Option<String>,
}

/// What the data of an event holds.
#[derive(Debug, Serialize)]
pub(crate) struct EventOut<'a> {
    session: &'a str,
    /// When, in milliseconds since 1970.
    at: i64,
    #[serde(flatten)]
    data: serde_json::Value,
}

/// What happens in the workspace, as server-sent events.
///
/// `message` (messages were added), `summary` (another summary stands in a slot), `condensed` (messages became a summary,
/// and what that saved), `failed` (a summary could not be written yet). No event holds words of a conversation. The newest
/// 10,000 are kept; `missed` says that some before those were asked for.
#[utoipa::path(get, path = "/v1/events", tag = "events", params(
    From,
    ("last-event-id" = Option<u64>, Header, description = "The last event that was seen"),
), responses(
    (status = 200, description = "A stream without end. Each event has a name, a number (`id`) and data: one line of JSON, as `Event` describes it", body = String, content_type = "text/event-stream"),
))]
pub(crate) async fn listen(
    State(app): State<Arc<App>>,
    Reads(access): Reads,
    Query(from): Query<From>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let last = match headers.get("last-event-id").map(|id| id.to_str().unwrap_or_default().trim()) {
        None | Some("") => None,
        Some(id) => {
            let number =
                id.parse().map_err(|_| Problem::invalid("last-event-id: is not the number of an event"))?;
            Some(number)
        }
    };
    let place = app.load.listening.enter(&access.workspace.name().into())?;
    // Before anything is read, so that nothing is missed between reading and waiting.
    let listener = access.workspace.listen();
    let newest = access.workspace.newest_event().await?;
    let after = last.or(from.after).unwrap_or(newest).min(newest);
    let (out, pieces) = mpsc::channel::<Bytes>(4);
    let stream = Stream { app, access: access.staying(), session: from.session, after, out, _place: place };
    tokio::spawn(stream.run(listener));
    let body = Body::new(StreamBody::new(Pieces(pieces)));
    let kind = HeaderValue::from_static("text/event-stream");
    let fresh = HeaderValue::from_static("no-store");
    Ok(([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, fresh)], body).into_response())
}

/// What was written and not yet sent.
struct Pieces(mpsc::Receiver<Bytes>);

impl futures_core::Stream for Pieces {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// One who listens.
struct Stream {
    app: Arc<App>,
    access: Access,
    session: Option<String>,
    /// The last event that was told.
    after: u64,
    out: mpsc::Sender<Bytes>,
    _place: Place,
}

impl Stream {
    async fn run(mut self, mut listener: Listener) {
        let mut stop = self.app.stopping.clone();
        let (mut said, mut asked) = (Instant::now(), Instant::now());
        // So that the client has its headers before anything happens.
        if !self.say(": listening\n\n".to_owned()).await {
            return;
        }
        loop {
            match self.tell().await {
                Ok(0) => {}
                Ok(_) => said = Instant::now(),
                Err(()) => return,
            }
            if said.elapsed() >= BEAT {
                said = Instant::now();
                if !self.say(": still here\n\n".to_owned()).await {
                    return;
                }
            }
            if asked.elapsed() >= ASK_AGAIN {
                asked = Instant::now();
                if !still_reads(&self.app, &self.access).await {
                    return;
                }
            }
            let breath = tokio::time::Instant::now() + BREATH;
            tokio::select! {
                () = listener.heard() => {}
                () = heard(&mut stop) => return,
                () = self.out.closed() => return,
            }
            tokio::time::sleep_until(breath).await;
        }
    }

    /// Tells what is new, and how much that was.
    async fn tell(&mut self) -> Result<usize, ()> {
        let mut told = 0;
        loop {
            // A store that is busy now may not be in a moment.
            let session = self.session.as_deref();
            let Ok(found) = self.access.workspace.events(Some(self.after), session, AT_ONCE).await else {
                return Ok(told);
            };
            let mut text = String::new();
            if self.after.saturating_add(1) < found.oldest {
                let (from, through) = (self.after.saturating_add(1), found.oldest.saturating_sub(1));
                text.push_str(&format!("event: missed\ndata: {{\"from\":{from},\"through\":{through}}}\n\n"));
                self.after = through;
            }
            for event in &found.events {
                text.push_str(&written(event));
                self.after = event.id;
            }
            let more = found.events.len() == AT_ONCE;
            told += found.events.len();
            if !more {
                // Those of other sessions need not be looked through again.
                self.after = self.after.max(found.newest);
            }
            if !text.is_empty() {
                // What happened after a key was revoked is not its holder's to know.
                if !still_reads(&self.app, &self.access).await || !self.say(text).await {
                    return Err(());
                }
            }
            if !more {
                return Ok(told);
            }
        }
    }

    /// Whether it could be said. Whoever does not read is waited for, and nothing is piled up meanwhile.
    async fn say(&self, text: String) -> bool {
        let mut stop = self.app.stopping.clone();
        tokio::select! {
            sent = self.out.send(text.into()) => sent.is_ok(),
            () = heard(&mut stop) => false,
        }
    }
}

fn written(event: &Event) -> String {
    let data = serde_json::to_value(&event.what)
        .ok()
        .and_then(|mut what| what.get_mut("data").map(serde_json::Value::take));
    let mut data = data.unwrap_or_default();
    if let Some(serde_json::Value::String(reason)) = data.get_mut("reason") {
        *reason = discreet(reason);
    }
    let told = EventOut { session: &event.session, at: event.at.0, data };
    let told = serde_json::to_string(&told).unwrap_or_default();
    format!("id: {}\nevent: {}\ndata: {told}\n\n", event.id, event.what.kind())
}
