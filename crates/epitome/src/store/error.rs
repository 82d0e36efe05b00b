//! Errors of stores, grouped by how the caller can react.

/// The result of a store operation.
pub(super) type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why a store operation failed, grouped by how the caller can react.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another writer has locked the database and did not release the lock in time. Try again.
    #[error("the database is locked by another process; try again, or check which other process uses it")]
    Busy,
    /// The database server does not respond. The store retries for a limited time before it returns this error. The
    /// same call may succeed later.
    #[error(
        "the database at {place} cannot be reached: {reason}; retries failed too; check that the database is running"
    )]
    Unavailable {
        /// The server and database, without the password.
        place: String,
        /// The last error.
        reason: String,
    },
    /// A SQLite file is being migrated into the database, or was migrated after the store was opened. The data has
    /// changed, so the store must be opened again.
    #[error(
        "a SQLite file is being migrated into the database at {place}, or was migrated after this process opened it; restart this process when \
         `epitome migrate` is finished"
    )]
    Migrating {
        /// The server and database, without the password.
        place: String,
    },
    /// The disk is full. Free space, then try again; stored data is intact.
    #[error("the disk is full: free space at {path}, then try again; stored data is intact")]
    Full {
        /// The path of the database.
        path: String,
    },
    /// The database cannot be written.
    #[error(
        "{path} cannot be written: {reason}; check the permissions of the file and its directory, and that the disk is not mounted read-only"
    )]
    ReadOnly {
        /// The path of the database.
        path: String,
        /// The operating system's error.
        reason: String,
    },
    /// The database cannot be opened.
    #[error("{path} cannot be opened: {reason}")]
    Unreachable {
        /// The path of the database.
        path: String,
        /// The operating system's error.
        reason: String,
    },
    /// The database exists, but has no Epitome tables.
    #[error("{place} has no Epitome tables; `epitome serve` and `epitome import` create them")]
    Empty {
        /// The server and database, without the password.
        place: String,
    },
    /// The file belongs to another program.
    #[error("{path} is not an Epitome database: {reason}; use another path")]
    Foreign {
        /// The path of the database.
        path: String,
        /// What the file seems to be.
        reason: String,
    },
    /// A newer release wrote the database.
    #[error(
        "{path} was written by a newer release of Epitome: its schema version is {found}, and this release supports up to {supported}; use the newer release"
    )]
    Newer {
        /// The path of the database.
        path: String,
        /// The schema version of the database.
        found: i64,
        /// The newest schema version that this release supports.
        supported: i64,
    },
    /// Stored data is invalid. Restore a backup.
    #[error("{path} is damaged: {reason}; keep a copy of the damaged data, then restore a backup")]
    Damaged {
        /// The path of the database.
        path: String,
        /// What is invalid.
        reason: String,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// Any other error of the database.
    #[error("the database operation failed: {reason}")]
    Failed {
        /// The database's error message.
        reason: String,
    },
}
