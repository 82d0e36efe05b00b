//! Searches messages by their text.
//!
//! The trigram index returns candidates. Each candidate is read and compared with the query, which alone decides whether it
//! is a hit. Messages that are not indexed yet are read one by one. Text is read in portions of limited size.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use epitome_core::message::{Seq, Span};

use super::ask::{self, Ask, Batch};
use super::asked::{Filling, Hit, Portion, Search};
use super::decode::{AFTER_OUTLINE, Found, OUTLINE, author_of, words};
use super::given::{Given, int};
use super::grams::Grams;
use super::lens::Lens;
use super::rows::SessionId;
use super::sql::Sql;
use super::trouble::Outcome;
use crate::search::text_of;

/// Maximum number of sessions read at a time.
const SESSIONS: usize = 1_000;

/// Maximum number of messages read at a time.
const MESSAGES: usize = 100;

/// Maximum number of bytes of message text read at a time, unless a single message is larger: 1 MiB.
const BYTES: u64 = 1 << 20;

/// Maximum number of candidates read from the index at a time.
const PLACES: usize = 2_000;

/// A message's position: its session and its number there.
type Place = (SessionId, i64);

/// A position above that of every message.
const NEWEST: Place = (i64::MAX, i64::MAX);

/// Reads the candidates below the position (`$2`, `$3`) from the index, newest first. PostgreSQL finds all matching rows
/// first (`MATERIALIZED`): otherwise it might use the index that has the requested order, and walk through the messages of
/// all workspaces. SQLite's row id in the index is `(session << 32) + seq`.
const OF_ALL: [&str; 2] = [
    "WITH holding AS MATERIALIZED (SELECT session, seq FROM epitome.words WHERE grams @> $1) \
     SELECT session, seq FROM holding WHERE (session, seq) < ($2, $3) ORDER BY session DESC, seq DESC LIMIT $4",
    "SELECT rowid >> 32, rowid & 4294967295 FROM words WHERE words MATCH ?1 \
     AND rowid < (min(?2, 2147483647) << 32) + min(?3, 4294967295) ORDER BY rowid DESC LIMIT ?4",
];

/// Reads candidates of the session `$2`, from message `$4` to message `$5`.
const OF_SESSION: [&str; 2] = [
    "SELECT session, seq FROM epitome.words WHERE session = $2 AND seq < $3 AND seq >= $4 \
     AND seq <= $5 AND grams @> $1 ORDER BY seq DESC LIMIT $6",
    "SELECT rowid >> 32, rowid & 4294967295 FROM words WHERE words MATCH ?1 AND rowid >= (?2 << 32) + min(?4, 4294967295) \
     AND rowid <= (?2 << 32) + min(?3 - 1, ?5, 4294967295) ORDER BY rowid DESC LIMIT ?6",
];

pub(super) async fn search(ask: &mut dyn Ask, search: &Search) -> Outcome<Portion<Hit>> {
    let in_file = ask.in_file();
    let grams = if in_file {
        search.query.trigrams().map(Given::from)
    } else {
        Grams::of(&search.workspace).in_query(&search.query).map(Given::Middling)
    };
    let hits = Filling::new(search.limit, search.bytes);
    let mut finder = Finder { ask, search, grams, only: search.session, hits };
    let upper = search.after.map_or(NEWEST, |(session, seq)| (session, int(seq)));
    // All workspaces of a SQLite file share one index. If this one has few sessions, each is searched separately.
    let mut few = None;
    if in_file && finder.grams.is_some() && finder.only.is_none() {
        few = Some(finder.own(upper.0, false).await?).filter(|own| own.len() < SESSIONS);
    }
    let Some(few) = few else {
        finder.find(upper).await?;
        return Ok(finder.hits.done());
    };
    for session in few {
        finder.only = Span::new(1, Seq::MAX).map(|all| (session.id, all));
        finder.find(upper).await?;
        if finder.hits.is_over() {
            break;
        }
    }
    Ok(finder.hits.done())
}

struct Finder<'a> {
    ask: &'a mut dyn Ask,
    search: &'a Search,
    /// The trigrams to look up in the index; `None` if the query is too short for it.
    grams: Option<Given<'a>>,
    /// Only this session, and only this range of its messages.
    only: Option<(SessionId, Span)>,
    hits: Filling<Hit>,
}

