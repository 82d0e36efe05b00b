//! Opening a file: whose is it, is it whole, is it of our time.
//!
//! Nothing is altered before the file is known to be ours, or empty.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior, params};

use super::super::error::StoreError;
use super::error::{Outcome, Trouble, nonsense, refused};
use super::options::SqliteOptions;

/// `EPIT`: what SQLite's header says of whose file it is.
const APPLICATION: i64 = 0x4550_4954;

/// The schema, step by step. A step that was released is never changed.
const MIGRATIONS: &[(&str, &str)] = &[
    ("0001_sessions", include_str!("../../../migrations/sqlite/0001_sessions.sql")),
    ("0002_summary_numbers", include_str!("../../../migrations/sqlite/0002_summary_numbers.sql")),
    ("0003_events_and_keys", include_str!("../../../migrations/sqlite/0003_events_and_keys.sql")),
    ("0004_revisions", include_str!("../../../migrations/sqlite/0004_revisions.sql")),
    ("0005_people", include_str!("../../../migrations/sqlite/0005_people.sql")),
    ("0006_inline", include_str!("../../../migrations/sqlite/0006_inline.sql")),
    ("0007_turns", include_str!("../../../migrations/sqlite/0007_turns.sql")),
    ("0008_attributes", include_str!("../../../migrations/sqlite/0008_attributes.sql")),
];

/// Up to this size every page is looked at when a file is opened.
const SMALL: u64 = 64 << 20;

/// A database has at least one page, and a page has at least so many bytes.
const SMALLEST: u64 = 512;

const MIB: i64 = 1 << 10;

/// Opens the file for the writer, and brings its schema up to date.
///
/// Files of up to 64 MiB are looked through by `quick_check`. Larger ones would take seconds, so there only
/// the header and the schema are read, the file's length is held against what the header says, and the newest
/// rows are read; the rest is left to `verify`.
pub(super) fn writer(path: &Path, options: &SqliteOptions) -> Result<Connection, StoreError> {
    reachable(path)?;
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // Another process takes the first steps, and a step came in between.
    let opened = patiently(options.busy, ErrorCode::SchemaChanged, || {
        let db = Connection::open_with_flags(path, flags);
        prepare(db.map_err(|error| refine(error.into(), path, false))?, path, options)
    });
    opened.map_err(|trouble| refine(trouble, path, true))
}

/// Does it again for as long as SQLite has this against it, which it does not wait for by itself.
fn patiently<T>(busy: Duration, code: ErrorCode, mut once: impl FnMut() -> Outcome<T>) -> Outcome<T> {
    let until = Instant::now() + busy;
    loop {
        match once() {
            Err(Trouble::Sql(error)) if error.sqlite_error_code() == Some(code) && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

/// Opens a file that may only be read, where it is whole and nobody has it open: such a one does not change, and needs
/// no files beside it. Where somebody has it open, what is newest is in their log, and the reason why it could not be
/// opened to be written stands.
pub(super) fn lasting(
    path: &Path,
    options: &SqliteOptions,
    reason: StoreError,
) -> Result<Connection, StoreError> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if !path.is_file() || Path::new(&log).exists() {
        return Err(reason);
    }
    match unchanging(path, options).and_then(|db| Ok((steps(&db, path)?, db))) {
        Ok((steps, db)) if steps == MIGRATIONS.len() => Ok(db),
        // It would have to be brought up to date first.
        Ok(_) => Err(reason),
        Err(trouble) => Err(refine(trouble, path, true)),
    }
}

/// A connection to a file that nobody changes.
pub(super) fn unchanging(path: &Path, options: &SqliteOptions) -> Outcome<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    // What has a meaning in an address is written by its number.
    let spelled: String = path
        .to_string_lossy()
        .chars()
        .map(|c| if matches!(c, '?' | '#' | '%') { format!("%{:02X}", u32::from(c)) } else { c.to_string() })
        .collect();
    let db = Connection::open_with_flags(format!("file:{spelled}?immutable=1"), flags)?;
    settle(&db, options, 2)?;
    Ok(db)
}

/// A store that lives as long as the process.
pub(super) fn memory(options: &SqliteOptions) -> Result<Connection, StoreError> {
    let name = Path::new(":memory:");
    let opened = Connection::open_in_memory().map_err(Trouble::from).and_then(|mut db| {
        settle(&db, options, 8)?;
        migrate(&mut db, name, options)?;
        Ok(db)
    });
    opened.map_err(|trouble| trouble.at(name))
}

/// A connection that only reads.
pub(super) fn reader(path: &Path, options: &SqliteOptions) -> Outcome<Connection> {
    let db = plain(path, options)?;
    db.execute_batch("PRAGMA query_only = ON")?;
    Ok(db)
}

/// Opens a file that is only to be read, in whichever way it can be. It must be of this release already: what is only
/// read is not brought up to date.
pub(in crate::store) fn source(path: &Path, options: &SqliteOptions) -> Result<Connection, StoreError> {
    reachable(path)?;
    if !path.exists() {
        return Err(unreachable(path, "there is no such file"));
    }
    // Where nothing can be written beside it, and nobody has it open, it does not change.
    let opened = reader(path, options).and_then(|db| Ok((steps(&db, path)?, db)));
    let opened = opened.or_else(|trouble| match refine(trouble, path, true) {
        reason @ StoreError::ReadOnly { .. } => Ok((MIGRATIONS.len(), lasting(path, options, reason)?)),
        other => Err(other),
    });
    match opened? {
        (steps, db) if steps == MIGRATIONS.len() => Ok(db),
        (0, _) => Err(unreachable(path, "it is empty")),
        _ => Err(unreachable(path, "an older release wrote it; `epitome verify` on it brings it up to date")),
    }
}

/// A connection to a file that was opened before.
pub(super) fn plain(path: &Path, options: &SqliteOptions) -> Outcome<Connection> {
    // Not opened as read-only: such a one cannot recover what a process that was killed left behind.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    settle(&db, options, 2)?;
    Ok(db)
}

fn prepare(mut db: Connection, path: &Path, options: &SqliteOptions) -> Outcome<Connection> {
    // SQLite falls back to reading without a word. Told before anything is read: reading would already put
    // files beside it.
    if db.is_readonly("main")? {
        let reason = "it may be read only".to_owned();
        return Err(StoreError::ReadOnly { path: path.display().to_string(), reason }.into());
    }
    settle(&db, options, 8)?;
    if at_once(&db, |db| whose(db, path))? {
        look_over(&db, path)?;
    }
    journal(&db, options.busy)?;
    // Every append writes the same few pages again: the longer the log, the fewer of them are copied into the file.
    db.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864; PRAGMA wal_autocheckpoint = 4000",
    )?;
    migrate(&mut db, path, options)?;
    Ok(db)
}

