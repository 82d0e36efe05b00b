//! Serves the routes of Honcho's API v3, for programs that were written for Honcho: they change a URL, and nothing else.
//!
//! Nothing is stored here. A workspace, a session or a message of Honcho is one of Epitome, shown in Honcho's format. What
//! Honcho calls a peer is an author. Where Honcho's server breaks a promise, these routes keep it (`docs/honcho.md`).
//!
//! | module | job |
//! |---|---|
//! | `gate`, `jwt` | authorization in the workspace that a path names |
//! | `sent`, `check` | bodies and parameters, read field by field, and refused with a list of faults (pure) |
//! | `filter`, `list` | which items of a list match, and which page of them (pure) |
//! | `workspaces`, `peers`, `sessions`, `messages`, `upload`, `context`, `search`, `queue`, `keys` | one file per noun |
//! | `state` | what the routes share |
//! | `out`, `ids`, `moment` | Epitome's data in Honcho's format (pure) |
//! | `refusal` | errors: `{"detail": …}` |

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{any, get, post, put};
use epitome_http::problem::{Mount, Problem};
use epitome_http::reply::done;
use serde_json::json;

mod check;
mod configuration;
mod context;
mod filter;
mod gate;
mod ids;
mod jwt;
mod keys;
mod list;
mod messages;
mod moment;
mod out;
mod peers;
mod prelude;
mod queue;
mod refusal;
mod search;
mod sent;
mod sessions;
mod state;
mod upload;
mod workspaces;

pub use state::Honcho;

use refusal::not_offered;

/// The prefix of these routes, and how their answers differ from those of native routes.
pub const MOUNT: Mount = Mount { prefix: "/v3/", reads, bare: refusal::bare, words: refusal::words };

/// Returns whether a request only reads and may have a long answer. Honcho's clients send queries as a body.
fn reads(path: &str) -> bool {
    ["/list", "/search", "/sessions"].iter().any(|end| path.ends_with(end))
}

/// Returns all routes. The caller wraps them in the middleware `epitome_http::around`, with [`MOUNT`].
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
        .route("/sessions/{session}/peers/{peer}/config", get(peers::look).put(peers::put_member))
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
        .with_state(state)
}

/// Routes that are not offered: what Honcho derives by reasoning about the authors of messages, and what belongs to it.
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

/// Answers Honcho's health check.
async fn health() -> Result<Response, Problem> {
    done(StatusCode::OK, &json!({"status": "ok"}))
}

/// Answers that a route is not offered.
async fn absent(_: gate::Reads) -> Problem {
    not_offered()
}
