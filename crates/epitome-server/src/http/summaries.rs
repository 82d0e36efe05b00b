//! Summaries: read, wished for, taken back, made anew, looked beneath.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use epitome::{Summarize, Summarized};
use epitome_http::body::{Sent, typed};
use epitome_http::gate::{Reads, Writes};
use epitome_http::listen::heard;
use epitome_http::problem::Problem;
use epitome_http::query::{Nothing, Query};
use epitome_http::reply::{Known, done};
use serde::Deserialize;
use utoipa::IntoParams;

use super::App;
use super::messages::{Format, number, page, range};
use super::openapi::{self, MessagesPage};
use super::sessions::limit;
use super::wire::{Page, Rebuilding, SummarizeIn, SummarizedOut, Undone};

/// For so long a request waits for a summary. Then it is told that it is still being written.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// The longest focus.
const LONGEST_FOCUS: usize = 4_000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct History {
    /// All there ever were, newest first, undone ones too.
    #[serde(default)]
    history: bool,
    /// `next` of the page before; with `history` only.
    after: Option<u64>,
    /// At most so many; with `history` only.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
}

/// The summaries that stand, one a slot; or all there ever were.
#[utoipa::path(get, path = "/v1/sessions/{session}/summaries", tag = "summaries", params(
    ("session" = String, Path, description = "The session's name"),
    History,
), responses(
    (status = 200, description = "A page of them", body = Page<openapi::Summary>),
))]
pub(crate) async fn list(
    Reads(access): Reads,
    Path(name): Path<String>,
    Query(asked): Query<History>,
    known: Known,
) -> Result<Response, Problem> {
    let session = access.workspace.session(name);
    let limit = limit(asked.limit)?;
    if !asked.history {
        let items = session.summaries().await?;
        return known.read(&Page { items, next: None });
    }
    let after = asked.after.map(|after| i64::try_from(after).unwrap_or(i64::MAX));
    let found = session.history(after, limit + 1).await?;
    known.read(&Page::new(found, limit, |summary| summary.id.to_string()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wait {
    /// Waits until it is written, for five minutes at most.
    #[serde(default)]
    wait: bool,
}

/// Has a summary written now, whatever the trigger says.
#[utoipa::path(post, path = "/v1/sessions/{session}/summaries", tag = "summaries", params(
    ("session" = String, Path, description = "The session's name"),
    Wait,
), request_body = Option<SummarizeIn>, responses(
    (status = 200, description = "It is written, or nothing is new", body = SummarizedOut),
    (status = 202, description = "It will be written", body = SummarizedOut),
))]
pub(crate) async fn summarize(
    State(app): State<Arc<App>>,
    Writes(access): Writes,
    Path(name): Path<String>,
    Query(Wait { wait }): Query<Wait>,
    Optional(wish): Optional<SummarizeIn>,
) -> Result<Response, Problem> {
    if wish.focus.as_ref().is_some_and(|focus| focus.chars().count() > LONGEST_FOCUS) {
        return Err(Problem::invalid(format!("focus: at most {LONGEST_FOCUS} characters are allowed")));
    }
    let session = access.workspace.session(name);
    let wish = Summarize { slot: wish.slot, scope: wish.scope.map(Into::into), focus: wish.focus, wait };
    // Whoever waits for a model has a place of their own, and takes none from those who are answered at once.
    let waiting = wait.then(|| app.load.waiting.enter(&access.workspace.name().into())).transpose()?;
    let _access = if wait { access.staying() } else { access };
    let pending = |why: &str| Ok(Summarized::Pending { reason: Some(why.to_owned()) });
    let mut stop = app.stopping.clone();
    let summarized = tokio::select! {
        summarized = session.summarize(wish) => summarized,
        () = tokio::time::sleep(LONGEST_WAIT) => pending("it is still being written"),
        () = heard(&mut stop), if wait => pending("the server is shutting down; ask for it again"),
    }?;
    drop(waiting);
    let pending = matches!(summarized, Summarized::Pending { .. });
    let status = if pending { StatusCode::ACCEPTED } else { StatusCode::OK };
    done(status, &SummarizedOut::from(summarized))
}

