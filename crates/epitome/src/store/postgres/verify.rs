//! Looking everything through: all of it is read as of one moment, a page at a time, and held against the rules of
//! [`super::super::check`]. That the pages themselves are whole is the database's matter, and `pg_amcheck`'s.

use tokio_postgres::Row;

use super::super::check::{
    Faults, LogCheck, SessionColumns, SlotColumns, Stored, SummaryCheck, event_at, session_at, workspace_at,
};
use super::super::columns::scope_of;
use super::super::decode::{self, AFTER_OUTLINE, OUTLINE, ReadRow, SESSION_NAME, SLOT, outline};
use super::super::maintenance::Fault;
use super::super::rows::{SessionId, SessionRow, SlotRow, SummaryId};
use super::Postgres;
use super::counts::Counts;
use super::error::{Outcome, Trouble};
use super::pipe::Pipe;
use super::rows::{AFTER_SESSION, SESSION, SESSION_COUNTS, get};
use super::tx::Tx;

/// So many rows are read at a time.
const PAGE: usize = 500;

/// And no more than one message beyond so many bytes of words.
const BYTES: u64 = 1 << 20;

/// A summary without its words and what it was made of, which nothing is checked by.
const SUMMARY_SHAPE: &str = "id, scope, slot, through, state, parent, '', NULL::text, facts, created";

/// Where in a row of [`SESSION`] the workspace stands.
const WORKSPACE: usize = 12;

/// Why something cannot be read; what has nothing to do with what is stored ends the look.
fn why<T>(read: Outcome<T>) -> Outcome<Result<T, String>> {
    match read {
        Ok(value) => Ok(Ok(value)),
        Err(Trouble::Nonsense(why)) => Ok(Err(why)),
        Err(other) => Err(other),
    }
}

impl Postgres {
    pub(super) async fn verify_once(&self) -> Outcome<Vec<Fault>> {
        let (mut tx, _) = Tx::read(self, Pipe::new()).await?;
        tx.take_your_time().await?;
        let mut check = Check { tx, faults: Faults::default() };
        for table in ["messages", "slots", "summaries", "idempotency", "members", "words"] {
            check.orphans(table).await?;
        }
        check.workspaces().await?;
        check.members().await?;
        check.remembered().await?;
        check.events().await?;
        check.told().await?;
        check.sessions().await?;
        let Check { tx, faults } = check;
        tx.finish(Pipe::new()).await?;
        Ok(faults.list())
    }
}

struct Check<'s> {
    tx: Tx<'s>,
    faults: Faults,
}

