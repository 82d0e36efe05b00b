//! Where a SQLite file is moved to: its rows taken in piece by piece, and read again to be compared.
//!
//! How far it is stands in `epitome.moving`, and is written in the transaction that writes the rows. So whoever goes on
//! after a crash knows what is here, and two that move at once notice one another.
//!
//! Until it is finished nobody else writes: tables have a guard that refuses it, so that also a node that was there before
//! is told, and cannot lose what it wrote when a move is begun anew. Nor does it go on afterwards without being opened
//! again: what it remembers is of another database.

use std::borrow::Cow;
use std::sync::Arc;

use tokio_postgres::Row;

use super::super::error::StoreError;
use super::super::given::Given;
use super::super::moving::{
    Cell, Cells, Column, Mark, MoveError, NUMBERED, SPECS, Table, list, noted, quoted,
};
use super::error::{Outcome, nonsense};
use super::pipe::Pipe;
use super::rows::get;
use super::tx::Tx;
use super::{Postgres, PostgresOptions, again};

/// What stood before a step, or why it is not taken.
type Step<T> = Outcome<Result<T, MoveError>>;

/// Says that it is the move itself that writes.
const IT_IS_ME: &str = "SELECT set_config('epitome.moving', 'on', true)";

/// Keeps everybody else from writing, also nodes that run and have not heard of it.
const GUARD: &str = "CREATE FUNCTION epitome.being_moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
     IF current_setting('epitome.moving', true) IS DISTINCT FROM 'on' THEN \
     RAISE EXCEPTION 'a file is being moved into this database' USING ERRCODE = 'EP001'; END IF; \
     RETURN NULL; END $$";

/// Takes that back, on all tables.
const NO_GUARD: &str = "DROP FUNCTION IF EXISTS epitome.being_moved() CASCADE";

const COLUMNS: &str = "SELECT table_name::text, column_name::text, udt_name::text, is_nullable = 'YES' \
     FROM information_schema.columns WHERE table_schema = 'epitome' ORDER BY ordinal_position";

const MARK: &str = "SELECT step, rows, last, finished FROM epitome.moving";

impl Postgres {
    /// The store, for whoever moves a file into it: nothing runs beside it, and what is half moved is no hindrance.
    pub(in crate::store) async fn open_to_move(
        url: &str,
        options: PostgresOptions,
    ) -> Result<Self, StoreError> {
        Self::reach(url, options).await.map(|(store, _)| store)
    }

    /// The tables that are moved, with the columns they have here.
    pub(in crate::store) async fn tables(&self) -> Result<Vec<Arc<Table>>, MoveError> {
        again!(self, self.tables_once()).map_err(MoveError::Target)
    }

    async fn tables_once(&self) -> Outcome<Vec<Arc<Table>>> {
        let found = self.once(Pipe::new().then(COLUMNS, [])).await?;
        let rows = found.first().map(Vec::as_slice).unwrap_or_default();
        let mut tables = Vec::new();
        for spec in SPECS {
            let mut columns = Vec::new();
            for row in rows {
                if get::<&str>(row, 0)? == spec.name {
                    columns.push(Column { name: get(row, 1)?, kind: get(row, 2)?, nullable: get(row, 3)? });
                }
            }
            tables.push(Arc::new(Table::new(spec, columns)));
        }
        Ok(tables)
    }

    /// Begins a move, or finds out where one of the same file stands.
    pub(in crate::store) async fn begin_move(&self, secret: &[u8], anew: bool) -> Result<Mark, MoveError> {
        again!(self, self.begin_move_once(secret, anew)).map_err(MoveError::Target)?
    }

    async fn begin_move_once(&self, secret: &[u8], anew: bool) -> Step<Mark> {
        let tables = || SPECS.iter().map(|table| table.name).chain(["told", "words"]);
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
        table: &Table,
        rows: &[Cells],
        marks: (&Mark, &Mark),
    ) -> Result<(), MoveError> {
        again!(self, self.take_in_once(table, rows, marks)).map_err(MoveError::Target)?
    }

