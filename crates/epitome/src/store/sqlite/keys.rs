//! Keys as rows.

use std::sync::Arc;

use async_trait::async_trait;
use epitome_core::message::Timestamp;
use rusqlite::types::Type;
use rusqlite::{OptionalExtension, Row, params};

use super::super::{KeyRow, Keyring, StoreError};
use super::{Sqlite, rows};
use crate::key::Key;

/// What [`key`] reads.
const KEY: &str = "id, workspace, rights, label, created, expires, revoked";

/// How many columns that is: the next one's place.
const AFTER_KEY: usize = 7;

fn key(row: &Row<'_>) -> rusqlite::Result<Key> {
    let rights = row.get_ref(2)?.as_str()?.parse();
    Ok(Key {
        id: row.get(0)?,
        workspace: row.get::<_, Option<Arc<str>>>(1)?,
        rights: rights.map_err(|_| rusqlite::Error::InvalidColumnType(2, String::new(), Type::Text))?,
        label: row.get(3)?,
        created: Timestamp(row.get(4)?),
        expires: row.get::<_, Option<i64>>(5)?.map(Timestamp),
        revoked: row.get::<_, Option<i64>>(6)?.map(Timestamp),
    })
}

#[async_trait]
impl Keyring for Sqlite {
    async fn add_key(&self, row: KeyRow) -> Result<Key, StoreError> {
        let key = Key { created: self.now(), ..row.key };
        self.writer
            .write(move |db| {
                let sql = "INSERT INTO keys (id, hash, workspace, rights, label, created, expires, revoked) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
                db.prepare_cached(sql)?.execute(params![
                    key.id,
                    row.hash,
                    key.workspace,
                    key.rights.name(),
                    key.label,
                    key.created.0,
                    key.expires.map(|at| at.0),
                    key.revoked.map(|at| at.0),
                ])?;
                Ok(key)
            })
            .await
    }

    async fn key(&self, id: &str) -> Result<(Option<KeyRow>, Timestamp), StoreError> {
        let (id, now) = (id.to_owned(), self.now());
        self.read(move |db| {
            let sql = format!("SELECT {KEY}, hash FROM keys WHERE id = ?1");
            let read = |row: &Row<'_>| Ok(KeyRow { key: key(row)?, hash: row.get(AFTER_KEY)? });
            Ok((db.prepare_cached(&sql)?.query_row([id], read).optional()?, now))
        })
        .await
    }

    async fn keys(
        &self,
        workspace: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Key>, StoreError> {
        let (workspace, after) = (workspace.map(str::to_owned), after.map(str::to_owned).unwrap_or_default());
        self.read(move |db| {
            let sql = format!(
                "SELECT {KEY} FROM keys WHERE id > ?1 AND (?2 IS NULL OR workspace = ?2) ORDER BY id LIMIT ?3"
            );
            let mut statement = db.prepare_cached(&sql)?;
            let found = statement.query_map(params![after, workspace, rows::rows(limit)], key)?;
            Ok(found.collect::<Result<_, _>>()?)
        })
        .await
    }

    async fn revoke_key(&self, id: &str, workspace: Option<&str>) -> Result<bool, StoreError> {
        let (id, workspace, now) = (id.to_owned(), workspace.map(str::to_owned), self.now());
        self.writer
            .write(move |db| {
                let sql = "UPDATE keys SET revoked = coalesce(revoked, ?3) \
                     WHERE id = ?1 AND (?2 IS NULL OR workspace = ?2)";
                Ok(db.prepare_cached(sql)?.execute(params![id, workspace, now.0])? > 0)
            })
            .await
    }
}
