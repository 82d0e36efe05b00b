//! Routes for the operator: liveness, readiness, metrics.

use std::sync::atomic::Ordering;

use epitome::Unready;
use epitome_http::problem::KeepBody;

use super::prelude::*;

/// Liveness of the process.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// Always `ok`.
    status: &'static str,
}

/// Readiness of the server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Readiness {
    /// Whether the server is ready for requests.
    ready: bool,
    /// The reasons why the server is not ready; empty if it is ready.
    problems: Vec<String>,
}

/// Timeout for the readiness check of the store.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

fn timed_out() -> Unready {
    let reason = "the store did not answer in time".to_owned();
    Unready { public: reason.clone(), details: reason }
}

/// Reports that the process is alive. Needs no key.
#[utoipa::path(get, path = "/healthz", tag = "operations", responses(
    (status = 200, description = "The process is alive", body = Health),
))]
pub(crate) async fn healthz() -> Answer {
    json_response(StatusCode::OK, &Health { status: "ok" })
}

/// Reports whether the server is ready for requests, and if not, why. Needs no key.
#[utoipa::path(get, path = "/readyz", tag = "operations", responses(
    (status = 200, description = "The server is ready", body = Readiness),
    (status = 503, description = "The server is not ready; `problems` has the reasons", body = Readiness),
))]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Answer {
    let checked = tokio::time::timeout(READY_TIMEOUT, app.engine.ready()).await;
    let reasons = checked.map_or_else(|_| vec![timed_out()], |ready| ready.err().unwrap_or_default());
    let stopping = app.is_stopping();
    if !stopping && app.ready.swap(reasons.is_empty(), Ordering::Relaxed) != reasons.is_empty() {
        // Logs only changes, because any client may call this route any number of times.
        for reason in &reasons {
            tracing::error!(reason = reason.details, "not ready");
        }
        if reasons.is_empty() {
            tracing::info!("ready again");
        }
    }
    let mut problems: Vec<String> = reasons.into_iter().map(|reason| reason.public).collect();
    if stopping {
        problems = vec!["the server is shutting down".to_owned()];
    }
    let ready = problems.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut answer = json_response(status, &Readiness { ready, problems })?;
    if !ready {
        // The status reports the server's state and not a fault of the request, so the response is not turned into a
        // problem document.
        answer.headers_mut().insert("x-epitome-ready", HeaderValue::from_static("no"));
        answer.extensions_mut().insert(KeepBody);
    }
    Ok(answer)
}

/// Returns metrics for Prometheus. The metrics name no workspace. Requires an admin key, if the server requires keys.
#[utoipa::path(get, path = "/metrics", tag = "operations", responses(
    (status = 200, description = "The metrics", body = String, content_type = "text/plain"),
))]
pub(crate) async fn metrics(_: Operator, State(app): State<Arc<App>>) -> Answer {
    let text = epitome_http::metrics::render(&app).await;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
