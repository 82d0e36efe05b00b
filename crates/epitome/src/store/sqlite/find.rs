//! Finding messages by their words.
//!
//! The index names candidates; each is read and held against the query, which alone decides. Messages that are
//! not in the index yet are read one by one.

use std::collections::HashMap;
use std::sync::Arc;

use epitome_core::message::{Message, Span};
use epitome_core::slot::Scope;
use rusqlite::{Connection, params, params_from_iter};

use super::super::asked::{Filling, Hit, Portion, Search};
use super::super::decode::words;
use super::super::given::int;
use super::super::lens::Lens;
use super::super::rows::SessionId;
use super::super::sql::Sql;
use super::chores::row_id;
use super::error::Outcome;
use super::rows::{all, all_of, first_of};
use crate::search::text_of;

/// In a workspace of no more sessions than this, each is asked for by itself.
const MOST_ONE_BY_ONE: i64 = 1_000;

pub(super) fn search(db: &Connection, search: &Search) -> Outcome<Portion<Hit>> {
    let hits = Filling::new(search.limit, search.bytes);
    let mut finder = Finder { db, search, names: HashMap::new(), hits };
    let bounds = search.session.map_or((0, i64::MAX), |(session, within)| {
        (row_id(session, int(within.from)), row_id(session, int(within.through)).saturating_add(1))
    });
    let upper = search.after.map_or(i64::MAX, |(session, seq)| row_id(session, int(seq)));
    match search.query.trigrams() {
        Some(trigrams) => finder.by_index(&trigrams, bounds.0, bounds.1.min(upper))?,
        None => finder.by_reading(bounds.0, bounds.1.min(upper))?,
    }
    Ok(finder.hits.done())
}

/// These messages with their words, newest first.
fn messages(session: SessionId, scope: &Scope, within: Span) -> Sql<'_> {
    Lens::new(session, scope).page(within, true, (usize::MAX, None))
}

struct Finder<'a> {
    db: &'a Connection,
    search: &'a Search,
    /// The workspace's sessions met so far; `None` for others.
    names: HashMap<SessionId, Option<Arc<str>>>,
    hits: Filling<Hit>,
}

