//! Queries for the messages of a session, or for the messages of one author in a session.
//!
//! Every query here uses the primary key or another index, so it does not read the whole log.

use epitome_core::message::{Seq, Span};
use epitome_core::outline::Outline;
use epitome_core::slot::Scope;

use super::decode::{OUTLINE, RowRef, author_of, outline};
use super::executor::{self, Executor};
use super::op_error::{OpResult, damaged};
use super::rows::SessionId;
use super::sql::Sql;
use super::sql_params::SqlParam;

/// Builds the queries for a session's messages, or for one author's messages in the session.
#[derive(Clone, Copy)]
pub(super) struct LogQuery<'a> {
    session: SessionId,
    author: Option<&'a str>,
}

impl<'a> LogQuery<'a> {
    pub(super) fn new(session: SessionId, scope: &'a Scope) -> Self {
        Self { session, author: author_of(scope) }
    }

    pub(super) fn whole(session: SessionId) -> Self {
        Self { session, author: None }
    }

    pub(super) fn is_author(&self) -> bool {
        self.author.is_some()
    }

    /// Returns the table and the condition for the session's or the author's rows. In every query, `$1` is the
    /// session's id and `$2` is the author's name (NULL for the whole session).
    fn rows(&self) -> &'static str {
        if self.is_author() {
            "epitome.messages INDEXED BY messages_by_author WHERE session = $1 AND author = $2"
        } else {
            "epitome.messages WHERE session = $1"
        }
    }

    fn sql<const N: usize>(&self, text: String, params: [SqlParam<'a>; N]) -> Sql<'a> {
        let mut all = vec![self.session.into(), self.author.into()];
        all.extend(params);
        Sql::new(text, all)
    }

    /// Returns the query for at most `limit` outlines in a range, oldest or newest first. Each row also contains the
    /// number of the message that opened the turn.
    pub(super) fn outlines(&self, within: (Seq, Seq), newest_first: bool, limit: usize) -> Sql<'a> {
        let order = if newest_first { "DESC" } else { "ASC" };
        let text = format!(
            "SELECT {OUTLINE}, opener FROM {} AND seq >= $3 AND seq <= $4 ORDER BY seq {order} LIMIT $5",
            self.rows()
        );
        self.sql(text, [within.0.into(), within.1.into(), limit.into()])
    }

    /// Reads at most `limit` outlines of a range of messages, oldest first.
    pub(super) async fn read_outlines(
        &self,
        db: &mut dyn Executor,
        within: Span,
        limit: usize,
    ) -> OpResult<Vec<Outline>> {
        executor::all(db, self.outlines((within.from, within.through), false, limit), outline).await
    }

    /// Returns SQL for the call batches that contain certain messages. The subquery `messages` selects the numbers of
    /// these messages. Each row contains one of these numbers, the start of its call batch, and the start of the next
    /// batch. The rows are sorted oldest first. Messages after `$3` are ignored.
    fn call_batches_sql(&self, messages: &str) -> String {
        let rows = self.rows();
        let cut = if self.is_author() { "own_cut" } else { "cut" };
        format!(
            "SELECT f.seq, (SELECT seq FROM {rows} AND seq <= f.seq AND {cut} >= 1 ORDER BY seq DESC LIMIT 1), \
             (SELECT seq FROM {rows} AND seq > f.seq AND seq <= $3 AND {cut} >= 1 ORDER BY seq LIMIT 1) \
             FROM ({messages}) f ORDER BY f.seq"
        )
    }

    /// Reads the range of the call batch that contains message `seq`. Messages after `last` are ignored.
    pub(super) async fn call_batch(&self, db: &mut dyn Executor, seq: Seq, last: Seq) -> OpResult<Span> {
        let sql =
            self.sql(self.call_batches_sql("SELECT CAST($4 AS bigint) AS seq"), [last.into(), seq.into()]);
        let (_, begins, ends) = executor::first(db, sql, flagged).await?.unwrap_or_default();
        call_batch(begins, ends, last)
    }

    /// Returns the query for the call batches that contain messages with this flag. [`call_batches`] converts the rows
    /// into ranges.
    pub(super) fn flagged(&self, flag: Flag, last: Seq) -> Sql<'a> {
        let text = |flag: &str| {
            self.call_batches_sql(&format!(
                "SELECT seq FROM epitome.messages{flag} AND session = $1 AND seq <= $3 \
                 AND ($2 IS NULL OR author = $2)"
            ))
        };
        let (postgres, sqlite) = match flag {
            Flag::Pinned => (" WHERE pinned", " INDEXED BY messages_pinned WHERE pinned <> 0"),
            Flag::Skipped => (" WHERE skip", " INDEXED BY messages_skipped WHERE skip <> 0"),
        };
        let params = [self.session.into(), self.author.into(), last.into()];
        Sql::per_database(text(postgres), text(sqlite), params)
    }

    /// Counts the messages in these ranges.
    pub(super) async fn count(&self, db: &mut dyn Executor, ranges: &[Span]) -> OpResult<u64> {
        let mut sum = 0u64;
        for range in ranges {
            let text = format!("SELECT count(*) FROM {} AND seq BETWEEN $3 AND $4", self.rows());
            let count =
                executor::number(db, self.sql(text, [range.from.into(), range.through.into()])).await?;
            sum = sum.saturating_add(count.unsigned_abs());
        }
        Ok(sum)
    }

    /// Returns the query for the newest message before `seq` that opens one of the author's turns.
    pub(super) fn opener_before(&self, seq: Seq) -> Sql<'a> {
        let text = format!(
            "SELECT {OUTLINE} FROM epitome.messages INDEXED BY messages_openers WHERE session = $1 AND author = $2 \
             AND author IS NOT NULL AND (shape & 2) <> 0 AND seq < $3 ORDER BY seq DESC LIMIT 1"
        );
        self.sql(text, [seq.into()])
    }

    /// Returns the query for at most `limit` messages with their text, oldest or newest first. In PostgreSQL, the
    /// result ends one message after the text reaches `bytes` bytes, so that no unneeded text is sent. In SQLite, the
    /// caller stops reading when it has enough, because rows are returned one by one.
    pub(super) fn page(
        &self,
        within: Span,
        newest_first: bool,
        (limit, bytes): (usize, Option<u64>),
    ) -> Sql<'a> {
        let order = if newest_first { "DESC" } else { "ASC" };
        let (rows, bytes) = (self.rows(), bytes.map_or(u64::MAX, |bytes| bytes.max(1)));
        // PostgreSQL computes the length of a body without reading it. The sum leaves out the current row and the row
        // before it. So one row more than needed is returned, which shows the caller that more messages follow.
        let postgres = format!(
            "SELECT {OUTLINE}, body FROM (SELECT m.*, sum(octet_length(body)) OVER (ORDER BY seq {order} \
             ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS ahead_of_it FROM \
             (SELECT * FROM {rows} AND seq >= $3 AND seq <= $4 ORDER BY seq {order} LIMIT $5) m) p \
             WHERE coalesce(ahead_of_it, 0) < $6 ORDER BY seq {order}"
        );
        let sqlite = format!(
            "SELECT {OUTLINE}, body FROM {rows} AND seq >= $3 AND seq <= $4 AND $6 > 0 ORDER BY seq {order} LIMIT $5"
        );
        let (from, through) = (within.from.into(), within.through.into());
        let params = [self.session.into(), self.author.into(), from, through, limit.into(), bytes.into()];
        Sql::per_database(postgres, sqlite, params)
    }
}

