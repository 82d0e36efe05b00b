//! Writes changes of several sessions in one transaction (group commit).
//!
//! Most changes append a message or two, and most of their cost is round trips, statements and the commit. So changes
//! that wait at the same time share a transaction. Each runs the same code as alone, with its own [`Ask`]. The group
//! advances all changes in lockstep, sends the statements of one step in one message, and merges statements of the same
//! text into one statement over lists of values. A change that waits alone runs by itself (`change_alone`): the same
//! decisions and statements, one step at a time.
//!
//! If anything fails, the transaction is rolled back and each change runs again alone, so an error in one caller's
//! change does not affect the others.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use async_trait::async_trait;
use epitome_core::message::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_postgres::Row;

use super::super::ask::{Ask, Batch};
use super::super::change;
use super::super::changes::{Changes, Decide, Load, Log, Standing};
use super::super::decode::ReadRow;
use super::super::given::{Given, column};
use super::super::rows::{SessionId, SessionKey};
use super::super::sql::Sql;
use super::Postgres;
use super::asking::{self, Asking};
use super::error::{Outcome, Trouble, nonsense};

/// Maximum number of changes in one transaction, so that the first does not wait long for the last.
const MOST: usize = 256;

/// Maximum size of a group in bytes. More in one statement would save nothing, and would make the first caller wait.
const FULL: usize = 128 << 10;

/// Maximum number of groups that are written at the same time.
const LANES: usize = 3;

/// How often other tasks run before a group starts with the changes it has. Callers that were answered together write
/// again together.
const YIELDS: usize = 3;

/// Maximum number of changes that wait for the next group.
const QUEUE: usize = 1_024;

/// How long a group waits for a session that another transaction has locked. Then its changes run alone, so that only
/// the change of that session waits.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '20ms'";

/// A change of one session: the session, what to read, and the function that decides.
pub(super) type Change = Arc<(SessionKey, Load, Decide)>;

/// The result of a change: `None` if it has to run alone.
type Answer = Option<Outcome<Option<SessionId>>>;

/// A change that waits for its group, and its caller.
pub(super) struct Waiting {
    change: Change,
    caller: oneshot::Sender<Answer>,
}

pub(super) type Queue = mpsc::Sender<Waiting>;

/// Starts the task that groups changes and writes them, until the store is closed.
pub(super) fn start(store: &Postgres, stop: &watch::Sender<bool>) -> Queue {
    let (queue, waiting) = mpsc::channel(QUEUE);
    tokio::spawn(groups(store.clone(), waiting, stop.subscribe()));
    queue
}

/// Collects the next group while one is written. A group starts when no other is being written, or when it is full. Two
/// small groups at the same time would each carry half as much, and the database would do more work for the same
/// changes.
async fn groups(store: Postgres, mut waiting: mpsc::Receiver<Waiting>, mut stop: watch::Receiver<bool>) {
    let (mut group, mut writing) = (Vec::new(), JoinSet::new());
    loop {
        let starts = writing.is_empty() || is_full(&group);
        if starts && !group.is_empty() && writing.len() < LANES {
            writing.spawn(write(store.clone(), std::mem::take(&mut group)));
            continue;
        }
        let full = is_full(&group);
        tokio::select! {
            gathered = gather(&mut waiting, &mut group), if !full => if !gathered { break },
            // Callers that were just answered write again at once. They join the changes that wait already, instead of
            // following half a group later.
            _ = writing.join_next(), if !writing.is_empty() => top_up(&mut waiting, &mut group).await,
            _ = stop.changed() => break,
        }
    }
    // The callers of changes that have not started run them alone.
    drop(group);
    while writing.join_next().await.is_some() {}
}

fn is_full(group: &[Waiting]) -> bool {
    group.len() >= MOST || group.iter().map(|waiting| waiting.change.1.bytes).sum::<usize>() >= FULL
}

/// Waits for a change, and adds all that wait until the group is full. Returns `false` when the store is gone. Changes
/// that were added stay in the group if this future is dropped.
async fn gather(waiting: &mut mpsc::Receiver<Waiting>, group: &mut Vec<Waiting>) -> bool {
    let Some(first) = waiting.recv().await else { return false };
    group.push(first);
    top_up(waiting, group).await;
    true
}

/// Adds the changes that wait, and those that arrive while other tasks run briefly.
async fn top_up(waiting: &mut mpsc::Receiver<Waiting>, group: &mut Vec<Waiting>) {
    for at in 0..=YIELDS {
        if at > 0 {
            tokio::task::yield_now().await;
        }
        while !is_full(group)
            && let Ok(next) = waiting.try_recv()
        {
            group.push(next);
        }
    }
}

