//! A session's messages, or one author's in it, read by their shape.
//!
//! Every query here walks the primary key or the index of one author's messages, and stops where its reader
//! does.

use std::collections::BTreeMap;

use epitome_core::message::{Message, Seq, Span};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;
use rusqlite::{Connection, Params, params};

use super::super::decode::{OUTLINE, ReadRow, outline, with_words, words};
use super::super::given::int;
use super::super::rows::SessionId;
use super::error::{Outcome, nonsense};
use super::rows::{IN_LOOP, all_of, first_of};

/// Where to read, and whose messages.
pub(super) struct Lens<'a> {
    pub(super) db: &'a Connection,
    pub(super) session: SessionId,
    author: Option<&'a str>,
}

impl<'a> Lens<'a> {
    pub(super) fn new(db: &'a Connection, session: SessionId, scope: &'a Scope) -> Self {
        let author = match scope {
            Scope::Session => None,
            Scope::Author(author) => Some(author.as_ref()),
        };
        Self { db, session, author }
    }

    pub(super) fn whole(db: &'a Connection, session: SessionId) -> Self {
        Self { db, session, author: None }
    }

    pub(super) fn is_own(&self) -> bool {
        self.author.is_some()
    }

    /// The cut before a message, as this lens sees it.
    pub(super) fn cut(&self, outline: &Outline) -> Cut {
        if self.is_own() { outline.own_cut } else { outline.cut }
    }

