//! What was done to lists that pass through, as rows.

use async_trait::async_trait;
use epitome_core::message::Timestamp;
use rusqlite::{Connection, params};

use super::super::decode;
use super::super::error::StoreError;
use super::super::given::int;
use super::super::inlines::{InlineRow, Inlines, ListHash, Passed};
use super::super::statements;
use super::error::Outcome;
use super::handle::Sqlite;
use super::rows::{all, all_of, first_of, run};

fn find(db: &Connection, workspace: &str, chain: &[ListHash]) -> Outcome<Option<InlineRow>> {
    let Some(root) = chain.first() else { return Ok(None) };
    let sql = "SELECT length, hash FROM inline WHERE workspace = ?1 AND root = ?2 AND length <= ?3 \
         ORDER BY length DESC";
    let given = params![workspace, root, int(chain.len() as u64)];
    let lists = all_of(db, sql, given, |row| Ok((row.uint(0)?, row.bytes(1)?.to_vec())))?;
    let is_beginning = |(length, hash): &(u64, Vec<u8>)| {
        let at = usize::try_from(*length).ok().and_then(|length| length.checked_sub(1));
        at.and_then(|at| chain.get(at)).is_some_and(|known| known.as_slice() == hash)
    };
    let Some((length, _)) = lists.into_iter().find(is_beginning) else { return Ok(None) };
    let Some(hash) = usize::try_from(length).ok().and_then(|length| chain.get(length - 1)) else {
        return Ok(None);
    };
    let sql = "SELECT kept FROM inline WHERE workspace = ?1 AND root = ?2 AND length = ?3 AND hash = ?4";
    let kept = first_of(db, sql, params![workspace, root, int(length), hash], |row| row.string(0))?;
    Ok(kept.map(|kept| InlineRow { root: *root, length, hash: *hash, kept }))
}

#[async_trait]
impl Inlines for Sqlite {
    async fn inline(&self, workspace: &str, chain: Vec<ListHash>) -> Result<Option<InlineRow>, StoreError> {
        let workspace = workspace.to_owned();
        self.read(move |db| find(db, &workspace, &chain)).await
    }

    async fn keep_inline(&self, workspace: &str, row: InlineRow) -> Result<(), StoreError> {
        let (workspace, now) = (workspace.to_owned(), self.now());
        let keep = move |db: &Connection| {
            statements::keep_inline(&workspace, &row, now).iter().try_for_each(|sql| run(db, sql))
        };
        self.writer.write(keep).await
    }

    async fn add_passed(&self, workspace: &str, more: Vec<Passed>) -> Result<(), StoreError> {
        let (workspace, now) = (workspace.to_owned(), self.now());
        let add = move |db: &Connection| {
            more.iter().try_for_each(|more| run(db, &statements::add_passed(&workspace, more, now)))
        };
        self.writer.write(add).await
    }

    async fn passed(&self, workspace: &str, since: Timestamp) -> Result<Vec<Passed>, StoreError> {
        let workspace = workspace.to_owned();
        self.read(move |db| all(db, &statements::passed(&workspace, since), decode::passed)).await
    }
}
