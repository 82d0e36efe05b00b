//! Asking a database: several statements at once, answered as of one moment.
//!
//! What stores have in common is written once, against [`Ask`]. PostgreSQL sends a batch in one message there and back, so
//! whoever asks puts as much into a batch as can be asked without knowing the rest. SQLite runs its statements one after
//! the other and is never waited for. Rows are read where they are, so nothing is copied that is not wanted.
//!
//! Nothing here knows how a database is reached, or what is asked of it.

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use epitome_core::message::Timestamp;

use super::changes::{Changes, Standing};
use super::decode::Found;
use super::rows::{SessionId, SessionKey};
use super::sql::Sql;
use super::trouble::{Outcome, nonsense};

/// Takes in a row, and says whether more are wanted.
pub(super) type Each<'a> = Box<dyn FnMut(Found<'_>) -> Outcome<bool> + Send + 'a>;

/// Statements, in order, and who wants their rows.
#[derive(Default)]
pub(super) struct Batch<'a> {
    pub(super) steps: Vec<(Sql<'a>, Option<Each<'a>>)>,
    /// Whether the moment is asked for too.
    pub(super) timed: bool,
}

impl<'a> Batch<'a> {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// The same, and it is asked for the moment too: [`Ask::now`] costs nothing afterwards.
    pub(super) fn timed(self) -> Self {
        Self { timed: true, ..self }
    }

    /// One more, whose rows nobody wants.
    pub(super) fn run(mut self, sql: Sql<'a>) -> Self {
        self.push(sql);
        self
    }

    /// The same where there may be any number of them.
    pub(super) fn push(&mut self, sql: Sql<'a>) {
        self.steps.push((sql, None));
    }

