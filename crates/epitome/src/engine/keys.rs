//! Creates, lists, revokes and checks API keys.

use epitome_core::message::Timestamp;

use super::Engine;
use crate::error::{Error, check_name};
use crate::key::{CreatedKey, Key, NewKey, Rights};
use crate::store::{KeyRow, PickKeys, StoreError};

/// A handle for the API keys of a store. Creating the handle reads and writes nothing.
///
/// No method of an [`Engine`] requires a key. A server that accepts requests from untrusted clients must check the
/// keys.
///
/// ```
/// # async fn try_it() -> Result<(), epitome::Error> {
/// use epitome::Engine;
/// use epitome::key::{NewKey, Rights};
///
/// let keys = Engine::memory().await?.keys();
/// let new = NewKey { workspace: Some("home".into()), rights: Rights::Read, label: "phone".into(), expires: None };
/// let made = keys.create(new).await?;
/// assert_eq!(keys.check(&made.secret).await?, Some(made.key.clone()));
/// assert!(keys.revoke(&made.key.id, None).await?);
/// assert_eq!(keys.check(&made.secret).await?, None);
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Keys {
    engine: Engine,
}

impl Engine {
    /// Returns a handle for the API keys.
    pub fn keys(&self) -> Keys {
        Keys { engine: self.clone() }
    }
}

impl Keys {
    /// Creates a key. Only the result contains the key's secret. The store has only a hash of the secret.
    pub async fn create(&self, new: NewKey) -> Result<CreatedKey, Error> {
        let store = &self.engine.shared().store;
        let (id, secret) = make()?;
        let (_, now) = store.keys(PickKeys::Id(id.clone())).await?;
        new.check(now)?;
        let key = Key {
            id,
            workspace: new.workspace.map(Into::into),
            rights: new.rights,
            label: new.label,
            created: now,
            expires: new.expires,
            revoked: None,
        };
        let hash = *blake3::hash(secret.as_bytes()).as_bytes();
        Ok(CreatedKey { key: store.add_key(KeyRow { key, hash }).await?, secret })
    }

    /// Lists the keys of one workspace, or of all workspaces if `workspace` is `None`, including revoked and expired
    /// keys. The list is sorted by id and starts after the id `after`. It has at most `limit` keys, and never more than
    /// 1,000.
    pub async fn list(
        &self,
        workspace: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Key>, Error> {
        let (workspace, after) = (workspace.map(str::to_owned), after.map(str::to_owned));
        let page = PickKeys::Page { workspace, after, limit: limit.min(1_000) };
        let (rows, _) = self.engine.shared().store.keys(page).await?;
        Ok(rows.into_iter().map(|row| row.key).collect())
    }

    /// Revokes a key immediately. With `workspace`, revokes the key only if it belongs to this workspace. Returns false
    /// if there is no such key.
    pub async fn revoke(&self, id: &str, workspace: Option<&str>) -> Result<bool, Error> {
        Ok(self.engine.shared().store.revoke_key(id, workspace).await?)
    }

    /// Returns the key that belongs to this secret. Returns `None` if the secret is unknown or wrong, and if the key is
    /// revoked or has expired. The store is queried each time, so a key that was revoked on any node stops working at
    /// once.
    pub async fn check(&self, secret: &str) -> Result<Option<Key>, Error> {
        let Some(id) = id_of(secret) else { return Ok(None) };
        let (found, now) = self.engine.shared().store.keys(PickKeys::Id(id.to_owned())).await?;
        // The hashes are compared in constant time.
        let right = |row: &KeyRow| blake3::hash(secret.as_bytes()) == blake3::Hash::from_bytes(row.hash);
        Ok(found.into_iter().find(right).map(|row| row.key).filter(|key| key.is_valid_at(now)))
    }

    /// Returns whether no key was ever created, so that no client can authenticate.
    pub async fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.list(None, None, 1).await?.is_empty())
    }
}

/// Maximum length of a label, in bytes.
const LONGEST_LABEL: usize = 200;

impl NewKey {
    /// Rejects invalid fields. The error names the field.
    fn check(&self, now: Timestamp) -> Result<(), Error> {
        match (&self.workspace, self.rights) {
            (Some(_), Rights::Admin) => {
                return Err(Error::invalid(
                    "workspace: an admin key is for all workspaces; leave this field out",
                ));
            }
            (None, Rights::Read | Rights::Write) => {
                return Err(Error::invalid("workspace: a read or write key needs a workspace"));
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
            return Err(Error::invalid("expires: is in the past; set a later time, or leave it out"));
        }
        Ok(())
    }
}

const PREFIX: &str = "epk_";
const ID_DIGITS: usize = 16;
const SECRET_DIGITS: usize = 64;

/// Returns a new id and a new secret: `epk_`, the id (64 random bits), `_`, and 256 random bits.
fn make() -> Result<(String, String), Error> {
    let mut bytes = [0u8; (ID_DIGITS + SECRET_DIGITS) / 2];
    getrandom::fill(&mut bytes).map_err(|_| {
        Error::Store(StoreError::Failed { reason: "the system returned no random numbers".to_owned() })
    })?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let (id, rest) = digits.split_at(ID_DIGITS);
    Ok((id.to_owned(), format!("{PREFIX}{id}_{rest}")))
}

/// Returns the id in a secret, if the secret has the right format.
fn id_of(secret: &str) -> Option<&str> {
    let (id, rest) = secret.strip_prefix(PREFIX)?.split_once('_')?;
    let hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (id.len() == ID_DIGITS && rest.len() == SECRET_DIGITS && hex(id) && hex(rest)).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_secret_contains_an_id() {
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
}
