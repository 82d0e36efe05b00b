//! Writes the rows of a SQLite file into PostgreSQL piece by piece. Meanwhile all other writes to the database are
//! refused.
//!
//! The progress is stored in `epitome.moving`, in the same transaction as the rows. So a migration that continues
//! after a crash finds the copied rows, and two concurrent migrations detect each other.
//!
//! Until the migration is finished, a trigger on each table refuses the writes of other clients. So a node that is
//! already running gets an error when it writes. Without the trigger, a migration that starts over would delete the
//! node's writes. After the migration, such a node must open the store again, because its caches do not match the new
//! data.

use std::borrow::Cow;
use std::sync::Arc;

use super::super::contract::run;
use super::super::decode::RowRef;
use super::super::executor::{self, AccessMode, Executor, Op, SqlBatch};
use super::super::op_error::{OpResult, damaged};
use super::super::postgres::Postgres;
use super::super::sql::Sql;
use super::super::sql_params::SqlParam;
use super::tables::{Cells, Column, NUMBERED_TABLES, SPECS, Table, list, quoted};
use super::{Checkpoint, MigrateError, key_json};

/// The result of a migration operation, or why it was refused.
type MigrateResult<T> = OpResult<Result<T, MigrateError>>;

/// Marks the transaction as part of the migration, so that the trigger accepts its writes.
const MARK_AS_MIGRATION: &str = "SELECT set_config('epitome.moving', 'on', true)";

/// The function of the trigger. It refuses every write that is not part of the migration, also the writes of running
/// nodes that have not detected the migration yet.
const GUARD: &str = "CREATE FUNCTION epitome.being_moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
     IF current_setting('epitome.moving', true) IS DISTINCT FROM 'on' THEN \
     RAISE EXCEPTION 'a file is being migrated into this database' USING ERRCODE = 'EP001'; END IF; \
     RETURN NULL; END $$";

/// Removes the function and the triggers that use it.
const NO_GUARD: &str = "DROP FUNCTION IF EXISTS epitome.being_moved() CASCADE";

const COLUMNS: &str = "SELECT table_name::text, column_name::text, udt_name::text, is_nullable = 'YES' \
     FROM information_schema.columns WHERE table_schema = 'epitome' ORDER BY ordinal_position";

const CHECKPOINT: &str = "SELECT step, rows, last, finished FROM epitome.moving";

/// Returns the tables that are migrated, with their columns in this database.
pub(super) async fn tables(to: &Postgres) -> Result<Vec<Arc<Table>>, MigrateError> {
    let tables = run(to, AccessMode::ReadCommitted, (), |(), db| {
        Box::pin(async move {
            let read = |row: RowRef<'_>| {
                let column =
                    Column { name: row.string(1)?, type_name: row.string(2)?, nullable: row.flag(3)? };
                Ok((row.string(0)?, column))
            };
            let columns = executor::all(db, Sql::new(COLUMNS, []), read).await?;
            Ok(SPECS.iter().map(|spec| Arc::new(Table::new(spec, &columns))).collect())
        })
    });
    tables.await.map_err(MigrateError::Target)
}

/// Runs an operation that writes. If the operation refuses to write, returns the operation's reason as the error.
pub(super) async fn write<A: Send + Sync + 'static, T: Send + 'static>(
    to: &Postgres,
    args: A,
    op: Op<A, Result<T, MigrateError>>,
) -> Result<T, MigrateError> {
    run(to, AccessMode::Write, args, op).await.map_err(MigrateError::Target)?
}

