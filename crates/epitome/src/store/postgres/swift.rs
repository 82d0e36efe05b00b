//! Appends in one message there and back, many at a time.
//!
//! Most appends go to a session this node wrote to last. What it remembers of it is taken for true, the append is decided
//! from that, and sent together with what others append to other sessions at the same time: one statement, which writes
//! for each session only where its version and its workspace's settings are still those that were remembered, and nobody
//! holds it. Where they are not, or anything else is unusual, nothing was written, and it goes the long way, which reads first.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use epitome_core::message::{Seq, Timestamp};
use tokio::sync::{Mutex, MutexGuard, mpsc, oneshot, watch};
use tokio::time::timeout_at;
use tokio_postgres::Row;

use super::super::changes::{Changes, Decide, Load, Log, Standing};
use super::super::directory::Membership;
use super::super::given::int;
use super::super::rows::{SessionId, SessionKey, SlotRow};
use super::Postgres;
use super::change::decided;
use super::counts::Counts;
use super::error::{Outcome, Trouble};
use super::known::Seen;
use super::pipe::Pipe;
use super::rows::get;

mod together;

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
        let moved = counts.take_all(&standing, &changes).into_iter().cloned().collect();
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
        && changes.session.as_ref().is_some_and(|row| row.only_grew_from(&seen.session))
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
    together::fill(&mut pipe, together)?;
    let found = store.once(pipe).await?;
    found.iter().flatten().map(|row: &Row| get(row, 0)).collect()
}
