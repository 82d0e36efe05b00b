//! Adds messages to the search index in the background. A search also finds messages that are not indexed, but more
//! slowly.
//!
//! Each node has a backlog of the sessions that it wrote to, and indexes these sessions. A scan at intervals finds
//! sessions that were in the backlog of a node that ended. One step indexes messages of many sessions, up to a limit
//! for their number and their size. An idle node runs one step after the other. A node that never stops writing also
//! runs steps, but spends only a limited share of its time on them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hashlink::LinkedHashSet;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use super::super::decode::{AFTER_OUTLINE, OUTLINE, RowRef, outline};
use super::super::executor::{self, Executor, SqlBatch};
use super::super::rows::{SessionId, restore_message};
use super::super::sql::Sql;
use super::super::sql_params::{SqlParam, int};
use super::super::trigrams::TrigramHash;
use super::Postgres;
use super::error::OpResult;
use super::transaction::PgTransaction;
use crate::search::text_of;

/// Maximum number of sessions in one step.
const MAX_SESSIONS: usize = 256;

/// Maximum number of messages in one step.
const MAX_MESSAGES: usize = 512;

/// A step ends with the message whose text brings the step to this size in bytes: 1 MiB.
const MAX_BYTES: u64 = 1 << 20;

/// Longest time that a step waits for this node to stop writing.
const MAX_QUIET_WAIT: Duration = Duration::from_secs(1);

/// Before its next step, a node that never stops writing waits for the duration of its last step times this factor. So
/// the node spends at most about 4 % of its time on indexing.
const REST_FACTOR: u32 = 24;

/// Pause after a step that failed.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of sessions in the backlog. The scan finds further sessions later.
const MAX_BACKLOG: usize = 10_000;

/// Interval of the scan for sessions that are not in this node's backlog.
const SCAN_INTERVAL: Duration = Duration::from_secs(20);

/// Number of session ids that one scan covers.
const SCAN_RANGE: i64 = 10_000;

/// Maximum number of sessions that one scan adds.
const MAX_FOUND: usize = 1_000;

/// Sessions with messages that are not indexed yet, longest-waiting first.
#[derive(Debug, Default)]
pub(super) struct IndexBacklog {
    sessions: Mutex<LinkedHashSet<SessionId>>,
    wake: Notify,
    /// Incremented with every change of a session.
    pub(super) writes: AtomicU64,
}

impl IndexBacklog {
    pub(super) fn add(&self, session: SessionId) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() < MAX_BACKLOG && !sessions.contains(&session) {
            sessions.insert(session);
        }
        drop(sessions);
        self.wake.notify_one();
    }

    /// Removes and returns the sessions that wait longest, sorted by id. Two nodes that index the same sessions lock
    /// them in the same order, so they cannot deadlock.
    fn next(&self) -> Vec<SessionId> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next: Vec<SessionId> =
            std::iter::from_fn(|| sessions.pop_front()).take(MAX_SESSIONS).collect();
        next.sort_unstable();
        next
    }
}

/// The state of the scan.
struct Scan {
    from: SessionId,
    due: Instant,
    /// Whether the last scan found sessions. If so, the next scan follows at once, because there are probably more
    /// sessions to index, for example after the migration of a file.
    found: bool,
}

/// Indexes messages until the store is closed.
pub(super) async fn run(store: Postgres) {
    let mut scan = Scan { from: 0, due: Instant::now() + SCAN_INTERVAL, found: false };
    loop {
        let _ = timeout_at(scan.due, store.index_backlog.wake.notified()).await;
        index_all(&store, &mut scan).await;
    }
}

/// Indexes messages until the backlog is empty and the scan finds no further sessions.
async fn index_all(store: &Postgres, scan: &mut Scan) {
    let mut duration = Duration::ZERO;
    loop {
        wait_until_quiet(store, duration.saturating_mul(REST_FACTOR)).await;
        if Instant::now() >= scan.due {
            scan.due = Instant::now() + SCAN_INTERVAL;
            scan.found = scan_sessions(store, &mut scan.from).await.unwrap_or_default();
        }
        let sessions = store.index_backlog.next();
        if sessions.is_empty() {
            if !scan.found {
                return;
            }
            scan.due = Instant::now();
            continue;
        }
        let begun = Instant::now();
        let remaining = match index_chunk(store, &sessions).await {
            Ok(remaining) => remaining,
            Err(_) => {
                sleep(FAILURE_PAUSE).await;
                sessions
            }
        };
        duration = begun.elapsed();
        for session in remaining {
            store.index_backlog.add(session);
        }
    }
}

/// Waits until this node has not written for `index_pause`, but at most for `longest` or [`MAX_QUIET_WAIT`], whichever
/// is longer.
async fn wait_until_quiet(store: &Postgres, longest: Duration) {
    let until = Instant::now() + longest.max(MAX_QUIET_WAIT);
    loop {
        let before = store.index_backlog.writes.load(Ordering::Relaxed);
        sleep(store.options.index_pause).await;
        if store.index_backlog.writes.load(Ordering::Relaxed) == before || Instant::now() > until {
            return;
        }
    }
}

