//! Opens a SQLite file, and checks that it is an Epitome database, undamaged, and not written by a newer release.
//!
//! The file is not changed before these checks have shown that it is an Epitome database or empty.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior, params};

use super::super::error::StoreError;
use super::error::{OpError, OpResult, damaged, rejected};
use super::options::SqliteOptions;

/// `EPIT`: the application id in the SQLite header that identifies an Epitome database.
const APPLICATION: i64 = 0x4550_4954;

/// The schema migrations, in order. A released migration is never changed.
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

/// Size in bytes up to which every page of a file is checked when it is opened.
const FULL_CHECK_MAX: u64 = 64 << 20;

/// Smallest size of a database in bytes: one page of the smallest page size.
const MIN_DATABASE_BYTES: u64 = 512;

const KIB_PER_MIB: i64 = 1 << 10;

/// Opens the file for the writer, and migrates its schema.
///
/// A file of up to 64 MiB is checked with `quick_check`, which would take seconds for a larger file. Of a larger file,
/// only the header, the schema and the newest rows are read, and the file's length is compared with the header.
/// `verify` checks the rest.
pub(super) fn writer(path: &Path, options: &SqliteOptions) -> Result<Connection, StoreError> {
    check_path(path)?;
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // Retries if another process changes the schema at the same time, because both processes migrate the same new file.
    let opened = retry_while(options.busy, ErrorCode::SchemaChanged, || {
        let db = Connection::open_with_flags(path, flags);
        prepare(db.map_err(|error| refine(error.into(), path, false))?, path, options)
    });
    opened.map_err(|error| refine(error, path, true))
}

/// Retries `attempt` for up to `busy` while SQLite returns this error code. SQLite's own busy timeout does not cover
/// the code.
fn retry_while<T>(busy: Duration, code: ErrorCode, mut attempt: impl FnMut() -> OpResult<T>) -> OpResult<T> {
    let until = Instant::now() + busy;
    loop {
        match attempt() {
            Err(OpError::Sqlite(error))
                if error.sqlite_error_code() == Some(code) && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

/// Opens a file that this process can only read. The schema must be current, and no other process must have the file
/// open. Such a file does not change, so SQLite needs no log file next to it. If a log file exists, a process has the
/// file open, and the newest data may be only in the log. In this case, returns `reason`: the error with which the file
/// could not be opened for writing.
pub(super) fn checked_immutable(
    path: &Path,
    options: &SqliteOptions,
    reason: StoreError,
) -> Result<Connection, StoreError> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if !path.is_file() || Path::new(&log).exists() {
        return Err(reason);
    }
    match immutable(path, options).and_then(|db| Ok((applied_migrations(&db, path)?, db))) {
        Ok((steps, db)) if steps == MIGRATIONS.len() => Ok(db),
        // The schema is outdated, and this file cannot be migrated.
        Ok(_) => Err(reason),
        Err(error) => Err(refine(error, path, true)),
    }
}

/// Opens a connection to a file that no process changes.
pub(super) fn immutable(path: &Path, options: &SqliteOptions) -> OpResult<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    // Characters that have a meaning in a URI are percent-encoded.
    let spelled: String = path
        .to_string_lossy()
        .chars()
        .map(|c| if matches!(c, '?' | '#' | '%') { format!("%{:02X}", u32::from(c)) } else { c.to_string() })
        .collect();
    let db = Connection::open_with_flags(format!("file:{spelled}?immutable=1"), flags)?;
    configure(&db, options, 2)?;
    Ok(db)
}

/// Opens a database in memory. Its data is lost when the connection is closed.
pub(super) fn memory(options: &SqliteOptions) -> Result<Connection, StoreError> {
    let name = Path::new(":memory:");
    let opened = Connection::open_in_memory().map_err(OpError::from).and_then(|mut db| {
        configure(&db, options, 8)?;
        migrate(&mut db, name, options)?;
        Ok(db)
    });
    opened.map_err(|error| error.into_store_error(name))
}

/// Opens a connection that only reads.
pub(super) fn reader(path: &Path, options: &SqliteOptions) -> OpResult<Connection> {
    let db = plain(path, options)?;
    db.execute_batch("PRAGMA query_only = ON")?;
    Ok(db)
}

/// Opens a file that a migration into PostgreSQL only reads. If no other file can be created in its directory, opens it
/// as an immutable file. The schema must be current, because this function does not migrate it.
pub(in crate::store) fn source(path: &Path, options: &SqliteOptions) -> Result<Connection, StoreError> {
    check_path(path)?;
    if !path.exists() {
        return Err(unreachable(path, "there is no such file"));
    }
    // If no log file can be created next to the file, and no process has the file open, the file does not change.
    let opened = reader(path, options).and_then(|db| Ok((applied_migrations(&db, path)?, db)));
    let opened = opened.or_else(|error| match refine(error, path, true) {
        reason @ StoreError::ReadOnly { .. } => {
            Ok((MIGRATIONS.len(), checked_immutable(path, options, reason)?))
        }
        other => Err(other),
    });
    match opened? {
        (steps, db) if steps == MIGRATIONS.len() => Ok(db),
        (0, _) => Err(unreachable(path, "it is empty")),
        _ => Err(unreachable(path, "an older release wrote it; `epitome verify` updates its schema")),
    }
}

/// Opens a connection to an existing file, without any checks.
pub(super) fn plain(path: &Path, options: &SqliteOptions) -> OpResult<Connection> {
    // The connection is not read-only, because a read-only connection cannot recover the log of a process that was
    // killed.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    configure(&db, options, 2)?;
    Ok(db)
}

fn prepare(mut db: Connection, path: &Path, options: &SqliteOptions) -> OpResult<Connection> {
    // If SQLite cannot open the file for writing, SQLite opens it for reading and reports no error. So this check runs
    // before the first read: a read would already create files next to the database.
    if db.is_readonly("main")? {
        let reason = "SQLite could open it only for reading".to_owned();
        return Err(StoreError::ReadOnly { path: path.display().to_string(), reason }.into());
    }
    configure(&db, options, 8)?;
    if in_one_transaction(&db, |db| is_epitome_file(db, path))? {
        check_damage(&db, path)?;
    }
    enable_wal(&db, options.busy)?;
    // Every append writes the same few pages again. The larger the log may grow, the less often these pages are copied
    // into the file.
    db.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864; PRAGMA wal_autocheckpoint = 4000",
    )?;
    migrate(&mut db, path, options)?;
    Ok(db)
}

