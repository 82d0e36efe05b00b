//! Keys as rows.

use async_trait::async_trait;
use epitome_core::message::Timestamp;

use super::super::decode;
use super::super::error::StoreError;
use super::super::keyring::{KeyRow, Keyring, PickKeys};
use super::super::statements;
use super::handle::Sqlite;
use super::rows::{all, first, run};
use crate::key::Key;

#[async_trait]
impl Keyring for Sqlite {
    async fn add_key(&self, row: KeyRow) -> Result<Key, StoreError> {
        let key = Key { created: self.now(), ..row.key };
        let added = move |db: &_| run(db, &statements::add_key(&key, &row.hash)).map(|()| key);
        self.writer.write(added).await
    }

    async fn keys(&self, pick: PickKeys) -> Result<(Vec<KeyRow>, Timestamp), StoreError> {
        let now = self.now();
        let found = self.read(move |db| all(db, &statements::keys(&pick), decode::key)).await?;
        Ok((found, now))
    }

    async fn revoke_key(&self, id: &str, workspace: Option<&str>) -> Result<bool, StoreError> {
        let (id, workspace, now) = (id.to_owned(), workspace.map(str::to_owned), self.now());
        let revoked = move |db: &_| {
            let sql = statements::revoke_key(&id, workspace.as_deref(), now);
            Ok(first(db, &sql, |_| Ok(()))?.is_some())
        };
        self.writer.write(revoked).await
    }
}
