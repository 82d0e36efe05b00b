//! Keys: made, listed, revoked and checked.

use super::Engine;
use crate::error::Error;
use crate::key::{CreatedKey, Key, NewKey, id_of, make};
use crate::store::KeyRow;

/// The keys that open workspaces. A handle: making one reads and writes nothing.
///
/// Nothing in an [`Engine`] asks for a key; whoever lets strangers in does.
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
    /// The keys that open workspaces.
    #[must_use]
    pub fn keys(&self) -> Keys {
        Keys { engine: self.clone() }
    }
}

impl Keys {
    /// Makes a key. Its secret is in the answer and nowhere else.
    pub async fn create(&self, new: NewKey) -> Result<CreatedKey, Error> {
        let store = &self.engine.shared().store;
        let (id, secret) = make()?;
        let (_, now) = store.key(&id).await?;
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

    /// The keys by their numbers, revoked and expired ones too: of one workspace or all there are, those after this
    /// one, at most so many; 1,000 at once are the most.
    pub async fn list(
        &self,
        workspace: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Key>, Error> {
        Ok(self.engine.shared().store.keys(workspace, after, limit.min(1_000)).await?)
    }

    /// Revokes a key: it opens nothing from now on. Where a workspace is named, only a key of that one. False when there
    /// is no such key.
    pub async fn revoke(&self, id: &str, workspace: Option<&str>) -> Result<bool, Error> {
        Ok(self.engine.shared().store.revoke_key(id, workspace).await?)
    }

    /// The key of that secret, as long as it opens anything. Unknown, wrong, revoked and expired ones are all alike:
    /// nothing. The store is asked each time, so that a key that was revoked anywhere stops at once.
    pub async fn check(&self, secret: &str) -> Result<Option<Key>, Error> {
        let Some(id) = id_of(secret) else { return Ok(None) };
        let (found, now) = self.engine.shared().store.key(id).await?;
        // Compared in the same time wherever they differ.
        let right = |row: &KeyRow| blake3::hash(secret.as_bytes()) == blake3::Hash::from_bytes(row.hash);
        Ok(found.filter(right).map(|row| row.key).filter(|key| key.is_good_at(now)))
    }

    /// Whether no key was ever made: then nobody could come in.
    pub async fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.list(None, None, 1).await?.is_empty())
    }
}
