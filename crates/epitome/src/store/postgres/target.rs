//! Where a SQLite file is moved to: its rows taken in piece by piece, and read again to be compared.
//!
//! How far it is stands in `epitome.moving`, and is written in the transaction that writes the rows. So whoever goes on
//! after a crash knows what is here, and two that move at once notice one another.
//!
//! Until it is finished nobody else writes: tables have a guard that refuses it, so that also a node that was there before
//! is told, and cannot lose what it wrote when a move is begun anew. Nor does it go on afterwards without being opened
//! again: what it remembers is of another database.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use tokio_postgres::Row;

use super::super::error::StoreError;
use super::super::given::Given;
use super::super::moving::{
    Cell, Cells, Kind, Mark, MoveError, NUMBERED, TABLES, Table, list, noted, quoted, read_noted,
};
use super::error::{Outcome, Trouble, nonsense};
use super::pipe::Pipe;
use super::rows::get;
use super::tx::Tx;
use super::{Postgres, PostgresOptions, again};

/// What stood before a step, or why it is not taken.
type Step<T> = Outcome<Result<T, MoveError>>;

/// What the database answers to whoever writes while a file is moved into it.
pub(super) const IS_MOVING: &str = "EP001";

/// Says that it is the move itself that writes.
const IT_IS_ME: &str = "SELECT set_config('epitome.moving', 'on', true)";

/// Keeps everybody else from writing, also nodes that run and have not heard of it.
const GUARD: &str = "CREATE FUNCTION epitome.being_moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
     IF current_setting('epitome.moving', true) IS DISTINCT FROM 'on' THEN \
     RAISE EXCEPTION 'a file is being moved into this database' USING ERRCODE = 'EP001'; END IF; \
     RETURN NULL; END $$";

/// Takes that back, on all tables.
const NO_GUARD: &str = "DROP FUNCTION IF EXISTS epitome.being_moved() CASCADE";

const MARK: &str = "SELECT step, rows, last, finished FROM epitome.moving";

impl Postgres {
    /// The store, for whoever moves a file into it: nothing runs beside it, and what is half moved is no hindrance.
    pub(in crate::store) async fn open_to_move(
        url: &str,
        options: PostgresOptions,
    ) -> Result<Self, StoreError> {
        Self::reach(url, options).await.map(|(store, _)| store)
    }

    /// An error where a move into it was begun and is not finished. Gives when the last one began.
    pub(super) async fn refuse_half_moved(&self) -> Result<Option<i64>, StoreError> {
        let last: Result<_, StoreError> = again!(self, self.last_move());
        let last = last?;
        if last.is_some_and(|(_, finished)| !finished) {
            let reason = "a SQLite file is being moved into it, and that is not finished; let `epitome migrate` go on \
                          until it is"
                .to_owned();
            return Err(StoreError::Unreachable { path: self.place.to_string(), reason });
        }
        Ok(last.map(|(begun, _)| begun))
    }

    /// When the last move into it began, and whether it is finished.
    async fn last_move(&self) -> Outcome<Option<(i64, bool)>> {
        let found =
            self.once(Pipe::new().then("SELECT begun, finished IS NOT NULL FROM epitome.moving", [])).await?;
        let row = found.first().and_then(|rows| rows.first());
        row.map(|row| Ok((get(row, 0)?, get(row, 1)?))).transpose()
    }

    /// An error where a move was begun since it was opened. Whoever writes meanwhile notices by itself; this is for whoever
    /// only reads, or was asleep.
    pub(super) async fn look_for_a_move(&self) -> Outcome<()> {
        if self.last_move().await?.map(|(begun, _)| begun) == self.moved {
            return Ok(());
        }
        self.noticed.moved.store(true, Ordering::Release);
        Err(Trouble::Moving)
    }

    /// Begins a move, or finds out where one of the same file stands.
    pub(in crate::store) async fn begin_move(&self, secret: &[u8], anew: bool) -> Result<Mark, MoveError> {
        again!(self, self.begin_move_once(secret, anew)).map_err(MoveError::Target)?
    }