    async fn take_in_once(&self, table: &Table, rows: &[Cells], (from, to): (&Mark, &Mark)) -> Step<()> {
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
            let cells = |at: usize| rows.iter().map(move |row| row.get(at)?.as_deref().map(Cow::Borrowed));
            let given = (0..table.columns.len()).map(|at| Given::MaybeTexts(cells(at).collect()));
            writes.push_all(insert(table), given.collect());
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
        table: &Table,
        after: Option<&[Cell]>,
        through: Option<&[Cell]>,
        limit: usize,
    ) -> Result<Vec<Cells>, MoveError> {
        again!(self, self.taken_in_once(table, after, through, limit)).map_err(MoveError::Target)?
    }

    async fn taken_in_once(
        &self,
        table: &Table,
        after: Option<&[Cell]>,
        through: Option<&[Cell]>,
        limit: usize,
    ) -> Step<Vec<Cells>> {
        let key = table.key_list();
        let columns = list(table.columns.iter().map(|Column { name, kind, .. }| match kind.as_str() {
            // Whichever form the database is set to.
            "bytea" => format!("'\\x' || encode({}, 'hex')", quoted(name)),
            _ => format!("{}::text", quoted(name)),
        }));
        let (mut wanted, mut given): (String, Vec<Given<'_>>) = ("true".to_owned(), Vec::new());
        for (sign, bound) in [(">", after), ("<=", through)] {
            let Some(bound) = bound else { continue };
            let places = bound.iter().zip(&table.columns).enumerate();
            let places = list(
                places.map(|(at, (_, column))| format!("${}::text::{}", given.len() + at + 1, column.kind)),
            );
            wanted = format!("{wanted} AND ({key}) {sign} ({places})");
            given.extend(bound.iter().map(|cell| Given::Text(cell.as_deref().map(Cow::Borrowed))));
        }
        given.push(limit.into());
        let (name, place) = (quoted(table.spec.name), given.len());
        let sql = format!(
            "SELECT {columns} FROM epitome.{name} AS moved WHERE {wanted} ORDER BY {key} LIMIT ${place}"
        );
        let mut pipe = Pipe::new();
        pipe.push_all(sql, given);
        let found = self.once(pipe).await?;
        let rows = found.first().map(Vec::as_slice).unwrap_or_default();
        let cells = |row: &Row| (0..table.columns.len()).map(|at| get(row, at)).collect();
        rows.iter().map(cells).collect::<Outcome<Vec<Cells>>>().map(Ok)
    }

    /// Ends a move: whatever is numbered goes on after these numbers, and the database may be used.
    pub(in crate::store) async fn end_move(&self, at: &Mark, numbers: &[i64]) -> Result<(), MoveError> {
        again!(self, self.end_move_once(at, numbers)).map_err(MoveError::Target)??;
        // So that the first questions are answered in the right way. It is done by itself sooner or later.
        for table in SPECS {
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
    let unreadable = || nonsense("how far a move is cannot be read");
    let last = last.map(serde_json::from_str).transpose().map_err(|_| unreadable())?;
    Mark::read(step, rows, last).map(Some).ok_or_else(unreadable)
}

/// Takes every column as an array of texts, which PostgreSQL reads by the column's type.
fn insert(table: &Table) -> String {
    let names = table.columns.iter().map(|column| column.name.as_str());
    let names = list(names.chain(table.spec.own.iter().map(|(name, _)| *name)).map(quoted));
    let own: String = table.spec.own.iter().map(|(_, value)| format!(", {value}")).collect();
    let arrays = table.columns.iter().enumerate();
    let arrays = list(arrays.map(|(at, column)| format!("${}::text[]::{}[]", at + 1, column.kind)));
    let name = quoted(table.spec.name);
    format!("INSERT INTO epitome.{name} ({names}) SELECT *{own} FROM unnest({arrays})")
}
