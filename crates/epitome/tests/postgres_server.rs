//! The PostgreSQL that tests start is what they need it to be.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on fails; a child tells where it is"
)]

#[path = "postgres_server/mod.rs"]
mod postgres_server;

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use postgres_server::{Options, Server, Stop, server};

#[test]
fn two_databases_are_apart() {
    let (one, other) = (server().database(), server().database());
    one.psql("CREATE TABLE here (it int)");
    assert_eq!(one.psql("SELECT count(*) FROM here"), "0");
    assert!(other.try_psql("SELECT count(*) FROM here").unwrap_err().contains("does not exist"));
}

#[test]
fn a_template_is_made_once_and_copied() {
    let server = server();
    let made = |url: &str| {
        let name = url.rsplit('/').next().unwrap();
        assert_eq!(server.psql(&format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'")), "1");
        server.psql("CREATE ROLE made_once");
    };
    let (one, other) = (server.template("a", made), server.template("a", |_| unreachable!("it is there")));
    assert_ne!(one.name(), other.name());
}

#[test]
fn a_restart_keeps_what_was_committed_however_it_ended() {
    let server = Server::own(&Options::default());
    let database = server.database();
    database.psql("CREATE TABLE here (it int)");
    let held = database.hold("BEGIN; INSERT INTO here VALUES (-1)");
    let address = server.address();
    let endings: [&dyn Fn(); 3] =
        [&|| server.stop(Stop::Fast), &|| server.stop(Stop::Immediate), &|| server.kill()];
    for (number, end) in endings.into_iter().enumerate() {
        database.psql(&format!("INSERT INTO here VALUES ({number})"));
        end();
        assert!(server.try_psql("SELECT 1").is_err());
        server.start();
        assert_eq!(server.address(), address);
    }
    assert_eq!(database.psql("SELECT it FROM here ORDER BY it"), "0\n1\n2");
    drop(held);
}

#[test]
fn a_cluster_is_configured_as_its_test_says() {
    let server =
        Server::own(&Options { settings: vec!["max_connections = 8".to_owned()], ..Options::default() });
    assert_eq!(server.psql("SHOW max_connections"), "8");
    let directory = server.directory().to_owned();
    assert!(directory.exists());
    drop(server);
    assert!(!directory.exists());
}

/// Runs itself as a child, which has a cluster made and is killed.
#[test]
fn a_cluster_is_gone_after_its_process_was_killed() {
    const CHILD: &str = "EPITOME_TEST_IS_CHILD";
    if std::env::var_os(CHILD).is_some() {
        println!("\nit is at {} {}", server().address(), server().directory().display());
        thread::sleep(Duration::from_secs(600));
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_cluster_is_gone_after_its_process_was_killed", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let heard = BufReader::new(child.stdout.take().unwrap());
    let told = heard.lines().map_while(Result::ok).find(|line| line.starts_with("it is at ")).unwrap();
    let (address, directory) = told["it is at ".len()..].split_once(' ').unwrap();
    let (address, directory): (SocketAddr, &Path) = (address.parse().unwrap(), Path::new(directory));
    assert!(TcpStream::connect(address).is_ok() && directory.exists());

    child.kill().unwrap();
    child.wait().unwrap();
    let begun = Instant::now();
    while TcpStream::connect(address).is_ok() || directory.exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is still there: {told}");
        thread::sleep(Duration::from_millis(20));
    }
}