/// Applies the settings that every connection needs.
fn configure(db: &Connection, options: &SqliteOptions, mebibytes: i64) -> OpResult<()> {
    db.busy_timeout(options.busy)?;
    db.set_prepared_statement_cache_capacity(128);
    // Without this setting, SQLite plans a statement again when its values change, which takes longer than running the
    // statement.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    db.pragma_update(None, "cache_size", -(mebibytes * KIB_PER_MIB))?;
    db.execute_batch("PRAGMA temp_store = MEMORY")?;
    Ok(())
}

fn unreachable(path: &Path, reason: impl Into<String>) -> StoreError {
    StoreError::Unreachable { path: path.display().to_string(), reason: reason.into() }
}

/// Returns an error text if the directory of this path does not exist, otherwise `None`.
pub(super) fn missing_directory(path: &Path) -> Option<String> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.is_dir())?;
    Some(format!("there is no directory {}; create it first", parent.display()))
}

/// Refuses paths for which the operating system's error would be less clear. Also refuses a file of a few bytes, which
/// cannot be a database: SQLite would treat it as empty and overwrite it.
///
/// The file is not opened for these checks: closing it again would release the locks that other stores of this process
/// have on it.
fn check_path(path: &Path) -> Result<(), StoreError> {
    let why = match path.to_str() {
        Some("") => return Err(unreachable(Path::new("the path"), "it is empty; give the path of a file")),
        Some(":memory:") => "it is not a path; open a store in memory with `memory`",
        _ if path.is_dir() => "it is a directory; give the path of a file in it",
        _ if path.exists() && !path.is_file() => {
            "it is not a regular file but a device or similar; give the path of a file"
        }
        _ => {
            let length = std::fs::metadata(path).map_or(0, |file| file.len());
            return match missing_directory(path) {
                Some(why) => Err(unreachable(path, why)),
                None if (1..MIN_DATABASE_BYTES).contains(&length) => Err(foreign(path, NOT_SQLITE)),
                None => Ok(()),
            };
        }
    };
    Err(unreachable(path, why))
}

const NOT_SQLITE: &str = "the file is not a SQLite database";

fn foreign(path: &Path, reason: &str) -> StoreError {
    StoreError::Foreign { path: path.display().to_string(), reason: reason.to_owned() }
}

/// Returns a more specific error than SQLite's. `opened` is set if the file itself could be opened, and a later step
/// failed.
fn refine(error: OpError, path: &Path, opened: bool) -> StoreError {
    let code = match &error {
        OpError::Sqlite(error) => error.sqlite_error_code(),
        _ => None,
    };
    let why = match code {
        Some(ErrorCode::NotADatabase) => return foreign(path, NOT_SQLITE),
        Some(ErrorCode::CannotOpen) if opened => "no file can be created next to it",
        Some(ErrorCode::CannotOpen) if !path.exists() => "no file can be created there",
        _ => return error.into_store_error(path),
    };
    StoreError::ReadOnly { path: path.display().to_string(), reason: why.to_owned() }
}

