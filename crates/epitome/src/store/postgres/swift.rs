//! Appends in one message there and back, many at a time.
//!
//! Most appends go to a session this node wrote to last. What it remembers of it is taken for true, the append is decided
//! from that, and sent together with what others append to other sessions at the same time: one statement, which writes
//! for each session only where its version and its workspace's settings are still those that were remembered, and nobody
//! holds it. Where they are not, or anything else is unusual, nothing was written, and it goes the long way, which reads first.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use epitome_core::message::{Seq, Timestamp};
use tokio::sync::{Mutex, MutexGuard, mpsc, oneshot, watch};
use tokio::time::timeout_at;
use tokio_postgres::Row;

use super::super::columns::{only_grew, scope_text};
use super::super::{Changes, Decide, Load, Log, Membership, SessionId, SessionKey, SlotRow, Standing};
use super::Postgres;
use super::change::decided;
use super::counts::Counts;
use super::error::{Outcome, Trouble, nonsense};
use super::given::{Given, int};
use super::known::Seen;
use super::pipe::Pipe;
use super::rows::{Columns, MESSAGE, get, json};

/// So many appends are sent with one statement at most.
const MOST_TOGETHER: usize = 64;

/// And no more bytes of words than this, unless a single one has more.
const MOST_BYTES: usize = 1 << 20;

/// And no more messages than this, unless a single one has more: a statement that carried everybody's would have all of them
/// wait for one connection, while the others had nothing to do.
const MOST_MESSAGES: usize = 512;

/// So many such statements are under way at a time: while they are, the next ones gather. A few, so that one is written while
/// another one's commit reaches the disk; with more each would carry less, and the database does more work for the same.
pub(super) const LANES: usize = 3;

/// So often it is looked whether somebody else comes before one is sent.
const LOOKS: usize = 3;

/// So many appends may wait. Others go the long way, where they wait for a connection.
const WAITING: usize = 1_024;

/// Sessions are told apart by so many locks.
const TURNS: usize = 1_024;

/// What the database's clock said is good for so long.
const CLOCK_IS_GOOD: Duration = Duration::from_secs(10);

/// The database's clock, as far as this node knows it without asking.
#[derive(Debug)]
pub(super) struct Clock {
    began: Instant,
    /// What is to be added to the milliseconds since it began.
    offset: AtomicI64,
    /// When that was found, in milliseconds since it began, and one more; 0 for never.
    heard: AtomicU64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { began: Instant::now(), offset: AtomicI64::new(0), heard: AtomicU64::new(0) }
    }
}

impl Clock {
    fn elapsed(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The database says that it is this moment.
    pub(super) fn hear(&self, now: i64) {
        let elapsed = self.elapsed();
        self.offset.store(now.saturating_sub(int(elapsed)), Ordering::Relaxed);
        self.heard.store(elapsed.saturating_add(1), Ordering::Release);
    }

    /// What it would say now; nothing where it was not heard of for long.
    fn now(&self) -> Option<i64> {
        let (heard, elapsed) = (self.heard.load(Ordering::Acquire), self.elapsed());
        let good = heard > 0
            && Duration::from_millis(elapsed.saturating_sub(heard.saturating_sub(1))) < CLOCK_IS_GOOD;
        good.then(|| self.offset.load(Ordering::Relaxed).saturating_add(int(elapsed)))
    }
}

/// Whoever changes a session waits here for others of this node who do, and not with a connection in hand.
#[derive(Debug)]
pub(super) struct Turns(Vec<Mutex<()>>);

impl Default for Turns {
    fn default() -> Self {
        Self((0..TURNS).map(|_| Mutex::new(())).collect())
    }
}

impl Turns {
    /// Waits for a turn, at most until then.
    pub(super) async fn wait(
        &self,
        key: &SessionKey,
        until: tokio::time::Instant,
    ) -> Outcome<Option<MutexGuard<'_, ()>>> {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let at = usize::try_from(hasher.finish() % (TURNS as u64)).unwrap_or(0);
        let Some(turn) = self.0.get(at) else { return Ok(None) };
        let late = |_| Trouble::Lost("who wrote to the same session before has no answer yet".to_owned());
        timeout_at(until, turn.lock()).await.map(Some).map_err(late)
    }
}

