//! Serves the routes of Honcho's API v3. Honcho is another server that stores the conversations of agents. A program
//! that was written for Honcho changes only its base URL to use Epitome.
//!
//! This crate stores nothing itself. Workspaces, sessions and messages of Honcho are workspaces, sessions and messages
//! of Epitome, rendered in Honcho's format. A peer of Honcho is an author of Epitome. `docs/honcho.md` lists what these
//! routes do differently from Honcho's server.
//!
//! | module | job |
//! |---|---|
//! | `auth`, `jwt` | authorizes callers for the workspace that a path names |
//! | `request`, `validate` | reads bodies and query parameters field by field, and lists an invalid request's faults |
//! | `filter`, `list` | decides which items of a list match a filter, and which page of the list is returned |
//! | `workspaces`, `peers`, `sessions`, `messages`, `upload`, `context`, `search`, `queue`, `keys` | the routes |
//! | `state` | the state that all routes share |
//! | `wire`, `ids`, `iso_time` | converts Epitome's data into Honcho's format |
//! | `error` | errors in Honcho's format: `{"detail": …}` |

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

/// The path prefix of Honcho's routes, and the functions that render their errors in Honcho's format.
pub const MOUNT: Mount =
    Mount { prefix: "/v3/", reads, router_error: error::router_error, render: error::render };

/// Returns whether a request to this path reads data and may have a long response. Honcho's clients send list and
/// search requests with `POST`, so the method does not show that these requests only read.
fn reads(path: &str) -> bool {
    let mut from_end = path.rsplit('/');
    match from_end.next() {
        Some("list" | "search") => true,
        // `peers/{peer}/sessions` lists; `workspaces/{workspace}/sessions` creates.
        Some("sessions") => from_end.nth(1) == Some("peers"),
        _ => false,
    }
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

/// Routes of Honcho that Epitome does not offer. Most of them return what Honcho derives by reasoning about the authors
/// of messages.
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

/// Returns the error for a route that is not offered.
async fn refuse(_: auth::CanRead) -> Problem {
    not_offered()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_that_list_or_search_count_as_reads() {
        for path in ["/v3/workspaces/list", "/v3/workspaces/w/peers/ann/sessions", "/v3/workspaces/w/search"]
        {
            assert!(reads(path), "{path}");
        }
        for path in ["/v3/workspaces/w/sessions", "/v3/workspaces/peers/sessions", "/v3/workspaces/w/peers"] {
            assert!(!reads(path), "{path}");
        }
    }
}