/// Begins a migration of a file, or returns the checkpoint of an unfinished migration of the same file. If `restart` is
/// set, discards an unfinished migration and begins again.
pub(super) async fn begin(db: &mut dyn Executor, secret: &[u8], restart: bool) -> MigrateResult<Checkpoint> {
    let tables = || SPECS.iter().map(|table| table.name).chain(["told", "words"]);
    let all = list(tables().map(|name| format!("epitome.{}", quoted(name))));
    let any_rows: Vec<String> =
        tables().map(|name| format!("EXISTS (SELECT 1 FROM epitome.{})", quoted(name))).collect();
    let (mut progress, mut same, mut occupied) = (None, None, None);
    let reads = SqlBatch::new()
        // If another migration begins at the same time, it waits here.
        .add(Sql::new("LOCK TABLE epitome.moving IN SHARE ROW EXCLUSIVE MODE", []))
        // Other clients' writes end before this lock is granted, and the check below sees them. Later writes are
        // refused.
        .add(Sql::new(format!("LOCK TABLE {all} IN ACCESS EXCLUSIVE MODE"), []))
        .first(Sql::new(CHECKPOINT, []), &mut progress, |row| {
            Ok((checkpoint(row), row.maybe_int(3)?.is_some()))
        })
        .first(Sql::new("SELECT secret FROM epitome.secrets", []), &mut same, |row| {
            Ok(row.bytes(0)? == secret)
        })
        .first(Sql::new(format!("SELECT {}", any_rows.join(" OR ")), []), &mut occupied, |row| row.flag(0));
    db.run(reads).await?;
    match (progress, same.unwrap_or(false)) {
        (None, _) if occupied.unwrap_or(false) => return Ok(Err(MigrateError::Occupied)),
        (Some((_, true)), true) => return Ok(Err(MigrateError::Finished)),
        (Some((_, true)), false) => return Ok(Err(MigrateError::Occupied)),
        (Some((checkpoint, false)), true) if !restart => {
            return Ok(checkpoint?.ok_or(MigrateError::Concurrent));
        }
        (Some((_, false)), false) if !restart => return Ok(Err(MigrateError::OtherFile)),
        // The database is empty, or the caller requested a restart: start from the beginning.
        (None | Some(_), _) => {}
    }
    let (first, now) = (Checkpoint::default(), db.now().await?);
    let mut writes = SqlBatch::new()
        .add(Sql::new(NO_GUARD, []))
        .add(Sql::new(format!("TRUNCATE {all}"), []))
        .add(Sql::new(GUARD, []));
    for name in tables() {
        let name = quoted(name);
        let sql = format!(
            "CREATE TRIGGER being_moved BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON epitome.{name} \
             FOR EACH STATEMENT EXECUTE FUNCTION epitome.being_moved()"
        );
        writes.push(Sql::new(sql, []));
    }
    let sql = "INSERT INTO epitome.secrets (only_one, secret) VALUES (1, $1) \
         ON CONFLICT (only_one) DO UPDATE SET secret = excluded.secret";
    writes.push(Sql::new(sql, [secret.into()]));
    let sql = "INSERT INTO epitome.moving (only_one, begun, step, rows) VALUES (1, $1, $2, 0) \
         ON CONFLICT (only_one) DO UPDATE SET begun = excluded.begun, step = excluded.step, rows = 0, last = NULL";
    writes.push(Sql::new(sql, [now.into(), first.step().into()]));
    db.finish(writes).await?;
    Ok(Ok(first))
}

/// Locks the stored checkpoint, and returns whether it is equal to `at`.
async fn lock_at_checkpoint(db: &mut dyn Executor, at: &Checkpoint) -> OpResult<bool> {
    let mut read_source = None;
    let locked = Sql::new(format!("{CHECKPOINT} FOR UPDATE"), []);
    db.run(SqlBatch::new().first(locked, &mut read_source, checkpoint).add(Sql::new(MARK_AS_MIGRATION, [])))
        .await?;
    Ok(read_source.flatten().as_ref() == Some(at))
}

