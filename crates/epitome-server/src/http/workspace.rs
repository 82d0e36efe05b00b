//! Routes for a workspace: its settings, its queue of due summaries, and its usage.

use super::prelude::*;
use super::sessions::{patch, without_operator_settings};
use super::wire::{self, QueueOut, WorkspaceIn};
use crate::times::parse_instant;

/// Returns the workspace's settings.
#[utoipa::path(get, path = "/v1/workspace", tag = "workspace", responses(
    (status = 200, description = "The workspace's settings", body = openapi::Workspace),
))]
pub(crate) async fn look(call: Reading) -> Answer {
    let workspace = &call.access.workspace;
    let own = workspace.patch().await?.to_value();
    let settings = without_operator_settings(&*workspace.settings().await?);
    call.read(&json!({"name": workspace.name(), "own": own, "settings": settings}))
}

/// Changes the workspace's settings. The new settings apply to each session from its next message on.
#[utoipa::path(put, path = "/v1/workspace", tag = "workspace", request_body = WorkspaceIn, responses(
    (status = 200, description = "The settings after the change", body = openapi::Workspace),
))]
pub(crate) async fn put(call: Writing, Json(change): Json<WorkspaceIn>) -> Answer {
    let workspace = call.access.workspace;
    let settings = without_operator_settings(&*workspace.set(&patch(change.settings)?).await?);
    let own = workspace.patch().await?.to_value();
    json_response(StatusCode::OK, &json!({"name": workspace.name(), "own": own, "settings": settings}))
}

/// Returns the summaries that are due in the workspace, and their state.
#[utoipa::path(get, path = "/v1/queue", tag = "workspace", responses(
    (status = 200, description = "The queue", body = openapi::Queue),
))]
pub(crate) async fn queue(call: Reading) -> Answer {
    let mut queue = call.access.workspace.queue().await?;
    for slot in &mut queue.slots {
        slot.last_error = slot.last_error.as_deref().map(scrub);
    }
    call.read(&QueueOut::new(queue))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UsageQuery {
    /// Counts only calls since this time: RFC 3339, a date (UTC), or milliseconds since 1970. Proxied requests are
    /// stored as sums per hour, so they are counted from the beginning of that hour on.
    #[param(format = "instant", example = "2026-03-14T10:22:00Z")]
    since: Option<String>,
    /// Counts only calls for this session.
    session: Option<String>,
}

/// Returns the usage of models, and the savings of the proxy.
///
/// The response contains every model call, including failed calls, summed by slot, model and outcome. It also contains
/// proxied requests, summed by model.
#[utoipa::path(get, path = "/v1/usage", tag = "workspace", params(UsageQuery), responses(
    (status = 200, description = "The usage", body = openapi::Usage),
))]
pub(crate) async fn usage(call: Reading<UsageQuery>) -> Answer {
    let (workspace, session) = (&call.access.workspace, call.query.session.as_deref());
    let since = call.query.since.as_deref().map(parse_instant).transpose();
    let since = since.map_err(|expected| Problem::invalid(format!("since: {expected}")))?.unwrap_or_default();
    let mut usage = wire::usage(&workspace.usage_by_slot(session, since).await?);
    if session.is_none() {
        // Writes the latest counts to the store first, so that the sums include these counts.
        call.app.flush().await;
        let proxy = wire::proxy_usage(&workspace.passed(since).await?);
        usage.as_object_mut().map(|usage| usage.insert("proxy".to_owned(), proxy));
    }
    call.read(&usage)
}