async fn write(store: Postgres, mut group: Vec<Waiting>) {
    // Every node locks the sessions of a group in the same order, so two groups cannot deadlock.
    group.sort_by(|one, two| one.change.0.cmp(&two.change.0));
    let answers = together(&store, &group).await;
    for (one, answer) in group.into_iter().zip(answers) {
        let _ = one.caller.send(answer);
    }
}

impl Postgres {
    /// Sends a change to the next group and waits for its result. The caller has locked the session on this node, so a
    /// group contains each session once.
    pub(super) async fn change_in_group(&self, change: &Change) -> Outcome<Option<SessionId>> {
        // A change that reads more than its session's state, or writes much, would delay the others of its group.
        let load = &change.1;
        let plain = matches!(load.log, Log::None) && load.summaries.is_empty() && load.bytes < FULL;
        if let Some(background) = self.background.as_ref().filter(|_| plain) {
            let (caller, answer) = oneshot::channel();
            let waiting = Waiting { change: Arc::clone(change), caller };
            if background.queue.send(waiting).await.is_ok()
                && let Ok(Some(done)) = answer.await
            {
                return done;
            }
        }
        self.change_alone(change).await
    }

    async fn change_alone(&self, change: &Change) -> Outcome<Option<SessionId>> {
        let (key, load, decide) = &**change;
        let mut asking = Asking::writes(self);
        let done = change::change(&mut asking, key, load, decide).await;
        asking.ended(done).await
    }
}

type Running<'a> = Pin<Box<dyn Future<Output = Outcome<Option<SessionId>>> + Send + 'a>>;

/// Why a group failed.
enum Failed {
    /// Nothing was committed, so each change can run alone.
    Undone(Trouble),
    /// It is not clear whether it was committed, so it must not run again.
    InDoubt(Trouble),
}

impl From<Trouble> for Failed {
    fn from(trouble: Trouble) -> Self {
        Self::Undone(trouble)
    }
}

/// Runs all changes in one transaction, or none.
async fn together(store: &Postgres, group: &[Waiting]) -> Vec<Answer> {
    let mut asking = Asking::writes(store);
    let error = match lockstep(&mut asking, store, group).await {
        Ok(ids) => match asking.ended(Ok(ids)).await {
            Ok(ids) => return ids.into_iter().map(|id| Some(Ok(id))).collect(),
            Err(_) => None,
        },
        Err(Failed::Undone(trouble)) => {
            let _ = asking.ended::<()>(Err(trouble)).await;
            None
        }
        Err(Failed::InDoubt(trouble)) => Some(trouble.at(&*store.place)),
    };
    group.iter().map(|_| error.clone().map(|error| Err(Trouble::Said(error)))).collect()
}

/// Polls every change until it sends a request or ends, sends the requests, and repeats. The last requests are sent
/// together with the commit, when no change has any other request.
async fn lockstep(
    asking: &mut Asking<'_>,
    store: &Postgres,
    group: &[Waiting],
) -> Result<Vec<Option<SessionId>>, Failed> {
    let seats: Vec<Seat> = group.iter().map(|_| Seat::default()).collect();
    let mut running: Vec<Running<'_>> = Vec::with_capacity(group.len());
    for (waiting, seat) in group.iter().zip(&seats) {
        let mut ask = Member { store, seat };
        running.push(Box::pin(async move {
            let (key, load, decide) = &*waiting.change;
            change::change(&mut ask, key, load, decide).await
        }));
    }
    let mut ids: Vec<Option<Option<SessionId>>> = vec![None; group.len()];
    loop {
        poll_fn(|context| {
            for (change, id) in running.iter_mut().zip(&mut ids).filter(|(_, id)| id.is_none()) {
                if let Poll::Ready(done) = change.as_mut().poll(context) {
                    match done {
                        Ok(done) => *id = Some(done),
                        Err(trouble) => return Poll::Ready(Err(trouble)),
                    }
                }
            }
            Poll::Ready(Ok(()))
        })
        .await?;
        let asked = seats.iter().filter(|seat| seat.lock().request.is_some()).count();
        if asked == 0 {
            return Ok(ids.into_iter().map(Option::flatten).collect());
        }
        let ends = seats.iter().all(|seat| seat.lock().request.as_ref().is_none_or(|request| request.last));
        send(asking, &seats, ends).await?;
    }
}

