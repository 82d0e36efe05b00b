//! Writes changes of several sessions in one transaction (group commit).
//!
//! Most changes append a message or two, and most of their cost is round trips, statements and the commit. So changes
//! that wait at the same time share a transaction. Each change in a group runs the same code as outside of a group,
//! with its own [`Executor`]. The group advances all changes in lockstep, and sends their open requests in one message.
//! Statements of the same text are merged into one statement that takes lists of values. A change that cannot join a
//! group runs alone (`change_alone`), one request at a time.
//!
//! If anything fails, the transaction is rolled back and each change runs again alone, so an error in one caller's
//! change does not affect the other changes.

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

use super::super::change;
use super::super::changes::{Changes, Decide, Load, LoadLog, SessionState};
use super::super::decode::ReadRow;
use super::super::executor::{Executor, SqlBatch};
use super::super::rows::{SessionId, SessionKey};
use super::super::sql::Sql;
use super::super::sql_params::{SqlParam, merge_column};
use super::Postgres;
use super::error::{OpError, OpResult, damaged};
use super::transaction::{self, PgTransaction};

/// Maximum number of changes in one transaction, so that the first does not wait long for the last.
const MAX_CHANGES: usize = 256;

/// Maximum size of a group in bytes. A larger statement would save nothing, and would make the first caller wait.
const MAX_BYTES: usize = 128 << 10;

/// Maximum number of groups that are written at the same time.
const MAX_PARALLEL_GROUPS: usize = 3;

/// Number of times that a group lets other tasks run before it starts. Callers that were answered together often write
/// again together, so their changes arrive during this time.
const YIELDS: usize = 3;

/// Maximum number of changes that wait for the next group.
const MAX_WAITING: usize = 1_024;

/// SQL that limits how long a group waits for a session that another transaction has locked. After this time the
/// group's changes run alone, so that only the change of that session waits.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '20ms'";

/// A change of one session: the session, what to read, and the function that decides.
pub(super) type SessionChange = Arc<(SessionKey, Load, Decide)>;

/// The result of a change; `None` if the change must run alone.
type GroupAnswer = Option<OpResult<Option<SessionId>>>;

/// A change that waits for its group, and its caller.
pub(super) struct WaitingChange {
    change: SessionChange,
    caller: oneshot::Sender<GroupAnswer>,
}

pub(super) type ChangeQueue = mpsc::Sender<WaitingChange>;

/// Starts the task that groups changes and writes them. The task ends when the store is closed.
pub(super) fn start(store: &Postgres, stop: &watch::Sender<bool>) -> ChangeQueue {
    let (queue, waiting) = mpsc::channel(MAX_WAITING);
    tokio::spawn(groups(store.clone(), waiting, stop.subscribe()));
    queue
}

/// Collects the next group while another group is written. A group starts when no other group is being written, or when
/// it is full. Two small groups at the same time would cost the database more work than one group with the same
/// changes.
async fn groups(
    store: Postgres,
    mut waiting: mpsc::Receiver<WaitingChange>,
    mut stop: watch::Receiver<bool>,
) {
    let (mut group, mut writing) = (Vec::new(), JoinSet::new());
    loop {
        let starts = writing.is_empty() || is_full(&group);
        if starts && !group.is_empty() && writing.len() < MAX_PARALLEL_GROUPS {
            writing.spawn(write_and_answer(store.clone(), std::mem::take(&mut group)));
            continue;
        }
        let full = is_full(&group);
        tokio::select! {
            gathered = gather(&mut waiting, &mut group), if !full => if !gathered { break },
            // Callers that were just answered often write again at once. Their changes join the changes that are
            // already waiting, instead of forming a small group later.
            _ = writing.join_next(), if !writing.is_empty() => top_up(&mut waiting, &mut group).await,
            _ = stop.changed() => break,
        }
    }
    // The callers of changes that have not started run them alone.
    drop(group);
    while writing.join_next().await.is_some() {}
}

fn is_full(group: &[WaitingChange]) -> bool {
    group.len() >= MAX_CHANGES
        || group.iter().map(|waiting| waiting.change.1.bytes).sum::<usize>() >= MAX_BYTES
}

