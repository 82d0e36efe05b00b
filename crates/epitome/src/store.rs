//! Stores sessions in SQLite or PostgreSQL.
//!
//! A [`Store`] is responsible for transactions only. All writes to a session use one method, [`Store::change`]: the store
//! reads the session's current state, passes it to a function, and writes what the function decided, in one transaction.
//! The rules are therefore outside of the store, the same for every database, and free of races: a message and the trigger
//! event it causes are one write, and so are a summary and the cursor it moves.
//!
//! A stored message never changes, except for its two flags and the caller's metadata. It can therefore be read at any time,
//! outside of a transaction, and still match the state that refers to it.
//!
//! This module does not depend on models, prompts or policies.

mod ask;
mod asked;
mod change;
mod changes;
mod check;
mod contract;
mod copy;
mod decode;
mod directory;
mod error;
mod events;
mod find;
mod given;
mod grams;
mod inlines;
mod keyring;
mod lease;
mod lens;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod moving;
mod people;
#[cfg(feature = "postgres")]
mod postgres;
mod queue;
mod read;
mod recent;
mod rows;
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
mod tail;
mod trouble;
mod usage;
mod verify;
mod window;

pub use check::Fault;
pub use contract::Store;
pub use error::StoreError;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
pub use moving::{MoveError, MoveOptions, MoveProgress, MoveStage, Moved, MovedTable, move_to_postgres};
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresOptions};
pub use rows::{SessionId, SummaryId, SummaryState, UsageSum};
#[cfg(feature = "sqlite")]
pub use sqlite::{Sqlite, SqliteOptions};
pub use usage::Passed;

// The `Store` trait's types and rows, for the engine and this project's tests and benchmarks. They change with the engine.
#[doc(hidden)]
#[cfg(feature = "postgres")]
pub use postgres::client as postgres_client;
#[doc(hidden)]
#[cfg(feature = "sqlite")]
pub use sqlite::WriteStage;
#[doc(hidden)]
pub use {
    ask::{Task, Way},
    asked::{Ahead, Hit, Look, Pick, PickSummaries, Portion, Reach, Search, UsageQuery, View, Window},
    changes::{Changes, Decide, Load, Log, Repeat, Standing},
    copy::CopiedSession,
    directory::{AuthorRow, DecideRow, Deleted, Keep, Listed, Listing, MemberRow, Membership, WorkspaceRow},
    inlines::{InlineRow, ListHash},
    keyring::{KeyHash, KeyRow, PickKeys},
    lease::{Lease, Want},
    rows::{
        Facts, NewMessage, QueueCounts, QueueRow, SessionKey, SessionRow, SlotRow, Sources, Stamp,
        SummaryRow, UsageRow, Work, message, with_metadata, words,
    },
};
