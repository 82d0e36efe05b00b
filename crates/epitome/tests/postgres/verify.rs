//! `verify` finds every planted fault.

use std::time::Duration;

use epitome::store::*;
use epitome_core::slot::{Limit, Scope, Slot};
use epitome_core::trigger::Trigger;
use epitome_testkit::drawing::messages;

use super::planted::{FAULTS, assert_found, history, plants};
use super::postgres_server::{Database, server};
use super::support::*;

/// Maintenance would fix or remove some of it.
fn quiet() -> PostgresOptions {
    PostgresOptions { index_pause: Duration::from_secs(600), connections: 4, ..PostgresOptions::default() }
}

async fn faults(database: &Database, plant: &str) -> Vec<StoreFault> {
    database.psql(&format!("SET search_path = epitome; {plant}"));
    let store = Postgres::open(&database.url(), quiet()).await.unwrap();
    let faults = store.verify().await.unwrap();
    store.close().await;
    faults
}

/// Returns a copy of a database that `make` created once.
fn copied<F: Future<Output = ()>>(name: &str, make: impl FnOnce(String) -> F + Send) -> Database {
    server().template(name, |url| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(make(url.to_owned()));
    })
}

/// Creates a database with data and a complete index, and closes the node.
async fn used(url: String) {
    let options = PostgresOptions { index_pause: Duration::from_millis(2), ..quiet() };
    let store = Postgres::open(&url, options).await.unwrap();
    let order = Slot { trigger: Trigger::Messages(3), ..Slot::new("s", Limit::Tokens(100)) };
    say_with(&store, &key("a"), "s u a(x) r(x) a~ u a u a", &[order]).await;
    summarize(&store, &key("a"), &Scope::Session, "s", 4).await;
    summarize(&store, &key("a"), &Scope::Session, "s", 6).await;
    let remember: Decide = Box::new(|_| {
        let span = epitome_core::message::Span::new(1, 2).unwrap();
        let repeat = EarlierAppend { body: vec![1], span };
        let members = vec![Membership::Join("ann".into(), None)];
        Some(Changes { idempotency: Some(("k".to_owned(), repeat)), members, ..Changes::default() })
    });
    store.change(&key("a"), Load::default(), remember).await.unwrap();
    let decide = append(messages("u a").unwrap(), Vec::new());
    store.change(&key("b"), Load::default(), decide).await.unwrap();
    assert_eq!(store.verify().await.unwrap(), []);
    let client = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    let (client, connection) = client;
    let connection = tokio::spawn(connection);
    for _ in 0..6_000 {
        let behind = "SELECT count(*) FROM epitome.sessions WHERE indexed < head";
        if client.query_one(behind, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(client);
    connection.await.unwrap().unwrap();
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_planted_fault_is_found() {
    assert_eq!(faults(&copied("used", used), "SELECT 1").await, []);
    let own = [
        ("message", "DELETE FROM messages WHERE session = 1 AND seq = 3"),
        ("session", "DELETE FROM messages WHERE session = 1 AND seq = 9"),
        (
            "message 5",
            "UPDATE messages m SET body = (SELECT body FROM messages WHERE session = 1 AND seq = 3) \
         WHERE session = 1 AND seq = 5",
        ),
        ("session", "UPDATE messages SET skip = false"),
        ("session", "DELETE FROM words WHERE session = 1 AND seq = 3"),
        ("slot", "UPDATE slots SET workspace = 'v'"),
        ("messages", "UPDATE messages SET session = 9 WHERE session = 1"),
        (
            "no number yet",
            "INSERT INTO told (workspace, session, kind, data, at) VALUES ('w', 'a', 'rumour', '{}', 0)",
        ),
    ];
    for (at, plant) in FAULTS.iter().chain(&own) {
        let found = faults(&copied("used", used), plant).await;
        assert!(found.iter().any(|fault| fault.at.contains(at)), "{plant}: {found:?}");
    }
}

async fn lived(url: String) {
    history(async |builder| builder.open_postgres(&url).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_summaries_are_found_and_correct_ones_are_not_reported() {
    let sound = copied("lived", lived);
    let store = Postgres::open(&sound.url(), quiet()).await.unwrap();
    let all = PickSummaries::History { slot: None, before: None, limit: 99 };
    let rows = store.summaries(1, all).await.unwrap();
    store.close().await;
    assert_eq!(faults(&sound, "SELECT 1").await, []);
    let set = |id: i64, field: &str, value: &str| {
        format!(
            "UPDATE summaries SET facts = jsonb_set(facts::jsonb, '{{{field}}}', '{value}')::text \
             WHERE session = 1 AND id = {id}"
        )
    };
    for (what, plant) in plants(&rows, set) {
        assert_found(&faults(&copied("lived", lived), &plant).await, &what, &plant);
    }
}
