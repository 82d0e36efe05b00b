//! The HTTP API: one engine, any language.
//!
//! A request goes through the same rooms every time:
//!
//! ```text
//! listen    connections: so many, none that dawdles
//! around    an id, a time, a line in the log; problems put into words
//! gate      whose key is it, which workspace, is there room         (extractors: Reads, Writes, Runs)
//! body      read within bounds, then as JSON                        (extractors: Json, Sent)
//! a handler one file a noun: the engine is asked, its answer mapped (wire)
//! reply     JSON, with a mark by which a client knows whether it changed
//! ```
//!
//! Handlers hold an [`Engine`] and no store. What is described at `/openapi.json` is what stands at the handlers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::Router;
use epitome::Engine;
use tokio::sync::watch;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::log::Seldom;
use problem::Problem;

mod around;
mod body;
mod bounds;
mod condense;
mod context;
mod discreet;
mod echo;
mod events;
mod figures;
mod gate;
mod kept;
mod keys;
mod listen;
mod load;
mod meanwhile;
mod messages;
mod openapi;
mod operations;
mod problem;
mod proxy;
mod query;
mod reply;
mod search;
mod sessions;
mod stall;
mod summaries;
mod v3;
mod wire;
mod workspace;

pub(crate) use bounds::Bounds;
pub(crate) use echo::echo;
pub(crate) use figures::count;
pub(crate) use gate::Keys;
pub(crate) use listen::{bind, serve};
pub(crate) use meanwhile::meanwhile;
pub(crate) use proxy::{Proxy, RequestsLog};
pub(crate) use v3::V3;

/// What all handlers share.
pub(crate) struct App {
    pub(crate) engine: Engine,
    /// Whether callers need keys.
    pub(crate) keys: Keys,
    /// How much may be under way, and for how long.
    pub(crate) bounds: Bounds,
    /// How much is.
    pub(crate) load: load::Load,
    /// Contexts given before.
    kept: kept::Kept<context::Asked>,
    /// What Honcho's routes share.
    v3: V3,
    /// What requests that are passed on share.
    proxy: Proxy,
    /// Who was refused for want of room.
    crowd: Seldom,
    /// Whether it was ready when last asked: only a change is told in the log.
    ready: AtomicBool,
    /// Turns true when the server is told to end: whoever stays long leaves then.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl App {
    pub(crate) fn new(
        engine: Engine,
        keys: Keys,
        v3: V3,
        proxy: Proxy,
        bounds: Bounds,
        stopping: watch::Receiver<bool>,
    ) -> Arc<Self> {
        let load = load::Load::new(&bounds);
        Arc::new(Self {
            engine,
            keys,
            bounds,
            load,
            kept: kept::Kept::default(),
            v3,
            proxy,
            crowd: Seldom::default(),
            ready: AtomicBool::new(true),
            stopping,
        })
    }

    /// Writes down what is counted and not written yet.
    pub(crate) async fn settle(&self) {
        self.proxy.settle(self).await;
        self.proxy.written().await;
    }

    async fn figures(&self) -> String {
        figures::all(self).await
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }
}

#[derive(OpenApi)]
#[openapi(info(
    title = "Epitome",
    description = "Keeps long agent conversations inside a model's window without losing the thread. Sessions \
        summarize themselves; a context is a session in as many tokens as you have room for.",
    license(name = "MIT OR Apache-2.0"),
), components(schemas(
    problem::Told,
    messages::Format,
    context::OversizeIn,
    wire::ContextOut,
    wire::Page<wire::MessageOut>,
)))]
struct Described;

fn described() -> (Router<Arc<App>>, utoipa::openapi::OpenApi) {
    OpenApiRouter::with_openapi(Described::openapi())
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

/// The whole API over an engine.
pub(crate) fn router(app: Arc<App>) -> Router {
    let (router, routes) = described();
    let description = openapi::whole(&routes, app.keys);
    let description: bytes::Bytes = serde_json::to_vec_pretty(&description).unwrap_or_default().into();
    let describe = move || {
        let description = description.clone();
        async move { ([(axum::http::header::CONTENT_TYPE, "application/json")], description) }
    };
    let router = router.route("/openapi.json", axum::routing::get(describe)).merge(v3::routes());
    // What is passed on is nobody's to pack or to put into words.
    let passed_on = proxy::routes(Arc::clone(&app));
    // What no route knows is told by the second.
    passed_on.merge(around::around(router.with_state(Arc::clone(&app)), app))
}

/// What a node that only writes summaries answers: whoever watches over it.
pub(crate) fn watched(app: Arc<App>) -> Router {
    let elsewhere = || async {
        Problem::not_found(
            "this node only writes summaries, and answers /healthz, /readyz and /metrics; ask a node whose role is \
             `api` or `all`",
        )
    };
    let (router, _) = OpenApiRouter::with_openapi(Described::openapi())
        .routes(routes!(operations::healthz))
        .routes(routes!(operations::readyz))
        .routes(routes!(operations::metrics))
        .split_for_parts();
    around::around(router.fallback(elsewhere).with_state(Arc::clone(&app)), app)
}
