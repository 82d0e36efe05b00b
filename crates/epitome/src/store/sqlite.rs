//! Sessions in a SQLite file, or in memory.
//!
//! One thread writes, a few connections read. Writes that wait together become durable together. The file is in
//! WAL mode, and several processes may have it open: nothing that another one may change is kept in memory.
//!
//! What can wait is done when nobody writes: taking messages into the index of words, removing what was
//! deleted, forgetting old keys. See [`SqliteOptions::index_pause`].

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
