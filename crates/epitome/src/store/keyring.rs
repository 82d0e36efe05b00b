//! Where keys are kept.

use async_trait::async_trait;
use epitome_core::message::Timestamp;

use super::error::StoreError;
use crate::key::Key;

/// A blake3 hash of a key's secret.
pub type KeyHash = [u8; 32];

/// What a store keeps of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// What may be told of it.
    pub key: Key,
    /// What its secret is known by.
    pub hash: KeyHash,
}

/// Which keys are to be read.
#[derive(Debug, Clone)]
pub enum PickKeys {
    /// The key of that number, where there is one.
    Id(String),
    /// By their numbers, a page.
    Page {
        /// Of this workspace; of all, and of none, where none is named.
        workspace: Option<String>,
        /// Only those after this one.
        after: Option<String>,
        /// At most so many.
        limit: usize,
    },
}

/// Keeps keys. What they open is not its matter.
#[async_trait]
pub trait Keyring: Send + Sync {
    /// Keeps a new key. `created` is set to the moment, by the store's clock, and the key given back.
    async fn add_key(&self, row: KeyRow) -> Result<Key, StoreError>;

    /// Keys, revoked and expired ones too, and the moment by the store's clock. As they stand now: nothing of them is
    /// remembered between two calls.
    async fn keys(&self, pick: PickKeys) -> Result<(Vec<KeyRow>, Timestamp), StoreError>;

    /// Revokes a key, of that workspace where one is named. One that was revoked before stays as it is. False when there
    /// is no such key.
    async fn revoke_key(&self, id: &str, workspace: Option<&str>) -> Result<bool, StoreError>;
}
