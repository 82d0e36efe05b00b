//! Searches messages by their text.
//!
//! The trigram index returns candidates. Each candidate is read and compared with the query. Only a message that
//! matches the query is a hit. All messages that are not indexed yet are also read and compared. Text is read in
//! portions of limited size.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use epitome_core::message::{Seq, Span};

use super::decode::{AFTER_OUTLINE, OUTLINE, RowRef, author_of, message_row};
use super::executor::{self, Executor, SqlBatch};
use super::log_query::LogQuery;
use super::op_error::OpResult;
use super::query_types::{Hit, Portion, PortionBuilder, Search};
use super::rows::SessionId;
use super::sql::Sql;
use super::sql_params::{SqlParam, int};
use super::trigrams::TrigramHash;
use crate::search::text_of;

/// Maximum number of sessions read at a time.
const MAX_SESSIONS: usize = 1_000;

/// Maximum number of messages read at a time.
const MAX_MESSAGES: usize = 100;

/// Maximum number of bytes of message text read at a time, unless a single message is larger: 1 MiB.
const MAX_BYTES: u64 = 1 << 20;

/// Maximum number of candidates read from the index at a time.
const MAX_CANDIDATES: usize = 2_000;

/// A message's position: the id of its session, and its number in the session.
type MessagePosition = (SessionId, i64);

/// A position above that of every message.
const END: MessagePosition = (i64::MAX, i64::MAX);

/// The queries of PostgreSQL and SQLite for candidates from the index with positions below (`$2`, `$3`), newest first.
/// `MATERIALIZED` makes PostgreSQL find all matching rows first. Otherwise PostgreSQL might use an index that has the
/// requested order, and read the messages of all workspaces. In SQLite, the row id in the index is `(session << 32) +
/// seq`.
const INDEX_ALL: [&str; 2] = [
    "WITH holding AS MATERIALIZED (SELECT session, seq FROM epitome.words WHERE grams @> $1) \
     SELECT session, seq FROM holding WHERE (session, seq) < ($2, $3) ORDER BY session DESC, seq DESC LIMIT $4",
    "SELECT rowid >> 32, rowid & 4294967295 FROM words WHERE words MATCH ?1 \
     AND rowid < (min(?2, 2147483647) << 32) + min(?3, 4294967295) ORDER BY rowid DESC LIMIT ?4",
];

/// The queries of PostgreSQL and SQLite for candidates of the session `$2`, newest first. The candidates have message
/// numbers from `$4` to `$5`, and below `$3`.
const INDEX_SESSION: [&str; 2] = [
    "SELECT session, seq FROM epitome.words WHERE session = $2 AND seq < $3 AND seq >= $4 \
     AND seq <= $5 AND grams @> $1 ORDER BY seq DESC LIMIT $6",
    "SELECT rowid >> 32, rowid & 4294967295 FROM words WHERE words MATCH ?1 AND rowid >= (?2 << 32) + min(?4, 4294967295) \
     AND rowid <= (?2 << 32) + min(?3 - 1, ?5, 4294967295) ORDER BY rowid DESC LIMIT ?6",
];

pub(super) async fn search(db: &mut dyn Executor, search: &Search) -> OpResult<Portion<Hit>> {
    let in_file = db.in_file();
    let trigrams = if in_file {
        search.query.trigrams().map(SqlParam::from)
    } else {
        TrigramHash::of(&search.workspace).in_query(&search.query).map(SqlParam::Ints32)
    };
    let hits = PortionBuilder::new(search.limit, search.bytes);
    let mut finder = Finder { db, search, trigrams, only: search.session, hits };
    let upper = search.after.map_or(END, |(session, seq)| (session, int(seq)));
    // All workspaces of a SQLite file share one index. If this workspace has few sessions, each session is searched
    // separately, so that the index entries of other workspaces are not read.
    let mut few = None;
    if in_file && finder.trigrams.is_some() && finder.only.is_none() {
        few = Some(finder.sessions(upper.0, false).await?).filter(|all| all.len() < MAX_SESSIONS);
    }
    let Some(few) = few else {
        finder.find(upper).await?;
        return Ok(finder.hits.build());
    };
    for session in few {
        finder.only = Span::new(1, Seq::MAX).map(|all| (session.id, all));
        finder.find(upper).await?;
        if finder.hits.is_full() {
            break;
        }
    }
    Ok(finder.hits.build())
}

struct Finder<'a> {
    db: &'a mut dyn Executor,
    search: &'a Search,
    /// The trigrams to look up in the index; `None` if the query is too short to contain one.
    trigrams: Option<SqlParam<'a>>,
    /// If set, only this range of messages of this session is searched.
    only: Option<(SessionId, Span)>,
    hits: PortionBuilder<Hit>,
}

/// A session of the workspace.
struct SearchedSession {
    id: SessionId,
    name: Arc<str>,
    /// Messages up to this one are in the index; 0 if the index is not used.
    indexed: Seq,
    head: Seq,
}

