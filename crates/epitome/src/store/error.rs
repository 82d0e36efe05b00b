//! Why a store did not do something, sorted by what the caller does next.

/// What a store comes to.
pub(super) type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why a store did not do it, sorted by what to do next.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Somebody else is writing for too long. Try again.
    #[error("the database is locked by another process; try again, or see who else has it open")]
    Busy,
    /// A database on a server does not answer. It is tried again for a while before this is said; the same may go well
    /// a little later.
    #[error(
        "the database at {place} cannot be reached: {reason}; it was tried again for a while, check that it runs"
    )]
    Unavailable {
        /// Which server and database, without a password.
        place: String,
        /// What went wrong last.
        reason: String,
    },
    /// A file is being moved into the database, or was since it was opened. What is there is not what it was.
    #[error(
        "a file is being moved into the database at {place}, or was since it was opened here; open it again when \
         `epitome migrate` is done"
    )]
    Moving {
        /// Which server and database, without a password.
        place: String,
    },
    /// Nothing can be written for want of space. Make room, then try again; nothing was lost.
    #[error("the disk is full: make room at {path}, then try again; what was kept before is untouched")]
    Full {
        /// Where.
        path: String,
    },
    /// Nothing may be written there.
    #[error("{path} cannot be written: {reason}; check who owns it and that it is not mounted read-only")]
    ReadOnly {
        /// Where.
        path: String,
        /// What the system says.
        reason: String,
    },
    /// It cannot be opened.
    #[error("{path} cannot be opened: {reason}")]
    Unreachable {
        /// Where.
        path: String,
        /// What the system says.
        reason: String,
    },
    /// A database on a server is there, and nothing of ours in it.
    #[error("{place} holds no Epitome tables; `epitome serve` and `epitome import` make them")]
    Empty {
        /// Which server and database, without a password.
        place: String,
    },
    /// The file is somebody else's.
    #[error("{path} is not an Epitome database: {reason}; give another path")]
    Foreign {
        /// Where.
        path: String,
        /// What it seems to be.
        reason: String,
    },
    /// A later release wrote it.
    #[error(
        "{path} was written by a newer Epitome (schema {found}, this one knows {known}); use that release"
    )]
    Newer {
        /// Where.
        path: String,
        /// Its schema.
        found: i64,
        /// The newest we know.
        known: i64,
    },
    /// What is stored makes no sense. Restore a backup.
    #[error("{path} is damaged: {reason}; keep a copy of it, and restore a backup")]
    Damaged {
        /// Where.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// It was closed.
    #[error("the store is closed")]
    Closed,
    /// Anything else the database says.
    #[error("the database failed: {reason}")]
    Failed {
        /// What it says.
        reason: String,
    },
}
