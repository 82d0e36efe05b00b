//! Where sessions are kept.
//!
//! A [`Store`] owns transactions and nothing else. Everything that is written to a session goes through one
//! door, [`Store::change`]: the store reads where the session stands, hands that to a function, and writes
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

// The contract of stores and its rows: for the engine, for our own tests and benchmarks. They change with the engine.
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