impl Check<'_> {
    async fn ask(&mut self, pipe: Pipe<'_>) -> Outcome<Vec<Row>> {
        Ok(self.tx.ask(pipe).await?.into_iter().flatten().collect())
    }

    /// Rows whose session is not there.
    async fn orphans(&mut self, table: &str) -> Outcome<()> {
        let sql = format!(
            "SELECT DISTINCT session FROM epitome.{table} t WHERE NOT EXISTS \
             (SELECT 1 FROM epitome.sessions s WHERE s.id = t.session) ORDER BY session LIMIT 1000"
        );
        for row in self.ask(Pipe::new().then(sql, [])).await? {
            self.faults.orphans(table, get(&row, 0)?);
        }
        Ok(())
    }

    async fn workspaces(&mut self) -> Outcome<()> {
        let mut after = String::new();
        loop {
            let sql = "SELECT name, settings FROM epitome.workspaces WHERE name > $1 ORDER BY name LIMIT $2";
            let found = self.ask(Pipe::new().then(sql, [after.clone().into(), PAGE.into()])).await?;
            for row in &found {
                after = get(row, 0)?;
                self.faults.settings(&workspace_at(&after), get(row, 1)?);
            }
            if found.len() < PAGE || self.faults.is_full() {
                return Ok(());
            }
        }
    }

    /// An append that is remembered by its key is in the log.
    async fn remembered(&mut self) -> Outcome<()> {
        let sql = "SELECT DISTINCT s.workspace, s.name FROM epitome.idempotency i JOIN epitome.sessions s ON s.id = i.session \
             AND s.state = 'open' WHERE i.first < 1 OR i.first > i.last OR i.last > s.head LIMIT 1000";
        for row in self.ask(Pipe::new().then(sql, [])).await? {
            self.faults.never_said(get(&row, 0)?, get(&row, 1)?);
        }
        Ok(())
    }

    /// What was told and has no number yet can be read, and of sessions that are there.
    async fn told(&mut self) -> Outcome<()> {
        let (mut workspace, mut after) = (String::new(), i64::MIN);
        loop {
            let sql = "SELECT t.tick, t.session, t.at, t.kind, t.data, t.workspace, s.id FROM epitome.told t \
                 LEFT JOIN epitome.sessions s ON s.workspace = t.workspace AND s.name = t.session AND s.state = 'open' \
                 WHERE (t.workspace, t.tick) > ($1, $2) ORDER BY t.workspace, t.tick LIMIT $3";
            let found = self
                .ask(Pipe::new().then(sql, [workspace.clone().into(), after.into(), PAGE.into()]))
                .await?;
            for row in &found {
                (after, workspace) = (get(row, 0)?, get(row, 5)?);
                let at = format!("an event of {} that has no number yet", workspace_at(&workspace));
                if let Err(reason) = why(decode::event(row))? {
                    self.faults.unreadable(&at, &reason);
                }
                if get::<Option<SessionId>>(row, 6)?.is_none() {
                    self.faults.event_of_nobody(&at);
                }
            }
            if found.len() < PAGE || self.faults.is_full() {
                return Ok(());
            }
        }
    }

    /// Whoever belongs to a session that can be seen is an author of its workspace.
    async fn members(&mut self) -> Outcome<()> {
        let sql = "SELECT DISTINCT s.workspace, s.name FROM epitome.members m JOIN epitome.sessions s ON s.id = m.session \
             AND s.state = 'open' LEFT JOIN epitome.authors a ON a.id = m.author AND a.workspace = s.workspace \
             WHERE a.id IS NULL LIMIT 1000";
        for row in self.ask(Pipe::new().then(sql, [])).await? {
            self.faults.stranger(get(&row, 0)?, get(&row, 1)?);
        }
        Ok(())
    }

    /// What was told can be read, and of sessions that are there; and no number was given that is above the last.
    async fn events(&mut self) -> Outcome<()> {
        let (mut workspace, mut after) = (String::new(), 0i64);
        loop {
            let sql = "SELECT e.id, e.session, e.at, e.kind, e.data, e.workspace, s.id, w.events_given FROM epitome.events e \
                 LEFT JOIN epitome.sessions s ON s.workspace = e.workspace AND s.name = e.session AND s.state = 'open' \
                 LEFT JOIN epitome.workspaces w ON w.name = e.workspace \
                 WHERE (e.workspace, e.id) > ($1, $2) ORDER BY e.workspace, e.id LIMIT $3";
            let found = self
                .ask(Pipe::new().then(sql, [workspace.clone().into(), after.into(), PAGE.into()]))
                .await?;
            for row in &found {
                (after, workspace) = (get(row, 0)?, get(row, 5)?);
                let at = event_at(&workspace, after);
                if let Err(reason) = why(decode::event(row))? {
                    self.faults.unreadable(&at, &reason);
                }
                if get::<Option<SessionId>>(row, 6)?.is_none() {
                    self.faults.event_of_nobody(&at);
                }
                if get::<Option<i64>>(row, 7)?.is_none_or(|given| given < after) {
                    self.faults.add(&at, "its workspace says that it gave no such number yet");
                }
            }
            if found.len() < PAGE || self.faults.is_full() {
                return Ok(());
            }
        }
    }

    /// Every session that can be seen. Those being copied or removed are in pieces by their nature.
    async fn sessions(&mut self) -> Outcome<()> {
        let mut after: SessionId = 0;
        loop {
            let sql = format!(
                "SELECT {SESSION}, head, turns, tokens, indexed FROM epitome.sessions WHERE state = 'open' AND id > $1 \
                 ORDER BY id LIMIT $2"
            );
            let found = self.ask(Pipe::new().then(sql, [after.into(), PAGE.into()])).await?;
            for row in &found {
                after = get(row, 0)?;
                let (name, workspace): (&str, &str) = (get(row, SESSION_NAME)?, get(row, WORKSPACE)?);
                let at = session_at(workspace, name);
                match why(decode::session(row))? {
                    Ok(session) => self.session(&at, workspace, &session, row).await?,
                    Err(reason) => self.faults.unreadable(&at, &reason),
                }
                if self.faults.is_full() {
                    return Ok(());
                }
            }
            if found.len() < PAGE {
                return Ok(());
            }
        }
    }

    async fn session(&mut self, at: &str, workspace: &str, session: &SessionRow, row: &Row) -> Outcome<()> {
        let columns = SessionColumns {
            head: row.uint(AFTER_SESSION)?,
            turns: row.uint(AFTER_SESSION + 1)?,
            tokens: row.uint(AFTER_SESSION + 2)?,
            indexed: row.uint(AFTER_SESSION + 3)?,
        };
        let id = session.id;
        let count = "SELECT count(*) FROM epitome.words WHERE session = $1 AND seq BETWEEN 1 AND $2";
        let slots = format!(
            "SELECT {SLOT}, s.covered, s.due, s.ready_at, s.workspace FROM epitome.slots s WHERE s.session = $1 \
             ORDER BY s.scope, s.name"
        );
        let pipe = Pipe::new().then(count, [id.into(), columns.indexed.into()]).then(slots, [id.into()]);
        let found = self.tx.ask(pipe).await?;
        let [count, slots] = found.as_slice() else { return Ok(()) };
        if columns.check(&mut self.faults, at, session) {
            let known = count.first().map_or(Ok(0), |row| row.uint(0))?;
            columns.check_index(&mut self.faults, at, known);
        }
        self.log(at, session).await?;
        let mut check = SummaryCheck::new(at, workspace, session);
        self.summaries(id, &mut check).await?;
        let counts = why(Counts::read(get(row, SESSION_COUNTS)?))?;
        let counts = counts.unwrap_or_else(|why| {
            self.faults.unreadable(at.to_owned(), &why);
            Counts::default()
        });
        let mut all = Vec::new();
        for row in slots {
            let key = (scope_of(get(row, 0)?), get::<String>(row, 1)?);
            let read = why(slot(row))?;
            all.extend(read.as_ref().ok().map(|(slot, _)| slot.clone()));
            let read = read.map(|(slot, columns)| (counts.complete(slot), columns));
            check.slot(&mut self.faults, key, get(row, 3)?, read);
        }
        if all.len() == slots.len() && !counts.go_on_from(&all, columns.head) {
            self.faults.add(at, "its slots' counts do not go on from where their rows are");
        }
        check.finish(&mut self.faults);
        Ok(())
    }

    async fn summaries(&mut self, session: SessionId, check: &mut SummaryCheck<'_>) -> Outcome<()> {
        let mut after = SummaryId::MIN;
        loop {
            let sql = format!(
                "SELECT {SUMMARY_SHAPE} FROM epitome.summaries WHERE session = $1 AND id > $2 ORDER BY id LIMIT $3"
            );
            let found = self.ask(Pipe::new().then(sql, [session.into(), after.into(), PAGE.into()])).await?;
            for row in &found {
                after = get(row, 0)?;
                check.summary(&mut self.faults, after, why(decode::summary(row))?);
            }
            if found.len() < PAGE {
                return Ok(());
            }
        }
    }

    async fn log(&mut self, at: &str, session: &SessionRow) -> Outcome<()> {
        let mut check = LogCheck::new(at);
        let mut after = 0i64;
        'log: loop {
            let sql = format!(
                "SELECT {OUTLINE}, body, opener FROM (SELECT m.*, sum(octet_length(body)) OVER (ORDER BY seq \
                 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS ahead_of_it FROM (SELECT * FROM epitome.messages \
                 WHERE session = $1 AND seq > $2 ORDER BY seq LIMIT $3) m) p WHERE coalesce(ahead_of_it, 0) < $4 ORDER BY seq"
            );
            let given = [session.id.into(), after.into(), PAGE.into(), BYTES.into()];
            let found = self.ask(Pipe::new().then(sql, given)).await?;
            let mut bytes = 0u64;
            for row in &found {
                after = get(row, 0)?;
                bytes = bytes.saturating_add(get::<&str>(row, AFTER_OUTLINE)?.len() as u64);
                if !check.message(&mut self.faults, row.uint(0)?, why(stored(row))?) {
                    break 'log;
                }
            }
            if found.len() < PAGE && bytes < BYTES {
                break;
            }
        }
        check.finish(&mut self.faults, session);
        Ok(())
    }
}

fn stored(row: &Row) -> Outcome<Stored<'_>> {
    Ok(Stored {
        outline: outline(row)?,
        body: get(row, AFTER_OUTLINE)?,
        opener: row.uint(AFTER_OUTLINE + 1)?,
    })
}

fn slot(row: &Row) -> Outcome<(SlotRow, SlotColumns)> {
    let columns = SlotColumns {
        covered: row.uint(6)?,
        due: get(row, 7)?,
        ready_at: get(row, 8)?,
        workspace: get(row, 9)?,
    };
    Ok((decode::slot(row)?, columns))
}
