//! The PostgreSQL that tests start is what they need it to be.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use epitome_testkit::postgres_server::{Options, Pooler, Server, Stop, program, server};

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

#[test]
fn a_pooler_shares_few_connections_among_many() {
    let database = server().database();
    database.psql("CREATE TABLE here (it int)");
    let pooler = Pooler::to(server(), 2);
    let asked = |sql: &str| {
        Command::new(program("psql"))
            .args(["-X", "-A", "-t", &pooler.url(&database), "-c", sql])
            .output()
            .unwrap()
    };
    thread::scope(|scope| {
        for number in 0..10 {
            let sql = format!("INSERT INTO here SELECT {number} FROM pg_sleep(0.05)");
            scope.spawn(move || assert!(asked(&sql).status.success()));
        }
    });
    assert_eq!(database.psql("SELECT count(*) FROM here"), "10");
    let told = asked("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()");
    let connections: usize = String::from_utf8(told.stdout).unwrap().trim().parse().unwrap();
    assert!((1..=2).contains(&connections), "{connections}");
}

/// Runs itself as a child, which has a cluster made and is killed.
#[test]
fn a_cluster_is_gone_after_its_process_was_killed() {
    const CHILD: &str = "EPITOME_TEST_IS_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let pooler = Pooler::to(server(), 2);
        println!("\nit is at {} {} {}", server().address(), pooler.address(), server().directory().display());
        thread::sleep(Duration::from_secs(600));
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "postgres_server::a_cluster_is_gone_after_its_process_was_killed", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let heard = BufReader::new(child.stdout.take().unwrap());
    let told = heard.lines().map_while(Result::ok).find(|line| line.starts_with("it is at ")).unwrap();
    let told: Vec<&str> = told["it is at ".len()..].splitn(3, ' ').collect();
    let addresses: [SocketAddr; 2] = [told[0].parse().unwrap(), told[1].parse().unwrap()];
    let directory = Path::new(told[2]);
    assert!(addresses.iter().all(|address| TcpStream::connect(address).is_ok()) && directory.exists());

    child.kill().unwrap();
    child.wait().unwrap();
    let begun = Instant::now();
    while addresses.iter().any(|address| TcpStream::connect(address).is_ok()) || directory.exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "something is still there: {told:?}");
        thread::sleep(Duration::from_millis(20));
    }
}
