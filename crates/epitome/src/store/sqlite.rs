//! Stores sessions in a SQLite file, or in memory.
//!
//! One thread writes, and a few connections read. Writes that wait at the same time share one transaction (group
//! commit). The file is in WAL mode. Several processes may have it open, so cached state is used only while no other
//! connection has written.
//!
//! Maintenance runs when no write is waiting, and once per second under constant load: it adds messages to the
//! full-text index, removes deleted sessions, and deletes expired idempotency keys. See [`SqliteOptions::index_pause`].

mod backup;
mod chores;
mod handle;
mod known;
mod lent;
mod open;
mod options;
mod readers;
mod writer;

use super::trouble as error;
pub use handle::Sqlite;
pub use options::{SqliteOptions, WriteStage};
#[cfg(feature = "postgres")]
pub(super) use {
    known::Known,
    lent::{Lent, done},
    open::source as open_source,
};
