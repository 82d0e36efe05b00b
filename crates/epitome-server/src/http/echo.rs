//! Answers of a given size, with nothing behind them: what the API is measured against.
//!
//! It stands behind the same connections and has the same around it, so that what is left between the two is what the
//! engine does, and what it takes to write its answer down.

use axum::Router;
use axum::extract::Path;
use axum::http::header;
use axum::routing::get;
use bytes::Bytes;

use super::around::around;

/// No answer is larger.
const MOST: usize = 1 << 20;

/// `/SIZE` is answered with so many bytes.
pub(crate) fn echo() -> Router {
    let all: Bytes = vec![b' '; MOST].into();
    let answer = move |Path(size): Path<usize>| {
        let body = all.slice(..size.min(MOST));
        async move { ([(header::CONTENT_TYPE, "application/json")], body) }
    };
    around(Router::new().route("/{size}", get(answer)))
}
