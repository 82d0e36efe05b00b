//! Route that streams the events of a workspace, as server-sent events.
//!
//! Every stored event has an id. A client that reconnects sends the id of the last event that it received, and the
//! stream continues with the next event. If some later events are no longer stored, an event `missed` reports the ids
//! of these events.

use std::convert::Infallible;
use std::time::Instant;

use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use epitome::Listener;
use epitome::event::{Event, EventBody};
use epitome_http::auth::{Access, key_still_valid};
use epitome_http::permits::Permit;
use futures_util::StreamExt;
use futures_util::stream::{iter, unfold};

use super::prelude::*;
use super::wire::Rfc3339;

/// Maximum number of events read from the store at a time.
const EVENTS_PER_READ: usize = 200;

/// Interval of keep-alive comments on an idle stream. With these comments, the client and the server notice if the
/// connection is broken.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Minimum time between two reads of the store, for any number of events.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(20);

/// Minimum time between two checks of the client's key, while there are no events to send.
const KEY_CHECK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// Streams only events after the event with this id; 0 means all stored events. The header `Last-Event-ID` takes
    /// precedence. With neither the parameter nor the header, the stream has only new events.
    after: Option<u64>,
    /// Streams only events of this session.
    session: Option<String>,
}

/// Streams the events of the workspace, as server-sent events.
///
/// These events exist: `message` (messages were appended), `summary` (the current summary of a slot changed),
/// `condensed` (messages became a summary, with the savings), `failed` (a summary could not be written yet), and
/// `missed` (the client requested events that are no longer stored). No event contains message text. The newest 10,000
/// events are stored.
#[utoipa::path(get, path = "/v1/events", tag = "events", params(
    EventsQuery,
    ("last-event-id" = Option<u64>, Header, description = "The id of the last event that the client received"),
), responses(
    (status = 200, description = "An endless stream. Each event has a name, an `id` and data. The data is one line of \
        JSON, as the schema `Event` describes", body = String, content_type = "text/event-stream"),
))]
pub(crate) async fn listen(call: Reading<EventsQuery>, headers: HeaderMap) -> Answer {
    let (app, access, query) = (call.app, call.access, call.query);
    let last = headers.get("last-event-id").map(|id| id.to_str().unwrap_or_default().trim());
    let last = last.filter(|id| !id.is_empty()).map(str::parse).transpose();
    let not_an_id = |_| Problem::invalid("last-event-id: is not the id of an event; expected a whole number");
    let last = last.map_err(not_an_id)?;
    let permit = app.permits.event_streams.acquire(&access.workspace.name().into())?;
    // Starts to listen before the first read, so that no event between the two is missed.
    let listener = access.workspace.listen();
    let newest = access.workspace.newest_event().await?;
    let after = last.or(query.after).unwrap_or(newest).min(newest);
    let access = access.without_permit();
    let (session, key_checked) = (query.session, Instant::now());
    let stream = Stream { app, access, listener, session, after, more: true, key_checked, _permit: permit };
    let events = unfold(stream, |mut stream| async move { Some((stream.next().await?, stream)) });
    // Sends a comment at once, so that the client gets the headers before the first event.
    let first = iter([Ok::<_, Infallible>(SseEvent::default().comment("listening"))]);
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("still here");
    let mut answer = Sse::new(first.chain(events.flat_map(iter))).keep_alive(keep_alive).into_response();
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}

/// The stream of one client. The stream reads from the store only when the client reads, so the server buffers nothing
/// for a slow client.
struct Stream {
    app: Arc<App>,
    access: Access,
    listener: Listener,
    session: Option<String>,
    /// Id of the last event that was sent.
    after: u64,
    /// Whether the store may have more events that can be read immediately.
    more: bool,
    /// When the key was last checked.
    key_checked: Instant,
    _permit: Permit,
}

impl Stream {
    /// Returns the next events. Returns None at the end of the stream.
    async fn next(&mut self) -> Option<Vec<Result<SseEvent, Infallible>>> {
        loop {
            if !std::mem::take(&mut self.more) && !self.wait().await {
                return None;
            }
            let events = self.read().await;
            // Checks the key before sending events, because a client with a revoked key must not see later events.
            if !events.is_empty() || self.key_checked.elapsed() >= KEY_CHECK_INTERVAL {
                self.key_checked = Instant::now();
                if !key_still_valid(&self.app, &self.access).await {
                    return None;
                }
            }
            if !events.is_empty() {
                return Some(events.into_iter().map(Ok).collect());
            }
        }
    }

    /// Waits until there may be new events. Returns false when the server shuts down.
    async fn wait(&mut self) -> bool {
        let mut stop = self.app.stopping.clone();
        let earliest = tokio::time::Instant::now() + MIN_READ_INTERVAL;
        tokio::select! {
            () = self.listener.changed() => {}
            () = wait_for_stop(&mut stop) => return false,
        }
        tokio::time::sleep_until(earliest).await;
        true
    }

    /// Reads new events from the store.
    async fn read(&mut self) -> Vec<SseEvent> {
        let mut events = Vec::new();
        // Ignores an error, for example of a busy store. A later read returns the same events.
        let (session, after) = (self.session.as_deref(), Some(self.after));
        let page = self.access.workspace.events(after, session, EVENTS_PER_READ).await;
        let Ok(page) = page else { return events };
        if self.after.saturating_add(1) < page.oldest {
            let (from, through) = (self.after.saturating_add(1), page.oldest.saturating_sub(1));
            let missed = format!("{{\"from\":{from},\"through\":{through}}}");
            events.push(SseEvent::default().event("missed").data(missed));
            self.after = through;
        }
        for event in &page.events {
            events.push(render(event));
            self.after = event.id;
        }
        self.more = page.events.len() == EVENTS_PER_READ;
        if !self.more {
            // Skips events of other sessions, so that they are not read again.
            self.after = self.after.max(page.newest);
        }
        events
    }
}

fn render(event: &Event) -> SseEvent {
    let mut body = serde_json::to_value(&event.body).unwrap_or_default();
    let mut data = body.get_mut("data").map(Value::take).unwrap_or_default();
    if let Some(Value::String(reason)) = data.get_mut("reason") {
        *reason = scrub(reason);
    }
    // The session and the time come first, then the event's own fields.
    let mut fields = Map::from_iter([
        ("session".to_owned(), json!(event.session)),
        ("created_at".to_owned(), json!(Rfc3339(event.at))),
        ("at".to_owned(), json!(event.at)),
    ]);
    fields.extend(data.as_object().cloned().unwrap_or_default());
    if let EventBody::Failed(failed) = &event.body {
        fields.insert("retry_at".to_owned(), json!(failed.not_before.map(Rfc3339)));
    }
    let data = Value::Object(fields).to_string();
    SseEvent::default().id(event.id.to_string()).event(event.body.kind()).data(data)
}
