//! What happened, written with what did it, and numbered when somebody wants to know.
//!
//! Numbers are dense inside a workspace. Were they given with the change itself, all writers of a workspace would wait for
//! one another; so they are given to what is there by whoever reads, one reader at a time.

use std::sync::Arc;

use epitome_core::message::Timestamp;

use super::super::decode::{self, ReadRow};
use super::super::rows::{SessionKey, SummaryId};
use super::super::statements;
use super::Postgres;
use super::error::{Outcome, nonsense};
use super::pipe::Pipe;
use super::rows::get;
use super::tx::Tx;
use crate::event::{Events, Happened};

/// So many of a workspace are kept, and not many more.
const KEPT: i64 = 10_000;

/// So many are numbered at a time.
const NUMBERED: i64 = 5_000;

/// Writes down what happened in a session. `kept` is the summary that is kept with it.
pub(super) fn tell<'a>(
    pipe: &mut Pipe<'a>,
    key: &'a SessionKey,
    events: &[Happened],
    kept: Option<SummaryId>,
    now: Timestamp,
) -> Outcome<()> {
    for event in events {
        let event = event.numbered(kept);
        let data = event.data().map_err(|_| nonsense("an event cannot be written as JSON"))?;
        let sql = "INSERT INTO epitome.told (workspace, session, kind, data, at) VALUES ($1, $2, $3, $4, $5)";
        let kind = event.kind().to_owned();
        let given = [(&*key.workspace).into(), (&*key.session).into(), kind.into(), data.into(), now.into()];
        pipe.push(sql, given);
    }
    Ok(())
}

/// Removes what was told of a session. Its numbers are not given again.
pub(super) fn forget<'a>(pipe: &mut Pipe<'a>, key: &'a SessionKey) {
    for sql in [
        "DELETE FROM epitome.told WHERE workspace = $1 AND session = $2",
        // There are few enough to look through.
        "DELETE FROM epitome.events WHERE workspace = $1 AND session = $2",
    ] {
        pipe.push(sql, [(&*key.workspace).into(), (&*key.session).into()]);
    }
}

impl Postgres {
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

    /// Those after a number, of one session or all.
    pub(super) async fn events_once(
        &self,
        workspace: &str,
        after: u64,
        session: Option<&str>,
        limit: usize,
    ) -> Outcome<Events> {
        let untold = "SELECT EXISTS (SELECT 1 FROM epitome.told WHERE workspace = $1)";
        let found = self.once(Pipe::new().then(untold, [workspace.into()])).await?;
        let mut more = found.first().and_then(|rows| rows.first()).map_or(Ok(false), |row| get(row, 0))?;
        while more {
            more = self.number_once(workspace).await?;
        }
        let ends = "SELECT coalesce((SELECT events_given FROM epitome.workspaces WHERE name = $1), 0), \
             (SELECT min(id) FROM epitome.events WHERE workspace = $1)";
        let pipe = Pipe::new()
            .then(ends, [workspace.into()])
            .and(statements::events(workspace, after, session, limit));
        let (tx, found) = Tx::read(self, pipe).await?;
        tx.finish(Pipe::new()).await?;
        let [ends, events] = found.as_slice() else {
            return Err(nonsense("the database answers less than it was asked"));
        };
        let ends = ends.first().ok_or_else(|| nonsense("a row is missing"))?;
        let newest = ends.uint(0)?;
        let oldest = ends.maybe_int(1)?.and_then(|oldest| u64::try_from(oldest).ok());
        let events = events.iter().map(|row| decode::event(row)).collect::<Outcome<Vec<_>>>()?;
        Ok(Events { events, oldest: oldest.unwrap_or_else(|| newest.saturating_add(1)), newest })
    }

    /// How often messages became a summary, by session. There are few enough to look through.
    pub(super) async fn condensed_once(&self, workspace: &str) -> Outcome<Vec<(Arc<str>, u64)>> {
        let sql = "SELECT session, count(*) FROM (SELECT session FROM epitome.events WHERE workspace = $1 \
             AND kind = 'condensed' UNION ALL SELECT session FROM epitome.told WHERE workspace = $1 \
             AND kind = 'condensed') e GROUP BY session ORDER BY session";
        let found = self.once(Pipe::new().then(sql, [workspace.into()])).await?;
        found.iter().flatten().map(|row| Ok((row.name(0)?, row.uint(1)?))).collect()
    }
}