    fn cut_column(&self) -> &'static str {
        if self.is_own() { "own_cut" } else { "cut" }
    }

    /// The table with what picks the session's or the author's rows. `?2` is the author in every query, so
    /// that both kinds take the same parameters.
    fn rows(&self) -> &'static str {
        if self.is_own() {
            "messages INDEXED BY messages_by_author WHERE session = ?1 AND author = ?2"
        } else {
            "messages WHERE session = ?1 AND ?2 IS NULL"
        }
    }

    /// Reads shapes one by one, in order or newest first, until `each` says false.
    pub(super) fn walk(
        &self,
        within: Span,
        newest_first: bool,
        mut each: impl FnMut(Outline) -> bool,
    ) -> Outcome<()> {
        let order = if newest_first { "DESC" } else { "ASC" };
        let sql =
            format!("SELECT {OUTLINE} FROM {} AND seq BETWEEN ?3 AND ?4 ORDER BY seq {order}", self.rows());
        let mut statement = self.db.prepare_cached(&sql)?;
        let mut found =
            statement.query(params![self.session, self.author, int(within.from), int(within.through)])?;
        while let Some(row) = found.next()? {
            if !each(outline(row)?) {
                break;
            }
        }
        Ok(())
    }

    /// The shapes of a run of messages, at most so many.
    pub(super) fn run(&self, within: Span, limit: usize) -> Outcome<Vec<Outline>> {
        let mut found = Vec::new();
        if limit > 0 {
            self.walk(within, false, |outline| {
                found.push(outline);
                found.len() < limit
            })?;
        }
        Ok(found)
    }

    /// The call batch a message stands in, as if the log ended at `last`.
    pub(super) fn batch(&self, seq: Seq, last: Seq) -> Outcome<Span> {
        let (table, cut) = (self.rows(), self.cut_column());
        let sql = format!("SELECT seq FROM {table} AND seq <= ?3 AND {cut} >= ?4 ORDER BY seq DESC LIMIT 1");
        let from = self.seq(&sql, params![self.session, self.author, int(seq), IN_LOOP])?;
        let sql = format!(
            "SELECT seq FROM {table} AND seq > ?3 AND seq <= ?5 AND {cut} >= ?4 ORDER BY seq LIMIT 1"
        );
        let next = self.seq(&sql, params![self.session, self.author, int(seq), IN_LOOP, int(last)])?;
        let (from, through) = (from.unwrap_or(1), next.map_or(last, |next| next.saturating_sub(1)));
        Span::new(from, through).ok_or_else(|| nonsense("a call batch ends before it begins"))
    }

    /// The newest message before this one that opens a turn.
    pub(super) fn opener_before(&self, seq: Seq) -> Outcome<Option<Outline>> {
        let sql = format!(
            "SELECT {OUTLINE} FROM messages INDEXED BY messages_openers WHERE session = ?1 AND author = ?2 \
             AND author IS NOT NULL AND (shape & 2) <> 0 AND seq < ?3 ORDER BY seq DESC LIMIT 1"
        );
        first_of(self.db, &sql, params![self.session, self.author, int(seq)], outline)
    }

    /// The first message after this one.
    pub(super) fn next(&self, seq: Seq) -> Outcome<Option<Outline>> {
        let Some(after) = Span::new(seq.saturating_add(1), i64::MAX.unsigned_abs()) else { return Ok(None) };
        Ok(self.run(after, 1)?.pop())
    }

    /// The messages up to `last` that carry a flag, by its partial index.
    pub(super) fn flagged(&self, flag: Flag, last: Seq) -> Outcome<Vec<Seq>> {
        let sql = match flag {
            Flag::Pinned => {
                "SELECT seq FROM messages INDEXED BY messages_pinned WHERE session = ?1 AND pinned <> 0 \
                 AND seq <= ?3 AND (?2 IS NULL OR author = ?2) ORDER BY seq"
            }
            Flag::Skipped => {
                "SELECT seq FROM messages INDEXED BY messages_skipped WHERE session = ?1 AND skip <> 0 \
                 AND seq <= ?3 AND (?2 IS NULL OR author = ?2) ORDER BY seq"
            }
        };
        all_of(self.db, sql, params![self.session, self.author, int(last)], |row| row.uint(0))
    }

    /// How many messages there are in a run.
    pub(super) fn count(&self, within: Span) -> Outcome<u64> {
        let sql = format!("SELECT count(*) FROM {} AND seq BETWEEN ?3 AND ?4", self.rows());
        let within = params![self.session, self.author, int(within.from), int(within.through)];
        Ok(self.seq(&sql, within)?.unwrap_or(0))
    }

    /// Messages with their words and the bytes these take, one by one, until `each` says false.
    pub(super) fn read(
        &self,
        within: Span,
        newest_first: bool,
        mut each: impl FnMut(Message, u64) -> bool,
    ) -> Outcome<()> {
        let order = if newest_first { "DESC" } else { "ASC" };
        let sql = format!(
            "SELECT {OUTLINE}, body FROM {} AND seq BETWEEN ?3 AND ?4 ORDER BY seq {order}",
            self.rows()
        );
        let mut statement = self.db.prepare_cached(&sql)?;
        let (from, through) = (int(within.from), int(within.through));
        let mut found = statement.query(params![self.session, self.author, from, through])?;
        while let Some(row) = found.next()? {
            let (message, bytes) = words(row)?;
            if !each(message, bytes) {
                break;
            }
        }
        Ok(())
    }

    /// One message with its words, and the bytes these take.
    pub(super) fn one(&self, seq: Seq) -> Outcome<Option<(Message, u64)>> {
        let sql = format!("SELECT {OUTLINE}, body FROM messages WHERE session = ?1 AND seq = ?2");
        first_of(self.db, &sql, params![self.session, int(seq)], words)
    }

    /// The messages of a run whose shapes are known already, with their words; those of others are left out.
    pub(super) fn words_of(&self, run: Span, known: &BTreeMap<Seq, &Outline>) -> Outcome<Vec<Message>> {
        let sql = "SELECT seq, body FROM messages WHERE session = ?1 AND seq BETWEEN ?2 AND ?3 ORDER BY seq";
        let mut statement = self.db.prepare_cached(sql)?;
        let mut found = statement.query(params![self.session, int(run.from), int(run.through)])?;
        let mut all = Vec::new();
        while let Some(row) = found.next()? {
            if let Some(shape) = known.get(&row.uint(0)?) {
                all.push(with_words(shape, row, 1)?.0);
            }
        }
        Ok(all)
    }

    fn seq(&self, sql: &str, given: impl Params) -> Outcome<Option<Seq>> {
        first_of(self.db, sql, given, |row| row.uint(0))
    }
}

/// What a message can carry.
#[derive(Clone, Copy)]
pub(super) enum Flag {
    Pinned,
    Skipped,
}