/// Inserts rows and advances the stored checkpoint from `from` to `to`. Refuses if the stored checkpoint is not `from`.
pub(super) async fn insert_rows(
    db: &mut dyn Executor,
    table: &Table,
    rows: &[Cells],
    (from, to): &(Checkpoint, Checkpoint),
) -> MigrateResult<()> {
    if !lock_at_checkpoint(db, from).await? {
        return Ok(Err(MigrateError::Concurrent));
    }
    let last = to.last.as_deref().map(key_json);
    let mut writes = SqlBatch::new();
    if !rows.is_empty() {
        let cells = |at: usize| rows.iter().map(move |row| row.get(at)?.as_deref().map(Cow::Borrowed));
        let params = (0..table.columns.len()).map(|at| SqlParam::NullableTexts(cells(at).collect()));
        writes.push(Sql::new(insert(table), params.collect::<Vec<_>>()));
    }
    let sql = "UPDATE epitome.moving SET step = $1, rows = $2, last = $3";
    writes.push(Sql::new(sql, [to.step().into(), to.rows.into(), last.as_deref().into()]));
    db.finish(writes).await.map(Ok)
}

/// Ends a migration whose stored checkpoint is `at`. New ids will be above `largest_ids`. From then on, clients can use
/// the database.
pub(super) async fn end(db: &mut dyn Executor, at: &Checkpoint, largest_ids: &[i64]) -> MigrateResult<()> {
    if !lock_at_checkpoint(db, at).await? {
        return Ok(Err(MigrateError::Concurrent));
    }
    let mut writes = SqlBatch::new();
    for ((table, column), largest) in NUMBERED_TABLES.iter().zip(largest_ids) {
        let sql = format!(
            "SELECT setval(pg_get_serial_sequence('epitome.{table}', '{column}'), greatest($1::bigint, 1), \
             $1::bigint > 0)"
        );
        writes.push(Sql::new(sql, [(*largest).into()]));
    }
    let sql = "UPDATE epitome.moving SET finished = $1";
    let finished = Sql::new(sql, [db.now().await?.into()]);
    db.finish(writes.add(Sql::new(NO_GUARD, [])).add(finished)).await.map(Ok)
}

/// Updates the planner's statistics, so that the first queries get good plans. Otherwise PostgreSQL would do this
/// later.
pub(super) async fn analyze(to: &Postgres) {
    for table in SPECS {
        let analyze = run(to, AccessMode::ReadCommitted, table.name, |name, db| {
            let analyze = Sql::new(format!("ANALYZE epitome.{}", quoted(name)), []);
            Box::pin(async move { db.run(SqlBatch::new().add(analyze)).await })
        });
        let _ = analyze.await;
    }
}

/// Reads the checkpoint of a migration; `None` if it is finished.
fn checkpoint(row: RowRef<'_>) -> OpResult<Option<Checkpoint>> {
    if row.maybe_int(3)?.is_some() {
        return Ok(None);
    }
    let unreadable = || damaged("the checkpoint of the migration cannot be read");
    let last = row.maybe_text(2)?.map(serde_json::from_str).transpose().map_err(|_| unreadable())?;
    let (step, mut steps) = (row.text(0)?, SPECS.iter().map(|table| table.name).chain([""]));
    let table = steps.position(|name| name == step).ok_or_else(unreadable)?;
    Ok(Some(Checkpoint { table, rows: row.uint(1)?, last }))
}

/// Returns the insert statement. It takes every column as an array of texts, which PostgreSQL converts to the column's
/// type.
fn insert(table: &Table) -> String {
    let names = table.columns.iter().map(|column| column.name.as_str());
    let names = list(names.chain(table.spec.postgres_only.iter().map(|(name, _)| *name)).map(quoted));
    let postgres_only: String =
        table.spec.postgres_only.iter().map(|(_, value)| format!(", {value}")).collect();
    let arrays = table.columns.iter().enumerate();
    let arrays = list(arrays.map(|(at, column)| format!("${}::text[]::{}[]", at + 1, column.type_name)));
    let name = quoted(table.spec.name);
    format!("INSERT INTO epitome.{name} ({names}) SELECT *{postgres_only} FROM unnest({arrays})")
}