/// A flag of a message.
#[derive(Clone, Copy)]
pub(super) enum Flag {
    Pinned,
    Skipped,
}

fn call_batch(from: Option<Seq>, next: Option<Seq>, last: Seq) -> OpResult<Span> {
    let (from, through) = (from.unwrap_or(1), next.map_or(last, |next| next.saturating_sub(1)));
    Span::new(from, through).ok_or_else(|| damaged("a call batch ends before it begins"))
}

/// A row of [`LogQuery::flagged`]: the message, the start of its batch, and the start of the next batch.
pub(super) type Flagged = (Seq, Option<Seq>, Option<Seq>);

pub(super) fn flagged(row: RowRef<'_>) -> OpResult<Flagged> {
    let seq = |at: usize| row.maybe_int(at).map(|seq| seq.and_then(|seq| u64::try_from(seq).ok()));
    Ok((row.uint(0)?, seq(1)?, seq(2)?))
}

/// Converts rows of [`LogQuery::flagged`] into the ranges of call batches. A batch that contains several flagged
/// messages is returned once.
pub(super) fn call_batches(found: &[Flagged], last: Seq) -> OpResult<Vec<Span>> {
    let mut batches: Vec<Span> = Vec::new();
    for (seq, from, next) in found {
        if batches.last().is_none_or(|batch| batch.through < *seq) {
            batches.push(call_batch(*from, *next, last)?);
        }
    }
    Ok(batches)
}
