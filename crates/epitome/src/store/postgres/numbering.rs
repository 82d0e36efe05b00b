//! Numbers for what happened, given when somebody wants to know, one reader at a time: see [`super::super::events`].

use super::super::ask::{self, Ask, Batch};
use super::super::events::KEPT;
use super::super::sql::Sql;
use super::Postgres;
use super::asking::Asking;
use super::error::Outcome;

/// So many are numbered at a time.
const NUMBERED: i64 = 5_000;

impl Postgres {
    /// Numbers all that have none, where there are any.
    pub(super) async fn number_told(&self, workspace: &str) -> Outcome<()> {
        let untold = Sql::new("SELECT 1 FROM epitome.told WHERE workspace = $1 LIMIT 1", [workspace.into()]);
        let mut more = ask::first(&mut Asking::alone(self), untold, |_| Ok(())).await?.is_some();
        while more {
            more = self.number_once(workspace).await?;
        }
        Ok(())
    }

    /// Numbers what has no number yet, oldest first, and lets go of what is too old. Tells whether there was more than that:
    /// what comes meanwhile is no reason to go on, or who asks under load would never hear.
    pub(super) async fn number_once(&self, workspace: &str) -> Outcome<bool> {
        // One at a time; whoever makes sessions or reads settings does not wait.
        let lock = "SELECT 1 FROM epitome.workspaces WHERE name = $1 FOR NO KEY UPDATE";
        let mut asking = Asking::writes(self);
        asking.ask(Batch::new().run(Sql::new(lock, [workspace.into()]))).await?;
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
        let number = Sql::new(number, [workspace.into(), NUMBERED.into()]);
        let trim = Sql::new(trim, [workspace.into(), KEPT.into()]);
        let mut numbered = None;
        asking.ask(Batch::new().first(number, &mut numbered, |row| row.int(0)).run(trim)).await?;
        // What has a number has it, and what has none is given one the next time.
        asking.finish_by(Batch::new(), None).await?;
        Ok(numbered.is_some_and(|numbered| numbered >= NUMBERED))
    }
}
