//! SQLite only: files of all kinds, faults, crashes.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use epitome::store::*;
use epitome_core::slot::{Limit, Scope, Slot};
use epitome_core::trigger::Trigger;
use epitome_testkit::drawing::messages;
use planted::FAULTS;
use rusqlite::Connection;
use support::*;

#[path = "sqlite/members.rs"]
mod members;
#[path = "store_contract/support.rs"]
mod support;
#[path = "sqlite/verify.rs"]
mod verify;

use epitome_testkit::planted;

fn options() -> SqliteOptions {
    SqliteOptions {
        busy: Duration::from_millis(200),
        index_pause: Duration::from_millis(2),
        ..SqliteOptions::default()
    }
}

fn refusal(path: &Path) -> StoreError {
    Sqlite::open(path, options()).map(|_| ()).unwrap_err()
}

fn raw(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

fn count(path: &Path, sql: &str) -> i64 {
    Connection::open(path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Waits until the query counts no rows. Maintenance removes them when no write is waiting.
async fn until_none(path: &Path, sql: &str) {
    for _ in 0..2_000 {
        if count(path, sql) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("still counted: {sql}");
}

/// Creates a file with data, and closes it.
async fn used(dir: &Path) -> PathBuf {
    let path = dir.join("used.db");
    let store = Sqlite::open(&path, options()).unwrap();
    let order = Slot { trigger: Trigger::Messages(3), ..Slot::new("s", Limit::Tokens(100)) };
    say_with(&store, &key("a"), "s u a(x) r(x) a~ u a u a", &[order]).await;
    summarize(&store, &key("a"), &Scope::Session, "s", 4).await;
    summarize(&store, &key("a"), &Scope::Session, "s", 6).await;
    let remember: Decide = Box::new(|_| {
        let span = epitome_core::message::Span::new(1, 2).unwrap();
        let repeat = EarlierAppend { body: vec![1], span };
        let members = vec![Membership::Join("ann".into(), None)];
        Some(Changes { idempotency: Some(("k".to_owned(), repeat)), members, ..Changes::default() })
    });
    store.change(&key("a"), Load::default(), remember).await.unwrap();
    until_none(&path, "SELECT count(*) FROM sessions WHERE indexed < head").await;
    assert_eq!(store.verify().await.unwrap(), []);
    store.close().await;
    path
}

#[tokio::test]
async fn a_file_of_a_newer_release_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = used(dir.path()).await;
    raw(&path, "PRAGMA user_version = 99");
    assert!(matches!(refusal(&path), StoreError::Newer { found: 99, supported: 8, .. }));
}

/// Creates a file with the first schema migration, its migrations table and its application id.
fn first_schema(path: &Path) {
    const SQL: &str = include_str!("../migrations/sqlite/0001_sessions.sql");
    let checksum = blake3::hash(SQL.as_bytes()).to_hex();
    raw(
        path,
        &format!(
            "PRAGMA application_id = 0x45504954; PRAGMA user_version = 1; CREATE TABLE migrations (version INTEGER \
             PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied INTEGER NOT NULL); \
             INSERT INTO migrations VALUES (1, '0001_sessions', '{checksum}', 0); {SQL}"
        ),
    );
}

#[tokio::test]
async fn a_file_of_the_first_schema_is_migrated_with_its_summaries() {
    let dir = tempfile::tempdir().unwrap();
    let now = used(dir.path()).await;
    let old = dir.path().join("old.db");
    first_schema(&old);
    // Two sessions of that release, in which summaries are numbered across the whole store.
    raw(
        &old,
        &format!(
            "ATTACH '{}' AS now; \
             INSERT INTO workspaces SELECT name, settings, created FROM now.workspaces; INSERT INTO sessions SELECT id, workspace, name, \
             state, encoding, tracker, head, turns, tokens, opener, batch_from, batch_skipped, skipped, indexed, \
             settings, metadata, created, updated FROM now.sessions; \
             INSERT INTO messages SELECT * FROM now.messages; INSERT INTO slots SELECT session, scope, name, \
             state, covered, due, active, ready_at, work, fence FROM now.slots; \
             INSERT INTO summaries SELECT id * 10, session, scope, slot, through, state, parent * 10, created, asked, \
             facts, text, sources FROM now.summaries; \
             UPDATE slots SET active = active * 10; UPDATE sessions SET indexed = 0; \
             INSERT INTO sessions SELECT 2, workspace, 'b', state, encoding, tracker, head, turns, tokens, opener, \
             batch_from, batch_skipped, skipped, indexed, settings, metadata, created, updated FROM sessions; \
             CREATE TEMP TABLE m AS SELECT * FROM messages; UPDATE m SET session = 2; INSERT INTO messages SELECT * FROM m; \
             CREATE TEMP TABLE l AS SELECT * FROM slots; UPDATE l SET session = 2, active = active + 5; \
             INSERT INTO slots SELECT * FROM l; \
             INSERT INTO summaries SELECT id + 5, 2, scope, slot, through, state, parent + 5, created, 'question', facts, \
             text || ' in b', sources FROM summaries; DETACH now",
            now.display()
        ),
    );
    let store = Sqlite::open(&old, options()).unwrap();
    assert_eq!(store.verify().await.unwrap(), []);
    let all = async |id| {
        let history = PickSummaries::History { slot: None, before: None, limit: 9 };
        let rows = store.summaries(id, history).await.unwrap();
        rows.into_iter().map(|row| (row.id, row.parent, row.through, row.text)).collect::<Vec<_>>()
    };
    let told = |id, parent, through, text: &str| (id, parent, through, text.to_owned());
    assert_eq!(all(1).await, [told(20, Some(10), 6, "up to 6"), told(10, None, 4, "up to 4")]);
    assert_eq!(all(2).await, [told(25, Some(15), 6, "up to 6 in b"), told(15, None, 4, "up to 4 in b")]);
    assert_eq!(store.summary_for_request("w", 1, "question").await.unwrap().as_deref(), Some("up to 6 in b"));
    assert_eq!(count(&old, "SELECT count(*) FROM migrations"), 8);
    assert_eq!(count(&old, "SELECT count(*) FROM slots WHERE workspace = 'w'"), 2);
    assert_eq!(count(&old, "SELECT count(*) FROM sqlite_schema WHERE name LIKE '%before%'"), 0);
    store.close().await;
    // Undo works; the next id follows the largest of the same session.
    let engine = epitome::Engine::builder().workers(0).open(&old).await.unwrap();
    let workspace = engine.workspace("w");
    assert_eq!(workspace.session("a").undo(20).await.unwrap().unwrap().id, 10);
    assert!(matches!(workspace.session("a").undo(25).await, Err(epitome::Error::NotFound { .. })));
    engine.close().await;
    let store = Sqlite::open(&old, options()).unwrap();
    assert_eq!(summarize(&store, &key("a"), &Scope::Session, "s", 8).await, 21);
    assert_eq!(summarize(&store, &key("b"), &Scope::Session, "s", 8).await, 26);
    say(&store, &key("new"), "u a").await;
    assert_eq!(summarize(&store, &key("new"), &Scope::Session, "s", 2).await, 1);
    assert_eq!(store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn a_schema_of_another_build_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = used(dir.path()).await;
    raw(&path, "UPDATE migrations SET checksum = 'x'");
    assert!(matches!(refusal(&path), StoreError::Damaged { .. }));
    raw(&path, "DROP TABLE migrations");
    assert!(matches!(refusal(&path), StoreError::Damaged { .. }));
}

#[test]
fn files_of_other_programs_are_refused_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("theirs.db");
    raw(&path, "CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)");
    let before = std::fs::read(&path).unwrap();
    assert!(matches!(refusal(&path), StoreError::Foreign { .. }));
    assert_eq!(std::fs::read(&path).unwrap(), before);

    let marked = dir.path().join("marked.db");
    raw(&marked, "PRAGMA application_id = 7; VACUUM");
    assert!(matches!(refusal(&marked), StoreError::Foreign { .. }));

    for (name, garbage) in [("long", "no database ".repeat(1_000)), ("short", "x".to_owned())] {
        let path = dir.path().join(name);
        std::fs::write(&path, &garbage).unwrap();
        assert!(matches!(refusal(&path), StoreError::Foreign { .. }), "{name}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), garbage);
    }
    let empty = dir.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    assert!(Sqlite::open(&empty, options()).is_ok());
}

#[test]
fn an_unusable_path_returns_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let error = refusal(dir.path());
    assert!(matches!(error, StoreError::Unreachable { .. }) && error.to_string().contains("directory"));
    let error = refusal(&dir.path().join("none/a.db"));
    assert!(matches!(error, StoreError::Unreachable { .. }) && error.to_string().contains("no directory"));
}

#[tokio::test]
async fn a_damaged_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = used(dir.path()).await;
    let mut bytes = std::fs::read(&path).unwrap();
    let half = bytes.len() / 2 / 4_096 * 4_096;
    bytes[half..half + 4_096].fill(0xaa);
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(refusal(&path), StoreError::Damaged { .. }));
    let path = used(&{
        let other = dir.path().join("other");
        std::fs::create_dir(&other).unwrap();
        other
    })
    .await;
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(matches!(refusal(&path), StoreError::Damaged { .. }));
}

/// Permissions do not apply to root, so this opens the files as the user `nobody`, in its own process.
#[cfg(unix)]
#[tokio::test]
async fn a_read_only_file_is_refused() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    const NAME: &str = "a_read_only_file_is_refused";
    if let Ok(path) = std::env::var("EPITOME_TEST_READ_ONLY") {
        assert!(
            matches!(refusal(Path::new(&path)), StoreError::ReadOnly { .. }),
            "{:?}",
            refusal(Path::new(&path))
        );
        return;
    }
    let allow = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    // The other user may not be able to read the folder of the test binary, for example under `/root`.
    let readable = tempfile::tempdir().unwrap();
    allow(readable.path(), 0o755);
    let program = readable.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    for (file, directory, target) in
        [(0o444, 0o777, "used.db"), (0o666, 0o555, "used.db"), (0o666, 0o555, "new.db")]
    {
        let dir = tempfile::tempdir().unwrap();
        let path = used(dir.path()).await;
        let target = dir.path().join(target);
        allow(&path, file);
        allow(dir.path(), directory);
        let mut again = std::process::Command::new(&program);
        again.args(["--exact", NAME, "--nocapture"]).env("EPITOME_TEST_READ_ONLY", &target);
        // Root becomes the user `nobody`; permissions apply to every other user already.
        if std::fs::metadata(dir.path()).unwrap().uid() == 0 {
            again.uid(65_534).gid(65_534);
        }
        let output = again.output().unwrap();
        allow(dir.path(), 0o777);
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{target:?} {file:o} {directory:o}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_file_returns_busy_until_it_is_unlocked() {
    let dir = tempfile::tempdir().unwrap();
    let path = used(dir.path()).await;
    let store = Sqlite::open(&path, options()).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let decide = append(messages("u").unwrap(), vec![]);
    let refused = store.change(&key("a"), Load::default(), decide).await;
    assert!(matches!(refused, Err(StoreError::Busy)), "{refused:?}");
    // Reading and opening still work.
    assert_eq!(row(&store, &key("a")).await.tracker.head(), 9);
    assert!(Sqlite::open(&path, options()).is_ok());
    other.execute_batch("ROLLBACK").unwrap();
    say(&store, &key("a"), "u").await;
    store.close().await;
    drop(other);
    let exclusive = Connection::open(&path).unwrap();
    exclusive
        .execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; PRAGMA user_version = 1")
        .unwrap();
    assert!(matches!(refusal(&path), StoreError::Busy));
}

#[tokio::test]
async fn a_full_disk_loses_no_stored_data() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("full.db");
    let store = Sqlite::open(&path, SqliteOptions { max_pages: Some(60), ..options() }).unwrap();
    let mut kept = 0;
    let refused = loop {
        let decide = append(messages(&"u:400 ".repeat(10)).unwrap(), vec![]);
        match store.change(&key("a"), Load::default(), decide).await {
            Ok(_) => kept += 10,
            Err(error) => break error,
        }
        assert!(kept < 10_000);
    };
    assert!(matches!(refused, StoreError::Full { .. }), "{refused:?}");
    assert_eq!(row(&store, &key("a")).await.tracker.head(), kept);
    // The next append continues after the stored messages, not after the refused one.
    for size in [1, 400, 1, 1] {
        let decide = append(messages(&format!("u:{size}")).unwrap(), vec![]);
        kept += u64::from(store.change(&key("a"), Load::default(), decide).await.is_ok());
        assert_eq!(row(&store, &key("a")).await.tracker.head(), kept);
    }
    store.close().await;
    let store = Sqlite::open(&path, options()).unwrap();
    say(&store, &key("a"), "u").await;
    assert_eq!(store.verify().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_can_open_a_new_file_at_once() {
    for _ in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new.db");
        let patient = SqliteOptions { busy: Duration::from_secs(10), ..options() };
        let openers: Vec<_> = (0..4)
            .map(|_| {
                let (path, options) = (path.clone(), patient.clone());
                std::thread::spawn(move || Sqlite::open(path, options).unwrap())
            })
            .collect();
        let stores: Vec<Sqlite> = openers.into_iter().map(|opener| opener.join().unwrap()).collect();
        for store in &stores {
            say(store, &key("a"), "u a").await;
        }
        assert_eq!(row(&stores[0], &key("a")).await.tracker.head(), 8);
        assert_eq!(stores[1].verify().await.unwrap(), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_stores_of_one_file_see_each_others_writes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let patient = || SqliteOptions { busy: Duration::from_secs(20), ..options() };
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let store = Arc::new(Sqlite::open(&path, patient()).unwrap());
        for _ in 0..4 {
            let store = Arc::clone(&store);
            tasks.spawn(async move {
                for _ in 0..25 {
                    say(&*store, &key("a"), "u a").await;
                }
            });
        }
    }
    tasks.join_all().await;
    let store = Sqlite::open(&path, patient()).unwrap();
    assert_eq!(row(&store, &key("a")).await.tracker.head(), 400);
    assert_eq!(store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn every_planted_fault_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let sound = used(dir.path()).await;
    let own = [
        ("message", "DELETE FROM messages WHERE seq = 3"),
        ("session", "DELETE FROM messages WHERE seq = 9"),
        ("message 2", "UPDATE messages SET body = replace(body, 'm2', 'm2 m2') WHERE seq = 2"),
        ("session", "UPDATE messages SET skip = 0"),
        ("session", "UPDATE sessions SET tracker = replace(tracker, '\"begun\":true', '\"begun\":false')"),
        ("session", "DELETE FROM words WHERE rowid = (1 << 32) + 3"),
        ("slot", "UPDATE slots SET state = json_set(state, '$.covered', 99), covered = 99"),
        ("messages", "UPDATE messages SET session = 9"),
        (
            "file",
            "DROP INDEX messages_pinned; CREATE INDEX messages_pinned ON messages (session, seq) WHERE pinned <> 0; \
          PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'pinned <> 0', 'pinned = 0') \
          WHERE name = 'messages_pinned'; PRAGMA writable_schema = OFF",
        ),
    ];
    for (at, plant) in FAULTS.iter().chain(&own) {
        let path = dir.path().join("faulty.db");
        std::fs::copy(&sound, &path).unwrap();
        raw(&path, plant);
        // Maintenance would fix or remove some of it.
        let quiet = SqliteOptions { index_pause: Duration::from_secs(600), ..options() };
        match Sqlite::open(&path, quiet) {
            Ok(store) => {
                let faults = store.verify().await.unwrap();
                assert!(faults.iter().any(|fault| fault.at.contains(at)), "{plant}: {faults:?}");
                store.close().await;
            }
            Err(error) => {
                assert!(*at == "file" && matches!(error, StoreError::Damaged { .. }), "{plant}: {error}");
            }
        }
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(dir.path().join(format!("faulty.db{end}")));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_during_writes_is_consistent() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Sqlite::open(dir.path().join("a.db"), options()).unwrap());
    say(&*store, &key("a"), "u a").await;
    let writing = Arc::clone(&store);
    let writer = tokio::spawn(async move {
        for _ in 0..200 {
            say(&*writing, &key("a"), "u a(x) r(x)").await;
        }
    });
    for round in 0..3 {
        let to = dir.path().join(format!("backup{round}.db"));
        store.backup(&to).await.unwrap();
        assert!(matches!(store.backup(&to).await, Err(StoreError::Unreachable { .. })));
        let copy = Sqlite::open(&to, options()).unwrap();
        assert_eq!(copy.verify().await.unwrap(), []);
        assert!(row(&copy, &key("a")).await.tracker.head() >= 2);
        copy.close().await;
    }
    writer.await.unwrap();
    let refused = store.backup(&dir.path().join("none/a.db")).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unreachable { .. }), "{refused:?}");
    let left = std::fs::read_dir(dir.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains(".part"));
    assert_eq!(left.count(), 0);

    let memory = Sqlite::memory(options()).unwrap();
    say(&memory, &key("a"), "u a").await;
    memory.backup(&dir.path().join("memory.db")).await.unwrap();
    let copy = Sqlite::open(dir.path().join("memory.db"), options()).unwrap();
    assert_eq!(row(&copy, &key("a")).await.tracker.head(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn maintenance_removes_deleted_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let clock = Clock::default();
    let store = Sqlite::open(&path, clock.options()).unwrap();
    say(&store, &key("a"), &"u a ".repeat(1_200)).await;
    say(&store, &key("b"), "u").await;
    let id = row(&store, &key("a")).await.id;
    summarize(&store, &key("a"), &Scope::Session, "s", 2).await;
    store.copy(id, 1_000).await.unwrap();
    until_none(&path, "SELECT count(*) FROM sessions WHERE state = 'open' AND indexed < head").await;
    assert!(store.delete(&key("a")).await.unwrap());
    store.close().await;
    assert_eq!(count(&path, "SELECT count(*) FROM sessions WHERE state = 'hidden'"), 1);
    // A process removes what another one left, and an abandoned copy.
    clock.set(2 * 3_600_000);
    let store = Sqlite::open(&path, clock.options()).unwrap();
    until_none(&path, "SELECT count(*) FROM sessions WHERE state <> 'open'").await;
    assert_eq!(store.verify().await.unwrap(), []);
    store.close().await;
    assert_eq!(count(&path, "SELECT count(*) FROM sessions"), 1);
    assert_eq!(count(&path, "SELECT count(*) FROM messages"), 1);
    assert_eq!(count(&path, "SELECT count(*) FROM words"), 1);
    assert_eq!(count(&path, "SELECT count(*) FROM summaries"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let store = Sqlite::open(&path, options()).unwrap();
    for round in 1..=20_u64 {
        say(&store, &key("a"), "u a(x) r(x)").await;
        // The files that a process killed now would leave.
        let crashed = dir.path().join(format!("crashed{round}.db"));
        for end in ["-wal", ""] {
            std::fs::copy(format!("{}{end}", path.display()), format!("{}{end}", crashed.display())).unwrap();
        }
        let again = Sqlite::open(&crashed, options()).unwrap();
        assert!(row(&again, &key("a")).await.tracker.head() >= 3 * round);
        assert_eq!(again.verify().await.unwrap(), []);
        say(&again, &key("a"), "u").await;
    }
}

/// Kills a separate process while it writes.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_a_kill() {
    const NAME: &str = "acknowledged_writes_survive_a_kill";
    if let Ok(dir) = std::env::var("EPITOME_TEST_KILLED") {
        let dir = PathBuf::from(dir);
        let store = Sqlite::open(dir.join("a.db"), options()).unwrap();
        for answered in 1..u64::MAX {
            say(&store, &key("a"), "u a(x) r(x)").await;
            std::fs::write(dir.join("new"), answered.to_string()).unwrap();
            std::fs::rename(dir.join("new"), dir.join("answered")).unwrap();
        }
    }
    for millis in [40, 90, 160, 250] {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME])
            .env("EPITOME_TEST_KILLED", dir.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let answered =
            || std::fs::read_to_string(dir.path().join("answered")).map_or(0, |n| n.parse().unwrap());
        while answered() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(millis)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let answered: u64 = answered();
        let store = Sqlite::open(dir.path().join("a.db"), options()).unwrap();
        let head = row(&store, &key("a")).await.tracker.head();
        assert!((3 * answered..=3 * answered + 3).contains(&head), "{answered} answered, {head} kept");
        assert_eq!(store.verify().await.unwrap(), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_writes_share_a_transaction_and_polling_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let stages: Arc<Mutex<Vec<WriteStage>>> = Arc::default();
    let begun = Arc::new(AtomicUsize::new(0));
    let (told, counted) = (Arc::clone(&stages), Arc::clone(&begun));
    let options = SqliteOptions {
        on_write: Some(Arc::new(move |stage| {
            told.lock().unwrap().push(stage);
            if stage == WriteStage::Begun {
                counted.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(5));
            }
        })),
        ..options()
    };
    let store = Arc::new(Sqlite::open(dir.path().join("a.db"), options).unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let store = Arc::clone(&store);
        tasks.spawn(async move { say(&*store, &key("a"), "u").await });
    }
    tasks.join_all().await;
    assert!(begun.load(Ordering::SeqCst) < 40, "{begun:?}");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(stages.lock().unwrap().chunks(2).all(|two| two == [WriteStage::Begun, WriteStage::Ended]));
    let before = begun.load(Ordering::SeqCst);
    let want = LeaseRequest {
        owner: "me".to_owned(),
        duration: Duration::from_secs(1),
        session: None,
        excluded: Default::default(),
        after: None,
        full_workspaces: Default::default(),
    };
    for _ in 0..20 {
        assert!(store.lease(want.clone()).await.unwrap().is_none());
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(begun.load(Ordering::SeqCst), before);
}