/// What every connection has.
fn settle(db: &Connection, options: &SqliteOptions, mebibytes: i64) -> Outcome<()> {
    db.busy_timeout(options.busy)?;
    db.set_prepared_statement_cache_capacity(128);
    // Otherwise a statement with other values is planned anew, which costs more than running it.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    db.pragma_update(None, "cache_size", -(mebibytes * MIB))?;
    db.execute_batch("PRAGMA temp_store = MEMORY")?;
    Ok(())
}

fn unreachable(path: &Path, reason: impl Into<String>) -> StoreError {
    StoreError::Unreachable { path: path.display().to_string(), reason: reason.into() }
}

/// Why no file can be made there: its directory is missing.
pub(super) fn no_directory(path: &Path) -> Option<String> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.is_dir())?;
    Some(format!("there is no directory {}; make it first", parent.display()))
}

/// Reasons that the system would tell less clearly. A file of a few bytes, which no database is, SQLite takes for an empty
/// one, and writes over it.
///
/// The file is not opened for that. Closing it again would let go of the locks that other stores of this
/// process have on it.
fn reachable(path: &Path) -> Result<(), StoreError> {
    let why = match path.to_str() {
        Some("") => return Err(unreachable(Path::new("the path"), "it is empty; give the path of a file")),
        Some(":memory:") => "it is no path; a store in memory is opened by `memory`",
        _ if path.is_dir() => "it is a directory; give the path of a file in it",
        _ if path.exists() && !path.is_file() => {
            "it is no file but a device or the like; give the path of a file"
        }
        _ => {
            let length = std::fs::metadata(path).map_or(0, |file| file.len());
            return match no_directory(path) {
                Some(why) => Err(unreachable(path, why)),
                None if (1..SMALLEST).contains(&length) => Err(foreign(path, NO_DATABASE)),
                None => Ok(()),
            };
        }
    };
    Err(unreachable(path, why))
}

const NO_DATABASE: &str = "the file is no SQLite database";

fn foreign(path: &Path, reason: &str) -> StoreError {
    StoreError::Foreign { path: path.display().to_string(), reason: reason.to_owned() }
}

/// Says more of why a file could not be opened than SQLite does.
fn refine(trouble: Trouble, path: &Path, opened: bool) -> StoreError {
    let code = match &trouble {
        Trouble::Sql(error) => error.sqlite_error_code(),
        _ => None,
    };
    let why = match code {
        Some(ErrorCode::NotADatabase) => return foreign(path, NO_DATABASE),
        Some(ErrorCode::CannotOpen) if opened => "no file can be made beside it",
        Some(ErrorCode::CannotOpen) if !path.exists() => "no file can be made there",
        _ => return trouble.at(path),
    };
    StoreError::ReadOnly { path: path.display().to_string(), reason: why.to_owned() }
}

/// Reads one state, while another process may be taking the first steps.
fn at_once<T>(db: &Connection, read: impl FnOnce(&Connection) -> Outcome<T>) -> Outcome<T> {
    let state = db.unchecked_transaction()?;
    let found = read(&state)?;
    state.commit()?;
    Ok(found)
}

