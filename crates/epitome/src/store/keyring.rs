//! Where keys are kept.

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
