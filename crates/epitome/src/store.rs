//! Where sessions are kept.
//!
//! A [`Store`] owns transactions and nothing else. Everything that is written to a session goes through one
//! door, [`SessionLog::change`]: the store reads where the session stands, hands that to a function, and writes
//! what the function decided, all of it or nothing. So the rules live outside, are the same for every store,
//! and cannot be raced: a message and the firing it causes are one write, and so are a summary and the
//! cursor it moves.
//!
//! Messages are never altered once they are in (their two flags and the caller's notes excepted), so they may be read at any
//! time, outside of any transaction, and still belong to the state that named them.
//!
//! Nothing here knows of models, prompts or policy.

mod ask;
mod asked;
mod change;
mod changes;
mod check;
mod columns;
mod copy;
mod decode;
mod directory;
mod error;
mod events;
mod given;
mod inlines;
mod keyring;
mod lens;
mod lists;
mod log;
mod maintenance;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod moving;
mod people;
#[cfg(feature = "postgres")]
mod postgres;
mod queue;
mod read;
mod rows;
mod serving;
mod slots;
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
mod statements;
mod tail;
mod trouble;
mod usage;
mod verify;
mod window;

pub use error::StoreError;
pub use inlines::Passed;
pub use maintenance::Fault;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
pub use moving::{MoveError, MoveOptions, MoveProgress, MoveStage, Moved, MovedTable, move_to_postgres};
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresOptions};
pub use rows::{SessionId, SummaryId, SummaryState, UsageSum};
#[cfg(feature = "sqlite")]
pub use sqlite::{Sqlite, SqliteOptions};

// The contract of stores and its rows: for the engine, for our own tests and benchmarks. They change with the engine.
#[doc(hidden)]
pub use asked::{Ahead, Hit, Look, Pick, PickSummaries, Portion, Reach, Search, UsageQuery, View, Window};
#[doc(hidden)]
pub use changes::{Changes, Decide, Load, Log, Repeat, Standing};
#[doc(hidden)]
pub use directory::{
    AuthorRow, DecideRow, Deleted, Directory, Keep, Listed, Listing, MemberRow, Membership, WorkspaceRow,
};
#[doc(hidden)]
pub use inlines::{InlineRow, Inlines, ListHash};
#[doc(hidden)]
pub use keyring::{KeyHash, KeyRow, Keyring, PickKeys};
#[doc(hidden)]
pub use log::{CopiedSession, SessionLog};
#[doc(hidden)]
pub use maintenance::Maintenance;
#[doc(hidden)]
#[cfg(feature = "postgres")]
pub use postgres::client as postgres_client;
#[doc(hidden)]
pub use rows::{
    Facts, NewMessage, QueueCounts, QueueRow, SessionKey, SessionRow, SlotRow, Sources, Stamp, SummaryRow,
    UsageRow, Work, message, with_metadata, words,
};
#[doc(hidden)]
pub use slots::{Lease, SlotQueue, Want};
#[doc(hidden)]
#[cfg(feature = "sqlite")]
pub use sqlite::WriteStage;
#[doc(hidden)]
pub use usage::UsageLog;

/// The traits of all groups, for whoever calls the methods of a store whose type is known.
#[doc(hidden)]
pub mod prelude {
    pub use super::directory::Directory;
    pub use super::inlines::Inlines;
    pub use super::keyring::Keyring;
    pub use super::log::SessionLog;
    pub use super::maintenance::Maintenance;
    pub use super::slots::SlotQueue;
    pub use super::usage::UsageLog;
}

/// Stores everything an engine keeps, in seven groups.
///
/// A new store implements the groups and passes `tests/store_contract.rs`, which says in code what they say in words.
pub trait Store:
    SessionLog + SlotQueue + Directory + Keyring + UsageLog + Inlines + Maintenance + 'static
{
}

impl<T> Store for T where
    T: SessionLog + SlotQueue + Directory + Keyring + UsageLog + Inlines + Maintenance + 'static
{
}
