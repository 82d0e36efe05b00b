//! API keys. A key determines which workspace a caller may use, and what the caller may do there.
//!
//! A key has a secret that is shown only once, when the key is created. The store contains only a hash of the secret.
//! The secret has 256 random bits and cannot be guessed, so a fast hash is as safe as a slow hash. The secret also
//! contains the id of the key's row in the store, so checking a key takes one read. The result of a check is not
//! cached, so a revoked key stops working at once.
//!
//! [`crate::Keys`] creates, lists and checks keys. The server decides which route needs which rights.

use std::fmt;
use std::sync::Arc;

use epitome_core::message::Timestamp;
use serde::{Deserialize, Serialize};

/// What a key may do. Each level includes the levels before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rights {
    /// Read one workspace.
    Read,
    /// Read and write one workspace.
    Write,
    /// Run the server: create and revoke keys, see its metrics, read and write any workspace.
    Admin,
}

impl Rights {
    /// Returns the name of these rights. [`std::str::FromStr`] parses the same names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Rights {
    type Err = RightsError;

    fn from_str(text: &str) -> Result<Self, RightsError> {
        let all = [Self::Read, Self::Write, Self::Admin];
        all.into_iter().find(|rights| rights.name() == text).ok_or(RightsError)
    }
}

/// The error for a text that is not `read`, `write` or `admin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("rights: must be one of read, write, admin")]
pub struct RightsError;

/// A stored key, without its secret and without the secret's hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Key {
    /// The id that identifies the key in lists and for revoking. It is not secret.
    pub id: String,
    /// The workspace that the key gives access to; `None` for admin keys.
    pub workspace: Option<Arc<str>>,
    /// What the key may do.
    pub rights: Rights,
    /// A description for people, chosen by the creator of the key.
    pub label: String,
    /// When the key was created.
    pub created: Timestamp,
    /// When the key stops working; `None` if it does not expire.
    pub expires: Option<Timestamp>,
    /// When the key was revoked; `None` if it was not revoked.
    pub revoked: Option<Timestamp>,
}

impl Key {
    /// Returns whether the key grants these rights in this workspace.
    ///
    /// ```
    /// use epitome::key::{Key, Rights};
    ///
    /// # let at = epitome::rules::message::Timestamp(1);
    /// # let (id, label, expires, revoked) = (String::new(), String::new(), None, None);
    /// let key = Key { workspace: Some("home".into()), rights: Rights::Write, id, label, created: at, expires, revoked };
    /// assert!(key.may(Rights::Read, "home") && !key.may(Rights::Admin, "home") && !key.may(Rights::Read, "work"));
    /// ```
    pub fn may(&self, rights: Rights, workspace: &str) -> bool {
        let there = match &self.workspace {
            Some(own) => **own == *workspace,
            None => self.rights == Rights::Admin,
        };
        there && self.rights >= rights
    }

    /// Returns whether the key works at this time: it is not revoked and has not expired.
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && self.expires.is_none_or(|expires| now < expires)
    }
}

/// The properties of a key to be created.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// The workspace that the key gives access to. Required for read and write keys; `None` for [`Rights::Admin`].
    pub workspace: Option<String>,
    /// What the key may do.
    pub rights: Rights,
    /// A description for people who read the list of keys. It has at most 200 bytes and no control characters.
    #[serde(default)]
    pub label: String,
    /// When the key stops working, by the store's clock; `None` if it does not expire.
    pub expires: Option<Timestamp>,
}

/// A new key with its secret. The secret is never shown again.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct CreatedKey {
    /// The key as stored.
    #[serde(flatten)]
    pub key: Key,
    /// The secret that a client must send.
    pub secret: String,
}

impl fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedKey").field("key", &self.key).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_of_a_created_key_has_no_secret() {
        let key = Key {
            id: "00ff".to_owned(),
            workspace: None,
            rights: Rights::Admin,
            label: "mine".to_owned(),
            created: Timestamp(1),
            expires: None,
            revoked: None,
        };
        let shown = format!("{:?}", CreatedKey { key, secret: "epk_very_secret".to_owned() });
        assert!(shown.contains("mine") && !shown.contains("very_secret"), "{shown}");
    }
}
