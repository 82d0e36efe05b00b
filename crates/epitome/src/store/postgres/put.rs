//! Rows that a change writes, each by its statement.

use epitome_core::message::Timestamp;

use super::super::columns::state_text;
use super::super::rows::{SessionId, SessionKey, SummaryId, SummaryState, with_metadata};
use super::super::statements;
use super::error::{Outcome, nonsense};
use super::pipe::Pipe;
use super::rows::{Columns, MESSAGE, first, get};
use super::tx::Tx;

/// Messages, as many as there are with one statement.
pub(super) fn insert_messages<'a>(
    pipe: &mut Pipe<'a>,
    id: SessionId,
    columns: Columns<'a>,
    now: Timestamp,
    change: i64,
) {
    if columns.is_empty() {
        return;
    }
    let sql = format!(
        "INSERT INTO epitome.messages (session, created, change, {MESSAGE}) SELECT $22, $23, $24, * FROM unnest($1, $2, $3, \
         $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)"
    );
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u] = columns.given();
    let given =
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, id.into(), now.into(), change.into()];
    pipe.push(sql, given);
}

/// Replaces the caller's notes on a message; its words stay.
pub(super) async fn set_metadata(
    tx: &mut Tx<'_>,
    pipe: &mut Pipe<'_>,
    session: SessionId,
    seq: u64,
    metadata: &serde_json::Map<String, serde_json::Value>,
) -> Outcome<()> {
    let sql = "SELECT body FROM epitome.messages WHERE session = $1 AND seq = $2";
    let found = tx.ask(Pipe::new().then(sql, [session.into(), seq.into()])).await?;
    let row = found.first().and_then(|rows| rows.first()).ok_or_else(|| nonsense("a message is missing"))?;
    let body =
        with_metadata(get(row, 0)?, metadata).map_err(|_| nonsense("a message's words cannot be read"))?;
    let sql = "UPDATE epitome.messages SET body = $3 WHERE session = $1 AND seq = $2";
    pipe.push(sql, [session.into(), seq.into(), body.into()]);
    Ok(())
}

/// Makes a session's row, and its workspace's where it is the first there. Most of it is still to be written.
pub(super) async fn insert_session(
    tx: &mut Tx<'_>,
    key: &SessionKey,
    state: &'static str,
) -> Outcome<SessionId> {
    make_workspace(tx, &key.workspace).await?;
    let sql = "INSERT INTO epitome.sessions (workspace, name, state, encoding, tracker, head, turns, tokens, opener, \
         batch_from, batch_skipped, skipped, created, updated) \
         VALUES ($1, $2, $3, '', '', 0, 0, 0, 0, 0, false, 0, $4, $4) RETURNING id";
    let given = [(&*key.workspace).into(), (&*key.session).into(), state.into(), tx.now.into()];
    let found = tx.ask(Pipe::new().then(sql, given)).await?;
    found
        .first()
        .and_then(|rows| rows.first())
        .map_or_else(|| Err(nonsense("a row is missing")), |row| get(row, 0))
}

/// Sees to it that there is the workspace, and that it stays until this is done. Tells whether it had to be made.
pub(super) async fn make_workspace(tx: &mut Tx<'_>, name: &str) -> Outcome<bool> {
    // Most often it is there, and need not be written. Whoever deletes it takes the whole lock.
    let sql = "SELECT 1 FROM epitome.workspaces WHERE name = $1 AND NOT deleted FOR KEY SHARE";
    let found = tx.ask(Pipe::new().then(sql, [name.into()])).await?;
    if found.first().is_some_and(|rows| !rows.is_empty()) {
        return Ok(false);
    }
    let sql = "INSERT INTO epitome.workspaces AS w (name, created) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE \
         SET deleted = false, created = excluded.created WHERE w.deleted RETURNING 1";
    let found = tx.ask(Pipe::new().then(sql, [name.into(), tx.now.into()])).await?;
    Ok(found.first().is_some_and(|rows| !rows.is_empty()))
}

pub(super) async fn next_summary(tx: &mut Tx<'_>, session: SessionId) -> Outcome<SummaryId> {
    let found = tx.ask(Pipe::new().and(statements::next_summary(session))).await?;
    first(&found, |row| row.int(0))?.ok_or_else(|| nonsense("a row is missing"))
}

/// Changes a summary's state. When one is superseded, what the ones before it were made of is dropped: only
/// the one that stands and the one it can be taken back to are ever built upon.
pub(super) fn set_state(pipe: &mut Pipe<'_>, session: SessionId, id: SummaryId, state: SummaryState) {
    let sql = "UPDATE epitome.summaries SET state = $3 WHERE session = $1 AND id = $2";
    let text = state_text(state);
    pipe.push(sql, [session.into(), id.into(), text.into()]);
    if state == SummaryState::Superseded {
        let sql = "UPDATE epitome.summaries AS old SET sources = NULL FROM epitome.summaries AS this \
             WHERE this.session = $1 AND this.id = $2 AND old.session = $1 AND old.scope = this.scope \
             AND old.slot = this.slot AND old.id < $2 AND old.state <> 'standing' AND old.sources IS NOT NULL";
        pipe.push(sql, [session.into(), id.into()]);
    }
}
