//! Appends to many sessions as one statement.

use std::borrow::Cow;

use super::super::super::columns::scope_text;
use super::super::super::given::{Given, int};
use super::super::super::statements::json;
use super::super::error::{Outcome, nonsense};
use super::super::pipe::Pipe;
use super::super::rows::{Columns, MESSAGE};
use super::Append;

/// One statement that writes them all. Who may be written to is found and held first; they stay in their place then, and
/// need not be looked for again.
pub(super) fn fill<'a>(pipe: &mut Pipe<'a>, together: &'a [Box<Append>]) -> Outcome<()> {
    let mut sessions: [Vec<i64>; 10] = Default::default();
    let (mut trackers, mut counts, mut batch_skipped) = (Vec::new(), Vec::new(), Vec::new());
    let mut workspaces: Vec<Cow<'_, str>> = Vec::new();
    let (mut of, mut created, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    let mut messages = Columns::default();
    let mut slots = Slots::default();
    let mut told = Told::default();
    let mut keys = Keys::default();
    for append in together {
        let (id, now) = (append.seen.session.id, append.standing.now);
        let row = append.changes.session.as_ref().ok_or_else(|| nonsense("an append without a session"))?;
        let tracker = &row.tracker;
        let values = [
            id,
            append.seen.stamp.version,
            append.seen.stamp.revision,
            int(tracker.head()),
            int(tracker.turns()),
            int(tracker.tokens()),
            int(row.opener),
            int(row.batch_from),
            int(row.skipped),
            row.updated.0,
        ];
        for (column, value) in sessions.iter_mut().zip(values) {
            column.push(value);
        }
        // Most often all are of one.
        if !workspaces.iter().any(|name| *name == *append.workspace) {
            workspaces.push(Cow::Borrowed(&append.workspace));
        }
        trackers.push(Cow::Owned(json(tracker)));
        counts.push(Cow::Owned(append.counts.text()?));
        batch_skipped.push(row.batch_skipped);
        for message in &append.changes.messages {
            messages.push(message);
            of.push(id);
            created.push(now.0);
            numbers.push(append.number);
        }
        slots.push(append)?;
        told.push(append)?;
        keys.push(append);
    }
    let [id, version, revision, head, turns, tokens, opener, batch_from, skipped, updated] =
        sessions.map(Given::Ints);
    let mut given = vec![
        id,
        version,
        revision,
        Given::Texts(workspaces),
        head,
        turns,
        tokens,
        opener,
        batch_from,
        skipped,
        updated,
        Given::Texts(trackers),
        Given::Bools(batch_skipped),
        Given::Texts(counts),
        Given::Ints(of),
        Given::Ints(created),
        Given::Ints(numbers),
    ];
    given.extend(messages.given());
    let mut sql = format!(
        "WITH set AS MATERIALIZED (SELECT name, revision FROM epitome.workspaces WHERE name = ANY($4)), \
         free AS MATERIALIZED (SELECT s.ctid AS place, s.id FROM epitome.sessions s \
         JOIN unnest($1, $2, $3) AS w (id, version, revision) ON w.id = s.id AND w.version = s.version \
         JOIN set ON set.name = s.workspace AND set.revision = w.revision \
         WHERE s.state = 'open' FOR NO KEY UPDATE OF s SKIP LOCKED), \
         ok AS (UPDATE epitome.sessions s SET tracker = u.tracker, head = u.head, turns = u.turns, tokens = u.tokens, \
         opener = u.opener, batch_from = u.batch_from, batch_skipped = u.batch_skipped, skipped = u.skipped, \
         updated = u.updated, counts = u.counts, version = s.version + 1 \
         FROM free JOIN unnest($1, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) \
         AS u (id, head, turns, tokens, opener, batch_from, skipped, updated, tracker, batch_skipped, counts) ON u.id = free.id \
         WHERE s.ctid = free.place RETURNING s.id, s.workspace, s.name), \
         said AS (INSERT INTO epitome.messages (session, created, change, {MESSAGE}) SELECT u.* FROM unnest($15, $16, $17, \
         $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38) \
         AS u (session, created, change, {MESSAGE}) JOIN ok ON ok.id = u.session)"
    );
    slots.given(&mut sql, &mut given);
    told.given(&mut sql, &mut given);
    keys.given(&mut sql, &mut given);
    sql.push_str(" SELECT id FROM ok");
    pipe.push_all(sql, given);
    Ok(())
}

