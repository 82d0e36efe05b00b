//! A workspace as a whole: its settings, what is due, what was spent.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use epitome::rules::message::Timestamp;
use epitome_http::body::Json;
use epitome_http::discreet::discreet;
use epitome_http::gate::{Reads, Writes};
use epitome_http::problem::Problem;
use epitome_http::query::{Nothing, Query};
use epitome_http::reply::{Known, done};
use serde::Deserialize;
use utoipa::IntoParams;

use super::App;
use super::openapi;
use super::sessions::{patch, told};
use super::wire::{ProxiedOut, UsageOut, WorkspaceIn, WorkspaceOut};

/// The workspace's settings.
#[utoipa::path(get, path = "/v1/workspace", tag = "workspace", responses(
    (status = 200, description = "Its settings", body = WorkspaceOut),
))]
pub(crate) async fn look(Reads(access): Reads, _: Query<Nothing>, known: Known) -> Result<Response, Problem> {
    let workspace = access.workspace;
    let own = workspace.patch().await?.to_value();
    let settings = told(&*workspace.settings().await?);
    known.read(&WorkspaceOut { name: workspace.name(), own, settings })
}

/// Changes the workspace's settings. They hold from the next message of each session on.
#[utoipa::path(put, path = "/v1/workspace", tag = "workspace", request_body = WorkspaceIn, responses(
    (status = 200, description = "Its settings as they are now", body = WorkspaceOut),
))]
pub(crate) async fn put(
    Writes(access): Writes,
    _: Query<Nothing>,
    Json(wanted): Json<WorkspaceIn>,
) -> Result<Response, Problem> {
    let workspace = access.workspace;
    let settings = told(&*workspace.set(&patch(wanted.settings)?).await?);
    let own = workspace.patch().await?.to_value();
    done(StatusCode::OK, &WorkspaceOut { name: workspace.name(), own, settings })
}

/// What is due in the workspace, and how the work on that goes.
#[utoipa::path(get, path = "/v1/queue", tag = "workspace", responses(
    (status = 200, description = "The queue", body = openapi::Queue),
))]
pub(crate) async fn queue(
    Reads(access): Reads,
    _: Query<Nothing>,
    known: Known,
) -> Result<Response, Problem> {
    let mut queue = access.workspace.queue().await?;
    for slot in &mut queue.slots {
        slot.last_error = slot.last_error.as_deref().map(discreet);
    }
    known.read(&queue)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Since {
    /// Only calls since then, in milliseconds since 1970. What went through the proxy is added up by the hour, from the
    /// beginning of that hour on.
    #[param(minimum = 0)]
    since: Option<u64>,
    /// Only those for this session.
    session: Option<String>,
}

/// What was used, and what the proxy saved.
///
/// Every call of a model, failed ones too, added up by slot, model and outcome; and what went through the proxy, added up by
/// model.
#[utoipa::path(get, path = "/v1/usage", tag = "workspace", params(Since), responses(
    (status = 200, description = "What was used", body = UsageOut),
))]
pub(crate) async fn usage(
    State(app): State<Arc<App>>,
    Reads(access): Reads,
    Query(asked): Query<Since>,
    known: Known,
) -> Result<Response, Problem> {
    let since = Timestamp(i64::try_from(asked.since.unwrap_or(0)).unwrap_or(i64::MAX));
    let session = asked.session.as_deref();
    let mut usage = UsageOut::from(access.workspace.usage_by_slot(session, since).await?);
    if session.is_none() {
        // What was counted a moment ago is told too.
        app.settle().await;
        usage.proxy = Some(ProxiedOut::from(access.workspace.passed(since).await?));
    }
    known.read(&usage)
}
