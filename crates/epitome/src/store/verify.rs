//! Checks a whole store. Reads everything from one snapshot, a page at a time, and applies the rules of
//! [`super::check`].
//!
//! A SQLite file is first checked for damage. Damaged pages of PostgreSQL are not checked here; `pg_amcheck` finds
//! them.

use super::check::{FaultList, LogCheck, StoreFault, SummaryCheck, session_at, workspace_at};
use super::decode::{self, OUTLINE, RowRef, SESSION, SESSION_NAME, SESSION_WORKSPACE, SLOT};
use super::executor::{self, Executor, SqlBatch};
use super::op_error::OpResult;
use super::rows::{SessionId, SessionRow, SummaryId};
use super::sql::Sql;

/// Maximum number of rows read at a time.
const PAGE_SIZE: usize = 500;

/// A page ends with the message whose text brings the page to this size in bytes: 1 MiB.
const PAGE_BYTES: u64 = 1 << 20;

/// The columns of a summary. Text and sources are left out, because they are not checked.
const SUMMARY_COLUMNS: &str = "id, scope, slot, through, state, parent, '', NULL, facts, created";

/// Queries that return sessions with a fault. Each entry contains the table that is reported if the query fails, the
/// query, and the description of the fault.
const FAULTY_ROWS: [(&str, &str, &str); 2] = [
    (
        "idempotency",
        "SELECT DISTINCT s.workspace, s.name FROM epitome.idempotency i JOIN epitome.sessions s ON s.id = i.session \
         AND s.state = 'open' WHERE i.first < 1 OR i.first > i.last OR i.last > s.head LIMIT 1000",
        "an idempotency key refers to messages that do not exist",
    ),
    (
        "members",
        "SELECT DISTINCT s.workspace, s.name FROM epitome.members m JOIN epitome.sessions s ON s.id = m.session \
         AND s.state = 'open' LEFT JOIN epitome.authors a ON a.id = m.author AND a.workspace = s.workspace \
         WHERE a.id IS NULL LIMIT 1000",
        "a member is not an author of its workspace",
    ),
];

/// Checks the store and returns the faults found.
pub(super) async fn verify(db: &mut dyn Executor) -> OpResult<Vec<StoreFault>> {
    let in_file = db.in_file();
    let mut check = Check { db, in_file, faults: FaultList::default() };
    if in_file {
        let file = check.check_file().await;
        check.faults.note("file", file)?;
    } else {
        check.check_unnumbered_events().await?;
    }
    let indexed = (!in_file).then_some("words");
    for table in indexed.into_iter().chain(["messages", "slots", "summaries", "idempotency", "members"]) {
        check.find_orphans(table).await?;
    }
    let workspaces = check.check_workspaces().await;
    check.faults.note("workspaces", workspaces)?;
    for (table, sql, what) in FAULTY_ROWS {
        let fault = |row: RowRef<'_>| Ok((session_at(row.text(0)?, row.text(1)?), what.to_owned()));
        check.add_rows(table, sql.to_owned(), fault).await?;
    }
    let events = check.check_events().await;
    check.faults.note("events", events)?;
    let sessions = check.check_sessions().await;
    check.faults.note("sessions", sessions)?;
    Ok(check.faults.0)
}

struct Check<'a> {
    db: &'a mut dyn Executor,
    in_file: bool,
    faults: FaultList,
}

