//! Routes for summaries: list, request, expand, undo, rebuild.

use axum::extract::{FromRequest, Request};
use epitome::{Summarize, Summarized, Summary};
use epitome_http::body::{JsonBody, from_object};

use super::messages::{page, range};
use super::openapi::MessagesPage;
use super::prelude::*;
use super::suggest;
use super::wire::{self, SummaryOut};

/// Longest time that a request waits for a summary. After this time, the response says that the summary is still being
/// written.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Maximum length of a focus, in characters.
const LONGEST_FOCUS: usize = 4_000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SummariesQuery {
    /// Whether to list all summaries, newest first, including superseded and undone summaries.
    #[serde(default)]
    history: bool,
    /// The value `next` of the previous page; only with `history`.
    after: Option<u64>,
    /// Maximum number of summaries; only with `history`.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
}

/// Lists the current summaries, one per slot; with `history`, all summaries.
#[utoipa::path(get, path = "/v1/sessions/{session}/summaries", tag = "summaries", params(SummariesQuery), responses(
    (status = 200, description = "A page of summaries", body = Page<openapi::Summary>),
))]
pub(crate) async fn list(call: Reading<SummariesQuery>) -> Answer {
    let (session, limit) = (call.session(), page_limit(call.query.limit)?);
    let render = |summaries: Vec<Summary>| summaries.into_iter().map(SummaryOut::new).collect();
    if !call.query.history {
        let items: Vec<SummaryOut> = render(call.or_suggest(session.summaries().await).await?);
        return call.read(&Page { items, next: None });
    }
    let after = call.query.after.map(|after| i64::try_from(after).unwrap_or(i64::MAX));
    let summaries = render(call.or_suggest(session.history(after, limit + 1).await).await?);
    call.read(&Page::new(summaries, limit, |summary: &SummaryOut| summary.id().to_string()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SummarizeQuery {
    /// Whether to wait until the summary is written, for at most five minutes.
    #[serde(default)]
    wait: bool,
}

/// Requests a summary now, even if the trigger is not met.
#[utoipa::path(post, path = "/v1/sessions/{session}/summaries", tag = "summaries", params(SummarizeQuery), request_body = Option<openapi::Summarize>, responses(
    (status = 200, description = "The summary is written, or there are no new messages", body = openapi::Summarized),
    (status = 202, description = "The summary will be written", body = openapi::Summarized),
))]
pub(crate) async fn summarize(
    call: Writing<SummarizeQuery>,
    Optional(request): Optional<Summarize>,
) -> Answer {
    if let Some(chars) = request.focus.as_ref().map(|focus| focus.chars().count())
        && chars > LONGEST_FOCUS
    {
        let detail = format!("focus: {chars} characters; at most {LONGEST_FOCUS} are allowed");
        return Err(Problem::invalid(detail));
    }
    let (session, wait) = (call.session(), call.query.wait);
    let (app, access) = (call.app, call.access);
    let request = Summarize { wait, ..request };
    // While the request waits for a summary, it holds only a separate permit. It releases the permit that other
    // requests need.
    let waiting =
        wait.then(|| app.permits.summary_waits.acquire(&access.workspace.name().into())).transpose()?;
    let workspace = access.workspace.clone();
    let _access = if wait { access.without_permit() } else { access };
    let pending = |why: &str| Ok(Summarized::Pending { reason: Some(why.to_owned()) });
    let mut stop = app.stopping.clone();
    let summarized = tokio::select! {
        summarized = session.summarize(request) => summarized,
        () = tokio::time::sleep(LONGEST_WAIT) => pending("the summary is still being written"),
        () = wait_for_stop(&mut stop), if wait => pending("the server is shutting down; request it again"),
    };
    drop(waiting);
    let (status, summarized) = match summarized {
        Err(error) => return Err(suggest::problem(&workspace, session.name(), error).await),
        Ok(Summarized::Pending { reason }) => {
            let reason = reason.as_deref().map(scrub);
            (StatusCode::ACCEPTED, Summarized::Pending { reason })
        }
        Ok(summarized) => (StatusCode::OK, summarized),
    };
    json_response(status, &wire::summarized(summarized))
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
        let sent = JsonBody::from_request(request, app).await?;
        if sent.value.is_null() { Ok(Self(T::default())) } else { from_object(sent.value).map(Self) }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExpandQuery {
    /// The value `next` of the previous page. The page begins after this message or, with `reverse`, before it.
    after: Option<u64>,
    /// Maximum number of messages.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
    /// Whether the newest message comes first.
    #[serde(default)]
    reverse: bool,
    /// Format of the messages. A message that was sent in this format is returned as it was sent.
    format: Option<Format>,
}

/// Lists the original messages that a summary covers: the messages of the summary's scope, from the first message on.
#[utoipa::path(get, path = "/v1/sessions/{session}/summaries/{summary}/messages", tag = "summaries", params(
    ("summary" = i64, Path, description = "The summary's id", minimum = 1),
    ExpandQuery,
), responses(
    (status = 200, description = "A page of messages", body = MessagesPage),
))]
pub(crate) async fn expand(call: Reading<ExpandQuery>) -> Answer {
    let query = &call.query;
    let range = range(query.after, query.reverse, page_limit(query.limit)?);
    let summary = call.path_number("summary")?;
    let _turn = call.app.permits.pages.acquire().await;
    let messages = call.or_suggest(call.session().expand(summary, range).await).await?;
    page(messages, query.format, &call.if_none_match)
}

/// Undoes a summary. The previous summary becomes current again. The trigger then counts only messages that are
/// appended later.
#[utoipa::path(post, path = "/v1/sessions/{session}/summaries/{summary}/undo", tag = "summaries", params(
    ("summary" = i64, Path, description = "The summary's id", minimum = 1),
), responses(
    (status = 200, description = "The summary is undone", body = openapi::Undone),
))]
pub(crate) async fn undo(call: Writing) -> Answer {
    let summary = call.path_number("summary")?;
    let current = call.or_suggest(call.session().undo(summary).await).await?;
    json_response(StatusCode::OK, &wire::undone(summary, current))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RebuildQuery {
    /// The author whose messages the slot covers; all authors if omitted.
    scope: Option<String>,
}

/// Rewrites a slot's summary from the first message on, with the current settings. The current summary stays in use
/// until the new summary is written.
#[utoipa::path(post, path = "/v1/sessions/{session}/slots/{slot}/rebuild", tag = "summaries", params(
    ("slot" = String, Path, description = "The slot's name"),
    RebuildQuery,
), responses(
    (status = 202, description = "The summary will be rewritten", body = openapi::Rebuilding),
    (status = 200, description = "There is nothing to summarize", body = openapi::Rebuilding),
))]
pub(crate) async fn rebuild(call: Writing<RebuildQuery>) -> Answer {
    let scope = call.query.scope.as_deref().map(Into::into);
    let rebuilding = call.session().rebuild(scope, call.path_param("slot")).await;
    let rebuilding = call.or_suggest(rebuilding).await?;
    let status = if rebuilding { StatusCode::ACCEPTED } else { StatusCode::OK };
    json_response(status, &json!({"rebuilding": rebuilding}))
}
