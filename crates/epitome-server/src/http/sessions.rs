//! Sessions: listed, looked at, set, forked, deleted.

use epitome::Fork;
use epitome::settings::{Patch, Settings};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::prelude::*;
use super::wire::{SessionIn, SessionWhole};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// `next` of the page before.
    after: Option<String>,
    /// At most so many.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
}

/// The sessions of the workspace, by name.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", params(Paging), responses(
    (status = 200, description = "A page of them", body = Page<openapi::Session>),
))]
pub(crate) async fn list(call: Reading<Paging>) -> Answer {
    let limit = limit(call.query.limit)?;
    let found = call.access.workspace.sessions(call.query.after.as_deref(), limit + 1).await?;
    call.read(&Page::new(found, limit, |session| session.name.to_string()))
}

/// A session: its totals, its settings, and where each summary stands.
#[utoipa::path(get, path = "/v1/sessions/{session}", tag = "sessions", responses(
    (status = 200, description = "All that is known of it", body = openapi::SessionWhole),
))]
pub(crate) async fn look(call: Reading) -> Answer {
    let session = call.session();
    let settings = told(&*session.settings().await?);
    call.read(&SessionWhole::new(session.explain().await?, settings))
}

/// Sets a session's settings and metadata, both or neither. Makes the session where there is none.
#[utoipa::path(put, path = "/v1/sessions/{session}", tag = "sessions", request_body = SessionIn, responses(
    (status = 200, description = "The session as it is now", body = openapi::SessionWhole),
))]
pub(crate) async fn put(call: Writing, Json(wanted): Json<SessionIn>) -> Answer {
    let session = call.session();
    let patch = wanted.settings.map(patch).transpose()?;
    let settings = told(&*session.put(patch.as_ref(), wanted.metadata).await?);
    done(StatusCode::OK, &SessionWhole::new(session.explain().await?, settings))
}

/// Settings as they are sent.
pub(crate) fn patch(settings: Map<String, Value>) -> Result<Patch, Problem> {
    Patch::parse(&Value::Object(settings).to_string())
        .map_err(|wrong| Problem::invalid(format!("settings.{wrong}")))
}

/// Settings as they are told. Where models are asked, and with whose key, is a matter of whoever runs the server.
pub(crate) fn told(settings: &Settings) -> Value {
    let mut told = settings.to_value();
    let models = told.get_mut("models").and_then(Value::as_object_mut);
    for model in models.into_iter().flat_map(|models| models.values_mut()).filter_map(Value::as_object_mut) {
        model.retain(|key, _| !matches!(key.as_str(), "base_url" | "key_env"));
    }
    told
}

/// Deletes a session with all that was made from it.
#[utoipa::path(delete, path = "/v1/sessions/{session}", tag = "sessions", responses(
    (status = 204, description = "It is gone"),
))]
pub(crate) async fn delete(call: Writing) -> Answer {
    let session = call.session();
    match session.delete().await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(Problem::not_found(format!("session `{}` not found", session.name()))),
    }
}

/// Makes a new session from a point of this one.
#[utoipa::path(post, path = "/v1/sessions/{session}/fork", tag = "sessions", request_body = openapi::Fork, responses(
    (status = 201, description = "The new session", body = openapi::Session, headers(
        ("location" = String, description = "Where it is"),
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

/// What a name may hold in a path as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Where a session is found.
pub(crate) fn place(session: &str) -> String {
    format!("/v1/sessions/{}", utf8_percent_encode(session, PLAIN))
}
