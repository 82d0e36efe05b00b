//! Stores sessions in SQLite or PostgreSQL.
//!
//! A [`Store`] only provides transactions. The decision what to write is made outside of the store. The method
//! [`Store::change`] makes every change of a session, apart from leases, copies and deletions. In one transaction, this
//! method reads the session's current state, passes the state to a function of the caller, and writes the changes that
//! the function returns. So the rules are the same for every database, and no other writer can change the session
//! between the decision and the write. A message is written together with the trigger event that it causes. A summary
//! is written together with the new coverage of its slot.
//!
//! A stored message never changes, except for its flags (`pinned` and `skip`) and the caller's metadata. So a message
//! can be read at any time, even after the transaction that read the session's state, and the message still matches
//! that state.
//!
//! This module does not depend on models, prompts or policies.

mod change;
mod changes;
mod check;
mod contract;
mod copy;
mod decode;
mod directory;
mod directory_queries;
mod error;
mod events;
mod executor;
mod keyring;
mod lease;
mod log_query;
mod message_search;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod migration;
mod op_error;
#[cfg(feature = "postgres")]
mod postgres;
mod proxy_state;
mod query_types;
mod queue;
mod read;
mod rows;
mod sql;
mod sql_params;
#[cfg(feature = "sqlite")]
mod sqlite;
mod trigrams;
mod usage;
mod verify;
mod window;
mod window_cache;
mod window_tail;

pub use check::StoreFault;
pub use contract::Store;
pub use error::StoreError;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
pub use migration::{
    MigrateError, MigrateOptions, MigrateProgress, MigrateStage, Migrated, MigratedTable, migrate_to_postgres,
};
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresOptions};
pub use rows::{SessionId, SummaryId, SummaryState, UsageSum};
#[cfg(feature = "sqlite")]
pub use sqlite::{Sqlite, SqliteOptions};
pub use usage::ProxyUsage;

// These are the types and rows of the `Store` trait. The engine and this project's tests and benchmarks use them. These
// types change whenever the engine changes.
#[doc(hidden)]
#[cfg(feature = "postgres")]
pub use postgres::client as postgres_client;
#[doc(hidden)]
#[cfg(feature = "sqlite")]
pub use sqlite::WriteStage;
#[doc(hidden)]
pub use {
    changes::{Changes, Decide, EarlierAppend, Load, LoadLog, SessionState},
    copy::CopiedSession,
    directory::{
        AuthorRow, DecideRow, ListFilter, ListPage, Listing, MemberRow, Membership, WorkspaceDeletion,
        WorkspaceRow,
    },
    executor::{AccessMode, ErasedOp},
    keyring::{KeyHash, KeyRow, PickKeys},
    lease::{Lease, LeaseRequest},
    proxy_state::{ListHash, ProxyStateRow},
    query_types::{
        DecideReach, Hit, OutlinesAfter, PickMessages, PickSummaries, Portion, Reach, Search, UsageQuery,
        Window, WindowQuery,
    },
    rows::{
        Facts, NewMessage, QueueCounts, QueueRow, SessionKey, SessionRow, SlotRow, SlotWork, Sources, Stamp,
        SummaryRow, UsageRow, content_json, replace_metadata, restore_message,
    },
};
