//! Serves the routes of Honcho's API v3, for programs that were written for Honcho: they change a URL, and nothing else.
//!
//! This crate stores nothing itself. A workspace, a session or a message of Honcho is one of Epitome, rendered in Honcho's
//! format. What Honcho calls a peer is an author. Where Honcho's server does not do what its documentation says, these
//! routes do (`docs/honcho.md`).
//!
//! | module | job |
//! |---|---|
//! | `auth`, `jwt` | authorization in the workspace that a path names |
//! | `request`, `validate` | bodies and parameters, read field by field, and refused with a list of faults (pure) |
//! | `filter`, `list` | which items of a list match, and which page of them (pure) |
//! | `workspaces`, `peers`, `sessions`, `messages`, `upload`, `context`, `search`, `queue`, `keys` | one file per noun |
//! | `state` | what the routes share |
//! | `wire`, `ids`, `iso_time` | Epitome's data in Honcho's format (pure) |
//! | `error` | errors: `{"detail": …}` |

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{any, get, post, put};
use epitome_http::problem::{Mount, Problem};
use epitome_http::reply::json_response;
use serde_json::json;

mod auth;
mod configuration;
mod context;
mod error;
mod filter;
mod ids;
mod iso_time;
mod jwt;
mod keys;
mod list;
mod messages;
mod peers;
mod prelude;
mod queue;
mod request;
mod search;
mod sessions;
mod state;
mod upload;
mod validate;
mod wire;
mod workspaces;

pub use state::Honcho;

use error::not_offered;

/// The prefix of these routes, and how their answers differ from those of native routes.
pub const MOUNT: Mount =
    Mount { prefix: "/v3/", reads, router_error: error::router_error, render: error::render };

/// Returns whether a request only reads and may have a long answer. Honcho's clients send queries as a body.
fn reads(path: &str) -> bool {
    ["/list", "/search", "/sessions"].iter().any(|end| path.ends_with(end))
}

/// Returns all routes. The caller wraps them with `epitome_http::middleware::wrap` and [`MOUNT`].
pub fn router(state: Arc<Honcho>) -> Router {
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
            get(peers::members).post(peers::add).put(peers::set).delete(peers::remove),
        )
        .route("/sessions/{session}/peers/{peer}/config", get(peers::member).put(peers::put_member))
        .route("/sessions/{session}/messages", post(messages::add))
        .route("/sessions/{session}/messages/", post(messages::add))
        .route("/sessions/{session}/messages/list", post(messages::list))
        .route("/sessions/{session}/messages/upload", post(upload::upload))
        .route("/sessions/{session}/messages/{message}", get(messages::read).put(messages::put))
        .route("/sessions/{session}/context", get(context::read))
        .route("/sessions/{session}/summaries", get(context::summaries))
        .route("/sessions/{session}/search", post(search::in_session));
    let workspace = NOT_OFFERED.iter().fold(workspace, |router, path| router.route(path, any(refuse)));
    Router::new()
        .route("/v3/workspaces", post(workspaces::create))
        .route("/v3/workspaces/list", post(workspaces::list))
        .route("/v3/keys", post(keys::create))
        .route("/health", get(health))
        .nest("/v3/workspaces/{workspace}", workspace)
        .with_state(state)
}

/// Routes that are not offered: what Honcho derives by reasoning about the authors of messages.
const NOT_OFFERED: &[&str] = &[
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

/// Answers Honcho's health check.
async fn health() -> Result<Response, Problem> {
    json_response(StatusCode::OK, &json!({"status": "ok"}))
}

/// Answers that a route is not offered.
async fn refuse(_: auth::CanRead) -> Problem {
    not_offered()
}