    /// One more, each of whose rows is taken in until no more are wanted.
    pub(super) fn each(
        mut self,
        sql: Sql<'a>,
        each: impl FnMut(Found<'_>) -> Outcome<bool> + Send + 'a,
    ) -> Self {
        self.steps.push((sql, Some(Box::new(each))));
        self
    }

    /// One more, all of whose rows are read.
    pub(super) fn all<T: Send>(
        self,
        sql: Sql<'a>,
        into: &'a mut Vec<T>,
        mut read: impl FnMut(Found<'_>) -> Outcome<T> + Send + 'a,
    ) -> Self {
        self.each(sql, move |row| {
            into.push(read(row)?);
            Ok(true)
        })
    }

    /// One more, whose first row is read.
    pub(super) fn first<T: Send>(
        self,
        sql: Sql<'a>,
        into: &'a mut Option<T>,
        mut read: impl FnMut(Found<'_>) -> Outcome<T> + Send + 'a,
    ) -> Self {
        self.each(sql, move |row| {
            *into = Some(read(row)?);
            Ok(false)
        })
    }

    /// One more, whose rows are counted.
    pub(super) fn count(self, sql: Sql<'a>, into: &'a mut i64) -> Self {
        self.each(sql, move |_| {
            *into += 1;
            Ok(true)
        })
    }

    /// One more, of which only is asked whether there is a row.
    pub(super) fn any(self, sql: Sql<'a>, into: &'a mut bool) -> Self {
        self.each(sql, move |_| {
            *into = true;
            Ok(false)
        })
    }
}

/// Something that answers statements. Whatever it answers is as of one moment, or, where it writes, as of the statement before;
/// [`Way::Looks`] and [`Way::LooksHere`] have a server answer each statement as of its own moment.
#[async_trait]
pub(super) trait Ask: Send {
    /// Runs these.
    async fn ask(&mut self, batch: Batch<'_>) -> Outcome<()>;

    /// Runs these, and with that it is over: what was written is written for good. Where it is not, nothing of it is. Where it
    /// writes, nothing may be read by these: what cannot be read is an error, and it is written by then.
    async fn finish(&mut self, batch: Batch<'_>) -> Outcome<()>;

    /// The same where it is known by something that was written whether it is done; or, where there is nothing, it does no harm
    /// when it is done twice.
    async fn finish_by(&mut self, batch: Batch<'_>, known: Option<Sql<'_>>) -> Outcome<()>;

    /// Whether it is a file, whose rows are read one by one without waiting.
    fn in_file(&self) -> bool {
        false
    }

    /// As many rows as are well asked for at a time: so many, or all where each is read by itself anyway.
    fn page(&self, size: usize) -> usize {
        if self.in_file() { usize::MAX } else { size }
    }

    /// A number of this transaction's own by which what it writes is known again, where that may have to be found out. Whoever
    /// gives one takes lists of rows too.
    fn mark(&self) -> Option<i64> {
        None
    }

    /// Numbers a workspace's next event; none where that is done later.
    fn number_event(&mut self, _workspace: &Arc<str>) -> Outcome<Option<i64>> {
        Ok(None)
    }

    /// Where a session stands, without its log and summaries, where that is remembered.
    fn remembered(&mut self, _key: &SessionKey) -> Option<Standing> {
        None
    }

    /// Whether somebody is known to belong to a session.
    fn is_member(&self, _session: SessionId, _name: &Arc<str>) -> bool {
        false
    }

    /// It was decided on a session that stood so: it was written to, if it has a number here, and these are the changes.
    fn decided(
        &mut self,
        _key: &SessionKey,
        _standing: Standing,
        _changes: Option<Changes>,
        _written: Option<SessionId>,
    ) {
    }

    /// Forgets what is remembered of a session, because something else than [`super::Store::change`] writes to it.
    fn forget(&mut self, _key: &SessionKey) {}

    /// The moment, by the store's clock.
    async fn now(&mut self) -> Outcome<Timestamp>;
}

/// All rows of a statement.
pub(super) async fn all<T: Send>(
    ask: &mut dyn Ask,
    sql: Sql<'_>,
    read: impl FnMut(Found<'_>) -> Outcome<T> + Send,
) -> Outcome<Vec<T>> {
    let mut found = Vec::new();
    ask.ask(Batch::new().all(sql, &mut found, read)).await?;
    Ok(found)
}

/// The first row of a statement.
pub(super) async fn first<T: Send>(
    ask: &mut dyn Ask,
    sql: Sql<'_>,
    read: impl FnMut(Found<'_>) -> Outcome<T> + Send,
) -> Outcome<Option<T>> {
    let mut found = None;
    ask.ask(Batch::new().first(sql, &mut found, read)).await?;
    Ok(found)
}

/// The number in the first row of a statement that always has one.
pub(super) async fn number(ask: &mut dyn Ask, sql: Sql<'_>) -> Outcome<i64> {
    first(ask, sql, |row| row.int(0)).await?.ok_or_else(|| nonsense("a row is missing"))
}

/// What an [`Op`] comes to.
pub(super) type Asked<'x, T> = Pin<Box<dyn Future<Output = Outcome<T>> + Send + 'x>>;

/// Something that is done with a database, given these arguments.
pub(super) type Op<A, T> = for<'x> fn(&'x A, &'x mut dyn Ask) -> Asked<'x, T>;

/// In which way something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It reads, as of one moment.
    Reads,
    /// It reads what is small and in memory, as of one moment.
    ReadsHere,
    /// It reads; where there is a server, each statement as of its own moment.
    Looks,
    /// The same, of what is small and in memory.
    LooksHere,
    /// It reads everything, for as long as that takes.
    ReadsAll,
    /// It reads and writes, all or nothing, as if nobody else were there.
    Writes,
    /// The same for what no session depends on.
    Notes,
}

type Doing = dyn for<'x> Fn(&'x mut dyn Ask) -> Asked<'x, ()> + Send + Sync;

/// Something that is done with a database; what it comes to is its own matter.
pub struct Task(pub(super) Box<Doing>);

impl Task {
    /// Does it.
    pub(super) fn on<'x>(&self, ask: &'x mut dyn Ask) -> Asked<'x, ()> {
        (self.0)(ask)
    }
}
