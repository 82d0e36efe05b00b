//! What the API is measured against: the same server with nothing behind it.
//!
//! It stands behind the same connections and has the same around it, so that what is left between the two is what the
//! engine does, and what it takes to write its answer down.

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::http::header;
use axum::routing::{get, post};
use bytes::Bytes;
use epitome_http::HttpState;
use epitome_http::around::around;

/// No answer is larger.
const MOST: usize = 1 << 20;

/// What is sent to `/` is sent back, and `/SIZE` is answered with so many bytes.
pub(crate) fn echo(app: Arc<HttpState>) -> Router {
    let json = |body: Bytes| ([(header::CONTENT_TYPE, "application/json")], body);
    let all: Bytes = vec![b' '; MOST].into();
    let send = move |Path(size): Path<usize>| {
        let body = all.slice(..size.min(MOST));
        async move { json(body) }
    };
    let send_back = move |body: Bytes| async move { json(body) };
    around(Router::new().route("/", post(send_back)).route("/{size}", get(send)), app, &[])
}
