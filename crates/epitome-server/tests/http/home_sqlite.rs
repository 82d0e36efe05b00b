//! Where a server of these tests keeps everything when that is SQLite. `home_postgres.rs` has the same for PostgreSQL.

use std::path::Path;

use epitome::Engine;

/// The database of a folder, as `--db` takes it.
pub fn db(_folder: &Path) -> String {
    "a.db".to_owned()
}

/// How it is called in logs.
pub const SHOWN: &str = "a.db";

/// An engine on it.
pub async fn open(folder: &Path) -> Engine {
    Engine::open(folder.join("a.db")).await.unwrap()
}

/// Whether schemathesis goes along all edges of what is described.
pub const EDGES: bool = true;

/// How often something drawn is tried.
pub fn times(most: usize) -> usize {
    most
}
