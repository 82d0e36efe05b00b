//! Opening a database: the first time, concurrently, or a wrong one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use epitome::store::Store;
use epitome::store::{Postgres, PostgresOptions, StoreError};
use tokio::task::JoinSet;

use crate::postgres_server::{Options, Server, free_port, server};
use crate::setup::{count_unique_messages, database, hasty, in_time, node, say};
use crate::support::key;

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_start_together_create_the_tables_once() {
    let database = server().database();
    let mut nodes = JoinSet::new();
    for number in 0..8 {
        let url = database.url();
        nodes.spawn(async move {
            let node = node(&url).await;
            say(&node, &key("a"), &format!("from node {number}")).await.unwrap();
            node.close().await;
        });
    }
    in_time(nodes.join_all()).await;
    assert_eq!(count_unique_messages(&database), 8);
    assert_eq!(database.psql("SELECT count(*) = max(version) FROM epitome.migrations"), "t");
    assert_eq!(database.psql("SELECT count(*) FROM epitome.secrets"), "1");
}

#[tokio::test]
async fn a_database_with_other_tables_can_be_shared() {
    let database = server().database();
    database.psql("CREATE TABLE sessions (theirs int); INSERT INTO sessions VALUES (7)");
    let node = node(&database.url()).await;
    say(&node, &key("a"), "hello").await.unwrap();
    node.close().await;
    assert_eq!(database.psql("SELECT theirs FROM sessions"), "7");
    assert_eq!(count_unique_messages(&database), 1);
}

#[tokio::test]
async fn a_schema_of_another_program_is_unchanged() {
    let database = server().database();
    database.psql("CREATE SCHEMA epitome; CREATE TABLE epitome.sessions (theirs int)");
    let error = hasty(&database.url()).await.unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    assert_eq!(database.psql("SELECT count(*) FROM pg_tables WHERE schemaname = 'epitome'"), "1");
}

#[tokio::test]
async fn a_database_of_a_newer_release_is_refused() {
    let database = database(server());
    database.psql("INSERT INTO epitome.migrations (version, name) VALUES (99, 'later')");
    let error = hasty(&database.url()).await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
}

/// Checks that an error contains the address, but no user and no password.
fn has_no_secret(error: &StoreError) {
    for told in [error.to_string(), format!("{error:?}")] {
        assert!(!told.contains("s3cret") && !told.contains("s%33cret"), "{told}");
    }
}

#[tokio::test]
async fn a_rejected_login_returns_the_reason_without_the_password() {
    let access = "local all all trust\nhost all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    let server = Server::own(&Options { access: Some(access.to_owned()), ..Options::default() });
    server.psql("CREATE ROLE ann LOGIN PASSWORD 's3cret-right'");
    server.psql("CREATE DATABASE hers OWNER ann");
    let (address, nobody) = (server.address(), free_port());

    let right = format!("postgres://ann:s3cret-right@{address}/hers");
    let node = Postgres::open(&right, PostgresOptions::default()).await.unwrap();
    assert!(!format!("{node:?}").contains("s3cret"));
    say(&node, &key("a"), "hello").await.unwrap();
    node.close().await;

    let cases = [
        (format!("postgres://ann:s%33cret-wrong@{address}/hers"), "password authentication failed"),
        (format!("postgres://bob:s3cret@{address}/hers"), "password authentication failed"),
        (format!("postgres://ann:s3cret-right@{address}/missing"), "\"missing\" does not exist"),
        (format!("postgres://ann:s3cret-right@127.0.0.1:{nobody}/hers"), "refused"),
        ("postgres://ann:s3cret@nobody.invalid/hers".to_owned(), "nobody.invalid"),
        (format!("postgres://ann:s3cret@{address}/hers?sslmode=s3cret"), "sslmode"),
        (format!("postgres://ann:s3cret@{address}/hers?odd=s3cret"), "`odd`"),
        (format!("postgres://ann@{address}/hers"), "password"),
    ];
    for (url, reason) in cases {
        let error = in_time(hasty(&url)).await.unwrap_err();
        has_no_secret(&error);
        assert!(error.to_string().contains(reason), "{reason}: {error}");
    }
}

#[tokio::test]
async fn a_database_with_another_encoding_is_refused() {
    let server = Server::own(&Options::default());
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let name = encoding.to_lowercase();
        server.psql(&format!("CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"));
        let error = hasty(&server.url(&name)).await.unwrap_err().to_string();
        assert!(error.contains(encoding) && error.contains("UTF8"), "{error}");
    }
}

#[tokio::test]
async fn must_exist_creates_no_tables() {
    let empty = server().database();
    let options = PostgresOptions { must_exist: true, ..PostgresOptions::default() };
    let error = Postgres::open(&empty.url(), options.clone()).await.unwrap_err().to_string();
    assert!(error.contains("has no Epitome tables"), "{error}");
    assert_eq!(empty.psql("SELECT to_regnamespace('epitome') IS NULL"), "t");
    Postgres::open(&database(server()).url(), options).await.unwrap().close().await;
}

#[tokio::test]
async fn opening_reports_that_it_waits() {
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&said);
    let waits = Arc::new(move |text: &str| told.lock().unwrap().push(text.to_owned()));
    let options = PostgresOptions {
        patience: Duration::from_secs(3),
        on_wait: Some(waits),
        ..PostgresOptions::default()
    };
    let url = format!("postgres://ann:s3cret@127.0.0.1:{}/hers", free_port());
    in_time(Postgres::open(&url, options)).await.unwrap_err();
    let said = said.lock().unwrap();
    assert!(
        said.len() == 1 && said[0].starts_with("waiting for the database at postgres://127.0.0.1:"),
        "{said:?}"
    );
    assert!(said[0].contains("refused") && !said[0].contains("s3cret"), "{said:?}");
}

#[tokio::test]
async fn opening_waits_for_a_database_that_is_not_up_yet() {
    let server = Server::own(&Options::default());
    let database = server.database();
    server.stop(crate::postgres_server::Stop::Fast);
    let url = database.url();
    let opening = tokio::spawn(async move { node(&url).await });
    let starting = server.clone();
    tokio::task::spawn_blocking(move || starting.start()).await.unwrap();
    let node = in_time(opening).await.unwrap();
    say(&node, &key("a"), "hello").await.unwrap();
    node.close().await;
}
