//! Keys as rows.

use async_trait::async_trait;
use epitome_core::message::Timestamp;
use tokio_postgres::Row;

use super::super::{KeyHash, KeyRow, Keyring, StoreError};
use super::error::{Outcome, nonsense};
use super::pipe::Pipe;
use super::rows::get;
use super::tx::{NOW, Tx};
use super::{Postgres, again};
use crate::key::Key;

/// What [`key`] reads.
const KEY: &str = "id, workspace, rights, label, created, expires, revoked";

/// How many columns that is: the next one's place.
const AFTER_KEY: usize = 7;

fn key(row: &Row) -> Outcome<Key> {
    Ok(Key {
        id: get(row, 0)?,
        workspace: get::<Option<&str>>(row, 1)?.map(Into::into),
        rights: get::<&str>(row, 2)?.parse().map_err(|_| nonsense("a key has rights that are none"))?,
        label: get(row, 3)?,
        created: Timestamp(get(row, 4)?),
        expires: get::<Option<i64>>(row, 5)?.map(Timestamp),
        revoked: get::<Option<i64>>(row, 6)?.map(Timestamp),
    })
}

fn key_row(row: &Row) -> Outcome<KeyRow> {
    let hash: KeyHash =
        get::<&[u8]>(row, AFTER_KEY)?.try_into().map_err(|_| nonsense("a key has no hash"))?;
    Ok(KeyRow { key: key(row)?, hash })
}

impl Postgres {
    async fn add_key_once(&self, row: &KeyRow) -> Outcome<Key> {
        let (tx, _) = Tx::write(self, Pipe::new()).await?;
        let key = Key { created: tx.now, ..row.key.clone() };
        let sql = "INSERT INTO epitome.keys (id, hash, workspace, rights, label, created, expires, revoked) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
        let given = [
            key.id.as_str().into(),
            row.hash.as_slice().into(),
            key.workspace.as_deref().into(),
            key.rights.name().into(),
            key.label.as_str().into(),
            key.created.into(),
            key.expires.map(|at| at.0).into(),
            key.revoked.map(|at| at.0).into(),
        ];
        tx.commit(Pipe::new().then(sql, given)).await?;
        Ok(key)
    }

    async fn revoke_once(&self, id: &str, workspace: Option<&str>) -> Outcome<bool> {
        let find =
            "SELECT 1 FROM epitome.keys WHERE id = $1 AND ($2::text IS NULL OR workspace = $2) FOR UPDATE";
        let (tx, found) = Tx::write(self, Pipe::new().then(find, [id.into(), workspace.into()])).await?;
        let there = found.first().is_some_and(|rows| !rows.is_empty());
        let sql = "UPDATE epitome.keys SET revoked = coalesce(revoked, $3) \
             WHERE id = $1 AND ($2::text IS NULL OR workspace = $2)";
        let now = tx.now;
        tx.commit(Pipe::new().then(sql, [id.into(), workspace.into(), now.into()])).await?;
        Ok(there)
    }
}

#[async_trait]
impl Keyring for Postgres {
    async fn add_key(&self, row: KeyRow) -> Result<Key, StoreError> {
        again!(self, self.add_key_once(&row))
    }

    async fn key(&self, id: &str) -> Result<(Option<KeyRow>, Timestamp), StoreError> {
        again!(self, async {
            let sql = format!("SELECT {KEY}, hash FROM epitome.keys WHERE id = $1");
            let found = self.once(Pipe::new().then(sql, [id.into()]).then(NOW, [])).await?;
            let first = |at: usize| found.get(at).and_then(|rows| rows.first());
            let now = first(1).map_or(Ok(0), |row| get(row, 0))?;
            Ok((first(0).map(key_row).transpose()?, self.moment(now)))
        })
    }

    async fn keys(
        &self,
        workspace: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Key>, StoreError> {
        again!(self, async {
            let sql = format!(
                "SELECT {KEY} FROM epitome.keys WHERE id > $1 AND ($2::text IS NULL OR workspace = $2) ORDER BY id LIMIT $3"
            );
            let given = [after.unwrap_or_default().into(), workspace.into(), limit.into()];
            let found = self.once(Pipe::new().then(sql, given)).await?;
            found.iter().flatten().map(key).collect()
        })
    }

    async fn revoke_key(&self, id: &str, workspace: Option<&str>) -> Result<bool, StoreError> {
        again!(self, self.revoke_once(id, workspace))
    }
}