/// Sends one step of all changes, and passes each its rows. If `ends`, the step ends the transaction.
async fn send(asking: &mut Asking<'_>, seats: &[Seat], ends: bool) -> Result<(), Failed> {
    let (mut requests, mut known) = (Vec::new(), None);
    for (at, seat) in seats.iter().enumerate() {
        let mut seat = seat.lock();
        if let Some(request) = seat.request.take_if(|request| ends || !request.last) {
            requests.push((at, request.steps));
            known = known.or(request.known);
        }
    }
    let sizes: Vec<(usize, usize)> = requests.iter().map(|(at, steps)| (*at, steps.len())).collect();
    let (mut steps, places) = merge(requests);
    let begins = !asking.begun();
    if begins {
        steps.insert(0, Sql::new(LOCK_TIMEOUT, []));
    }
    let mut found = match asking.send_steps(steps, ends).await {
        Err(Trouble::Lost(why)) if ends => {
            // Everything was committed or nothing, so the answer for one change is enough.
            let done = match known {
                Some(known) => asking.was_committed(&known).await.map_err(Failed::InDoubt)?,
                None => false,
            };
            if !done {
                return Err(Failed::Undone(Trouble::Lost(why)));
            }
            Vec::new()
        }
        found => found?,
    };
    if begins {
        found.drain(..1.min(found.len()));
    }
    let mut answers: HashMap<usize, Vec<Vec<Row>>> =
        sizes.into_iter().map(|(at, steps)| (at, (0..steps).map(|_| Vec::new()).collect())).collect();
    for (rows, places) in found.into_iter().zip(places) {
        for row in rows {
            let place = match places.as_slice() {
                [one] => Some(one),
                several => several.get(list_position(&row)?),
            };
            let (seat, step) = place.ok_or_else(|| nonsense("a row belongs to no change of its group"))?;
            if let Some(rows) = answers.get_mut(seat).and_then(|answer| answer.get_mut(*step)) {
                rows.push(row);
            }
        }
    }
    for (at, answer) in answers {
        if let Some(seat) = seats.get(at) {
            let mut seat = seat.lock();
            (seat.answer, seat.now) = (Some(answer), asking.began_at());
        }
    }
    Ok(())
}

/// Returns the position in the lists of the values that a row answers: the last column of a merged query.
fn list_position(row: &Row) -> Outcome<usize> {
    let position = row.int(row.len().saturating_sub(1))?;
    usize::try_from(position.saturating_sub(1)).map_err(|_| nonsense("a row has no position in its list"))
}

/// The seat and the step of each statement that was merged into one.
type Places = Vec<(usize, usize)>;

