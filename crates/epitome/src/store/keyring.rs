//! Stores API keys.

use epitome_core::message::Timestamp;

use super::decode::RowRef;
use super::executor::{self, Executor, SqlBatch};
use super::op_error::{OpResult, damaged};
use super::sql::Sql;
use crate::key::Key;

/// A blake3 hash of a key's secret.
pub type KeyHash = [u8; 32];

/// A stored key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// The key's properties, without its secret.
    pub key: Key,
    /// The hash of the key's secret.
    pub hash: KeyHash,
}

/// Which keys to read.
#[derive(Debug, Clone)]
pub enum PickKeys {
    /// The key with this id, if it exists.
    Id(String),
    /// A page of keys, ordered by id.
    Page {
        /// If set, only keys of this workspace are read. `None` reads all keys, including keys that belong to no
        /// workspace.
        workspace: Option<String>,
        /// If set, only keys whose ids come after this id are read.
        after: Option<String>,
        /// Maximum number of keys.
        limit: usize,
    },
}

/// Stores a new key.
pub(super) async fn add(db: &mut dyn Executor, row: &KeyRow) -> OpResult<Key> {
    let key = Key { created: db.now().await?, ..row.key.clone() };
    let sql = "INSERT INTO epitome.keys (id, hash, workspace, rights, label, created, expires, revoked) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let params = [
        key.id.as_str().into(),
        row.hash.as_slice().into(),
        key.workspace.as_deref().into(),
        key.rights.name().into(),
        key.label.as_str().into(),
        key.created.into(),
        key.expires.into(),
        key.revoked.into(),
    ];
    db.finish(SqlBatch::new().add(Sql::new(sql, params))).await?;
    Ok(key)
}

/// Reads keys and the current time.
pub(super) async fn pick(db: &mut dyn Executor, pick: &PickKeys) -> OpResult<(Vec<KeyRow>, Timestamp)> {
    const KEYS: &str =
        "SELECT id, workspace, rights, label, created, expires, revoked, hash FROM epitome.keys";
    let sql = match pick {
        PickKeys::Id(id) => Sql::new(format!("{KEYS} WHERE id = $1"), [id.as_str().into()]),
        PickKeys::Page { workspace, after, limit } => {
            let sql = format!("{KEYS} WHERE id > $1 AND ($2 IS NULL OR workspace = $2) ORDER BY id LIMIT $3");
            let after = after.as_deref().unwrap_or_default();
            Sql::new(sql, [after.into(), workspace.as_deref().into(), (*limit).into()])
        }
    };
    let mut found = Vec::new();
    db.finish(SqlBatch::new().all(sql, &mut found, key).with_time()).await?;
    Ok((found, db.now().await?))
}

fn key(row: RowRef<'_>) -> OpResult<KeyRow> {
    let key = Key {
        id: row.string(0)?,
        workspace: row.maybe_text(1)?.map(Into::into),
        rights: row.text(2)?.parse().map_err(|_| damaged("a stored key has unknown rights"))?,
        label: row.string(3)?,
        created: row.time(4)?,
        expires: row.maybe_int(5)?.map(Timestamp),
        revoked: row.maybe_int(6)?.map(Timestamp),
    };
    Ok(KeyRow { key, hash: row.bytes(7)?.try_into().map_err(|_| damaged("a key has no valid hash"))? })
}

/// Revokes a key. Returns whether the key exists.
pub(super) async fn revoke(db: &mut dyn Executor, id: &str, workspace: Option<&str>) -> OpResult<bool> {
    let now = db.now().await?;
    let sql = "UPDATE epitome.keys SET revoked = coalesce(revoked, $3) \
         WHERE id = $1 AND ($2 IS NULL OR workspace = $2) RETURNING 1";
    let sql = Sql::new(sql, [id.into(), workspace.into(), now.into()]);
    let exists = executor::first(db, sql, |_| Ok(())).await?.is_some();
    db.finish(SqlBatch::new()).await?;
    Ok(exists)
}