/// Whether the file is ours (true) or nobody's yet. An error when it is somebody else's, or a later one of ours.
fn whose(db: &Connection, path: &Path) -> Outcome<bool> {
    let number = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0));
    let (application, found) = (number("PRAGMA application_id")?, number("PRAGMA user_version")?);
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    match application {
        APPLICATION if found > known => {
            Err(StoreError::Newer { path: path.display().to_string(), found, known }.into())
        }
        APPLICATION => Ok(true),
        0 if tables == 0 => Ok(false),
        _ => Err(foreign(path, "it holds another program's tables").into()),
    }
}

/// How many steps were taken in a file: none where it is nobody's yet. An error when they were not ours.
fn steps(db: &Connection, path: &Path) -> Outcome<usize> {
    if whose(db, path)? { applied(db) } else { Ok(0) }
}

/// Two processes that open a new file at once may meet here.
fn journal(db: &Connection, busy: Duration) -> Outcome<()> {
    let mode = patiently(busy, ErrorCode::DatabaseBusy, || {
        Ok(db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0))?)
    });
    if mode? == "wal" { Ok(()) } else { Err(refused("this file system takes no write-ahead log")) }
}

/// Takes the steps that are missing, each in a transaction of its own.
fn migrate(db: &mut Connection, path: &Path, options: &SqliteOptions) -> Outcome<()> {
    // Most often there is nothing to do, and then nobody has to wait.
    while at_once(db, |db| steps(db, path))? < MIGRATIONS.len() {
        let step = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have done it meanwhile.
        let done = steps(&step, path)?;
        if let Some((name, sql)) = MIGRATIONS.get(done) {
            if done == 0 {
                step.execute_batch(
                    "CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, \
                     checksum TEXT NOT NULL, applied INTEGER NOT NULL)",
                )?;
                step.pragma_update(None, "application_id", APPLICATION)?;
            }
            step.execute_batch(sql)?;
            let version = i64::try_from(done + 1).unwrap_or(i64::MAX);
            let (sum, now) = (checksum(sql), (options.clock)().0);
            step.execute("INSERT INTO migrations VALUES (?1, ?2, ?3, ?4)", params![version, name, sum, now])?;
            step.pragma_update(None, "user_version", version)?;
        }
        step.commit()?;
    }
    if let Some(pages) = options.max_pages {
        db.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
    }
    Ok(())
}

/// How many steps were taken. An error when they were not ours.
fn applied(db: &Connection) -> Outcome<usize> {
    let version: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let there = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'migrations'";
    if db.query_row(there, [], |_| Ok(())).optional()?.is_none() {
        return Err(nonsense("it does not say by which steps its schema was made"));
    }
    let mut steps = db.prepare("SELECT version, name, checksum FROM migrations ORDER BY version")?;
    let steps = steps.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let steps: Vec<(i64, String, String)> = steps.collect::<Result<_, _>>()?;
    for (at, (number, name, sum)) in steps.iter().enumerate() {
        let ours = MIGRATIONS.get(at).is_some_and(|(ours, sql)| ours == name && checksum(sql) == *sum);
        if !ours || usize::try_from(*number) != Ok(at + 1) {
            return Err(nonsense(format!(
                "step {number} of its schema is not the one this release knows; it was made by another build"
            )));
        }
    }
    if usize::try_from(version) != Ok(steps.len()) {
        return Err(nonsense("its header and its list of schema steps disagree"));
    }
    Ok(steps.len())
}

fn checksum(sql: &str) -> String {
    blake3::hash(sql.as_bytes()).to_hex().to_string()
}

/// Refuses a file that is broken, as far as can be seen in a short time.
fn look_over(db: &Connection, path: &Path) -> Outcome<()> {
    let pages: i64 = db.query_row("PRAGMA page_count", [], |row| row.get(0))?;
    let page: i64 = db.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    let size = u64::try_from(pages.saturating_mul(page)).unwrap_or(0);
    if size <= SMALL {
        let said: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        // Its words may quote what is stored.
        return if said == "ok" { Ok(()) } else { Err(nonsense("SQLite's quick check found a fault")) };
    }
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let logged = std::fs::metadata(log).is_ok_and(|log| log.len() > 0);
    let length = std::fs::metadata(path).map_or(0, |file| file.len());
    // Pages that are still in the log need not be in the file yet.
    if !logged && length < size {
        return Err(nonsense(format!("it ends at byte {length}, and should at {size}")));
    }
    // By what tables of every step have: it is looked at before any is taken.
    for newest in [
        "SELECT * FROM sessions ORDER BY id DESC LIMIT 8",
        "SELECT * FROM messages ORDER BY session DESC, seq DESC LIMIT 8",
        "SELECT * FROM summaries ORDER BY rowid DESC LIMIT 8",
    ] {
        db.prepare(newest)?.query_map([], |_| Ok(()))?.try_for_each(|row| row)?;
    }
    Ok(())
}
