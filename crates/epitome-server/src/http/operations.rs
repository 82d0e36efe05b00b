//! For whoever runs the server: is it alive, is it ready, what does it do.

use std::sync::atomic::Ordering;

use epitome::Unready;
use epitome_http::problem::Dressed;

use super::prelude::*;

/// That the process is there.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`.
    status: &'static str,
}

/// Whether it can be used.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Readiness {
    /// Whether it can.
    ready: bool,
    /// What is not ready.
    problems: Vec<String>,
}

/// For so long the store may take to show that it is there.
const LONGEST_LOOK: Duration = Duration::from_secs(2);

fn silent() -> Unready {
    let reason = "the store does not answer in time".to_owned();
    Unready { short: reason.clone(), whole: reason }
}

/// Whether the process is there and answers. Needs no key.
#[utoipa::path(get, path = "/healthz", tag = "operations", responses(
    (status = 200, description = "It is", body = Health),
))]
pub(crate) async fn healthz() -> Answer {
    done(StatusCode::OK, &Health { status: "ok" })
}

/// Whether the server can be used; where it cannot, what is not ready. Needs no key.
#[utoipa::path(get, path = "/readyz", tag = "operations", responses(
    (status = 200, description = "It can", body = Readiness),
    (status = 503, description = "It cannot, and why", body = Readiness),
))]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Answer {
    let asked = tokio::time::timeout(LONGEST_LOOK, app.engine.ready()).await;
    let reasons = asked.map_or_else(|_| vec![silent()], |ready| ready.err().unwrap_or_default());
    let stopping = app.is_stopping();
    if !stopping && app.ready.swap(reasons.is_empty(), Ordering::Relaxed) != reasons.is_empty() {
        // Only when it changes: anybody may ask, as often as they like.
        for reason in &reasons {
            tracing::error!(reason = reason.whole, "not ready");
        }
        if reasons.is_empty() {
            tracing::info!("ready again");
        }
    }
    let mut problems: Vec<String> = reasons.into_iter().map(|reason| reason.short).collect();
    if stopping {
        problems = vec!["the server is shutting down".to_owned()];
    }
    let ready = problems.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut answer = done(status, &Readiness { ready, problems })?;
    if !ready {
        // It is no problem of the request's.
        answer.headers_mut().insert("x-epitome-ready", HeaderValue::from_static("no"));
        answer.extensions_mut().insert(Dressed);
    }
    Ok(answer)
}

/// Figures for Prometheus. No workspace is named in them. Off loopback an admin key is wanted.
#[utoipa::path(get, path = "/metrics", tag = "operations", responses(
    (status = 200, description = "The figures", body = String, content_type = "text/plain"),
))]
pub(crate) async fn metrics(_: Runs, State(app): State<Arc<App>>) -> Answer {
    let text = epitome_http::figures::all(&app).await;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
