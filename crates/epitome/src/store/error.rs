//! Errors of stores, grouped by how the caller can react.

/// The result of a store operation.
pub(super) type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why a store operation failed, grouped by how the caller can react.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another writer does not release the lock. Try again.
    #[error("the database is locked by another process; try again, or see who else has it open")]
    Busy,
    /// The database server does not respond. The store retries for a while before it returns this. The same call may
    /// succeed later.
    #[error(
        "the database at {place} cannot be reached: {reason}; several retries failed, check that it is running"
    )]
    Unavailable {
        /// The server and database, without the password.
        place: String,
        /// The last error.
        reason: String,
    },
    /// A SQLite file is being migrated into the database, or was since the store was opened. The data in it changed.
    #[error(
        "a file is being migrated into the database at {place}, or was since this process opened it; open it again when \
         `epitome migrate` is done"
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
    #[error("{path} cannot be written: {reason}; check its owner, and that it is not mounted read-only")]
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
        "{path} was written by a newer Epitome (schema {found}, this release supports up to {supported}); use the newer release"
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
    #[error("{path} is damaged: {reason}; make a copy of it, then restore a backup")]
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
    #[error("the database failed: {reason}")]
    Failed {
        /// The database's error message.
        reason: String,
    },
}
