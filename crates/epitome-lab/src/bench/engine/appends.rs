//! Measures durable appends. The baseline is a bare loop that inserts rows into a table with the same schema.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use epitome::Engine;
use epitome::Error;
use epitome::store::StoreError;
use rusqlite::{Connection, OpenFlags, params};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::spread::median;
use super::{OnProgress, Progress, ResultLine, invalid, messages, remove};

/// Number of concurrent tasks. Each task appends its next message when its previous message is durable.
const TASKS: usize = 16;

/// Minimum throughput of the engine, as a share of the bare loop's throughput.
const TARGET_RATIO: f64 = 0.7;

/// Results for durable appends of single messages. 16 tasks append, and each task has its own session.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EngineAppends {
    /// Rows per second through `Session::append`, which also checks triggers and updates slots. No summary is written.
    pub rows_per_second: f64,
    /// Rows per second through the bare loop. One thread inserts the same messages into the same table of another file,
    /// and commits all waiting messages in one transaction. The thread reads and writes nothing else.
    pub bare_rows_per_second: f64,
    /// The engine's rate divided by the bare loop's rate. The value is the median of this ratio over all rounds.
    pub ratio: f64,
    /// Number of rounds.
    pub rounds: usize,
}

impl EngineAppends {
    pub(super) fn line(&self) -> ResultLine {
        let figure = format!(
            "{:.0}/s, {:.2}× a bare SQLite loop ({:.0}/s)",
            self.rows_per_second, self.ratio, self.bare_rows_per_second
        );
        ResultLine::new("durable appends, 16 tasks", figure, ">= 0.70×", Some(self.ratio >= TARGET_RATIO))
    }
}

/// Measures appends to databases in `dir`. In each of `rounds` rounds, the engine and the bare loop each append `rows`
/// rows.
pub async fn appends(
    dir: &Path,
    rounds: usize,
    rows: usize,
    on_progress: OnProgress<'_>,
) -> Result<EngineAppends, Error> {
    let (engine_file, bare_file) = (dir.join("appends.db"), dir.join("bare.db"));
    // The engine creates the bare loop's database, so both databases have the same schema.
    Engine::builder().workers(0).open(&bare_file).await?.close().await;
    let engine = Engine::builder().workers(0).open(&engine_file).await?;
    let bare = BareWriter::start(&bare_file)?;
    let each = rows.div_ceil(TASKS);
    let total = rounds.max(1) as u64;
    let (mut engine_rates, mut bare_rates, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    // The first round only warms up.
    for round in 0..=total {
        on_progress(Progress { stage: "durable appends", done: round, of: total });
        // The order alternates: otherwise either the engine or the bare loop would always start with an idle disk.
        let (engine_rate, bare_rate) = if round % 2 == 0 {
            let rate = through_engine(&engine, each).await?;
            wait_until_indexed(&engine_file).await?;
            (rate, bare.round(round, each).await?)
        } else {
            let rate = bare.round(round, each).await?;
            (through_engine(&engine, each).await?, rate)
        };
        wait_until_indexed(&engine_file).await?;
        if round > 0 {
            ratios.push(engine_rate / bare_rate);
            engine_rates.push(engine_rate);
            bare_rates.push(bare_rate);
        }
    }
    engine.close().await;
    drop(bare);
    remove(&engine_file);
    remove(&bare_file);
    Ok(EngineAppends {
        rows_per_second: median(engine_rates),
        bare_rows_per_second: median(bare_rates),
        ratio: median(ratios),
        rounds: rounds.max(1),
    })
}

/// Waits until the engine has updated the search index. The engine updates the index when no append is waiting. Without
/// this wait, the update would slow down the next measurement.
pub async fn wait_until_indexed(path: &Path) -> Result<(), Error> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    let sql = "SELECT count(*) FROM sessions WHERE indexed < head";
    for _ in 0..1_000 {
        if db.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(failed)? == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: rusqlite::Error) -> Error {
    Error::Store(StoreError::Failed { reason: error.to_string() })
}

/// Appends `each` messages per task through the engine. Returns the rows per second of all tasks together.
async fn through_engine(engine: &Engine, each: usize) -> Result<f64, Error> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let session = engine.session(format!("task {task}"));
        tasks.spawn(async move {
            for n in 0..each as u64 {
                session.append(messages::short_message(n)).await?;
            }
            Ok::<_, Error>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.map_err(|_| Error::Closed)??;
    }
    Ok(rate(each, started))
}

fn rate(each: usize, started: Instant) -> f64 {
    (each * TASKS) as f64 / started.elapsed().as_secs_f64()
}

/// A message that the bare loop inserts.
struct Row {
    session: i64,
    seq: i64,
    body: String,
    done: oneshot::Sender<bool>,
}

/// The simplest loop with group commit: one thread, one channel, one transaction for all waiting messages.
struct BareWriter {
    rows: SyncSender<Row>,
}

impl BareWriter {
    fn start(path: &Path) -> Result<Self, Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(path, flags).map_err(failed)?;
        // The file is already in WAL mode.
        db.execute_batch("PRAGMA synchronous = FULL; PRAGMA cache_size = -8192").map_err(failed)?;
        let (rows, waiting) = sync_channel(1_024);
        std::thread::Builder::new()
            .name("epitome-bare".to_owned())
            .spawn(move || write(&db, &waiting))
            .map_err(|error| StoreError::Failed { reason: error.to_string() })?;
        Ok(Self { rows })
    }

    /// Inserts `each` messages per task with the bare loop. Returns the rows per second of all tasks together.
    async fn round(&self, round: u64, each: usize) -> Result<f64, Error> {
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let rows = self.rows.clone();
            let session = i64::try_from(task).unwrap_or(0);
            let first = i64::try_from(round).unwrap_or(0).saturating_mul(1 << 32);
            tasks.spawn(async move {
                for n in 0..each as u64 {
                    let message = messages::short_message(n);
                    let body = messages::body_json(&message).map_err(invalid)?;
                    let (done, committed) = oneshot::channel();
                    let seq = first.saturating_add(i64::try_from(n).unwrap_or(0));
                    // The channel is never full: it has more capacity than there are tasks.
                    rows.send(Row { session, seq, body, done }).map_err(|_| Error::Closed)?;
                    if !committed.await.unwrap_or(false) {
                        return Err(Error::Store(StoreError::Failed {
                            reason: "the bare loop failed".to_owned(),
                        }));
                    }
                }
                Ok::<_, Error>(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.map_err(|_| Error::Closed)??;
        }
        Ok(rate(each, started))
    }
}

fn write(db: &Connection, waiting: &Receiver<Row>) {
    while let Ok(first) = waiting.recv() {
        let mut batch = vec![first];
        batch.extend(waiting.try_iter().take(127));
        let committed = commit(db, &batch).is_ok();
        for row in batch {
            // Sending fails if the task was dropped, and then no task needs the result.
            let _ = row.done.send(committed);
        }
    }
}

fn commit(db: &Connection, rows: &[Row]) -> rusqlite::Result<()> {
    db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let sql = "INSERT INTO messages (session, seq, role, author, turn, tokens, before, chars, longest, calls, answers, \
         own_answers, open, own_open, shape, pinned, skip, cut, own_cut, opener, at, created, body) \
         VALUES (?1,?2,2,NULL,1,?3,?3,?3,?3,0,0,0,0,0,0,0,0,2,2,1,?3,?3,?4)";
    let mut insert = db.prepare_cached(sql)?;
    for row in rows {
        let chars = i64::try_from(row.body.len()).unwrap_or(0);
        insert.execute(params![row.session, row.seq, chars, row.body])?;
    }
    db.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}
