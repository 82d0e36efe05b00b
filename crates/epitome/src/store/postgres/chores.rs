//! What a node does when there is time for it: taking messages into the index of words, removing what was deleted,
//! forgetting old keys. A bounded piece at a time; two nodes that do the same piece do it once.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::super::{SessionId, message};
use super::Postgres;
use super::change::REMEMBERED_MILLIS;
use super::error::Outcome;
use super::given::Given;
use super::grams::Grams;
use super::pipe::Pipe;
use super::rows::{AFTER_OUTLINE, OUTLINE, get, outline};
use super::tx::Tx;
use crate::search::text_of;

/// So many messages are taken into the index at a time.
const INDEX_CHUNK: i64 = 128;

/// And no more text than this, unless it is a single message's.
const INDEX_BYTES: usize = 1 << 20;

/// So many rows are removed at a time.
const REMOVE_CHUNK: i64 = 1_000;

/// A copy that was not written to for so long was given up.
const GIVEN_UP_MILLIS: i64 = 60 * 60 * 1_000;

/// So many sessions are remembered as having messages the index does not know; of more, the sweep finds them.
const MOST_BEHIND: usize = 10_000;

/// So many numbers of sessions are gone through in one step of the sweep.
const SWEPT: i64 = 10_000;

/// A piece is done after so long even where others write.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// How often what can wait is looked for where nobody says that there is something.
const SWEEP_EVERY: Duration = Duration::from_secs(20);

/// Sessions this node wrote messages to that the index does not know yet.
#[derive(Debug, Default)]
pub(super) struct Behind(Mutex<HashSet<SessionId>>);

impl Behind {
    pub(super) fn add(&self, session: SessionId) {
        let mut behind = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if behind.len() < MOST_BEHIND {
            behind.insert(session);
        }
    }

    fn next(&self) -> Option<SessionId> {
        let mut behind = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = behind.iter().next().copied()?;
        behind.remove(&next);
        Some(next)
    }
}

/// Works until the store is closed.
pub(super) async fn run(store: Postgres, wake: Arc<Notify>, mut stop: watch::Receiver<bool>) {
    let mut swept: SessionId = 0;
    while !*stop.borrow() {
        tokio::select! {
            () = wake.notified() => {}
            () = sleep(SWEEP_EVERY) => {}
            _ = stop.changed() => break,
        }
        // Whoever writes goes first.
        sleep(store.options.index_pause).await;
        // Where it fails it is tried again when somebody wakes us, or at the next sweep.
        tokio::select! {
            _ = all(&store, &mut swept) => {}
            _ = stop.changed() => break,
        }
    }
}

async fn all(store: &Postgres, swept: &mut SessionId) -> Outcome<()> {
    store.look_for_a_move().await?;
    while let Some(session) = store.behind.next() {
        if let Err(trouble) = index_all(store, session).await {
            store.behind.add(session);
            return Err(trouble);
        }
    }
    let sql = "SELECT id FROM epitome.sessions WHERE state <> 'open' AND state = 'gone' LIMIT 100";
    for row in store.once(Pipe::new().then(sql, [])).await?.iter().flatten() {
        while remove(store, get(row, 0)?).await? {}
    }
    sweep(store, swept).await
}

