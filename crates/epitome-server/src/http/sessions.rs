//! Routes for sessions: list, read, change, fork, delete.

use epitome::Fork;
use epitome::settings::{Patch, Settings};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::prelude::*;
use super::suggest;
use super::wire::{SessionIn, SessionOut, SessionWhole};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SessionsQuery {
    /// The value `next` of the previous page.
    after: Option<String>,
    /// Maximum number of sessions.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
}

/// Lists the sessions of the workspace, ordered by name.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", params(SessionsQuery), responses(
    (status = 200, description = "A page of sessions", body = Page<openapi::Session>),
))]
pub(crate) async fn list(call: Reading<SessionsQuery>) -> Answer {
    let limit = page_limit(call.query.limit)?;
    let sessions = call.access.workspace.sessions(call.query.after.as_deref(), limit + 1).await?;
    let sessions = sessions.into_iter().map(SessionOut::new).collect();
    call.read(&Page::new(sessions, limit, |session: &SessionOut| session.name().to_owned()))
}

/// Returns a session: its totals, its settings, and the state of each slot.
#[utoipa::path(get, path = "/v1/sessions/{session}", tag = "sessions", responses(
    (status = 200, description = "The session", body = openapi::SessionWhole),
))]
pub(crate) async fn look(call: Reading) -> Answer {
    let session = call.session();
    let explanation = call.or_suggest(session.explain().await).await?;
    let settings = without_operator_settings(&*call.or_suggest(session.settings().await).await?);
    call.read(&SessionWhole::new(explanation, settings))
}

/// Changes a session's settings and metadata: both or neither. Creates the session if it does not exist.
#[utoipa::path(put, path = "/v1/sessions/{session}", tag = "sessions", request_body = SessionIn, responses(
    (status = 200, description = "The session after the change", body = openapi::SessionWhole),
))]
pub(crate) async fn put(call: Writing, Json(change): Json<SessionIn>) -> Answer {
    let session = call.session();
    let patch = change.settings.map(patch).transpose()?;
    let settings = without_operator_settings(&*session.put(patch.as_ref(), change.metadata).await?);
    json_response(StatusCode::OK, &SessionWhole::new(session.explain().await?, settings))
}

/// Parses the settings that a client sent.
pub(crate) fn patch(settings: Map<String, Value>) -> Result<Patch, Problem> {
    Patch::parse(&Value::Object(settings).to_string())
        .map_err(|wrong| Problem::invalid(format!("settings.{wrong}")))
}

/// Returns the settings that clients may see. Leaves out the models' addresses and the names of the variables with
/// their keys, which are for the operator only.
pub(crate) fn without_operator_settings(settings: &Settings) -> Value {
    let mut settings = settings.to_value();
    let models = settings.get_mut("models").and_then(Value::as_object_mut);
    for model in models.into_iter().flat_map(|models| models.values_mut()).filter_map(Value::as_object_mut) {
        model.retain(|key, _| !matches!(key.as_str(), "base_url" | "key_env"));
    }
    settings
}

/// Deletes a session and everything derived from it.
#[utoipa::path(delete, path = "/v1/sessions/{session}", tag = "sessions", responses(
    (status = 204, description = "The session is deleted"),
))]
pub(crate) async fn delete(call: Writing) -> Answer {
    let session = call.session();
    match session.delete().await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(suggest::no_session(&call.access.workspace, session.name()).await),
    }
}

/// Forks a session: copies the session into a new session, up to a certain message.
#[utoipa::path(post, path = "/v1/sessions/{session}/fork", tag = "sessions", request_body = openapi::Fork, responses(
    (status = 201, description = "The new session", body = openapi::Session, headers(
        ("location" = String, description = "The path of the new session"),
    )),
))]
pub(crate) async fn fork(call: Writing, Json(fork): Json<Fork>) -> Answer {
    let _turn = call.app.permits.forks.acquire().await;
    let fork = call.or_suggest(call.session().fork(fork).await).await?;
    let mut answer = json_response(StatusCode::CREATED, &SessionOut::new(fork.info().await?))?;
    if let Ok(path) = HeaderValue::from_str(&session_path(fork.name())) {
        answer.headers_mut().insert(header::LOCATION, path);
    }
    Ok(answer)
}

/// Characters of a name that are not percent-encoded in a path.
const UNESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Returns the path of a session.
pub(crate) fn session_path(session: &str) -> String {
    format!("/v1/sessions/{}", utf8_percent_encode(session, UNESCAPED))
}
