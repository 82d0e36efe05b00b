//! Middleware around every request: request id, duration, log line, metrics, error responses, compression.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::sync::OwnedSemaphorePermit;
use tower_http::compression::CompressionLayer;

use crate::metrics;
use crate::problem::{KeepBody, Mount, Problem, render_problem};
use crate::state::HttpState;

/// Header with the request's id, which the log contains too.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The shared state, and the groups of routes with their own error format.
type MiddlewareState = (Arc<HttpState>, &'static [Mount]);

/// Wraps the router in the middleware. Paths outside of the `mounts` use the native error format. Responses of the
/// `proxied` routes are neither compressed nor charged for memory. Unknown paths are handled by `router`.
pub fn wrap(router: Router, proxied: Router, app: Arc<HttpState>, mounts: &'static [Mount]) -> Router {
    let state: MiddlewareState = (app, mounts);
    let router = router.layer(from_fn_with_state(state.clone(), charge)).layer(CompressionLayer::new());
    proxied.merge(router).layer(from_fn_with_state(state, handle))
}

/// The request's id, as a request extension for handlers.
#[derive(Clone)]
pub struct RequestId(pub Arc<str>);

/// Responses of at most this many bytes are not charged.
const FREE_BYTES: u64 = 64 << 10;

/// Reserves memory for a long response until it is sent, however slowly the client reads. Applies only to requests that
/// read: after a change, an error for lack of memory would wrongly say that nothing was done.
async fn charge(State((app, mounts)): State<MiddlewareState>, request: Request, next: Next) -> Response {
    let reads = {
        let path = request.uri().path();
        request.method() == Method::GET || (Mount::of(mounts, path).reads)(path)
    };
    let mut response = next.run(request).await;
    if !reads {
        return response;
    }
    let size = http_body::Body::size_hint(response.body()).exact().filter(|size| *size > FREE_BYTES);
    let Some(size) = size else { return response };
    let Some(permit) = app.permits.reserve_response(usize::try_from(size).unwrap_or(usize::MAX)) else {
        return Problem::busy("no memory is free for this response; try again, or request a smaller page")
            .into_response();
    };
    // The connection may hold the bytes for long, so the memory is released with the last of them.
    let permit = Arc::new(permit);
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(size));
    let charged = move |data| Bytes::from_owner(ChargedBytes { data, _permit: Arc::clone(&permit) });
    response.map(|body| Body::new(body.map_frame(move |frame| frame.map_data(&charged))))
}

/// A chunk of a response, which keeps the response's memory reserved.
struct ChargedBytes {
    data: Bytes,
    _permit: Arc<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// Returns the method's name for logs and metrics. Unusual methods count as one, so that callers cannot create labels.
fn method(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

/// Handles one request: assigns its id, renders its error, writes its log line and records its metrics.
async fn handle(State((app, mounts)): State<MiddlewareState>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id: Arc<str> = id(request.headers()).into();
    request.extensions_mut().insert(RequestId(Arc::clone(&id)));
    let method = method(request.method());
    // The pattern of the path: the log and the metrics must not contain names of sessions.
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let mount = Mount::of(mounts, request.uri().path());
    let mut response = render_problem(next.run(request).await, &id, mount);
    if let Ok(value) = HeaderValue::from_str(&id) {
        // A provider's own id stays.
        response.headers_mut().entry(REQUEST_ID).or_insert(value);
    }
    let duration = started.elapsed();
    log(&app, &response, (&id, method, &route), duration);
    metrics::record_request(route, method, response.status().as_u16(), duration);
    response
}

/// Writes a line to the log, with the request's id, method and route.
fn log(app: &HttpState, response: &Response, (id, method, route): (&str, &str, &str), duration: Duration) {
    let (status, duration_ms) = (response.status().as_u16(), duration.as_secs_f64() * 1e3);
    let code = response.extensions().get::<Problem>().map(|problem| problem.code);
    // 501 (an unsupported feature) is not a failure, and a provider's error is not this server's.
    let expected = status == 501 || (code.is_none() && response.extensions().get::<KeepBody>().is_some());
    let failed = status >= 500 && !expected;
    // Requests over the limits come in large numbers, so they are summed up in one line per second.
    let busy = failed && code == Some(Problem::BUSY);
    if let Some(refused_requests) = busy.then(|| app.busy_log.record()).flatten() {
        tracing::warn!(refused_requests, "requests were refused: a limit of the server is reached");
    }
    if failed && !busy {
        tracing::warn!(request_id = id, method, route, status, duration_ms, code, "request failed");
    } else {
        tracing::debug!(request_id = id, method, route, status, duration_ms, code, "request answered");
    }
}

/// Returns the caller's own id if it is valid, else a new one. A new id is not a counter, because a counter would reveal how
/// many requests others send.
fn id(headers: &HeaderMap) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let is_valid =
        |id: &&str| (1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    let own = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(is_valid);
    own.map_or_else(
        || format!("{:016x}", HASHER.hash_one(NEXT.fetch_add(1, Ordering::Relaxed))),
        str::to_owned,
    )
}
