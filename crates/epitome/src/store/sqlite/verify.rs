//! Looking everything through: the file by SQLite's own check, then whether what is stored makes sense.
//!
//! All of it is read in one transaction and worked out anew: every message goes through a fresh tracker, every
//! slot is held against its summaries. Memory holds one message at a time, and one session's summaries without
//! their words.

use rusqlite::{Connection, OptionalExtension, Row};

use super::super::{Fault, SessionId, SessionRow};
use super::chores::row_id;
use super::error::{Outcome, Trouble};
use super::events;
use super::rows::{self, SESSION, int, uint};

mod log;
mod summaries;

/// A store with more faults than this needs a backup, not a longer list.
const MOST_FAULTS: usize = 1_000;

/// Names everything that is not as it should be.
pub(super) fn verify(db: &Connection) -> Outcome<Vec<Fault>> {
    let mut check = Check { db, faults: Vec::new() };
    let file = check.file();
    check.note("file", file);
    for table in ["messages", "slots", "summaries", "idempotency", "members"] {
        let orphans = check.orphans(table);
        check.note(table, orphans);
    }
    let members = check.members();
    check.note("members", members);
    let events = check.events();
    check.note("events", events);
    let sessions = check.sessions();
    check.note("sessions", sessions);
    check.faults.truncate(MOST_FAULTS);
    Ok(check.faults)
}

struct Check<'a> {
    db: &'a Connection,
    faults: Vec<Fault>,
}

impl Check<'_> {
    fn fault(&mut self, at: impl Into<String>, what: impl Into<String>) {
        if self.faults.len() < MOST_FAULTS {
            self.faults.push(Fault { at: at.into(), what: what.into() });
        }
    }

    /// What cannot be read is a fault like others, and no reason to look no further.
    fn note<T>(&mut self, at: &str, read: Outcome<T>) -> Option<T> {
        let why = match read {
            Ok(value) => return Some(value),
            Err(Trouble::Sql(error)) => match error.sqlite_error() {
                Some(failure) => rusqlite::ffi::code_to_str(failure.extended_code).to_owned(),
                None => "a value is not of its kind".to_owned(),
            },
            Err(Trouble::Nonsense(why)) => why,
            Err(Trouble::Said(error)) => error.to_string(),
        };
        self.fault(at, format!("cannot be read: {why}"));
        None
    }

    fn file(&mut self) -> Outcome<()> {
        let mut statement = self.db.prepare("PRAGMA integrity_check(100)")?;
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            let said: String = row.get(0)?;
            if said != "ok" {
                self.fault("file", said);
            }
        }
        Ok(())
    }

    /// Rows whose session is not there, by jumping from one session's rows to the next's.
    fn orphans(&mut self, table: &str) -> Outcome<()> {
        let db = self.db;
        let mut next = db.prepare(&format!("SELECT min(session) FROM {table} WHERE session > ?1"))?;
        let mut known = db.prepare("SELECT 1 FROM sessions WHERE id = ?1")?;
        let mut after = i64::MIN;
        while let Some(session) = next.query_row([after], |row| row.get::<_, Option<SessionId>>(0))? {
            if known.query_row([session], |_| Ok(())).optional()?.is_none() {
                self.fault(
                    table,
                    format!("there are rows of session number {session}, which does not exist"),
                );
            }
            after = session;
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
            let at = format!("session \"{workspace}/{name}\"");
            self.fault(at, "somebody belongs to it who is no author of its workspace");
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
            let at = format!("event {id} of workspace \"{workspace}\"");
            self.note(&at, events::event(row));
            if row.get::<_, Option<SessionId>>(6)?.is_none() {
                self.fault(&at, "it tells of a session that does not exist");
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
            let (name, workspace): (String, String) = (row.get(11)?, row.get(12)?);
            let at = format!("session \"{workspace}/{name}\"");
            let session = rows::session(row).map_err(Trouble::from);
            if let Some(session) = self.note(&at, session) {
                let seen = self.session(&at, &session, row);
                self.note(&at, seen);
            }
            if self.faults.len() >= MOST_FAULTS {
                break;
            }
        }
        Ok(())
    }

    fn session(&mut self, at: &str, session: &SessionRow, row: &Row<'_>) -> Outcome<()> {
        let tracker = &session.tracker;
        let columns = (uint(row, 14)?, uint(row, 15)?, uint(row, 16)?);
        if columns != (tracker.head(), tracker.turns(), tracker.tokens()) {
            self.fault(at, "head, turns or tokens are not what its tracker says");
        }
        let indexed = uint(row, 17)?;
        if indexed > tracker.head() {
            self.fault(at, format!("the index reaches to message {indexed}, the log to {}", tracker.head()));
        } else {
            let sql = "SELECT count(*) FROM words WHERE rowid BETWEEN ?1 AND ?2";
            let ends = [row_id(session.id, 1), row_id(session.id, int(indexed))];
            let known = self.db.prepare_cached(sql)?.query_row(ends, |row| uint(row, 0))?;
            if known != indexed {
                self.fault(at, format!("the index holds {known} of {indexed} messages"));
            }
        }
        let log = self.log(at, session);
        self.note(at, log);
        let summaries = self.summaries(at, session);
        self.note(at, summaries);
        Ok(())
    }
}
