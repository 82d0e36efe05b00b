//! Route that streams the events of a workspace, as server-sent events.
//!
//! Every event has an id. A client that reconnects sends the id of the last event it received, and gets the events after
//! it. If some of these are no longer stored, an event `missed` says so.

use std::convert::Infallible;
use std::time::Instant;

use axum::response::sse::{Event as Told, KeepAlive, Sse};
use epitome::Listener;
use epitome::event::Event;
use epitome_http::gate::{Access, still_reads};
use epitome_http::load::Share;
use futures_util::StreamExt;
use futures_util::stream::{iter, unfold};

use super::prelude::*;

/// Maximum number of events read from the store at a time.
const AT_ONCE: usize = 200;

/// Interval of keep-alive comments on an idle stream, so that each side notices if the other is gone.
const BEAT: Duration = Duration::from_secs(15);

/// Minimum time between two reads of the store, however many events there are.
const BREATH: Duration = Duration::from_millis(20);

/// How often the server checks that the client's key is still valid.
const ASK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct From {
    /// Only events after the event with this id; 0 for all stored events. The header `Last-Event-ID` takes precedence.
    /// Without either, only new events.
    after: Option<u64>,
    /// Only events of this session.
    session: Option<String>,
}

/// Streams the events of the workspace, as server-sent events.
///
/// `message` (messages were appended), `summary` (the current summary of a slot changed), `condensed` (messages became a
/// summary, and what that saved), `failed` (a summary could not be written yet). No event contains message text. The newest
/// 10,000 events are stored; `missed` says that the client requested older ones.
#[utoipa::path(get, path = "/v1/events", tag = "events", params(
    From,
    ("last-event-id" = Option<u64>, Header, description = "The id of the last event that the client received"),
), responses(
    (status = 200, description = "An endless stream. Each event has a name, an `id`, and data: one line of JSON, as `Event` describes it", body = String, content_type = "text/event-stream"),
))]
pub(crate) async fn listen(call: Reading<From>, headers: HeaderMap) -> Answer {
    let (app, access, from) = (call.app, call.access, call.query);
    let last = headers.get("last-event-id").map(|id| id.to_str().unwrap_or_default().trim());
    let last = last.filter(|id| !id.is_empty()).map(str::parse).transpose();
    let last = last.map_err(|_| Problem::invalid("last-event-id: is not the id of an event"))?;
    let place = app.load.listening.enter(&access.workspace.name().into())?;
    // Listens before the first read, so that no event is missed in between.
    let listener = access.workspace.listen();
    let newest = access.workspace.newest_event().await?;
    let after = last.or(from.after).unwrap_or(newest).min(newest);
    let access = access.staying();
    let (session, asked) = (from.session, Instant::now());
    let stream = Stream { app, access, listener, session, after, more: true, asked, _place: place };
    let news = unfold(stream, |mut stream| async move { Some((stream.next().await?, stream)) });
    // Sends a comment at once, so that the client gets the headers before the first event.
    let begun = iter([Ok::<_, Infallible>(Told::default().comment("listening"))]);
    let beat = KeepAlive::new().interval(BEAT).text("still here");
    let mut answer = Sse::new(begun.chain(news.flat_map(iter))).keep_alive(beat).into_response();
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}

/// The stream of one client. It reads from the store only when the client reads: nothing is buffered for a slow client.
struct Stream {
    app: Arc<App>,
    access: Access,
    listener: Listener,
    session: Option<String>,
    /// Id of the last event that was sent.
    after: u64,
    /// Whether the store may have more events now.
    more: bool,
    /// When the key was last checked.
    asked: Instant,
    _place: Share,
}

impl Stream {
    /// Returns the next events; none at the end of the stream.
    async fn next(&mut self) -> Option<Vec<Result<Told, Infallible>>> {
        loop {
            if !std::mem::take(&mut self.more) && !self.wait().await {
                return None;
            }
            let news = self.news().await;
            // Checks the key before sending: the holder of a revoked key must not see later events.
            if !news.is_empty() || self.asked.elapsed() >= ASK_AGAIN {
                self.asked = Instant::now();
                if !still_reads(&self.app, &self.access).await {
                    return None;
                }
            }
            if !news.is_empty() {
                return Some(news.into_iter().map(Ok).collect());
            }
        }
    }

    /// Waits until there may be new events. Returns false when the server shuts down.
    async fn wait(&mut self) -> bool {
        let mut stop = self.app.stopping.clone();
        let breath = tokio::time::Instant::now() + BREATH;
        tokio::select! {
            () = self.listener.heard() => {}
            () = heard(&mut stop) => return false,
        }
        tokio::time::sleep_until(breath).await;
        true
    }

    /// Reads new events from the store.
    async fn news(&mut self) -> Vec<Told> {
        let mut news = Vec::new();
        // An error is ignored: a busy store is read again later.
        let (session, after) = (self.session.as_deref(), Some(self.after));
        let Ok(found) = self.access.workspace.events(after, session, AT_ONCE).await else { return news };
        if self.after.saturating_add(1) < found.oldest {
            let (from, through) = (self.after.saturating_add(1), found.oldest.saturating_sub(1));
            let missed = format!("{{\"from\":{from},\"through\":{through}}}");
            news.push(Told::default().event("missed").data(missed));
            self.after = through;
        }
        for event in &found.events {
            news.push(written(event));
            self.after = event.id;
        }
        self.more = found.events.len() == AT_ONCE;
        if !self.more {
            // Skips events of other sessions, so that they are not read again.
            self.after = self.after.max(found.newest);
        }
        news
    }
}

fn written(event: &Event) -> Told {
    let mut what = serde_json::to_value(&event.what).unwrap_or_default();
    let mut data = what.get_mut("data").map(Value::take).unwrap_or_default();
    if let Some(Value::String(reason)) = data.get_mut("reason") {
        *reason = discreet(reason);
    }
    // The session and the time in milliseconds since 1970 come first, then the event's own fields.
    let mut told =
        Map::from_iter([("session".to_owned(), json!(event.session)), ("at".to_owned(), json!(event.at))]);
    told.extend(data.as_object().cloned().unwrap_or_default());
    let told = Value::Object(told).to_string();
    Told::default().id(event.id.to_string()).event(event.what.kind()).data(told)
}
