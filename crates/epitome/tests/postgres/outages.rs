//! The server restarts, the network breaks or falls silent: a delay for whoever writes, and nothing lost or twice.

use std::time::Duration;

use epitome::store::{Store, StoreError};

use crate::helping::{count_of_once, database, hasty, in_time, many, node, say};
use crate::network::Network;
use crate::postgres_server::{Options, Server, Stop, server};
use crate::support::{key, row};

/// Does something to the server or the network, again and again, for as long as anybody writes.
async fn under_load(
    database: &crate::postgres_server::Database,
    url: &str,
    trouble: impl Fn(usize) + Send + 'static,
) {
    const TASKS: usize = 8;
    let (one, other) = (node(url).await, node(url).await);
    let (writing, also) = (many(&one, "one", TASKS, 60), many(&other, "other", TASKS, 60));
    let (ends, ended) = std::sync::mpsc::channel::<()>();
    let troubling = tokio::task::spawn_blocking(move || {
        let mut rounds = 0;
        // At least so often, however fast they are.
        while rounds < 3 || ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            trouble(rounds);
            rounds += 1;
            std::thread::sleep(Duration::from_millis(150));
        }
    });
    in_time(async { tokio::join!(writing.join_all(), also.join_all()) }).await;
    drop(ends);
    in_time(troubling).await.unwrap();
    one.close().await;
    other.close().await;
    assert_eq!(count_of_once(database), 2 * TASKS * 60 * 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_under_load_is_a_delay() {
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
async fn connections_that_are_cut_under_load_are_a_delay() {
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
async fn connections_that_the_server_ends_under_load_are_a_delay() {
    let database = database(server());
    let name = database.name().to_owned();
    under_load(&database, &database.url(), move |_| server().throw_out(&name)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_falls_silent_ends_in_an_error_and_works_again_when_it_heals() {
    let database = database(server());
    let network = Network::to(server().address());
    let url = database.url_by(network.address());
    let node = hasty(&url).await.unwrap();
    say(&node, &key("a"), "before").await.unwrap();

    network.silence();
    let error = in_time(say(&node, &key("b"), "meanwhile")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    let error = in_time(node.standing(&key("a"), Default::default())).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    let error = in_time(node.lease(want())).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    // Whoever comes now is told so as well.
    let error = in_time(hasty(&url)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");

    network.heal();
    in_time(say(&node, &key("a"), "after")).await.unwrap();
    assert_eq!(row(&node, &key("a")).await.tracker.head(), 2);
    node.close().await;
}

fn want() -> epitome::store::Want {
    epitome::store::Want {
        owner: "worker".to_owned(),
        hold: Duration::from_secs(60),
        session: None,
        except: Default::default(),
        after: None,
        full: Default::default(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_silence_is_a_delay() {
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
async fn a_slow_network_is_only_slow() {
    let database = database(server());
    let network = Network::to(server().address());
    network.delay(Duration::from_millis(20));
    let node = node(&database.url_by(network.address())).await;
    in_time(many(&node, "slow", 4, 3).join_all()).await;
    node.close().await;
    assert_eq!(count_of_once(&database), 24);
}
