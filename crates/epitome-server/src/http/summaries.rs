//! Routes for summaries: list, request, expand, undo, rebuild.

use axum::extract::{FromRequest, Request};
use epitome::{Summarize, Summarized};
use epitome_http::body::{Sent, typed};

use super::messages::{page, range};
use super::openapi::MessagesPage;
use super::prelude::*;

/// Longest time that a request waits for a summary. Then the response says that the summary is still being written.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Maximum length of a focus, in characters.
const LONGEST_FOCUS: usize = 4_000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct History {
    /// All summaries, newest first, including superseded and undone ones.
    #[serde(default)]
    history: bool,
    /// `next` of the previous page; only with `history`.
    after: Option<u64>,
    /// Maximum number of summaries; only with `history`.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
}

/// Lists the current summaries, one per slot; with `history`, all summaries.
#[utoipa::path(get, path = "/v1/sessions/{session}/summaries", tag = "summaries", params(History), responses(
    (status = 200, description = "A page of summaries", body = Page<openapi::Summary>),
))]
pub(crate) async fn list(call: Reading<History>) -> Answer {
    let (session, limit) = (call.session(), limit(call.query.limit)?);
    if !call.query.history {
        let items = session.summaries().await?;
        return call.read(&Page { items, next: None });
    }
    let after = call.query.after.map(|after| i64::try_from(after).unwrap_or(i64::MAX));
    let found = session.history(after, limit + 1).await?;
    call.read(&Page::new(found, limit, |summary| summary.id.to_string()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wait {
    /// Waits until the summary is written, for at most five minutes.
    #[serde(default)]
    wait: bool,
}

/// Requests a summary now, even if the trigger has not fired.
#[utoipa::path(post, path = "/v1/sessions/{session}/summaries", tag = "summaries", params(Wait), request_body = Option<openapi::Summarize>, responses(
    (status = 200, description = "The summary is written, or there is nothing new", body = openapi::Summarized),
    (status = 202, description = "The summary will be written", body = openapi::Summarized),
))]
pub(crate) async fn summarize(call: Writing<Wait>, Optional(wish): Optional<Summarize>) -> Answer {
    if wish.focus.as_ref().is_some_and(|focus| focus.chars().count() > LONGEST_FOCUS) {
        return Err(Problem::invalid(format!("focus: at most {LONGEST_FOCUS} characters are allowed")));
    }
    let (session, wait) = (call.session(), call.query.wait);
    let (app, access) = (call.app, call.access);
    let wish = Summarize { wait, ..wish };
    // A request that waits for a model holds a separate permit: it takes none from requests that are answered at once.
    let waiting = wait.then(|| app.load.waiting.enter(&access.workspace.name().into())).transpose()?;
    let _access = if wait { access.staying() } else { access };
    let pending = |why: &str| Ok(Summarized::Pending { reason: Some(why.to_owned()) });
    let mut stop = app.stopping.clone();
    let summarized = tokio::select! {
        summarized = session.summarize(wish) => summarized,
        () = tokio::time::sleep(LONGEST_WAIT) => pending("the summary is still being written"),
        () = heard(&mut stop), if wait => pending("the server is shutting down; request it again"),
    }?;
    drop(waiting);
    let (status, word, summary, reason) = match summarized {
        Summarized::NothingNew { summary } => (StatusCode::OK, "nothing_new", summary, None),
        Summarized::Written { summary } => (StatusCode::OK, "written", Some(summary), None),
        Summarized::Pending { reason } => (StatusCode::ACCEPTED, "pending", None, reason),
    };
    let reason = reason.as_deref().map(discreet);
    done(status, &json!({"status": word, "summary": summary, "reason": reason}))
}

/// A request body that may be omitted.
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
    /// `next` of the previous page: messages after this one, or before it with `reverse`.
    after: Option<u64>,
    /// Maximum number of messages.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
    /// Newest first.
    #[serde(default)]
    reverse: bool,
    /// Format of the messages. A message that was sent in this format is returned as it was sent.
    format: Option<Format>,
}

/// Lists the original messages that a summary covers: those of its scope, from the first message on.
#[utoipa::path(get, path = "/v1/sessions/{session}/summaries/{summary}/messages", tag = "summaries", params(
    ("summary" = i64, Path, description = "The summary's id", minimum = 1),
    Beneath,
), responses(
    (status = 200, description = "A page of messages", body = MessagesPage),
))]
pub(crate) async fn expand(call: Reading<Beneath>) -> Answer {
    let asked = &call.query;
    let wanted = range(asked.after, asked.reverse, limit(asked.limit)?);
    let summary = call.number("summary")?;
    let _turn = call.app.load.paging.acquire().await;
    page(call.session().expand(summary, wanted).await?, asked.format, &call.known)
}

/// Undoes a summary. The summary before it becomes current again, and the trigger counts from the newest message on.
#[utoipa::path(post, path = "/v1/sessions/{session}/summaries/{summary}/undo", tag = "summaries", params(
    ("summary" = i64, Path, description = "The summary's id", minimum = 1),
), responses(
    (status = 200, description = "The summary is undone", body = openapi::Undone),
))]
pub(crate) async fn undo(call: Writing) -> Answer {
    let summary = call.number("summary")?;
    let stands = call.session().undo(summary).await?;
    done(StatusCode::OK, &json!({"undone": summary, "stands": stands}))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Whose {
    /// The author whose messages the slot covers; all authors if omitted.
    scope: Option<String>,
}

/// Rewrites a slot's summary from the first message on, with the current settings. The current summary stays in use until
/// the new one is written.
#[utoipa::path(post, path = "/v1/sessions/{session}/slots/{slot}/rebuild", tag = "summaries", params(
    ("slot" = String, Path, description = "The slot's name"),
    Whose,
), responses(
    (status = 202, description = "The summary will be rewritten", body = openapi::Rebuilding),
    (status = 200, description = "There is nothing to summarize", body = openapi::Rebuilding),
))]
pub(crate) async fn rebuild(call: Writing<Whose>) -> Answer {
    let scope = call.query.scope.as_deref().map(Into::into);
    let rebuilding = call.session().rebuild(scope, call.named("slot")).await?;
    let status = if rebuilding { StatusCode::ACCEPTED } else { StatusCode::OK };
    done(status, &json!({"rebuilding": rebuilding}))
}
