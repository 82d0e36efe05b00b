//! The server restarts, the network breaks or falls silent: writers are delayed, and no message is lost or duplicated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use epitome::store::Store;
use epitome::store::{Load, Postgres, PostgresOptions, StoreError};
use tokio::task::JoinSet;

use crate::network::Network;
use crate::postgres_server::{Database, Options, Pooler, Server, Stop, server};
use crate::setup::{count_unique_messages, database, haste, hasty, in_time, many, node, say, want};
use crate::support::{key, row};

/// Disturbs the server or the network six times, while sixteen tasks of two nodes write to their own sessions and to a
/// common one. No task gets an error, and no message is missing or stored twice.
async fn under_load(database: &Database, url: &str, trouble: impl Fn(usize) + Send + 'static) {
    const ROUNDS: usize = 6;
    let nodes = [node(url).await, node(url).await];
    let over = Arc::new(AtomicBool::new(false));
    let mut writing = JoinSet::new();
    for (number, node) in nodes.iter().enumerate() {
        for task in 0..8 {
            let (node, over, name) = (node.clone(), Arc::clone(&over), format!("{number} {task}"));
            writing.spawn(async move {
                let mut said = 0;
                while !over.load(Ordering::SeqCst) {
                    for key in [key(&name), key("all")] {
                        let told = say(&node, &key, &format!("{name} {said}")).await;
                        told.unwrap_or_else(|error| panic!("{name} {said}: {error}"));
                        said += 1;
                    }
                }
                said
            });
        }
    }
    let troubling = tokio::task::spawn_blocking(move || {
        for round in 0..ROUNDS {
            // Long enough for some writes in between.
            std::thread::sleep(Duration::from_millis(300));
            trouble(round);
        }
        trouble
    });
    // Keeps the simulated network alive until the end.
    let _trouble = in_time(troubling).await.unwrap();
    over.store(true, Ordering::SeqCst);
    let said: usize = in_time(writing.join_all()).await.into_iter().sum();
    for node in nodes {
        node.close().await;
    }
    assert_eq!(count_unique_messages(database), said);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_restart_under_load_only_delays() {
    let server = Server::own(&Options::default());
    let (database, breaking) = (database(&server), server.clone());
    under_load(&database, &database.url(), move |round| {
        match round % 3 {
            0 => breaking.stop(Stop::Fast),
            1 => breaking.stop(Stop::Immediate),
            _ => breaking.kill(),
        }
        breaking.start();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_restart_behind_a_pooler_only_delays() {
    let server = Server::own(&Options::default());
    let (database, breaking) = (database(&server), server.clone());
    let pooler = Pooler::to(&server, 6);
    under_load(&database, &pooler.url(&database), move |round| {
        breaking.stop(if round % 2 == 0 { Stop::Fast } else { Stop::Immediate });
        breaking.start();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_cut_under_load_only_delay() {
    let database = database(server());
    let network = Network::to(server().address());
    let url = database.url_by(network.address());
    under_load(&database, &url, move |round| {
        if round % 2 == 0 {
            network.cut_once();
        } else {
            network.cut();
            std::thread::sleep(Duration::from_millis(200));
            network.heal();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_ended_by_the_server_under_load_only_delay() {
    let database = database(server());
    let name = database.name().to_owned();
    under_load(&database, &database.url(), move |_| server().throw_out(&name)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_network_returns_an_error_and_recovers() {
    let database = database(server());
    let network = Network::to(server().address());
    let url = database.url_by(network.address());
    let node = hasty(&url).await.unwrap();
    say(&node, &key("a"), "before").await.unwrap();

    network.silence();
    // A call that starts now gets the same error.
    let (a, b) = (key("a"), key("b"));
    let (said, read, leased, opened) = in_time(async {
        tokio::join!(
            say(&node, &b, "meanwhile"),
            node.session_state(&a, Load::default()),
            node.lease(want("worker")),
            hasty(&url),
        )
    })
    .await;
    for told in [said, read.map(|_| ()), leased.map(|_| ()), opened.map(|_| ())] {
        let error = told.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    }

    network.heal();
    in_time(say(&node, &key("a"), "after")).await.unwrap();
    assert_eq!(row(&node, &key("a")).await.tracker.head(), 2);
    node.close().await;
}

/// Every writer has the same deadline; waiting for earlier writers does not extend it.
#[tokio::test(flavor = "multi_thread")]
async fn writers_of_one_session_time_out_together() {
    let server = Server::own(&Options::default());
    let database = database(&server);
    let node = hasty(&database.url()).await.unwrap();
    say(&node, &key("a"), "before").await.unwrap();
    server.stop(Stop::Fast);
    let mut waiting = JoinSet::new();
    for number in 0..12 {
        let node = node.clone();
        waiting.spawn(async move { say(&node, &key("a"), &format!("meanwhile {number}")).await });
    }
    // Four other deadlines pass first.
    for _ in 0..4 {
        in_time(say(&node, &key("b"), "beside it")).await.unwrap_err();
    }
    let mut told = 0;
    while let Some(said) = waiting.try_join_next() {
        let error = said.unwrap().unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
        told += 1;
    }
    assert_eq!(told, 12);
    server.start();
    in_time(say(&node, &key("a"), "after")).await.unwrap();
    node.close().await;
    assert_eq!(count_unique_messages(&database), 2);
}

/// Every existing connection stops answering, as if a router had dropped its state. New connections work.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_replaced() {
    let server = Server::own(&Options::default());
    let database = database(&server);
    let options = PostgresOptions { patience: Duration::from_secs(12), ..haste() };
    let node = Postgres::open(&database.url(), options).await.unwrap();
    in_time(many(&node, "before", 8, 5).join_all()).await;
    // Appends share transactions, so concurrent reads are needed to use all connections.
    let reads = (0..64).map(|_| {
        let node = node.clone();
        async move { node.session_state(&key("all"), Load::default()).await.map(|_| ()) }
    });
    let reads: tokio::task::JoinSet<_> = reads.collect();
    in_time(reads.join_all()).await.into_iter().for_each(Result::unwrap);

    let ours = database.psql("SELECT pid FROM pg_stat_activity WHERE application_name = 'epitome'");
    let ours: Vec<&str> = ours.split_whitespace().collect();
    assert!(ours.len() > 4, "all it may have, and one that listens: {ours:?}");
    signal("-STOP", &ours);
    let (a, all) = (key("a"), key("all"));
    let (said, read) = in_time(async { tokio::join!(say(&node, &a, "new"), node.stamp(&all)) }).await;
    signal("-CONT", &ours);
    said.unwrap();
    assert!(read.unwrap().is_some());
    node.close().await;
    assert_eq!(count_unique_messages(&database), 81);
}

fn signal(signal: &str, pids: &[&str]) {
    for pid in pids {
        epitome_testkit::signal::send(signal, pid.parse().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_server_is_not_reported_as_connections_in_use() {
    let database = database(server());
    let network = Network::to(server().address());
    let node = hasty(&database.url_by(network.address())).await.unwrap();
    say(&node, &key("a"), "before").await.unwrap();
    network.cut();
    // All of its connections are closed.
    in_time(node.stamp(&key("a"))).await.unwrap_err();
    network.silence();
    let error = in_time(node.stamp(&key("a"))).await.unwrap_err().to_string();
    assert!(error.contains("no answer") && !error.contains("in use"), "{error}");
    node.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_silence_only_delays() {
    let database = database(server());
    let network = Network::to(server().address());
    let url = database.url_by(network.address());
    under_load(&database, &url, move |_| {
        network.silence();
        std::thread::sleep(Duration::from_millis(300));
        network.heal();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_network_returns_no_errors() {
    let database = database(server());
    let network = Network::to(server().address());
    network.delay(Duration::from_millis(20));
    let node = node(&database.url_by(network.address())).await;
    in_time(many(&node, "slow", 4, 3).join_all()).await;
    node.close().await;
    assert_eq!(count_unique_messages(&database), 24);
}