/// An append that was decided and not written yet.
pub(super) struct Append {
    workspace: Arc<str>,
    seen: Seen,
    standing: Standing,
    changes: Changes,
    /// What its slots have counted then, and those of which more than that changes.
    counts: Counts,
    moved: Vec<SlotRow>,
    /// A number drawn for it: its messages carry it.
    number: i64,
    done: Option<oneshot::Sender<(Written, Box<Append>)>>,
}

/// What became of it.
pub(super) enum Written {
    Yes,
    /// Something was not as remembered, or it failed. Nothing was written.
    No,
    /// The connection broke. Whether it was written shows in the session, to whoever holds it.
    Unheard,
}

/// An append of which is not known whether it was written: where its first message would stand, and its number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unheard {
    pub(super) first: Seq,
    pub(super) number: i64,
}

/// How a try ended.
pub(super) enum Swift {
    Done(SessionId),
    /// To be done the long way.
    LongWay(Option<Unheard>),
}

pub(super) type Queue = mpsc::Sender<Box<Append>>;

/// A queue, and what takes from it until the store is closed.
pub(super) fn queue() -> (Queue, mpsc::Receiver<Box<Append>>) {
    mpsc::channel(WAITING)
}

pub(super) fn run(store: &Postgres, waiting: mpsc::Receiver<Box<Append>>, stop: &watch::Sender<bool>) {
    let waiting = Arc::new(Mutex::new(waiting));
    for _ in 0..LANES {
        tokio::spawn(lane(store.clone(), Arc::clone(&waiting), stop.subscribe()));
    }
}

async fn lane(
    store: Postgres,
    waiting: Arc<Mutex<mpsc::Receiver<Box<Append>>>>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let together = tokio::select! {
            together = gather(&waiting) => together,
            _ = stop.changed() => return,
        };
        if together.is_empty() {
            return;
        }
        let written = write(&store, &together).await;
        for append in together {
            let became = match &written {
                Ok(ids) if ids.contains(&append.seen.session.id) => Written::Yes,
                Ok(_) => Written::No,
                Err(Trouble::Lost(_)) => Written::Unheard,
                Err(_) => Written::No,
            };
            append.tell(became);
        }
    }
}

/// Those that wait now, at least one; each session once. None when nobody is left to ask.
async fn gather(waiting: &Mutex<mpsc::Receiver<Box<Append>>>) -> Vec<Box<Append>> {
    let mut waiting = waiting.lock().await;
    let Some(first) = waiting.recv().await else { return Vec::new() };
    let (mut messages, mut bytes) = first.size();
    let mut together = vec![first];
    let mut looked = 0;
    while together.len() < MOST_TOGETHER && messages < MOST_MESSAGES && bytes < MOST_BYTES {
        let Ok(next) = waiting.try_recv() else {
            // Whoever was answered together comes back together: they are let run before they are left behind.
            if looked == LOOKS {
                break;
            }
            looked += 1;
            tokio::task::yield_now().await;
            continue;
        };
        let id = next.seen.session.id;
        if together.iter().any(|append| append.seen.session.id == id) {
            // Whoever asked for the first went away, and the session came round again.
            next.tell(Written::No);
            continue;
        }
        let more = next.size();
        (messages, bytes) = (messages.saturating_add(more.0), bytes.saturating_add(more.1));
        together.push(next);
    }
    together
}

impl Append {
    /// Tells whoever asked for it what became of it. They may be gone.
    fn tell(mut self: Box<Self>, became: Written) {
        if let Some(done) = self.done.take() {
            let _ = done.send((became, self));
        }
    }

    /// Its messages, and the bytes of their words.
    fn size(&self) -> (usize, usize) {
        let messages = &self.changes.messages;
        (messages.len(), messages.iter().map(|message| message.body.len()).sum())
    }
}

