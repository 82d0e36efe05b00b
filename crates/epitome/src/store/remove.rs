//! Removing what was deleted, a bounded piece at a time.

use super::ask::{Ask, Batch};
use super::rows::SessionId;
use super::sql::Sql;
use super::trouble::Outcome;

/// So many rows are removed at a time.
pub(super) const REMOVE_CHUNK: i64 = 1_000;

/// A copy that was not written to for so long was given up.
pub(super) const GIVEN_UP_MILLIS: i64 = 60 * 60 * 1_000;

/// Removes a piece of a deleted session: its messages, then all else, then itself. Tells whether there is more of it.
pub(super) async fn remove(ask: &mut dyn Ask, session: SessionId) -> Outcome<bool> {
    let given = || [session.into(), REMOVE_CHUNK.into()];
    let lock = "SELECT 1 FROM epitome.sessions WHERE id = $1 AND state = 'gone' FOR UPDATE SKIP LOCKED";
    let piece =
        "SELECT max(seq) FROM (SELECT seq FROM epitome.messages WHERE session = $1 ORDER BY seq LIMIT $2) m";
    let (mut there, mut through) = (false, None);
    let batch = Batch::new().any(Sql::new(lock, [session.into()]), &mut there);
    ask.ask(batch.first(Sql::new(piece, given()), &mut through, |row| row.maybe_int(0))).await?;
    if !there {
        return Ok(false);
    }
    if let Some(through) = through.flatten() {
        let words = Sql::own(
            "DELETE FROM epitome.words WHERE session = $1 AND seq <= $2",
            "DELETE FROM words WHERE rowid BETWEEN ?1 << 32 AND (?1 << 32) + ?2",
            [session.into(), through.into()],
        );
        let messages = "DELETE FROM epitome.messages WHERE session = $1 AND seq <= $2";
        let messages = Sql::new(messages, [session.into(), through.into()]);
        ask.finish_by(Batch::new().run(words).run(messages), None).await?;
        return Ok(true);
    }
    let (mut summaries, mut keys) = (0, 0);
    let sql = "DELETE FROM epitome.summaries WHERE kept IN \
         (SELECT kept FROM epitome.summaries WHERE session = $1 LIMIT $2) RETURNING 1";
    let batch = Batch::new().count(Sql::new(sql, given()), &mut summaries);
    let sql = "DELETE FROM epitome.idempotency WHERE (session, key) IN \
         (SELECT session, key FROM epitome.idempotency WHERE session = $1 LIMIT $2) RETURNING 1";
    ask.ask(batch.count(Sql::new(sql, given()), &mut keys)).await?;
    let more = summaries >= REMOVE_CHUNK || keys >= REMOVE_CHUNK;
    let mut batch = Batch::new();
    if !more {
        batch.push(Sql::own(
            "DELETE FROM epitome.words WHERE session = $1",
            "DELETE FROM words WHERE rowid BETWEEN ?1 << 32 AND (?1 << 32) + 4294967295",
            [session.into()],
        ));
        for table in ["members", "slots"] {
            batch.push(Sql::new(format!("DELETE FROM epitome.{table} WHERE session = $1"), [session.into()]));
        }
        batch.push(Sql::new("DELETE FROM epitome.sessions WHERE id = $1", [session.into()]));
    }
    ask.finish_by(batch, None).await?;
    Ok(more)
}