impl Finder<'_> {
    /// Newest first, from just before `upper` down to `lower`. Between what the index knows lie the ends of
    /// sessions that it does not know yet, each in its place.
    fn by_index(&mut self, trigrams: &str, lower: i64, mut upper: i64) -> Outcome<()> {
        if let Some(own) = self.own(lower, upper)? {
            for (session, indexed) in own {
                let (first, next) = (row_id(session, 0), row_id(session.saturating_add(1), 0));
                let known = row_id(session, indexed).saturating_add(1);
                self.read(session, known.max(lower), next.min(upper))?;
                self.candidates(trigrams, first.max(lower), known.min(upper))?;
            }
            return Ok(());
        }
        let sql = "SELECT id, indexed FROM sessions INDEXED BY sessions_to_index WHERE state = 'open' \
             AND indexed < head AND workspace = ?1 AND id BETWEEN ?2 AND ?3 ORDER BY id DESC";
        let given = params![self.search.workspace, lower >> 32, upper >> 32];
        for (session, indexed) in all_of(self.db, sql, given, |row| Ok((row.int(0)?, row.int(1)?)))? {
            self.candidates(trigrams, row_id(session.saturating_add(1), 0).max(lower), upper)?;
            upper = upper.min(row_id(session.saturating_add(1), 0));
            let known = row_id(session, indexed).saturating_add(1);
            self.read(session, known.max(lower), upper)?;
            upper = upper.min(known);
        }
        self.candidates(trigrams, lower, upper)
    }

    /// The workspace's sessions between these, newest first, each with what the index knows of it; none where there are
    /// too many to ask the index for one by one. The index holds the words of all workspaces: asked for all at once, it
    /// takes longer where others said them.
    fn own(&self, lower: i64, upper: i64) -> Outcome<Option<Vec<(SessionId, i64)>>> {
        let sql =
            "SELECT count(*) FROM (SELECT 1 FROM sessions WHERE workspace = ?1 AND state = 'open' LIMIT ?2)";
        let given = params![self.search.workspace, MOST_ONE_BY_ONE + 1];
        let count: i64 = self.db.prepare_cached(sql)?.query_row(given, |row| row.get(0))?;
        if count > MOST_ONE_BY_ONE {
            return Ok(None);
        }
        let sql = "SELECT id, indexed FROM sessions WHERE workspace = ?1 AND state = 'open' \
             AND id BETWEEN ?2 AND ?3 ORDER BY id DESC";
        let given = params![self.search.workspace, lower >> 32, upper >> 32];
        all_of(self.db, sql, given, |row| Ok((row.int(0)?, row.int(1)?))).map(Some)
    }

    fn candidates(&mut self, trigrams: &str, lower: i64, upper: i64) -> Outcome<()> {
        if lower >= upper || self.hits.is_over() {
            return Ok(());
        }
        let sql =
            "SELECT rowid FROM words WHERE words MATCH ?1 AND rowid >= ?2 AND rowid < ?3 ORDER BY rowid DESC";
        let mut statement = self.db.prepare_cached(sql)?;
        let mut found = statement.query(params![trigrams, lower, upper])?;
        while let Some(row) = found.next()? {
            let id: i64 = row.get(0)?;
            let (session, seq) = (id >> 32, (id & 0xffff_ffff).unsigned_abs());
            let Some(name) = self.name(session)? else { continue };
            let one = Span::new(seq, seq).map(|one| messages(session, &self.search.scope, one));
            for (message, bytes) in one.map(|sql| all(self.db, &sql, words)).transpose()?.unwrap_or_default()
            {
                self.take(session, &name, message, bytes);
            }
            if self.hits.is_over() {
                break;
            }
        }
        Ok(())
    }

    /// Without the index, session by session.
    fn by_reading(&mut self, lower: i64, upper: i64) -> Outcome<()> {
        let sql = "SELECT id FROM sessions WHERE workspace = ?1 AND state = 'open' AND id BETWEEN ?2 AND ?3 \
             ORDER BY id DESC";
        let mut all = self.db.prepare_cached(sql)?;
        let mut all = all.query(params![self.search.workspace, lower >> 32, upper >> 32])?;
        while let Some(row) = all.next()? {
            self.read(row.get(0)?, lower, upper)?;
            if self.hits.is_over() {
                break;
            }
        }
        Ok(())
    }

    /// Reads a session's messages whose row ids lie in these bounds, newest first.
    fn read(&mut self, session: SessionId, lower: i64, upper: i64) -> Outcome<()> {
        let base = row_id(session, 0);
        let from = u64::try_from(lower.saturating_sub(base)).unwrap_or(0).max(1);
        let through = u64::try_from(upper.saturating_sub(base).saturating_sub(1)).unwrap_or(0);
        let Some(within) = Span::new(from, through) else { return Ok(()) };
        let Some(name) = self.name(session)? else { return Ok(()) };
        if self.hits.is_over() {
            return Ok(());
        }
        let sql = messages(session, &self.search.scope, within);
        let mut statement = self.db.prepare_cached(&sql.for_sqlite())?;
        let mut found = statement.query(params_from_iter(&sql.given))?;
        while let Some(row) = found.next()? {
            let (message, bytes) = words(row)?;
            self.take(session, &name, message, bytes);
            if self.hits.is_over() {
                break;
            }
        }
        Ok(())
    }

    fn take(&mut self, session: SessionId, name: &Arc<str>, message: Message, bytes: u64) {
        if self.search.query.matches(&text_of(&message)) {
            self.hits.take(Hit { session: Arc::clone(name), id: session, message }, bytes);
        }
    }

    /// The session's name, where it is one of the workspace's and can be seen.
    fn name(&mut self, session: SessionId) -> Outcome<Option<Arc<str>>> {
        if let Some(known) = self.names.get(&session) {
            return Ok(known.clone());
        }
        let sql = "SELECT name FROM sessions WHERE id = ?1 AND workspace = ?2 AND state = 'open'";
        let given = params![session, self.search.workspace];
        let name = first_of(self.db, sql, given, |row| row.name(0))?;
        self.names.insert(session, name.clone());
        Ok(name)
    }
}
