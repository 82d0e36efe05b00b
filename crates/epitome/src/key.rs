//! Keys: who may come in, and what they may do there.
//!
//! A key is a secret that is shown once, when it is made. Kept are its hash and what it opens. The secret is 256 random
//! bits, so a fast hash keeps it as safe as a slow one would: there is nothing to guess. It names its own row, so that
//! checking it is one read; nothing is remembered of a check, so that a key that was revoked stops at once.
//!
//! Making, listing and checking them is [`crate::Keys`]'s work; which route needs which rights is the server's.

use std::fmt;
use std::sync::Arc;

use epitome_core::message::Timestamp;
use serde::{Deserialize, Serialize};

/// What a key may do. Each may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rights {
    /// Read one workspace.
    Read,
    /// Read and write one workspace.
    Write,
    /// Run the server: make and revoke keys, see its numbers, read and write any workspace.
    Admin,
}

impl Rights {
    /// In a word, as [`std::str::FromStr`] reads it.
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

/// What was given names no rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("rights: is one of read, write, admin")]
pub struct RightsError;

/// What is known of a key. Neither its secret nor the secret's hash is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Key {
    /// By what it is listed and revoked. No secret.
    pub id: String,
    /// The workspace it opens; none for whoever runs the server.
    pub workspace: Option<Arc<str>>,
    /// What it may do there.
    pub rights: Rights,
    /// What its maker calls it.
    pub label: String,
    /// When it was made.
    pub created: Timestamp,
    /// From when on it opens nothing.
    pub expires: Option<Timestamp>,
    /// Since when it opens nothing, where it was revoked.
    pub revoked: Option<Timestamp>,
}

impl Key {
    /// Whether it may do that in this workspace.
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

    /// Whether it opens anything at this moment.
    pub fn is_good_at(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && self.expires.is_none_or(|expires| now < expires)
    }
}

/// A key to be made.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// The workspace it opens; none for [`Rights::Admin`], and for nobody else.
    pub workspace: Option<String>,
    /// What it may do.
    pub rights: Rights,
    /// What to call it, for whoever looks through the list: up to 200 bytes, no control characters.
    #[serde(default)]
    pub label: String,
    /// From when on it opens nothing, by the store's clock.
    pub expires: Option<Timestamp>,
}

/// A key that was just made, with its secret. It is never shown again.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct CreatedKey {
    /// What is kept of it.
    #[serde(flatten)]
    pub key: Key,
    /// What whoever comes in has to show.
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
    fn a_created_key_is_shown_without_its_secret() {
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