/// Waits for a change and adds it to the group. Then adds the other waiting changes, until the group is full. Returns
/// `false` when the store was dropped. If this future is dropped, the changes that it added stay in the group.
async fn gather(waiting: &mut mpsc::Receiver<WaitingChange>, group: &mut Vec<WaitingChange>) -> bool {
    let Some(first) = waiting.recv().await else { return false };
    group.push(first);
    top_up(waiting, group).await;
    true
}

/// Adds the waiting changes. Then lets other tasks run briefly, and adds the changes that arrive meanwhile.
async fn top_up(waiting: &mut mpsc::Receiver<WaitingChange>, group: &mut Vec<WaitingChange>) {
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

async fn write_and_answer(store: Postgres, mut group: Vec<WaitingChange>) {
    // Every node locks the sessions of a group in the same order, so two groups cannot deadlock.
    group.sort_by(|one, two| one.change.0.cmp(&two.change.0));
    let answers = write_group(&store, &group).await;
    for (one, answer) in group.into_iter().zip(answers) {
        let _ = one.caller.send(answer);
    }
}

impl Postgres {
    /// Sends a change to the next group and waits for its result. The caller has locked the session on this node, so a
    /// group contains each session once.
    pub(super) async fn change_in_group(&self, change: &SessionChange) -> OpResult<Option<SessionId>> {
        // A change that reads more than its session's state, or writes much, would delay the other changes of its
        // group.
        let load = &change.1;
        let can_join =
            matches!(load.log, LoadLog::None) && load.summaries.is_empty() && load.bytes < MAX_BYTES;
        if let Some(background) = self.background.as_ref().filter(|_| can_join) {
            let (caller, answer) = oneshot::channel();
            let waiting = WaitingChange { change: Arc::clone(change), caller };
            if background.queue.send(waiting).await.is_ok()
                && let Ok(Some(done)) = answer.await
            {
                return done;
            }
        }
        self.change_alone(change).await
    }

    async fn change_alone(&self, change: &SessionChange) -> OpResult<Option<SessionId>> {
        let (key, load, decide) = &**change;
        let mut tx = PgTransaction::read_write(self);
        let result = change::change(&mut tx, key, load, decide).await;
        tx.end(result).await
    }
}

type ChangeFuture<'a> = Pin<Box<dyn Future<Output = OpResult<Option<SessionId>>> + Send + 'a>>;

/// Why a group failed.
enum GroupError {
    /// Nothing was committed, so each change can run alone.
    RolledBack(OpError),
    /// It is unclear whether the group was committed, so its changes must not run again.
    Unknown(OpError),
}

impl From<OpError> for GroupError {
    fn from(error: OpError) -> Self {
        Self::RolledBack(error)
    }
}

/// Runs all changes in one transaction. If it was rolled back, each change gets `None` and then runs alone. If it is
/// unclear whether the transaction was committed, each change gets the error.
async fn write_group(store: &Postgres, group: &[WaitingChange]) -> Vec<GroupAnswer> {
    let mut tx = PgTransaction::read_write(store);
    let error = match lockstep(&mut tx, store, group).await {
        Ok(ids) => match tx.end(Ok(ids)).await {
            Ok(ids) => return ids.into_iter().map(|id| Some(Ok(id))).collect(),
            Err(_) => None,
        },
        Err(GroupError::RolledBack(error)) => {
            let _ = tx.end::<()>(Err(error)).await;
            None
        }
        Err(GroupError::Unknown(error)) => Some(error.into_store_error(&*store.address_text)),
    };
    group.iter().map(|_| error.clone().map(|error| Err(OpError::Final(error)))).collect()
}

/// Polls every change until it has a request or has ended, sends the requests, and repeats this. When only the last
/// requests of the changes remain, they are sent together with the commit.
async fn lockstep(
    tx: &mut PgTransaction<'_>,
    store: &Postgres,
    group: &[WaitingChange],
) -> Result<Vec<Option<SessionId>>, GroupError> {
    let mailboxes: Vec<Mailbox> = group.iter().map(|_| Mailbox::default()).collect();
    let mut running: Vec<ChangeFuture<'_>> = Vec::with_capacity(group.len());
    for (waiting, mailbox) in group.iter().zip(&mailboxes) {
        let mut db = GroupMember { store, mailbox };
        running.push(Box::pin(async move {
            let (key, load, decide) = &*waiting.change;
            change::change(&mut db, key, load, decide).await
        }));
    }
    let mut ids: Vec<Option<Option<SessionId>>> = vec![None; group.len()];
    loop {
        poll_fn(|context| {
            for (change, id) in running.iter_mut().zip(&mut ids).filter(|(_, id)| id.is_none()) {
                if let Poll::Ready(done) = change.as_mut().poll(context) {
                    match done {
                        Ok(done) => *id = Some(done),
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
            }
            Poll::Ready(Ok(()))
        })
        .await?;
        let idle = mailboxes.iter().all(|mailbox| mailbox.lock().request.is_none());
        if idle {
            return Ok(ids.into_iter().map(Option::flatten).collect());
        }
        let ends = mailboxes
            .iter()
            .all(|mailbox| mailbox.lock().request.as_ref().is_none_or(|request| request.last));
        send(tx, &mailboxes, ends).await?;
    }
}

/// Sends the open requests of all changes together, and passes each change its rows. If `ends`, also commits the
/// transaction.
async fn send(tx: &mut PgTransaction<'_>, mailboxes: &[Mailbox], ends: bool) -> Result<(), GroupError> {
    let (mut requests, mut commit_check) = (Vec::new(), None);
    for (at, mailbox) in mailboxes.iter().enumerate() {
        let mut mailbox = mailbox.lock();
        if let Some(request) = mailbox.request.take_if(|request| ends || !request.last) {
            requests.push((at, request.statements));
            commit_check = commit_check.or(request.commit_check);
        }
    }
    let sizes: Vec<(usize, usize)> =
        requests.iter().map(|(at, statements)| (*at, statements.len())).collect();
    let (mut statements, origins) = merge(requests);
    let begins = !tx.has_begun();
    if begins {
        statements.insert(0, Sql::new(LOCK_TIMEOUT, []));
    }
    let mut rows = match tx.send_statements(statements, ends).await {
        Err(OpError::ConnectionLost(why)) if ends => {
            // Either the changes of the whole group were committed or none, so the check for one change is enough.
            let done = match commit_check {
                Some(commit_check) => tx.was_committed(&commit_check).await.map_err(GroupError::Unknown)?,
                None => false,
            };
            if !done {
                return Err(GroupError::RolledBack(OpError::ConnectionLost(why)));
            }
            Vec::new()
        }
        rows => rows?,
    };
    if begins {
        rows.drain(..1.min(rows.len()));
    }
    let mut answers: HashMap<usize, Vec<Vec<Row>>> = sizes
        .into_iter()
        .map(|(at, statements)| (at, (0..statements).map(|_| Vec::new()).collect()))
        .collect();
    for (rows, origins) in rows.into_iter().zip(origins) {
        for row in rows {
            let origin = match origins.as_slice() {
                [one] => Some(one),
                several => several.get(list_position(&row)?),
            };
            let (mailbox, position) =
                origin.ok_or_else(|| damaged("a row belongs to no change of its group"))?;
            if let Some(rows) = answers.get_mut(mailbox).and_then(|answer| answer.get_mut(*position)) {
                rows.push(row);
            }
        }
    }
    for (at, answer) in answers {
        if let Some(mailbox) = mailboxes.get(at) {
            let mut mailbox = mailbox.lock();
            (mailbox.answer, mailbox.now) = (Some(answer), tx.time());
        }
    }
    Ok(())
}

/// A row of a merged query ends with a position in the lists of values: the row belongs to the values at this position.
/// Returns this position, counted from 0.
fn list_position(row: &Row) -> OpResult<usize> {
    let position = row.int(row.len().saturating_sub(1))?;
    usize::try_from(position.saturating_sub(1)).map_err(|_| damaged("a row has no position in its list"))
}

/// The origins of a merged statement: for each original statement, the index of its mailbox and its position in the
/// mailbox's request.
type Origins = Vec<(usize, usize)>;

/// Merges mergeable statements of the same text into one statement. Returns the statements with their origins.
fn merge(requests: Vec<(usize, Vec<Sql<'static>>)>) -> (Vec<Sql<'static>>, Vec<Origins>) {
    let mut merged: Vec<(Vec<Sql<'static>>, Origins)> = Vec::new();
    let mut by_text: HashMap<Cow<'static, str>, usize> = HashMap::new();
    for (mailbox, statements) in requests {
        for (position, sql) in statements.into_iter().enumerate() {
            let at = match sql.mergeable {
                true => *by_text.entry(sql.for_postgres()).or_insert(merged.len()),
                false => merged.len(),
            };
            match merged.get_mut(at) {
                Some((group, origins)) => {
                    group.push(sql);
                    origins.push((mailbox, position));
                }
                None => merged.push((vec![sql], vec![(mailbox, position)])),
            }
        }
    }
    merged.into_iter().map(|(group, origins)| (merged_statement(group), origins)).unzip()
}

/// Merges statements with single values into one statement with lists of values.
fn merged_statement(mut group: Vec<Sql<'static>>) -> Sql<'static> {
    let Some(first) = group.first().cloned().filter(|_| group.len() > 1) else {
        return group.pop().unwrap_or_else(|| Sql::new("", []));
    };
    let text = first.for_postgres();
    let (size, lists) = (first.params.len(), first.params.first().is_some_and(SqlParam::is_list));
    let mut values: Vec<_> = group.into_iter().map(|sql| sql.params.into_iter()).collect();
    let columns = (0..size).map(|_| merge_column(values.iter_mut().filter_map(Iterator::next)));
    let params: Vec<_> = columns.collect();
    Sql::new(if lists { text.into_owned() } else { over_lists(&text, size) }, params)
}

/// Rewrites a statement's text so that it takes a list in place of each value.
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
struct Mailbox(Mutex<Exchange>);

#[derive(Default)]
struct Exchange {
    request: Option<Request>,
    answer: Option<Vec<Vec<Row>>>,
    now: Option<Timestamp>,
}

struct Request {
    statements: Vec<Sql<'static>>,
    /// Whether this is the change's last request.
    last: bool,
    /// A query that returns a row only if this transaction was committed.
    commit_check: Option<Sql<'static>>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Exchange> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The [`Executor`] of one change in a group.
struct GroupMember<'s> {
    store: &'s Postgres,
    mailbox: &'s Mailbox,
}

impl GroupMember<'_> {
    async fn send(&mut self, batch: SqlBatch<'_>, last: bool, commit_check: Option<Sql<'_>>) -> OpResult<()> {
        let (statements, receivers) = transaction::split(batch);
        let statements = statements.into_iter().map(Sql::into_owned).collect();
        let commit_check = commit_check.map(Sql::into_owned);
        self.mailbox.lock().request = Some(Request { statements, last, commit_check });
        // The group polls this future again when it has put the answer into the mailbox, so no waker is needed.
        let rows = poll_fn(|_| self.mailbox.lock().answer.take().map_or(Poll::Pending, Poll::Ready)).await;
        transaction::deliver_rows(&rows, receivers)
    }
}

#[async_trait]
impl Executor for GroupMember<'_> {
    async fn run(&mut self, batch: SqlBatch<'_>) -> OpResult<()> {
        self.send(batch, false, None).await
    }

    async fn finish(&mut self, batch: SqlBatch<'_>) -> OpResult<()> {
        let (done, commit_check) = transaction::commit_mark_statements(self.now().await?);
        self.send(batch.add(done), true, Some(commit_check)).await
    }

    async fn finish_checked(&mut self, batch: SqlBatch<'_>, commit_check: Option<Sql<'_>>) -> OpResult<()> {
        self.send(batch, true, commit_check).await
    }

    fn commit_mark(&self) -> Option<i64> {
        Some(transaction::commit_mark())
    }

    fn on_decided(
        &mut self,
        _: &SessionKey,
        before: SessionState,
        changes: Option<Changes>,
        written: Option<SessionId>,
    ) {
        self.store.on_decided(&before, changes, written);
    }

    async fn now(&mut self) -> OpResult<Timestamp> {
        if self.mailbox.lock().now.is_none() {
            self.send(SqlBatch::new(), false, None).await?;
        }
        Ok(self.mailbox.lock().now.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merged_statement_takes_lists_of_values() {
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
    fn only_mergeable_statements_merge_and_rows_keep_their_origin() {
        let select = |value: i64| Sql::new("SELECT b FROM t WHERE a = $1", [value.into()]).mergeable();
        let other = || Sql::new("DELETE FROM t", []);
        let (statements, origins) = merge(vec![(0, vec![select(1), other()]), (2, vec![other(), select(2)])]);
        assert_eq!(statements.len(), 3);
        assert_eq!(origins, [vec![(0, 0), (2, 1)], vec![(0, 1)], vec![(2, 0)]]);
    }
}
