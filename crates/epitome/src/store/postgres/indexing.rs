//! Taking messages into the index of words, when there is time for it: words are found without it too, only not as fast.
//!
//! A node remembers which sessions it wrote to, so a message costs no look at any other session. What a node that ended left
//! is found by the clock. A piece is many sessions' messages, bounded by number and by bytes; a node that rests does
//! piece after piece, one that never does still does one now and then, and for a bounded part of its time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hashlink::LinkedHashSet;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use super::super::ask::{self, Ask, Batch};
use super::super::decode::{AFTER_OUTLINE, Found, OUTLINE, outline};
use super::super::given::{Given, int};
use super::super::grams::Grams;
use super::super::rows::{SessionId, message};
use super::super::sql::Sql;
use super::Postgres;
use super::asking::Asking;
use super::error::Outcome;
use crate::search::text_of;

/// A piece is of so many sessions at most.
const SESSIONS: usize = 256;

/// And so many messages.
const MESSAGES: usize = 512;

/// And no more than one beyond so many bytes of words.
const BYTES: u64 = 1 << 20;

/// A piece is done after so long even where others write.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// But after so many times as long as the last one took: that is the part of its time a busy node spends on it.
const REST: u32 = 24;

/// How long is waited after one that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// So many sessions are remembered as having messages the index does not know; more are found by the clock.
const MOST_BEHIND: usize = 10_000;

/// How often it is looked for what nobody here remembers.
const LOOK_EVERY: Duration = Duration::from_secs(20);

/// So many numbers of sessions are gone through in one such look.
const LOOKED_AT: i64 = 10_000;

/// And so many of those that are behind are remembered.
const FOUND_AT_ONCE: usize = 1_000;

/// Sessions with messages that the index does not know yet, in the order in which they came to have some.
#[derive(Debug, Default)]
pub(super) struct Behind {
    sessions: Mutex<LinkedHashSet<SessionId>>,
    wake: Notify,
    /// Counts up with every change of a session.
    pub(super) writes: AtomicU64,
}

impl Behind {
    pub(super) fn add(&self, session: SessionId) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() < MOST_BEHIND && !sessions.contains(&session) {
            sessions.insert(session);
        }
        drop(sessions);
        self.wake.notify_one();
    }

    /// Those that wait longest, and wait no more, by their numbers: two nodes that do the same do it in the same order, so
    /// neither waits for the other who waits for it.
    fn take(&self) -> Vec<SessionId> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken: Vec<SessionId> = std::iter::from_fn(|| sessions.pop_front()).take(SESSIONS).collect();
        taken.sort_unstable();
        taken
    }
}

/// Where the look for what nobody remembers goes on.
struct Look {
    from: SessionId,
    due: Instant,
    /// Whether the last one found something: then there is more, as after a move.
    found: bool,
}

/// Works for as long as it is polled.
pub(super) async fn run(store: Postgres) {
    let mut look = Look { from: 0, due: Instant::now() + LOOK_EVERY, found: false };
    loop {
        let _ = timeout_at(look.due, store.behind.wake.notified()).await;
        all(&store, &mut look).await;
    }
}

/// Until nothing is behind, as far as is known.
async fn all(store: &Postgres, look: &mut Look) {
    let mut took = Duration::ZERO;
    loop {
        quiet(store, took.saturating_mul(REST)).await;
        if Instant::now() >= look.due {
            look.due = Instant::now() + LOOK_EVERY;
            look.found = look_around(store, &mut look.from).await.unwrap_or_default();
        }
        let sessions = store.behind.take();
        if sessions.is_empty() {
            if !look.found {
                return;
            }
            look.due = Instant::now();
            continue;
        }
        let begun = Instant::now();
        let left = match piece(store, &sessions).await {
            Ok(left) => left,
            Err(_) => {
                sleep(AFTER_FAILURE).await;
                sessions
            }
        };
        took = begun.elapsed();
        for session in left {
            store.behind.add(session);
        }
    }
}

/// Waits until this node does not write for a moment. A node that never rests is waited for for a second, or for longer
/// where that is said.
async fn quiet(store: &Postgres, longest: Duration) {
    let until = Instant::now() + longest.max(LONGEST_WAIT);
    loop {
        let before = store.behind.writes.load(Ordering::Relaxed);
        sleep(store.options.index_pause).await;
        if store.behind.writes.load(Ordering::Relaxed) == before || Instant::now() > until {
            return;
        }
    }
}

/// Remembers sessions that are behind and nobody here wrote to: what other nodes left when they ended. Tells whether there
/// were any.
async fn look_around(store: &Postgres, from: &mut SessionId) -> Outcome<bool> {
    let sql = "SELECT id FROM epitome.sessions WHERE id > $1 AND id <= $2 AND state = 'open' AND indexed < head \
         ORDER BY id LIMIT $3";
    let last = "SELECT coalesce(max(id), 0) FROM epitome.sessions";
    let next = from.saturating_add(LOOKED_AT);
    let given = [(*from).into(), next.into(), FOUND_AT_ONCE.into()];
    let (mut behind, mut newest) = (Vec::new(), None);
    let batch = Batch::new().all(Sql::new(sql, given), &mut behind, |row| row.int(0));
    let batch = batch.first(Sql::new(last, []), &mut newest, |row| row.int(0));
    Asking::alone(store).ask(batch).await?;
    behind.iter().for_each(|session| store.behind.add(*session));
    *from = match behind.last() {
        Some(last) if behind.len() >= FOUND_AT_ONCE => *last,
        _ if next >= newest.unwrap_or(0) => 0,
        _ => next,
    };
    Ok(!behind.is_empty())
}

