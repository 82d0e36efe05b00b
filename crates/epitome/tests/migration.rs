//! Migrates a SQLite file into a real PostgreSQL: all rows with their ids, despite interruptions.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use epitome::rules::message::Message;
use epitome::store::{
    MigrateError, MigrateOptions, MigrateProgress, MigrateStage, Migrated, Postgres, PostgresOptions,
    StoreError, migrate_to_postgres,
};
use epitome::{Batch, Engine, Error};
use network::{Network, Toward, When};
use postgres_server::{Database, Options, Pooler, Server, server};
use sample::{later, make, open, shown};

#[path = "migration/sample.rs"]
mod sample;

use epitome_testkit::{network, postgres_server};

async fn moved(from: &Path, to: &Database, options: MigrateOptions) -> Result<Migrated, MigrateError> {
    migrate_to_postgres(from, &to.url(), options, &|_| {}).await
}

fn in_pieces(rows: usize) -> MigrateOptions {
    MigrateOptions { rows, ..MigrateOptions::default() }
}

async fn open_there(database: &Database) -> Engine {
    let options = PostgresOptions { clock: Some(Arc::new(later)), ..PostgresOptions::default() };
    let store = Postgres::open(&database.url(), options).await.unwrap();
    Engine::builder().workers(0).store(Arc::new(store)).unwrap()
}

/// Creates a folder with a file that has data and is closed.
async fn file(turns: u32) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("epitome.db");
    make(&path, turns).await;
    (folder, path)
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_migrated_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("epitome.db");
    let secret = make(&path, 45).await;
    let database = server().database();
    let moved = moved(&path, &database, in_pieces(100)).await.unwrap();
    assert_eq!(moved.left_out, 2);
    let rows = |name: &str| moved.tables.iter().find(|table| table.name == name).unwrap().rows;
    assert!(moved.tables.iter().all(|table| table.rows > 0 && table.checksum.len() == 64), "{moved:?}");
    assert_eq!((rows("workspaces"), rows("sessions"), rows("keys")), (3, 5, 2));
    // No two tables contain the same rows.
    let checksums: BTreeSet<&str> = moved.tables.iter().map(|table| table.checksum.as_str()).collect();
    assert_eq!(checksums.len(), moved.tables.len(), "{moved:?}");

    let (here, there) = (open(&path).await, open_there(&database).await);
    let (before, after) = (shown(&here).await, shown(&there).await);
    assert_eq!(before.len(), after.len());
    for (one, other) in before.iter().zip(&after) {
        assert_eq!(one, other);
    }
    assert_eq!(there.verify().await.unwrap(), []);
    assert!(there.keys().check(&secret).await.unwrap().is_some());

    // Numbering continues: no id that was ever assigned is assigned again.
    let home = there.workspace("home");
    let newest = home.newest_event().await.unwrap();
    assert_eq!(newest, here.workspace("home").newest_event().await.unwrap());
    let again =
        home.session("ann").append(Batch::from(Message::user("Once.")).key("order-4711")).await.unwrap();
    assert!(again.repeated);
    home.session("new").append(Message::user("Hello.")).await.unwrap();
    assert_eq!(home.events(Some(newest), None, 10).await.unwrap().events[0].id, newest + 1);
    let largest: i64 = rusqlite::Connection::open(&path)
        .unwrap()
        .query_row("SELECT seq FROM sqlite_sequence WHERE name = 'sessions'", [], |row| row.get(0))
        .unwrap();
    let given = database.psql("SELECT id FROM epitome.sessions WHERE name = 'new'");
    assert_eq!(given.trim(), (largest + 1).to_string());
    there.work().await.unwrap();
    assert_eq!(there.verify().await.unwrap(), []);
    assert!(!home.search("order 150071", None, 10).await.unwrap().items.is_empty());
    here.close().await;
    there.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_migration_continues() {
    let (_folder, path) = file(21).await;
    let straight = server().database();
    let whole = moved(&path, &straight, in_pieces(5_000)).await.unwrap();
    let database = server().database();
    let mut cut_off = 0;
    // Interrupts the migration a little later each time.
    for after in (1..).step_by(3) {
        let told = AtomicU64::new(0);
        let (stop, mut stopped) = tokio::sync::watch::channel(false);
        let tell = |_| {
            if told.fetch_add(1, Ordering::SeqCst) + 1 >= 3 {
                let _ = stop.send(true);
            }
        };
        let url = database.url();
        let options = MigrateOptions { bytes: 20_000, ..in_pieces(17) };
        let done = tokio::select! {
            done = migrate_to_postgres(&path, &url, options, &tell) => Some(done),
            () = async {
                let _ = stopped.wait_for(|stop| *stop).await;
                // Shortly later, or at once.
                tokio::time::sleep(std::time::Duration::from_micros(after * 211 % 5_000)).await;
            } => None,
        };
        match done {
            Some(done) => {
                assert_eq!(done.unwrap(), whole);
                break;
            }
            None => cut_off += 1,
        }
        if is_all_there(&database) {
            // Only the comparison is left, which starts from the beginning each time.
            assert_eq!(moved(&path, &database, in_pieces(1_000)).await.unwrap(), whole);
            break;
        }
        let refused = Postgres::open(&database.url(), PostgresOptions::default()).await.unwrap_err();
        assert!(matches!(refused, StoreError::Unreachable { .. }), "{refused}");
    }
    assert!(cut_off > 5, "{cut_off}");
    let (one, other) = (open_there(&straight).await, open_there(&database).await);
    assert_eq!(shown(&one).await, shown(&other).await);
}

