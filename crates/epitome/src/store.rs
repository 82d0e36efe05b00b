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

mod asked;
mod changes;
mod check;
mod columns;
mod decode;
mod directory;
mod error;
mod given;
mod inlines;
mod keyring;
mod lists;
mod log;
mod maintenance;
mod moving;
mod postgres;
mod rows;
mod slots;
mod sql;
mod sqlite;
mod statements;
mod tail;
mod usage;

pub use asked::{Ahead, Hit, Look, Pick, PickSummaries, Portion, Reach, Search, UsageQuery, View, Window};
pub use changes::{Changes, Decide, Load, Log, Repeat, Standing};
pub use directory::{
    AuthorRow, DecideRow, Deleted, Directory, Keep, Listed, Listing, MemberRow, Membership, WorkspaceRow,
};
pub use error::StoreError;
pub use inlines::{InlineRow, Inlines, ListHash, Passed};
pub use keyring::{KeyHash, KeyRow, Keyring, PickKeys};
pub use log::{CopiedSession, SessionLog};
pub use maintenance::{Fault, Maintenance};
pub use moving::{MoveError, MoveOptions, MoveProgress, MoveStage, Moved, MovedTable, move_to_postgres};
/// A connection as the store makes it, for benchmarks on its tables.
#[doc(hidden)]
pub use postgres::client as postgres_client;
pub use postgres::{Postgres, PostgresOptions};
pub use rows::{
    Facts, NewMessage, QueueCounts, QueueRow, SessionId, SessionKey, SessionRow, SlotRow, Sources, Stamp,
    SummaryId, SummaryRow, SummaryState, UsageRow, UsageSum, Work, message, with_metadata, words,
};
pub use slots::{Lease, SlotQueue, Want};
pub use sqlite::{Sqlite, SqliteOptions, WriteStage};
pub use usage::UsageLog;

/// The traits of all groups, for whoever calls the methods of a store whose type is known.
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