/// Takes the next messages of these sessions into the index, and tells which of them have more.
async fn piece(store: &Postgres, sessions: &[SessionId]) -> Outcome<Vec<SessionId>> {
    // They must not be removed meanwhile; that messages are added does not matter. One that is being removed is left out.
    let open_sql = "SELECT id, workspace, head FROM epitome.sessions WHERE id = ANY($1) AND state = 'open' \
         AND indexed < head ORDER BY id FOR KEY SHARE SKIP LOCKED";
    let sql = format!(
        "SELECT {OUTLINE}, body, session FROM (SELECT m.*, sum(octet_length(body)) OVER (ORDER BY session, seq \
         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS ahead_of_it FROM unnest($1::bigint[]) AS b (id) \
         JOIN epitome.sessions o ON o.id = b.id CROSS JOIN LATERAL (SELECT * FROM epitome.messages \
         WHERE session = b.id AND seq > o.indexed ORDER BY seq LIMIT $2) m) p \
         WHERE coalesce(ahead_of_it, 0) < $3 ORDER BY session, seq"
    );
    let all = || Given::Ints(sessions.to_vec());
    let each = (MESSAGES / sessions.len().max(1)).max(1);
    let (mut open, mut texts, mut bytes) = (Vec::new(), Vec::new(), 0u64);
    let read = |row: Found<'_>| Ok((row.int(0)?, (Grams::of(row.text(1)?), row.int(2)?)));
    let text = |row: Found<'_>| {
        let (shape, body) = (outline(row)?, row.text(AFTER_OUTLINE)?);
        bytes = bytes.saturating_add(body.len() as u64);
        // What cannot be read is no reason to stop here for ever; `verify` tells of it.
        let text = message(&shape, body).map_or_else(|_| String::new(), |m| text_of(&m));
        Ok((row.int(AFTER_OUTLINE + 1)?, int(shape.seq), text))
    };
    let mut asking = Asking::writes(store);
    let batch = Batch::new().all(Sql::new(open_sql, [all()]), &mut open, read);
    let sql = Sql::new(sql, [all(), each.into(), BYTES.into()]);
    asking.ask(batch.all(sql, &mut texts, text)).await?;
    let open: HashMap<SessionId, (Grams, i64)> = open.into_iter().collect();
    let (mut ids, mut seqs, mut found, mut through) = (Vec::new(), Vec::new(), Vec::new(), HashMap::new());
    for (session, seq, text) in texts {
        let Some((grams, _)) = open.get(&session) else { continue };
        let numbers: Vec<String> = grams.in_text(&text).iter().map(ToString::to_string).collect();
        ids.push(session);
        seqs.push(seq);
        found.push(format!("{{{}}}", numbers.join(",")).into());
        through.insert(session, seq);
    }
    // Where there was no room for a session's words it comes again.
    let cut = bytes >= BYTES;
    let has_more = |(session, (_, head)): (&SessionId, &(Grams, i64))| {
        through.get(session).map_or(cut, |through| through < head).then_some(*session)
    };
    let left = open.iter().filter_map(has_more).collect();
    if through.is_empty() {
        return asking.ended(Ok(left)).await;
    }
    let sql = "INSERT INTO epitome.words (session, seq, grams) SELECT session, seq, grams::integer[] \
         FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS n (session, seq, grams) ON CONFLICT DO NOTHING";
    let new = Sql::new(sql, [Given::Ints(ids), Given::Ints(seqs), Given::Texts(found)]);
    asking.finish_by(Batch::new().run(new), None).await?;
    reach(store, &through).await?;
    Ok(left)
}

/// Has what is in the index count. Sessions are held for a moment only, and not waited for while others are: whoever appends
/// to several holds them in an order of their own. What is lost in a crash is taken in again, so nobody waits for the disk.
async fn reach(store: &Postgres, through: &HashMap<SessionId, i64>) -> Outcome<()> {
    let sql = "WITH soon AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)), \
         free AS MATERIALIZED (SELECT id FROM epitome.sessions WHERE id = ANY($1) FOR NO KEY UPDATE SKIP LOCKED) \
         UPDATE epitome.sessions o SET indexed = greatest(o.indexed, n.through) \
         FROM unnest($1::bigint[], $2::bigint[]) AS n (id, through), soon \
         WHERE o.id = n.id AND o.id IN (SELECT id FROM free) RETURNING o.id";
    let (ids, ends): (Vec<i64>, Vec<i64>) = through.iter().unzip();
    let sql = Sql::new(sql, [Given::Ints(ids), Given::Ints(ends)]);
    let mut asking = Asking::alone(store);
    let done = ask::all(&mut asking, sql, |row| row.int(0)).await?;
    let mut batch = Batch::new();
    for (session, through) in through.iter().filter(|(session, _)| !done.contains(session)) {
        let sql = "UPDATE epitome.sessions SET indexed = greatest(indexed, $2) WHERE id = $1";
        batch.push(Sql::new(sql, [(*session).into(), (*through).into()]));
    }
    asking.ask(batch).await
}
