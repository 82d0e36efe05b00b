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

use crate::figures;
use crate::problem::{Dressed, Mount, Problem, dress};
use crate::state::HttpState;

/// Header with the request's id, which the log contains too.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The shared state, and the groups of routes with their own error format.
type Around = (Arc<HttpState>, &'static [Mount]);

/// Wraps the router in the middleware. Paths outside of the `mounts` use the native error format. Responses of the
/// `passed_on` routes are neither compressed nor charged for memory. Unknown paths are handled by `router`.
pub fn around(router: Router, passed_on: Router, app: Arc<HttpState>, mounts: &'static [Mount]) -> Router {
    let around: Around = (app, mounts);
    let router = router.layer(from_fn_with_state(around.clone(), charge)).layer(CompressionLayer::new());
    passed_on.merge(router).layer(from_fn_with_state(around, each))
}

/// The request's id, as a request extension for handlers.
#[derive(Clone)]
pub struct RequestId(pub Arc<str>);

/// Responses of at most this many bytes are not charged.
const SHORT: u64 = 64 << 10;

/// Reserves memory for a long response until it is sent, however slowly the client reads. Applies only to requests that
/// read: after a change, an error for lack of memory would wrongly say that nothing was done.
async fn charge(State((app, mounts)): State<Around>, request: Request, next: Next) -> Response {
    let reads = {
        let path = request.uri().path();
        request.method() == Method::GET || (Mount::of(mounts, path).reads)(path)
    };
    let mut response = next.run(request).await;
    if !reads {
        return response;
    }
    let Some(size) = http_body::Body::size_hint(response.body()).exact().filter(|size| *size > SHORT) else {
        return response;
    };
    let Some(set_aside) = app.load.set_aside(usize::try_from(size).unwrap_or(usize::MAX)) else {
        return Problem::busy("too many long answers are being sent; try again, or ask for less")
            .into_response();
    };
    // The connection may hold the bytes for long, so the reservation is released with the last of them.
    let set_aside = Arc::new(set_aside);
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(size));
    let held = move |data| Bytes::from_owner(Held { data, _set_aside: Arc::clone(&set_aside) });
    response.map(|body| Body::new(body.map_frame(move |frame| frame.map_data(&held))))
}

/// A piece of a response with its share of the reserved memory.
struct Held {
    data: Bytes,
    _set_aside: Arc<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Held {
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

async fn each(State((app, mounts)): State<Around>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id: Arc<str> = id(request.headers()).into();
    request.extensions_mut().insert(RequestId(Arc::clone(&id)));
    let method = method(request.method());
    // The pattern of the path: the log and the metrics must not contain names of sessions.
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let mount = Mount::of(mounts, request.uri().path());
    let mut response = dress(next.run(request).await, &id, mount);
    if let Ok(value) = HeaderValue::from_str(&id) {
        // A provider's own id stays.
        response.headers_mut().entry(REQUEST_ID).or_insert(value);
    }
    let took = started.elapsed();
    log(&app, &response, (&id, method, &route), took);
    figures::answered(route, method, response.status().as_u16(), took);
    response
}

/// Writes a line to the log, with the request's id, method and route.
fn log(app: &HttpState, response: &Response, (id, method, route): (&str, &str, &str), took: Duration) {
    let (status, millis) = (response.status().as_u16(), took.as_secs_f64() * 1e3);
    let code = response.extensions().get::<Problem>().map(|problem| problem.code);
    // 501 (an unsupported feature) is no failure, and a provider's error is not this server's.
    let fine = status == 501 || (code.is_none() && response.extensions().get::<Dressed>().is_some());
    let failed = status >= 500 && !fine;
    // Requests over the limits come in large numbers, so they are summed up in one line per second.
    let crowded = failed && code == Some(Problem::BUSY);
    if let Some(refused) = crowded.then(|| app.crowd.happened()).flatten() {
        tracing::warn!(refused, "too much is in progress");
    }
    if failed && !crowded {
        tracing::warn!(request = id, method, route, status, millis, code, "failed");
    } else {
        tracing::debug!(request = id, method, route, status, millis, code, "answered");
    }
}

/// Returns the caller's own id if it is valid, else a new one. A new id is not a counter, because a counter would reveal how
/// many requests others send.
fn id(headers: &HeaderMap) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static KEYED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let plain = |id: &&str| (1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(plain);
    given.map_or_else(
        || format!("{:016x}", KEYED.hash_one(NEXT.fetch_add(1, Ordering::Relaxed))),
        str::to_owned,
    )
}