/// Runs reads in one transaction, so that they see a single state even if another process migrates the schema at the
/// same time.
fn in_one_transaction<T>(db: &Connection, read: impl FnOnce(&Connection) -> OpResult<T>) -> OpResult<T> {
    let state = db.unchecked_transaction()?;
    let found = read(&state)?;
    state.commit()?;
    Ok(found)
}

/// Returns true if the file is an Epitome database, and false if it is empty. Fails if it belongs to another program or
/// to a newer release.
fn is_epitome_file(db: &Connection, path: &Path) -> OpResult<bool> {
    let number = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0));
    let (application, found) = (number("PRAGMA application_id")?, number("PRAGMA user_version")?);
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    let supported = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    match application {
        APPLICATION if found > supported => {
            Err(StoreError::Newer { path: path.display().to_string(), found, supported }.into())
        }
        APPLICATION => Ok(true),
        0 if tables == 0 => Ok(false),
        _ => Err(foreign(path, "it contains tables of another program").into()),
    }
}

/// Returns the number of schema migrations applied to a file; 0 if the file is empty. Fails if the applied migrations
/// differ from the migrations of this release.
fn applied_migrations(db: &Connection, path: &Path) -> OpResult<usize> {
    if is_epitome_file(db, path)? { read_applied(db) } else { Ok(0) }
}

/// Switches the file to WAL mode. Retries, because two processes may open a new file at the same time.
fn enable_wal(db: &Connection, busy: Duration) -> OpResult<()> {
    let mode = retry_while(busy, ErrorCode::DatabaseBusy, || {
        Ok(db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0))?)
    });
    if mode? == "wal" {
        Ok(())
    } else {
        Err(rejected("this file system does not support SQLite's WAL mode; use a local disk"))
    }
}

/// Applies the missing schema migrations, each in its own transaction.
fn migrate(db: &mut Connection, path: &Path, options: &SqliteOptions) -> OpResult<()> {
    // Usually no migration is missing. This check takes no write lock, so no other process has to wait.
    while in_one_transaction(db, |db| applied_migrations(db, path))? < MIGRATIONS.len() {
        let step = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have applied this migration meanwhile.
        let done = applied_migrations(&step, path)?;
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

/// Returns the number of applied schema migrations. Fails if they differ from this release's migrations.
fn read_applied(db: &Connection) -> OpResult<usize> {
    let version: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let there = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'migrations'";
    if db.query_row(there, [], |_| Ok(())).optional()?.is_none() {
        return Err(damaged("its list of schema migrations is missing"));
    }
    let mut steps = db.prepare("SELECT version, name, checksum FROM migrations ORDER BY version")?;
    let steps = steps.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let steps: Vec<(i64, String, String)> = steps.collect::<Result<_, _>>()?;
    for (at, (number, name, sum)) in steps.iter().enumerate() {
        let ours = MIGRATIONS.get(at).is_some_and(|(ours, sql)| ours == name && checksum(sql) == *sum);
        if !ours || usize::try_from(*number) != Ok(at + 1) {
            return Err(damaged(format!(
                "its schema migration {number} differs from the one in this release; another build wrote it"
            )));
        }
    }
    if usize::try_from(version) != Ok(steps.len()) {
        return Err(damaged("the schema version in its header differs from its list of schema migrations"));
    }
    Ok(steps.len())
}

fn checksum(sql: &str) -> String {
    blake3::hash(sql.as_bytes()).to_hex().to_string()
}

/// Refuses a damaged file. Finds only damage that can be found in a short time.
fn check_damage(db: &Connection, path: &Path) -> OpResult<()> {
    let pages: i64 = db.query_row("PRAGMA page_count", [], |row| row.get(0))?;
    let page: i64 = db.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    let size = u64::try_from(pages.saturating_mul(page)).unwrap_or(0);
    if size <= FULL_CHECK_MAX {
        let result: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        // SQLite's message is left out, because it may quote stored data.
        return if result == "ok" { Ok(()) } else { Err(damaged("SQLite's quick check found a fault")) };
    }
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let logged = std::fs::metadata(log).is_ok_and(|log| log.len() > 0);
    let length = std::fs::metadata(path).map_or(0, |file| file.len());
    // Pages that are still in the log need not be in the file yet.
    if !logged && length < size {
        return Err(damaged(format!("it is {length} bytes long, but its header says {size}")));
    }
    // These queries must work with the schema of every migration, because they run before the file is migrated.
    for newest in [
        "SELECT * FROM sessions ORDER BY id DESC LIMIT 8",
        "SELECT * FROM messages ORDER BY session DESC, seq DESC LIMIT 8",
        "SELECT * FROM summaries ORDER BY rowid DESC LIMIT 8",
    ] {
        db.prepare(newest)?.query_map([], |_| Ok(()))?.try_for_each(|row| row)?;
    }
    Ok(())
}