    async fn begin_move_once(&self, secret: &[u8], anew: bool) -> Step<Mark> {
        let tables = || TABLES.iter().map(|table| table.name).chain(["told", "words"]);
        let all = list(tables().map(|name| format!("epitome.{}", quoted(name))));
        let used: Vec<String> =
            tables().map(|name| format!("EXISTS (SELECT 1 FROM epitome.{})", quoted(name))).collect();
        let used = format!("SELECT {}", used.join(" OR "));
        let reads = Pipe::new()
            // Whoever else begins one waits here.
            .then("LOCK TABLE epitome.moving IN SHARE ROW EXCLUSIVE MODE", [])
            // And here whoever uses it: what they write comes before it is looked at, or is refused.
            .then(format!("LOCK TABLE {all} IN ACCESS EXCLUSIVE MODE"), [])
            .then(MARK, [])
            .then("SELECT secret FROM epitome.secrets", [])
            .then(used, []);
        let (tx, found) = Tx::write(self, reads).await?;
        let [_, _, under_way, secrets, used] = found.as_slice() else {
            return Err(nonsense("an answer is missing"));
        };
        let used: bool = used.first().map_or(Ok(false), |row| get(row, 0))?;
        let same =
            secrets.first().map_or(Ok(false), |row| get::<&[u8]>(row, 0).map(|known| known == secret))?;
        let refused = match under_way.first() {
            None if used => Some(MoveError::Occupied),
            None => None,
            Some(row) => match (get::<Option<i64>>(row, 3)?, same) {
                (Some(_), true) => Some(MoveError::Finished),
                (Some(_), false) => Some(MoveError::Occupied),
                (None, true) if !anew => {
                    let mark = mark(row)?;
                    tx.give_up().await?;
                    return Ok(mark.ok_or(MoveError::Contended));
                }
                (None, false) if !anew => Some(MoveError::Another),
                // Begun anew, whichever file it was.
                (None, _) => None,
            },
        };
        if let Some(refused) = refused {
            tx.give_up().await?;
            return Ok(Err(refused));
        }
        let first = Mark::first();
        let now = tx.now;
        let mut writes = Pipe::new().then(NO_GUARD, []).then(format!("TRUNCATE {all}"), []).then(GUARD, []);
        for name in tables() {
            let name = quoted(name);
            let sql = format!(
                "CREATE TRIGGER being_moved BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON epitome.{name} \
                 FOR EACH STATEMENT EXECUTE FUNCTION epitome.being_moved()"
            );
            writes.push(sql, []);
        }
        let writes = writes
            .then(
                "INSERT INTO epitome.secrets (only_one, secret) VALUES (1, $1) \
                 ON CONFLICT (only_one) DO UPDATE SET secret = excluded.secret",
                [secret.into()],
            )
            .then(
                "INSERT INTO epitome.moving (only_one, begun, step, rows) VALUES (1, $1, $2, 0) \
                 ON CONFLICT (only_one) DO UPDATE SET begun = excluded.begun, step = excluded.step, rows = 0, last = NULL",
                [now.into(), first.step().into()],
            );
        tx.commit(writes).await?;
        Ok(Ok(first))
    }

    /// Takes rows in, if all is as it was left: then it stands at the second mark.
    pub(in crate::store) async fn take_in(
        &self,
        table: &'static Table,
        rows: &[Cells],
        marks: (&Mark, &Mark),
    ) -> Result<(), MoveError> {
        again!(self, self.take_in_once(table, rows, marks)).map_err(MoveError::Target)?
    }

