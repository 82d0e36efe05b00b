//! How a SQLite store is run.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use epitome_core::message::Timestamp;

/// How a SQLite store is run.
#[derive(Clone)]
pub struct SqliteOptions {
    /// What time it is.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// How long another process that writes is waited for.
    pub busy: Duration,
    /// How many may read at once.
    pub readers: usize,
    /// Told by the writer right before a transaction begins and right after it ended, whichever way. For tests
    /// that kill the process in between.
    pub on_write: Option<Arc<dyn Fn(WriteStage) + Send + Sync>>,
    /// How long nobody must have wanted anything written before the writer turns to what can wait.
    pub index_pause: Duration,
    /// Whether a file that may only be read is opened all the same, as long as nobody else has it open: what would
    /// write then fails. Without it opening fails.
    pub read_only_too: bool,
    /// More pages than this the file never has: a disk that is full, for tests.
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
            read_only_too: false,
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

/// Where the writer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteStage {
    /// A transaction is about to begin.
    Begun,
    /// It is durable, or undone.
    Ended,
}
