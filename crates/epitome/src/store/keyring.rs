//! Where keys are kept.

use async_trait::async_trait;
use epitome_core::message::Timestamp;

use super::StoreError;
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

/// Keeps keys. What they open is not its matter.
#[async_trait]
pub trait Keyring: Send + Sync {
    /// Keeps a new key. `created` is set to the moment, by the store's clock, and the key given back.
    async fn add_key(&self, row: KeyRow) -> Result<Key, StoreError>;

    /// The key of that number, where there is one, revoked and expired ones too, and the moment by the store's clock.
    /// As it stands now: nothing of it is remembered between two calls.
    async fn key(&self, id: &str) -> Result<(Option<KeyRow>, Timestamp), StoreError>;

    /// The keys by their numbers, revoked and expired ones too: of one workspace or all there are, those after this
    /// one, at most so many.
    async fn keys(
        &self,
        workspace: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Key>, StoreError>;

    /// Revokes a key, of that workspace where one is named. One that was revoked before stays as it is. False when there
    /// is no such key.
    async fn revoke_key(&self, id: &str, workspace: Option<&str>) -> Result<bool, StoreError>;
}
