//! Routes for sessions: list, read, change, fork, delete.

use epitome::Fork;
use epitome::settings::{Patch, Settings};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::prelude::*;
use super::wire::{SessionIn, SessionWhole};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// `next` of the previous page.
    after: Option<String>,
    /// Maximum number of sessions.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
}

/// Lists the sessions of the workspace, ordered by name.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", params(Paging), responses(
    (status = 200, description = "A page of sessions", body = Page<openapi::Session>),
))]
pub(crate) async fn list(call: Reading<Paging>) -> Answer {
    let limit = limit(call.query.limit)?;
    let found = call.access.workspace.sessions(call.query.after.as_deref(), limit + 1).await?;
    call.read(&Page::new(found, limit, |session| session.name.to_string()))
}

/// Returns a session: its totals, its settings, and the state of each slot.
#[utoipa::path(get, path = "/v1/sessions/{session}", tag = "sessions", responses(
    (status = 200, description = "The session", body = openapi::SessionWhole),
))]
pub(crate) async fn look(call: Reading) -> Answer {
    let session = call.session();
    let settings = told(&*session.settings().await?);
    call.read(&SessionWhole::new(session.explain().await?, settings))
}

/// Changes a session's settings and metadata, both or neither. Creates the session if it does not exist.
#[utoipa::path(put, path = "/v1/sessions/{session}", tag = "sessions", request_body = SessionIn, responses(
    (status = 200, description = "The session after the change", body = openapi::SessionWhole),
))]
pub(crate) async fn put(call: Writing, Json(wanted): Json<SessionIn>) -> Answer {
    let session = call.session();
    let patch = wanted.settings.map(patch).transpose()?;
    let settings = told(&*session.put(patch.as_ref(), wanted.metadata).await?);
    done(StatusCode::OK, &SessionWhole::new(session.explain().await?, settings))
}

/// Parses the settings that a client sent.
pub(crate) fn patch(settings: Map<String, Value>) -> Result<Patch, Problem> {
    Patch::parse(&Value::Object(settings).to_string())
        .map_err(|wrong| Problem::invalid(format!("settings.{wrong}")))
}

/// Returns settings as clients may see them: without the models' addresses and keys, which are for the operator only.
pub(crate) fn told(settings: &Settings) -> Value {
    let mut told = settings.to_value();
    let models = told.get_mut("models").and_then(Value::as_object_mut);
    for model in models.into_iter().flat_map(|models| models.values_mut()).filter_map(Value::as_object_mut) {
        model.retain(|key, _| !matches!(key.as_str(), "base_url" | "key_env"));
    }
    told
}

/// Deletes a session and everything derived from it.
#[utoipa::path(delete, path = "/v1/sessions/{session}", tag = "sessions", responses(
    (status = 204, description = "The session is deleted"),
))]
pub(crate) async fn delete(call: Writing) -> Answer {
    let session = call.session();
    match session.delete().await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(Problem::not_found(format!("session `{}` not found", session.name()))),
    }
}

/// Creates a new session from a point of this one.
#[utoipa::path(post, path = "/v1/sessions/{session}/fork", tag = "sessions", request_body = openapi::Fork, responses(
    (status = 201, description = "The new session", body = openapi::Session, headers(
        ("location" = String, description = "The path of the new session"),
    )),
))]
pub(crate) async fn fork(call: Writing, Json(fork): Json<Fork>) -> Answer {
    let _turn = call.app.load.forks.acquire().await;
    let made = call.session().fork(fork).await?;
    let mut answer = done(StatusCode::CREATED, &made.info().await?)?;
    if let Ok(place) = HeaderValue::from_str(&place(made.name())) {
        answer.headers_mut().insert(header::LOCATION, place);
    }
    Ok(answer)
}

/// Characters of a name that are not percent-encoded in a path.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Returns the path of a session.
pub(crate) fn place(session: &str) -> String {
    format!("/v1/sessions/{}", utf8_percent_encode(session, PLAIN))
}