/// Candidates that were read from the index.
#[derive(Default)]
struct Candidates {
    positions: VecDeque<MessagePosition>,
    /// The last position read from the index.
    last: Option<MessagePosition>,
    /// Whether the index has no further candidates.
    exhausted: bool,
}

impl Finder<'_> {
    /// Reads the sessions to search, newest first: sessions with ids up to `from`. If `not_indexed` is set, reads only
    /// sessions that are not fully indexed.
    async fn sessions(&mut self, from: SessionId, not_indexed: bool) -> OpResult<Vec<SearchedSession>> {
        let mut params = vec![(&*self.search.workspace).into(), from.into(), MAX_SESSIONS.into()];
        let lag = if not_indexed { " AND indexed < head" } else { "" };
        // A single session is found by its id. The index `sessions_to_index` contains only the sessions that are not
        // fully indexed, of all workspaces.
        let (index, only) = match self.only {
            Some((session, _)) => {
                params.push(session.into());
                ("", " AND id = $4")
            }
            None if not_indexed => (" INDEXED BY sessions_to_index", ""),
            None => ("", ""),
        };
        let sql = format!(
            "SELECT id, name, indexed, head FROM epitome.sessions{index} WHERE workspace = $1 AND state = 'open' \
             AND id <= $2{only}{lag} ORDER BY id DESC LIMIT $3"
        );
        executor::all(self.db, Sql::new(sql, params), |row| {
            let indexed = if not_indexed { row.uint(2)? } else { 0 };
            Ok(SearchedSession { id: row.int(0)?, name: row.name(1)?, indexed, head: row.uint(3)? })
        })
        .await
    }

    /// Searches the positions below `upper`, newest first. Checks two kinds of messages, merged in order of position:
    /// candidates from the index, and messages at the end of a session that are not indexed yet. If the index is not
    /// used, checks all messages.
    async fn find(&mut self, mut upper: MessagePosition) -> OpResult<()> {
        let mut from = upper.0;
        loop {
            let not_indexed = self.sessions(from, self.trigrams.is_some()).await?;
            // The index is read after the sessions, so that it contains every message that the sessions report as
            // indexed.
            let mut candidates = Candidates { exhausted: self.trigrams.is_none(), ..Candidates::default() };
            for session in &not_indexed {
                // First check the candidates of newer sessions, then the messages at the end of this session.
                let end = (session.id, i64::MAX);
                self.check_candidates(&mut candidates, end, upper).await?;
                upper = upper.min(end);
                self.scan(session, session.indexed.saturating_add(1), upper).await?;
                upper = upper.min((session.id, int(session.indexed.saturating_add(1))));
                if self.hits.is_full() {
                    return Ok(());
                }
            }
            match not_indexed.last() {
                Some(last) if not_indexed.len() >= MAX_SESSIONS => from = last.id.saturating_sub(1),
                _ => return self.check_candidates(&mut candidates, (0, 0), upper).await,
            }
        }
    }

    /// Checks the candidates with positions from `lower` on and below `upper`.
    async fn check_candidates(
        &mut self,
        candidates: &mut Candidates,
        lower: MessagePosition,
        upper: MessagePosition,
    ) -> OpResult<()> {
        while !self.hits.is_full() {
            if candidates.positions.is_empty() && !candidates.exhausted {
                self.read_candidates(candidates, upper).await?;
            }
            // Drop candidates at or above `upper`. They were not indexed when their session was read, so they have been
            // checked without the index.
            while candidates.positions.front().is_some_and(|position| *position >= upper) {
                candidates.positions.pop_front();
            }
            let next = candidates.positions.iter().take(MAX_MESSAGES);
            let next: Vec<MessagePosition> =
                next.take_while(|position| **position >= lower).copied().collect();
            if next.is_empty() {
                if candidates.positions.is_empty() && !candidates.exhausted {
                    continue;
                }
                return Ok(());
            }
            let handled = self.check_positions(&next).await?;
            candidates.positions.drain(..handled.min(candidates.positions.len()));
        }
        Ok(())
    }

    /// Reads the next candidates from the index: those below `upper` and below the candidates read before.
    async fn read_candidates(&mut self, candidates: &mut Candidates, upper: MessagePosition) -> OpResult<()> {
        let upper = upper.min(candidates.last.unwrap_or(upper));
        let ([postgres, sqlite], params) = match self.only {
            Some((session, within)) => {
                let before = match upper.0.cmp(&session) {
                    Ordering::Less => 0,
                    Ordering::Equal => upper.1,
                    Ordering::Greater => i64::MAX,
                };
                let (first, last) = (within.from.into(), within.through.into());
                (INDEX_SESSION, vec![session.into(), before.into(), first, last, MAX_CANDIDATES.into()])
            }
            None => (INDEX_ALL, vec![upper.0.into(), upper.1.into(), MAX_CANDIDATES.into()]),
        };
        let params: Vec<_> = self.trigrams.iter().cloned().chain(params).collect();
        let sql = Sql::per_database(postgres, sqlite, params);
        candidates.positions.extend(executor::all(self.db, sql, |row| Ok((row.int(0)?, row.int(1)?))).await?);
        candidates.exhausted = candidates.positions.len() < MAX_CANDIDATES;
        candidates.last = candidates.positions.back().copied().or(candidates.last);
        Ok(())
    }

    /// Reads and checks the messages at these positions, up to [`MAX_BYTES`] of text. Returns how many of the positions
    /// were handled.
    async fn check_positions(&mut self, positions: &[MessagePosition]) -> OpResult<usize> {
        let postgres = format!(
            "SELECT {OUTLINE}, CASE WHEN coalesce(sum(octet_length(body)) OVER (ORDER BY nth \
             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) < $5 THEN body END, nth, name FROM \
             (SELECT m.*, p.nth, o.name FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS p (session, seq, nth) \
             JOIN epitome.sessions o ON o.id = p.session AND o.workspace = $3 AND o.state = 'open' \
             JOIN epitome.messages m ON m.session = p.session AND m.seq = p.seq AND ($4::text IS NULL OR m.author = $4)) m \
             ORDER BY nth"
        );
        // SQLite returns rows one by one in the order of the list, so the reader stops when it has enough hits.
        let sqlite = format!(
            "SELECT {OUTLINE}, body, nth, name FROM (SELECT m.*, p.key + 1 AS nth, o.name AS name FROM json_each(?1) p \
             CROSS JOIN sessions o CROSS JOIN messages m WHERE o.id = p.value AND o.workspace = ?3 AND o.state = 'open' \
             AND m.session = o.id AND m.seq = (?2 ->> p.key) AND (?4 IS NULL OR m.author = ?4) \
             AND ?5 > 0)"
        );
        let (sessions, seqs) = positions.iter().copied().unzip();
        let workspace = (&*self.search.workspace).into();
        let author = author_of(&self.search.scope).into();
        let params = [SqlParam::Ints(sessions), SqlParam::Ints(seqs), workspace, author, MAX_BYTES.into()];
        let (search, hits, mut handled) = (self.search, &mut self.hits, positions.len());
        let each = |row: RowRef<'_>| {
            let before =
                usize::try_from(row.uint(AFTER_OUTLINE + 1)?).unwrap_or(usize::MAX).saturating_sub(1);
            if row.maybe_text(AFTER_OUTLINE)?.is_none() {
                handled = before;
                return Ok(false);
            }
            let Some((session, _)) = positions.get(before) else { return Ok(false) };
            check_message(search, hits, (*session, &row.name(AFTER_OUTLINE + 2)?), row)?;
            Ok(!hits.is_full())
        };
        self.db.run(SqlBatch::new().each(Sql::per_database(postgres, sqlite, params), each)).await?;
        Ok(handled)
    }

    /// Checks messages of a session without the index, newest first. Checks only messages from message `from` on with
    /// positions below `upper`.
    async fn scan(
        &mut self,
        session: &SearchedSession,
        mut from: Seq,
        upper: MessagePosition,
    ) -> OpResult<()> {
        let mut through = session.head;
        if upper.0 == session.id {
            through = through.min(u64::try_from(upper.1.saturating_sub(1)).unwrap_or(0));
        }
        if let Some((_, within)) = self.only {
            (from, through) = (from.max(within.from), through.min(within.through));
        }
        while let Some(within) = Span::new(from, through).filter(|_| !self.hits.is_full()) {
            let sql = LogQuery::new(session.id, &self.search.scope).page(
                within,
                true,
                (MAX_MESSAGES, Some(MAX_BYTES)),
            );
            let (mut lowest, mut seen, mut bytes) = (1, 0, 0u64);
            let (search, hits) = (self.search, &mut self.hits);
            let each = |row: RowRef<'_>| {
                (lowest, seen) = (row.uint(0)?, seen + 1);
                bytes = bytes.saturating_add(check_message(search, hits, (session.id, &session.name), row)?);
                Ok(!hits.is_full())
            };
            self.db.run(SqlBatch::new().each(sql, each)).await?;
            if seen < MAX_MESSAGES && bytes < MAX_BYTES {
                return Ok(());
            }
            through = lowest.saturating_sub(1);
        }
        Ok(())
    }
}

/// Adds a message to the hits if it matches the query. Returns the message's size in bytes.
fn check_message(
    search: &Search,
    hits: &mut PortionBuilder<Hit>,
    (id, name): (SessionId, &Arc<str>),
    row: RowRef<'_>,
) -> OpResult<u64> {
    let (message, bytes) = message_row(row)?;
    if search.query.matches(&text_of(&message)) {
        hits.push(Hit { session: Arc::clone(name), id, message }, bytes);
    }
    Ok(bytes)
}
