//! What happens around every request: an id, a time, a line in the log, figures, and problems put into words.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use tower_http::compression::CompressionLayer;

use super::figures;
use super::problem::dress;

/// By which a request is known, here and in the log.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The router with all of that around it.
pub(super) fn around(router: Router) -> Router {
    router.layer(CompressionLayer::new()).layer(from_fn(each))
}

/// Methods and routes are few, and known: what a caller makes up is counted as one.
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

async fn each(mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = id(request.headers());
    if let Ok(value) = HeaderValue::from_str(&id) {
        request.headers_mut().insert(REQUEST_ID, value);
    }
    let method = method(request.method());
    // The path as it is described: names of sessions are nobody's but the caller's.
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let response = next.run(request).await;
    let mut response = dress(response, &id);
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let (status, took) = (response.status().as_u16(), started.elapsed());
    let route = route.unwrap_or_else(|| "none".to_owned());
    tracing::debug!(request = %id, method, route, status, millis = took.as_secs_f64() * 1e3, "answered");
    figures::answered(route, method, status, took);
    response
}

/// The caller's own id where it can be repeated, else a new one. It is no number that counts: that would tell how much
/// others ask for.
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
