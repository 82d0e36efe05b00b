//! The HTTP API: the native routes and the proxy.
//!
//! The crate `epitome-http` has the parts that all routes need: connections, limits, keys, bodies and error responses.
//! This module has the native routes (`/v1`), with one file per resource, and the proxy. `wire` maps the engine's types
//! to JSON. The crate `epitome-honcho` has Honcho's routes (`/v3`).
//!
//! Handlers use an [`Engine`](epitome::Engine), never a store. `/openapi.json` is built from the handlers' annotations
//! and the JSON files in `openapi/`.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::Router;
use epitome_honcho::Honcho;
use epitome_http::middleware::wrap;
use epitome_http::problem::ProblemBody;
use epitome_http::{HttpState, Problem};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

mod call;
mod condense;
mod context;
mod events;
mod keys;
mod messages;
mod openapi;
mod operations;
mod prelude;
mod proxy;
mod search;
mod sessions;
mod startup;
mod suggest;
mod summaries;
pub(crate) mod wire;
mod workspace;

// The proxy's modules import these modules from here.
use epitome_http::{auth, body, listen, metrics, permits, problem};

pub(crate) use context::{ContextQuery, OversizeIn};
pub(crate) use proxy::{ProxyState, RequestsLog};
pub(crate) use startup::{answer_until_open, bind};

/// State that all handlers share.
pub(crate) struct App {
    http: Arc<HttpState>,
    /// Cache of contexts that the route has returned.
    contexts: epitome_http::reply::ContextCache<ContextQuery>,
    /// State of the proxy.
    proxy: ProxyState,
    /// Result of the last readiness check, so that only changes are logged.
    ready: AtomicBool,
}

impl Deref for App {
    type Target = Arc<HttpState>;

    fn deref(&self) -> &Arc<HttpState> {
        &self.http
    }
}

impl App {
    pub(crate) fn new(http: Arc<HttpState>, proxy: ProxyState) -> Arc<Self> {
        let (contexts, ready) = (epitome_http::reply::ContextCache::default(), AtomicBool::new(true));
        Arc::new(Self { http, contexts, proxy, ready })
    }

    /// Writes the proxy's pending usage to the store, and waits until the requests log is written.
    pub(crate) async fn flush(&self) {
        self.proxy.flush(self).await;
    }
}

#[derive(OpenApi)]
#[openapi(info(
    title = "Epitome",
    description = "Keeps long agent conversations inside a model's context window. Epitome summarizes sessions in the \
        background. A context is the content of a session within a token budget.",
    license(name = "MIT OR Apache-2.0"),
), components(schemas(
    ProblemBody,
    crate::format::Format,
    context::OversizeIn,
    wire::Page<openapi::Message>,
)))]
struct ApiDoc;

/// Returns the native routes, and their descriptions.
fn routes() -> (Router<Arc<App>>, utoipa::openapi::OpenApi) {
    OpenApiRouter::with_openapi(ApiDoc::openapi())
        .routes(routes!(sessions::list))
        .routes(routes!(sessions::look, sessions::put, sessions::delete))
        .routes(routes!(sessions::fork))
        .routes(routes!(messages::append, messages::list))
        .routes(routes!(messages::flag))
        .routes(routes!(context::read))
        .routes(routes!(summaries::list, summaries::summarize))
        .routes(routes!(summaries::expand))
        .routes(routes!(summaries::undo))
        .routes(routes!(summaries::rebuild))
        .routes(routes!(condense::condense))
        .routes(routes!(search::in_session))
        .routes(routes!(search::everywhere))
        .routes(routes!(workspace::look, workspace::put))
        .routes(routes!(workspace::queue))
        .routes(routes!(workspace::usage))
        .routes(routes!(events::listen))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::revoke))
        .routes(routes!(operations::healthz))
        .routes(routes!(operations::readyz))
        .routes(routes!(operations::metrics))
        .split_for_parts()
}

/// Returns the router of the whole API: the native routes, Honcho's routes and the proxy.
pub(crate) fn router(app: &Arc<App>, honcho: Arc<Honcho>) -> Router {
    let (router, routes) = routes();
    let description = openapi::document(&routes, app.keys);
    let description: bytes::Bytes = serde_json::to_vec_pretty(&description).unwrap_or_default().into();
    let describe = move || {
        let description = description.clone();
        async move { ([(axum::http::header::CONTENT_TYPE, "application/json")], description) }
    };
    let router = router.route("/openapi.json", axum::routing::get(describe));
    let router = router.with_state(Arc::clone(app)).merge(epitome_honcho::router(honcho));
    wrap(router, proxy::routes(app), Arc::clone(&app.http), &[epitome_honcho::MOUNT])
}

/// Returns the router of a node that only writes summaries. The router has only the routes for monitoring.
pub(crate) fn monitoring_router(app: &Arc<App>) -> Router {
    let not_here = || async {
        Problem::not_found(
            "this node only writes summaries, and serves only /healthz, /readyz and /metrics; use a node with the role \
             `api` or `all`",
        )
    };
    let (router, _) = OpenApiRouter::with_openapi(ApiDoc::openapi())
        .routes(routes!(operations::healthz))
        .routes(routes!(operations::readyz))
        .routes(routes!(operations::metrics))
        .split_for_parts();
    let router = router.fallback(not_here).with_state(Arc::clone(app));
    wrap(router, Router::new(), Arc::clone(&app.http), &[])
}
