//! Connections that break during a write: each change is written exactly once.

use std::time::{Duration, Instant};

use epitome::store::Store;
use epitome::store::{Load, Postgres};
use epitome_core::message::Message;
use epitome_core::slot::{Limit, Scope, Slot};
use epitome_core::trigger::Trigger;

use crate::network::{Network, Toward, When};
use crate::postgres_server::{Database, Options, Server, Stop, server};
use crate::setup::{count_unique_messages, database, in_time, node, say, want};
use crate::support::{append, key, set_workspace, summarize};

/// The database's message after a commit, with the zero after it. Most appends are a single statement, committed
/// together with its response.
const COMMITTED: &[u8] = b"COMMIT\0";
const ANSWERED: &[u8] = b"SELECT 1\0";

/// Opens a node that reaches its database through the simulated network.
async fn by_network(server: &Server) -> (Database, Network, Postgres) {
    let database = database(server);
    let network = Network::to(server.address());
    let node = node(&database.url_by(network.address())).await;
    (database, network, node)
}

/// Appends to a cached session and to new ones until the network has broken enough connections, then checks what is
/// stored.
async fn check(toward: Toward, pattern: &[u8], when: When) {
    let (database, network, node) = by_network(server()).await;
    say(&node, &key("a"), "first").await.unwrap();
    let mut said = 1;
    for round in 1..=6 {
        network.cut_when(toward, pattern, when, 1);
        while network.matches() < round {
            let new = format!("new {said}");
            let name = if said % 2 == 0 { "a" } else { &new };
            in_time(say(&node, &key(name), &format!("marked, {said}"))).await.unwrap();
            said += 1;
            assert!(said < 1_000, "what is waited for does not pass");
        }
    }
    node.close().await;
    assert_eq!(count_unique_messages(&database), said);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_write_is_repeated() {
    check(Toward::Database, b"marked", When::Before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_in_doubt_is_done_once() {
    check(Toward::Database, b"marked", When::After).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_with_a_lost_response_is_done_once() {
    check(Toward::Node, COMMITTED, When::Before).await;
    check(Toward::Node, ANSWERED, When::Before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_done_once_despite_a_network_outage() {
    let (database, network, node) = by_network(server()).await;
    say(&node, &key("a"), "first").await.unwrap();
    for (number, (toward, pattern)) in
        [(Toward::Node, COMMITTED), (Toward::Database, b"marked".as_slice())].into_iter().enumerate()
    {
        network.cut_all_when(toward, pattern, When::Before);
        let (writer, before) = (node.clone(), network.matches());
        let writing =
            tokio::spawn(async move { say(&writer, &key("a"), &format!("marked, {number}")).await });
        until(|| network.matches() > before).await;
        let tries = network.accepted();
        // The node is retrying.
        until(|| network.accepted() > tries + 2).await;
        network.heal();
        in_time(writing).await.unwrap().unwrap();
    }
    node.close().await;
    assert_eq!(count_unique_messages(&database), 3);
}

async fn until(mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(120), "it was waited for in vain");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Starts a cluster that loses everything not yet durable when it crashes.
fn forgetful() -> Server {
    let settings = ["wal_writer_delay = 10s", "bgwriter_lru_maxpages = 0", "autovacuum = off"];
    Server::own(&Options { settings: settings.map(str::to_owned).to_vec(), ..Options::default() })
}

/// Runs so many other transactions that one of them gets the id of the lost transaction.
fn take_numbers(database: &Database) {
    database.psql("CREATE TABLE IF NOT EXISTS others (it int)");
    database.psql("DO $$ BEGIN FOR i IN 1..300 LOOP INSERT INTO others VALUES (i); COMMIT; END LOOP; END $$");
}

/// Assigning a transaction id is not durable, so after a crash another transaction may get the same id. A node that
/// queries the first transaction then gets the status of the second.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_lost_in_a_crash_is_not_confused_with_a_reused_transaction_id() {
    let server = forgetful();
    for stop in [Stop::Immediate, Stop::Fast] {
        let (database, network, node) = by_network(&server).await;
        say(&node, &key("known"), "first").await.unwrap();
        // A second write to the same session uses other statements than the first.
        for (name, others_are_faster) in [("known", false), ("known", true), ("new", false), ("newer", true)]
        {
            network.cut_all_when(Toward::Database, b"marked", When::Before);
            let (writer, before) = (node.clone(), network.matches());
            let text = format!("marked, {others_are_faster}");
            let writing = tokio::spawn(async move { say(&writer, &key(name), &text).await });
            until(|| network.matches() > before).await;
            server.stop(stop);
            server.start();
            if others_are_faster {
                take_numbers(&database);
            }
            network.heal();
            in_time(writing).await.unwrap().unwrap();
        }
        node.close().await;
        assert_eq!(count_unique_messages(&database), 5);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_lost_in_a_crash_is_stored_again() {
    let server = forgetful();
    let (database, network, node) = by_network(&server).await;
    say(&node, &key("a"), "first").await.unwrap();
    // The written summary identifies the transaction.
    network.cut_all_when(Toward::Database, b"up to 1", When::Before);
    let writer = node.clone();
    let writing = tokio::spawn(async move { summarize(&writer, &key("a"), &Scope::Session, "s", 1).await });
    until(|| network.matches() > 0).await;
    server.stop(Stop::Immediate);
    server.start();
    take_numbers(&database);
    network.heal();
    assert_eq!(in_time(writing).await.unwrap(), 1);
    assert_eq!(database.psql("SELECT id, text FROM epitome.summaries"), "1|up to 1");
    node.close().await;
}

/// A transaction whose rows do not identify it writes a commit mark.
#[tokio::test(flavor = "multi_thread")]
async fn settings_lost_in_a_crash_are_set_again() {
    let server = forgetful();
    let (database, network, node) = by_network(&server).await;
    say(&node, &key("a"), "first").await.unwrap();
    let settings = r#"{"limits": {"message": 1000}}"#;
    network.cut_all_when(Toward::Database, b"limits", When::Before);
    let writer = node.clone();
    let writing =
        tokio::spawn(async move { set_workspace(&writer, &key("a").workspace, Some(settings)).await });
    until(|| network.matches() > 0).await;
    server.stop(Stop::Immediate);
    server.start();
    take_numbers(&database);
    network.heal();
    in_time(writing).await.unwrap();
    assert_eq!(database.psql("SELECT settings FROM epitome.workspaces"), settings);
    node.close().await;
}

/// Messages that count as indexed, but are missing in the index, would never be found again.
#[tokio::test(flavor = "multi_thread")]
async fn index_rows_lost_in_a_crash_are_written_again() {
    let server = forgetful();
    let (database, network, node) = by_network(&server).await;
    network.cut_all_when(Toward::Database, b"INTO epitome.words", When::Before);
    say(&node, &key("a"), "first").await.unwrap();
    until(|| network.matches() > 0).await;
    server.stop(Stop::Immediate);
    server.start();
    take_numbers(&database);
    network.heal();
    until(|| database.psql("SELECT indexed FROM epitome.sessions") == "1").await;
    assert_eq!(database.psql("SELECT count(*) FROM epitome.words"), "1");
    assert_eq!(node.verify().await.unwrap(), []);
    node.close().await;
}

/// Two workers with a lease under the same fencing token would both write the summary.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_lost_in_a_crash_is_not_used() {
    let server = forgetful();
    let (database, network, node) = by_network(&server).await;
    let other = crate::setup::node(&database.url()).await;
    for (name, others_are_faster) in [("a", false), ("b", true)] {
        node.change(&key(name), Load::default(), append(vec![Message::user("hello")], vec![slot()]))
            .await
            .unwrap();
        network.cut_all_when(Toward::Database, b"worker", When::Before);
        let (worker, before) = (node.clone(), network.matches());
        let leasing = tokio::spawn(async move { worker.lease(want("worker")).await });
        until(|| network.matches() > before).await;
        server.stop(Stop::Immediate);
        server.start();
        if others_are_faster {
            let taken = in_time(other.lease(want("another"))).await.unwrap().unwrap();
            assert_eq!((taken.key, taken.slot.fence), (key(name), 1));
        }
        take_numbers(&database);
        network.heal();
        let lease = in_time(leasing).await.unwrap().unwrap();
        let holder = format!(
            "SELECT work::json ->> 'owner' FROM epitome.slots JOIN epitome.sessions ON id = session \
             WHERE sessions.name = '{name}'"
        );
        if others_are_faster {
            assert_eq!((lease, database.psql(&holder).as_str()), (None, "another"));
        } else {
            assert_eq!((lease.unwrap().slot.fence, database.psql(&holder).as_str()), (1, "worker"));
        }
    }
    node.close().await;
    other.close().await;
}

fn slot() -> Slot {
    Slot { trigger: Trigger::Messages(1), ..Slot::new("s", Limit::Tokens(100)) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_with_a_lost_response_belongs_to_its_worker() {
    let (database, network, node) = by_network(server()).await;
    for (name, toward, pattern) in
        [("a", Toward::Node, COMMITTED), ("b", Toward::Database, b"worker".as_slice())]
    {
        let said = vec![Message::user("hello")];
        node.change(&key(name), Load::default(), append(said, vec![slot()])).await.unwrap();
        // Maintenance has finished by then, and commits nothing in between.
        database.psql("SELECT pg_sleep(0.2)");
        let before = network.matches();
        network.cut_when(toward, pattern, When::Before, 1);
        let lease =
            in_time(node.lease(want("worker"))).await.unwrap().expect("it is ready, and nobody else has it");
        assert_eq!((lease.key, lease.slot.fence, network.matches()), (key(name), 1, before + 1));
    }
    node.close().await;
}