    async fn take_in_once(
        &self,
        table: &'static Table,
        rows: &[Cells],
        (from, to): (&Mark, &Mark),
    ) -> Step<()> {
        let locked = format!("{MARK} FOR UPDATE");
        let (tx, found) = Tx::write(self, Pipe::new().then(locked, []).then(IT_IS_ME, [])).await?;
        let row = found.first().and_then(|rows| rows.first());
        let here = row.map(mark).transpose()?.flatten();
        if here.as_ref() != Some(from) {
            tx.give_up().await?;
            return Ok(Err(MoveError::Contended));
        }
        let mut writes = Pipe::new();
        if !rows.is_empty() {
            let given = table.columns.iter().enumerate();
            let given =
                given.map(|(at, column)| column_of(column.kind, at, rows)).collect::<Option<Vec<_>>>();
            writes.push_all(insert(table), given.ok_or_else(|| nonsense("a row is not of its table"))?);
        }
        let last = to.last.as_deref().map(noted);
        writes.push(
            "UPDATE epitome.moving SET step = $1, rows = $2, last = $3",
            [to.step().into(), to.rows.into(), last.as_deref().into()],
        );
        tx.commit(writes).await?;
        Ok(Ok(()))
    }

    /// The rows after one key and up to another, at most so many.
    pub(in crate::store) async fn taken_in(
        &self,
        table: &'static Table,
        after: Option<&[Cell]>,
        through: Option<&[Cell]>,
        limit: usize,
    ) -> Result<Vec<Cells>, MoveError> {
        again!(self, self.taken_in_once(table, after, through, limit)).map_err(MoveError::Target)?
    }

    async fn taken_in_once(
        &self,
        table: &'static Table,
        after: Option<&[Cell]>,
        through: Option<&[Cell]>,
        limit: usize,
    ) -> Step<Vec<Cells>> {
        let key = table.key_list();
        let columns = list(table.columns.iter().map(|column| quoted(column.name)));
        let (mut wanted, mut given): (Vec<String>, Vec<Given<'_>>) = (Vec::new(), Vec::new());
        for (sign, bound) in [(">", after), ("<=", through)] {
            let Some(bound) = bound else { continue };
            let places = list((1..=bound.len()).map(|at| format!("${}", given.len() + at)));
            wanted.push(format!("({key}) {sign} ({places})"));
            given.extend(bound.iter().zip(table.key()).map(|(cell, column)| one(cell, column.kind)));
        }
        let wanted =
            if wanted.is_empty() { String::new() } else { format!("WHERE {}", wanted.join(" AND ")) };
        given.push(limit.into());
        let (name, place) = (quoted(table.name), given.len());
        let sql = format!("SELECT {columns} FROM epitome.{name} {wanted} ORDER BY {key} LIMIT ${place}");
        let mut pipe = Pipe::new();
        pipe.push_all(sql, given);
        let found = self.once(pipe).await?;
        let rows = found.first().map(Vec::as_slice).unwrap_or_default();
        rows.iter().map(|row| cells(table, row)).collect::<Outcome<Vec<_>>>().map(Ok)
    }

    /// Ends a move: whatever is numbered goes on after these numbers, and the database may be used.
    pub(in crate::store) async fn end_move(&self, at: &Mark, numbers: &[i64]) -> Result<(), MoveError> {
        again!(self, self.end_move_once(at, numbers)).map_err(MoveError::Target)??;
        // So that the first questions are answered in the right way. It is done by itself sooner or later.
        for table in TABLES {
            let _ = self.once(Pipe::new().then(format!("ANALYZE epitome.{}", quoted(table.name)), [])).await;
        }
        Ok(())
    }

    async fn end_move_once(&self, at: &Mark, numbers: &[i64]) -> Step<()> {
        let (tx, found) = Tx::write(self, Pipe::new().then(format!("{MARK} FOR UPDATE"), [])).await?;
        let row = found.first().and_then(|rows| rows.first());
        if row.map(mark).transpose()?.flatten().as_ref() != Some(at) {
            tx.give_up().await?;
            return Ok(Err(MoveError::Contended));
        }
        let mut writes = Pipe::new();
        for ((table, column), largest) in NUMBERED.iter().zip(numbers) {
            let sql = format!(
                "SELECT setval(pg_get_serial_sequence('epitome.{table}', '{column}'), greatest($1::bigint, 1), \
                 $1::bigint > 0)"
            );
            writes.push(sql, [(*largest).into()]);
        }
        writes.push(NO_GUARD, []);
        writes.push("UPDATE epitome.moving SET finished = $1", [tx.now.into()]);
        tx.commit(writes).await?;
        Ok(Ok(()))
    }
}

/// Where a move stands; none where it is finished.
fn mark(row: &Row) -> Outcome<Option<Mark>> {
    if get::<Option<i64>>(row, 3)?.is_some() {
        return Ok(None);
    }
    let (step, rows, last) = (get::<&str>(row, 0)?, get::<i64>(row, 1)?, get::<Option<&str>>(row, 2)?);
    let last = match last {
        None => None,
        Some(text) => Some(read_noted(text).ok_or_else(|| nonsense("how far a move is cannot be read"))?),
    };
    let mark = Mark::read(step, rows, last);
    mark.map(Some).ok_or_else(|| nonsense("how far a move is cannot be read"))
}

fn insert(table: &Table) -> String {
    let (own, value) = table.own.map_or((String::new(), String::new()), |(name, value)| {
        (format!(", {}", quoted(name)), format!(", {value}"))
    });
    let columns = list(table.columns.iter().map(|column| quoted(column.name)));
    let arrays = table.columns.iter().enumerate();
    let arrays = list(arrays.map(|(at, column)| format!("${}::{}", at + 1, column.kind.array())));
    let name = quoted(table.name);
    format!("INSERT INTO epitome.{name} ({columns}{own}) SELECT *{value} FROM unnest({arrays})")
}

/// One column of many rows; none where a value is not of its kind.
fn column_of(kind: Kind, at: usize, rows: &[Cells]) -> Option<Given<'_>> {
    let cells = rows.iter().map(|row| row.get(at));
    let int = |cell: Option<&Cell>| cell.and_then(Cell::int);
    Some(match kind {
        Kind::Int => Given::Ints(cells.map(int).collect::<Option<_>>()?),
        Kind::MaybeInt => Given::MaybeInts(cells.map(int).collect()),
        Kind::Middling => {
            Given::Middling(cells.map(|cell| i32::try_from(int(cell)?).ok()).collect::<Option<_>>()?)
        }
        Kind::Small => Given::Small(cells.map(|cell| i16::try_from(int(cell)?).ok()).collect::<Option<_>>()?),
        Kind::Bool => Given::Bools(cells.map(|cell| Some(int(cell)? != 0)).collect::<Option<_>>()?),
        Kind::Text => Given::Texts(cells.map(|cell| cell?.text().map(Cow::Borrowed)).collect::<Option<_>>()?),
        Kind::MaybeText => Given::MaybeTexts(cells.map(|cell| cell?.text().map(Cow::Borrowed)).collect()),
        Kind::Bytes => {
            Given::Blobs(cells.map(|cell| cell?.bytes().map(Cow::Borrowed)).collect::<Option<_>>()?)
        }
    })
}