/// A session of the workspace.
struct Own {
    id: SessionId,
    name: Arc<str>,
    /// Messages up to this one are in the index; 0 if the index is not used.
    indexed: Seq,
    head: Seq,
}

/// Candidates that were read from the index.
#[derive(Default)]
struct Named {
    places: VecDeque<Place>,
    /// The last position read from the index.
    last: Option<Place>,
    /// Whether the index has no further candidates.
    all: bool,
}

impl Finder<'_> {
    /// Reads the sessions to search, newest first, from this one on. With `behind`, only sessions that are not fully
    /// indexed.
    async fn own(&mut self, from: SessionId, behind: bool) -> Outcome<Vec<Own>> {
        let mut given = vec![(&*self.search.workspace).into(), from.into(), SESSIONS.into()];
        let lag = if behind { " AND indexed < head" } else { "" };
        // A single session is found by its id. The index `sessions_to_index` contains the sessions of all workspaces that
        // are not fully indexed.
        let (index, only) = match self.only {
            Some((session, _)) => {
                given.push(session.into());
                ("", " AND id = $4")
            }
            None if behind => (" INDEXED BY sessions_to_index", ""),
            None => ("", ""),
        };
        let sql = format!(
            "SELECT id, name, indexed, head FROM epitome.sessions{index} WHERE workspace = $1 AND state = 'open' \
             AND id <= $2{only}{lag} ORDER BY id DESC LIMIT $3"
        );
        ask::all(self.ask, Sql::new(sql, given), |row| {
            let indexed = if behind { row.uint(2)? } else { 0 };
            Ok(Own { id: row.int(0)?, name: row.name(1)?, indexed, head: row.uint(3)? })
        })
        .await
    }

    /// Searches from just below `upper` downwards, newest first. Combines the candidates from the index with the messages at
    /// the end of each session that are not indexed yet, in order of position. If the index is not used, all messages are
    /// read.
    async fn find(&mut self, mut upper: Place) -> Outcome<()> {
        let mut from = upper.0;
        loop {
            let behind = self.own(from, self.grams.is_some()).await?;
            // The index is read after the sessions: it must contain every message that they report as indexed.
            let mut named = Named { all: self.grams.is_none(), ..Named::default() };
            for session in &behind {
                // First the newer sessions, then the end of this one.
                let end = (session.id, i64::MAX);
                self.candidates(&mut named, end, upper).await?;
                upper = upper.min(end);
                self.read(session, session.indexed.saturating_add(1), upper).await?;
                upper = upper.min((session.id, int(session.indexed.saturating_add(1))));
                if self.hits.is_over() {
                    return Ok(());
                }
            }
            match behind.last() {
                Some(last) if behind.len() >= SESSIONS => from = last.id.saturating_sub(1),
                _ => return self.candidates(&mut named, (0, 0), upper).await,
            }
        }
    }

    /// Checks the candidates from just below `upper` down to `lower`.
    async fn candidates(&mut self, named: &mut Named, lower: Place, upper: Place) -> Outcome<()> {
        while !self.hits.is_over() {
            if named.places.is_empty() && !named.all {
                self.name(named, upper).await?;
            }
            // Messages that were not indexed when their session was read have been read already.
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

    /// Reads the next candidates from the index: those below `upper` and below the candidates read before.
    async fn name(&mut self, named: &mut Named, upper: Place) -> Outcome<()> {
        let upper = upper.min(named.last.unwrap_or(upper));
        let ([postgres, sqlite], given) = match self.only {
            Some((session, within)) => {
                let before = match upper.0.cmp(&session) {
                    Ordering::Less => 0,
                    Ordering::Equal => upper.1,
                    Ordering::Greater => i64::MAX,
                };
                let (first, last) = (within.from.into(), within.through.into());
                (OF_SESSION, vec![session.into(), before.into(), first, last, PLACES.into()])
            }
            None => (OF_ALL, vec![upper.0.into(), upper.1.into(), PLACES.into()]),
        };
        let given: Vec<_> = self.grams.iter().cloned().chain(given).collect();
        let sql = Sql::own(postgres, sqlite, given);
        named.places.extend(ask::all(self.ask, sql, |row| Ok((row.int(0)?, row.int(1)?))).await?);
        named.all = named.places.len() < PLACES;
        named.last = named.places.back().copied().or(named.last);
        Ok(())
    }

    /// Reads the messages at these positions, up to the size limit. Returns how many of the positions were handled.
    async fn look_at(&mut self, places: &[Place]) -> Outcome<usize> {
        let postgres = format!(
            "SELECT {OUTLINE}, CASE WHEN coalesce(sum(octet_length(body)) OVER (ORDER BY nth \
             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) < $5 THEN body END, nth, name FROM \
             (SELECT m.*, p.nth, o.name FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS p (session, seq, nth) \
             JOIN epitome.sessions o ON o.id = p.session AND o.workspace = $3 AND o.state = 'open' \
             JOIN epitome.messages m ON m.session = p.session AND m.seq = p.seq AND ($4::text IS NULL OR m.author = $4)) m \
             ORDER BY nth"
        );
        // SQLite returns rows one by one in the order of the list, so the reader stops when it has enough.
        let sqlite = format!(
            "SELECT {OUTLINE}, body, nth, name FROM (SELECT m.*, p.key + 1 AS nth, o.name AS name FROM json_each(?1) p \
             CROSS JOIN sessions o CROSS JOIN messages m WHERE o.id = p.value AND o.workspace = ?3 AND o.state = 'open' \
             AND m.session = o.id AND m.seq = (?2 ->> p.key) AND (?4 IS NULL OR m.author = ?4) \
             AND ?5 > 0)"
        );
        let (sessions, seqs) = places.iter().copied().unzip();
        let workspace = (&*self.search.workspace).into();
        let author = author_of(&self.search.scope).into();
        let given = [Given::Ints(sessions), Given::Ints(seqs), workspace, author, BYTES.into()];
        let (search, hits, mut looked_at) = (self.search, &mut self.hits, places.len());
        let each = |row: Found<'_>| {
            let before =
                usize::try_from(row.uint(AFTER_OUTLINE + 1)?).unwrap_or(usize::MAX).saturating_sub(1);
            if row.maybe_text(AFTER_OUTLINE)?.is_none() {
                looked_at = before;
                return Ok(false);
            }
            let Some((session, _)) = places.get(before) else { return Ok(false) };
            take(search, hits, (*session, &row.name(AFTER_OUTLINE + 2)?), row)?;
            Ok(!hits.is_over())
        };
        self.ask.ask(Batch::new().each(Sql::own(postgres, sqlite, given), each)).await?;
        Ok(looked_at)
    }

    /// Checks a session's messages from `from` up to just below `upper`, newest first, without the index.
    async fn read(&mut self, session: &Own, mut from: Seq, upper: Place) -> Outcome<()> {
        let mut through = session.head;
        if upper.0 == session.id {
            through = through.min(u64::try_from(upper.1.saturating_sub(1)).unwrap_or(0));
        }
        if let Some((_, within)) = self.only {
            (from, through) = (from.max(within.from), through.min(within.through));
        }
        while let Some(within) = Span::new(from, through).filter(|_| !self.hits.is_over()) {
            let sql = Lens::new(session.id, &self.search.scope).page(within, true, (MESSAGES, Some(BYTES)));
            let (mut lowest, mut seen, mut bytes) = (1, 0, 0u64);
            let (search, hits) = (self.search, &mut self.hits);
            let each = |row: Found<'_>| {
                (lowest, seen) = (row.uint(0)?, seen + 1);
                bytes = bytes.saturating_add(take(search, hits, (session.id, &session.name), row)?);
                Ok(!hits.is_over())
            };
            self.ask.ask(Batch::new().each(sql, each)).await?;
            if seen < MESSAGES && bytes < BYTES {
                return Ok(());
            }
            through = lowest.saturating_sub(1);
        }
        Ok(())
    }
}

/// Adds a message to the hits if it matches the query. Returns its size in bytes.
fn take(
    search: &Search,
    hits: &mut Filling<Hit>,
    (id, name): (SessionId, &Arc<str>),
    row: Found<'_>,
) -> Outcome<u64> {
    let (message, bytes) = words(row)?;
    if search.query.matches(&text_of(&message)) {
        hits.take(Hit { session: Arc::clone(name), id, message }, bytes);
    }
    Ok(bytes)
}