/// Scans the next range of session ids, and adds the sessions that are not fully indexed to the backlog. Such sessions
/// are left over from nodes that ended. Returns whether there were any.
async fn scan_sessions(store: &Postgres, from: &mut SessionId) -> OpResult<bool> {
    let sql = "SELECT id FROM epitome.sessions WHERE id > $1 AND id <= $2 AND state = 'open' AND indexed < head \
         ORDER BY id LIMIT $3";
    let last = "SELECT coalesce(max(id), 0) FROM epitome.sessions";
    let next = from.saturating_add(SCAN_RANGE);
    let params = [(*from).into(), next.into(), MAX_FOUND.into()];
    let (mut not_indexed, mut newest) = (Vec::new(), None);
    let batch = SqlBatch::new().all(Sql::new(sql, params), &mut not_indexed, |row| row.int(0));
    let batch = batch.first(Sql::new(last, []), &mut newest, |row| row.int(0));
    PgTransaction::autocommit(store).run(batch).await?;
    not_indexed.iter().for_each(|session| store.index_backlog.add(*session));
    *from = match not_indexed.last() {
        Some(last) if not_indexed.len() >= MAX_FOUND => *last,
        _ if next >= newest.unwrap_or(0) => 0,
        _ => next,
    };
    Ok(!not_indexed.is_empty())
}

/// Indexes the next messages of these sessions. Returns the sessions with further messages to index.
async fn index_chunk(store: &Postgres, sessions: &[SessionId]) -> OpResult<Vec<SessionId>> {
    // Locked sessions cannot be removed in the meantime, but they can grow. Sessions that are being removed are
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
    let all = || SqlParam::Ints(sessions.to_vec());
    let each = (MAX_MESSAGES / sessions.len().max(1)).max(1);
    let (mut open, mut texts, mut bytes) = (Vec::new(), Vec::new(), 0u64);
    let read = |row: RowRef<'_>| Ok((row.int(0)?, (TrigramHash::of(row.text(1)?), row.int(2)?)));
    let text = |row: RowRef<'_>| {
        let (shape, body) = (outline(row)?, row.text(AFTER_OUTLINE)?);
        bytes = bytes.saturating_add(body.len() as u64);
        // An unreadable message must not block the index forever. It is indexed as empty text, and `verify` reports it.
        let text = restore_message(&shape, body).map_or_else(|_| String::new(), |m| text_of(&m));
        Ok((row.int(AFTER_OUTLINE + 1)?, int(shape.seq), text))
    };
    let mut tx = PgTransaction::read_write(store);
    let batch = SqlBatch::new().all(Sql::new(open_sql, [all()]), &mut open, read);
    let sql = Sql::new(sql, [all(), each.into(), MAX_BYTES.into()]);
    tx.run(batch.all(sql, &mut texts, text)).await?;
    let open: HashMap<SessionId, (TrigramHash, i64)> = open.into_iter().collect();
    let (mut ids, mut seqs, mut hash_lists, mut through) =
        (Vec::new(), Vec::new(), Vec::new(), HashMap::new());
    for (session, seq, text) in texts {
        let Some((trigrams, _)) = open.get(&session) else { continue };
        let hashes: Vec<String> = trigrams.in_text(&text).iter().map(ToString::to_string).collect();
        ids.push(session);
        seqs.push(seq);
        hash_lists.push(format!("{{{}}}", hashes.join(",")).into());
        through.insert(session, seq);
    }
    // A session that did not fit into this step is indexed in the next one.
    let is_cut = bytes >= MAX_BYTES;
    let has_more = |(session, (_, head)): (&SessionId, &(TrigramHash, i64))| {
        through.get(session).map_or(is_cut, |through| through < head).then_some(*session)
    };
    let remaining = open.iter().filter_map(has_more).collect();
    if through.is_empty() {
        return tx.end(Ok(remaining)).await;
    }
    let sql = "INSERT INTO epitome.words (session, seq, grams) SELECT session, seq, grams::integer[] \
         FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS n (session, seq, grams) ON CONFLICT DO NOTHING";
    let new = Sql::new(sql, [SqlParam::Ints(ids), SqlParam::Ints(seqs), SqlParam::Texts(hash_lists)]);
    tx.finish_checked(SqlBatch::new().add(new), None).await?;
    record_indexed(store, &through).await?;
    Ok(remaining)
}

/// Records for each session up to which message it is indexed. Sessions that another transaction has locked are skipped
/// at first, and updated one by one afterwards. Otherwise a deadlock with a caller that locks several sessions in
/// another order would be possible. The commit does not wait for the disk: a session whose record is lost in a crash is
/// indexed again.
async fn record_indexed(store: &Postgres, through: &HashMap<SessionId, i64>) -> OpResult<()> {
    let sql = "WITH soon AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)), \
         free AS MATERIALIZED (SELECT id FROM epitome.sessions WHERE id = ANY($1) FOR NO KEY UPDATE SKIP LOCKED) \
         UPDATE epitome.sessions o SET indexed = greatest(o.indexed, n.through) \
         FROM unnest($1::bigint[], $2::bigint[]) AS n (id, through), soon \
         WHERE o.id = n.id AND o.id IN (SELECT id FROM free) RETURNING o.id";
    let (ids, ends): (Vec<i64>, Vec<i64>) = through.iter().unzip();
    let sql = Sql::new(sql, [SqlParam::Ints(ids), SqlParam::Ints(ends)]);
    let mut tx = PgTransaction::autocommit(store);
    let done = executor::all(&mut tx, sql, |row| row.int(0)).await?;
    let mut batch = SqlBatch::new();
    for (session, through) in through.iter().filter(|(session, _)| !done.contains(session)) {
        let sql = "UPDATE epitome.sessions SET indexed = greatest(indexed, $2) WHERE id = $1";
        batch.push(Sql::new(sql, [(*session).into(), (*through).into()]));
    }
    tx.run(batch).await
}