/// The next places of a statement: `$n, $n+1 …`.
fn places(given: &[Given<'_>], count: usize) -> String {
    let first = given.len() + 1;
    (first..first + count).map(|at| format!("${at}")).collect::<Vec<_>>().join(", ")
}

/// Slots of which more moved than what they count, column by column.
#[derive(Default)]
struct Slots<'a> {
    longs: [Vec<i64>; 3],
    maybe: [Vec<Option<i64>>; 2],
    names: [Vec<Cow<'a, str>>; 4],
}

impl<'a> Slots<'a> {
    fn push(&mut self, append: &'a Append) -> Outcome<()> {
        for slot in &append.moved {
            let longs = [append.seen.session.id, int(slot.state.covered), int(slot.fence)];
            for (column, value) in self.longs.iter_mut().zip(longs) {
                column.push(value);
            }
            let maybe = [slot.state.due.map(|due| int(due.seq)), slot.ready_at().map(|at| at.0)];
            for (column, value) in self.maybe.iter_mut().zip(maybe) {
                column.push(value);
            }
            let names = [
                Cow::Borrowed(scope_text(&slot.scope)),
                Cow::Borrowed(slot.name.as_str()),
                Cow::Owned(json(&slot.state)),
                Cow::Owned(json(&slot.work)),
            ];
            for (column, value) in self.names.iter_mut().zip(names) {
                column.push(value);
            }
        }
        Ok(())
    }

    fn given(self, sql: &mut String, given: &mut Vec<Given<'a>>) {
        if self.longs.first().is_none_or(Vec::is_empty) {
            return;
        }
        let places = places(given, 9);
        sql.push_str(&format!(
            ", moved AS (UPDATE epitome.slots t SET state = u.state, covered = u.covered, due = u.due, \
             ready_at = u.ready_at, work = u.work, fence = u.fence FROM unnest({places}) \
             AS u (session, covered, fence, due, ready_at, scope, name, state, work) JOIN ok ON ok.id = u.session \
             WHERE t.session = u.session AND t.scope = u.scope AND t.name = u.name)"
        ));
        given.extend(self.longs.map(Given::Ints));
        given.extend(self.maybe.map(Given::MaybeInts));
        given.extend(self.names.map(Given::Texts));
    }
}

/// What happened, column by column.
#[derive(Default)]
struct Told<'a> {
    longs: [Vec<i64>; 2],
    texts: [Vec<Cow<'a, str>>; 2],
}

impl<'a> Told<'a> {
    fn push(&mut self, append: &'a Append) -> Outcome<()> {
        for event in &append.changes.events {
            let data = event.data().map_err(|_| nonsense("an event cannot be written as JSON"))?;
            let longs = [append.seen.session.id, append.standing.now.0];
            for (column, value) in self.longs.iter_mut().zip(longs) {
                column.push(value);
            }
            for (column, value) in self.texts.iter_mut().zip([Cow::Borrowed(event.kind()), Cow::Owned(data)])
            {
                column.push(value);
            }
        }
        Ok(())
    }

    fn given(self, sql: &mut String, given: &mut Vec<Given<'a>>) {
        if self.longs.first().is_none_or(Vec::is_empty) {
            return;
        }
        let places = places(given, 4);
        sql.push_str(&format!(
            ", told AS (INSERT INTO epitome.told (workspace, session, at, kind, data) \
             SELECT ok.workspace, ok.name, u.at, u.kind, u.data FROM unnest({places}) WITH ORDINALITY \
             AS u (session, at, kind, data, place) JOIN ok ON ok.id = u.session ORDER BY u.place)"
        ));
        given.extend(self.longs.map(Given::Ints));
        given.extend(self.texts.map(Given::Texts));
    }
}

/// Appends to be remembered by their keys, column by column. One whose key is taken makes all of them fail, and each is
/// then looked at by itself.
#[derive(Default)]
struct Keys<'a> {
    longs: [Vec<i64>; 4],
    keys: Vec<Cow<'a, str>>,
    bodies: Vec<Cow<'a, [u8]>>,
}

impl<'a> Keys<'a> {
    fn push(&mut self, append: &'a Append) {
        let Some((key, repeat)) = &append.changes.idempotency else { return };
        let span = [int(repeat.span.from), int(repeat.span.through)];
        let longs = [append.seen.session.id, span[0], span[1], append.standing.now.0];
        for (column, value) in self.longs.iter_mut().zip(longs) {
            column.push(value);
        }
        self.keys.push(Cow::Borrowed(key));
        self.bodies.push(Cow::Borrowed(&repeat.body));
    }

    fn given(self, sql: &mut String, given: &mut Vec<Given<'a>>) {
        if self.keys.is_empty() {
            return;
        }
        let places = places(given, 6);
        sql.push_str(&format!(
            ", kept AS (INSERT INTO epitome.idempotency (session, first, last, created, key, body) SELECT u.* \
             FROM unnest({places}) AS u (session, first, last, created, key, body) JOIN ok ON ok.id = u.session)"
        ));
        given.extend(self.longs.map(Given::Ints));
        given.push(Given::Texts(self.keys));
        given.push(Given::Blobs(self.bodies));
    }
}
