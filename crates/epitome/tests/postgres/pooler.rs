//! Behind a connection pooler in transaction mode.

use epitome::search::Query;
use epitome::store::Store;
use epitome::store::{Load, Search, StoreError};
use epitome_core::message::Message;
use epitome_core::slot::{Limit, Scope, Slot};
use epitome_core::trigger::Trigger;

use crate::postgres_server::{Pooler, server};
use crate::setup::{count_unique_messages, database, hasty, in_time, many, node, say, want};
use crate::support::{append, key, row};

#[tokio::test(flavor = "multi_thread")]
async fn the_store_works_behind_a_pooler() {
    let database = database(server());
    let pooler = Pooler::to(server(), 3);
    let url = pooler.url(&database);
    // Several nodes also create the tables through it at the same time.
    let (one, other) = tokio::join!(node(&url), node(&url));

    let (writing, also) = (many(&one, "one", 8, 10), many(&other, "other", 8, 10));
    in_time(async { tokio::join!(writing.join_all(), also.join_all()) }).await;
    assert_eq!(count_unique_messages(&database), 320);

    let slot = Slot { trigger: Trigger::Messages(2), ..Slot::new("s", Limit::Tokens(100)) };
    let said = vec![Message::user("pack the parcel"), Message::assistant("packed in Oslo")];
    one.change(&key("b"), Load::default(), append(said, vec![slot])).await.unwrap();
    let (first, second) =
        in_time(async { tokio::join!(one.lease(want("one")), other.lease(want("other"))) }).await;
    let taken = [first.unwrap(), second.unwrap()];
    assert_eq!(taken.iter().flatten().count(), 1, "one of them, and only one: {taken:?}");
    assert_eq!(taken.into_iter().flatten().next().unwrap().key, key("b"));

    assert_eq!(row(&other, &key("b")).await.tracker.head(), 2);
    let found = in_time(other.search(Search {
        workspace: "w".into(),
        session: None,
        scope: Scope::Session,
        query: Query::parse("oslo").unwrap(),
        after: None,
        limit: 10,
        bytes: None,
    }));
    assert_eq!(found.await.unwrap().items.len(), 1);
    one.close().await;
    other.close().await;
}

/// A node detects a pooler when it starts, even if other clients use it heavily.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_is_detected_while_others_use_it() {
    let database = database(server());
    let pooler = Pooler::to(server(), 6);
    let url = pooler.url(&database);
    let first = node(&url).await;
    let writing = many(&first, "first", 12, 40);
    for number in 0..12 {
        let name = format!("later {number}");
        let later = node(&url).await;
        in_time(many(&later, &name, 3, 2).join_all()).await;
        later.close().await;
    }
    in_time(writing.join_all()).await;
    first.close().await;
    assert_eq!(count_unique_messages(&database), 12 * 40 * 2 + 12 * 3 * 2 * 2);
}

/// Opens this many connections through a pooler.
async fn clients(url: &str, count: usize) -> Vec<tokio_postgres::Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        clients.push(client);
    }
    clients
}

/// Each of two connections seems to have its own backend as long as they send queries alternately.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_returns_the_longest_unused_backend_is_detected() {
    let database = database(server());
    for connections in [1, 2, 3] {
        let settings = format!("server_round_robin = 1\ndefault_pool_size = {connections}");
        let pooler = Pooler::with(server(), &settings);
        let url = pooler.url(&database);
        // All backends exist before and are used in turn.
        let others = clients(&url, connections).await;
        for sql in ["BEGIN", "COMMIT"] {
            for other in &others {
                other.batch_execute(sql).await.unwrap();
            }
        }
        let node = node(&url).await;
        in_time(many(&node, &format!("of {connections}"), 4, 10).join_all()).await;
        node.close().await;
        for _ in 0..connections {
            let names = "SELECT count(*) FROM pg_prepared_statements";
            let names = others[0].query_typed(names, &[]).await.unwrap();
            assert_eq!(names[0].get::<_, i64>(0), 0, "it was noticed before anything was named");
        }
    }
    assert_eq!(count_unique_messages(&database), 240);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_added_later_is_detected_by_mixed_up_statements() {
    let database = database(server());
    let pooler = Pooler::with(server(), "pool_mode = session\ndefault_pool_size = 20");
    let node = node(&pooler.url(&database)).await;
    in_time(many(&node, "before", 4, 5).join_all()).await;
    let _pooler = pooler.replaced("server_round_robin = 1\ndefault_pool_size = 3");
    in_time(many(&node, "after", 8, 20).join_all()).await;
    node.close().await;
    assert_eq!(count_unique_messages(&database), 40 + 320);
}

/// Settings of a connection do not last behind a pooler. The timeouts apply outside of transactions too.
#[tokio::test(flavor = "multi_thread")]
async fn timeouts_apply_behind_a_pooler() {
    let database = database(server());
    let pooler = Pooler::to(server(), 6);
    // Declared in the address, so it need not be detected.
    let node = hasty(&format!("{}?pooler=transaction", pooler.url(&database))).await.unwrap();
    say(&node, &key("a"), "before").await.unwrap();
    let held = database.hold("BEGIN; LOCK TABLE epitome.sessions IN ACCESS EXCLUSIVE MODE");
    let error = in_time(node.stamp(&key("a"))).await.unwrap_err();
    assert!(matches!(error, StoreError::Busy), "{error:?}");
    drop(held);
    in_time(say(&node, &key("a"), "after")).await.unwrap();
    node.close().await;
    assert_eq!(count_unique_messages(&database), 2);
}
