//! What a node does by the clock, whatever else it does: removing what was deleted, forgetting old keys, letting go of old
//! events. A bounded piece at a time; two nodes that do the same piece do it once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::super::changes::REMEMBERED_MILLIS;
use super::super::rows::SessionId;
use super::Postgres;
use super::error::Outcome;
use super::pipe::Pipe;
use super::rows::get;
use super::tx::Tx;

/// So many rows are removed at a time.
const REMOVE_CHUNK: i64 = 1_000;

/// So many deleted sessions are looked for at a time.
const GONE: usize = 100;

/// A copy that was not written to for so long was given up.
const GIVEN_UP_MILLIS: i64 = 60 * 60 * 1_000;

/// Nobody asks for so long whether a change was done.
const MARKED_MILLIS: i64 = 60 * 60 * 1_000;

/// How often it is looked for what nobody says.
const SWEEP_EVERY: Duration = Duration::from_secs(20);

/// Works until the store is closed. Whoever deletes something wakes it.
pub(super) async fn run(store: Postgres, wake: Arc<Notify>, mut stop: watch::Receiver<bool>) {
    let mut due = Instant::now() + SWEEP_EVERY;
    while !*stop.borrow() {
        tokio::select! {
            () = wake.notified() => {}
            () = sleep_until(due) => {}
            _ = stop.changed() => break,
        }
        let sweeps = Instant::now() >= due;
        if sweeps {
            due = Instant::now() + SWEEP_EVERY;
        }
        tokio::select! {
            () = some(&store, sweeps) => {}
            _ = stop.changed() => break,
        }
    }
}

async fn some(store: &Postgres, sweeps: bool) {
    // Whoever writes goes first.
    sleep(store.options.index_pause).await;
    if store.look_for_a_move().await.is_err() {
        return;
    }
    // What fails is tried again at the next sweep, and keeps nothing else from being done.
    let _ = remove_all(store).await;
    if sweeps {
        let _ = give_up_and_forget(store).await;
        let _ = number(store).await;
    }
}

/// Sessions that were deleted.
async fn remove_all(store: &Postgres) -> Outcome<()> {
    let sql = "SELECT id FROM epitome.sessions WHERE state <> 'open' AND state = 'gone' AND id > $1 ORDER BY id LIMIT $2";
    let mut after: SessionId = 0;
    loop {
        let found = store.once(Pipe::new().then(sql, [after.into(), GONE.into()])).await?;
        let gone = found.first().map_or(&[][..], Vec::as_slice);
        for row in gone {
            after = get(row, 0)?;
            while remove(store, after).await? {}
        }
        if gone.len() < GONE {
            return Ok(());
        }
    }
}

/// Copies that nobody goes on with, keys of appends and marks of changes that were done long ago.
async fn give_up_and_forget(store: &Postgres) -> Outcome<()> {
    let given_up = "UPDATE epitome.sessions SET state = 'gone' WHERE state <> 'open' AND state = 'hidden' AND updated < $1";
    let (tx, _) = Tx::write(store, Pipe::new()).await?;
    let now = tx.now.0;
    let long_ago = [now.saturating_sub(GIVEN_UP_MILLIS).into()];
    tx.commit_again(Pipe::new().then(given_up, long_ago)).await?;
    let keys = "DELETE FROM epitome.idempotency WHERE (session, key) IN \
         (SELECT session, key FROM epitome.idempotency WHERE created < $1 ORDER BY created LIMIT $2) RETURNING 1";
    let marks = "DELETE FROM epitome.done WHERE mark IN \
         (SELECT mark FROM epitome.done WHERE at < $1 ORDER BY at LIMIT $2) RETURNING 1";
    for (forget, kept) in [(keys, REMEMBERED_MILLIS), (marks, MARKED_MILLIS)] {
        loop {
            let given = [now.saturating_sub(kept).into(), REMOVE_CHUNK.into()];
            let found = store.once(Pipe::new().then(forget, given)).await?;
            let forgotten = found.iter().flatten().count();
            if i64::try_from(forgotten).unwrap_or(i64::MAX) < REMOVE_CHUNK {
                break;
            }
        }
    }
    Ok(())
}

/// Nobody may ever ask what happened: it is numbered and the oldest let go of all the same.
async fn number(store: &Postgres) -> Outcome<()> {
    let sql = "SELECT workspace FROM epitome.told GROUP BY workspace HAVING count(*) > 1000 LIMIT 100";
    for row in store.once(Pipe::new().then(sql, [])).await?.iter().flatten() {
        while store.number_once(get(row, 0)?).await? {}
    }
    Ok(())
}

/// Removes a piece of a deleted session: its messages, then all else, then itself. False where nothing is left.
async fn remove(store: &Postgres, session: SessionId) -> Outcome<bool> {
    let lock = "SELECT 1 FROM epitome.sessions WHERE id = $1 AND state = 'gone' FOR UPDATE SKIP LOCKED";
    let piece =
        "SELECT max(seq) FROM (SELECT seq FROM epitome.messages WHERE session = $1 ORDER BY seq LIMIT $2) m";
    let pipe = Pipe::new().then(lock, [session.into()]).then(piece, [session.into(), REMOVE_CHUNK.into()]);
    let (tx, found) = Tx::write(store, pipe).await?;
    let [there, piece] = found.as_slice() else { return Ok(false) };
    if there.is_empty() {
        tx.give_up().await?;
        return Ok(false);
    }
    let through: Option<i64> = piece.first().map_or(Ok(None), |row| get(row, 0))?;
    if let Some(through) = through {
        let pipe = Pipe::new()
            .then(
                "DELETE FROM epitome.words WHERE session = $1 AND seq <= $2",
                [session.into(), through.into()],
            )
            .then(
                "DELETE FROM epitome.messages WHERE session = $1 AND seq <= $2",
                [session.into(), through.into()],
            );
        tx.commit_again(pipe).await?;
        return Ok(true);
    }
    let mut pipe = Pipe::new();
    for table in ["words", "summaries", "idempotency", "members", "slots"] {
        pipe.push(format!("DELETE FROM epitome.{table} WHERE session = $1"), [session.into()]);
    }
    pipe.push("DELETE FROM epitome.sessions WHERE id = $1", [session.into()]);
    tx.commit_again(pipe).await?;
    Ok(false)
}
