//! Looking everything through: all of it is read as of one moment, a piece at a time, and held against the rules of
//! [`super::check`]. SQLite looks at its file first; that PostgreSQL's pages are whole is its own matter, and `pg_amcheck`'s.

use super::ask::{self, Ask, Batch};
use super::check::{
    Fault, Faults, LogCheck, SessionColumns, SlotColumns, Stored, SummaryCheck, event_at, session_at,
    workspace_at,
};
use super::decode::{
    self, AFTER_OUTLINE, AFTER_SESSION, Found, OUTLINE, SESSION, SESSION_NAME, SESSION_WORKSPACE, SLOT,
    outline, scope_of,
};
use super::rows::{SessionId, SessionRow, SlotRow, SummaryId};
use super::sql::Sql;
use super::trouble::Outcome;

/// So many rows are read at a time.
const PAGE: usize = 500;

/// And no more than one message beyond so many bytes of words.
const BYTES: u64 = 1 << 20;

/// A summary without its words and what it was made of, which nothing is checked by.
const SUMMARY_SHAPE: &str = "id, scope, slot, through, state, parent, '', NULL, facts, created";

/// Sessions with an append that is remembered by its key, and whose messages are not there.
const NEVER_SAID: &str = "SELECT DISTINCT s.workspace, s.name FROM epitome.idempotency i JOIN epitome.sessions s ON s.id = i.session \
     AND s.state = 'open' WHERE i.first < 1 OR i.first > i.last OR i.last > s.head LIMIT 1000";

/// Sessions with a member who is no author of their workspace.
const STRANGERS: &str = "SELECT DISTINCT s.workspace, s.name FROM epitome.members m JOIN epitome.sessions s ON s.id = m.session \
     AND s.state = 'open' LEFT JOIN epitome.authors a ON a.id = m.author AND a.workspace = s.workspace \
     WHERE a.id IS NULL LIMIT 1000";

/// Names everything that is not as it should be.
pub(super) async fn verify(ask: &mut dyn Ask) -> Outcome<Vec<Fault>> {
    let in_file = ask.in_file();
    let mut check = Check { ask, faults: Faults::default() };
    if in_file {
        let file = check.file().await;
        check.note("file", file)?;
    } else {
        check.orphans("words").await?;
        check.told().await?;
    }
    for table in ["messages", "slots", "summaries", "idempotency", "members"] {
        let orphans = check.orphans(table).await;
        check.note(table, orphans)?;
    }
    let workspaces = check.workspaces().await;
    check.note("workspaces", workspaces)?;
    let what = "an append is remembered by its key whose messages are not there";
    let remembered = check.named(NEVER_SAID, what).await;
    check.note("idempotency", remembered)?;
    let what = "somebody belongs to it who is no author of its workspace";
    let members = check.named(STRANGERS, what).await;
    check.note("members", members)?;
    let events = check.events().await;
    check.note("events", events)?;
    let sessions = check.sessions().await;
    check.note("sessions", sessions)?;
    Ok(check.faults.list())
}

struct Check<'a> {
    ask: &'a mut dyn Ask,
    faults: Faults,
}

/// What was read, or why it cannot be; what has nothing to do with what is stored ends the look.
fn why<T>(read: Outcome<T>) -> Outcome<Result<T, String>> {
    match read {
        Ok(value) => Ok(Ok(value)),
        Err(trouble) => trouble.unreadable().map(Err),
    }
}

/// Notes what cannot be read: a fault like others, and no reason to look no further.
fn note<T>(faults: &mut Faults, at: &str, read: Outcome<T>) -> Outcome<Option<T>> {
    Ok(why(read)?.map_err(|why| faults.unreadable(at, &why)).ok())
}

