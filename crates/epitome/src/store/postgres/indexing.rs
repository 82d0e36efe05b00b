//! Adds messages to the search index in the background. A search finds messages without it too, only slower.
//!
//! A node remembers which sessions it wrote to, so it need not look at any other session. A scan at intervals finds
//! sessions that a node left behind when it ended. One step indexes messages of many sessions, limited in number and
//! bytes. An idle node does step after step. A node that never stops writing does a step now and then, for a limited
//! share of its time.

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

/// Maximum number of sessions in one step.
const SESSIONS: usize = 256;

/// Maximum number of messages in one step.
const MESSAGES: usize = 512;

/// A step ends after the message with which its text reaches this number of bytes.
const BYTES: u64 = 1 << 20;

/// How long a step waits for this node to stop writing.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// A node that never stops writing waits this many times the duration of its last step. This limits the share of its
/// time that it spends on indexing.
const REST: u32 = 24;

/// Pause after a step that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Maximum number of sessions remembered as not fully indexed. The scan finds the others.
const MOST_BEHIND: usize = 10_000;

/// Interval of the scan for sessions that this node does not remember.
const LOOK_EVERY: Duration = Duration::from_secs(20);

/// How many session ids one scan covers.
const LOOKED_AT: i64 = 10_000;

/// Maximum number of sessions that one scan adds.
const FOUND_AT_ONCE: usize = 1_000;

/// Sessions with messages that are not indexed yet, those that wait longest first.
#[derive(Debug, Default)]
pub(super) struct Behind {
    sessions: Mutex<LinkedHashSet<SessionId>>,
    wake: Notify,
    /// Incremented with every change of a session.
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

    /// Removes and returns the sessions that wait longest, sorted by id. Two nodes that index the same sessions lock
    /// them in the same order, so they cannot deadlock.
    fn take(&self) -> Vec<SessionId> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken: Vec<SessionId> = std::iter::from_fn(|| sessions.pop_front()).take(SESSIONS).collect();
        taken.sort_unstable();
        taken
    }
}

/// The state of the scan.
struct Look {
    from: SessionId,
    due: Instant,
    /// Whether the last scan found sessions. Then there are more, for example after a move of a file.
    found: bool,
}

/// Indexes messages for as long as it is polled.
pub(super) async fn run(store: Postgres) {
    let mut look = Look { from: 0, due: Instant::now() + LOOK_EVERY, found: false };
    loop {
        let _ = timeout_at(look.due, store.behind.wake.notified()).await;
        all(&store, &mut look).await;
    }
}

/// Indexes until no remembered session is behind.
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

/// Waits until this node has not written for `index_pause`, at most for `longest` or [`LONGEST_WAIT`].
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

/// Adds sessions that are behind and that this node did not write to: other nodes left them when they ended. Returns
/// whether there were any.
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

/// Indexes the next messages of these sessions, and returns the sessions that have more.
async fn piece(store: &Postgres, sessions: &[SessionId]) -> Outcome<Vec<SessionId>> {
    // The lock keeps sessions from being removed meanwhile, but not from growing. Those that are being removed are
    // skipped.
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
        // An unreadable message must not block the index forever. It is indexed as empty text, and `verify` reports it.
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
    // A session that did not fit into this step is indexed in the next one.
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

/// Records up to where sessions are indexed. Locked sessions are skipped at first and updated one by one afterwards: a
/// caller that appends to several sessions locks them in its own order. The commit does not wait for the disk, because
/// what is lost in a crash is indexed again.
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
