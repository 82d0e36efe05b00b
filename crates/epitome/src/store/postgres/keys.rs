//! Keys as rows.

use async_trait::async_trait;
use epitome_core::message::Timestamp;

use super::super::decode::{self, ReadRow};
use super::super::error::StoreError;
use super::super::keyring::{KeyRow, Keyring, PickKeys};
use super::super::statements;
use super::error::Outcome;
use super::pipe::Pipe;
use super::tx::{NOW, Tx};
use super::{Postgres, again};
use crate::key::Key;

impl Postgres {
    async fn add_key_once(&self, row: &KeyRow) -> Outcome<Key> {
        let (tx, _) = Tx::write(self, Pipe::new()).await?;
        let key = Key { created: tx.now, ..row.key.clone() };
        tx.commit(Pipe::new().and(statements::add_key(&key, &row.hash))).await?;
        Ok(key)
    }

    async fn keys_once(&self, pick: &PickKeys) -> Outcome<(Vec<KeyRow>, Timestamp)> {
        let found = self.once(Pipe::new().then(NOW, []).and(statements::keys(pick))).await?;
        let now = found.first().and_then(|rows| rows.first()).map_or(Ok(0), |row| row.int(0))?;
        let keys = found.iter().skip(1).flatten().map(|row| decode::key(row)).collect::<Outcome<_>>()?;
        Ok((keys, self.moment(now)))
    }

    async fn revoke_once(&self, id: &str, workspace: Option<&str>) -> Outcome<bool> {
        let (mut tx, _) = Tx::write(self, Pipe::new()).await?;
        let found = tx.ask(Pipe::new().and(statements::revoke_key(id, workspace, tx.now))).await?;
        tx.commit(Pipe::new()).await?;
        Ok(found.iter().any(|rows| !rows.is_empty()))
    }
}

#[async_trait]
impl Keyring for Postgres {
    async fn add_key(&self, row: KeyRow) -> Result<Key, StoreError> {
        again!(self, self.add_key_once(&row))
    }

    async fn keys(&self, pick: PickKeys) -> Result<(Vec<KeyRow>, Timestamp), StoreError> {
        again!(self, self.keys_once(&pick))
    }

    async fn revoke_key(&self, id: &str, workspace: Option<&str>) -> Result<bool, StoreError> {
        again!(self, self.revoke_once(id, workspace))
    }
}