/// A body that may be left out.
pub(crate) struct Optional<T>(T);

impl<T: Default + serde::de::DeserializeOwned> FromRequest<Arc<App>> for Optional<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let empty = http_body::Body::is_end_stream(request.body())
            && !request.headers().contains_key(header::CONTENT_TYPE);
        if empty {
            return Ok(Self(T::default()));
        }
        let sent = Sent::from_request(request, app).await?;
        if sent.value.is_null() { Ok(Self(T::default())) } else { typed(sent.value).map(Self) }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Beneath {
    /// `next` of the page before: the messages after this one, or before it with `reverse`.
    after: Option<u64>,
    /// At most so many.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
    /// Newest first.
    #[serde(default)]
    reverse: bool,
    /// In which form: as they came in, where they came in it.
    format: Option<Format>,
}

/// The messages beneath a summary, word for word: those of its scope, from the first on.
#[utoipa::path(get, path = "/v1/sessions/{session}/summaries/{summary}/messages", tag = "summaries", params(
    ("session" = String, Path, description = "The session's name"),
    ("summary" = i64, Path, description = "The summary's number", minimum = 1),
    Beneath,
), responses(
    (status = 200, description = "A page of them", body = MessagesPage),
))]
pub(crate) async fn expand(
    State(app): State<Arc<App>>,
    Reads(access): Reads,
    Path((name, summary)): Path<(String, String)>,
    Query(asked): Query<Beneath>,
    known: Known,
) -> Result<Response, Problem> {
    let limit = limit(asked.limit)?;
    let summary = number("summary", &summary)?;
    let session = access.workspace.session(name);
    let wanted = range(asked.after, asked.reverse, limit);
    let _turn = app.load.page().await;
    page(&session.expand(summary, wanted).await?, asked.format, &known)
}

/// Takes a summary back. The one before it stands again, and counting starts anew at the newest message.
#[utoipa::path(post, path = "/v1/sessions/{session}/summaries/{summary}/undo", tag = "summaries", params(
    ("session" = String, Path, description = "The session's name"),
    ("summary" = i64, Path, description = "The summary's number", minimum = 1),
), responses(
    (status = 200, description = "It is taken back", body = Undone),
))]
pub(crate) async fn undo(
    Writes(access): Writes,
    Path((name, summary)): Path<(String, String)>,
    _: Query<Nothing>,
) -> Result<Response, Problem> {
    let summary = number("summary", &summary)?;
    let stands = access.workspace.session(name).undo(summary).await?;
    done(StatusCode::OK, &Undone { undone: summary, stands })
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Whose {
    /// Whose messages the slot covers; everybody's where nobody is named.
    scope: Option<String>,
}

/// Has a slot's summary written again from the first message on, with today's settings. What stands goes on standing
/// until the new one is there.
#[utoipa::path(post, path = "/v1/sessions/{session}/slots/{slot}/rebuild", tag = "summaries", params(
    ("session" = String, Path, description = "The session's name"),
    ("slot" = String, Path, description = "The slot's name"),
    Whose,
), responses(
    (status = 202, description = "It will be written", body = Rebuilding),
    (status = 200, description = "There is nothing to summarize", body = Rebuilding),
))]
pub(crate) async fn rebuild(
    Writes(access): Writes,
    Path((name, slot)): Path<(String, String)>,
    Query(Whose { scope }): Query<Whose>,
) -> Result<Response, Problem> {
    let rebuilding = access.workspace.session(name).rebuild(scope.map(Into::into), &slot).await?;
    let status = if rebuilding { StatusCode::ACCEPTED } else { StatusCode::OK };
    done(status, &Rebuilding { rebuilding })
}
