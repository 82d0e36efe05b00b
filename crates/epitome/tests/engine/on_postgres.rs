//! Tests that need PostgreSQL: a statement that is refused in the middle, a locked row, a foreign schema. `on_sqlite.rs`
//! has the tests that need a file.

use std::time::Duration;

use epitome::rules::message::Message;
use epitome::store::PostgresOptions;
use epitome::{Engine, Error, Remedy};
use epitome_testkit::scripted::Scripted;

use crate::postgres_server::{Options, Server, server};
use crate::support::{Home, assert_complete, coverage, engine_of_model, one_slot, talk, within_timeout};
use crate::test_store::postgres_options;

/// For every table that rejects a write: nothing of the append is stored, and the repeated append is stored once.
#[tokio::test]
async fn messages_and_the_trigger_event_they_cause_are_stored_together_or_not_at_all() {
    for table in ["slots", "messages", "sessions", "told"] {
        let home = Home::postgres();
        let engine = home.open(engine_of_model(&Scripted::new())).await;
        let session = engine.session("s");
        session.append(talk(1, 7)).await.unwrap();
        home.sql(&format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'not now'; END$$; \
             CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION refuse()"
        ));
        let refused = within_timeout("a refused append", session.append(talk(8, 20))).await.unwrap_err();
        assert!(refused.to_string().contains("P0001"), "{table}: {refused}");
        assert_eq!(session.info().await.unwrap().messages, 7, "{table}");
        home.sql(&format!("DROP TRIGGER refuse ON {table}"));
        engine.work().await.unwrap();
        assert!(coverage(&session, "short").await.is_empty(), "{table}");
        session.append(talk(8, 20)).await.unwrap();
        engine.work().await.unwrap();
        assert_eq!(coverage(&session, "short").await, [20], "{table}");
        assert_complete(&session.context(20_000).await.unwrap(), 20);
        assert_eq!(engine.verify().await.unwrap(), [], "{table}");
        engine.close().await;
    }
}

#[tokio::test]
async fn a_busy_database_is_retried_and_a_foreign_one_is_refused() {
    let home = Home::postgres();
    let hasty = PostgresOptions { statement: Duration::from_millis(300), ..postgres_options(&home.clock) };
    let builder = one_slot(&Scripted::new()).postgres(hasty);
    let engine = builder.open_postgres(&home.database().url()).await.unwrap();
    let session = engine.session("s");
    session.append(talk(1, 12)).await.unwrap();
    let held = home.database().hold("BEGIN; SELECT 1 FROM epitome.sessions FOR UPDATE");
    let busy = within_timeout("a busy store", session.append(talk(13, 13))).await.unwrap_err();
    assert!(matches!(busy, Error::Busy(_)) && busy.remedy() == Remedy::Retry, "{busy}");
    drop(held);
    session.append(talk(13, 13)).await.unwrap();
    engine.close().await;
    let foreign = server().database();
    foreign.psql("CREATE SCHEMA epitome; CREATE TABLE epitome.notes (words text)");
    let refused = Engine::builder().open_postgres(&foreign.url()).await.unwrap_err();
    assert_eq!(refused.remedy(), Remedy::FixRequest, "{refused}");
}

/// An engine whose store can be read but not written is not ready.
#[tokio::test]
async fn with_a_full_disk_the_engine_is_not_ready_and_only_the_operator_sees_the_path() {
    let server = Server::own(&Options::default());
    let database = server.small_disk(24 << 20);
    let engine = Engine::builder().workers(0).open_postgres(&database.url()).await.unwrap();
    assert_eq!(engine.ready().await, Ok(()));
    let session = engine.session("ann");
    // Short enough not to be compressed.
    let batch = || (0..100).map(|n| Message::user(format!("{n} x").repeat(400))).collect::<Vec<_>>();
    let refused = loop {
        if let Err(refused) = within_timeout("an append", session.append(batch())).await {
            break refused;
        }
    };
    let reasons = engine.ready().await.unwrap_err();
    assert_eq!(reasons[0].public, "the store's disk is full", "{refused}");
    assert!(reasons[0].details.contains(database.name()), "{}", reasons[0].details);
    engine.close().await;
}
