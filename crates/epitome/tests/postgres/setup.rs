//! Sets up databases, nodes and concurrent writers, and checks the stored messages.

use std::time::Duration;

use epitome::store::Store;
use epitome::store::{LeaseRequest, Load, Postgres, PostgresOptions, SessionKey, StoreError};
use epitome_core::message::Message;
use tokio::task::JoinSet;

use crate::postgres_server::{Database, Server};
use crate::support::append;

/// Creates a database with Epitome's tables.
pub(crate) fn database(server: &Server) -> Database {
    server.template("epitome", |url| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            Postgres::open(url, PostgresOptions::default()).await.unwrap().close().await;
        });
    })
}

/// Opens a node whose deadline is long enough for every test.
pub(crate) async fn node(url: &str) -> Postgres {
    let options = PostgresOptions { patience: Duration::from_secs(120), ..PostgresOptions::default() };
    Postgres::open(url, options).await.unwrap()
}

/// Opens a node with a short deadline, to test its errors.
pub(crate) async fn hasty(url: &str) -> Result<Postgres, StoreError> {
    Postgres::open(url, haste()).await
}

pub(crate) fn haste() -> PostgresOptions {
    let soon = Duration::from_secs(2);
    PostgresOptions { connections: 4, patience: soon, statement: soon, ..PostgresOptions::default() }
}

pub(crate) async fn say(store: &Postgres, key: &SessionKey, text: &str) -> Result<(), StoreError> {
    let said = vec![Message::user(text)];
    store.change(key, Load::default(), append(said, Vec::new())).await.map(|_| ())
}

/// Returns a request for any ready slot, with a long lease.
pub(crate) fn want(owner: &str) -> LeaseRequest {
    LeaseRequest {
        owner: owner.to_owned(),
        duration: Duration::from_secs(600),
        session: None,
        excluded: Default::default(),
        after: None,
        full_workspaces: Default::default(),
    }
}

/// Fails if the future takes so long that it must be stuck.
pub(crate) async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(300), what).await.expect("it got stuck")
}

/// Starts tasks that each append this many messages to their own session and to a common one. No task gets an error.
pub(crate) fn many(store: &Postgres, name: &str, tasks: usize, each: usize) -> JoinSet<()> {
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let (store, name) = (store.clone(), name.to_owned());
        running.spawn(async move {
            let (own, all) = (SessionKey::new("w", format!("{name} {task}")), SessionKey::new("w", "all"));
            for number in 0..each {
                for key in [&own, &all] {
                    let told = say(&store, key, &format!("{name} {task} {number}")).await;
                    told.unwrap_or_else(|error| panic!("{name} {task} {number}: {error}"));
                }
            }
        });
    }
    running
}

/// Checks that every session has the messages 1, 2, 3 … and no text twice. Returns the number of messages.
pub(crate) fn count_unique_messages(database: &Database) -> usize {
    let wrong = database.psql(
        "SELECT s.name, s.head, count(m.seq), count(DISTINCT m.body), max(m.seq) FROM epitome.sessions s \
         LEFT JOIN epitome.messages m ON m.session = s.id GROUP BY s.id, s.name, s.head \
         HAVING count(m.seq) <> s.head OR count(DISTINCT m.body) <> s.head OR coalesce(max(m.seq), 0) <> s.head",
    );
    assert_eq!(wrong, "", "session, head, messages, different ones, last number");
    database.psql("SELECT count(*) FROM epitome.messages").parse().unwrap()
}