/// Returns whether the checkpoint says that all rows are copied.
fn is_all_there(database: &Database) -> bool {
    database.psql("SELECT step = '' FROM epitome.moving").trim() == "t"
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_connections_and_a_restart_only_delay_it() {
    let (_folder, path) = file(21).await;
    let straight = server().database();
    let whole = moved(&path, &straight, MigrateOptions::default()).await.unwrap();
    let cluster = Server::own(&Options::default());
    let (database, network) = (cluster.database(), Network::to(cluster.address()));
    let url = database.url_by(network.address());
    // The write is committed, but its response is lost.
    network.cut_when(Toward::Node, b"COMMIT\0", When::Before, 4);
    let told = AtomicU64::new(0);
    let tell = |_| match told.fetch_add(1, Ordering::SeqCst) {
        at if at % 9 == 4 => {
            network.cut();
            network.heal();
        }
        at if at == 15 || at == 60 => cluster.restart(),
        _ => {}
    };
    let options = MigrateOptions { bytes: 20_000, ..in_pieces(17) };
    assert_eq!(migrate_to_postgres(&path, &url, options, &tell).await.unwrap(), whole);
    assert!(told.load(Ordering::SeqCst) > 60 && network.matches() == 4, "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_works_behind_a_pooler() {
    let (_folder, path) = file(12).await;
    let database = server().database();
    let pooler = Pooler::to(server(), 3);
    let url = pooler.url(&database);
    migrate_to_postgres(&path, &url, in_pieces(50), &|_| {}).await.unwrap();
    let there = open_there(&database).await;
    assert_eq!(there.verify().await.unwrap(), []);
    there.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_concurrent_migrations_do_no_harm() {
    let (_folder, path) = file(21).await;
    let database = server().database();
    let url = database.url();
    let one = migrate_to_postgres(&path, &url, in_pieces(7), &|_| {});
    let other = migrate_to_postgres(&path, &url, in_pieces(11), &|_| {});
    let (one, other) = tokio::join!(one, other);
    let fine = |done: &Result<Migrated, MigrateError>| match done {
        Ok(_) | Err(MigrateError::Concurrent | MigrateError::Finished) => {}
        Err(error) => panic!("{error}"),
    };
    fine(&one);
    fine(&other);
    // Both may have failed because of each other. Then the next one finishes.
    if one.is_err() && other.is_err() {
        moved(&path, &database, MigrateOptions::default()).await.unwrap();
    }
    let compare = MigrateOptions { only_compare: true, ..MigrateOptions::default() };
    moved(&path, &database, compare).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_difference_is_reported() {
    let (_folder, path) = file(21).await;
    let database = server().database();
    moved(&path, &database, MigrateOptions::default()).await.unwrap();
    let compare = || MigrateOptions { only_compare: true, ..in_pieces(13) };
    for (spoil, mend, table, told) in [
        (
            "UPDATE epitome.messages SET body = body || ' ' WHERE session = 1 AND seq = 30",
            "UPDATE epitome.messages SET body = rtrim(body) WHERE session = 1 AND seq = 30",
            "messages",
            "table messages differs between the file and the database: a row differs in body (session 1, seq 30); ",
        ),
        (
            "UPDATE epitome.messages SET seq = 1000 WHERE session = 1 AND seq = 40",
            "UPDATE epitome.messages SET seq = 40 WHERE session = 1 AND seq = 1000",
            "messages",
            "table messages differs between the file and the database: a row of the file is not in the database (session 1, seq 40); ",
        ),
        (
            "INSERT INTO epitome.members (session, author, joined) VALUES (999, 1, 0)",
            "DELETE FROM epitome.members WHERE session = 999",
            "members",
            "table members differs between the file and the database: a row of the database is not in the file (session 999, author 1); ",
        ),
        (
            "UPDATE epitome.slots SET fence = fence + 1 WHERE name = 'long' AND session = 1",
            "UPDATE epitome.slots SET fence = fence - 1 WHERE name = 'long' AND session = 1",
            "slots",
            "table slots differs between the file and the database: a row differs in fence (session 1, scope \"\", name \"long\"); ",
        ),
        (
            "UPDATE epitome.inline SET kept = '' WHERE length = 3 AND root = '\\x80808080808080808080808080808080'",
            "UPDATE epitome.inline SET kept = '{\"n\": 128}' WHERE kept = ''",
            "inline",
            "table inline differs between the file and the database: a row differs in kept (workspace \"home\", length 3); ",
        ),
    ] {
        database.psql(spoil);
        match moved(&path, &database, compare()).await {
            Err(error @ MigrateError::Differs { .. }) => {
                assert!(error.to_string().starts_with(told), "{spoil}: {error}");
                assert!(matches!(error, MigrateError::Differs { table: named, .. } if named == table));
            }
            other => panic!("{spoil}: {other:?}"),
        }
        database.psql(mend);
        moved(&path, &database, compare()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_empty_database_is_accepted() {
    let (_folder, path) = file(12).await;
    let used = server().database();
    let engine = open_there(&used).await;
    engine.session("ann").append(Message::user("Hello.")).await.unwrap();
    engine.close().await;
    for anew in [false, true] {
        let options = MigrateOptions { restart: anew, ..MigrateOptions::default() };
        assert!(matches!(moved(&path, &used, options).await, Err(MigrateError::Occupied)));
    }
    assert_eq!(used.psql("SELECT count(*) FROM epitome.messages").trim(), "1");

    // A database that was opened and never written to counts as empty.
    let database = server().database();
    open_there(&database).await.close().await;
    moved(&path, &database, MigrateOptions::default()).await.unwrap();
    for anew in [false, true] {
        let options = MigrateOptions { restart: anew, ..MigrateOptions::default() };
        assert!(matches!(moved(&path, &database, options).await, Err(MigrateError::Finished)));
    }
    let (_other_folder, other) = file(11).await;
    assert!(matches!(moved(&other, &database, MigrateOptions::default()).await, Err(MigrateError::Occupied)));

    // With an unfinished migration it accepts another file only with `restart`.
    let half = server().database();
    let url = half.url();
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let tell = |_| {
        let _ = stop.send(true);
    };
    tokio::select! {
        _ = migrate_to_postgres(&path, &url, in_pieces(1), &tell) => panic!("it should have been cut off"),
        _ = stopped.wait_for(|stop| *stop) => {}
    }
    assert!(matches!(moved(&other, &half, MigrateOptions::default()).await, Err(MigrateError::OtherFile)));
    for last in ["5", "[{}]", "["] {
        half.psql(&format!("UPDATE epitome.moving SET last = '{last}'"));
        let told = moved(&path, &half, MigrateOptions::default()).await.unwrap_err().to_string();
        assert!(told.contains("the checkpoint of the migration cannot be read"), "{last}: {told}");
    }
    let anew = MigrateOptions { restart: true, ..MigrateOptions::default() };
    moved(&other, &half, anew).await.unwrap();
}

/// Nodes that were running before, one of them behind a pooler, cannot write during the migration, and cannot continue
/// with their old caches after it.
#[tokio::test(flavor = "multi_thread")]
async fn running_nodes_cannot_use_the_database_during_a_migration() {
    let (_folder, path) = file(12).await;
    let database = server().database();
    let (url, pooler) = (database.url(), Pooler::to(server(), 3));
    let open = async |url: &str| Engine::builder().workers(0).open_postgres(url).await.unwrap();
    let nodes = [open(&url).await, open(&pooler.url(&database)).await];
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let tell = |now: MigrateProgress| {
        let _ = stop.send(now.rows > 3);
    };
    tokio::select! {
        _ = migrate_to_postgres(&path, &url, in_pieces(1), &tell) => panic!("it should have been cut off"),
        _ = stopped.wait_for(|stop| *stop) => {}
    }
    let refused = async |node: &Engine| {
        let said = node.session("new").append(Message::user("Hello.")).await.unwrap_err();
        assert!(matches!(&said, Error::Busy(StoreError::Migrating { .. })), "{said}");
        assert!(said.to_string().contains("`epitome migrate`"), "{said}");
        // They cannot read either, once they have noticed it.
        assert!(node.workspace("home").sessions(None, 10).await.is_err());
    };
    for node in &nodes {
        refused(node).await;
    }
    moved(&path, &database, MigrateOptions { restart: true, ..MigrateOptions::default() }).await.unwrap();
    for node in &nodes {
        refused(node).await;
        node.close().await;
    }
    let there = open(&url).await;
    there.session("new").append(Message::user("Hello.")).await.unwrap();
    assert_eq!(there.verify().await.unwrap(), []);
    there.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_written_to_during_the_migration_is_not_accepted() {
    let (_folder, path) = file(21).await;
    let engine = open(&path).await;
    let database = server().database();
    let (stage, mut seen) = tokio::sync::watch::channel(None);
    let tell = |now: MigrateProgress| {
        stage.send_replace(Some(now.stage));
    };
    let url = database.url();
    let moving = migrate_to_postgres(&path, &url, in_pieces(10), &tell);
    let writing = async {
        seen.wait_for(|stage| *stage == Some(MigrateStage::Copying)).await.unwrap();
        engine.workspace("home").session("ann").append(Message::user("Wait for me.")).await.unwrap();
    };
    let (moved_once, ()) = tokio::join!(moving, writing);
    assert!(matches!(moved_once, Err(MigrateError::SourceChanged)), "{moved_once:?}");
    engine.close().await;
    // The copied rows are outdated: the comparison finds it, and a restart fixes it.
    let again = moved(&path, &database, MigrateOptions::default()).await;
    assert!(matches!(again, Err(MigrateError::Differs { .. })), "{again:?}");
    let anew = MigrateOptions { restart: true, ..MigrateOptions::default() };
    moved(&path, &database, anew).await.unwrap();
    let there = open_there(&database).await;
    assert_eq!(there.workspace("home").session("ann").info().await.unwrap().messages, 44);
    there.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_file_is_reported_before_any_write() {
    let folder = tempfile::tempdir().unwrap();
    let database = server().database();
    let missing = folder.path().join("missing.db");
    let told = moved(&missing, &database, MigrateOptions::default()).await.unwrap_err();
    assert!(matches!(&told, MigrateError::Source(StoreError::Unreachable { .. })), "{told}");
    assert!(!missing.exists());
    let letter = folder.path().join("letter.txt");
    std::fs::write(&letter, "x".repeat(5_000)).unwrap();
    let told = moved(&letter, &database, MigrateOptions::default()).await.unwrap_err();
    assert!(matches!(&told, MigrateError::Source(StoreError::Foreign { .. })), "{told}");
    assert_eq!(database.psql("SELECT to_regnamespace('epitome') IS NULL").trim(), "t");
}
