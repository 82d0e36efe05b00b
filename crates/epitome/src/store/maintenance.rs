//! What concerns the store as a whole: its secret, its health, its end.

use std::path::Path;

use async_trait::async_trait;
use serde::Serialize;

use super::error::StoreError;

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Where: `session "a" message 7`, `file`.
    pub at: String,
    /// What is wrong.
    pub what: String,
}

/// Looks after the store as a whole.
#[async_trait]
pub trait Maintenance: Send + Sync {
    /// The store's secret: made with it, never changed, the same for everybody who opens it.
    async fn secret(&self) -> Result<[u8; 32], StoreError>;

    /// Looks everything through.
    async fn verify(&self) -> Result<Vec<Fault>, StoreError>;

    /// Copies the whole store into a new file, while it goes on being used.
    async fn backup(&self, to: &Path) -> Result<(), StoreError>;

    /// Finishes what is under way and lets go of the file.
    async fn close(&self);
}
