//! Finding messages by their words.
//!
//! The index names candidates; each is read and held against the query, which alone decides. Messages that are
//! not in the index yet are read one by one.

use std::sync::Arc;

use epitome_core::message::{Seq, Span};

use super::super::{Filling, Hit, Portion, Search, SessionId};
use super::Postgres;
use super::error::Outcome;
use super::given::{Given, int};
use super::grams::Grams;
use super::lens::Lens;
use super::pipe::Pipe;
use super::rows::{AFTER_OUTLINE, OUTLINE, author_of, get, words};
use crate::search::text_of;

/// So many sessions are looked up at a time.
const SESSIONS: usize = 500;

/// So many messages with their words are read at a time.
const MESSAGES: usize = 100;

/// A place in the order of search: a session, and a message of it.
type Place = (SessionId, i64);

/// The newest place of all.
const NEWEST: Place = (i64::MAX, i64::MAX);

struct Finder<'a> {
    store: &'a Postgres,
    search: &'a Search,
    hits: Filling<Hit>,
}

/// A session to be searched.
struct Own {
    id: SessionId,
    name: Arc<str>,
    /// Messages up to this one are in the index.
    indexed: Seq,
    head: Seq,
}

impl Postgres {
    pub(super) async fn search_once(&self, search: &Search) -> Outcome<Portion<Hit>> {
        let hits = Filling::new(search.limit, search.bytes);
        let mut finder = Finder { store: self, search, hits };
        // Everything found comes before this.
        let upper = search.after.map_or(NEWEST, |(session, seq)| (session, int(seq)));
        match Grams::of(&search.workspace).in_query(&search.query) {
            Some(grams) => finder.by_index(&grams, upper).await?,
            None => finder.by_reading(upper).await?,
        }
        Ok(finder.hits.done())
    }
}

