//! Options of a SQLite store.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use epitome_core::message::Timestamp;

/// Options of a SQLite store.
#[derive(Clone)]
pub struct SqliteOptions {
    /// Returns the current time.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// How long an operation waits while another process writes to the file. After this time, the operation fails.
    pub busy: Duration,
    /// Maximum number of concurrent reads.
    pub readers: usize,
    /// Called by the writer right before a transaction begins, and right after the transaction was committed or rolled
    /// back. For tests that kill the process between these two calls.
    pub on_write: Option<Arc<dyn Fn(WriteStage) + Send + Sync>>,
    /// The writer does maintenance when no write has arrived for this duration. Maintenance includes adding messages to
    /// the search index.
    pub index_pause: Duration,
    /// Whether a file without write permission can be opened. No other process must have the file open, and all writes
    /// to the store fail. If false, opening such a file fails.
    pub allow_read_only: bool,
    /// Maximum number of pages in the file. Simulates a full disk in tests.
    #[doc(hidden)]
    pub max_pages: Option<u32>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(system_time),
            busy: Duration::from_secs(5),
            readers: 4,
            on_write: None,
            index_pause: Duration::from_millis(20),
            allow_read_only: false,
            max_pages: None,
        }
    }
}

impl fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("busy", &self.busy)
            .field("readers", &self.readers)
            .field("index_pause", &self.index_pause)
            .finish_non_exhaustive()
    }
}

fn system_time() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A point in the writer's transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteStage {
    /// A transaction is about to begin.
    Begun,
    /// The transaction was committed or rolled back.
    Ended,
}