impl Check<'_> {
    /// Reads page after page, starting after the cursor `last`. `sql` creates the query for the page after a cursor.
    /// `each` reads a row, and returns the row's cursor, or `None` to stop. A page with fewer than `page_size` rows is
    /// the last page.
    async fn pages<K: Send>(
        &mut self,
        page_size: usize,
        mut last: K,
        sql: impl Fn(&K) -> Sql<'static> + Send,
        mut each: impl FnMut(&mut FaultList, RowRef<'_>) -> OpResult<Option<K>> + Send,
    ) -> OpResult<()> {
        let mut more = true;
        while more && !self.faults.is_full() {
            let (faults, mut seen, mut enough) = (&mut self.faults, 0, false);
            let sql = sql(&last);
            let take = |row: RowRef<'_>| {
                seen += 1;
                match each(faults, row)? {
                    Some(end) => last = end,
                    None => enough = true,
                }
                Ok(!enough)
            };
            self.db.run(SqlBatch::new().each(sql, take)).await?;
            more = seen >= page_size && !enough;
        }
        Ok(())
    }

    async fn check_file(&mut self) -> OpResult<()> {
        let sql = Sql::new("PRAGMA integrity_check(100)", []);
        let problems = executor::all(self.db, sql, |row| row.string(0)).await?;
        problems
            .into_iter()
            .filter(|problem| problem != "ok")
            .for_each(|problem| self.faults.add("file", problem));
        Ok(())
    }

    /// Adds a fault for each row of a query. `fault` returns the place and the description of the fault.
    async fn add_rows(
        &mut self,
        at: &str,
        sql: String,
        fault: impl Fn(RowRef<'_>) -> OpResult<(String, String)> + Send + Sync,
    ) -> OpResult<()> {
        let faults = &mut self.faults;
        let each = |row: RowRef<'_>| {
            let (at, what) = fault(row)?;
            faults.add(at, what);
            Ok(true)
        };
        let found = self.db.run(SqlBatch::new().each(Sql::new(sql, []), each)).await;
        self.faults.note(at, found).map(|_| ())
    }

    /// Finds rows whose session does not exist. The query jumps from one session id to the next, instead of reading
    /// every row.
    async fn find_orphans(&mut self, table: &str) -> OpResult<()> {
        let sql = format!(
            "WITH RECURSIVE ids (session) AS (SELECT min(session) FROM epitome.{table} UNION ALL \
             SELECT (SELECT min(t.session) FROM epitome.{table} t WHERE t.session > ids.session) FROM ids \
             WHERE ids.session IS NOT NULL) SELECT session FROM ids WHERE session IS NOT NULL AND NOT EXISTS \
             (SELECT 1 FROM epitome.sessions s WHERE s.id = ids.session) LIMIT 1000"
        );
        self.add_rows(table, sql, |row| {
            let what = format!("there are rows of the session with id {}, which does not exist", row.int(0)?);
            Ok((table.to_owned(), what))
        })
        .await
    }

    async fn check_workspaces(&mut self) -> OpResult<()> {
        let sql = "SELECT name, settings FROM epitome.workspaces WHERE name > $1 ORDER BY name LIMIT $2";
        let sql = |after: &String| Sql::new(sql, [after.clone().into(), PAGE_SIZE.into()]);
        self.pages(PAGE_SIZE, String::new(), sql, |faults, row| {
            let name = row.string(0)?;
            faults.settings(&workspace_at(&name), row.text(1)?);
            Ok(Some(name))
        })
        .await
    }

    /// Checks that events can be read and that their sessions exist. In PostgreSQL, also checks that the number of each
    /// event is at most the last number that the event's workspace has assigned.
    async fn check_events(&mut self) -> OpResult<()> {
        let last_number = if self.in_file { "e.id" } else { "w.events_given" };
        let sql = format!(
            "SELECT e.id, e.session, e.at, e.kind, e.data, e.workspace, s.id, {last_number} FROM epitome.events e \
             LEFT JOIN epitome.sessions s ON s.workspace = e.workspace AND s.name = e.session AND s.state = 'open' \
             LEFT JOIN epitome.workspaces w ON w.name = e.workspace \
             WHERE (e.workspace, e.id) > ($1, $2) ORDER BY e.workspace, e.id LIMIT $3"
        );
        self.check_event_rows(&sql, |workspace, id| format!("event {id} of {workspace}")).await
    }

    /// Checks the events that have no number yet. They exist only in PostgreSQL.
    async fn check_unnumbered_events(&mut self) -> OpResult<()> {
        let sql = "SELECT t.tick, t.session, t.at, t.kind, t.data, t.workspace, s.id, t.tick FROM epitome.told t \
             LEFT JOIN epitome.sessions s ON s.workspace = t.workspace AND s.name = t.session AND s.state = 'open' \
             WHERE (t.workspace, t.tick) > ($1, $2) ORDER BY t.workspace, t.tick LIMIT $3";
        self.check_event_rows(sql, |workspace, _| format!("an event of {workspace} that has no number yet"))
            .await
    }

    async fn check_event_rows(
        &mut self,
        sql: &str,
        at: impl Fn(String, i64) -> String + Send + Sync,
    ) -> OpResult<()> {
        let sql = |(workspace, after): &(String, i64)| {
            Sql::new(sql.to_owned(), [workspace.clone().into(), (*after).into(), PAGE_SIZE.into()])
        };
        self.pages(PAGE_SIZE, (String::new(), i64::MIN), sql, |faults, row| {
            let (id, workspace) = (row.int(0)?, row.string(5)?);
            let at = at(workspace_at(&workspace), id);
            faults.note(&at, decode::event(row))?;
            if row.maybe_int(6)?.is_none() {
                faults.add(&at, "it belongs to a session that does not exist");
            }
            if row.maybe_int(7)?.is_none_or(|last_number| last_number < id) {
                faults.add(&at, "its workspace has not assigned this number yet");
            }
            Ok(Some((workspace, id)))
        })
        .await
    }

    /// Checks every visible session. Sessions that are being copied or removed are incomplete by design.
    async fn check_sessions(&mut self) -> OpResult<()> {
        let sql = format!(
            "SELECT {SESSION} FROM epitome.sessions WHERE state = 'open' AND id > $1 ORDER BY id LIMIT $2"
        );
        let (mut after, mut more): (SessionId, bool) = (0, true);
        while more {
            let sql = Sql::new(sql.clone(), [after.into(), PAGE_SIZE.into()]);
            let page = executor::all(self.db, sql, |row| {
                let (name, workspace) = (row.text(SESSION_NAME)?, row.string(SESSION_WORKSPACE)?);
                let at = session_at(&workspace, name);
                Ok((row.int(0)?, at, workspace, decode::session(row)))
            });
            let page = page.await?;
            more = page.len() >= PAGE_SIZE;
            for (id, at, workspace, session) in page {
                after = id;
                if let Some(session) = self.faults.note(&at, session)? {
                    self.check_session(&at, &workspace, &session).await?;
                }
                if self.faults.is_full() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn check_session(&mut self, at: &str, workspace: &str, session: &SessionRow) -> OpResult<()> {
        let columns = self.check_columns(at, session).await;
        self.faults.note(at, columns)?;
        let log = self.check_log(at, session).await;
        self.faults.note(at, log)?;
        let mut check = SummaryCheck::new(at, workspace, session);
        let summaries = self.check_summaries(session.id, &mut check).await;
        if self.faults.note(at, summaries)?.is_some() {
            check.finish(&mut self.faults);
        }
        Ok(())
    }

    /// Checks that the columns `head`, `turns` and `tokens` match the tracker, whose values they repeat. Also checks
    /// that the search index contains as many messages as the session's row reports.
    async fn check_columns(&mut self, at: &str, session: &SessionRow) -> OpResult<()> {
        let indexed_rows = if self.in_file {
            "rowid BETWEEN (s.id << 32) + 1 AND (s.id << 32) + s.indexed"
        } else {
            "session = s.id AND seq BETWEEN 1 AND s.indexed"
        };
        let sql = format!(
            "SELECT s.head, s.turns, s.tokens, s.indexed, (SELECT count(*) FROM epitome.words WHERE {indexed_rows}) \
             FROM epitome.sessions s WHERE s.id = $1"
        );
        let (faults, tracker) = (&mut self.faults, &session.tracker);
        let each = |row: RowRef<'_>| {
            let columns = (row.uint(0)?, row.uint(1)?, row.uint(2)?);
            let (indexed, indexed_rows, head) = (row.uint(3)?, row.uint(4)?, tracker.head());
            faults.settings(at, &session.settings);
            if session.encoding.is_empty() {
                faults.add(at, "its token encoding is missing");
            }
            if columns != (head, tracker.turns(), tracker.tokens()) {
                faults.add(at, "its columns `head`, `turns` or `tokens` differ from its stored tracker");
            }
            if indexed > head {
                faults.add(
                    at,
                    format!("it is indexed up to message {indexed}, but its last message is {head}"),
                );
            } else if indexed_rows != indexed {
                faults.add(at, format!("the search index contains {indexed_rows} of {indexed} messages"));
            }
            Ok(true)
        };
        self.db.run(SqlBatch::new().each(Sql::new(sql, [session.id.into()]), each)).await
    }

    async fn check_log(&mut self, at: &str, session: &SessionRow) -> OpResult<()> {
        // PostgreSQL sends a whole page at once, so the page's size in bytes is limited too.
        let from = if self.in_file {
            "messages WHERE session = $1 AND seq > $2 AND $4 > 0 ORDER BY seq LIMIT $3"
        } else {
            "(SELECT m.*, sum(octet_length(body)) OVER (ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND \
             1 PRECEDING) AS ahead_of_it FROM (SELECT * FROM epitome.messages WHERE session = $1 AND seq > $2 \
             ORDER BY seq LIMIT $3) m) p WHERE coalesce(ahead_of_it, 0) < $4 ORDER BY seq"
        };
        let sql = |after: &i64| {
            let params = [session.id.into(), (*after).into(), PAGE_SIZE.into(), PAGE_BYTES.into()];
            Sql::new(format!("SELECT {OUTLINE}, body, opener FROM {from}"), params)
        };
        let mut check = LogCheck::new(at);
        // A page may have few rows because its messages are long, so only an empty page is the last page.
        self.pages(1, 0, sql, |faults, row| Ok(check.message(faults, row)?.then_some(row.int(0)?))).await?;
        check.finish(&mut self.faults, session);
        Ok(())
    }

    async fn check_summaries(&mut self, session: SessionId, check: &mut SummaryCheck<'_>) -> OpResult<()> {
        let sql = format!(
            "SELECT {SUMMARY_COLUMNS} FROM epitome.summaries INDEXED BY summaries_by_number \
             WHERE session = $1 AND id > $2 ORDER BY id LIMIT $3"
        );
        let sql =
            |after: &SummaryId| Sql::new(sql.clone(), [session.into(), (*after).into(), PAGE_SIZE.into()]);
        self.pages(PAGE_SIZE, SummaryId::MIN, sql, |faults, row| check.summary(faults, row).map(Some))
            .await?;
        let sql = format!(
            "SELECT {SLOT}, s.covered, s.due, s.ready_at, s.workspace FROM epitome.slots s WHERE s.session = $1 \
             ORDER BY s.scope, s.name"
        );
        let faults = &mut self.faults;
        let each = |row: RowRef<'_>| check.slot(faults, row).map(|()| true);
        self.db.run(SqlBatch::new().each(Sql::new(sql, [session.into()]), each)).await
    }
}
