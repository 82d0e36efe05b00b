//! What calls of models cost.

use async_trait::async_trait;

use super::asked::UsageQuery;
use super::error::StoreError;
use super::rows::{UsageRow, UsageSum};

/// Stores calls of models. They stay when the session they were made for is deleted.
#[async_trait]
pub trait UsageLog: Send + Sync {
    /// Records calls of models.
    async fn record(&self, usage: Vec<UsageRow>) -> Result<(), StoreError>;

    /// Calls of models, added up.
    async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageSum>, StoreError>;
}
