//! Tests that need PostgreSQL. `on_sqlite.rs` has the tests that need a file.

use tokio::time::timeout;

use crate::support::{ANN, Home, Proxy, TOO_LONG, TWELVE, open, talk};

#[tokio::test(flavor = "multi_thread")]
async fn no_request_waits_for_a_blocked_store() {
    let home = Home::postgres();
    let Home::Postgres(database) = &home else { unreachable!("it is on PostgreSQL") };
    let engine = open(&home).await;
    let proxy = Proxy::new(&engine, "home", TWELVE).await;
    // Blocks every write to these tables until the lock is dropped.
    let lock = database.hold("BEGIN; LOCK TABLE epitome.inline, epitome.passed IN EXCLUSIVE MODE");
    let list = talk("a", 31);
    let passed = timeout(TOO_LONG, proxy.before(&ANN, &list)).await;
    drop(lock);
    assert!(passed.is_ok_and(|proxied| proxied.ready.report.condensed));
    engine.close().await;
    assert_eq!(home.rows().0, 1, "the state is stored afterwards");
}
