//! What happens in a workspace, as it happens: server-sent events.
//!
//! Every event has a number. Whoever lost the connection says which was the last one they saw, and gets those after
//! it; where some of those are not kept any more, that is said too, and never passed over.

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
pub(crate) async fn listen(call: Reading<From>, headers: HeaderMap) -> Answer {
    let (app, access, from) = (call.app, call.access, call.query);
    let last = headers.get("last-event-id").map(|id| id.to_str().unwrap_or_default().trim());
    let last = last.filter(|id| !id.is_empty()).map(str::parse).transpose();
    let last = last.map_err(|_| Problem::invalid("last-event-id: is not the number of an event"))?;
    let place = app.load.listening.enter(&access.workspace.name().into())?;
    // Before anything is read, so that nothing is missed between reading and waiting.
    let listener = access.workspace.listen();
    let newest = access.workspace.newest_event().await?;
    let after = last.or(from.after).unwrap_or(newest).min(newest);
    let access = access.staying();
    let (session, asked) = (from.session, Instant::now());
    let stream = Stream { app, access, listener, session, after, more: true, asked, _place: place };
    let news = unfold(stream, |mut stream| async move { Some((stream.next().await?, stream)) });
    // So that the client has its headers before anything happens.
    let begun = iter([Ok::<_, Infallible>(Told::default().comment("listening"))]);
    let beat = KeepAlive::new().interval(BEAT).text("still here");
    let mut answer = Sse::new(begun.chain(news.flat_map(iter))).keep_alive(beat).into_response();
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}

/// One who listens. Whoever does not read is waited for, and nothing is piled up meanwhile.
struct Stream {
    app: Arc<App>,
    access: Access,
    listener: Listener,
    session: Option<String>,
    /// The last event that was told.
    after: u64,
    /// Whether there may be more to tell now.
    more: bool,
    /// When the key was last asked.
    asked: Instant,
    _place: Share,
}

impl Stream {
    /// What is to be said next; none at the end.
    async fn next(&mut self) -> Option<Vec<Result<Told, Infallible>>> {
        loop {
            if !std::mem::take(&mut self.more) && !self.wait().await {
                return None;
            }
            let news = self.news().await;
            // What happened after a key was revoked is not its holder's to know.
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

    /// Waits until something may have happened. False where the server ends.
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

    /// What is new, in words.
    async fn news(&mut self) -> Vec<Told> {
        let mut news = Vec::new();
        // A store that is busy now may not be in a moment.
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
            // Those of other sessions need not be looked through again.
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
    // When it happened, in milliseconds since 1970, and where; then what is its own.
    let mut told =
        Map::from_iter([("session".to_owned(), json!(event.session)), ("at".to_owned(), json!(event.at))]);
    told.extend(data.as_object().cloned().unwrap_or_default());
    let told = Value::Object(told).to_string();
    Told::default().id(event.id.to_string()).event(event.what.kind()).data(told)
}