/// Looks for what nobody here remembers: what other nodes left when they ended.
async fn sweep(store: &Postgres, swept: &mut SessionId) -> Outcome<()> {
    let sql = "SELECT id FROM epitome.sessions WHERE id > $1 AND id <= $2 AND state = 'open' AND indexed < head \
         ORDER BY id LIMIT 100";
    let next = swept.saturating_add(SWEPT);
    let last = "SELECT coalesce(max(id), 0) FROM epitome.sessions";
    let pipe = Pipe::new().then(sql, [(*swept).into(), next.into()]).then(last, []);
    let found = store.once(pipe).await?;
    let behind = found.first().map_or(&[][..], Vec::as_slice);
    for row in behind {
        index_all(store, get(row, 0)?).await?;
    }
    if !behind.is_empty() {
        // There may be more, as after a move: not only a hundred every so often.
        store.chores.notify_one();
    }
    if behind.is_empty() {
        let last = found.get(1).and_then(|rows| rows.first()).map_or(Ok(0), |row| get::<i64>(row, 0))?;
        *swept = if next >= last { 0 } else { next };
    }
    let (tx, _) = Tx::write(store, Pipe::new()).await?;
    let now = tx.now.0;
    let given_up = "UPDATE epitome.sessions SET state = 'gone' WHERE state <> 'open' AND state = 'hidden' AND updated < $1";
    let forget = "DELETE FROM epitome.idempotency WHERE (session, key) IN \
         (SELECT session, key FROM epitome.idempotency WHERE created < $1 LIMIT $2)";
    let pipe = Pipe::new()
        .then(given_up, [now.saturating_sub(GIVEN_UP_MILLIS).into()])
        .then(forget, [now.saturating_sub(REMEMBERED_MILLIS).into(), REMOVE_CHUNK.into()]);
    tx.commit(pipe).await?;
    // Nobody may ever ask what happened: it is numbered and the oldest let go of all the same.
    let sql = "SELECT workspace FROM epitome.told GROUP BY workspace HAVING count(*) > 1000 LIMIT 100";
    for row in store.once(Pipe::new().then(sql, [])).await?.iter().flatten() {
        while store.number_once(get(row, 0)?).await? {}
    }
    Ok(())
}

async fn index_all(store: &Postgres, session: SessionId) -> Outcome<()> {
    loop {
        quiet(store).await;
        if !index(store, session).await? {
            return Ok(());
        }
    }
}

/// Waits until this node does not write for a moment: words are found without the index too, only not as fast. A node that
/// never rests does a piece now and then.
async fn quiet(store: &Postgres) {
    let until = Instant::now() + LONGEST_WAIT;
    loop {
        let before = store.writes.load(Ordering::Relaxed);
        sleep(store.options.index_pause).await;
        if store.writes.load(Ordering::Relaxed) == before || Instant::now() > until {
            return;
        }
    }
}

/// Takes the next messages of a session into the index; false where there are no more.
async fn index(store: &Postgres, session: SessionId) -> Outcome<bool> {
    // It must not be removed meanwhile; that messages are added does not matter.
    let of = "SELECT workspace, indexed, head FROM epitome.sessions WHERE id = $1 AND state = 'open' FOR KEY SHARE";
    let sql = format!(
        "SELECT {OUTLINE}, body FROM epitome.messages WHERE session = $1 AND seq > \
         (SELECT indexed FROM epitome.sessions WHERE id = $1) ORDER BY seq LIMIT $2"
    );
    let pipe = Pipe::new().then(of, [session.into()]).then(sql, [session.into(), INDEX_CHUNK.into()]);
    let (tx, found) = Tx::write(store, pipe).await?;
    let [of, messages] = found.as_slice() else { return Ok(false) };
    let (Some(of), Some(_)) = (of.first(), messages.first()) else {
        tx.give_up().await?;
        return Ok(false);
    };
    let grams = Grams::of(get(of, 0)?);
    let (mut pipe, mut through, mut bytes) = (Pipe::new(), 0i64, 0usize);
    for row in messages {
        if bytes > INDEX_BYTES {
            break;
        }
        let shape = outline(row)?;
        through = super::given::int(shape.seq);
        // What cannot be read is no reason to stop here for ever; `verify` tells of it.
        let text = message(&shape, get(row, AFTER_OUTLINE)?).map_or_else(|_| String::new(), |m| text_of(&m));
        bytes = bytes.saturating_add(text.len());
        let sql =
            "INSERT INTO epitome.words (session, seq, grams) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        pipe.push(sql, [session.into(), through.into(), Given::Middling(grams.in_text(&text))]);
    }
    let sql = "UPDATE epitome.sessions SET indexed = greatest(indexed, $2) WHERE id = $1";
    pipe.push(sql, [session.into(), through.into()]);
    let head: i64 = get(of, 2)?;
    tx.commit(pipe).await?;
    Ok(through < head)
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
        tx.commit(pipe).await?;
        return Ok(true);
    }
    let mut pipe = Pipe::new();
    for table in ["words", "summaries", "idempotency", "members", "slots"] {
        pipe.push(format!("DELETE FROM epitome.{table} WHERE session = $1"), [session.into()]);
    }
    pipe.push("DELETE FROM epitome.sessions WHERE id = $1", [session.into()]);
    tx.commit(pipe).await?;
    Ok(false)
}
