//! Whatever is stored wrongly is found by `verify`.

use std::time::Duration;

use epitome::store::*;
use epitome_core::drawing::messages;
use epitome_core::slot::{Limit, Scope, Slot};
use epitome_core::trigger::Trigger;

use super::planted::{history, plants, told};
use super::postgres_server::{Database, server};
use super::support::*;

/// What can wait would mend or remove some of it.
fn quiet() -> PostgresOptions {
    PostgresOptions { index_pause: Duration::from_secs(600), connections: 4, ..PostgresOptions::default() }
}

async fn faults(database: &Database, plant: &str) -> Vec<Fault> {
    database.psql(&format!("SET search_path = epitome; {plant}"));
    let store = Postgres::open(&database.url(), quiet()).await.unwrap();
    let faults = store.verify().await.unwrap();
    store.close().await;
    faults
}

/// A copy of a database that was made once, by this.
fn copied<F: Future<Output = ()>>(name: &str, make: impl FnOnce(String) -> F + Send) -> Database {
    server().template(name, |url| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(make(url.to_owned()));
    })
}

/// A database that was used and closed, its words in the index.
async fn used(url: String) {
    let options = PostgresOptions { index_pause: Duration::from_millis(2), ..quiet() };
    let store = Postgres::open(&url, options).await.unwrap();
    let order = Slot { trigger: Trigger::Messages(3), ..Slot::new("s", Limit::Tokens(100)) };
    say_with(&store, &key("a"), "s u a(x) r(x) a~ u a u a", &[order]).await;
    summarize(&store, &key("a"), &Scope::Session, "s", 4).await;
    summarize(&store, &key("a"), &Scope::Session, "s", 6).await;
    let remember: Decide = Box::new(|_| {
        let span = epitome_core::message::Span::new(1, 2).unwrap();
        let repeat = Repeat { body: vec![1], span };
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
    for (at, plant) in [
        ("message", "DELETE FROM messages WHERE session = 1 AND seq = 3"),
        ("session", "DELETE FROM messages WHERE session = 1 AND seq = 9"),
        ("message 4", "UPDATE messages SET before = before + 1 WHERE seq = 4"),
        ("message 4", "UPDATE messages SET cut = 2 WHERE seq = 4"),
        ("message 4", "UPDATE messages SET open = 1 WHERE seq = 4"),
        ("message 4", "UPDATE messages SET author = 'x' WHERE seq = 4"),
        ("message 4", "UPDATE messages SET shape = 8 WHERE seq = 4"),
        ("message 4", "UPDATE messages SET role = 9 WHERE seq = 4"),
        ("message 4", "UPDATE messages SET opener = 1 WHERE seq = 4"),
        ("message 4", "UPDATE messages SET body = '{' WHERE seq = 4"),
        ("message 3", "UPDATE messages SET tokens = tokens + 1 WHERE seq = 2"),
        // One message stands twice, in place of another.
        (
            "message 5",
            "UPDATE messages m SET body = (SELECT body FROM messages WHERE session = 1 AND seq = 3) \
         WHERE session = 1 AND seq = 5",
        ),
        ("session", "UPDATE messages SET skip = false"),
        ("session", "UPDATE sessions SET skipped = 5"),
        ("session", "UPDATE sessions SET opener = 2"),
        ("session", "UPDATE sessions SET head = 8"),
        ("session", "UPDATE sessions SET tokens = 1"),
        ("session", "UPDATE sessions SET tracker = 'x'"),
        ("session", "UPDATE sessions SET indexed = 50"),
        ("session", "DELETE FROM words WHERE session = 1 AND seq = 3"),
        ("slot", "UPDATE slots SET active = 77"),
        ("slot", "UPDATE slots SET active = 1"),
        ("slot", "UPDATE slots SET active = NULL"),
        ("slot", "UPDATE slots SET covered = 5"),
        ("slot", "UPDATE slots SET due = 1"),
        ("slot", "UPDATE slots SET ready_at = 1"),
        ("slot", "UPDATE slots SET state = '[]'"),
        ("slot", "UPDATE slots SET workspace = 'v'"),
        ("slot", "UPDATE summaries SET through = 5 WHERE id = 2"),
        ("slot", "UPDATE summaries SET state = 'standing'"),
        ("slot", "UPDATE summaries SET state = 'undone' WHERE id = 2"),
        ("slot", "DELETE FROM slots"),
        ("summary 2", "DELETE FROM summaries WHERE id = 1"),
        ("summary 2", "UPDATE summaries SET through = 7 WHERE id = 1"),
        ("summary 2", "UPDATE summaries SET slot = 'other' WHERE id = 1"),
        ("summary 1", "UPDATE summaries SET parent = NULL"),
        ("summary 1", "UPDATE summaries SET through = 50 WHERE id = 1"),
        ("summary 2", "UPDATE summaries SET facts = 'x' WHERE id = 2"),
        ("messages", "UPDATE messages SET session = 9 WHERE session = 1"),
        ("slots", "UPDATE slots SET session = 9"),
        ("summaries", "UPDATE summaries SET session = 9"),
        ("idempotency", "UPDATE idempotency SET session = 9"),
        ("members", "UPDATE members SET session = 9"),
        ("session", "UPDATE members SET author = 9"),
        ("session", "UPDATE authors SET workspace = 'v'"),
        (
            "event 1",
            "INSERT INTO events VALUES ('w', 1, 'nobody', 'message', '{\"from\":1,\"through\":2}', 0)",
        ),
        ("event 1", "INSERT INTO events VALUES ('w', 1, 'a', 'message', '{\"from\":2,\"through\":1}', 0)"),
        ("event 1", "INSERT INTO events VALUES ('w', 1, 'a', 'rumour', '{}', 0)"),
    ] {
        let found = faults(&copied("used", used), plant).await;
        assert!(found.iter().any(|fault| fault.at.contains(at)), "{plant}: {found:?}");
    }
}

async fn lived(url: String) {
    history(async |builder| builder.open_postgres(&url).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_kept_wrongly_is_found_and_what_was_kept_rightly_is_not() {
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
        told(&faults(&copied("lived", lived), &plant).await, &what, &plant);
    }
}
