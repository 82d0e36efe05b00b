//! Stores sessions in a SQLite file, or in memory.
//!
//! One thread writes, and a few connections read. Writes that wait at the same time share one transaction (group
//! commit). The file is in WAL mode. Several processes may have the file open, so cached state is used only while no
//! other connection has written.
//!
//! Maintenance runs when no write is waiting, and once per second under constant load: it adds messages to the
//! full-text index, removes deleted sessions, and deletes expired idempotency keys. See [`SqliteOptions::index_pause`].

mod backup;
mod executor;
mod handle;
mod maintenance;
mod open;
mod options;
mod readers;
mod session_cache;
mod writer;

use super::op_error as error;
pub use handle::Sqlite;
pub use options::{SqliteOptions, WriteStage};
#[cfg(feature = "postgres")]
pub(super) use {
    executor::{SqliteExecutor, ready_result},
    open::source as open_source,
    session_cache::SessionCache,
};
