//! Looking everything through: the file by SQLite's own check, then whether what is stored makes sense.
//!
//! All of it is read in one transaction, one message at a time, and held against the rules of [`super::super::check`].

use rusqlite::{Connection, OptionalExtension, Row};

use super::super::check::{
    Faults, LogCheck, SessionColumns, SlotColumns, Stored, SummaryCheck, event_at, session_at, workspace_at,
};
use super::super::columns::scope_of;
use super::super::decode::{
    self, AFTER_OUTLINE, OUTLINE, ReadRow, SESSION_NAME, SESSION_WORKSPACE, SLOT, SUMMARY, outline,
};
use super::super::given::int;
use super::super::maintenance::Fault;
use super::super::rows::{SessionId, SessionRow, SlotRow, SummaryId};
use super::chores::row_id;
use super::error::{Outcome, Trouble, nonsense};
use super::rows::SESSION;

/// Names everything that is not as it should be.
pub(super) fn verify(db: &Connection) -> Outcome<Vec<Fault>> {
    let mut check = Check { db, faults: Faults::default() };
    let file = check.file();
    check.note("file", file);
    for table in ["messages", "slots", "summaries", "idempotency", "members"] {
        let orphans = check.orphans(table);
        check.note(table, orphans);
    }
    let workspaces = check.workspaces();
    check.note("workspaces", workspaces);
    let remembered = check.remembered();
    check.note("idempotency", remembered);
    let members = check.members();
    check.note("members", members);
    let events = check.events();
    check.note("events", events);
    let sessions = check.sessions();
    check.note("sessions", sessions);
    Ok(check.faults.list())
}

struct Check<'a> {
    db: &'a Connection,
    faults: Faults,
}

/// Why something cannot be read.
fn why(trouble: impl Into<Trouble>) -> String {
    match trouble.into() {
        Trouble::Sql(error) => match error.sqlite_error() {
            Some(failure) => rusqlite::ffi::code_to_str(failure.extended_code).to_owned(),
            None => "a value is not of its kind".to_owned(),
        },
        Trouble::Nonsense(why) => why,
        Trouble::Said(error) => error.to_string(),
    }
}

