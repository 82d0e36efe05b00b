//! Too many connections, foreign locks, a full disk: the error names the cause, and the store recovers by itself.

use std::time::Duration;

use epitome::store::Store;
use epitome::store::{Postgres, PostgresOptions, StoreError};

use crate::postgres_server::{LockHolder, Options, Server, server};
use crate::setup::{count_unique_messages, database, haste, hasty, in_time, many, node, say};
use crate::support::{key, row};

#[tokio::test(flavor = "multi_thread")]
async fn without_free_connections_it_waits_then_fails_then_recovers() {
    const MOST: usize = 12;
    let settings =
        [&format!("max_connections = {MOST}"), "superuser_reserved_connections = 0", "max_wal_senders = 0"];
    let server =
        Server::own(&Options { settings: settings.map(str::to_owned).to_vec(), ..Options::default() });
    let database = database(&server);
    let node = hasty(&database.url()).await.unwrap();
    say(&node, &key("a"), "before").await.unwrap();

    // Other clients take the free connections, then those that the node loses.
    let mut others: Vec<LockHolder> = Vec::new();
    while others.len() < MOST {
        others.extend(std::iter::from_fn(|| database.try_hold("SELECT 1").ok()));
        others[0].also(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'epitome'",
        );
    }
    // Also a node that had connections before, and one that opens now.
    for told in
        [in_time(say(&node, &key("b"), "meanwhile")).await, in_time(hasty(&database.url())).await.map(|_| ())]
    {
        let error = told.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains("too many clients"), "{error}");
    }

    // A node with a longer deadline gets no error.
    let options = PostgresOptions { patience: Duration::from_secs(120), ..haste() };
    let url = database.url();
    let waiting = tokio::spawn(async move { Postgres::open(&url, options).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(others);
    let patient = in_time(waiting).await.unwrap().unwrap();
    in_time(say(&patient, &key("a"), "after")).await.unwrap();
    in_time(say(&node, &key("a"), "after that")).await.unwrap();
    patient.close().await;
    node.close().await;
    assert_eq!(count_unique_messages(&database), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_writers_than_connections_take_turns() {
    let database = database(server());
    let options = PostgresOptions { connections: 2, ..PostgresOptions::default() };
    let node = Postgres::open(&database.url(), options).await.unwrap();
    in_time(many(&node, "one", 40, 4).join_all()).await;
    node.close().await;
    assert_eq!(count_unique_messages(&database), 320);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_lock_is_waited_for_then_reported_and_then_it_recovers() {
    let database = database(server());
    let node = hasty(&database.url()).await.unwrap();
    say(&node, &key("a"), "before").await.unwrap();

    let held = database.hold("BEGIN; LOCK TABLE epitome.sessions IN ACCESS EXCLUSIVE MODE");
    for told in [
        in_time(say(&node, &key("a"), "meanwhile")).await,
        in_time(node.session_state(&key("a"), Default::default())).await.map(|_| ()),
        in_time(node.stamp(&key("a"))).await.map(|_| ()),
    ] {
        let error = told.unwrap_err();
        assert!(matches!(error, StoreError::Busy), "{error:?}");
    }
    drop(held);
    in_time(say(&node, &key("a"), "after")).await.unwrap();
    assert_eq!(row(&node, &key("a")).await.tracker.head(), 2);

    // A locked session does not block other sessions.
    let held = database.hold("BEGIN; SELECT 1 FROM epitome.sessions WHERE name = 'a' FOR UPDATE");
    in_time(say(&node, &key("b"), "beside it")).await.unwrap();
    let error = in_time(say(&node, &key("a"), "meanwhile")).await.unwrap_err();
    assert!(matches!(error, StoreError::Busy), "{error:?}");
    drop(held);
    in_time(say(&node, &key("a"), "after")).await.unwrap();
    node.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_reported_and_writing_recovers() {
    let server = Server::own(&Options::default());
    let database = server.small_disk(24 << 20);
    let node = node(&database.url()).await;
    say(&node, &key("a"), "before").await.unwrap();

    // PostgreSQL may reuse the space of a refused row, so a later message may fit before the next one is refused.
    let mut said = 1;
    for _ in 0..2 {
        let error = loop {
            match in_time(say(&node, &key("a"), &noise(said))).await {
                Ok(()) => said += 1,
                Err(error) => break error,
            }
            assert!(said < 10_000, "the disk is never full");
        };
        assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
        // Stored messages can be read; refused ones are not stored.
        assert_eq!(row(&node, &key("a")).await.tracker.head(), said);
    }

    database.make_room();
    in_time(say(&node, &key("a"), "after")).await.unwrap();
    node.close().await;
    assert_eq!(count_unique_messages(&database) as u64, said + 1);
}

/// Returns a long text that cannot be compressed.
fn noise(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let letters = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'!' + u8::try_from(state % 90).unwrap())
    });
    letters.take(100_000).collect()
}