impl Finder<'_> {
    /// The sessions in question, newest first, from this one on; only those the index does not know all of, if told.
    async fn own(&self, from: SessionId, behind: bool) -> Outcome<Vec<Own>> {
        let lag = if behind { "AND indexed < head" } else { "" };
        let only = self.search.session.map(|(session, _)| session);
        let sql = format!(
            "SELECT id, name, indexed, head FROM epitome.sessions WHERE workspace = $1 AND state = 'open' AND id <= $2 \
             AND ($3::bigint IS NULL OR id = $3) {lag} ORDER BY id DESC LIMIT $4"
        );
        let given = [(&*self.search.workspace).into(), from.into(), only.into(), SESSIONS.into()];
        let found = self.store.once(Pipe::new().then(sql, given)).await?;
        let own = |row: &tokio_postgres::Row| {
            Ok(Own {
                id: get(row, 0)?,
                name: get::<&str>(row, 1)?.into(),
                indexed: super::rows::uint(row, 2)?,
                head: super::rows::uint(row, 3)?,
            })
        };
        found.iter().flatten().map(own).collect()
    }

    /// Without the index, session by session.
    async fn by_reading(&mut self, upper: Place) -> Outcome<()> {
        let mut from = upper.0;
        loop {
            let own = self.own(from, false).await?;
            for session in &own {
                self.read(session, 1, upper).await?;
                if self.hits.is_over() {
                    return Ok(());
                }
            }
            match own.last() {
                Some(last) if own.len() >= SESSIONS => from = last.id.saturating_sub(1),
                _ => return Ok(()),
            }
        }
    }

    /// Newest first, from just before `upper` down. Between what the index knows lie the ends of sessions that it does
    /// not know yet, each in its place.
    async fn by_index(&mut self, grams: &[i32], mut upper: Place) -> Outcome<()> {
        let mut from = upper.0;
        loop {
            let behind = self.own(from, true).await?;
            for session in &behind {
                // Later sessions, then the end of this one.
                let end = (session.id, i64::MAX);
                self.candidates(grams, end, upper).await?;
                upper = upper.min(end);
                self.read(session, session.indexed.saturating_add(1), upper).await?;
                upper = upper.min((session.id, int(session.indexed.saturating_add(1))));
                if self.hits.is_over() {
                    return Ok(());
                }
            }
            match behind.last() {
                Some(last) if behind.len() >= SESSIONS => from = last.id.saturating_sub(1),
                _ => break,
            }
        }
        self.candidates(grams, (0, 0), upper).await
    }

    /// Messages the index names, from just before `upper` down to `lower`.
    async fn candidates(&mut self, grams: &[i32], lower: Place, mut upper: Place) -> Outcome<()> {
        let (only, within) = match self.search.session {
            Some((session, within)) => (Some(session), (int(within.from), int(within.through))),
            None => (None, (0, i64::MAX)),
        };
        while lower < upper && !self.hits.is_over() {
            let sql = format!(
                "WITH named AS MATERIALIZED (SELECT w.session, w.seq FROM epitome.words w WHERE w.grams @> $1 \
                 AND (w.session, w.seq) >= ($2, $3) AND (w.session, w.seq) < ($4, $5) \
                 AND ($6::bigint IS NULL OR w.session = $6) AND w.seq BETWEEN $7 AND $8 \
                 ORDER BY w.session DESC, w.seq DESC LIMIT $11) \
                 SELECT {OUTLINE}, body, o.id, o.name FROM named n \
                 JOIN epitome.sessions o ON o.id = n.session AND o.workspace = $9 AND o.state = 'open' \
                 JOIN epitome.messages m ON m.session = n.session AND m.seq = n.seq AND ($10::text IS NULL OR m.author = $10) \
                 ORDER BY n.session DESC, n.seq DESC",
                OUTLINE = qualified(OUTLINE)
            );
            let ends = "SELECT session, seq FROM (SELECT w.session, w.seq FROM epitome.words w WHERE w.grams @> $1 \
                 AND (w.session, w.seq) >= ($2, $3) AND (w.session, w.seq) < ($4, $5) \
                 AND ($6::bigint IS NULL OR w.session = $6) AND w.seq BETWEEN $7 AND $8 \
                 ORDER BY w.session DESC, w.seq DESC LIMIT $9) e ORDER BY session, seq LIMIT 1";
            let limit = || MESSAGES.into();
            let place = || {
                [
                    Given::Middling(grams.to_vec()),
                    lower.0.into(),
                    lower.1.into(),
                    upper.0.into(),
                    upper.1.into(),
                    only.into(),
                    within.0.into(),
                    within.1.into(),
                ]
            };
            let [a, b, c, d, e, f, g, h] = place();
            let author = author_of(&self.search.scope).into();
            let mut pipe = Pipe::new();
            pipe.push(sql, [a, b, c, d, e, f, g, h, (&*self.search.workspace).into(), author, limit()]);
            let [a, b, c, d, e, f, g, h] = place();
            pipe.push(ends, [a, b, c, d, e, f, g, h, limit()]);
            let found = self.store.once(pipe).await?;
            for row in found.first().into_iter().flatten() {
                let (id, name): (SessionId, &str) =
                    (get(row, AFTER_OUTLINE + 1)?, get(row, AFTER_OUTLINE + 2)?);
                self.take(id, &Arc::from(name), row)?;
                if self.hits.is_over() {
                    return Ok(());
                }
            }
            match found.get(1).and_then(|rows| rows.first()) {
                Some(row) => upper = (get(row, 0)?, get(row, 1)?),
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Reads a session's messages from this one on that come before `upper`, newest first.
    async fn read(&mut self, session: &Own, from: Seq, upper: Place) -> Outcome<()> {
        let mut through = if upper.0 == session.id {
            u64::try_from(upper.1.saturating_sub(1)).unwrap_or(0).min(session.head)
        } else {
            session.head
        };
        let mut from = from;
        if let Some((only, within)) = self.search.session {
            if only != session.id {
                return Ok(());
            }
            (from, through) = (from.max(within.from), through.min(within.through));
        }
        while let Some(within) = Span::new(from, through).filter(|_| !self.hits.is_over()) {
            let mut pipe = Pipe::new();
            Lens::new(session.id, &self.search.scope).page(&mut pipe, within, true, (MESSAGES, None));
            let found = self.store.once(pipe).await?;
            let found = found.first().map_or(&[][..], Vec::as_slice);
            let mut lowest = 1;
            for row in found {
                lowest = super::rows::uint(row, 0)?;
                self.take(session.id, &session.name, row)?;
                if self.hits.is_over() {
                    return Ok(());
                }
            }
            if found.len() < MESSAGES {
                return Ok(());
            }
            through = lowest.saturating_sub(1);
        }
        Ok(())
    }

    fn take(&mut self, id: SessionId, name: &Arc<str>, row: &tokio_postgres::Row) -> Outcome<()> {
        let (message, bytes) = words(row)?;
        if self.search.query.matches(&text_of(&message)) {
            self.hits.take(Hit { session: Arc::clone(name), id, message }, bytes);
        }
        Ok(())
    }
}

/// Columns of messages where other tables have some of the same name.
fn qualified(columns: &str) -> String {
    columns.split(", ").map(|column| format!("m.{}", column.trim())).collect::<Vec<_>>().join(", ")
}
