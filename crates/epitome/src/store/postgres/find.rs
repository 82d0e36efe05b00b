//! Finding messages by their words.
//!
//! The index names candidates; each is read and held against the query, which alone decides. Messages that are
//! not in the index yet are read one by one. Words are read a bounded piece at a time, however long they are.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use epitome_core::message::{Seq, Span};

use super::super::asked::{Filling, Hit, Portion, Search};
use super::super::decode::{AFTER_OUTLINE, OUTLINE, ReadRow, words};
use super::super::given::{Given, int};
use super::super::lens::{Lens, author_of};
use super::super::rows::SessionId;
use super::Postgres;
use super::error::Outcome;
use super::grams::Grams;
use super::pipe::Pipe;
use super::rows::get;
use crate::search::text_of;

/// So many sessions are looked up at a time.
const SESSIONS: usize = 500;

/// So many messages with their words are read at a time.
const MESSAGES: usize = 100;

/// And no more than one beyond so many bytes of words.
const BYTES: u64 = 1 << 20;

/// So many places are taken from the index at a time: it names all that hold the letters before the newest can be told.
const PLACES: usize = 2_000;

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
                indexed: row.uint(2)?,
                head: row.uint(3)?,
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
            // Asked for after that: what came into the index before it was looked where it ends must be there.
            let mut named = Named::default();
            for session in &behind {
                // Later sessions, then the end of this one.
                let end = (session.id, i64::MAX);
                self.candidates(&mut named, grams, end, upper).await?;
                upper = upper.min(end);
                self.read(session, session.indexed.saturating_add(1), upper).await?;
                upper = upper.min((session.id, int(session.indexed.saturating_add(1))));
                if self.hits.is_over() {
                    return Ok(());
                }
            }
            match behind.last() {
                Some(last) if behind.len() >= SESSIONS => from = last.id.saturating_sub(1),
                _ => return self.candidates(&mut named, grams, (0, 0), upper).await,
            }
        }
    }

    /// Messages the index names, from just before `upper` down to `lower`.
    async fn candidates(
        &mut self,
        named: &mut Named,
        grams: &[i32],
        lower: Place,
        upper: Place,
    ) -> Outcome<()> {
        while !self.hits.is_over() {
            if named.places.is_empty() && !named.all {
                self.name(named, grams, upper).await?;
            }
            // What is not in the index as of when its session was looked at was read.
            while named.places.front().is_some_and(|place| *place >= upper) {
                named.places.pop_front();
            }
            let some: Vec<Place> =
                named.places.iter().take(MESSAGES).take_while(|place| **place >= lower).copied().collect();
            if some.is_empty() {
                if named.places.is_empty() && !named.all {
                    continue;
                }
                return Ok(());
            }
            let looked_at = self.look_at(&some).await?;
            named.places.drain(..looked_at.min(named.places.len()));
        }
        Ok(())
    }

    /// Takes the next places from the index: those that come before `upper` and what was taken already.
    async fn name(&self, named: &mut Named, grams: &[i32], upper: Place) -> Outcome<()> {
        let upper = upper.min(named.last.unwrap_or(upper));
        let grams = Given::Middling(grams.to_vec());
        let pipe = match self.search.session {
            Some((session, within)) => {
                let before = match upper.0.cmp(&session) {
                    Ordering::Less => 0,
                    Ordering::Equal => upper.1,
                    Ordering::Greater => i64::MAX,
                };
                let (first, last) = (int(within.from).into(), int(within.through).into());
                Pipe::new()
                    .then(OF_SESSION, [grams, session.into(), before.into(), first, last, PLACES.into()])
            }
            None => Pipe::new().then(OF_ALL, [grams, upper.0.into(), upper.1.into(), PLACES.into()]),
        };
        let found = self.store.once(pipe).await?;
        for row in found.iter().flatten() {
            named.places.push_back((get(row, 0)?, get(row, 1)?));
        }
        named.all = named.places.len() < PLACES;
        named.last = named.places.back().copied().or(named.last);
        Ok(())
    }

    /// Reads these messages, as many as may be read at a time, and tells how many of the places that were.
    async fn look_at(&mut self, places: &[Place]) -> Outcome<usize> {
        let sql = format!(
            "SELECT {OUTLINE}, CASE WHEN coalesce(sum(octet_length(body)) OVER (ORDER BY nth \
             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) < $5 THEN body END, nth, name FROM \
             (SELECT m.*, p.nth, o.name FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS p (session, seq, nth) \
             JOIN epitome.sessions o ON o.id = p.session AND o.workspace = $3 AND o.state = 'open' \
             JOIN epitome.messages m ON m.session = p.session AND m.seq = p.seq AND ($4::text IS NULL OR m.author = $4)) m \
             ORDER BY nth"
        );
        let (sessions, seqs) = places.iter().copied().unzip();
        let author = author_of(&self.search.scope).into();
        let given = [
            Given::Ints(sessions),
            Given::Ints(seqs),
            (&*self.search.workspace).into(),
            author,
            BYTES.into(),
        ];
        let found = self.store.once(Pipe::new().then(sql, given)).await?;
        for row in found.iter().flatten() {
            let nth = usize::try_from(get::<i64>(row, AFTER_OUTLINE + 1)?).unwrap_or(usize::MAX);
            let before = nth.saturating_sub(1);
            if get::<Option<&str>>(row, AFTER_OUTLINE)?.is_none() {
                return Ok(before);
            }
            let Some((session, _)) = places.get(before) else { break };
            self.take(*session, &Arc::from(get::<&str>(row, AFTER_OUTLINE + 2)?), row)?;
            if self.hits.is_over() {
                break;
            }
        }
        Ok(places.len())
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
            let sql = Lens::new(session.id, &self.search.scope).page(within, true, (MESSAGES, Some(BYTES)));
            let found = self.store.once(Pipe::new().and(sql)).await?;
            let found = found.first().map_or(&[][..], Vec::as_slice);
            let (mut lowest, mut bytes) = (1, 0u64);
            for row in found {
                lowest = row.uint(0)?;
                bytes = bytes.saturating_add(self.take(session.id, &session.name, row)?);
                if self.hits.is_over() {
                    return Ok(());
                }
            }
            if found.len() < MESSAGES && bytes < BYTES {
                return Ok(());
            }
            through = lowest.saturating_sub(1);
        }
        Ok(())
    }

    /// Takes a message where it is what is looked for. Tells how many bytes its words are.
    fn take(&mut self, id: SessionId, name: &Arc<str>, row: &tokio_postgres::Row) -> Outcome<u64> {
        let (message, bytes) = words(row)?;
        if self.search.query.matches(&text_of(&message)) {
            self.hits.take(Hit { session: Arc::clone(name), id, message }, bytes);
        }
        Ok(bytes)
    }
}

/// Places the index named, newest first.
#[derive(Default)]
struct Named {
    places: VecDeque<Place>,
    /// The last one that was taken from there.
    last: Option<Place>,
    /// Whether none comes after them.
    all: bool,
}

/// Places that hold all of `$1` and come before `$2`, `$3`.
///
/// Letters are numbered together with their workspace, so what they find there is nobody else's. Without the barrier it is
/// the order in which places are wanted that is gone along, through everything anybody said.
const OF_ALL: &str = "WITH holding AS MATERIALIZED (SELECT session, seq FROM epitome.words WHERE grams @> $1) \
     SELECT session, seq FROM holding WHERE (session, seq) < ($2, $3) ORDER BY session DESC, seq DESC LIMIT $4";

/// The same in the session `$2` before `$3`, from `$4` to `$5`.
const OF_SESSION: &str = "SELECT session, seq FROM epitome.words WHERE session = $2 AND seq < $3 AND seq >= $4 \
     AND seq <= $5 AND grams @> $1 ORDER BY seq DESC LIMIT $6";
