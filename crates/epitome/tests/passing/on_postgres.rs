//! What can only be tried on PostgreSQL. `on_sqlite.rs` has what can only be tried on a file.

use tokio::time::timeout;

use crate::support::{ANN, Desk, Home, TOO_LONG, TWELVE, open, talk};

#[tokio::test(flavor = "multi_thread")]
async fn no_list_waits_for_a_store_that_stands_still() {
    let home = Home::postgres();
    let Home::Postgres(database) = &home else { unreachable!("it is on PostgreSQL") };
    let engine = open(&home).await;
    let desk = Desk::new(&engine, "home", TWELVE).await;
    // Whoever writes waits while this is held.
    let held = database.hold("BEGIN; LOCK TABLE epitome.inline, epitome.passed IN EXCLUSIVE MODE");
    let list = talk("a", 31);
    let passed = timeout(TOO_LONG, desk.before(&ANN, &list)).await;
    drop(held);
    assert!(passed.is_ok_and(|passing| passing.ready.report.condensed));
    engine.close().await;
    assert_eq!(home.rows().0, 1, "and it is kept all the same");
}
