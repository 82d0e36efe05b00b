//! Stores how the proxy condensed message lists, so that the next request of the same conversation can reuse the
//! result.

use super::decode::RowRef;
use super::executor::{Executor, SqlBatch};
use super::op_error::OpResult;
use super::sql::Sql;

/// The hash of a message list, or of its first messages. With 16 bytes, collisions are practically impossible.
pub type ListHash = [u8; 16];

/// The stored state of a condensed message list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyStateRow {
    /// The hash of the list's first message.
    pub root: ListHash,
    /// Number of messages in the list when the state was stored.
    pub length: u64,
    /// The hash of all messages that were in the list when the state was stored.
    pub hash: ListHash,
    /// The stored state, a JSON document.
    pub state: String,
}

/// Maximum number of lists stored per workspace.
const MAX_LISTS: i64 = 1_000;

/// Stores the state of a list, and deletes the workspace's oldest states above the limit.
pub(super) async fn store(db: &mut dyn Executor, workspace: &str, row: &ProxyStateRow) -> OpResult<()> {
    // The new `at` is higher than in all other rows of the workspace, even if the clock is set back. So the oldest rows
    // always have the lowest `at`.
    let upsert = "INSERT INTO epitome.inline (workspace, root, length, hash, kept, at) VALUES ($1, $2, $3, $4, $5, \
         (SELECT CASE WHEN max(at) >= $6 THEN max(at) + 1 ELSE $6 END FROM epitome.inline WHERE workspace = $1)) \
         ON CONFLICT (workspace, root, length, hash) DO UPDATE SET kept = excluded.kept, at = excluded.at";
    let params = [
        workspace.into(),
        row.root.as_slice().into(),
        row.length.into(),
        row.hash.as_slice().into(),
        row.state.as_str().into(),
        db.now().await?.into(),
    ];
    let trim = "DELETE FROM epitome.inline WHERE workspace = $1 AND at < \
         (SELECT at FROM epitome.inline WHERE workspace = $1 ORDER BY at DESC LIMIT 1 OFFSET $2)";
    let trim = Sql::new(trim, [workspace.into(), (MAX_LISTS - 1).into()]);
    db.finish_checked(SqlBatch::new().add(Sql::new(upsert, params)).add(trim), None).await
}

/// Returns the state of the longest stored list that is a prefix of the requested list. `chain` contains the hashes of
/// all prefixes of the requested list.
pub(super) async fn find(
    db: &mut dyn Executor,
    workspace: &str,
    chain: &[ListHash],
) -> OpResult<Option<ProxyStateRow>> {
    let Some(root) = chain.first() else { return Ok(None) };
    let sql = "SELECT length, hash FROM epitome.inline WHERE workspace = $1 AND root = $2 AND length <= $3 \
         ORDER BY length DESC";
    let sql = Sql::new(sql, [workspace.into(), root.as_slice().into(), chain.len().into()]);
    let mut found = None;
    let each = |row: RowRef<'_>| {
        let length = row.uint(0)?;
        let at = usize::try_from(length).ok().and_then(|length| length.checked_sub(1));
        let hash =
            at.and_then(|at| chain.get(at)).filter(|hash| row.bytes(1).is_ok_and(|stored| stored == *hash));
        found = hash.map(|hash| (length, hash));
        Ok(found.is_none())
    };
    db.run(SqlBatch::new().each(sql, each)).await?;
    let Some((length, hash)) = found else { return Ok(None) };
    let sql =
        "SELECT kept FROM epitome.inline WHERE workspace = $1 AND root = $2 AND length = $3 AND hash = $4";
    let params = [workspace.into(), root.as_slice().into(), length.into(), hash.as_slice().into()];
    let mut state = None;
    db.finish(SqlBatch::new().first(Sql::new(sql, params), &mut state, |row| row.string(0))).await?;
    Ok(state.map(|state| ProxyStateRow { root: *root, length, hash: *hash, state }))
}
