//! The routes of Honcho's v3, for programs that were written for it: they change a URL, and nothing else.
//!
//! Nothing is kept here. A workspace, a session, a message of theirs is one of ours, seen in their words; what they call a
//! peer is an author. Where their server breaks a promise, ours is kept (`docs/honcho.md`).
//!
//! ```text
//! gate, jwt        who may do what in the workspace a path names
//! sent, check      what is sent and asked for, read by hand and refused fault by fault    (pure)
//! filter, list     which items of a list are wanted, and which page of them               (pure)
//! workspaces, peers, sessions, members, messages, upload, context, search, queue, keys     one file a noun
//! out, ids, moment ours in their words                                                     (pure)
//! refusal          {"detail": …}
//! ```

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{any, get, post, put};
use epitome::{Error, SessionInfo};
use serde_json::json;
use tokio::sync::OnceCell;

use super::App;
use super::kept::Kept;
use super::problem::Problem;
use super::reply::done;

mod check;
mod configuration;
mod context;
mod filter;
mod gate;
mod ids;
mod jwt;
mod keys;
mod list;
mod members;
mod messages;
mod moment;
mod out;
mod peers;
mod queue;
mod refusal;
mod search;
mod sent;
mod sessions;
mod upload;
mod workspaces;

pub(super) use refusal::{Detail, bare, status};

use ids::Ids;
use out::{Counts, Scribe};
use refusal::Refusal;

/// Where its routes begin.
pub(super) const PREFIX: &str = "/v3/";

/// Whether what is sent there only asks, as far as its answer may be long: their clients send what they ask for as a body.
pub(super) fn reads(path: &str) -> bool {
    path.starts_with(PREFIX) && ["/list", "/search", "/sessions"].iter().any(|end| path.ends_with(end))
}

/// What these routes share.
#[derive(Default)]
pub(crate) struct V3 {
    /// By which tokens of theirs are signed, where they are taken.
    jwt: Option<Vec<u8>>,
    /// Made of the store's secret when it is first needed.
    ids: OnceCell<Ids>,
    counts: Counts,
    /// Contexts given before.
    kept: Kept<context::Asked>,
}

impl V3 {
    pub(crate) fn new(jwt: Option<Vec<u8>>) -> Self {
        Self { jwt, ..Self::default() }
    }

    async fn ids(&self, app: &App) -> Result<Ids, Refusal> {
        let made = self.ids.get_or_try_init(|| async { app.engine.secret().await.map(Ids::new) });
        Ok(made.await?.clone())
    }
}

/// All routes.
pub(super) fn routes() -> Router<Arc<App>> {
    let workspace = Router::new()
        .route("/", put(workspaces::put).delete(workspaces::delete))
        .route("/search", post(search::everywhere))
        .route("/queue/status", get(queue::status))
        .route("/peers", post(peers::create))
        .route("/peers/list", post(peers::list))
        .route("/peers/{peer}", put(peers::put))
        .route("/peers/{peer}/sessions", post(peers::sessions))
        .route("/peers/{peer}/search", post(search::of_peer))
        .route("/peers/{peer}/context", get(peers::context))
        .route("/sessions", post(sessions::create))
        .route("/sessions/list", post(sessions::list))
        .route("/sessions/{session}", put(sessions::put).delete(sessions::delete))
        .route("/sessions/{session}/clone", post(sessions::clone))
        .route(
            "/sessions/{session}/peers",
            get(members::list).post(members::add).put(members::set).delete(members::remove),
        )
        .route("/sessions/{session}/peers/{peer}/config", get(members::look).put(members::put))
        .route("/sessions/{session}/messages", post(messages::add))
        .route("/sessions/{session}/messages/", post(messages::add))
        .route("/sessions/{session}/messages/list", post(messages::list))
        .route("/sessions/{session}/messages/upload", post(upload::upload))
        .route("/sessions/{session}/messages/{message}", get(messages::look).put(messages::put))
        .route("/sessions/{session}/context", get(context::read))
        .route("/sessions/{session}/summaries", get(context::summaries))
        .route("/sessions/{session}/search", post(search::in_session));
    let workspace = ABSENT.iter().fold(workspace, |router, path| router.route(path, any(absent)));
    Router::new()
        .route("/v3/workspaces", post(workspaces::create))
        .route("/v3/workspaces/list", post(workspaces::list))
        .route("/v3/keys", post(keys::create))
        .route("/health", get(health))
        .nest("/v3/workspaces/{workspace}", workspace)
}

/// What is made of messages by reasoning about those who wrote them, and what goes with that.
const ABSENT: &[&str] = &[
    "/chat",
    "/schedule_dream",
    "/peers/{peer}/chat",
    "/peers/{peer}/representation",
    "/peers/{peer}/card",
    "/conclusions",
    "/conclusions/{*rest}",
    "/scopes",
    "/scopes/{*rest}",
    "/webhooks",
    "/webhooks/{*rest}",
];

/// Whoever looks after their server asks here whether it runs.
async fn health() -> Result<Response, Problem> {
    done(StatusCode::OK, &json!({"status": "ok"}))
}

/// Says so.
async fn absent(_: gate::Reads) -> Refusal {
    not_offered()
}

/// With a status that their clients do not try again.
fn not_offered() -> Refusal {
    let detail = "not offered: Epitome keeps and condenses conversations, and does not reason about those who hold \
                  them (no chat, representations, cards, conclusions, scopes, dreams or webhooks)";
    Refusal::told(StatusCode::NOT_IMPLEMENTED, "not-offered", detail)
}

/// What was read; nothing where there is no such session.
fn found<T>(read: Result<T, Error>) -> Result<Option<T>, Refusal> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whoever puts a session's messages into their words.
async fn scribe<'a>(app: &'a App, workspace: &'a str, info: &'a SessionInfo) -> Result<Scribe<'a>, Refusal> {
    let ids = app.v3.ids(app).await?;
    Ok(Scribe::new((&ids, &app.v3.counts), (workspace, &info.name), info.id, &info.encoding))
}