/// Merges statements of the same text into one each.
fn merge(requests: Vec<(usize, Vec<Sql<'static>>)>) -> (Vec<Sql<'static>>, Vec<Places>) {
    let mut merged: Vec<(Vec<Sql<'static>>, Places)> = Vec::new();
    let mut by_text: HashMap<Cow<'static, str>, usize> = HashMap::new();
    for (seat, steps) in requests {
        for (step, sql) in steps.into_iter().enumerate() {
            let at = match sql.merges {
                true => *by_text.entry(sql.for_postgres()).or_insert(merged.len()),
                false => merged.len(),
            };
            match merged.get_mut(at) {
                Some((same, places)) => {
                    same.push(sql);
                    places.push((seat, step));
                }
                None => merged.push((vec![sql], vec![(seat, step)])),
            }
        }
    }
    merged.into_iter().map(|(same, places)| (one_of(same), places)).unzip()
}

/// Returns one statement over lists of values in place of several over single values.
fn one_of(mut same: Vec<Sql<'static>>) -> Sql<'static> {
    let Some(first) = same.first().cloned().filter(|_| same.len() > 1) else {
        return same.pop().unwrap_or_else(|| Sql::new("", []));
    };
    let text = first.for_postgres();
    let (size, lists) = (first.given.len(), first.given.first().is_some_and(Given::is_list));
    let mut values: Vec<_> = same.into_iter().map(|sql| sql.given.into_iter()).collect();
    let columns = (0..size).map(|_| column(values.iter_mut().filter_map(Iterator::next)));
    let given: Vec<_> = columns.collect();
    Sql::new(if lists { text.into_owned() } else { over_lists(&text, size) }, given)
}

/// Returns the text of a statement that takes a list in place of each of its values.
fn over_lists(text: &str, values: usize) -> String {
    let list = |prefix: &str| (1..=values).map(|at| format!("{prefix}{at}")).collect::<Vec<_>>().join(", ");
    let (lists, names, row) = (list("$"), list("p"), text.replace('$', "v.p"));
    if let Some((insert, values)) = row.split_once(" VALUES (") {
        let values = values.strip_suffix(')').unwrap_or(values);
        return format!("{insert} SELECT {values} FROM unnest({lists}) AS v({names})");
    }
    if let Some((update, rows)) = row.split_once(" WHERE ").filter(|_| row.starts_with("UPDATE ")) {
        return format!("{update} FROM unnest({lists}) AS v({names}) WHERE {rows}");
    }
    format!("SELECT t.*, v.at FROM unnest({lists}) WITH ORDINALITY AS v({names}, at), LATERAL ({row}) t")
}

/// The request of one change of a group, and its answer.
#[derive(Default)]
struct Seat(Mutex<Talk>);

#[derive(Default)]
struct Talk {
    request: Option<Request>,
    answer: Option<Vec<Vec<Row>>>,
    now: Option<Timestamp>,
}

struct Request {
    steps: Vec<Sql<'static>>,
    /// Whether this is the change's last request.
    last: bool,
    /// A query that returns a row only if this transaction was committed.
    known: Option<Sql<'static>>,
}

impl Seat {
    fn lock(&self) -> MutexGuard<'_, Talk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The database as one change of a group sees it.
struct Member<'s> {
    store: &'s Postgres,
    seat: &'s Seat,
}

impl Member<'_> {
    async fn send(&mut self, batch: Batch<'_>, last: bool, known: Option<Sql<'_>>) -> Outcome<()> {
        let (steps, wanted) = asking::split(batch);
        let steps = steps.into_iter().map(Sql::into_owned).collect();
        self.seat.lock().request = Some(Request { steps, last, known: known.map(Sql::into_owned) });
        // The group polls again when the answer is there, so no waker is needed.
        let found = poll_fn(|_| self.seat.lock().answer.take().map_or(Poll::Pending, Poll::Ready)).await;
        asking::given(&found, wanted)
    }
}

#[async_trait]
impl Ask for Member<'_> {
    async fn ask(&mut self, batch: Batch<'_>) -> Outcome<()> {
        self.send(batch, false, None).await
    }

    async fn finish(&mut self, batch: Batch<'_>) -> Outcome<()> {
        let (done, known) = asking::marked(self.now().await?);
        self.send(batch.run(done), true, Some(known)).await
    }

    async fn finish_by(&mut self, batch: Batch<'_>, known: Option<Sql<'_>>) -> Outcome<()> {
        self.send(batch, true, known).await
    }

    fn mark(&self) -> Option<i64> {
        Some(asking::mark())
    }

    fn decided(
        &mut self,
        _: &SessionKey,
        standing: Standing,
        changes: Option<Changes>,
        written: Option<SessionId>,
    ) {
        self.store.decided(&standing, changes, written);
    }

    async fn now(&mut self) -> Outcome<Timestamp> {
        if self.seat.lock().now.is_none() {
            self.send(Batch::new(), false, None).await?;
        }
        Ok(self.seat.lock().now.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_over_single_values_become_statements_over_lists() {
        assert_eq!(
            over_lists("INSERT INTO t (a, b) VALUES ($1, $2)", 2),
            "INSERT INTO t (a, b) SELECT v.p1, v.p2 FROM unnest($1, $2) AS v(p1, p2)"
        );
        assert_eq!(
            over_lists("UPDATE t SET b = $2 WHERE a = $1", 2),
            "UPDATE t SET b = v.p2 FROM unnest($1, $2) AS v(p1, p2) WHERE a = v.p1"
        );
        assert_eq!(
            over_lists("SELECT b FROM t WHERE a = $1 FOR NO KEY UPDATE", 1),
            "SELECT t.*, v.at FROM unnest($1) WITH ORDINALITY AS v(p1, at), \
             LATERAL (SELECT b FROM t WHERE a = v.p1 FOR NO KEY UPDATE) t"
        );
    }

    #[test]
    fn only_marked_statements_merge_and_each_knows_where_its_rows_go() {
        let select = |value: i64| Sql::new("SELECT b FROM t WHERE a = $1", [value.into()]).merges();
        let other = || Sql::new("DELETE FROM t", []);
        let (steps, places) = merge(vec![(0, vec![select(1), other()]), (2, vec![other(), select(2)])]);
        assert_eq!(steps.len(), 3);
        assert_eq!(places, [vec![(0, 0), (2, 1)], vec![(0, 1)], vec![(2, 0)]]);
    }
}
