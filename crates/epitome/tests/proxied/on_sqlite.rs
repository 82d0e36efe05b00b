//! Tests that need a file. `on_postgres.rs` has the tests that need PostgreSQL.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use epitome::Engine;
use epitome::store::SqliteOptions;
use tokio::time::timeout;

use crate::support::{ANN, Home, Proxy, TOO_LONG, TWELVE, talk};

#[tokio::test(flavor = "multi_thread")]
async fn no_request_waits_for_a_blocked_store() {
    let home = Home::sqlite();
    // Blocks the writer while this is true.
    let blocked = Arc::new(AtomicBool::new(false));
    let is_blocked = Arc::clone(&blocked);
    let on_write = move |_| {
        while is_blocked.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let options = SqliteOptions { on_write: Some(Arc::new(on_write)), ..SqliteOptions::default() };
    let engine = home.open(Engine::builder().workers(0).sqlite(options)).await;
    let proxy = Proxy::new(&engine, "home", TWELVE).await;
    blocked.store(true, Ordering::Release);
    let list = talk("a", 31);
    let passed = timeout(TOO_LONG, proxy.before(&ANN, &list)).await;
    blocked.store(false, Ordering::Release);
    assert!(passed.is_ok_and(|proxied| proxied.ready.report.condensed));
    engine.close().await;
}
