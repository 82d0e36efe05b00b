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

use crate::engine::check_name;
use crate::error::Error;
use crate::store::StoreError;

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
    #[must_use]
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
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let all = [Self::Read, Self::Write, Self::Admin];
        all.into_iter()
            .find(|rights| rights.name() == text)
            .ok_or_else(|| Error::invalid("rights: is one of read, write, admin"))
    }
}

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
    #[must_use]
    pub fn may(&self, rights: Rights, workspace: &str) -> bool {
        let there = match &self.workspace {
            Some(own) => **own == *workspace,
            None => self.rights == Rights::Admin,
        };
        there && self.rights >= rights
    }

    /// Whether it opens anything at this moment.
    #[must_use]
    pub fn is_good_at(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && self.expires.is_none_or(|expires| now < expires)
    }
}

/// A key to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// The workspace it opens; none for [`Rights::Admin`], and for nobody else.
    pub workspace: Option<String>,
    /// What it may do.
    pub rights: Rights,
    /// What to call it, for whoever looks through the list: up to 200 bytes, no control characters.
    pub label: String,
    /// From when on it opens nothing, by the store's clock.
    pub expires: Option<Timestamp>,
}

/// The longest label, in bytes.
const LONGEST_LABEL: usize = 200;

impl NewKey {
    /// Refuses what could not be kept, by the field's name.
    pub(crate) fn check(&self, now: Timestamp) -> Result<(), Error> {
        match (&self.workspace, self.rights) {
            (Some(_), Rights::Admin) => {
                return Err(Error::invalid("workspace: an admin key is for all of them; name none"));
            }
            (None, Rights::Read | Rights::Write) => {
                return Err(Error::invalid("workspace: a read or write key is for one; name it"));
            }
            (Some(name), _) => check_name("workspace", name)?,
            (None, Rights::Admin) => {}
        }
        if self.label.len() > LONGEST_LABEL || self.label.contains(char::is_control) {
            return Err(Error::invalid(format!(
                "label: up to {LONGEST_LABEL} bytes and no control characters are allowed"
            )));
        }
        if self.expires.is_some_and(|expires| expires <= now) {
            return Err(Error::invalid("expires: has passed already; give a later moment, or none"));
        }
        Ok(())
    }
}

/// A key that was just made, with its secret. It is never shown again.
#[derive(Clone, PartialEq, Eq)]
pub struct CreatedKey {
    /// What is kept of it.
    pub key: Key,
    /// What whoever comes in has to show.
    pub secret: String,
}

impl fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedKey").field("key", &self.key).finish_non_exhaustive()
    }
}

const PREFIX: &str = "epk_";
const ID_DIGITS: usize = 16;
const SECRET_DIGITS: usize = 64;

/// A new secret and the number in it: `epk_`, 64 random bits to be known by, `_`, 256 to be believed by.
pub(crate) fn make() -> Result<(String, String), Error> {
    let mut bytes = [0u8; (ID_DIGITS + SECRET_DIGITS) / 2];
    getrandom::fill(&mut bytes).map_err(|_| {
        Error::Store(StoreError::Failed { reason: "the system gives no random numbers".to_owned() })
    })?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let (id, rest) = digits.split_at(ID_DIGITS);
    Ok((id.to_owned(), format!("{PREFIX}{id}_{rest}")))
}

/// The number in a secret, where it looks like one of ours.
pub(crate) fn id_of(secret: &str) -> Option<&str> {
    let (id, rest) = secret.strip_prefix(PREFIX)?.split_once('_')?;
    let hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (id.len() == ID_DIGITS && rest.len() == SECRET_DIGITS && hex(id) && hex(rest)).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_names_its_row_and_nothing_else_looks_like_one() {
        let (id, secret) = make().unwrap();
        assert_eq!(id_of(&secret), Some(&*id));
        assert_eq!(secret.len(), 4 + 16 + 1 + 64);
        assert_ne!(make().unwrap().1, secret);
        let upper = secret.to_uppercase();
        let longer = format!("{secret}0");
        for other in ["", "epk_", "epk__", &secret[1..], &secret[..84], &upper, &longer, "epk_ä_é", " epk_0"]
        {
            assert_eq!(id_of(other), None, "{other}");
        }
    }

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