impl Check<'_> {
    /// What cannot be read is a fault like others, and no reason to look no further.
    fn note<T>(&mut self, at: &str, read: Outcome<T>) -> Option<T> {
        read.map_err(|trouble| self.faults.unreadable(at, &why(trouble))).ok()
    }

    fn file(&mut self) -> Outcome<()> {
        let mut statement = self.db.prepare("PRAGMA integrity_check(100)")?;
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            let said: String = row.get(0)?;
            if said != "ok" {
                self.faults.add("file", said);
            }
        }
        Ok(())
    }

    /// Rows whose session is not there, by jumping from one session's rows to the next's.
    fn orphans(&mut self, table: &str) -> Outcome<()> {
        let db = self.db;
        let mut next = db.prepare(&format!("SELECT min(session) FROM {table} WHERE session > ?1"))?;
        let mut known = db.prepare("SELECT 1 FROM sessions WHERE id = ?1")?;
        let mut after = SessionId::MIN;
        while let Some(session) = next.query_row([after], |row| row.get::<_, Option<SessionId>>(0))? {
            if known.query_row([session], |_| Ok(())).optional()?.is_none() {
                self.faults.orphans(table, session);
            }
            after = session;
        }
        Ok(())
    }

    fn workspaces(&mut self) -> Outcome<()> {
        let db = self.db;
        let mut statement = db.prepare("SELECT name, settings FROM workspaces")?;
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            let (name, settings): (String, String) = (row.get(0)?, row.get(1)?);
            self.faults.settings(&workspace_at(&name), &settings);
        }
        Ok(())
    }

    /// An append that is remembered by its key is in the log.
    fn remembered(&mut self) -> Outcome<()> {
        let db = self.db;
        let sql = "SELECT DISTINCT s.workspace, s.name FROM idempotency i JOIN sessions s ON s.id = i.session \
             AND s.state = 'open' WHERE i.first < 1 OR i.first > i.last OR i.last > s.head";
        let mut statement = db.prepare(sql)?;
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            let (workspace, name): (String, String) = (row.get(0)?, row.get(1)?);
            self.faults.never_said(&workspace, &name);
        }
        Ok(())
    }

    /// Whoever belongs to a session that can be seen is an author of its workspace.
    fn members(&mut self) -> Outcome<()> {
        let db = self.db;
        let sql = "SELECT DISTINCT s.workspace, s.name FROM members m JOIN sessions s ON s.id = m.session \
             AND s.state = 'open' LEFT JOIN authors a ON a.id = m.author AND a.workspace = s.workspace WHERE a.id IS NULL";
        let mut statement = db.prepare(sql)?;
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            let (workspace, name): (String, String) = (row.get(0)?, row.get(1)?);
            self.faults.stranger(&workspace, &name);
        }
        Ok(())
    }

    /// What was told can be read, and of sessions that are there.
    fn events(&mut self) -> Outcome<()> {
        let db = self.db;
        let sql = "SELECT e.id, e.session, e.at, e.kind, e.data, e.workspace, s.id FROM events e \
             LEFT JOIN sessions s ON s.workspace = e.workspace AND s.name = e.session AND s.state = 'open'";
        let mut statement = db.prepare(sql)?;
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            let (id, workspace): (i64, String) = (row.get(0)?, row.get(5)?);
            let at = event_at(&workspace, id);
            self.note(&at, decode::event(row));
            if row.get::<_, Option<SessionId>>(6)?.is_none() {
                self.faults.event_of_nobody(&at);
            }
        }
        Ok(())
    }

    /// Every session that can be seen. Those being copied or removed are in pieces by their nature.
    fn sessions(&mut self) -> Outcome<()> {
        let db = self.db;
        let sql =
            format!("SELECT {SESSION}, head, turns, tokens, indexed FROM sessions WHERE state = 'open'");
        let mut statement = db.prepare(&sql)?;
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            let (name, workspace): (String, String) = (row.get(SESSION_NAME)?, row.get(SESSION_WORKSPACE)?);
            let at = session_at(&workspace, &name);
            let session = decode::session(row);
            if let Some(session) = self.note(&at, session) {
                let columns = self.columns(&at, &session, row);
                self.note(&at, columns);
                let log = self.log(&at, &session);
                self.note(&at, log);
                let summaries = self.summaries(&at, &workspace, &session);
                self.note(&at, summaries);
            }
            if self.faults.is_full() {
                break;
            }
        }
        Ok(())
    }

    fn columns(&mut self, at: &str, session: &SessionRow, row: &Row<'_>) -> Outcome<()> {
        let columns = SessionColumns {
            head: row.uint(14)?,
            turns: row.uint(15)?,
            tokens: row.uint(16)?,
            indexed: row.uint(17)?,
        };
        if columns.check(&mut self.faults, at, session) {
            let sql = "SELECT count(*) FROM words WHERE rowid BETWEEN ?1 AND ?2";
            let ends = [row_id(session.id, 1), row_id(session.id, int(columns.indexed))];
            let known = self.db.prepare_cached(sql)?.query_row(ends, |row| Ok(row.uint(0)))??;
            columns.check_index(&mut self.faults, at, known);
        }
        Ok(())
    }

    fn log(&mut self, at: &str, session: &SessionRow) -> Outcome<()> {
        let sql = format!("SELECT {OUTLINE}, body, opener FROM messages WHERE session = ?1 ORDER BY seq");
        let mut statement = self.db.prepare(&sql)?;
        let mut found = statement.query([session.id])?;
        let mut check = LogCheck::new(at);
        while let Some(row) = found.next()? {
            if !check.message(&mut self.faults, row.uint(0)?, stored(row).map_err(why)) {
                break;
            }
        }
        check.finish(&mut self.faults, session);
        Ok(())
    }

    fn summaries(&mut self, at: &str, workspace: &str, session: &SessionRow) -> Outcome<()> {
        let mut check = SummaryCheck::new(at, workspace, session);
        let mut statement =
            self.db.prepare(&format!("SELECT {SUMMARY} FROM summaries WHERE session = ?1"))?;
        let mut found = statement.query([session.id])?;
        while let Some(row) = found.next()? {
            let id: SummaryId = row.get(0)?;
            check.summary(&mut self.faults, id, decode::summary(row).map_err(why));
        }
        let sql = format!(
            "SELECT {SLOT}, s.covered, s.due, s.ready_at, s.workspace FROM slots s WHERE s.session = ?1"
        );
        let mut statement = self.db.prepare(&sql)?;
        let mut found = statement.query([session.id])?;
        while let Some(row) = found.next()? {
            let key = (scope_of(&row.get::<_, String>(0)?), row.get::<_, String>(1)?);
            check.slot(&mut self.faults, key, row.get(3)?, slot(row).map_err(why));
        }
        check.finish(&mut self.faults);
        Ok(())
    }
}

fn stored<'r>(row: &'r Row<'_>) -> Outcome<Stored<'r>> {
    let body = row.get_ref(AFTER_OUTLINE)?.as_str().map_err(|_| nonsense("its words are no text"))?;
    Ok(Stored { outline: outline(row)?, body, opener: row.uint(AFTER_OUTLINE + 1)? })
}

fn slot(row: &Row<'_>) -> Outcome<(SlotRow, SlotColumns)> {
    let slot = decode::slot(row)?;
    let columns = SlotColumns {
        covered: row.uint(6)?,
        due: row.get(7)?,
        ready_at: row.get(8)?,
        workspace: row.get(9)?,
    };
    Ok((slot, columns))
}
