//! What can only be tried on a file. `on_postgres.rs` has what can only be tried on PostgreSQL.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use epitome::Engine;
use epitome::store::SqliteOptions;
use tokio::time::timeout;

use crate::support::{ANN, Desk, Home, TOO_LONG, TWELVE, talk};

#[tokio::test(flavor = "multi_thread")]
async fn no_list_waits_for_a_store_that_stands_still() {
    let home = Home::sqlite();
    // Whoever writes waits while this is so.
    let stands = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&stands);
    let on_write = move |_| {
        while waits.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let options = SqliteOptions { on_write: Some(Arc::new(on_write)), ..SqliteOptions::default() };
    let engine = home.open(Engine::builder().workers(0).sqlite(options)).await;
    let desk = Desk::new(&engine, "home", TWELVE).await;
    stands.store(true, Ordering::Release);
    let list = talk("a", 31);
    let passed = timeout(TOO_LONG, desk.before(&ANN, &list)).await;
    stands.store(false, Ordering::Release);
    assert!(passed.is_ok_and(|passing| passing.ready.report.condensed));
    engine.close().await;
}
