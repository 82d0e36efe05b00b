//! Where a server of these tests keeps everything when that is PostgreSQL. `home_sqlite.rs` has the same for SQLite.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use epitome::Engine;
use epitome::store::{Postgres, PostgresOptions, Store};

use crate::postgres_server::{Database, server};

/// The databases there are, by the folder they belong to. They go with their cluster.
static MADE: LazyLock<Mutex<HashMap<PathBuf, Database>>> = LazyLock::new(Mutex::default);

/// The database of a folder, as `--db` takes it. The first who asks makes it.
pub fn db(folder: &Path) -> String {
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.entry(folder.to_owned()).or_insert_with(database).url()
}

/// How it is called in logs: an address may hold a password.
pub const SHOWN: &str = "postgres://…";

/// Does something to it that nobody should.
pub fn meddle(folder: &Path, sql: &str) {
    db(folder);
    let made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made[folder].psql(sql);
}

/// An engine on it.
pub async fn open(folder: &Path) -> Engine {
    Engine::builder().open_postgres(&db(folder)).await.unwrap()
}

/// Whether schemathesis goes along all edges of what is described. It did so on SQLite.
pub const EDGES: bool = false;

/// How often something drawn is tried: a quarter of what SQLite has, where all of it was tried already.
pub fn times(most: usize) -> usize {
    most.div_ceil(4)
}

/// One with the tables in it already.
fn database() -> Database {
    server().template("tables", |url| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            Postgres::open(url, PostgresOptions::default()).await.unwrap().close().await;
        });
    })
}