/// One value of a key.
fn one(cell: &Cell, kind: Kind) -> Given<'_> {
    match (cell, kind) {
        (Cell::Int(value), Kind::Bool) => (*value != 0).into(),
        (Cell::Int(value), _) => (*value).into(),
        (Cell::Text(text), _) => text.as_str().into(),
        (Cell::Bytes(bytes), _) => bytes.as_slice().into(),
        (Cell::Null, _) => Given::Int(None),
    }
}

/// A row as it is compared.
fn cells(table: &Table, row: &Row) -> Outcome<Cells> {
    let value = |(at, column): (usize, &super::super::moving::Column)| {
        Ok(match column.kind {
            Kind::Int => Cell::Int(get(row, at)?),
            Kind::MaybeInt => get::<Option<i64>>(row, at)?.map_or(Cell::Null, Cell::Int),
            Kind::Middling => Cell::Int(get::<i32>(row, at)?.into()),
            Kind::Small => Cell::Int(get::<i16>(row, at)?.into()),
            Kind::Bool => Cell::Int(get::<bool>(row, at)?.into()),
            Kind::Text => Cell::Text(get(row, at)?),
            Kind::MaybeText => get::<Option<String>>(row, at)?.map_or(Cell::Null, Cell::Text),
            Kind::Bytes => Cell::Bytes(get(row, at)?),
        })
    };
    table.columns.iter().enumerate().map(value).collect()
}