impl Postgres {
    /// Tries to do a change the short way. Whoever calls it has the session's turn.
    pub(super) async fn swift(&self, key: &SessionKey, load: &Load, decide: &Decide) -> Outcome<Swift> {
        let plain = matches!(load.log, Log::None) && load.summaries.is_empty();
        let Some(now) = self.estimated().filter(|_| plain) else { return Ok(Swift::LongWay(None)) };
        let Some(seen) = self.known.take(key) else { return Ok(Swift::LongWay(None)) };
        let standing = Standing {
            now,
            workspace_settings: seen.workspace_settings.clone(),
            session: Some(seen.session.clone()),
            slots: seen.slots.clone(),
            repeat: None,
            log: Vec::new(),
            summaries: Vec::new(),
        };
        let changes = decided(|| decide(&standing))?;
        let Some(changes) = changes.filter(|changes| is_plain(&seen, changes)) else {
            return Ok(Swift::LongWay(None));
        };
        let mut counts = seen.counts.clone();
        let mut moved = changes.slots.clone();
        moved.retain(|slot| {
            let before = seen.slots.iter().find(|row| row.scope == slot.scope && row.name == slot.name);
            !before.is_some_and(|before| counts.take(before, slot))
        });
        let number = i64::from_le_bytes(super::random().to_le_bytes()) | 1;
        let (done, answer) = oneshot::channel();
        let workspace = Arc::clone(&key.workspace);
        let done = Some(done);
        let append = Append { workspace, seen, standing, changes, counts, moved, number, done };
        let append = Box::new(append);
        let first = append.changes.messages.first().map_or(0, |message| message.outline.seq);
        if self.queue.as_ref().is_none_or(|queue| queue.try_send(append).is_err()) {
            return Ok(Swift::LongWay(None));
        }
        match answer.await {
            Ok((Written::Yes, append)) => {
                let Append { seen, standing, changes, counts, .. } = *append;
                let id = seen.session.id;
                self.wrote(id, &standing, &changes);
                self.known.grew(key, seen, changes, counts);
                Ok(Swift::Done(id))
            }
            Ok((Written::No, _)) => Ok(Swift::LongWay(None)),
            // A lane that ended before it answered may have sent it.
            Ok((Written::Unheard, _)) | Err(_) => Ok(Swift::LongWay(Some(Unheard { first, number }))),
        }
    }

    /// The moment by the store's clock, as far as it is known without asking.
    fn estimated(&self) -> Option<Timestamp> {
        match &self.options.clock {
            Some(clock) => Some(clock()),
            None => self.clock.now().map(Timestamp),
        }
    }
}

/// Whether it is an append to a session as it was seen, and nothing else.
fn is_plain(seen: &Seen, changes: &Changes) -> bool {
    let slots = changes.slots.iter().all(|slot| {
        let before = seen.slots.iter().find(|row| row.scope == slot.scope && row.name == slot.name);
        before.is_some_and(|before| before.active == slot.active)
    });
    let members = changes
        .members
        .iter()
        .all(|change| matches!(change, Membership::Join(name, None) if seen.members.contains(name)));
    !changes.messages.is_empty()
        && changes.session.as_ref().is_some_and(|row| only_grew(&seen.session, row))
        && slots
        && members
        && changes.summary.is_none()
        && changes.states.is_empty()
        && changes.flags.is_empty()
        && changes.metadata.is_empty()
        && changes.usage.is_empty()
}

/// Sends them, and tells which were written.
async fn write(store: &Postgres, together: &[Box<Append>]) -> Outcome<HashSet<SessionId>> {
    let mut pipe = Pipe::new();
    fill(&mut pipe, together)?;
    let found = store.once(pipe).await?;
    found.iter().flatten().map(|row: &Row| get(row, 0)).collect()
}

/// One statement that writes them all. Who may be written to is found and held first; they stay in their place then, and
/// need not be looked for again.
fn fill<'a>(pipe: &mut Pipe<'a>, together: &'a [Box<Append>]) -> Outcome<()> {
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
        trackers.push(Cow::Owned(json(tracker)?));
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
                Cow::Owned(json(&slot.state)?),
                Cow::Owned(json(&slot.work)?),
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
