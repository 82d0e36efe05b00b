//! For whoever runs the server: is it alive, is it ready, what does it do.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::App;
use super::gate::Runs;
use super::problem::{DRESSED, Problem};
use super::reply::done;

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

/// Whether the process is there and answers. Needs no key.
#[utoipa::path(get, path = "/healthz", tag = "operations", responses(
    (status = 200, description = "It is", body = Health),
))]
pub(crate) async fn healthz() -> Result<Response, Problem> {
    done(StatusCode::OK, &Health { status: "ok" })
}

/// Whether the server can be used; where it cannot, what is not ready. Needs no key.
#[utoipa::path(get, path = "/readyz", tag = "operations", responses(
    (status = 200, description = "It can", body = Readiness),
    (status = 503, description = "It cannot, and why", body = Readiness),
))]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let mut problems = app.engine.ready().await.err().unwrap_or_default();
    if app.is_stopping() {
        problems.push("the server is shutting down".to_owned());
    }
    let ready = problems.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut answer = done(status, &Readiness { ready, problems })?;
    if !ready {
        // It is no problem of the request's.
        answer.headers_mut().insert(HeaderName::from_static(DRESSED), HeaderValue::from_static("no"));
    }
    Ok(answer)
}

/// Figures for Prometheus. No workspace is named in them. Off loopback an admin key is wanted.
#[utoipa::path(get, path = "/metrics", tag = "operations", responses(
    (status = 200, description = "The figures", body = String, content_type = "text/plain"),
))]
pub(crate) async fn metrics(_: Runs, State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let text = app.figures().await;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
