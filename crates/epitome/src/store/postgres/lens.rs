//! A session's messages, or one author's in it, read by their shape.
//!
//! Every query here walks the primary key or the index of one author's messages, and reads a bounded number of rows.

use epitome_core::message::{Seq, Span};
use epitome_core::outline::Outline;
use epitome_core::slot::Scope;
use tokio_postgres::Row;

use super::super::decode::{OUTLINE, ReadRow, outline};
use super::super::rows::SessionId;
use super::error::{Outcome, nonsense};
use super::pipe::Pipe;
use super::rows::{author_of, get};
use super::tx::Tx;

/// Whose messages.
#[derive(Clone, Copy)]
pub(super) struct Lens<'a> {
    pub(super) session: SessionId,
    author: Option<&'a str>,
}

impl<'a> Lens<'a> {
    pub(super) fn new(session: SessionId, scope: &'a Scope) -> Self {
        Self { session, author: author_of(scope) }
    }

    pub(super) fn whole(session: SessionId) -> Self {
        Self { session, author: None }
    }

    pub(super) fn is_own(&self) -> bool {
        self.author.is_some()
    }

    fn cut_column(&self) -> &'static str {
        if self.is_own() { "own_cut" } else { "cut" }
    }

    /// What picks the session's or the author's rows. `$1` is the session and `$2` the author in every query.
    fn rows(&self) -> &'static str {
        if self.is_own() { "session = $1 AND author = $2" } else { "session = $1" }
    }

    /// Shapes, each with the message that opened its turn: the first of these, or the newest first.
    pub(super) fn shapes(&self, pipe: &mut Pipe<'a>, within: (Seq, Seq), newest_first: bool, limit: usize) {
        let order = if newest_first { "DESC" } else { "ASC" };
        let sql = format!(
            "SELECT {OUTLINE}, opener FROM epitome.messages WHERE {} AND seq >= $3 AND seq <= $4 ORDER BY seq {order} LIMIT $5",
            self.rows()
        );
        let (from, through) = (within.0.into(), within.1.into());
        pipe.push(sql, [self.session.into(), self.author.into(), from, through, limit.into()]);
    }

    /// The shapes of a run of messages, at most so many.
    pub(super) async fn run(&self, tx: &mut Tx<'_>, within: Span, limit: usize) -> Outcome<Vec<Outline>> {
        let mut pipe = Pipe::new();
        self.shapes(&mut pipe, (within.from, within.through), false, limit);
        let found = tx.ask(pipe).await?;
        found.iter().flatten().map(|row| outline(row)).collect()
    }

    /// The call batch a message stands in, as if the log ended at `last`.
    pub(super) async fn batch(&self, tx: &mut Tx<'_>, seq: Seq, last: Seq) -> Outcome<Span> {
        let (rows, cut) = (self.rows(), self.cut_column());
        let from = format!(
            "SELECT seq FROM epitome.messages WHERE {rows} AND seq <= $3 AND {cut} >= 1 ORDER BY seq DESC LIMIT 1"
        );
        let next = format!(
            "SELECT seq FROM epitome.messages WHERE {rows} AND seq > $3 AND seq <= $4 AND {cut} >= 1 ORDER BY seq LIMIT 1"
        );
        let (session, author) = (self.session, self.author);
        let pipe = Pipe::new()
            .then(from, [session.into(), author.into(), seq.into()])
            .then(next, [session.into(), author.into(), seq.into(), last.into()]);
        let found = tx.ask(pipe).await?;
        let one =
            |rows: Option<&Vec<Row>>| rows.and_then(|rows| rows.first()).map(|row| row.uint(0)).transpose();
        batch(one(found.first())?, one(found.get(1))?, last)
    }

    /// The call batches that messages with a flag stand in, oldest first: where each begins, and where the next one does.
    pub(super) fn flagged(&self, pipe: &mut Pipe<'a>, flag: &str, last: Seq) {
        let (rows, cut) = (self.rows(), self.cut_column());
        let sql = format!(
            "SELECT f.seq, (SELECT seq FROM epitome.messages WHERE {rows} AND seq <= f.seq AND {cut} >= 1 \
             ORDER BY seq DESC LIMIT 1), (SELECT seq FROM epitome.messages WHERE {rows} AND seq > f.seq AND seq <= $3 \
             AND {cut} >= 1 ORDER BY seq LIMIT 1) FROM (SELECT seq FROM epitome.messages WHERE {rows} AND {flag} \
             AND seq <= $3) f ORDER BY f.seq"
        );
        pipe.push(sql, [self.session.into(), self.author.into(), last.into()]);
    }

    /// How many messages there are in these runs.
    pub(super) async fn count(&self, tx: &mut Tx<'_>, runs: &[Span]) -> Outcome<u64> {
        let mut pipe = Pipe::new();
        for run in runs {
            let sql = format!(
                "SELECT count(*) FROM epitome.messages WHERE {} AND seq BETWEEN $3 AND $4",
                self.rows()
            );
            let ends = [run.from, run.through].map(Into::into);
            let [from, through] = ends;
            pipe.push(sql, [self.session.into(), self.author.into(), from, through]);
        }
        let found = tx.ask(pipe).await?;
        found.iter().flatten().try_fold(0u64, |sum, row| Ok(sum.saturating_add(row.uint(0)?)))
    }

    /// The newest message before this one that opens a turn of this author's.
    pub(super) fn opener_before(&self, pipe: &mut Pipe<'a>, seq: Seq) {
        let sql = format!(
            "SELECT {OUTLINE} FROM epitome.messages WHERE session = $1 AND author = $2 AND author IS NOT NULL \
             AND (shape & 2) <> 0 AND seq < $3 ORDER BY seq DESC LIMIT 1"
        );
        pipe.push(sql, [self.session.into(), self.author.into(), seq.into()]);
    }

    /// Messages with their words, in order or newest first, at most so many, and no more than one beyond so many bytes: what
    /// is too much is not sent.
    pub(super) fn page(
        &self,
        pipe: &mut Pipe<'a>,
        within: Span,
        newest_first: bool,
        (limit, bytes): (usize, Option<u64>),
    ) {
        let order = if newest_first { "DESC" } else { "ASC" };
        // How long words are is known without reading them. Those before the one before: so one more is there to be seen.
        let sql = format!(
            "SELECT {OUTLINE}, body FROM (SELECT m.*, sum(octet_length(body)) OVER (ORDER BY seq {order} \
             ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS ahead_of_it FROM \
             (SELECT * FROM epitome.messages WHERE {} AND seq >= $3 AND seq <= $4 ORDER BY seq {order} LIMIT $5) m) p \
             WHERE coalesce(ahead_of_it, 0) < $6 ORDER BY seq {order}",
            self.rows()
        );
        let (from, through) = (within.from.into(), within.through.into());
        let bytes = bytes.map_or(u64::MAX, |bytes| bytes.max(1)).into();
        pipe.push(sql, [self.session.into(), self.author.into(), from, through, limit.into(), bytes]);
    }
}

fn batch(from: Option<Seq>, next: Option<Seq>, last: Seq) -> Outcome<Span> {
    let (from, through) = (from.unwrap_or(1), next.map_or(last, |next| next.saturating_sub(1)));
    Span::new(from, through).ok_or_else(|| nonsense("a call batch ends before it begins"))
}

/// The batches of what [`Lens::flagged`] asked for, each once.
pub(super) fn batches(found: &[Row], last: Seq) -> Outcome<Vec<Span>> {
    let mut batches: Vec<Span> = Vec::new();
    for row in found {
        if batches.last().is_none_or(|batch| batch.through < row.uint(0).unwrap_or(0)) {
            let seq = |at: usize| -> Outcome<Option<Seq>> {
                Ok(get::<Option<i64>>(row, at)?.and_then(|seq| u64::try_from(seq).ok()))
            };
            batches.push(batch(seq(1)?, seq(2)?, last)?);
        }
    }
    Ok(batches)
}
