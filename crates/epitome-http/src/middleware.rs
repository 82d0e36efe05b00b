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

/// Header with the request's id. The log contains the same id.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The shared state, and the groups of routes that have their own error format.
type MiddlewareState = (Arc<HttpState>, &'static [Mount]);

/// Wraps all routes in the middleware. `proxied` has the routes of the proxy. Their responses are not compressed, and
/// no memory is reserved for them. `router` has all other routes, and also handles unknown paths. Errors have the
/// native format, except for paths of the `mounts`.
pub fn wrap(router: Router, proxied: Router, app: Arc<HttpState>, mounts: &'static [Mount]) -> Router {
    let state: MiddlewareState = (app, mounts);
    let router = router.layer(from_fn_with_state(state.clone(), charge)).layer(CompressionLayer::new());
    proxied.merge(router).layer(from_fn_with_state(state, handle))
}

/// The request's id, as a request extension for handlers.
#[derive(Clone)]
pub struct RequestId(pub Arc<str>);

/// Maximum size of a response for which no memory is reserved, in bytes.
const FREE_BYTES: u64 = 64 << 10;

/// Reserves memory for a long response until the response is sent, even if the client reads slowly. If no memory is
/// free, returns an error instead. Applies only to requests that read data: after a change, this error would wrongly
/// say that nothing was done.
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
    // The connection may store the bytes until a slow client has read them. So the memory is released together with the
    // last bytes.
    let permit = Arc::new(permit);
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(size));
    let charged = move |data| Bytes::from_owner(ChargedBytes { data, _permit: Arc::clone(&permit) });
    response.map(|body| Body::new(body.map_frame(move |frame| frame.map_data(&charged))))
}

/// A chunk of a response. The response's memory stays reserved until all its chunks are dropped.
struct ChargedBytes {
    data: Bytes,
    _permit: Arc<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// Returns the method's name for logs and metrics. All unusual methods have the name `other`, so that callers cannot
/// create any number of metric labels.
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
    // The log and the metrics contain the pattern of the path, and not the path, because a path can contain a session's
    // name.
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let mount = Mount::of(mounts, request.uri().path());
    let mut response = render_problem(next.run(request).await, &id, mount);
    if let Ok(value) = HeaderValue::from_str(&id) {
        // If a provider's response already has an id, this id stays.
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
    // The status 501 (an unsupported feature) is not a failure. An error of a provider is not a failure of this server.
    let expected = status == 501 || (code.is_none() && response.extensions().get::<KeepBody>().is_some());
    let failed = status >= 500 && !expected;
    // A busy server can refuse a large number of requests, so one line per second reports their number.
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

/// Returns the request id that the caller sent, if the id is valid. Otherwise returns a new id. A new id is the hash of
/// a counter, because the counter itself would reveal how many requests other callers send.
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
