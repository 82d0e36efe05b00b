//! Numbers for what happened, given when somebody wants to know, one reader at a time: see [`super::super::events`].

use super::super::error::StoreError;
use super::super::events::KEPT;
use super::error::Outcome;
use super::pipe::Pipe;
use super::rows::get;
use super::tx::Tx;
use super::{Postgres, again};

/// So many are numbered at a time.
const NUMBERED: i64 = 5_000;

impl Postgres {
    /// Numbers all that have none, where there are any.
    pub(super) async fn number_told(&self, workspace: &str) -> Result<(), StoreError> {
        again!(self, async {
            let untold = "SELECT EXISTS (SELECT 1 FROM epitome.told WHERE workspace = $1)";
            let found = self.once(Pipe::new().then(untold, [workspace.into()])).await?;
            let mut more =
                found.first().and_then(|rows| rows.first()).map_or(Ok(false), |row| get(row, 0))?;
            while more {
                more = self.number_once(workspace).await?;
            }
            Ok(())
        })
    }

    /// Numbers what has no number yet, oldest first, and lets go of what is too old. Tells whether there was more than that:
    /// what comes meanwhile is no reason to go on, or who asks under load would never hear.
    pub(super) async fn number_once(&self, workspace: &str) -> Outcome<bool> {
        // One at a time; whoever makes sessions or reads settings does not wait.
        let lock = "SELECT 1 FROM epitome.workspaces WHERE name = $1 FOR NO KEY UPDATE";
        let (tx, _) = Tx::write(self, Pipe::new().then(lock, [workspace.into()])).await?;
        let number = "WITH given AS (SELECT events_given AS last FROM epitome.workspaces WHERE name = $1), \
             taken AS (DELETE FROM epitome.told WHERE workspace = $1 AND tick IN \
             (SELECT tick FROM epitome.told WHERE workspace = $1 ORDER BY tick LIMIT $2) \
             RETURNING tick, session, kind, data, at), \
             numbered AS (INSERT INTO epitome.events (workspace, id, session, kind, data, at) \
             SELECT $1, given.last + row_number() OVER (ORDER BY tick), session, kind, data, at FROM taken, given) \
             UPDATE epitome.workspaces SET events_given = events_given + (SELECT count(*) FROM taken) WHERE name = $1 \
             RETURNING (SELECT count(*) FROM taken)";
        let trim = "DELETE FROM epitome.events WHERE workspace = $1 AND id <= \
             (SELECT events_given FROM epitome.workspaces WHERE name = $1) - $2";
        let mut tx = tx;
        let pipe = Pipe::new()
            .then(number, [workspace.into(), NUMBERED.into()])
            .then(trim, [workspace.into(), KEPT.into()]);
        let found = tx.ask(pipe).await?;
        let numbered = found.first().and_then(|rows| rows.first()).map_or(Ok(0), |row| get::<i64>(row, 0))?;
        // What has a number has it, and what has none is given one the next time.
        tx.commit_again(Pipe::new()).await?;
        Ok(numbered >= NUMBERED)
    }
}
