//! Where a server of these tests stores everything: SQLite, or PostgreSQL when the suite runs on it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use epitome::Engine;
use epitome::store::Store;
use epitome::store::{Postgres, PostgresOptions};
use epitome_testkit::both_stores::on_postgres;
use epitome_testkit::postgres_server::{Database, server};

/// The PostgreSQL databases there are, by the folder they belong to. They are removed with their cluster.
static DATABASES: LazyLock<Mutex<HashMap<PathBuf, Database>>> = LazyLock::new(Mutex::default);

/// The database of a folder, as `--db` takes it.
pub fn db(folder: &Path) -> String {
    if on_postgres() { postgres(folder) } else { "a.db".to_owned() }
}

/// The PostgreSQL database of a folder, in either run. The first call creates it.
pub fn postgres(folder: &Path) -> String {
    let mut databases = DATABASES.lock().unwrap_or_else(PoisonError::into_inner);
    databases.entry(folder.to_owned()).or_insert_with(database).url()
}

/// How the database appears in logs: an address may hold a password.
pub fn shown() -> &'static str {
    if on_postgres() { "postgres://…" } else { "a.db" }
}

/// Changes the PostgreSQL database of a folder behind the server's back.
pub fn meddle(folder: &Path, sql: &str) {
    postgres(folder);
    let databases = DATABASES.lock().unwrap_or_else(PoisonError::into_inner);
    databases[folder].psql(sql);
}

/// An engine on the database of a folder.
pub async fn open(folder: &Path) -> Engine {
    match on_postgres() {
        true => Engine::builder().open_postgres(&postgres(folder)).await.unwrap(),
        false => Engine::open(folder.join("a.db")).await.unwrap(),
    }
}

/// The current time, in milliseconds since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// Whether schemathesis tries all edges of what is described. Once is enough, on SQLite.
pub fn edges() -> bool {
    !on_postgres()
}

/// How often something drawn is tried: on PostgreSQL a quarter of what SQLite has.
pub fn times(most: usize) -> usize {
    if on_postgres() { most.div_ceil(4) } else { most }
}

/// A database with the tables in it already.
fn database() -> Database {
    server().template("tables", |url| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            Postgres::open(url, PostgresOptions::default()).await.unwrap().close().await;
        });
    })
}