impl Check<'_> {
    fn note<T>(&mut self, at: &str, read: Outcome<T>) -> Outcome<Option<T>> {
        note(&mut self.faults, at, read)
    }

    async fn file(&mut self) -> Outcome<()> {
        let said =
            ask::all(self.ask, Sql::new("PRAGMA integrity_check(100)", []), |row| row.string(0)).await?;
        for said in said.into_iter().filter(|said| said != "ok") {
            self.faults.add("file", said);
        }
        Ok(())
    }

    /// Rows whose session is not there, by jumping from one session's rows to the next's.
    async fn orphans(&mut self, table: &str) -> Outcome<()> {
        let sql = format!(
            "WITH RECURSIVE known (session) AS (SELECT min(session) FROM epitome.{table} UNION ALL \
             SELECT (SELECT min(t.session) FROM epitome.{table} t WHERE t.session > known.session) FROM known \
             WHERE known.session IS NOT NULL) SELECT session FROM known WHERE session IS NOT NULL AND NOT EXISTS \
             (SELECT 1 FROM epitome.sessions s WHERE s.id = known.session) LIMIT 1000"
        );
        for session in ask::all(self.ask, Sql::new(sql, []), |row| row.int(0)).await? {
            let what = format!("there are rows of session number {session}, which does not exist");
            self.faults.add(table, what);
        }
        Ok(())
    }

    async fn workspaces(&mut self) -> Outcome<()> {
        let sql = "SELECT name, settings FROM epitome.workspaces WHERE name > $1 ORDER BY name LIMIT $2";
        let (mut after, mut more) = (String::new(), true);
        while more && !self.faults.is_full() {
            let given = [after.clone().into(), PAGE.into()];
            let page =
                ask::all(self.ask, Sql::new(sql, given), |row| Ok((row.string(0)?, row.string(1)?))).await?;
            more = page.len() >= PAGE;
            for (name, settings) in page {
                self.faults.settings(&workspace_at(&name), &settings);
                after = name;
            }
        }
        Ok(())
    }

    /// Finds fault with the sessions that a statement names.
    async fn named(&mut self, sql: &'static str, what: &str) -> Outcome<()> {
        for (workspace, name) in ask::all(self.ask, Sql::new(sql, []), names).await? {
            self.faults.add(session_at(&workspace, &name), what);
        }
        Ok(())
    }

    /// What was told can be read, and of sessions that are there. PostgreSQL counts the numbers it gave: none is above that.
    async fn events(&mut self) -> Outcome<()> {
        let sql = |given: &str| {
            format!(
                "SELECT e.id, e.session, e.at, e.kind, e.data, e.workspace, s.id, {given} FROM epitome.events e \
                 LEFT JOIN epitome.sessions s ON s.workspace = e.workspace AND s.name = e.session AND s.state = 'open' \
                 LEFT JOIN epitome.workspaces w ON w.name = e.workspace \
                 WHERE (e.workspace, e.id) > ($1, $2) ORDER BY e.workspace, e.id LIMIT $3"
            )
        };
        let (postgres, sqlite) = (sql("w.events_given"), sql("e.id"));
        self.happened(&Sql::new(postgres, []), &Sql::new(sqlite, []), event_at).await
    }

    /// What was told and has no number yet, which is so in PostgreSQL only.
    async fn told(&mut self) -> Outcome<()> {
        let sql = "SELECT t.tick, t.session, t.at, t.kind, t.data, t.workspace, s.id, t.tick FROM epitome.told t \
             LEFT JOIN epitome.sessions s ON s.workspace = t.workspace AND s.name = t.session AND s.state = 'open' \
             WHERE (t.workspace, t.tick) > ($1, $2) ORDER BY t.workspace, t.tick LIMIT $3";
        let sql = Sql::new(sql, []);
        let at =
            |workspace: &str, _| format!("an event of {} that has no number yet", workspace_at(workspace));
        self.happened(&sql, &sql, at).await
    }

    async fn happened(
        &mut self,
        postgres: &Sql<'_>,
        sqlite: &Sql<'_>,
        at: impl Fn(&str, i64) -> String + Send + Sync,
    ) -> Outcome<()> {
        let (mut workspace, mut after, mut more) = (String::new(), i64::MIN, true);
        while more && !self.faults.is_full() {
            let given = [workspace.clone().into(), after.into(), PAGE.into()];
            let sql = Sql::own(postgres.for_postgres(), sqlite.for_sqlite().into_owned(), given);
            let (faults, at, mut seen) = (&mut self.faults, &at, 0);
            let (workspace, after) = (&mut workspace, &mut after);
            let each = |row: Found<'_>| {
                seen += 1;
                (*after, *workspace) = (row.int(0)?, row.string(5)?);
                let at = at(workspace, *after);
                note(faults, &at, decode::event(row))?;
                if row.maybe_int(6)?.is_none() {
                    faults.add(&at, "it tells of a session that does not exist");
                }
                if row.maybe_int(7)?.is_none_or(|given| given < *after) {
                    faults.add(&at, "its workspace says that it gave no such number yet");
                }
                Ok(true)
            };
            self.ask.ask(Batch::new().each(sql, each)).await?;
            more = seen >= PAGE;
        }
        Ok(())
    }

    /// Every session that can be seen. Those being copied or removed are in pieces by their nature.
    async fn sessions(&mut self) -> Outcome<()> {
        let sql = format!(
            "SELECT {SESSION}, head, turns, tokens, indexed FROM epitome.sessions WHERE state = 'open' AND id > $1 \
             ORDER BY id LIMIT $2"
        );
        let (mut after, mut more): (SessionId, bool) = (0, true);
        while more {
            let sql = Sql::new(sql.clone(), [after.into(), PAGE.into()]);
            let page = ask::all(self.ask, sql, |row| {
                let name = (row.string(SESSION_NAME)?, row.string(SESSION_WORKSPACE)?);
                Ok((row.int(0)?, name, why(decode::session(row))?, why(columns(row))?))
            });
            let page = page.await?;
            more = page.len() >= PAGE;
            for (id, (name, workspace), session, columns) in page {
                after = id;
                let at = session_at(&workspace, &name);
                match session {
                    Ok(session) => self.session(&at, &workspace, &session, columns).await?,
                    Err(why) => self.faults.unreadable(&at, &why),
                }
                if self.faults.is_full() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn session(
        &mut self,
        at: &str,
        workspace: &str,
        session: &SessionRow,
        columns: Result<SessionColumns, String>,
    ) -> Outcome<()> {
        match columns {
            Ok(columns) => {
                let columns = self.columns(at, session, &columns).await;
                self.note(at, columns)?;
            }
            Err(why) => self.faults.unreadable(at, &why),
        }
        let log = self.log(at, session).await;
        self.note(at, log)?;
        let mut check = SummaryCheck::new(at, workspace, session);
        let summaries = self.summaries(session.id, &mut check).await;
        if self.note(at, summaries)?.is_some() {
            check.finish(&mut self.faults);
        }
        Ok(())
    }

    async fn columns(&mut self, at: &str, session: &SessionRow, columns: &SessionColumns) -> Outcome<()> {
        if columns.check(&mut self.faults, at, session) {
            let sql = Sql::own(
                "SELECT count(*) FROM epitome.words WHERE session = $1 AND seq BETWEEN 1 AND $2",
                "SELECT count(*) FROM words WHERE rowid BETWEEN (?1 << 32) + 1 AND (?1 << 32) + ?2",
                [session.id.into(), columns.indexed.into()],
            );
            let known = ask::first(self.ask, sql, |row| row.uint(0)).await?;
            columns.check_index(&mut self.faults, at, known.unwrap_or_default());
        }
        Ok(())
    }

    async fn log(&mut self, at: &str, session: &SessionRow) -> Outcome<()> {
        let postgres = format!(
            "SELECT {OUTLINE}, body, opener FROM (SELECT m.*, sum(octet_length(body)) OVER (ORDER BY seq \
             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS ahead_of_it FROM (SELECT * FROM epitome.messages \
             WHERE session = $1 AND seq > $2 ORDER BY seq LIMIT $3) m) p WHERE coalesce(ahead_of_it, 0) < $4 ORDER BY seq"
        );
        // Read one by one there.
        let sqlite = format!(
            "SELECT {OUTLINE}, body, opener FROM messages WHERE session = ?1 AND seq > ?2 AND ?4 > 0 ORDER BY seq LIMIT ?3"
        );
        let mut check = LogCheck::new(at);
        let (mut after, mut more) = (0i64, true);
        while more {
            more = false;
            let given = [session.id.into(), after.into(), PAGE.into(), BYTES.into()];
            let sql = Sql::own(postgres.clone(), sqlite.clone(), given);
            let (faults, check, after, more) = (&mut self.faults, &mut check, &mut after, &mut more);
            let each = |row: Found<'_>| {
                *after = row.int(0)?;
                *more = check.message(faults, row.uint(0)?, why(stored(row))?);
                Ok(*more)
            };
            self.ask.ask(Batch::new().each(sql, each)).await?;
        }
        check.finish(&mut self.faults, session);
        Ok(())
    }

    async fn summaries(&mut self, session: SessionId, check: &mut SummaryCheck<'_>) -> Outcome<()> {
        let sql = format!(
            "SELECT {SUMMARY_SHAPE} FROM epitome.summaries INDEXED BY summaries_by_number \
             WHERE session = $1 AND id > $2 ORDER BY id LIMIT $3"
        );
        let (mut after, mut more) = (SummaryId::MIN, true);
        while more {
            let sql = Sql::new(sql.clone(), [session.into(), after.into(), PAGE.into()]);
            let page = ask::all(self.ask, sql, |row| Ok((row.int(0)?, why(decode::summary(row))?))).await?;
            more = page.len() >= PAGE;
            for (id, summary) in page {
                after = id;
                check.summary(&mut self.faults, id, summary);
            }
        }
        let sql = format!(
            "SELECT {SLOT}, s.covered, s.due, s.ready_at, s.workspace FROM epitome.slots s WHERE s.session = $1 \
             ORDER BY s.scope, s.name"
        );
        let faults = &mut self.faults;
        let each = |row: Found<'_>| {
            let key = (scope_of(row.text(0)?), row.string(1)?);
            check.slot(faults, key, row.maybe_int(3)?, why(slot(row))?);
            Ok(true)
        };
        self.ask.ask(Batch::new().each(Sql::new(sql, [session.into()]), each)).await
    }
}

fn names(row: Found<'_>) -> Outcome<(String, String)> {
    Ok((row.string(0)?, row.string(1)?))
}

fn columns(row: Found<'_>) -> Outcome<SessionColumns> {
    Ok(SessionColumns {
        head: row.uint(AFTER_SESSION)?,
        turns: row.uint(AFTER_SESSION + 1)?,
        tokens: row.uint(AFTER_SESSION + 2)?,
        indexed: row.uint(AFTER_SESSION + 3)?,
    })
}

fn stored(row: Found<'_>) -> Outcome<Stored<'_>> {
    let (body, opener) = (row.text(AFTER_OUTLINE)?, row.uint(AFTER_OUTLINE + 1)?);
    Ok(Stored { outline: outline(row)?, body, opener })
}

fn slot(row: Found<'_>) -> Outcome<(SlotRow, SlotColumns)> {
    let columns = SlotColumns {
        covered: row.uint(6)?,
        due: row.maybe_int(7)?,
        ready_at: row.maybe_int(8)?,
        workspace: row.string(9)?,
    };
    Ok((decode::slot(row)?, columns))
}
