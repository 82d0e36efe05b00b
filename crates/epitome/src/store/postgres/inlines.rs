//! What was done to lists that pass through, as rows.

use async_trait::async_trait;
use epitome_core::message::Timestamp;

use super::super::decode;
use super::super::error::StoreError;
use super::super::given::Given;
use super::super::inlines::{InlineRow, Inlines, ListHash, Passed};
use super::super::statements;
use super::error::{Outcome, nonsense};
use super::pipe::Pipe;
use super::rows::{Found, first};
use super::tx::Tx;
use super::{Postgres, again};

fn inline_row(row: Found<'_>) -> Outcome<InlineRow> {
    let hash = |at: usize| -> Outcome<ListHash> {
        row.bytes(at)?.try_into().map_err(|_| nonsense("a list's hash is none"))
    };
    Ok(InlineRow { root: hash(0)?, length: row.uint(1)?, hash: hash(2)?, kept: row.string(3)? })
}

impl Postgres {
    async fn keep_inline_once(&self, workspace: &str, row: &InlineRow) -> Outcome<()> {
        let (tx, _) = Tx::write(self, Pipe::new()).await?;
        let [keep, trim] = statements::keep_inline(workspace, row, tx.now);
        tx.commit_again(Pipe::new().and(keep).and(trim)).await
    }

    async fn add_passed_once(&self, workspace: &str, more: &[Passed]) -> Outcome<()> {
        let (tx, _) = Tx::write(self, Pipe::new()).await?;
        let mut pipe = Pipe::new();
        more.iter().for_each(|more| pipe.add(statements::add_passed(workspace, more, tx.now)));
        tx.commit(pipe).await.map(|_| ())
    }
}

#[async_trait]
impl Inlines for Postgres {
    async fn inline(&self, workspace: &str, chain: Vec<ListHash>) -> Result<Option<InlineRow>, StoreError> {
        let Some(root) = chain.first() else { return Ok(None) };
        again!(self, async {
            // The longest that is a beginning of this one.
            let sql = "SELECT i.root, i.length, i.hash, i.kept FROM epitome.inline i WHERE i.workspace = $1 AND i.root = $2 \
                 AND i.length <= $3 AND i.hash = ($4::bytea[])[i.length::integer] ORDER BY i.length DESC LIMIT 1";
            let hashes = Given::Blobs(chain.iter().map(|hash| hash.as_slice().into()).collect());
            let given = [workspace.into(), root.as_slice().into(), chain.len().into(), hashes];
            first(&self.once(Pipe::new().then(sql, given)).await?, inline_row)
        })
    }

    async fn keep_inline(&self, workspace: &str, row: InlineRow) -> Result<(), StoreError> {
        again!(self, self.keep_inline_once(workspace, &row))
    }

    async fn add_passed(&self, workspace: &str, more: Vec<Passed>) -> Result<(), StoreError> {
        again!(self, self.add_passed_once(workspace, &more))
    }

    async fn passed(&self, workspace: &str, since: Timestamp) -> Result<Vec<Passed>, StoreError> {
        again!(self, self.all(statements::passed(workspace, since), decode::passed))
    }
}
